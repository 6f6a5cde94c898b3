//! The artifact writer: recovers the seal log, writes artifacts, and then the one record that makes a run exist.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ron_calculus::Breach;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::{TaskContext, TaskError, TaskResult};

use super::correction;
use super::engine::{Computation, Engine, Flight, Refusal, RewardEvent, Watched};
use super::{paid_usage, release, retention};
use crate::artifacts::{self, Seal};
use crate::hashing::b3;
use crate::job::{Computed, RunError};
use crate::store::{AssetTotal, EpochRow, EpochStatus, Quarantine, QuarantineReason, Store, StoreError};

/// What the process says when it leaves because of its disk.
const FAILED_DISK: u8 = 70;
/// Who removes the artifacts of a run that was rejected.
const BY_NEXT_RUN: &str = "the next run of this epoch";
/// Who releases what needs no person.
const BY_POLICY: &str = "policy";

/// One life of the writer.
pub(crate) async fn artifact_writer(
    context: TaskContext,
    engine: Arc<Engine>,
    mut results: QueueReceiver<Computation>,
) -> TaskResult {
    if engine.store().is_err() {
        let recovering = Arc::clone(&engine);
        let recovered = tokio::task::spawn_blocking(move || recover(&recovering));
        context.beating(recovered).await.map_err(|_| TaskError::Failed("the recovery ended early".to_owned()))??;
    }
    context.ready().await;
    let mut look = tokio::time::interval(retention::LOOK_EVERY);
    loop {
        let computation = tokio::select! {
            biased;
            computation = results.recv() => computation,
            // Workers leave in an earlier phase, so what is in the queue now is all that comes.
            () = context.stopping() => break,
            _ = look.tick() => {
                context.beating(retention::look(&engine)).await;
                continue;
            }
            () = context.heartbeat() => continue,
        };
        let Some(computation) = computation else { break };
        write(&context, &engine, computation).await?;
    }
    Ok(())
}

/// Opens the seal log, and removes folders of runs that were never sealed.
pub(crate) fn recover(engine: &Engine) -> TaskResult {
    let failed = |what: &str, error: &dyn std::fmt::Display| TaskError::Failed(format!("{what}: {error}"));
    let disk = (engine.options.disk)().map_err(|error| failed("the folder of the seal log", &error))?;
    let store = Store::open(disk).map_err(|error| failed("opening", &error))?;
    let found = store.recovery();
    if found.has_losses() {
        // Whose seal is lost cannot be told, and sealing it anew could pay twice under another run.
        let detail = format!("the seal log has lost records: {found:?}; restore it before epochs are paid again");
        return Err(TaskError::Init { code: FAILED_DISK, detail });
    }
    remove_orphans(engine, &store).map_err(|error| failed("removing what was never sealed", &error))?;
    engine.count_artifacts(&store).map_err(|error| failed("measuring the artifacts", &error))?;
    let [held, released, settled, quarantined] = store.counts();
    tracing::info!(records = found.records, held, released, settled, quarantined, "the seal log is read");
    engine.set_store(store);
    Ok(())
}

/// Artifacts without a seal record are of a run that was never sealed, or of one that an older copy of the seal log
/// knows nothing of: then it was perhaps paid, and a whole one is kept.
pub(crate) fn remove_orphans(engine: &Engine, store: &Store) -> std::io::Result<()> {
    for name in engine.options.folders.names()? {
        // Never sealed, or removed by a record that a crash kept from being carried out.
        if store.get(&name).is_none_or(|row| row.removed_by.is_some()) {
            if engine.options.folders.is_foreign(&name)? {
                tracing::warn!(epoch = name, "this folder holds files that no run of its name has; it stays");
                continue;
            }
            if store.get(&name).is_none()
                && let Some(aside) = engine.options.folders.set_aside(&name)?
            {
                tracing::warn!(epoch = name, aside, "a whole run that the seal log does not know is set aside");
                continue;
            }
            tracing::info!(epoch = name, "artifacts of a run that is not kept are removed");
            engine.options.folders.remove(&name)?;
        }
    }
    Ok(())
}

async fn write(context: &TaskContext, engine: &Arc<Engine>, computation: Computation) -> TaskResult {
    let writing = Arc::clone(engine);
    // The thread owns the run: it is sealed or given up even if this task dies meanwhile.
    let written = tokio::task::spawn_blocking(move || settle_down(&writing, computation));
    context.beating(written).await.map_err(|_| TaskError::Failed("writing a run broke off".to_owned()))?;
    if let Some(error) = engine.store()?.failed() {
        return Err(TaskError::Fatal { code: FAILED_DISK, detail: error.to_string() });
    }
    Ok(())
}

/// Seals a computed run, or says why there is none. Blocks.
pub(crate) fn settle_down(engine: &Arc<Engine>, computation: Computation) -> Option<Arc<EpochRow>> {
    let Computation { ticket, outcome, written } = computation;
    let flight = Arc::clone(&ticket.flight);
    let epoch = flight.job.epoch.as_str();
    // The same run would panic again, so it ends here. Rows and folders are changed as a whole or not at all.
    let sealing = || outcome.map_err(Failed::from).and_then(|computed| seal(engine, &flight, &computed));
    let sealed = catch_unwind(AssertUnwindSafe(sealing)).unwrap_or(Err(Failed::Panicked));
    let row = match sealed {
        Ok(row) => {
            engine.counts.sealed(&row);
            // Said by the thread that sealed it: the task that waits for it may be gone.
            if row.status == EpochStatus::Released {
                engine.wake_emitter();
            }
            engine.events.publish(RewardEvent { epoch: row.epoch.clone(), status: row.status });
            ticket.land(None);
            Some(row)
        }
        Err(failed) => {
            abandon(engine, epoch);
            engine.counts.ran(if failed.is_refusal() { "refused" } else { "failed" });
            ticket.land(Some(failed.refusal(epoch)));
            None
        }
    };
    // A worker that is gone does not wait.
    let _ = written.send(());
    row
}

