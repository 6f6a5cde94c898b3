//! The tasks `cache_janitor` and `breaker_janitor`: what is over goes, and what changed is told.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{TaskContext, TaskResult};
use ron_lookup::BreakerState;
use ron_store::{Expired, Store};
use ron_types::limits::index::BREAKER_ROLL;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::shared::Shared;
use crate::words::IndexEvent;

/// Pause between two steps in which what is over is dropped: a writer that waits for the store has its turn.
const EXPIRY_PAUSE: Duration = Duration::from_millis(10);

/// Frees what is over; in amnesia mode forgets every answer.
pub(crate) async fn cache_janitor(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    tokio::select! {
        biased;
        () = context.stopping() => return Ok(()),
        () = context.beating(learn(&shared)) => {}
    }
    let mut changes = shared.live.watch();
    // Kept across heartbeats, which would otherwise begin the wait anew each time.
    let mut due = Box::pin(sleep(shared.live.get().value.purge_interval));
    loop {
        tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            () = &mut due => {
                context.beating(purge(&shared)).await;
                due = Box::pin(sleep(shared.live.get().value.purge_interval));
            }
            Ok(()) = changes.changed() => due = Box::pin(sleep(shared.live.get().value.purge_interval)),
            () = context.heartbeat() => {}
        }
    }
}

/// Reads the keys of a store that was opened, at the start or after its disk failed, hour by hour: after that fewer
/// tables are looked at for each question.
async fn learn(shared: &Shared) {
    while shared.blocking(Store::learn_hour).await.unwrap_or(false) {}
}

async fn purge(shared: &Shared) {
    learn(shared).await;
    if shared.options.is_amnesia {
        let entries = shared.cache.purge().await;
        shared.recent.clear();
        shared.possessions.clear();
        shared.events.publish(IndexEvent::Purged { entries });
    } else {
        shared.cache.tidy().await;
    }
    let now_ms = shared.unix_ms();
    // In steps, with a pause between them: a million names that end in one hour hold up nobody who publishes.
    while let Ok(Expired { dropped: dropped @ 1.., has_more }) =
        shared.blocking(move |store| store.expire_some(now_ms)).await
    {
        tracing::debug!(dropped, "records that were over are dropped");
        if !has_more || shared.kernel.is_draining() {
            break;
        }
        sleep(EXPIRY_PAUSE).await;
    }
}

/// Rolls error windows, applies changed thresholds, notes the load.
pub(crate) async fn breaker_janitor(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    let mut changes = shared.live.watch();
    let mut ticks = interval(BREAKER_ROLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            _ = ticks.tick() => roll(&shared),
            Ok(()) = changes.changed() => shared.targets.set_limits(shared.live.get().value.breaker),
            () = context.heartbeat() => {}
        }
    }
}

fn roll(shared: &Shared) {
    for (target, state) in shared.targets.roll(shared.now_ms()) {
        tracing::info!(%target, ?state, "a target's breaker changed");
        if state == BreakerState::Open {
            shared.kernel.metrics().circuit_open.at("index").inc();
        }
        shared.events.publish(IndexEvent::Breaker { target, state });
    }
    shared.load.sample(shared.counts.sums());
}
