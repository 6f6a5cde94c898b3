//! The scheduler: one run per epoch. It finds duplicates, looks up what is carried, and makes jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_calculus::Units;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_types::{Error, Kind};

use super::engine::{Asked, Begun, Engine, Flight};
use super::handle::quarantined;
use super::request::Prepared;
use super::{correction, retention};
use crate::hashing::b3;
use crate::job::{Cost, Job};
use crate::store::{EpochRow, EpochStatus, Store, StoreError};

/// One life of the scheduler.
pub(crate) async fn compute_scheduler(
    context: TaskContext,
    engine: Arc<Engine>,
    mut requests: QueueReceiver<Asked>,
) -> TaskResult {
    context.beating(engine.until_opened()).await;
    context.ready().await;
    loop {
        let asked = tokio::select! {
            biased;
            () = context.stopping() => break,
            asked = requests.recv() => asked,
            () = context.heartbeat() => continue,
        };
        let Some(Asked { prepared, reply }) = asked else { return Ok(()) };
        let answer = context.beating(schedule(&engine, prepared)).await;
        // A caller that has left gets its answer by asking again.
        let _ = reply.send(answer);
    }
    // Callers that still wait learn at once that nothing was begun.
    while let Some(Asked { reply, .. }) = requests.try_recv() {
        let _ = reply.send(Err(Error::canceled("the node is shutting down; nothing was begun")));
    }
    Ok(())
}

pub(crate) async fn schedule(engine: &Arc<Engine>, prepared: Prepared) -> Result<Begun, Error> {
    let store = engine.store()?;
    // Looked at before the rows, because a run leaves this list only after it has a row. One scheduler makes flights,
    // so nothing comes between this look and the start.
    let is_in_flight = engine.flights().contains_key(prepared.epoch.as_str());
    let rejected = store.get(prepared.epoch.as_str());
    if let Some(row) = rejected.as_ref().filter(|row| !row.is_rejected()) {
        return known(row, &prepared);
    }
    if store.is_forgotten(prepared.epoch.as_str()) {
        let detail = format!("epoch {} was over long ago; no more of it is known here", prepared.epoch);
        return Err(Error::new(Kind::Conflict, detail));
    }
    if is_in_flight {
        let detail = format!("epoch {} is being computed; ask for it again later", prepared.epoch);
        return Err(Error::new(Kind::Conflict, detail));
    }
    if !store.has_room() {
        return Err(Error::new(Kind::Degraded, StoreError::TooMany.to_string()));
    }
    retention::check_room(engine)?;
    check_assets(engine, &prepared)?;
    if let Some(run) = &prepared.correction {
        correction::admit(engine, store, run)?;
    }
    let carry = carry(engine, store, &prepared)?;
    let live = engine.live.get().value.clone();
    let half = Deadline::after(live.epoch_duration / 2);
    let deadline = prepared.deadline.map_or(half, |asked| Deadline::after(asked).sooner(half));
    let job = Job {
        epoch: prepared.epoch.clone(),
        inputs: prepared.files.clone(),
        policy: prepared.document.clone(),
        pools: prepared.pools.clone(),
        carry: carry.units,
        carry_from: carry.commitment,
        cost: Cost {
            threads: engine.options.run_threads,
            memory_bytes: engine.options.run_memory_bytes,
            spill: engine.options.spill.clone(),
        },
    };
    let mut flight = Flight::new(job, &prepared, deadline);
    flight.replaces = rejected.map(|row| row.commitment.clone());
    let ticket = engine.take_off(flight);
    let mut leaving = Leaving { engine, epoch: prepared.epoch.as_str(), has_left: false };
    engine.work.send(ticket, deadline).await?;
    leaving.has_left = true;
    Ok(Begun::Started)
}

/// A run that is not in the queue yet: refused there, or dropped with a scheduler that dies, it is withdrawn.
struct Leaving<'a> {
    engine: &'a Engine,
    epoch: &'a str,
    has_left: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.has_left {
            self.engine.withdraw(self.epoch);
        }
    }
}

/// Refuses a policy whose assets find no room in the embedded book. A ledger that is not open yet is not waited for.
fn check_assets(engine: &Engine, prepared: &Prepared) -> Result<(), Error> {
    let Some(ledger) = engine.open_ledger() else { return Ok(()) };
    let Some(book) = ledger.book() else { return Ok(()) };
    let assets: Vec<&str> = prepared.document.policy.assets.iter().map(|asset| asset.asset.as_str()).collect();
    book.takes_assets(&assets).map_err(|error| Error::new(Kind::Conflict, error.to_string()))
}

fn known(row: &EpochRow, prepared: &Prepared) -> Result<Begun, Error> {
    let epoch = &row.epoch;
    if row.request != b3(&prepared.hash) {
        // No word of another id: what was paid here would be paid there again.
        let detail = format!(
            "epoch {epoch} was computed from other inputs or by another policy; what it paid is mended by a correction \
             (`macronode reward correct`)"
        );
        return Err(Error::new(Kind::Conflict, detail));
    }
    if row.status == EpochStatus::Quarantined { Err(quarantined(row)) } else { Ok(Begun::Exists) }
}

/// What is carried into a run.
#[derive(Default)]
struct Carry {
    units: BTreeMap<String, Units>,
    commitment: Option<String>,
}

/// Leftovers are paid once: an epoch's are refused to a second one.
fn carry(engine: &Engine, store: &Store, prepared: &Prepared) -> Result<Carry, Error> {
    let Some(from) = &prepared.carry_from else { return Ok(Carry::default()) };
    let from = from.as_str();
    let row = store.get(from).filter(|row| row.status != EpochStatus::Quarantined);
    let row = row.ok_or_else(|| Error::new(Kind::NotFound, format!("carry_from: no sealed epoch {from}")))?;
    let conflict = |detail: String| Err(Error::new(Kind::Conflict, format!("carry_from: {detail}")));
    if row.corrects.is_some() && row.status != EpochStatus::Settled {
        // What a correction leaves over is what it takes back, and that may fail.
        return conflict(format!(
            "{from} is a correction, and {}; its leftovers are there once it is settled",
            row.status.as_str()
        ));
    }
    if let Some(into) = engine.carried_into(store, from) {
        return conflict(format!("what {from} left over was carried into {into}"));
    }
    if let Some(by) = store.taken_up_by(from) {
        return conflict(format!("what {from} left over was taken up by its correction {by}; carry from {by} instead"));
    }
    let left = row.totals.iter().map(|total| (total.asset.clone(), total.left_over()));
    let units = left.filter(|(_, units)| units.0 > 0).collect();
    Ok(Carry { units, commitment: Some(row.commitment.clone()) })
}
