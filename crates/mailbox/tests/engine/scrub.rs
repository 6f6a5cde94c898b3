//! The keeper's check of the log in a running mailbox.

use std::os::unix::fs::FileExt as _;

use svc_mailbox::ScrubPass;

use super::*;

impl RunningMailbox {
    /// Asks for a check and waits for its end.
    async fn scrubbed(&self) -> ScrubPass {
        let asked = self.mailbox.scrub_now().expect("the log is open");
        let run = asked.running.expect("it runs").run;
        let ended =
            eventually(|| self.mailbox.scrub_view().last, |last| last.as_ref().is_some_and(|last| last.run >= run));
        ended.await.expect("it has ended")
    }
}

/// Flips a bit of the only place in the files of the log that has this text.
pub(super) fn spoil(folder: &Path, text: &str) {
    for entry in std::fs::read_dir(folder).expect("there") {
        let path = entry.expect("there").path();
        let bytes = std::fs::read(&path).expect("readable");
        let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
        if let Some(at) = found.filter(|_| path.extension().is_some_and(|ending| ending == "log")) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
            file.write_all_at(&[bytes[at] ^ 0x20], at as u64).expect("written");
            return;
        }
    }
    panic!("{text} is in no segment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_found_and_the_message_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let sent = running.send("orders", "the-message-that-is-hit").await;
    // Enough to seal the segment with the message.
    for _ in 0..3 {
        running.send("orders", &"x".repeat(900_000)).await;
    }
    let clean = running.scrubbed().await;
    assert!(clean.is_clean() && clean.records >= 4 && clean.segments >= 2, "{clean:?}");
    assert_eq!(clean.bytes_done, clean.bytes_total);

    spoil(folder.path(), "the-message-that-is-hit");
    let damaged = running.scrubbed().await;
    assert_eq!((damaged.damaged_records, damaged.damaged_stretches), (1, 1), "{damaged:?}");
    let [finding] = &damaged.findings[..] else { panic!("{damaged:?}") };
    assert!(finding.is_new && finding.segment == 1, "{finding:?}");
    let [named] = &finding.messages[..] else { panic!("{finding:?}") };
    assert_eq!((&named.topic, &named.msg_id), (&name("orders"), &sent.msg_id.to_string()));

    let again = running.scrubbed().await;
    assert_eq!(again.damaged_records, 1);
    assert!(!again.findings[0].is_new, "it is not news any more");
    let view = running.mailbox.node_stats().log.expect("open").scrub;
    assert_eq!(view.last.map(|last| last.run), Some(again.run));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_are_reclaimed_under_a_check_and_memory_is_checked_too() {
    for in_memory in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let running = RunningMailbox::start(if in_memory { LogLocation::Memory } else { on_disk(folder.path()) }).await;
        for _ in 0..4 {
            for _ in 0..4 {
                running.send("t", &"x".repeat(900_000)).await;
            }
            running.mailbox.scrub_now().expect("the log is open");
            let deliveries = running.recv_as("t", Receive { max_messages: 10, max_bytes: 8 << 20, ..once() }).await;
            for delivery in &deliveries {
                running.ack(delivery).await;
            }
        }
        running.until_small().await;
        let pass = running.scrubbed().await;
        assert!(pass.is_clean(), "in memory {in_memory}: {pass:?}");
        assert_eq!(running.stop().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_for_a_check() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.send("t", &"x".repeat(900_000)).await;
    let mut live = LiveOptions::clone(&running.live.get().value);
    live.upkeep_bytes_per_second = 1;
    running.live.publish(live);
    running.mailbox.scrub_now().expect("the log is open");
    eventually(|| running.mailbox.scrub_view().bytes_checked, |bytes| *bytes > 0).await;
    assert!(running.mailbox.scrub_view().running.is_some(), "it has a week to go");
    assert_eq!(running.stop().await, 0);
}
