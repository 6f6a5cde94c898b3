//! What the seals call settled is in the ledger: asked before anything is paid.
//!
//! A ledger may come back older than the seals, or empty: a folder restored from a copy, a schema that was lost.
//! Then nothing more is booked, until the ledger has what it lacks: because it was restored, or because a person had it
//! sent again, which books each payout once, whatever is there of it.

use std::sync::Arc;

use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::emitter::{End, Later, pay, tally};
use super::engine::{Engine, lock};
use super::handle::Rewarder;
use super::ledger_port::PayoutLedger;
use crate::store::{EpochRow, Store};

/// Settled epochs that a ledger elsewhere is asked about when it is met: those settled last, which an older copy lacks
/// before it lacks any other. The embedded book is asked about all.
const ASKED_MAX: usize = 16;
/// Epochs named to an operator.
const NAMED_MAX: usize = 5;

/// What was found when the ledger was asked last.
#[derive(Default)]
pub(crate) struct SettledCheck {
    /// The ledger was asked about as many as it is when it is met.
    is_met: bool,
    /// Settled epochs that the ledger lacks, in the order in which they were settled.
    missing: Vec<Arc<EpochRow>>,
    /// A person has asked for them to be sent again.
    is_resent: bool,
}

impl SettledCheck {
    /// The settled epochs that the ledger lacks.
    pub fn missing(&self) -> &[Arc<EpochRow>] {
        &self.missing
    }

    /// Has what is missing sent again at the next look.
    pub fn resend(&mut self) {
        self.is_resent = !self.missing.is_empty();
    }

    /// What is wrong, in words; none if nothing is.
    pub fn words(&self) -> Option<String> {
        let names: Vec<&str> = self.missing.iter().take(NAMED_MAX).map(|row| row.epoch.as_str()).collect();
        let more = self.missing.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "the ledger lacks payouts of epochs that are settled: {}{more}; nothing more is booked until it is \
                 restored, or `macronode ledger resend` has sent them again",
                names.join(", ")
            )
        })
    }
}

/// Asks the ledger about settled epochs; what it lacks keeps every other payout waiting, or is sent again if a person
/// said so.
pub(crate) async fn check(engine: &Arc<Engine>, store: &Store, ledger: &dyn PayoutLedger) -> Result<(), Later> {
    let limit = match (ledger.book().is_some(), lock(&engine.settled).is_met) {
        (true, false) => usize::MAX,
        // Nobody else writes into the embedded book, and it is not exchanged while it is open.
        (true, true) => 0,
        (false, false) => ASKED_MAX,
        // The schema of a ledger elsewhere may go while the node runs.
        (false, true) => 1,
    };
    let was_missing = !lock(&engine.settled).missing.is_empty();
    look(engine, store, ledger, limit).await?;
    if lock(&engine.settled).is_resent {
        send_again(engine, store, ledger).await?;
    }
    let words = lock(&engine.settled).words();
    if was_missing || words.is_some() {
        engine.counts.set_ledger_waits(words.is_some());
    }
    words.map_or(Ok(()), |words| Err(Later(words)))
}

/// Asks about what was missing before and about so many epochs that were settled last.
async fn look(engine: &Engine, store: &Store, ledger: &dyn PayoutLedger, limit: usize) -> Result<(), Later> {
    let mut asked = lock(&engine.settled).missing.clone();
    let newest =
        store.settled_last(limit).into_iter().filter(|row| !asked.iter().any(|known| known.epoch == row.epoch));
    asked.extend(newest.collect::<Vec<_>>());
    let mut missing = Vec::new();
    for row in asked {
        // Given up, or settled anew, since it was found missing.
        let Some(row) = store.get(&row.epoch).filter(|row| row.given_up_by.is_none()) else { continue };
        let Some(run) = crate::hashing::parse_b3(&row.run_key) else { continue };
        match tally(engine, ledger, &run).await? {
            Ok(found) if row.is_missing_in(&found) => missing.push(row),
            Ok(_) => {}
            Err(end) => {
                return Err(Later(format!("the ledger does not say what it has of {}: {}", row.epoch, end.words())));
            }
        }
    }
    missing.sort_unstable_by_key(|row| row.settled_as);
    let mut settled = lock(&engine.settled);
    if !missing.is_empty() && settled.missing.is_empty() {
        tracing::error!(epochs = missing.len(), first = missing[0].epoch, "the ledger lacks settled epochs");
    }
    settled.is_resent &= !missing.is_empty();
    (settled.is_met, settled.missing) = (true, missing);
    Ok(())
}

/// Sends every payout of the missing epochs again, in the order in which they were settled: a correction takes back
/// what the run before it has paid.
async fn send_again(engine: &Arc<Engine>, store: &Store, ledger: &dyn PayoutLedger) -> Result<(), Later> {
    // A ledger elsewhere was asked about the newest epochs only: before they are sent, it is asked about all.
    look(engine, store, ledger, usize::MAX).await?;
    let missing = lock(&engine.settled).missing.clone();
    for row in missing.iter().filter(|row| row.removed_by.is_none()) {
        let from_the_first = EpochRow { place: 0, sent: 0, ..(**row).clone() };
        match pay(engine, &Arc::new(from_the_first)).await? {
            End::Settled(_) => tracing::info!(epoch = row.epoch, "a settled epoch is in the ledger again"),
            end @ End::Quarantined(..) => {
                lock(&engine.settled).is_resent = false;
                return Err(Later(format!("epoch {} cannot be sent again: {}", row.epoch, end.words())));
            }
        }
    }
    lock(&engine.settled).is_resent = false;
    look(engine, store, ledger, 0).await
}

impl Rewarder {
    /// Settled epochs that the ledger lacks, as it was found last.
    pub fn missing(&self) -> Vec<Arc<EpochRow>> {
        lock(&self.engine.settled).missing().to_vec()
    }

    /// Has the settled epochs that the ledger lacks sent again, each payout once; gives them. Those whose artifacts are
    /// removed cannot be sent: with `gives_up_removed` they are given up, so that they keep nothing waiting any more.
    pub async fn resend(
        &self,
        by: &str,
        gives_up_removed: bool,
        deadline: Deadline,
    ) -> Result<Vec<Arc<EpochRow>>, Error> {
        let missing = self.missing();
        let (engine, by, rows) = (Arc::clone(&self.engine), by.to_owned(), missing.clone());
        let marked = tokio::task::spawn_blocking(move || {
            let store = engine.store()?;
            for row in rows.iter().filter(|row| gives_up_removed && row.removed_by.is_some()) {
                let given_up = store.give_up(row, &by);
                given_up.map_err(|error| Error::new(Kind::Degraded, error.to_string()))?;
                tracing::warn!(epoch = row.epoch, by, "a settled epoch that the ledger lacks is given up");
            }
            lock(&engine.settled).resend();
            engine.wake_emitter();
            Ok(())
        });
        let marked: Result<(), Error> =
            deadline.run("resend", marked).await?.map_err(|_| Error::canceled("work of the rewarder broke off"))?;
        marked.map(|()| missing)
    }
}
