//! The whole mailbox on its kernel, without HTTP: what callers are promised, across restarts and lost workers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::handle::ChaosOrder;
use ron_kernel::{Builder, Deadline, KernelHandle, KernelOptions, Metrics, Snapshot};
use ron_types::Kind;
use svc_mailbox::types::{Groups, TopicName, TopicSettings};
use svc_mailbox::{
    Delivery, Filter, LiveOptions, LogLocation, Mailbox, MailboxOptions, MoveOrder, MoveState, Outgoing, Receive,
    capabilities,
};

#[path = "engine/bounds.rs"]
mod bounds;
#[path = "engine/breaker.rs"]
mod breaker;
#[path = "engine/changes.rs"]
mod changes;
#[path = "engine/events.rs"]
mod events;
#[path = "engine/gate.rs"]
mod gate;
#[path = "engine/group_queues.rs"]
mod group_queues;
#[path = "engine/ids.rs"]
mod ids;
#[path = "engine/keys.rs"]
mod keys;
#[path = "engine/lone.rs"]
mod lone;
#[path = "engine/moves.rs"]
mod moves;
#[path = "engine/receive.rs"]
mod receive;
#[path = "engine/scrub.rs"]
mod scrub;
#[path = "engine/sizes.rs"]
mod sizes;
#[path = "engine/topics.rs"]
mod topics;

/// A mailbox on a kernel of its own.
struct RunningMailbox {
    mailbox: Mailbox,
    kernel: KernelHandle,
    live: Snapshot<LiveOptions>,
    running: tokio::task::JoinHandle<ron_kernel::ExitReport>,
}

impl RunningMailbox {
    async fn start(location: LogLocation) -> RunningMailbox {
        RunningMailbox::with(MailboxOptions { location, segment_bytes: 2 << 20, ..MailboxOptions::default() }).await
    }

    #[expect(clippy::disallowed_methods, reason = "a test has no kernel to run its kernel on")]
    async fn with(options: MailboxOptions) -> RunningMailbox {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = svc_mailbox::install(&mut builder, options, live.clone());
        let kernel = builder.build().expect("a valid plan");
        let handle = kernel.handle();
        let running = tokio::spawn(kernel.run());
        let ready = async { handle.watch_status().wait_for(|status| status.is_ready()).await.map(drop) };
        within(ready).await.expect("ready in time").expect("the kernel lives");
        RunningMailbox { mailbox, kernel: handle, live, running }
    }

    async fn stop(self) -> u8 {
        self.kernel.drain().await.expect("the supervisor listens");
        self.running.await.expect("it ends").code
    }

    /// Waits until the log has made room.
    async fn until_small(&self) {
        eventually(|| self.mailbox.node_stats().log.expect("open").segments, |segments| *segments <= 3).await;
    }

    async fn send(&self, topic: &str, payload: &str) -> svc_mailbox::Receipted {
        self.send_as(topic, Outgoing { payload: payload.to_owned().into(), ..Outgoing::default() }).await
    }

    async fn send_as(&self, topic: &str, message: Outgoing) -> svc_mailbox::Receipted {
        self.mailbox.send(&anybody(), &name(topic), message, soon()).await.expect("sent")
    }

    async fn recv(&self, topic: &str, max_messages: usize) -> Vec<Delivery> {
        self.recv_as(topic, Receive { max_messages, ..once() }).await
    }

    async fn recv_as(&self, topic: &str, receive: Receive) -> Vec<Delivery> {
        let deadline = Deadline::after(Duration::from_secs(25));
        self.mailbox.recv(&anybody(), &name(topic), receive, deadline).await.expect("received")
    }

    async fn ack(&self, delivery: &Delivery) {
        let acked = self.mailbox.ack(vec![delivery.receipt], soon()).await;
        assert!(acked[0].is_ok(), "{acked:?}");
    }
}

async fn within<F: Future>(future: F) -> Result<F::Output, ron_types::Error> {
    Deadline::after(Duration::from_secs(20)).run("test", future).await
}

