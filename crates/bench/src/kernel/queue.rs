//! The kernel's queues beside raw channels.

use std::convert::Infallible;
use std::hint::black_box;

use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec};
use ron_kernel::{Builder, KernelOptions, Metrics, clock};
use ron_types::limits::{MIB, WORK_CAPACITY};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Size;
use crate::report::{Row, Target};
use crate::stats::{self, Spread};

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 2;
/// Items of one slice: some tens of milliseconds of work, so that a cold ring and a cold cache do not decide.
const PINGS: u64 = 400_000;
const MOVES: u64 = 200_000;
/// Item that tells a consumer to end.
const STOP: u64 = u64::MAX;

const fn spec(name: &'static str, kind: QueueKind, bytes_max: Option<usize>) -> QueueSpec {
    QueueSpec {
        owner: "macronode",
        service: "bench",
        name,
        kind,
        capacity: WORK_CAPACITY,
        bytes_max,
        from: "producers",
        to: "consumers",
        overflow: Overflow::RejectNew,
        holds_up_writers: false,
        answer: "Busy",
        on_restart: Fate::Kept,
        on_drain: Fate::Drained,
    }
}

static MANY: QueueSpec = spec("bench_mpmc", QueueKind::Mpmc, None);
/// The items are small change here and not counted in bytes.
static MANY_BYTES: QueueSpec = spec("bench_mpmc_bytes", QueueKind::Mpmc, Some(MIB));
/// The same items are large enough here to be counted.
static MANY_BYTES_COUNTED: QueueSpec = spec("bench_mpmc_bytes_counted", QueueKind::Mpmc, Some(MIB / 8));
static ONE: QueueSpec = spec("bench_mpsc", QueueKind::Mpsc, None);

/// As large as a small job; its payload would live elsewhere.
struct Item {
    number: u64,
    _rest: [u64; 3],
}

impl Payload for Item {
    fn bytes(&self) -> usize {
        64
    }
}

impl Item {
    fn new(number: u64) -> Item {
        Item { number, _rest: [number; 3] }
    }
}

/// The sending end of either side: false if full.
trait Offers: Clone + Send + Sync + 'static {
    fn offer_item(&self, item: Item) -> bool;
}

/// The receiving end of a queue or of a raw channel.
trait Takes: Send + 'static {
    fn try_take(&mut self) -> Option<Item>;
    fn take(&mut self) -> impl Future<Output = Option<Item>> + Send;
}

impl Offers for QueueSender<Item> {
    fn offer_item(&self, item: Item) -> bool {
        self.offer(item).is_ok()
    }
}

impl Offers for async_channel::Sender<Item> {
    fn offer_item(&self, item: Item) -> bool {
        self.try_send(item).is_ok()
    }
}

impl Offers for mpsc::Sender<Item> {
    fn offer_item(&self, item: Item) -> bool {
        self.try_send(item).is_ok()
    }
}

impl Takes for QueueReceiver<Item> {
    fn try_take(&mut self) -> Option<Item> {
        self.try_recv()
    }

    fn take(&mut self) -> impl Future<Output = Option<Item>> + Send {
        self.recv()
    }
}

impl Takes for async_channel::Receiver<Item> {
    fn try_take(&mut self) -> Option<Item> {
        self.try_recv().ok()
    }

    async fn take(&mut self) -> Option<Item> {
        self.recv().await.ok()
    }
}

impl Takes for mpsc::Receiver<Item> {
    fn try_take(&mut self) -> Option<Item> {
        self.try_recv().ok()
    }

    fn take(&mut self) -> impl Future<Output = Option<Item>> + Send {
        self.recv()
    }
}

fn ours(spec: &'static QueueSpec) -> (QueueSender<Item>, Vec<QueueReceiver<Item>>) {
    let (sender, receiver) = Builder::new(KernelOptions::default(), Metrics::new()).queue(spec);
    let consumers = if spec.kind == QueueKind::Mpsc { 1 } else { CONSUMERS };
    (sender, vec![receiver; consumers])
}

#[expect(clippy::disallowed_methods, reason = "the raw channel is the peer")]
fn raw_many() -> (async_channel::Sender<Item>, Vec<async_channel::Receiver<Item>>) {
    let (sender, receiver) = async_channel::bounded(WORK_CAPACITY);
    (sender, vec![receiver; CONSUMERS])
}

#[expect(clippy::disallowed_methods, reason = "the raw channel is the peer")]
fn raw_one() -> (mpsc::Sender<Item>, Vec<mpsc::Receiver<Item>>) {
    let (sender, receiver) = mpsc::channel(WORK_CAPACITY);
    (sender, vec![receiver])
}

/// Measures every kind of queue, alone and contended.
pub fn measure(runtime: &Runtime, size: Size) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (spec, kind) in [
        (&MANY, "mpmc"),
        (&MANY_BYTES, "mpmc with a byte bound, small items"),
        (&MANY_BYTES_COUNTED, "mpmc with a byte bound, large items"),
    ] {
        rows.extend(pair(runtime, size, kind, "async-channel", || ours(spec), raw_many));
    }
    rows.extend(pair(runtime, size, "mpsc", "tokio mpsc", || ours(&ONE), raw_one));
    Ok(rows)
}

