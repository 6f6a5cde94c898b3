//! One publisher, some subscribers: as many messages as go, then one at a time for the time each takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use ron_kernel::{Deadline, clock};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Cell;

/// Bytes of messages on their way at most, and bounds of their number: enough to keep every stage busy, and less than
/// what a node or a broker lets wait for one subscriber.
const WINDOW_BYTES: usize = 2 << 20;
const WINDOW_MESSAGES: (u64, u64) = (16, 4096);
/// Messages handed to a client at once.
const PUBLISH_AT_ONCE: u64 = 256;
/// Time that connecting and the last messages may take beside what is measured.
const PATIENCE: Duration = Duration::from_secs(20);

/// A system under test.
pub trait Connect {
    type Publishing: Publish + Send + 'static;
    type Hearing: Hear + Send + 'static;

    /// A publisher and so many subscribers on a lane of their own, each over a connection of its own.
    fn connect(
        &self,
        subscribers: usize,
    ) -> impl Future<Output = anyhow::Result<(Self::Publishing, Vec<Self::Hearing>)>> + Send;
}

/// One that publishes.
pub trait Publish {
    /// Publishes the same message so many times.
    fn publish(&mut self, payload: &Bytes, count: u64) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// One that hears.
pub trait Hear {
    /// Waits for messages; how many came. A message that is known to be lost is an error.
    fn hear(&mut self) -> impl Future<Output = anyhow::Result<u64>> + Send;
}

/// One measurement of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Messages a second that every subscriber has heard.
    pub rate: f64,
    /// Milliseconds from a publication to its last subscriber, with nothing else on the way.
    pub p50_ms: f64,
    /// The same for the slowest in a hundred.
    pub p99_ms: f64,
}

/// Measurements of one cell, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rates: Vec<f64>,
    pub p50s_ms: Vec<f64>,
    pub p99s_ms: Vec<f64>,
}

impl Figures {
    pub fn push(&mut self, figure: Figure) {
        self.rates.push(figure.rate);
        self.p50s_ms.push(figure.p50_ms);
        self.p99s_ms.push(figure.p99_ms);
    }
}

/// How many messages each subscriber has heard.
struct Progress {
    heard: Vec<AtomicU64>,
    changed: Notify,
}

impl Progress {
    fn least(&self) -> u64 {
        self.heard.iter().map(|count| count.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

/// Measures one cell of a system over new connections. One that loses a message would be waited for in vain.
pub async fn measure<S: Connect>(system: &S, cell: Cell, time: Duration) -> anyhow::Result<Figure> {
    Deadline::after(4 * time + PATIENCE).run("measuring a cell", measure_cell(system, cell, time)).await?
}

async fn measure_cell<S: Connect>(system: &S, cell: Cell, time: Duration) -> anyhow::Result<Figure> {
    let payload = Bytes::from(vec![b'x'; cell.payload_bytes]);
    let (mut publishing, mut hearing) = system.connect(cell.subscribers).await?;
    let histogram = one_at_a_time(&mut publishing, &mut hearing, &payload, time / 2).await?;
    let rate = as_many_as_go(publishing, hearing, payload, time).await?;
    let millis = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Figure { rate, p50_ms: millis(0.5), p99_ms: millis(0.99) })
}

/// Nanoseconds from each publication until everybody has heard it.
async fn one_at_a_time(
    publishing: &mut impl Publish,
    hearing: &mut [impl Hear],
    payload: &Bytes,
    time: Duration,
) -> anyhow::Result<Histogram<u64>> {
    let mut histogram = Histogram::new(3)?;
    let began = clock::now();
    while began.elapsed() < time {
        let published = clock::now();
        publishing.publish(payload, 1).await?;
        for hearing in &mut *hearing {
            let heard = hearing.hear().await?;
            anyhow::ensure!(heard == 1, "{heard} messages came where one was sent");
        }
        histogram.record(published.elapsed().as_nanos() as u64)?;
    }
    Ok(histogram)
}

/// Messages a second, with a window between the publisher and the slowest subscriber: without one, what is measured is
/// how much each system lets wait before it drops.
async fn as_many_as_go(
    publishing: impl Publish + Send + 'static,
    hearing: Vec<impl Hear + Send + 'static>,
    payload: Bytes,
    time: Duration,
) -> anyhow::Result<f64> {
    let heard = hearing.iter().map(|_| AtomicU64::new(0)).collect();
    let progress = Arc::new(Progress { heard, changed: Notify::new() });
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for (place, mut hearing) in hearing.into_iter().enumerate() {
        let progress = Arc::clone(&progress);
        tasks.spawn(async move {
            loop {
                let count = hearing.hear().await?;
                progress.heard[place].fetch_add(count, Ordering::AcqRel);
                progress.changed.notify_one();
            }
        });
    }
    tasks.spawn(publish_within_window(publishing, payload, Arc::clone(&progress)));
    let counting = async {
        tokio::time::sleep(time / 4).await;
        let (began, before) = (clock::now(), progress.least());
        tokio::time::sleep(time).await;
        (progress.least() - before) as f64 / began.elapsed().as_secs_f64()
    };
    tokio::select! {
        rate = counting => Ok(rate),
        Some(ended) = tasks.join_next() => Err(ended?.err().unwrap_or_else(|| anyhow::anyhow!("a task ended"))),
    }
}

async fn publish_within_window(
    mut publishing: impl Publish,
    payload: Bytes,
    progress: Arc<Progress>,
) -> anyhow::Result<()> {
    let window = ((WINDOW_BYTES / payload.len()) as u64).clamp(WINDOW_MESSAGES.0, WINDOW_MESSAGES.1);
    let mut sent = 0;
    loop {
        let changed = progress.changed.notified();
        let room = (window + progress.least()).saturating_sub(sent);
        if room == 0 {
            changed.await;
            continue;
        }
        let count = room.min(PUBLISH_AT_ONCE);
        publishing.publish(&payload, count).await?;
        sent += count;
    }
}
