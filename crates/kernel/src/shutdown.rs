//! The shutdown watch: which tasks are to end, and by when.

use std::collections::BTreeSet;

use ron_policy::Phase;

use crate::deadline::Deadline;
use crate::spec::{Fate, Overflow, QueueKind, QueueSpec};

/// The watch, declared like every other channel.
pub const SHUTDOWN: QueueSpec = QueueSpec {
    owner: "macronode",
    service: "kernel",
    name: "shutdown",
    kind: QueueKind::Watch,
    capacity: 1,
    bytes_max: None,
    from: "supervisor",
    to: "every task",
    overflow: Overflow::LastWriteWins,
    holds_up_writers: false,
    answer: "every task watches it",
    on_restart: Fate::Kept,
    on_drain: Fate::Kept,
};

/// Progress of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stopping {
    /// True from the moment a drain was asked for.
    pub draining: bool,
    /// End of the phase that is stopping now.
    pub deadline: Option<Deadline>,
    stopped: BTreeSet<(u16, Phase)>,
}

impl Stopping {
    /// True if the tasks of this service and phase are to end.
    pub fn covers(&self, service: u16, phase: Phase) -> bool {
        self.stopped.contains(&(service, phase))
    }

    pub(crate) fn stop(&mut self, services: &[u16], phase: Phase, deadline: Deadline) {
        self.draining = true;
        self.deadline = Some(deadline);
        self.stopped.extend(services.iter().map(|service| (*service, phase)));
    }
}
