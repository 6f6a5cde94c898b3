//! The `const` declarations from which tasks, queues and gates are made, documented and shown live.

use std::time::Duration;

use ron_policy::{Phase, RestartLaw};
use serde::Serialize;

/// One node of the readiness DAG: what it consists of and what it needs.
#[derive(Debug)]
pub struct ServiceSpec {
    /// Name that operators use.
    pub name: &'static str,
    /// Whether a node is ready only while the service is, where its configuration does not say otherwise.
    pub required: bool,
    /// Services that must serve before this one starts, and that stop after it.
    pub depends_on: &'static [&'static str],
    /// Restart delays and what a crash loop leads to.
    pub law: RestartLaw,
    /// Long-lived tasks of the service.
    pub tasks: &'static [&'static TaskSpec],
    /// One sentence on what the service does.
    pub does: &'static str,
}

/// A long-lived task: it exists only through one of these.
#[derive(Debug)]
pub struct TaskSpec {
    /// The crate whose contract row this is.
    pub owner: &'static str,
    /// The name in topology, logs and metrics.
    pub name: &'static str,
    /// Number of instances, in words.
    pub count: &'static str,
    /// Drain phase in which the task stops.
    pub phase: Phase,
    /// Silence longer than this counts as death; none for tasks the kernel cannot ask.
    pub heartbeat: Option<Duration>,
    /// One sentence on what the task does.
    pub does: &'static str,
}

/// Kind of channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// Many producers, one consumer.
    Mpsc,
    /// Many producers, many consumers; each item goes to one.
    Mpmc,
    /// One producer, many consumers; each sees every item or a snapshot.
    Broadcast,
    /// One value, many readers.
    Watch,
}

/// Behaviour of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The new item is refused with a typed Busy.
    RejectNew,
    /// The oldest item makes room and is counted.
    DropOldest,
    /// A waiting item of the same key absorbs the new one.
    Coalesce,
    /// There is only ever the newest value.
    LastWriteWins,
    /// The sender waits for a permit within its deadline, then sends without fail.
    PermitThenSend,
    /// One more try after a short jittered wait, then Busy.
    RetryOnce,
    /// Jittered exponential tries until the deadline.
    RetryBackoff,
    /// The sender waits for room within its deadline.
    AwaitSend,
}

/// Fate of waiting items when their consumer restarts or drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Items stay, and the next consumer takes them.
    Kept,
    /// Items are worked off before the consumer leaves.
    Drained,
    /// Items are dropped; nobody waits for them.
    Discarded,
}

/// A channel: it exists only through one of these. In JSON it has the names of the contract; its bounds are those in
/// force, which a live row adds.
#[derive(Debug, Serialize)]
pub struct QueueSpec {
    /// The crate whose contract row this is.
    #[serde(rename = "service")]
    pub owner: &'static str,
    /// The service whose write readiness its pressure concerns.
    #[serde(rename = "unit")]
    pub service: &'static str,
    /// The name in topology, logs and metrics.
    pub name: &'static str,
    /// Kind of channel.
    pub kind: QueueKind,
    /// Items it holds; the default where the configuration may change it.
    #[serde(skip)]
    pub capacity: usize,
    /// Bytes it holds, for queues that carry payloads.
    #[serde(skip)]
    pub bytes_max: Option<usize>,
    /// Senders, by name or in words.
    pub from: &'static str,
    /// Receivers, by name or in words.
    pub to: &'static str,
    /// Behaviour when the queue is full.
    #[serde(rename = "policy")]
    pub overflow: Overflow,
    /// Whether a full one means that writes to the service are refused or wait: only such a queue is pressure. Off for
    /// best effort, for reads, and for what strangers can fill.
    pub holds_up_writers: bool,
    /// Answer to the sender of a refused item, in words.
    pub answer: &'static str,
    /// Fate of waiting items when the consumer is restarted.
    pub on_restart: Fate,
    /// Fate of waiting items in a drain.
    pub on_drain: Fate,
}

/// A facet's permits: asked for without waiting.
#[derive(Debug)]
pub struct GateSpec {
    /// Facet or service the gate belongs to.
    pub facet: &'static str,
    /// The configuration key and contract name.
    pub name: &'static str,
    /// Default number of permits for each core.
    pub permits_per_cpu: usize,
    /// One sentence on what the gate bounds.
    pub does: &'static str,
}
