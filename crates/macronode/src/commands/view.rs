//! The answers of the admin plane, as far as people are shown them.

use serde::Deserialize;

/// The answer of /readyz.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// In one word.
    pub state: String,
    /// Whether the node takes writes.
    pub accepts_writes: bool,
    /// In the order of the plan.
    pub services: Vec<Service>,
    /// Why it does not take reads.
    pub unmet: Vec<String>,
    /// What presses.
    pub pressure: Vec<Pressure>,
    /// What is worth knowing beside that.
    pub notes: Vec<String>,
}

/// One service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// In one word.
    pub state: String,
    /// Whether the node needs it.
    pub required: bool,
    /// Why it is not ready.
    pub reason: Option<String>,
    /// Restarts within the last minute.
    pub restarts_60s: u32,
    /// What it needs; only in /topology.
    pub depends_on: Vec<String>,
    /// What it is for; only in /topology.
    pub does: String,
}

/// One cause of pressure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Which service.
    pub service: String,
    /// What presses.
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
    /// The readiness DAG.
    pub services: Vec<Service>,
    /// Every task instance.
    pub tasks: Vec<Task>,
    /// Every channel.
    pub queues: Vec<Queue>,
    /// Every gate.
    pub gates: Vec<Gate>,
    /// The order of a drain.
    pub drain: Vec<DrainStep>,
}

/// One task instance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Task {
    /// The node of the DAG it belongs to.
    pub unit: String,
    /// Its name.
    pub name: String,
    /// In one word.
    pub state: String,
    /// Restarts ever.
    pub restarts_total: u64,
    /// How it ended last.
    pub last_exit: Option<String>,
}

/// One channel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// The node of the DAG it belongs to.
    pub unit: String,
    /// Its name.
    pub name: String,
    /// Items it holds at most.
    pub capacity: usize,
    /// What a full queue does.
    pub policy: String,
    /// What happens to its contents in a drain.
    pub on_drain: String,
    /// Items waiting.
    pub depth: usize,
    /// Most items that ever waited.
    pub high_water: usize,
    /// Items refused.
    pub busy: u64,
    /// Items dropped.
    pub dropped: u64,
}

/// One gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// Permits in all.
    pub permits: usize,
    /// Permits in use.
    pub in_flight: usize,
    /// Refusals.
    pub busy: u64,
}

/// One step of a drain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DrainStep {
    /// The phase.
    pub phase: String,
    /// The services whose tasks stop together.
    pub services: Vec<String>,
    /// Those tasks.
    pub tasks: Vec<String>,
    /// When what is left is aborted.
    pub deadline_ms: u64,
}
