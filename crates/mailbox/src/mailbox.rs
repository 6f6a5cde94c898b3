//! The handle of the mailbox: what planes and commands call. It parses, admits and queues; shards do the rest.

mod answer;
pub mod browse;
pub mod change;
pub mod clock;
pub mod inspect;
pub mod moves;
pub mod receive;
pub mod send;
pub mod settle;
pub mod topics;
pub mod undelivered;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ron_kernel::{Builder, Deadline, Snapshot};
use ron_log::{Shortage, Usage};
use ron_types::limits::mailbox::{SHARD_BYTES_MAX, SHARDS_MAX};
use ron_types::{Error, Kind};
use serde::Serialize;

use crate::engine::{Engine, ShardHandle, ShardNumbers, lock};
use crate::events::Events;
use crate::job::{Job, ShardCall, Turn};
use crate::keeper::log_keeper;
use crate::metrics::MailboxMetrics;
use crate::notes;
use crate::options::{LiveOptions, MailboxOptions};
use crate::rebalancer::rebalancer;
use crate::receipt::Receipt;
use crate::reprocessor::dlq_reprocessor;
use crate::scanner::visibility_scanner;
use crate::scrub::ScrubView;
use crate::slot::settle;
use crate::topics::Topic;
use crate::types::{MessageId, Millis, PartKey, Seq, TopicName};
use crate::worker::shard_worker;
use crate::{specs, topics::TopicView};

/// Partitions that one turn looks through for a message.
const SEARCHED_AT_ONCE: usize = 512;

/// The mailbox. Clones are the same mailbox.
#[derive(Clone)]
pub struct Mailbox {
    pub(crate) engine: Arc<Engine>,
}

/// How safe something answered is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// In this process's memory: gone with it.
    Ram,
    /// With the operating system: gone with the machine's power.
    Written,
    /// On the disk, with its directory entry.
    Fsynced,
}

/// The mailbox as a whole, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStats {
    /// Every shard that owns partitions.
    pub shards: Vec<ShardView>,
    /// The log; none while it is being read.
    pub log: Option<LogView>,
    /// Topics there are.
    pub topics: usize,
    /// What an answer means.
    pub durability: Durability,
    /// The steady clock.
    pub now_ms: Millis,
}

/// One shard, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ShardView {
    /// Number of the shard, from 0.
    pub shard: usize,
    /// Its messages and waiting receivers.
    #[serde(flatten)]
    pub numbers: ShardNumbers,
}

/// The log, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct LogView {
    /// Bytes it takes.
    pub bytes_total: u64,
    /// Bytes of messages still needed.
    pub bytes_live: u64,
    /// Bytes it may take.
    pub quota_bytes: u64,
    /// Why it has no room for messages: `quota` or `device`.
    pub full: Option<&'static str>,
    /// Files it has.
    pub segments: u32,
    /// Commits since the start.
    pub syncs: u64,
    /// Records it holds.
    pub records: u64,
    /// Records written since the start.
    pub appended: u64,
    /// The last record that is safe.
    pub durable_lsn: u64,
    /// Records found damaged at the start.
    pub quarantined_records: u64,
    /// Why it takes nothing more.
    pub failed: Option<String>,
    /// The check of all its records, running or done.
    pub scrub: ScrubView,
}

/// Adds the mailbox to a node: its queues, its tasks and its metrics.
pub fn install(builder: &mut Builder, options: MailboxOptions, live: Snapshot<LiveOptions>) -> Mailbox {
    let mut shards = Vec::new();
    let mut receivers = Vec::new();
    let requeue_capacity = specs::requeue_capacity(options.shard_capacity);
    for index in 0..SHARDS_MAX {
        let (jobs, taken) = builder.queue_of(&specs::WORK[index], options.shard_capacity, Some(SHARD_BYTES_MAX));
        let (wakes, woken) = builder.queue_of(&specs::REQUEUE[index], requeue_capacity, None);
        shards.push(ShardHandle::new(jobs, wakes));
        receivers.push((taken, woken));
    }
    let (orders, ordered) = builder.queue(&specs::REPROCESS);
    let events = Events::new(builder.broadcast(&specs::EVENTS));
    let ops = builder.gate(&specs::MAILBOX_OPS, options.ops_permits);
    let engine = Arc::new(Engine::new(options, live, shards, builder.handle(), events, ops, orders));
    let probes = builder.queue_probes();
    builder.handle().metrics().register_collector(Box::new(MailboxMetrics::new(&engine, probes)));
    notes::add(&builder.handle(), &engine);

    let mailbox = Mailbox { engine: Arc::clone(&engine) };
    let (keeper, workers, scanner, moves) =
        (Arc::clone(&engine), Arc::clone(&engine), Arc::clone(&engine), Arc::clone(&engine));
    let redriver = mailbox.clone();
    builder
        .service(&specs::MAILBOX)
        .task(&specs::LOG_KEEPER, 1, move |context| log_keeper(context, Arc::clone(&keeper)))
        .task(&specs::SHARD_WORKER, SHARDS_MAX as u16, move |context| {
            let (jobs, wakes) = receivers[usize::from(context.instance())].clone();
            shard_worker(context, Arc::clone(&workers), jobs, wakes)
        })
        .task(&specs::VISIBILITY_SCANNER, 1, move |context| visibility_scanner(context, Arc::clone(&scanner)))
        .task(&specs::DLQ_REPROCESSOR, 1, move |context| dlq_reprocessor(context, redriver.clone(), ordered.clone()))
        .task(&specs::REBALANCER, 1, move |context| rebalancer(context, Arc::clone(&moves)));
    mailbox
}