/// Why a run was not sealed.
enum Failed {
    Run(RunError),
    Store(StoreError),
    Panicked,
}

impl From<RunError> for Failed {
    fn from(error: RunError) -> Failed {
        Failed::Run(error)
    }
}

impl Failed {
    fn is_refusal(&self) -> bool {
        matches!(self, Failed::Run(error) if error.is_refusal())
    }

    fn refusal(&self, epoch: &str) -> Refusal {
        match self {
            Failed::Run(RunError::Stopped) => {
                Refusal::because(epoch, "the run was stopped: its deadline passed, or the node left")
            }
            Failed::Run(error) => Refusal::of(epoch, error),
            Failed::Store(error) => Refusal::because(epoch, error.to_string()),
            Failed::Panicked => Refusal::because(epoch, "writing the run broke off; the log of the node says where"),
        }
    }
}

fn seal(engine: &Engine, flight: &Arc<Flight>, computed: &Computed) -> Result<Arc<EpochRow>, Failed> {
    let store = engine.store().map_err(|error| Failed::Run(RunError::Order(error.to_string())))?;
    let epoch = flight.job.epoch.as_str();
    // A run that came back twice is sealed once: the second finds the first.
    if let Some(row) = store.get(epoch) {
        if !flight.replaces(&row) {
            return Ok(row);
        }
        // Its files are gone by a record of their own, so that a crash leaves none that the log does not know.
        retention::remove(engine, epoch, BY_NEXT_RUN).map_err(Failed::Store)?;
    }
    let folder = engine.begin_artifacts(epoch).map_err(RunError::Io)?;
    let sealed = (|| -> Result<Seal, RunError> {
        let seal = artifacts::write(computed, &folder, engine.options.run_threads, &Watched::new(Arc::clone(flight)))?;
        correction::check_commitment(flight, &seal.commitment)?;
        if let Some(signatures) = &flight.signatures {
            artifacts::write_signatures(signatures, &folder)?;
        }
        Ok(seal)
    })();
    let seal = sealed.map_err(Failed::Run)?;
    store.seal(row_of(engine, store, flight, computed, &seal)).map_err(Failed::Store)
}

/// Removes what is left of a run that does not exist; if this fails too, the next start does it. What is durable keeps
/// its artifacts, and a log that has failed may have the row or not.
fn abandon(engine: &Engine, epoch: &str) {
    let Ok(store) = engine.store() else { return };
    if store.failed().is_none() {
        engine.abandon_artifacts(store, epoch);
    }
}

fn row_of(engine: &Engine, store: &Store, flight: &Flight, computed: &Computed, seal: &Seal) -> EpochRow {
    let manifest = &seal.manifest;
    let quarantine = computed.outcome.as_ref().err().map(quarantine_of);
    let verdict = match (&quarantine, flight.is_payable) {
        (Some(_), _) => None,
        (None, false) => Some("its inputs are lost with this process (amnesia): nothing is paid from them".to_owned()),
        // It takes from people what they have, so a person stands behind it.
        (None, true) if manifest.corrects.is_some() => Some("a correction leaves when somebody says so".to_owned()),
        // Who may compute must not have the last word over the person who rejected it.
        (None, true) if flight.replaces.is_some() => Some("the run before it under this name was rejected".to_owned()),
        (None, true) => {
            let paid = || paid_usage::objection(engine, store, manifest);
            release::objection(engine, store, computed).or_else(paid)
        }
    };
    let status = match (&quarantine, &verdict) {
        (Some(_), _) => EpochStatus::Quarantined,
        (None, Some(_)) => EpochStatus::Held,
        (None, None) => EpochStatus::Released,
    };
    let freed = if manifest.corrects.is_some() { manifest.left_over() } else { BTreeMap::new() };
    let totals = manifest.assets.iter().map(|facts| AssetTotal {
        asset: facts.asset.clone(),
        pool: facts.pool,
        paid: facts.paid,
        payees: facts.payees,
        freed: freed.get(&facts.asset).copied().unwrap_or_default(),
    });
    EpochRow {
        epoch: manifest.epoch.as_str().to_owned(),
        request: b3(&flight.request),
        run_key: manifest.run_key.clone(),
        commitment: b3(&seal.commitment),
        policy: manifest.policy.id.clone(),
        artifacts: manifest.artifacts.clone(),
        rows: manifest.rows,
        actors: manifest.actors,
        intents: manifest.intents.iter().map(|facts| facts.count).sum(),
        usage: paid_usage::names(manifest),
        totals: totals.collect(),
        status,
        held_because: verdict,
        is_payable: flight.is_payable,
        released_by: (status == EpochStatus::Released).then(|| BY_POLICY.to_owned()),
        carried_from: flight.carried_from.clone().filter(|_| !manifest.carry.is_empty()),
        corrects: manifest.corrects.as_ref().map(|facts| facts.epoch.to_string()),
        takes_left_over: manifest.corrects.as_ref().is_some_and(|facts| facts.takes_left_over),
        place: 0,
        sent: 0,
        settled_as: None,
        settled_ms: 0,
        removed_by: None,
        given_up_by: None,
        reconciliation: None,
        quarantine,
    }
}

fn quarantine_of(breach: &Breach) -> Quarantine {
    let reason = match breach {
        Breach::Overflow(_) => QuarantineReason::Overflow,
        Breach::Conservation(_) => QuarantineReason::Conservation,
        Breach::Schema(_) => QuarantineReason::Schema,
    };
    Quarantine { reason, detail: breach.to_string() }
}
