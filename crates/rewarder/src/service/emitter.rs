//! The intent emitter: brings the payouts of released runs to the ledger, remembers how far, and compares at the end.
//!
//! Payouts are a pure function of the sealed run, so that only a place among them is remembered. Losing it costs
//! duplicates, which the ledger finds; a payout that was answered for is never sent under another key.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry::{Idempotent, RetryLimits};
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_ledger::{Batch, LedgerError, Outcome, RunKey, Tally};
use ron_types::limits::RETRY_CAP;
use ron_types::limits::rewarder::RPC_RETRY_JITTER;
use ron_types::{Error, Kind};

use super::engine::{Engine, Payable, RewardEvent};
use super::ledger_port::PayoutLedger;
use super::reads::open_run;
use super::settled;
use crate::hashing::parse_b3;
use crate::intents::Intents;
use crate::sealed::SealedError;
use crate::store::{EpochRow, EpochStatus, Quarantine, QuarantineReason, Store, StoreError};

/// Batches after which the place is written down: each costs a sync, and each one lost only a batch of duplicates.
const BATCHES_PER_RECORD: u64 = 16;
/// Longest answer of a ledger to one call.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Waits after a ledger that does not answer.
const PAUSES: RetryLimits = RetryLimits {
    first_wait: (Duration::from_secs(1), Duration::from_secs(2)),
    cap: Duration::from_secs(30),
    tries_max: 0,
};
/// Corrections of corrections that are followed to find which comes first.
const CHAIN_MAX: usize = 64;
/// Payees of one epoch that a ledger may refuse by themselves, before the epoch is given up: a ledger that refuses
/// everything is found out after a few more calls.
const REFUSED_MAX: usize = 8;
/// Payees named in a quarantine.
const NAMED_MAX: usize = 10;

const PAY: Idempotent = Idempotent { op: "ledger", because: "a payout has a key, and the ledger finds duplicates" };

/// One life of the emitter.
pub(crate) async fn intent_emitter(
    context: TaskContext,
    engine: Arc<Engine>,
    mut wakes: QueueReceiver<Payable>,
) -> TaskResult {
    context.beating(engine.until_opened()).await;
    // A ledger that cannot be opened yet keeps payouts waiting, not the node.
    if let Err(error) = context.beating(engine.ledger()).await {
        tracing::warn!(%error, "the ledger cannot be opened yet");
    }
    context.ready().await;
    let mut failures = 0;
    loop {
        // Given up in the middle, a batch is sent again after the next start: a duplicate.
        let all = tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            all = context.beating(settle_all(&engine)) => all,
        };
        failures = if all.is_err() { failures + 1 } else { 0 };
        let next = async {
            match &all {
                Err(Later(reason)) => {
                    tracing::warn!(reason, failures, "payouts wait");
                    let pause = PAUSES.wait(failures);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => true,
                        wake = wakes.recv() => wake.is_some(),
                    }
                }
                Ok(()) => wakes.recv().await.is_some(),
            }
        };
        let goes_on = tokio::select! {
            biased;
            () = context.stopping() => false,
            goes_on = context.beating(next) => goes_on,
        };
        if !goes_on {
            return Ok(());
        }
        // One look at all epochs answers every wake-up that waits.
        while wakes.try_recv().is_some() {}
    }
}

/// Payouts must wait for this; nothing is lost.
#[derive(Debug)]
pub(crate) struct Later(pub String);

impl From<StoreError> for Later {
    fn from(error: StoreError) -> Later {
        Later(error.to_string())
    }
}

/// How the work on one epoch ends for good.
pub(crate) enum End {
    Settled(serde_json::Value),
    Quarantined(Quarantine, Option<serde_json::Value>),
}

impl End {
    fn intent(detail: impl Into<String>) -> End {
        End::Quarantined(Quarantine { reason: QuarantineReason::Intent, detail: detail.into() }, None)
    }

