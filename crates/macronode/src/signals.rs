//! Signals, and the end of a process that cannot end itself: on a thread of their own, which turns when nothing else
//! does.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use ron_kernel::{KernelHandle, Snapshot, clock};
use ron_types::limits::DRAIN_OVERRUN_MAX;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::errors::{Code, Exit};

/// Pause between two looks at a drain.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum wait for the last line of the log. Whoever should read it may be what everything waits for.
const LAST_LINE_WAIT: Duration = Duration::from_millis(500);

/// Obeys signals from here on: the first one drains, the second one ends the process at once. A drain that was asked
/// for in whatever way ends the process at its deadline, even if the runtime of the node does not turn any more.
pub fn obey(kernel: KernelHandle, drain_deadline: Snapshot<Duration>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Caught before anything else is done, so that no signal meets a node that would die of it.
    let (terminate, interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let watching = move || runtime.block_on(watch(&kernel, &drain_deadline, terminate, interrupt));
    std::thread::Builder::new().name("signals".to_owned()).spawn(watching).map(drop)
}

async fn watch(
    kernel: &KernelHandle,
    drain_deadline: &Snapshot<Duration>,
    mut terminate: Signal,
    mut interrupt: Signal,
) -> Infallible {
    let (mut draining_for, mut last_look) = (Duration::ZERO, clock::now());
    let mut is_told = false;
    loop {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = tokio::time::sleep(LOOK_EVERY) => {
                if kernel.is_drain_asked() {
                    draining_for += awake(clock::now() - last_look);
                }
                last_look = clock::now();
                let still = kernel.stands_still();
                if is_overdue(draining_for, drain_deadline.get().value, still.is_some()) {
                    let took_ms = draining_for.as_millis();
                    end(&format!("{} the drain took {took_ms} ms{}", Code::DrainAborted, why(still)));
                }
                continue;
            }
        };
        if is_told {
            end(&format!("second signal ({name}): leaving at once"));
        }
        is_told = true;
        say(format!("{name}: draining"), false);
        if let Err(error) = kernel.drain().await {
            say(format!("the drain could not be asked for: {error}"), true);
        }
    }
}

/// The part of the time between two looks in which this process ran: one that was stopped, or whose machine stood
/// still, had no chance to drain meanwhile.
fn awake(between_looks: Duration) -> Duration {
    between_looks.min(2 * LOOK_EVERY)
}

/// A drain that turns ends at its deadline by itself; one that does not turn is ended there.
fn is_overdue(draining_for: Duration, drain_deadline: Duration, stands_still: bool) -> bool {
    draining_for >= drain_deadline + DRAIN_OVERRUN_MAX || (stands_still && draining_for >= drain_deadline)
}

fn why(stands_still: Option<Duration>) -> String {
    let still = |time: Duration| format!("; the runtime has not turned for {} ms: it is stuck", time.as_millis());
    stands_still.map(still).unwrap_or_default()
}

/// Says why, and ends the process as one that left with work undone.
fn end(why: &str) -> ! {
    say(format!("{why}; the process ends itself"), true);
    std::process::exit(i32::from(Exit::Aborted.number()))
}

/// Writes a line to the log from a thread that is not waited for: a log that nobody reads must not hold up signals.
fn say(line: String, is_error: bool) {
    let (done, said) = std::sync::mpsc::sync_channel::<()>(1);
    let write = move || {
        match is_error {
            true => tracing::error!("{line}"),
            false => tracing::info!("{line}"),
        }
        drop(done);
    };
    if std::thread::Builder::new().name("last words".to_owned()).spawn(write).is_ok() {
        // The channel closes when the line is written.
        let _ = said.recv_timeout(LAST_LINE_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_overdue_at_its_deadline_if_nothing_turns_and_a_little_later_otherwise() {
        let (second, deadline) = (Duration::from_secs(1), Duration::from_secs(3));
        for (draining_for, stands_still, expected) in [
            (2 * second, true, false),
            (3 * second, true, true),
            (3 * second, false, false),
            (deadline + DRAIN_OVERRUN_MAX - LOOK_EVERY, false, false),
            (deadline + DRAIN_OVERRUN_MAX, false, true),
        ] {
            assert_eq!(is_overdue(draining_for, deadline, stands_still), expected, "{draining_for:?} {stands_still}");
        }
    }

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        assert_eq!(awake(LOOK_EVERY), LOOK_EVERY);
        assert_eq!(awake(Duration::from_secs(3600)), 2 * LOOK_EVERY);
    }
}
