//! How the node stands: the snapshot everybody outside the kernel reads.

use std::time::Duration;

use ron_policy::{NodeState, NodeView, TaskView};
use serde::Serialize;

/// One task instance as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskStatus {
    /// The crate whose contract row it is.
    pub service: &'static str,
    /// The node of the readiness DAG it belongs to.
    pub unit: &'static str,
    /// Name of the task.
    pub name: &'static str,
    /// Number of the instance within its pool, from 0.
    pub instance: u16,
    /// Drain phase, 1 to 4.
    pub phase: u8,
    /// State, restarts and last exit.
    #[serde(flatten)]
    pub view: TaskView,
}

/// The whole node as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Number that grows with every change of the status.
    pub sequence: u64,
    /// Readiness, as /readyz answers it.
    #[serde(flatten)]
    pub view: NodeView,
    /// Status of every task instance.
    #[serde(skip)]
    pub tasks: Vec<TaskStatus>,
}

impl NodeStatus {
    /// Whether every required service serves.
    pub fn is_ready(&self) -> bool {
        matches!(self.view.state, NodeState::Ready | NodeState::Degraded)
    }

    /// The same, of a node whose runtime has not turned for this time: whatever it said last, it serves nobody.
    pub(crate) fn standing_still(&self, time: Duration) -> Self {
        let mut status = self.clone();
        if self.is_ready() {
            status.view.state = NodeState::Unready;
        }
        (status.view.accepts_reads, status.view.accepts_writes) = (false, false);
        status.view.unmet.push(format!("kernel: the runtime has not turned for {} ms", time.as_millis()));
        status
    }
}