/// Looks at something until it is as wanted; if that never happens, says how it was last.
async fn eventually<T: std::fmt::Debug>(look: impl Fn() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let looking = within(async {
        loop {
            let seen = look();
            if is_so(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    looking.await.unwrap_or_else(|_| panic!("still {:?}", look()))
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn anybody() -> Subject {
    Subject::operator("test")
}

fn name(text: &str) -> TopicName {
    text.parse().expect("a topic's name")
}

fn once() -> Receive {
    Receive {
        visibility_ms: Some(60_000),
        max_messages: 1,
        max_bytes: 1 << 20,
        wait_ms: 0,
        consumer: "test".to_owned(),
    }
}

fn on_disk(folder: &Path) -> LogLocation {
    LogLocation::Directory(folder.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_is_received_once_and_gone_when_acknowledged() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let sent = running.send("orders", "hello").await;
    let [delivery] = &running.recv("orders", 10).await[..] else { panic!("one message") };
    assert_eq!((delivery.msg_id, &delivery.payload[..], delivery.attempt), (sent.msg_id, &b"hello"[..], 1));
    assert!(running.recv("orders", 10).await.is_empty(), "it is leased");
    running.ack(delivery).await;
    let again = running.mailbox.ack(vec![delivery.receipt], soon()).await;
    assert_eq!(again[0].as_ref().expect_err("settled").kind, Kind::NotFound);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_answered_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let keyed = || Outgoing { idem_key: Some("k1".to_owned()), payload: "keyed".into(), ..Outgoing::default() };
    let (first, lease) = {
        let running = RunningMailbox::start(on_disk(folder.path())).await;
        let first = running.send_as("orders", keyed()).await;
        for n in 0..50 {
            running.send("orders", &format!("m{n}")).await;
        }
        let delivery = running.recv("orders", 1).await.remove(0);
        assert_eq!(delivery.msg_id, first.msg_id, "the oldest first");
        let acked = running.recv("orders", 1).await.remove(0);
        running.ack(&acked).await;
        assert_eq!(running.stop().await, 0);
        (first, delivery)
    };
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let again = running.send_as("orders", keyed()).await;
    assert!(again.duplicate && again.msg_id == first.msg_id, "the key is remembered");
    let rest = running.recv("orders", 100).await;
    let texts: Vec<_> = rest.iter().map(|delivery| String::from_utf8_lossy(&delivery.payload).into_owned()).collect();
    let expected: Vec<_> = (1..50).map(|n| format!("m{n}")).collect();
    assert_eq!(texts, expected, "neither the acknowledged nor the leased one");
    running.ack(&lease).await;
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_receiver_is_woken_by_a_send_and_by_the_end_of_a_lease() {
    let running = Arc::new(RunningMailbox::start(LogLocation::Memory).await);
    running.mailbox.create_topic(&name("t"), TopicSettings::default(), soon()).await.expect("made");
    let waiting = running.recv_as("t", Receive { wait_ms: 10_000, visibility_ms: Some(300), ..once() });
    let (received, _) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        running.send("t", "x").await
    });
    assert_eq!(received.len(), 1);
    let lease_end = received[0].until_ms;
    let returned = running.recv_as("t", Receive { wait_ms: 10_000, ..once() }).await;
    assert_eq!((returned.len(), returned[0].attempt), (1, 2));
    let late = returned[0].history.len();
    assert!(late >= 1 && running.mailbox.now() >= lease_end);
    assert_eq!(Arc::into_inner(running).expect("alone").stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_ends_at_once_when_the_node_drains() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.send("t", "x").await;
    let delivery = running.recv("t", 1).await.remove(0);
    running.ack(&delivery).await;
    let waiting = running.recv_as("t", Receive { wait_ms: 20_000, ..once() });
    let (received, drained) = tokio::join!(within(waiting), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        running.kernel.drain().await
    });
    assert!(received.expect("long before its time").is_empty() && drained.is_ok());
    assert_eq!(running.running.await.expect("it ends").code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_too_often_is_a_dead_letter_and_can_be_sent_back() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let settings = TopicSettings { max_attempts: 2, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("jobs"), settings, soon()).await.expect("made");
    let sent = running.send("jobs", "poison").await;
    for _ in 0..2 {
        let delivery = running.recv_as("jobs", Receive { wait_ms: 5_000, ..once() }).await.remove(0);
        running.mailbox.nack(vec![delivery.receipt], "boom", Some(0), false, soon()).await.remove(0).expect("failed");
    }
    let page = running.mailbox.browse(&name("jobs.dlq"), Filter::default(), None, 10, soon()).await.expect("seen");
    let dead = page.messages[0].dead.as_ref().expect("it is dead");
    assert_eq!((page.messages[0].msg_id, dead.attempts, dead.last_error.as_str()), (sent.msg_id, 2, "boom"));
    let explained = running.mailbox.explain(sent.msg_id, soon()).await.expect("known");
    assert!(explained.verdict.contains("dead letter of jobs"), "{}", explained.verdict);

    let filter = Filter { error_contains: Some("boo".to_owned()), ..Filter::default() };
    let order = MoveOrder { filter, ..MoveOrder::all_of(name("jobs.dlq")) };
    assert_eq!(running.mailbox.count_move(&order, soon()).await.expect("counted"), 1);
    let id = running.mailbox.start_move(order, soon()).await.expect("ordered").task.id;
    let back = running.recv_as("jobs", Receive { wait_ms: 5_000, ..once() }).await.remove(0);
    assert_eq!((back.msg_id, back.attempt), (sent.msg_id, 1));
    let state = || running.mailbox.find_move(id).expect("known").task.state;
    eventually(state, |state| *state == MoveState::Completed).await;
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_shards_loses_nothing() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let fifo = TopicSettings { groups: Groups::Fifo, partitions: 4, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("lines"), fifo, soon()).await.expect("made");
    for n in 0..200 {
        let group = Some(format!("g{}", n % 10));
        running.send_as("lines", Outgoing { group, payload: n.to_string().into(), ..Outgoing::default() }).await;
        running.send(&format!("topic{}", n % 20), "x").await;
    }
    for shards in [8, 1, 3] {
        running.live.publish(LiveOptions { ready_shards: shards, ..LiveOptions::default() });
        eventually(|| running.mailbox.node_stats().shards.len(), |count| *count == shards).await;
        let stats = running.mailbox.stats(&name("lines"), soon()).await.expect("counted");
        assert_eq!(stats.total.ready, 200, "{shards} shards");
    }
    let mut last = [-1_i64; 10];
    let mut received = 0;
    while received < 200 {
        let deliveries = running.recv("lines", 100).await;
        assert!(!deliveries.is_empty(), "{received} of 200");
        for delivery in &deliveries {
            let n: i64 = String::from_utf8_lossy(&delivery.payload).parse().expect("a number");
            let group = (n % 10) as usize;
            assert!(n > last[group], "order within a group");
            last[group] = n;
            received += 1;
        }
        let receipts = deliveries.iter().map(|delivery| delivery.receipt).collect();
        assert!(running.mailbox.ack(receipts, soon()).await.iter().all(Result::is_ok));
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_loses_nothing_and_its_successor_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let mut sent = std::collections::BTreeSet::new();
    for n in 0..300_u32 {
        if n % 100 == 50 {
            running.kernel.chaos("shard_worker", 1.0, ChaosOrder::Kill).await.expect("killed");
        }
        let message =
            Outgoing { payload: n.to_string().into(), idem_key: Some(format!("k{n}")), ..Outgoing::default() };
        // Whoever gets no answer asks again; the key makes that safe.
        loop {
            match running.mailbox.send(&anybody(), &name("t"), message.clone(), soon()).await {
                Ok(receipted) => {
                    sent.insert(receipted.msg_id.to_string());
                    break;
                }
                Err(error) => assert!(matches!(error.kind, Kind::Degraded | Kind::Timeout | Kind::Busy), "{error}"),
            };
        }
    }
    let mut received = std::collections::BTreeSet::new();
    while received.len() < sent.len() {
        let deliveries = running.recv_as("t", Receive { max_messages: 100, wait_ms: 2_000, ..once() }).await;
        assert!(!deliveries.is_empty(), "{} of {}", received.len(), sent.len());
        received.extend(deliveries.iter().map(|delivery| delivery.msg_id.to_string()));
    }
    assert_eq!(received, sent);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_made_while_stragglers_keep_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let body = "x".repeat(20_000);
    let straggler = running.send("slow", "the one that waits").await;
    let mut segments_max = 0;
    for _ in 0..800 {
        running.send("fast", &body).await;
        let delivery = running.recv("fast", 1).await.remove(0);
        running.ack(&delivery).await;
        segments_max = segments_max.max(running.mailbox.node_stats().log.expect("open").segments);
    }
    running.until_small().await;
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let delivery = running.recv("slow", 1).await.remove(0);
    assert_eq!((delivery.msg_id, &delivery.payload[..]), (straggler.msg_id, &b"the one that waits"[..]));
    assert!(running.recv("fast", 1).await.is_empty());
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_another_names_for_its_dead_letters_cannot_go() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let settings = TopicSettings { dlq: Some("grave".to_owned()), ..TopicSettings::default() };
    running.mailbox.create_topic(&name("jobs"), settings, soon()).await.expect("made, and the grave with it");
    let refused = running.mailbox.delete_topic(&name("grave"), soon()).await.expect_err("it is named");
    assert!(refused.kind == Kind::Conflict && refused.detail.contains("jobs"), "{refused}");
    running.mailbox.delete_topic(&name("jobs"), soon()).await.expect("nobody names it");
    running.mailbox.delete_topic(&name("grave"), soon()).await.expect("nobody names it any more");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_sender_and_of_the_node_hold_and_the_operator_has_only_his_own() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let limited = |name: &str, limit: &str, value| {
        let limits = [(limit.to_owned(), value)].into();
        Subject { limits, ..Subject::named(name) }
    };
    // A batch larger than its sender's bucket passes once and takes a minute to pay for, however slow the machine is.
    let send = async |by: &Subject| {
        let messages = vec![Outgoing { payload: "four".into(), ..Outgoing::default() }; 60];
        let sent = running.mailbox.send_batch(by, &name("t"), messages, soon()).await;
        sent.into_iter().find_map(Result::err).map(|error| (error.kind, error.retry_after.is_some()))
    };
    let slow = limited("slow", capabilities::SENDS_PER_SECOND, 1);
    assert_eq!((send(&slow).await, send(&slow).await), (None, Some((Kind::Busy, true))));
    let free = limited("free", "moon.phases", 1);
    assert_eq!((send(&free).await, send(&free).await), (None, None), "a limit of no service stops nothing");
    let small = limited("small", capabilities::PAYLOAD_BYTES_MAX, 3);
    assert_eq!(send(&small).await, Some((Kind::FrameTooLarge, false)));

    running.live.publish(LiveOptions { tenant_sends_per_second: 1, ..LiveOptions::default() });
    assert_eq!((send(&free).await, send(&free).await), (None, Some((Kind::Busy, true))), "the node's own limit");
    assert_eq!((send(&anybody()).await, send(&anybody()).await), (None, None), "not for the operator");
    assert_eq!(running.stop().await, 0);
}