impl Mailbox {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The steady clock; 0 before the log is read.
    pub fn now(&self) -> Millis {
        self.engine.opened().map_or(0, |opened| opened.clock.now())
    }

    /// What an answer of this node means.
    pub fn durability(&self) -> Durability {
        match self.engine.options.location {
            crate::options::LogLocation::Memory => Durability::Ram,
            crate::options::LogLocation::Directory(_) => Durability::Fsynced,
        }
    }

    /// What a topic has that does not say otherwise.
    pub fn default_settings(&self) -> crate::types::TopicSettings {
        self.engine.live.get().value.defaults.clone()
    }

    /// Refuses where the node cannot give what a caller demands.
    pub fn require(&self, minimum: Durability) -> Result<(), Error> {
        let given = self.durability();
        if given >= minimum {
            return Ok(());
        }
        let detail = format!("this node keeps messages in {given} mode and cannot give {minimum}");
        Err(Error::new(Kind::Degraded, detail))
    }

    /// The whole mailbox at a glance.
    pub fn node_stats(&self) -> NodeStats {
        let active = self.engine.routing.get().value.shards;
        let shards = self.engine.shards.iter().take(active).enumerate();
        let shards = shards.map(|(shard, handle)| ShardView { shard, numbers: *lock(&handle.shared.numbers) });
        NodeStats {
            shards: shards.collect(),
            log: self.engine.opened().ok().map(|opened| {
                let usage: Usage = opened.log.usage();
                LogView {
                    bytes_total: usage.bytes_total,
                    bytes_live: usage.bytes_live,
                    quota_bytes: usage.quota_bytes,
                    full: usage.shortage.map(Shortage::as_str),
                    segments: usage.segments,
                    syncs: usage.syncs,
                    records: usage.records,
                    appended: usage.appended,
                    durable_lsn: opened.log.durable().0,
                    quarantined_records: opened.recovery.quarantined_records,
                    failed: opened.log.failed().map(|error| error.to_string()),
                    scrub: self.engine.scrubber.view(),
                }
            }),
            topics: self.engine.topics.len(),
            durability: self.durability(),
            now_ms: self.now(),
        }
    }

    /// Topics in the order of their names.
    pub fn topics(&self, after: Option<&TopicName>, prefix: &str, limit: usize) -> Vec<TopicView> {
        self.engine.topics.list(after, prefix, limit)
    }

    /// Whether there is a topic of this name.
    pub fn has_topic(&self, name: &TopicName) -> bool {
        self.engine.topics.get(name).is_some()
    }

    /// One topic.
    pub fn topic(&self, name: &TopicName) -> Result<TopicView, Error> {
        self.engine.topics.expect(name).map(|topic| self.engine.topics.view(&topic))
    }

    /// Runs what an operation of a caller does on a core, under a permit of `mailbox_ops`; Busy if none is free. The
    /// only place that takes one. A permit lasts as long as this call, which cannot await: nobody holds one while it
    /// waits for the disk, a message or a queue, so any number of callers may wait. Calls must not nest.
    fn operation<R>(&self, run: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let _permit = self.engine.ops.try_acquire(1)?;
        run()
    }

