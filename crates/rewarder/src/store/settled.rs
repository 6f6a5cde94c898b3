//! What the seals say was paid, for whoever compares it with a ledger.

use std::sync::Arc;

use ron_ledger::{Reconciliation, Tally};
use ron_log::Class;

use super::{EpochRow, EpochStatus, SealRecord, Store, StoreError};

impl Store {
    /// Epochs that are settled and paid somebody, the one settled last first; without those that a person gave up.
    pub fn settled_last(&self, limit: usize) -> Vec<Arc<EpochRow>> {
        let is_paid =
            |row: &&Arc<EpochRow>| row.status == EpochStatus::Settled && row.intents > 0 && row.given_up_by.is_none();
        let mut settled: Vec<Arc<EpochRow>> = self.rows().by_epoch.values().filter(is_paid).cloned().collect();
        settled.sort_unstable_by_key(|row| std::cmp::Reverse(row.settled_as));
        settled.truncate(limit);
        settled
    }

    /// Every row, to be looked at while others change.
    pub fn all(&self) -> Vec<Arc<EpochRow>> {
        self.rows().by_epoch.values().cloned().collect()
    }

    /// Writes down that a person knows of a settled epoch that the ledger lacks and nothing can be sent of any more.
    pub fn give_up(&self, row: &Arc<EpochRow>, by: &str) -> Result<Arc<EpochRow>, StoreError> {
        self.replace(row, EpochRow { given_up_by: Some(by.to_owned()), ..(**row).clone() })
    }

    /// Writes a row anew, if it is still this one.
    pub(crate) fn replace(&self, row: &Arc<EpochRow>, with: EpochRow) -> Result<Arc<EpochRow>, StoreError> {
        self.write_if(Class::Settle, &SealRecord::Row(Box::new(with)), |rows| {
            let is_same = rows.by_epoch.get(&row.epoch).is_some_and(|now| now == row);
            if is_same { Ok(()) } else { Err(StoreError::Needed(row.epoch.clone())) }
        })
    }
}

impl EpochRow {
    /// Sums by asset that the ledger had when the epoch was settled; nothing if they were not written down.
    pub fn settled_tallies(&self) -> Vec<Tally> {
        let report =
            self.reconciliation.clone().and_then(|report| serde_json::from_value::<Reconciliation>(report).ok());
        let tally = |line: ron_ledger::AssetReconciliation| {
            let (count, paid) = (line.expected_count.parse().ok()?, line.expected_paid.parse().ok()?);
            Some(Tally { asset: line.asset, count, paid, taken_back: line.expected_taken_back.parse().ok()? })
        };
        report.map_or_else(Vec::new, |report| report.assets.into_iter().filter_map(tally).collect())
    }

    /// Whether a ledger that holds this of the run has less than it had when the epoch was settled.
    pub fn is_missing_in(&self, found: &[Tally]) -> bool {
        let report = ron_ledger::reconcile(&self.settled_tallies(), found);
        report.assets.iter().any(|line| line.verdict == ron_ledger::Verdict::Missing)
    }
}