    /// Why it did not end well; nothing if it did.
    pub fn words(&self) -> &str {
        match self {
            End::Settled(_) => "",
            End::Quarantined(quarantine, _) => &quarantine.detail,
        }
    }
}

/// Pays every released epoch, one after the other, if the ledger has what was paid before.
pub(crate) async fn settle_all(engine: &Arc<Engine>) -> Result<(), Later> {
    let store = engine.store().map_err(|error| Later(error.to_string()))?;
    let ledger = engine.ledger().await.map_err(|error| unavailable(engine, &error.to_string()))?;
    settled::check(engine, store, &*ledger).await?;
    let mut first = Ok(());
    for epoch in in_order(store, store.with_status(EpochStatus::Released)) {
        let settled = settle(engine, &epoch).await;
        // Another epoch may have nothing to do with what this one waits for; the ledger they have in common.
        let is_common = settled.is_err() && engine.counts.ledger_waits();
        first = first.and(settled);
        if is_common {
            break;
        }
    }
    first
}

/// What a run pays comes before its correction, and that before the next: after a correction the ledger takes nothing
/// more of the run.
fn in_order(store: &Store, mut epochs: Vec<String>) -> Vec<String> {
    let corrected = |epoch: &String| store.get(epoch).and_then(|row| row.corrects.clone());
    let depth = |epoch: &String| std::iter::successors(corrected(epoch), corrected).take(CHAIN_MAX).count();
    epochs.sort_by_cached_key(depth);
    epochs
}

async fn settle(engine: &Arc<Engine>, epoch: &str) -> Result<(), Later> {
    let store = engine.store().map_err(|error| Later(error.to_string()))?;
    let Some(row) = store.get(epoch).filter(|row| row.status == EpochStatus::Released) else { return Ok(()) };
    let end = pay(engine, &row).await?;
    let (ending, epoch) = (Arc::clone(engine), epoch.to_owned());
    let row = blocking(move || {
        let store = ending.store().map_err(|error| Later(error.to_string()))?;
        Ok(match end {
            End::Settled(reconciliation) => store.settle(&epoch, reconciliation)?,
            End::Quarantined(quarantine, reconciliation) => store.quarantine(&epoch, quarantine, reconciliation)?,
        })
    });
    let row = row.await?;
    engine.counts.ended(&row);
    engine.events.publish(RewardEvent { epoch: row.epoch.clone(), status: row.status });
    match &row.quarantine {
        Some(why) => {
            tracing::error!(epoch = row.epoch, detail = why.detail, "an epoch is quarantined while being paid")
        }
        None => tracing::info!(epoch = row.epoch, intents = row.intents, "an epoch is settled"),
    }
    Ok(())
}

/// Sends what is left of an epoch, then compares with the ledger.
pub(crate) async fn pay(engine: &Arc<Engine>, row: &Arc<EpochRow>) -> Result<End, Later> {
    let Some(run_key) = parse_b3(&row.run_key) else { return Ok(End::intent("its row has no key of the run")) };
    let ledger = engine.ledger().await.map_err(|error| unavailable(engine, &error.to_string()))?;
    // Asked before the run is loaded, which divides it again: a ledger that is away would have it divided at each try.
    if engine.counts.ledger_waits()
        && let Err(end) = tally(engine, &*ledger, &run_key).await?
    {
        return Ok(end);
    }
    match call(engine, || ledger.one_run_per_pot()).await? {
        Ok(keeps_pots) => engine.counts.set_keeps_pots(keeps_pots),
        Err(end) => return Ok(end),
    }
    let (opening, opened_row) = (Arc::clone(engine), Arc::clone(row));
    let loaded = blocking(move || Ok(open_run(&opening, &opened_row).and_then(|run| run.load()))).await?;
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(SealedError::Io(error)) => return Err(Later(error.to_string())),
        // What is paid must be what was sealed; anything else is for a person.
        Err(error) => {
            let quarantine = Quarantine { reason: QuarantineReason::Integrity, detail: error.to_string() };
            return Ok(End::Quarantined(quarantine, None));
        }
    };
    let Some(follows) = corrected_run(engine, row)? else {
        return Ok(End::intent("the run that it corrects is not in the seal log any more"));
    };
    let intents = Intents::of(&loaded.computed).following(follows);
    if let Some(end) = send_all(engine, &*ledger, row, &intents).await? {
        return Ok(end);
    }
    match tally(engine, &*ledger, &run_key).await? {
        Err(end) => Ok(end),
        Ok(found) => Ok(reconciled(&intents.tallies(), &found)),
    }
}