fn pair<S: Offers, R: Takes, RawS: Offers, RawR: Takes>(
    runtime: &Runtime,
    size: Size,
    kind: &str,
    peer: &str,
    ours: impl Fn() -> (S, Vec<R>),
    raw: impl Fn() -> (RawS, Vec<RawR>),
) -> [Row; 2] {
    let (our_pings, raw_pings) = alternated(size, || ping(ours(), PINGS), || ping(raw(), PINGS));
    let bytes = if kind.contains("byte bound") { "the byte budget, " } else { "" };
    let alone = row(
        format!("queue: {kind}, alone"),
        peer,
        &our_pings,
        &raw_pings,
        format!(
            "One thread offers an item and takes it; ours has {bytes}the policy of the spec, the typed Busy and the \
             high-water mark, which {peer} has not."
        ),
    );
    let (our_moved, raw_moved) =
        alternated(size, || contended(runtime, ours(), MOVES), || contended(runtime, raw(), MOVES));
    let consumers = if kind == "mpsc" { 1 } else { CONSUMERS };
    let together = row(
        format!("queue: {kind}, {PRODUCERS} to {consumers}"),
        peer,
        &our_moved,
        &raw_moved,
        format!(
            "Tasks of one runtime, {PRODUCERS} that offer (and yield when the queue is full) and {consumers} that \
             wait; a refusal is counted and named on our side and only thrown away on that of {peer}."
        ),
    );
    [alone, together]
}

/// Many short slices for each round: on a busy machine the median slice is one that nobody interrupted.
fn alternated(size: Size, mut ours: impl FnMut() -> f64, mut raw: impl FnMut() -> f64) -> (Vec<f64>, Vec<f64>) {
    let (rounds, slices) = size.pick((3, 1), (7, 9));
    let rounds = (0..rounds).map(|_| match stats::alternate(slices, || Ok::<_, Infallible>(ours()), || Ok(raw())) {
        Ok((ours, raw)) => (median(&ours), median(&raw)),
    });
    rounds.unzip()
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

fn row(name: String, peer: &str, ours: &[f64], raw: &[f64], meaning: String) -> Row {
    let millions = |values: &[f64]| median(values) / 1e6;
    Row {
        name,
        ours: format!("{:.1} M/s", millions(ours)),
        value: None,
        peer: format!("{:.1} M/s ({peer})", millions(raw)),
        ratio: stats::ratios(ours, raw),
        target: Target::RatioAtLeast(0.9),
        meaning,
    }
}

/// Items in a second through an empty queue, offered and taken by one thread.
#[inline(never)]
fn ping<S: Offers, R: Takes>((sender, mut receivers): (S, Vec<R>), items: u64) -> f64 {
    let receiver = &mut receivers[0];
    let began = clock::now();
    let mut sum = 0_u64;
    for number in 0..items {
        assert!(sender.offer_item(black_box(Item::new(number))), "an empty queue has room");
        sum += receiver.try_take().map_or(0, |item| black_box(item).number);
    }
    let took = began.elapsed();
    assert_eq!(sum, items * (items - 1) / 2, "every item came back");
    items as f64 / took.as_secs_f64()
}

/// Items in a second from several producers to all consumers.
fn contended<S: Offers, R: Takes>(runtime: &Runtime, (sender, receivers): (S, Vec<R>), items: u64) -> f64 {
    runtime.block_on(async move {
        let share = items / PRODUCERS as u64;
        let consumers = receivers.len();
        let began = clock::now();
        let mut taking = JoinSet::new();
        for receiver in receivers {
            taking.spawn(consume(receiver));
        }
        let mut offering = JoinSet::new();
        for _ in 0..PRODUCERS {
            offering.spawn(produce(sender.clone(), share));
        }
        let refused: u64 = offering.join_all().await.into_iter().sum();
        black_box(refused);
        for _ in 0..consumers {
            offer_until_taken(&sender, STOP).await;
        }
        let taken: u64 = taking.join_all().await.into_iter().sum();
        let took = began.elapsed();
        assert_eq!(taken, share * PRODUCERS as u64, "every item arrived once");
        taken as f64 / took.as_secs_f64()
    })
}

async fn produce<S: Offers>(sender: S, items: u64) -> u64 {
    let mut refused = 0;
    for number in 0..items {
        refused += offer_until_taken(&sender, number).await;
    }
    refused
}

async fn offer_until_taken<S: Offers>(sender: &S, number: u64) -> u64 {
    let mut refused = 0;
    while !sender.offer_item(Item::new(number)) {
        refused += 1;
        tokio::task::yield_now().await;
    }
    refused
}

async fn consume<R: Takes>(mut receiver: R) -> u64 {
    let mut taken = 0;
    while let Some(item) = receiver.take().await {
        if item.number == STOP {
            break;
        }
        taken += 1;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_patterns_move_every_item_on_every_kind() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        for spec in [&MANY, &MANY_BYTES, &MANY_BYTES_COUNTED, &ONE] {
            // Both check their sums; what they return depends on the machine.
            assert!(ping(ours(spec), 1_000) > 0.0);
            assert!(contended(&runtime, ours(spec), 2_000) > 0.0);
        }
        assert!(ping(raw_many(), 1_000) > 0.0 && contended(&runtime, raw_many(), 2_000) > 0.0);
        assert!(ping(raw_one(), 1_000) > 0.0 && contended(&runtime, raw_one(), 2_000) > 0.0);
    }
}
