//! Every overflow policy, the byte bound, and what the probe sees.

use super::*;
use crate::spec::Fate;

const fn spec(kind: QueueKind, overflow: Overflow, bytes_max: Option<usize>) -> QueueSpec {
    QueueSpec {
        owner: "test",
        service: "test",
        name: "q",
        kind,
        capacity: 2,
        bytes_max,
        from: "N",
        to: "1",
        overflow,
        holds_up_writers: false,
        answer: "",
        on_restart: Fate::Kept,
        on_drain: Fate::Drained,
    }
}

static REJECT_MANY: QueueSpec = spec(QueueKind::Mpmc, Overflow::RejectNew, None);
static REJECT_ONE: QueueSpec = spec(QueueKind::Mpsc, Overflow::RejectNew, None);
static DROP_OLDEST: QueueSpec = spec(QueueKind::Mpsc, Overflow::DropOldest, None);
static BYTES: QueueSpec = spec(QueueKind::Mpmc, Overflow::RejectNew, Some(10));
static SMALL_CHANGE: QueueSpec = spec(QueueKind::Mpmc, Overflow::RejectNew, Some(1600));
static OWED: QueueSpec = QueueSpec { capacity: 64, ..spec(QueueKind::Mpmc, Overflow::RejectNew, Some(6400)) };
static AWAIT: QueueSpec = spec(QueueKind::Mpsc, Overflow::AwaitSend, None);
static PERMIT: QueueSpec = spec(QueueKind::Mpsc, Overflow::PermitThenSend, None);
static AWAIT_BYTES: QueueSpec = spec(QueueKind::Mpsc, Overflow::AwaitSend, Some(10));
static RETRY_ONCE: QueueSpec = spec(QueueKind::Mpmc, Overflow::RetryOnce, None);
static RETRY_BACKOFF: QueueSpec = spec(QueueKind::Mpmc, Overflow::RetryBackoff, None);

#[derive(Debug, PartialEq)]
struct Blob(usize);

impl Payload for Blob {
    fn bytes(&self) -> usize {
        self.0
    }
}

fn make(spec: &'static QueueSpec) -> (QueueSender<Blob>, QueueReceiver<Blob>, QueueProbe) {
    queue(spec, spec.capacity, spec.bytes_max, &Metrics::new())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(1))
}

#[tokio::test]
async fn a_full_queue_refuses_the_new_item_and_counts_it() {
    for spec in [&REJECT_MANY, &REJECT_ONE] {
        let (sender, mut receiver, probe) = make(spec);
        assert!(sender.offer(Blob(1)).is_ok() && sender.offer(Blob(2)).is_ok());
        let refused = sender.offer(Blob(3)).expect_err("full");
        assert_eq!(refused.kind, Kind::Busy);
        assert!(refused.retry_after.is_some());
        assert_eq!((probe.depth(), probe.high_water(), probe.busy(), probe.dropped()), (2, 2, 1, 0));
        assert_eq!(receiver.recv().await, Some(Blob(1)), "the oldest first, and nothing lost");
        assert_eq!(probe.depth(), 1);
    }
}

#[tokio::test]
async fn drop_oldest_keeps_the_newest_and_counts_the_loss() {
    let (sender, mut receiver, probe) = make(&DROP_OLDEST);
    for n in 1..=5 {
        sender.offer(Blob(n)).expect("never refused");
    }
    assert_eq!((probe.dropped(), probe.busy()), (3, 0));
    assert_eq!((receiver.recv().await, receiver.recv().await), (Some(Blob(4)), Some(Blob(5))));
}

#[tokio::test]
async fn bytes_are_bounded_as_well_as_items_and_come_back_when_received() {
    let (sender, mut receiver, probe) = make(&BYTES);
    sender.offer(Blob(9)).expect("fits");
    assert_eq!(sender.offer(Blob(2)).expect_err("one item waits, but 11 bytes are too many").kind, Kind::Busy);
    assert_eq!(probe.bytes(), Some(9));
    assert!(probe.fill() > 0.89);
    receiver.recv().await;
    assert_eq!(probe.bytes(), Some(0));
    assert!(sender.offer(Blob(10)).is_ok());
}

