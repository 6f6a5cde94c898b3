//! What a system under test has to offer, and how it is named in the tables.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::cell::{Cell, Payload, Times, Workload};
use super::drive::{Client, Sample, drive};
use super::scratch::settle_disk;

/// Id of a system; the order is that of the tables.
#[cfg_attr(not(feature = "peers"), allow(dead_code, reason = "some peers only take part with their clients"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// This node, synced before it answers, by its own client.
    Native,
    /// This node, synced before it answers, with one HTTP request for each message.
    Durable,
    /// The node over its SQS surface.
    Sqs,
    /// This node, keeping nothing, over HTTP.
    Amnesia,
    /// The engine of this node inside the bench process.
    Engine,
    /// JetStream that syncs each write.
    NatsAlways,
    /// JetStream with its default setting.
    NatsDefault,
    /// JetStream with its default setting, over few connections that carry many requests each.
    NatsShared,
    /// Redis streams, synced before it answers.
    RedisAlways,
    /// Redis streams, synced before it answers, over few connections that carry many requests each.
    RedisShared,
    /// Redis streams, synced each second.
    RedisEverySecond,
    /// RabbitMQ quorum queue.
    RabbitQuorum,
    /// RabbitMQ classic durable queue.
    RabbitClassic,
    /// beanstalkd that syncs each write.
    BeanstalkAlways,
    /// beanstalkd with a log and its default setting.
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

/// Strength of an answer: where the message is when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Synced to the disk.
    Synced,
    /// Written to the operating system; a power cut loses it.
    Written,
    /// In memory only.
    Ram,
    /// Not a queue: an upper bound to compare with.
    Ceiling,
    /// Unknown: its owner chose the setting.
    Unknown,
}

/// Name of a system in tables.
#[derive(Clone, Debug)]
pub struct Label {
    /// Id of the system.
    pub id: Id,
    /// Name and version.
    pub name: String,
    /// Setting that was chosen.
    pub setting: String,
    /// Strength of its answers.
    pub promise: Promise,
}

/// A queue that can be filled and emptied by clients.
pub trait Target: Send + 'static {
    /// Client of one task.
    type Client: Client;

    /// Makes an empty queue; nothing of the cell before is left.
    fn prepare(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Makes one client for each task.
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

    /// Whether the system supports this workload.
    fn can(&self, workload: Workload) -> bool {
        matches!(workload, Workload::Send | Workload::Cycle)
    }
}

/// A system that can measure a cell.
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

/// A system that runs, with its label.
pub struct System {
    /// Name in tables.
    pub label: Label,
    /// What measures it; dropping it ends its process.
    pub measures: Box<dyn Measurable>,
}

impl System {
    /// A system with this name and setting.
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
    /// Words for a table.
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
    /// Name and setting in one text.
    pub fn full(&self) -> String {
        if self.setting.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.setting) }
    }
}
