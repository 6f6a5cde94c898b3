//! Corrections of runs that are paid but for some payouts, which their ledger refused.
//!
//! Such a run stays open in the ledger until the first payouts of its correction: whatever node has the run may still
//! pay what was refused. Therefore the ledger is asked what it has of the run before these payouts and after them.

use std::sync::Arc;

use ron_ledger::{RunKey, Tally};

use super::emitter::{End, Later, Refused, book, load, reconciled, tally};
use super::engine::Engine;
use super::ledger_port::PayoutLedger;
use crate::correct::Correction;
use crate::intents::Intents;
use crate::store::{EpochRow, EpochStatus, Quarantine, QuarantineReason};

/// Why a ledger cannot be told of such a correction.
pub(super) const NO_POTS: &str = "the ledger would go on paying the corrected run beside its correction: it does not keep to one \
                       run per pot";

/// Why a correction without payouts does not begin.
const PAYS_NOBODY: &str =
    "it pays nobody, so that the ledger would not hear of it and might still pay what was refused of the corrected run";

/// A correction that says of the run which it corrects that some payouts were refused.
pub(super) struct PartPaid<'a> {
    pub engine: &'a Arc<Engine>,
    pub ledger: &'a dyn PayoutLedger,
    /// The row of the correction.
    pub row: &'a Arc<EpochRow>,
    /// The run that it corrects.
    pub run: &'a RunKey,
    pub correction: &'a Correction,
}

impl PartPaid<'_> {
    /// Books the first payouts of the correction, after which the ledger takes nothing more of the corrected run, if
    /// that run is paid as the correction says: before it and, because another node may be as far, after it.
    pub async fn begin(&self, intents: &Intents<'_>, keeps_pots: bool) -> Result<Option<End>, Later> {
        let is_resent = self.row.status == EpochStatus::Settled;
        if !keeps_pots && !is_resent {
            return self.rejected(End::intent(NO_POTS)).await.map(Some);
        }
        let first = intents.batch(0, self.engine.options.batch_entries);
        if first.is_none() && !is_resent {
            return self.rejected(End::intent(PAYS_NOBODY)).await.map(Some);
        }
        let mut objection = self.objection().await?;
        // The ledger has lost both; nobody else brings it what is booked of a run that stays in quarantine.
        if objection.is_some() && is_resent {
            if let Some(end) = self.send_corrected_again().await? {
                return Ok(Some(end));
            }
            objection = self.objection().await?;
        }
        match objection {
            // Compared, and not equal.
            Some(end @ End::Quarantined(_, Some(_))) => return self.rejected(end).await.map(Some),
            Some(refused) => return Ok(Some(refused)),
            None => {}
        }
        // Whole: of a batch with a payee who is refused nothing is booked, and the correction is over.
        let Some((first, _)) = first.filter(|_| self.row.place == 0) else { return Ok(None) };
        match book(self.engine, self.ledger, &first, 0, &mut Refused::default()).await? {
            // Refused as it is, it cannot begin: another correction was first, or a payee of its own is refused.
            Some(end) => self.rejected(end).await.map(Some),
            None => self.objection().await,
        }
    }

    /// Why the corrected run is not paid as the correction says; none if it is.
    async fn objection(&self) -> Result<Option<End>, Later> {
        let expected = self.correction.paid.iter().map(|(asset, amounts)| Tally {
            asset: asset.clone(),
            count: amounts.iter().filter(|amount| **amount > 0).count() as u64,
            paid: amounts.iter().sum(),
            taken_back: 0,
        });
        let found = match tally(self.engine, self.ledger, self.run).await? {
            Ok(found) => found,
            Err(end) => return Ok(Some(end)),
        };
        match reconciled(&expected.collect::<Vec<_>>(), &found) {
            End::Settled(_) => Ok(None),
            end => Ok(Some(end)),
        }
    }

    /// How a correction ends that cannot begin. One of which nothing is booked has paid nobody: it is over as if a
    /// person had rejected it, so that it keeps neither its name nor the corrected run.
    async fn rejected(&self, end: End) -> Result<End, Later> {
        if self.row.status != EpochStatus::Released {
            return Ok(end);
        }
        let Some(own) = crate::hashing::parse_b3(&self.row.run_key) else { return Ok(end) };
        let is_booked = match tally(self.engine, self.ledger, &own).await? {
            Ok(found) => found.iter().any(|tally| tally.count > 0),
            Err(_) => true,
        };
        Ok(match end {
            End::Quarantined(Quarantine { reason: QuarantineReason::Intent, detail }, report) if !is_booked => {
                let detail = format!("nothing of the correction is booked, and it is not paid any more: {detail}");
                End::Quarantined(Quarantine { reason: QuarantineReason::Rejected, detail }, report)
            }
            end => end,
        })
    }

    /// Sends every payout of the corrected run again but those that were refused.
    async fn send_corrected_again(&self) -> Result<Option<End>, Later> {
        let store = self.engine.store().map_err(|error| Later(error.to_string()))?;
        let Some(row) = self.row.corrects.as_ref().and_then(|corrected| store.get(corrected)) else {
            return Ok(Some(End::intent("the run that it corrects is not in the seal log any more")));
        };
        let loaded = match load(self.engine, &row).await? {
            Ok(loaded) => loaded,
            Err(end) => return Ok(Some(end)),
        };
        let intents = Intents::of(&loaded.computed);
        let mut place = 0;
        while let Some((mut batch, next)) = intents.batch(place, self.engine.options.batch_entries) {
            batch.entries.retain(|entry| !self.correction.unpaid.names(&batch.asset, &entry.account));
            if !batch.entries.is_empty()
                && let Some(end) = book(self.engine, self.ledger, &batch, 0, &mut Refused::default()).await?
            {
                return Ok(Some(end));
            }
            place = next;
        }
        tracing::info!(epoch = row.epoch, "what was booked of a corrected epoch is in the ledger again");
        Ok(None)
    }
}
