//! The visibility scanner: sleeps until the nearest deadline any shard has published, then wakes that shard.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{Deadline, TaskContext, TaskResult, clock, retry};
use ron_types::Kind;
use ron_types::limits::mailbox as limits;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::job::Wake;
use crate::types::Millis;

/// Spread between the wake-ups of many nodes or shards.
const JITTER: Duration = Duration::from_millis(5);
/// Deadlines that follow a look more closely than this share the next one.
const TOGETHER: Duration = Duration::from_millis(10);

/// One life of the scanner.
pub(crate) async fn visibility_scanner(context: TaskContext, engine: Arc<Engine>) -> TaskResult {
    let opened = tokio::select! {
        opened = context.beating(engine.until_opened()) => opened,
        () = context.stopping() => return Ok(()),
    };
    context.ready().await;
    let mut deadlines = engine.deadlines.subscribe();
    let mut last_scan = clock::now();
    loop {
        context.beat();
        let nearest = deadlines.borrow_and_update().iter().copied().min().unwrap_or(Millis::MAX);
        let wake = wake_at(last_scan, (nearest != Millis::MAX).then(|| opened.clock.instant(nearest)));
        tokio::select! {
            () = context.stopping() => return Ok(()),
            _ = deadlines.changed() => continue,
            () = tokio::time::sleep_until(wake) => {}
        }
        last_scan = clock::now();
        let late = last_scan.saturating_duration_since(wake);
        engine.counts.scanner_woke_late(late);
        wake_due(&engine, opened.clock.now()).await;
    }
}

/// The nearest deadline with a little jitter; without one, as late as the limits say. A deadline soon after the last
/// look does not wait for the usual pause between two looks: its message would come back too late.
fn wake_at(last_scan: Instant, nearest: Option<Instant>) -> Instant {
    let (soonest, latest) = (last_scan + TOGETHER, last_scan + limits::SCANNER_WAKE_MAX);
    let jittered = nearest.map(|nearest| nearest + retry::jitter(Duration::ZERO, JITTER));
    jittered.unwrap_or(latest).clamp(soonest, latest)
}

async fn wake_due(engine: &Engine, now: Millis) {
    let deadlines = *engine.deadlines.borrow();
    for (handle, _) in engine.shards.iter().zip(deadlines).filter(|(_, deadline)| *deadline <= now) {
        match handle.wakes.offer(Wake) {
            Ok(()) => {}
            Err(full) if full.kind == Kind::Busy => {
                engine.counts.requeue_backed_off();
                // A full queue holds wake-ups enough; the law of the channel is to try again all the same.
                let _ = handle.wakes.send(Wake, Deadline::after(limits::SCANNER_WAKE_MIN)).await;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_wakes_at_the_nearest_deadline_within_its_bounds() {
        let now = clock::now();
        let after = |nearest: Option<u64>| {
            let nearest = nearest.map(|ms| now + Duration::from_millis(ms));
            wake_at(now, nearest).saturating_duration_since(now).as_millis()
        };
        assert_eq!(after(None), 500);
        assert_eq!(after(Some(10_000)), 500);
        assert_eq!(after(Some(0)), 10);
        assert!((30..=35).contains(&after(Some(30))), "a message is back within 50 ms of its time");
        assert!((200..=205).contains(&after(Some(200))));
    }
}
