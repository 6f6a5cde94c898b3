//! What is done is done as a whole, in time or not at all: changes of messages that nobody has received, and sends.

use std::sync::Arc;

use bytes::Bytes;
use svc_mailbox::types::MessageId;
use svc_mailbox::{MessageChange, Seen};

use super::scrub::spoil;
use super::*;

impl RunningMailbox {
    async fn seen(&self, id: MessageId) -> Seen {
        self.mailbox.explain(id, soon()).await.expect("it is there").seen
    }
}

fn payload(text: &'static str) -> MessageChange {
    MessageChange { payload: Some(Bytes::from_static(text.as_bytes())), ..MessageChange::default() }
}

fn attrs(value: &str) -> MessageChange {
    MessageChange { attrs: Some(vec![("a".to_owned(), value.to_owned())]), ..MessageChange::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_too_late_is_not_begun() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.send("t", "in time").await;
    let late = || Deadline::after(Duration::ZERO);
    let message = || Outgoing { payload: "too late".into(), ..Outgoing::default() };
    let sent = running.mailbox.send(&anybody(), &name("t"), message(), late()).await;
    assert_eq!(sent.map_err(|error| error.kind), Err(Kind::Timeout));
    let sent = running.mailbox.send_batch(&anybody(), &name("t"), vec![message(), message()], late()).await;
    assert!(sent.iter().all(|sent| sent.as_ref().is_err_and(|error| error.kind == Kind::Timeout)), "{sent:?}");
    assert_eq!(running.recv("t", 10).await.len(), 1);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_is_changed_only_as_a_whole() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let id = running.send("t", "the-message-that-is-hit").await.msg_id;
    // Enough to seal the segment with the message: what is in the last one is read at the start.
    for _ in 0..3 {
        running.send("other", &"x".repeat(900_000)).await;
    }
    assert_eq!(running.stop().await, 0);
    spoil(folder.path(), "the-message-that-is-hit");

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    assert!(running.seen(id).await.damaged);
    let later = MessageChange { delay_ms: Some(60_000), ..MessageChange::default() };
    for part in [payload("mended"), attrs("1"), later] {
        let refused = running.mailbox.change(id, part, soon()).await.expect_err("it keeps damaged bytes");
        assert!(refused.kind == Kind::Conflict && refused.detail.contains("damaged"), "{refused}");
    }
    let seen = running.seen(id).await;
    assert!(seen.damaged && seen.due_ms.is_none(), "nothing has changed: {seen:?}");
    let whole = MessageChange { payload: payload("mended").payload, ..attrs("1") };
    let changed = running.mailbox.change(id, whole, soon()).await.expect("nothing damaged is kept");
    assert!(!changed.damaged);
    let [delivery] = &running.recv("t", 1).await[..] else { panic!("one message") };
    assert_eq!((&delivery.payload[..], delivery.attrs[0].1.as_str()), (&b"mended"[..], "1"));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_at_the_same_time_do_not_lose_one_another() {
    let running = Arc::new(RunningMailbox::start(LogLocation::Memory).await);
    for round in 0..200 {
        let id = running.send("t", "before").await.msg_id;
        let mut changes = tokio::task::JoinSet::new();
        for change in [payload("after"), attrs("after"), MessageChange { delay_ms: Some(60_000), ..payload("after") }] {
            let running = Arc::clone(&running);
            changes.spawn(async move { running.mailbox.change(id, change, soon()).await.map(drop) });
        }
        assert!(changes.join_all().await.iter().all(Result::is_ok), "round {round}");
        let seen = running.seen(id).await;
        assert_eq!((&seen.payload[..], seen.attrs.len()), (&b"after"[..], 1), "round {round}");
        assert!(seen.due_ms.is_some(), "round {round}");
    }
    assert_eq!(Arc::into_inner(running).expect("nobody else is left").stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_time_is_refused_has_not_changed_the_payload() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let settings = TopicSettings { retention_ms: 600_000, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("t"), settings, soon()).await.expect("made");
    let id = running.send("t", "before").await.msg_id;
    eventually(|| running.mailbox.now(), |now| *now > id.sent_ms).await;
    // No longer than the topic keeps messages, but by now longer than it keeps this one.
    let change = MessageChange { delay_ms: Some(600_000), ..payload("after") };
    let refused = running.mailbox.change(id, change, soon()).await.expect_err("it would not be there any more");
    assert_eq!(refused.kind, Kind::Schema, "{refused}");
    let seen = running.seen(id).await;
    assert_eq!((&seen.payload[..], seen.due_ms), (&b"before"[..], None));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_answered_with_what_it_made_and_holds_after_a_restart() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let id = running.send("t", "before").await.msg_id;
    let change = MessageChange { delay_ms: Some(600_000), payload: payload("after").payload, ..attrs("1") };
    let changed = running.mailbox.change(id, change, soon()).await.expect("nobody has seen it");
    assert_eq!((&changed.payload[..], changed.attrs.len()), (&b"after"[..], 1));
    assert!(changed.due_ms.is_some_and(|due_ms| due_ms >= id.sent_ms + 600_000));
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let seen = running.seen(id).await;
    assert_eq!((seen.payload, seen.attrs, seen.state), (changed.payload, changed.attrs, changed.state));
    assert!(running.recv("t", 1).await.is_empty(), "it waits for its time");
    assert_eq!(running.stop().await, 0);
}
