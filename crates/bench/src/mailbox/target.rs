//! What a system under test has to offer, and how it is named in the tables.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::cell::{Cell, Payload, Times, Workload};
use super::drive::{Client, Sample, drive};
use super::scratch::settle_disk;

/// Which system; the order is that of the tables.
#[cfg_attr(not(feature = "peers"), allow(dead_code, reason = "some peers only take part with their clients"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// This node, synced before it answers, by its own client.
    Native,
    /// The same node, one HTTP request a message.
    Durable,
    /// The same node, over SQS.
    Sqs,
    /// This node, keeping nothing, over HTTP.
    Amnesia,
    /// The engine of this node inside the bench process.
    Engine,
    /// JetStream that syncs each write.
    NatsAlways,
    /// JetStream as it comes.
    NatsDefault,
    /// The same with few connections that carry many requests each.
    NatsShared,
    /// Redis streams, synced before it answers.
    RedisAlways,
    /// The same with few connections that carry many requests each.
    RedisShared,
    /// Redis streams, synced each second.
    RedisEverySecond,
    /// RabbitMQ quorum queue.
    RabbitQuorum,
    /// RabbitMQ classic durable queue.
    RabbitClassic,
    /// beanstalkd that syncs each write.
    BeanstalkAlways,
    /// beanstalkd with a log as it comes.
    BeanstalkDefault,
    /// PostgreSQL that syncs each commit.
    PostgresOn,
    /// PostgreSQL that answers before it syncs.
    PostgresOff,
    /// Bytes appended by tasks that wait, synced in groups.
    GroupCommit,
    /// Bytes appended and synced in groups by a loop alone.
    RawLog,
    /// axum that only parses and answers.
    BareHttp,
    /// The server of moto.
    Moto,
    /// MiniStack.
    MiniStack,
    /// A server of SQS that was running already.
    Given(usize),
}

/// How strong an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// On the disk.
    Synced,
    /// In the operating system; a power cut loses it.
    Written,
    /// In memory.
    Ram,
    /// Not a queue at all.
    Ceiling,
    /// Whatever its owner has set.
    Unknown,
}

/// How a system stands in a table.
#[derive(Clone, Debug)]
pub struct Label {
    /// Which one.
    pub id: Id,
    /// Its name and version.
    pub name: String,
    /// What was set.
    pub setting: String,
    /// What an answer means.
    pub promise: Promise,
}

/// A queue that can be filled and emptied by clients.
pub trait Target: Send + 'static {
    /// One task's way to it.
    type Client: Client;

    /// Makes an empty queue; nothing of the cell before is left.
    fn prepare(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// One client for each task.
    fn clients(
        &mut self,
        count: usize,
        payload: &Payload,
    ) -> impl Future<Output = anyhow::Result<Vec<Self::Client>>> + Send;

    /// Throws away what the cell left, so that it does not disturb the next system.
    fn finish(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Puts that many messages into the queue.
    fn fill(&mut self, _payload: &Payload, _count: u64) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::ready(Err(anyhow::anyhow!("it cannot be filled")))
    }

    /// Whether it can do this at all.
    fn can(&self, workload: Workload) -> bool {
        matches!(workload, Workload::Send | Workload::Cycle)
    }
}

/// Anything that can measure a cell.
pub trait Measurable: Send {
    /// None where the cell makes no sense for it.
    fn measure(&mut self, cell: Cell, times: Times) -> BoxFuture<'_, anyhow::Result<Option<Sample>>>;
}

impl<T: Target> Measurable for T {
    fn measure(&mut self, cell: Cell, times: Times) -> BoxFuture<'_, anyhow::Result<Option<Sample>>> {
        async move {
            if !self.can(cell.workload) {
                return Ok(None);
            }
            let payload = Payload::new(cell.payload_bytes);
            self.prepare().await?;
            let waiting = waiting_before(cell.workload, times);
            if waiting > 0 {
                self.fill(&payload, waiting).await?;
                settle_disk();
            }
            let clients = self.clients(cell.in_flight, &payload).await?;
            let sample = drive(clients, cell.workload, times).await;
            self.finish().await?;
            let sample = sample?;
            let taken = sample.per_second * (times.warm_up + times.counted).as_secs_f64();
            anyhow::ensure!(waiting == 0 || taken < waiting as f64, "the {waiting} messages that waited ran out");
            Ok(Some(sample))
        }
        .boxed()
    }
}

/// Messages that must be there before: more than anybody settles in that time.
fn waiting_before(workload: Workload, times: Times) -> u64 {
    const PER_SECOND_MAX: f64 = 40_000.0;
    let seconds = (times.warm_up + times.counted).as_secs_f64();
    if workload == Workload::Settle { (seconds * PER_SECOND_MAX) as u64 } else { 0 }
}

/// A running system.
pub struct System {
    /// How it is shown.
    pub label: Label,
    /// What measures it; dropping it ends its process.
    pub measures: Box<dyn Measurable>,
}

impl System {
    /// Of a name with a setting.
    pub fn new(
        id: Id,
        name: impl Into<String>,
        setting: impl Into<String>,
        promise: Promise,
        measures: impl Measurable + 'static,
    ) -> System {
        let label = Label { id, name: name.into(), setting: setting.into(), promise };
        System { label, measures: Box::new(measures) }
    }
}

impl Promise {
    /// For a table.
    pub fn words(self) -> &'static str {
        match self {
            Promise::Synced => "synced to disk",
            Promise::Written => "in the page cache",
            Promise::Ram => "in memory",
            Promise::Ceiling => "a ceiling",
            Promise::Unknown => "not known",
        }
    }
}

impl Label {
    /// Name and setting in one.
    pub fn full(&self) -> String {
        if self.setting.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.setting) }
    }
}
