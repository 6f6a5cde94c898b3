//! How the node stands: the snapshot everybody outside the kernel reads.

use ron_policy::{NodeView, TaskView};
use serde::Serialize;

/// One task instance as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskStatus {
    /// The crate whose contract row it is.
    pub service: &'static str,
    /// The node of the readiness DAG it belongs to.
    pub unit: &'static str,
    /// The task.
    pub name: &'static str,
    /// Which one of a pool.
    pub instance: u16,
    /// Its drain phase, 1 to 4.
    pub phase: u8,
    /// Its state, restarts and last exit.
    #[serde(flatten)]
    pub view: TaskView,
}

/// The whole node as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Grows with every change.
    pub sequence: u64,
    /// Readiness, as /readyz answers it.
    #[serde(flatten)]
    pub view: NodeView,
    /// Every task instance.
    #[serde(skip)]
    pub tasks: Vec<TaskStatus>,
}
