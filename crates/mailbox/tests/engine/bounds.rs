//! Bounds of what callers give: for each the last value that is taken, the first that is not, and the field it is
//! refused with.

use ron_types::Error;
use svc_mailbox::MessageChange;
use svc_mailbox::bounds::{self, AttributeRoom};
use svc_mailbox::types::BreakerSettings;

use super::*;

const HOUR_MS: u64 = 3_600_000;
const RETENTION_MAX_MS: u64 = 14 * 24 * HOUR_MS;
const VISIBILITY_MAX_MS: u64 = 12 * HOUR_MS;

/// What was refused is refused with its field, as a matter of the request's form.
fn assert_refused(outcome: Result<(), Error>, field: &str, what: &str) {
    let error = outcome.expect_err(what);
    let kind = if field == "payload" { Kind::FrameTooLarge } else { Kind::Schema };
    assert!(error.kind == kind && error.detail.starts_with(&format!("{field}: ")), "{what}: {error}");
}

fn change<T>(setting: impl Fn(&mut TopicSettings, T), value: T) -> TopicSettings {
    let mut settings = TopicSettings::default();
    setting(&mut settings, value);
    settings
}

fn breaker(setting: impl Fn(&mut BreakerSettings, u64), value: u64) -> TopicSettings {
    let mut breaker = BreakerSettings::default();
    setting(&mut breaker, value);
    TopicSettings { breaker: Some(breaker), ..TopicSettings::default() }
}

fn labeled(bytes: u64) -> TopicSettings {
    TopicSettings { labels: [("k".to_owned(), "v".repeat(bytes as usize - 1))].into(), ..TopicSettings::default() }
}

