//! The answers of the admin plane, as far as people are shown them.

use serde::Deserialize;

/// The answer of /readyz.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Readiness in one word.
    pub state: String,
    /// Whether the node takes writes.
    pub accepts_writes: bool,
    /// Services in the order of the start plan.
    pub services: Vec<Service>,
    /// Reasons why the node takes no reads.
    pub unmet: Vec<String>,
    /// Causes of pressure.
    pub pressure: Vec<Pressure>,
    /// Remarks beside readiness and pressure.
    pub notes: Vec<String>,
}

/// State of one service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// State in one word.
    pub state: String,
    /// Whether the node is ready only with this service.
    pub required: bool,
    /// Reason why the service is not ready.
    pub reason: Option<String>,
    /// Restarts within the last minute.
    pub restarts_60s: u32,
    /// Names of the services it needs; only in /topology.
    pub depends_on: Vec<String>,
    /// Purpose in one sentence; only in /topology.
    pub does: String,
}

/// One cause of pressure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Name of the service.
    pub service: String,
    /// Cause in words.
    pub cause: String,
}

/// The answer of /version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Version {
    /// The services the node was told to run.
    pub services: Vec<String>,
    /// Whether it has the development routes.
    pub dev: bool,
}

/// The answer of /topology.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// Readiness in one word.
    pub state: String,
    /// Services with what they depend on.
    pub services: Vec<Service>,
    /// Every task instance.
    pub tasks: Vec<Task>,
    /// Every channel.
    pub queues: Vec<Queue>,
    /// Every gate.
    pub gates: Vec<Gate>,
    /// Steps of a drain, in order.
    pub drain: Vec<DrainStep>,
}

/// State of one task instance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Name of the service it belongs to.
    pub unit: String,
    /// Name of the task.
    pub name: String,
    /// State in one word.
    pub state: String,
    /// Restarts since the node started.
    pub restarts_total: u64,
    /// Outcome of the last run that ended.
    pub last_exit: Option<String>,
}

/// State of one queue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// Name of the service it belongs to.
    pub unit: String,
    /// Name of the queue.
    pub name: String,
    /// Maximum items waiting.
    pub capacity: usize,
    /// Behaviour when full, in one word.
    pub policy: String,
    /// Fate of the queue's contents in a drain, in one word.
    pub on_drain: String,
    /// Items waiting.
    pub depth: usize,
    /// Most items that ever waited at once.
    pub high_water: usize,
    /// Items refused because the queue was full.
    pub busy: u64,
    /// Items dropped because the queue was full.
    pub dropped: u64,
}

/// State of one gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Name of the gate.
    pub name: String,
    /// Number of permits.
    pub permits: usize,
    /// Number of permits in use.
    pub in_flight: usize,
    /// Refusals because no permit was free.
    pub busy: u64,
}

/// One step of a drain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DrainStep {
    /// Name of the phase.
    pub phase: String,
    /// The services whose tasks stop together.
    pub services: Vec<String>,
    /// Names of the tasks that end in it.
    pub tasks: Vec<String>,
    /// Time after which tasks that still run are aborted, in milliseconds.
    pub deadline_ms: u64,
}