/// Key of the run that a correction corrects, which the ledger keeps from being corrected twice: inside, none for a run
/// that corrects none; outside, none if it is not known.
fn corrected_run(engine: &Engine, row: &EpochRow) -> Result<Option<Option<RunKey>>, Later> {
    let Some(corrected) = &row.corrects else { return Ok(Some(None)) };
    let store = engine.store().map_err(|error| Later(error.to_string()))?;
    Ok(store.get(corrected).and_then(|corrected| parse_b3(&corrected.run_key)).map(Some))
}

/// Sends batch after batch from the place that was written down last.
async fn send_all(
    engine: &Arc<Engine>,
    ledger: &dyn PayoutLedger,
    row: &EpochRow,
    intents: &Intents<'_>,
) -> Result<Option<End>, Later> {
    let (mut place, mut sent, mut batches) = (row.place, row.sent, 0_u64);
    let mut refused = Refused::default();
    while let Some((batch, next)) = intents.batch(place, engine.options.batch_entries) {
        // Who is paid and who gives back belong together in a correction: it is booked whole or not at all.
        let refused_max = if row.corrects.is_some() { 0 } else { REFUSED_MAX - refused.accounts.len() };
        if let Some(end) = book(engine, ledger, &batch, refused_max, &mut refused).await? {
            return Ok(Some(end));
        }
        (place, sent, batches) = (next, sent + batch.entries.len() as u64, batches + 1);
        // A settled epoch that is sent again stays what it is.
        if batches.is_multiple_of(BATCHES_PER_RECORD) && row.status == EpochStatus::Released {
            let (writing, epoch) = (Arc::clone(engine), row.epoch.clone());
            blocking(move || {
                let store = writing.store().map_err(|error| Later(error.to_string()))?;
                store.sent(&epoch, place, sent)?;
                Ok(())
            })
            .await?;
        }
    }
    Ok(refused.end())
}

/// Payees that the ledger refused one by one, while others of their batches were booked.
#[derive(Default)]
struct Refused {
    accounts: Vec<String>,
    /// What the ledger said of the last.
    because: String,
}

impl Refused {
    fn end(&self) -> Option<End> {
        let named = self.accounts.iter().map(|account| format!("{account:?}")).collect::<Vec<_>>().join(", ");
        (!self.accounts.is_empty()).then(|| {
            let count = self.accounts.len();
            End::intent(format!(
                "the ledger refused {count} payouts, of {named}; all others are booked: {}",
                self.because
            ))
        })
    }
}

/// Books a batch. Of one that the ledger refuses, everything but the payees that it refuses by themselves, if they are
/// no more than so many: one payee that cannot be paid keeps nobody else from it.
async fn book(
    engine: &Arc<Engine>,
    ledger: &dyn PayoutLedger,
    batch: &Batch,
    refused_max: usize,
    refused: &mut Refused,
) -> Result<Option<End>, Later> {
    let refused_max = refused.accounts.len() + refused_max;
    let mut parts = vec![batch.clone()];
    while let Some(mut part) = parts.pop() {
        match submit(engine, ledger, &part).await? {
            Ok(outcomes) => {
                engine.counts.answered(&outcomes);
                if let Some(end) = objection(&part, &outcomes) {
                    return Ok(Some(end));
                }
            }
            Err(end) if refused.accounts.len() >= refused_max => return Ok(Some(end)),
            Err(end) if part.entries.len() <= 1 => {
                refused.because = end.words().to_owned();
                refused.accounts.extend(part.entries.into_iter().map(|entry| entry.account));
            }
            Err(_) => {
                let second = part.entries.split_off(part.entries.len() / 2);
                parts.push(Batch { entries: second, ..part.clone() });
                parts.push(part);
            }
        }
    }
    Ok(None)
}