#[tokio::test]
async fn small_items_are_bounded_by_their_number_and_not_counted_in_bytes() {
    let (sender, mut receiver, probe) = make(&SMALL_CHANGE);
    sender.offer(Blob(100)).expect("two of these are an eighth of the bytes");
    assert_eq!(probe.bytes(), Some(0));
    sender.offer(Blob(101)).expect("fits");
    assert_eq!(probe.bytes(), Some(101));
    assert_eq!(sender.offer(Blob(1)).expect_err("two items").kind, Kind::Busy);
    assert_eq!((receiver.recv().await, receiver.recv().await), (Some(Blob(100)), Some(Blob(101))));
    assert_eq!(probe.bytes(), Some(0));
}

#[tokio::test]
async fn a_busy_receiver_owes_little_and_pays_before_it_waits_or_goes() {
    let (sender, mut receiver, probe) = make(&OWED);
    let offer = |items: usize| (0..items).for_each(|_| sender.offer(Blob(40)).expect("room"));
    offer(4);
    receiver.recv().await;
    receiver.recv().await;
    assert_eq!(probe.bytes(), Some(160), "80 bytes are owed");
    receiver.recv().await;
    assert_eq!(probe.bytes(), Some(40), "120 would be more than a sixty-fourth");
    receiver.recv().await;
    assert_eq!(probe.bytes(), Some(40));
    assert_eq!(futures_util::FutureExt::now_or_never(receiver.recv()), None, "nothing waits");
    assert_eq!(probe.bytes(), Some(0), "it paid before it waited");
    offer(1);
    receiver.recv().await;
    drop(receiver);
    assert_eq!(probe.bytes(), Some(0), "and when it went");
}

#[tokio::test(start_paused = true)]
async fn waiting_senders_get_room_or_backpressure_at_their_deadline() {
    for spec in [&AWAIT, &PERMIT] {
        let (sender, mut receiver, _) = make(spec);
        for n in 0..2 {
            sender.send(Blob(n), soon()).await.expect("room");
        }
        assert_eq!(sender.send(Blob(2), soon()).await.expect_err("full").kind, Kind::Backpressure);
        let (sent, _) = tokio::join!(sender.send(Blob(3), soon()), async { receiver.recv().await });
        sent.expect("room was made");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_senders_wait_for_bytes_as_well_and_what_never_fits_is_said_at_once() {
    let (sender, mut receiver, _) = make(&AWAIT_BYTES);
    sender.send(Blob(8), soon()).await.expect("room");
    assert_eq!(sender.send(Blob(8), soon()).await.expect_err("16 bytes").kind, Kind::Backpressure);
    assert_eq!(sender.send(Blob(11), soon()).await.expect_err("never").kind, Kind::FrameTooLarge);
    assert_eq!(sender.offer(Blob(11)).expect_err("never").kind, Kind::FrameTooLarge);
    let (sent, _) = tokio::join!(sender.send(Blob(9), soon()), async { receiver.recv().await });
    sent.expect("the bytes came back");
}

#[tokio::test(start_paused = true)]
async fn retry_policies_try_again_within_their_bounds() {
    let (sender, receiver, probe) = make(&RETRY_ONCE);
    assert!(sender.offer(Blob(1)).is_ok() && sender.offer(Blob(2)).is_ok());
    assert_eq!(sender.send(Blob(3), soon()).await.expect_err("full twice").kind, Kind::Busy);
    assert_eq!(probe.busy(), 2, "exactly one more try");

    let (sender, mut receiver_backoff, probe) = make(&RETRY_BACKOFF);
    assert!(sender.offer(Blob(1)).is_ok() && sender.offer(Blob(2)).is_ok());
    assert_eq!(sender.send(Blob(3), soon()).await.expect_err("full to the end").kind, Kind::Busy);
    assert!(probe.busy() > 2, "several tries until the deadline");
    let (sent, _) = tokio::join!(sender.send(Blob(4), soon()), async { receiver_backoff.recv().await });
    sent.expect("room was made between two tries");
    drop(receiver);
}

#[tokio::test]
async fn a_closed_queue_hands_out_the_rest_and_takes_nothing_new() {
    let (sender, mut receiver, _) = make(&REJECT_MANY);
    sender.offer(Blob(1)).expect("open");
    sender.close();
    assert_eq!(sender.offer(Blob(2)).expect_err("closed").kind, Kind::Canceled);
    assert_eq!((receiver.recv().await, receiver.recv().await), (Some(Blob(1)), None));
}