/// A field, the settings with a value in it, and the values that are just inside and just outside of its bounds.
type SettingBounds = (&'static str, fn(u64) -> TopicSettings, &'static [u64], &'static [u64]);

// One setting a line, to be read as a table.
#[rustfmt::skip]
const SETTINGS: &[SettingBounds] = &[
    ("visibility_ms", |v| change(|s, v| s.visibility_ms = v, v), &[0, VISIBILITY_MAX_MS], &[VISIBILITY_MAX_MS + 1]),
    ("max_attempts", |v| change(|s, v| s.max_attempts = v as u32, v), &[0, 1_000], &[1_001]),
    ("replay_window_ms", |v| change(|s, v| s.replay_window_ms = v, v), &[0, RETENTION_MAX_MS], &[RETENTION_MAX_MS + 1]),
    ("retention_ms", |v| change(|s, v| s.retention_ms = v, v),
        &[1_000, RETENTION_MAX_MS], &[999, RETENTION_MAX_MS + 1]),
    ("delay_ms", |v| change(|s, v| s.delay_ms = v, v), &[0, 96 * HOUR_MS], &[96 * HOUR_MS + 1]),
    ("partitions", |v| change(|s, v| s.partitions = v as u16, v), &[1, 64], &[0, 65]),
    ("backoff_base_ms", |v| change(|s, v| (s.backoff_base_ms, s.backoff_max_ms) = (v, VISIBILITY_MAX_MS), v),
        &[0, VISIBILITY_MAX_MS], &[VISIBILITY_MAX_MS + 1]),
    ("backoff_max_ms", |v| change(|s, v| s.backoff_max_ms = v, v),
        &[200, VISIBILITY_MAX_MS], &[199, VISIBILITY_MAX_MS + 1]),
    ("messages_max", |v| change(|s, v| s.messages_max = v, v), &[1, u64::MAX], &[0]),
    ("bytes_max", |v| change(|s, v| s.bytes_max = v, v), &[1, u64::MAX], &[0]),
    ("inflight_max", |v| change(|s, v| s.inflight_max = v as u32, v), &[1, 10_000_000], &[0, 10_000_001]),
    ("payload_bytes_max", |v| change(|s, v| s.payload_bytes_max = v as u32, v), &[1, 1 << 20], &[0, (1 << 20) + 1]),
    ("breaker.failing_percent", |v| breaker(|b, v| b.failing_percent = v as u32, v), &[1, 99], &[0, 100]),
    ("breaker.window_ms", |v| breaker(|b, v| b.window_ms = v, v), &[1_000, HOUR_MS], &[999, HOUR_MS + 1]),
    ("breaker.deliveries_min", |v| breaker(|b, v| b.deliveries_min = v as u32, v), &[1, 1_000_000], &[0, 1_000_001]),
    ("breaker.pause_ms", |v| breaker(|b, v| b.pause_ms = v, v), &[1_000, HOUR_MS], &[999, HOUR_MS + 1]),
    ("labels", labeled, &[24 * 1024], &[24 * 1024 + 1]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_held_to_their_bounds() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let mut made = 0;
    for (field, settings, taken, refused) in SETTINGS {
        for value in *taken {
            made += 1;
            let topic = name(&format!("t{made}"));
            let outcome = running.mailbox.create_topic(&topic, settings(*value), soon()).await;
            assert!(outcome.is_ok(), "{field} {value}: {outcome:?}");
        }
        for value in *refused {
            let outcome = running.mailbox.create_topic(&name("never"), settings(*value), soon()).await;
            assert_refused(outcome.map(drop), field, &format!("{field} {value}"));
        }
    }
    for dlq in ["a b", ".a", ""] {
        let settings = TopicSettings { dlq: Some(dlq.to_owned()), ..TopicSettings::default() };
        let outcome = running.mailbox.create_topic(&name("never"), settings, soon()).await;
        assert_refused(outcome.map(drop), "dlq", dlq);
    }
    assert_eq!(running.stop().await, 0);
}

fn attributed(count: usize, name_bytes: usize, value_bytes: usize) -> Outgoing {
    let attr = |at: usize| (format!("{at:0name_bytes$}"), "v".repeat(value_bytes));
    Outgoing { attrs: (0..count).map(attr).collect(), ..Outgoing::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_held_to_their_bounds() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let payload = |bytes: usize| Outgoing { payload: vec![7; bytes].into(), ..Outgoing::default() };
    let delayed = |delay_ms: u64| Outgoing { delay_ms: Some(delay_ms), ..Outgoing::default() };
    let keyed = |key: &str| Outgoing { idem_key: Some(key.to_owned()), ..Outgoing::default() };
    let grouped = |group: &str| Outgoing { group: Some(group.to_owned()), ..Outgoing::default() };
    let (key_max, key_over) = ("k".repeat(128), "k".repeat(129));
    let empty_name = Outgoing { attrs: vec![(String::new(), "v".to_owned())], ..Outgoing::default() };
    for (field, taken, refused) in [
        ("payload", vec![payload(0), payload(1 << 20)], vec![payload((1 << 20) + 1)]),
        ("delay_ms", vec![delayed(0), delayed(96 * HOUR_MS)], vec![delayed(96 * HOUR_MS + 1)]),
        ("idem_key", vec![keyed("!"), keyed(&key_max)], ["", "a b", "ä", "\n", &key_over].map(keyed).into()),
        ("group", vec![grouped("~"), grouped(&key_max)], ["", "a b", "ä", "\n", &key_over].map(grouped).into()),
        (
            "attrs",
            vec![attributed(64, 2, 0), attributed(1, 320, 1), attributed(1, 1, (3 << 19) - 1)],
            vec![attributed(65, 2, 0), attributed(1, 321, 1), attributed(1, 1, 3 << 19), empty_name],
        ),
    ] {
        for (number, message) in taken.into_iter().enumerate() {
            let outcome = running.mailbox.send(&anybody(), &name("t"), message, soon()).await;
            assert!(outcome.is_ok(), "{field} {number}: {outcome:?}");
        }
        for (number, message) in refused.into_iter().enumerate() {
            let outcome = running.mailbox.send(&anybody(), &name("t"), message, soon()).await;
            assert_refused(outcome.map(drop), field, &format!("{field} {number}"));
        }
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receives_and_settlements_are_held_to_their_bounds() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.send("t", "x").await;
    let delivery = running.recv("t", 1).await.remove(0);
    let receipts = |count: usize| vec![delivery.receipt; count];
    for (field, taken, refused) in [
        ("max_messages", vec![(1, 0, 0), (100, 0, 0)], vec![(0, 0, 0), (101, 0, 0)]),
        ("wait_ms", vec![], vec![(1, 20_001, 0)]),
        ("visibility_ms", vec![(1, 0, VISIBILITY_MAX_MS)], vec![(1, 0, VISIBILITY_MAX_MS + 1)]),
    ] {
        let receive = |(max_messages, wait_ms, visibility_ms): (usize, u64, u64)| Receive {
            max_messages,
            wait_ms,
            visibility_ms: Some(visibility_ms),
            ..once()
        };
        for asked in taken {
            let outcome = running.mailbox.recv(&anybody(), &name("t"), receive(asked), soon()).await;
            assert!(outcome.is_ok(), "{field} {asked:?}");
        }
        for asked in refused {
            let outcome = running.mailbox.recv(&anybody(), &name("t"), receive(asked), soon()).await;
            assert_refused(outcome.map(drop), field, &format!("{field} {asked:?}"));
        }
    }

    let mut over = running.mailbox.extend(receipts(1), VISIBILITY_MAX_MS + 1, soon()).await;
    assert_refused(over.remove(0).map(drop), "visibility_ms", "a lease too long");
    assert!(running.mailbox.extend(receipts(1), VISIBILITY_MAX_MS, soon()).await.remove(0).is_ok());
    let mut over = running.mailbox.nack(receipts(1), "", Some(RETENTION_MAX_MS + 1), false, soon()).await;
    assert_refused(over.remove(0).map(drop), "delay_ms", "a wait too long");
    let over = running.mailbox.ack(receipts(1025), soon()).await;
    assert_eq!(over.len(), 1025);
    over.into_iter().for_each(|outcome| assert_refused(outcome, "receipts", "a batch too large"));
    let acked = running.mailbox.ack(receipts(1024), soon()).await;
    assert_eq!(acked.iter().filter(|outcome| outcome.is_ok()).count(), 1, "a batch that just fits: {acked:?}");
    let send = async |count| {
        let sent = running.mailbox.send_batch(&anybody(), &name("t"), vec![Outgoing::default(); count], soon()).await;
        sent.into_iter().map(|outcome| outcome.map(drop)).collect::<Vec<_>>()
    };
    assert_eq!(send(1024).await.iter().filter(|outcome| outcome.is_ok()).count(), 1024);
    send(1025).await.into_iter().for_each(|outcome| assert_refused(outcome, "messages", "a batch too large"));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_out_of_bounds_anywhere_changes_nothing() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let id = running.send("t", "before").await.msg_id;
    let payload = |bytes: usize| Some(vec![7; bytes].into());
    let attrs = |message: Outgoing| MessageChange { attrs: Some(message.attrs), ..MessageChange::default() };
    for (field, change) in [
        (
            "delay_ms",
            MessageChange { payload: payload(1), delay_ms: Some(96 * HOUR_MS + 1), ..MessageChange::default() },
        ),
        ("payload", MessageChange { payload: payload((1 << 20) + 1), delay_ms: Some(9), ..MessageChange::default() }),
        ("attrs", MessageChange { delay_ms: Some(9), ..attrs(attributed(65, 2, 0)) }),
    ] {
        let outcome = running.mailbox.change(id, change, soon()).await.map(drop);
        assert_refused(outcome, field, field);
        let seen = running.mailbox.explain(id, soon()).await.expect("it is there").seen;
        assert_eq!((&seen.payload[..], seen.due_ms), (&b"before"[..], None), "{field}");
    }
    let fits = MessageChange { payload: payload(1 << 20), delay_ms: Some(95 * HOUR_MS), ..attrs(attributed(64, 2, 0)) };
    running.mailbox.change(id, fits, soon()).await.expect("all of it fits");
    let seen = running.mailbox.explain(id, soon()).await.expect("it is there").seen;
    assert_eq!((seen.payload.len(), seen.attrs.len(), seen.due_ms.is_some()), (1 << 20, 64, true));
    assert_eq!(running.stop().await, 0);
}

#[test]
fn what_surfaces_ask_while_they_read_is_bounded_as_well() {
    for (outcome, field) in [
        (bounds::check_batch("messages", 0), "messages"),
        (bounds::check_batch("messages", 101), "messages"),
        (bounds::check_max_bytes(0), "max_bytes"),
        (bounds::check_max_bytes((4 << 20) + 1), "max_bytes"),
        (bounds::check_nack_delay(Some(RETENTION_MAX_MS + 1)), "delay_ms"),
        (AttributeRoom::of_caller().take("", "v"), "attrs"),
        (AttributeRoom::of_caller().take(&"n".repeat(257), "v"), "attrs"),
        (AttributeRoom::of_caller().take("n", &"v".repeat(64 * 1024)), "attrs"),
        (AttributeRoom::of_envelope().take("n", &"v".repeat(3 << 19)), "attrs"),
    ] {
        assert_refused(outcome, field, field);
    }
    for taken in [
        bounds::check_batch("messages", 1),
        bounds::check_batch("messages", 100),
        bounds::check_max_bytes(1),
        bounds::check_max_bytes(4 << 20),
        bounds::check_nack_delay(Some(RETENTION_MAX_MS)),
        AttributeRoom::of_caller().take(&"n".repeat(256), "v"),
        AttributeRoom::of_caller().take("n", &"v".repeat(64 * 1024 - 1)),
        AttributeRoom::of_envelope().take("n", &"v".repeat((3 << 19) - 1)),
    ] {
        assert_eq!(taken, Ok(()));
    }
}