/// A conflict, or an answer that does not fit the question.
fn objection(batch: &Batch, outcomes: &[Outcome]) -> Option<End> {
    if outcomes.len() != batch.entries.len() {
        let (answers, entries) = (outcomes.len(), batch.entries.len());
        return Some(End::intent(format!("the ledger gave {answers} answers to {entries} payouts")));
    }
    let conflicts = batch.entries.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Conflict);
    let accounts: Vec<&str> = conflicts.map(|(entry, _)| entry.account.as_str()).collect();
    let named = accounts.iter().take(NAMED_MAX).map(|account| format!("{account:?}")).collect::<Vec<_>>().join(", ");
    let detail = || {
        let (count, asset) = (accounts.len(), &batch.asset);
        format!("{count} payouts of {asset} are in the ledger with another content, of: {named}")
    };
    (!accounts.is_empty()).then(|| End::intent(detail()))
}

fn reconciled(expected: &[Tally], found: &[Tally]) -> End {
    let report = ron_ledger::reconcile(expected, found);
    let value = serde_json::to_value(&report).unwrap_or_default();
    if report.agrees {
        return End::Settled(value);
    }
    let detail = format!("the ledger holds something else than was sent: {value}");
    End::Quarantined(Quarantine { reason: QuarantineReason::Intent, detail }, Some(value))
}

async fn submit(engine: &Engine, ledger: &dyn PayoutLedger, batch: &Batch) -> Result<Result<Vec<Outcome>, End>, Later> {
    call(engine, || ledger.submit(batch)).await
}

pub(crate) async fn tally(
    engine: &Engine,
    ledger: &dyn PayoutLedger,
    run: &RunKey,
) -> Result<Result<Vec<Tally>, End>, Later> {
    call(engine, || ledger.tally(run)).await
}

/// One call, tried a few times; what the ledger refuses for good ends the epoch, what it cannot answer now waits.
async fn call<T, F>(engine: &Engine, ask: impl Fn() -> F) -> Result<Result<T, End>, Later>
where
    F: Future<Output = Result<T, LedgerError>>,
{
    let tries_max = engine.live.get().value.rpc_attempts_max;
    let limits = RetryLimits { first_wait: RPC_RETRY_JITTER, cap: RETRY_CAP, tries_max };
    let deadline = Deadline::after(CALL_MAX * tries_max);
    let attempt = |_tries| async {
        let answer = Deadline::after(CALL_MAX).run("ledger", ask()).await?;
        answer.map_err(|error| match error {
            LedgerError::Unavailable(detail) => Error::new(Kind::Degraded, detail),
            LedgerError::Refused(detail) => Error::new(Kind::Quarantine, detail),
        })
    };
    let answered = PAY.retry(limits, deadline, engine.kernel.metrics(), attempt).await;
    // A refusal is an answer too: whoever waits for the ledger to come back need not wait any longer.
    let is_refused = answered.as_ref().is_err_and(|error| error.kind == Kind::Quarantine);
    if answered.is_ok() || is_refused {
        engine.counts.set_ledger_waits(false);
    }
    match answered {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if is_refused => Ok(Err(End::intent(error.detail.into_owned()))),
        Err(error) => Err(unavailable(engine, &error.detail)),
    }
}

fn unavailable(engine: &Engine, detail: &str) -> Later {
    engine.counts.set_ledger_waits(true);
    Later(detail.to_owned())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Later> + Send + 'static) -> Result<T, Later> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Later("work on the disk broke off".to_owned()))?
}
