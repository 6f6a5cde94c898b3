//! The steady clock set by the wall clock while the mailbox runs.

use ron_kernel::clock::now;
use tokio::time::{Instant, sleep};

use super::*;
use crate::options::{LogLocation, MailboxOptions};
use crate::running::RunningMailbox;
use crate::types::TopicSettings;

const HOUR_MS: Millis = 3_600_000;
const MINUTE: Duration = Duration::from_secs(60);
/// Time for which a message is delayed, and for which [`crate::running::receive`] hides one.
const WAIT_MS: u64 = 600_000;

async fn started() -> RunningMailbox {
    let running =
        RunningMailbox::start(MailboxOptions { location: LogLocation::Memory, ..MailboxOptions::default() }).await;
    running.create("leased", TopicSettings::default()).await;
    running.create("delayed", TopicSettings::default()).await;
    running
}

/// Leases one message and delays another; when that was.
async fn begin_waits(running: &RunningMailbox) -> Instant {
    running.send("leased", 0).await;
    assert_eq!(running.recv("leased", 0).await.len(), 1);
    running.send("delayed", WAIT_MS).await;
    now()
}

/// Both are delivered when they would have been, had nobody set any clock.
async fn assert_waits_end(running: &RunningMailbox, began: Instant) {
    sleep(began + Duration::from_millis(WAIT_MS) - MINUTE - now()).await;
    for topic in ["leased", "delayed"] {
        assert_eq!(running.recv(topic, 0).await.len(), 0, "{topic}: a minute is left");
    }
    sleep(MINUTE + Duration::from_secs(1)).await;
    for topic in ["leased", "delayed"] {
        assert_eq!(running.recv(topic, 0).await.len(), 1, "{topic}: its time is over");
    }
}

/// Seconds that the mailbox's clock is ahead of the wall clock.
fn ahead_seconds(running: &RunningMailbox) -> u64 {
    ahead_of(clock::unix_millis(), running.engine().opened().expect("open").clock.now()).as_secs()
}

#[test]
fn a_wall_clock_that_has_lost_its_time_sets_nothing() {
    let now_ms = clock::unix_millis();
    assert!(is_believed(now_ms, now_ms - 48 * HOUR_MS, now_ms), "it was ahead");
    assert!(!is_believed(now_ms, 60_000, now_ms), "a minute after the start of a machine without a battery");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_is_right_within_a_minute_after_it_was_set() {
    // Time that is paused runs as fast as nothing happens, and the wall clock hardly at all: as if it was set back.
    let running = started().await;
    sleep(JUMP_MAX - 2 * MINUTE).await;
    let began = begin_waits(&running).await;
    assert!(ahead_seconds(&running) > 57 * 60, "{}", ahead_seconds(&running));
    sleep(3 * MINUTE).await;
    assert!(ahead_seconds(&running) < 60, "{}", ahead_seconds(&running));
    running.send("leased", 0).await;
    let new = running.recv("leased", 0).await;
    assert!(new[0].sent_ms.abs_diff(clock::unix_millis()) < 60_000, "{new:?}");
    assert_waits_end(&running, began).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_time_waits_as_long_whichever_way_the_clock_is_set() {
    let running = started().await;
    let opened = running.engine().opened().expect("open");
    let began = begin_waits(&running).await;
    let start_ms = opened.clock.now();
    running.engine().set_clock(start_ms - 72 * HOUR_MS).expect("set");
    assert_eq!((opened.clock.now(), opened.hold()), (start_ms - 72 * HOUR_MS, Hold::NONE));
    // Forward again, within the time that a look at the wall clock takes.
    running.engine().set_clock(start_ms).expect("set");
    assert_eq!((opened.clock.now(), opened.hold().jump_ms), (start_ms, 72 * HOUR_MS), "nothing expires by it");
    assert_waits_end(&running, began).await;
    running.stop().await;
}

#[test]
fn a_clock_that_is_still_being_set_is_not_believed() {
    let mut looks = Looks::default();
    let now_ms = 1_000 * HOUR_MS;
    let shown = [0, 0, 0, 72, 72, 40, 41, 41, 41].map(|hours| looks.take(now_ms, now_ms - hours * HOUR_MS));
    assert_eq!(shown, [false, false, true, false, false, false, false, false, true]);
}

#[test]
fn a_jump_ahead_is_believed_only_as_far_as_the_run_has_been() {
    let now_ms = 500_000 * HOUR_MS;
    for (wall_ms, unset_now_ms, expected) in [
        (now_ms, now_ms, false),
        (now_ms - HOUR_MS, now_ms, false),
        (now_ms - HOUR_MS - 1, now_ms, true),
        (now_ms + 72 * HOUR_MS, now_ms, false),
        (now_ms + 72 * HOUR_MS, now_ms + 72 * HOUR_MS, true),
        (now_ms + 72 * HOUR_MS, now_ms + 60 * HOUR_MS, false),
        (now_ms + 10 * HOUR_MS, now_ms + 72 * HOUR_MS, true),
    ] {
        assert_eq!(is_believed(now_ms, wall_ms, unset_now_ms), expected, "{wall_ms} {unset_now_ms}");
    }
}