    /// Has a caller's work done on the turn of the shard that owns a partition; the result comes once it is durable.
    async fn on_part<R: Send + 'static>(
        &self,
        part: PartKey,
        deadline: Deadline,
        work: impl FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.operation(|| self.begin_on_part(part, deadline, work))?.await
    }

    /// As [`Self::on_part`] for the mailbox's own tasks and for what must not be refused half done: without a permit.
    pub(crate) async fn on_part_unpermitted<R: Send + 'static>(
        &self,
        part: PartKey,
        deadline: Deadline,
        work: impl FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.begin_on_part(part, deadline, work)?.await
    }

    /// Asks at once; what is returned only waits.
    fn begin_on_part<R, F>(
        &self,
        part: PartKey,
        deadline: Deadline,
        work: F,
    ) -> Result<impl Future<Output = Result<R, Error>> + Send + use<R, F>, Error>
    where
        R: Send + 'static,
        F: FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
    {
        let index = self.engine.route(part)?;
        let entered = move |turn: &mut Turn<'_>| {
            turn.enter(part)?;
            work(turn)
        };
        let waiting = self.begin_on_shard(index, 0, deadline, entered);
        Ok(async move { waiting.await? })
    }

    /// Asks at once; what is returned only waits, and holds nothing of the work.
    fn begin_on_shard<R, F>(
        &self,
        index: usize,
        bytes: usize,
        deadline: Deadline,
        work: F,
    ) -> impl Future<Output = Result<R, Error>> + Send + use<R, F>
    where
        R: Send + 'static,
        F: FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    {
        let (work, answer) = ShardCall::new(bytes, work);
        let asked = self.engine.ask_and_settle(index, Job::Do(work));
        async move {
            settle(asked?).await;
            deadline.run("mailbox", answer).await?.map_err(|_| lost())
        }
    }

    /// The partition that holds a message now: the one it was sent to, or one it was moved to. Partitions are looked
    /// through only for messages so old that it is not known any more where they were sent to.
    async fn place_of(&self, id: MessageId, deadline: Deadline) -> Result<PartKey, Error> {
        self.engine.secret.check_id(id)?;
        let (seq, origin) = (id.seq, self.engine.origins.find(id.seq));
        if let Some(origin) = origin {
            match self.on_part(origin, deadline, move |turn| Ok(turn.shard.is_held(origin, seq))).await {
                Ok(true) => return Ok(origin),
                // A message may outlive the topic it was sent to, among the dead letters of others.
                Err(error) if error.kind != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        let shards = 0..self.engine.routing.get().value.shards;
        for index in shards.clone() {
            if let Some(part) = self.on_shard(index, deadline, move |turn| turn.shard.home_of(seq)).await? {
                return Ok(part);
            }
        }
        if origin.is_none() {
            for index in shards {
                if let Some(part) = self.search(index, seq, deadline).await? {
                    return Ok(part);
                }
            }
        }
        Err(Error::new(Kind::NotFound, format!("message {id} is not here: settled, expired or never sent")))
    }

    /// Looks through the partitions of a shard for a message, some in each turn, so that nobody waits for all of them.
    async fn search(&self, index: usize, seq: Seq, deadline: Deadline) -> Result<Option<PartKey>, Error> {
        let parts: Vec<PartKey> = self.on_shard(index, deadline, |turn| turn.shard.parts().collect()).await?;
        for some in parts.chunks(SEARCHED_AT_ONCE) {
            let some = some.to_vec();
            let find = move |turn: &mut Turn<'_>| some.into_iter().find(|part| turn.shard.is_held(*part, seq));
            if let Some(part) = self.on_shard(index, deadline, find).await? {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Has a caller's question answered on the turn of a shard.
    async fn on_shard<R: Send + 'static>(
        &self,
        index: usize,
        deadline: Deadline,
        work: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        self.operation(|| Ok(self.begin_on_shard(index, 0, deadline, work)))?.await
    }

    /// The topic of a partition.
    fn topic_of_part(&self, part: PartKey) -> Result<Arc<Topic>, Error> {
        self.engine.topics.by_id(part.topic).ok_or_else(|| Error::new(Kind::NotFound, "the topic is gone"))
    }

    /// Which topic a receipt is of, and when its lease was taken. Refuses receipts that this node did not give.
    pub fn topic_of(&self, receipt: &Receipt) -> Result<(TopicName, Millis), Error> {
        self.engine.secret.check(receipt)?;
        Ok((self.topic_of_part(receipt.part)?.name.clone(), receipt.leased_ms))
    }

    /// The topic that holds a message.
    pub async fn locate(&self, id: MessageId, deadline: Deadline) -> Result<TopicName, Error> {
        let part = self.place_of(id, deadline).await?;
        Ok(self.topic_of_part(part)?.name.clone())
    }
}

/// What is too late is not begun: its caller is answered that it did not end in time, and may do it elsewhere.
fn in_time(deadline: Deadline) -> Result<(), Error> {
    if deadline.has_passed() { Err(Error::timeout("mailbox")) } else { Ok(()) }
}

fn lost() -> Error {
    Error::new(Kind::Degraded, "the shard's worker ended before the answer was safe; whether it was done is not known")
}

impl Durability {
    /// As it is written in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Durability::Ram => "ram",
            Durability::Written => "written",
            Durability::Fsynced => "fsynced",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Durability::Ram, Durability::Written, Durability::Fsynced];
        let found = all.into_iter().find(|durability| durability.as_str() == text);
        found.ok_or_else(|| Error::schema(format!("{text:?} is not one of fsynced, written, ram")))
    }
}
