//! The closed vocabulary between shell and policy: what can happen, and what can be ordered.

use serde::Serialize;

use crate::{Millis, Phase, TaskId};

/// Reason why one life of a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It returned without an error.
    Clean,
    /// It returned an error.
    Error(String),
    /// It panicked.
    Panic(String),
    /// It missed its heartbeat and was aborted for it.
    Frozen,
    /// Somebody other than policy aborted it; counts like a panic.
    Killed,
    /// It could not be set up. On the very first start of a required service this ends the process with `code`.
    Init {
        /// The exit code of the process.
        code: u8,
        /// Cause of the failure in one sentence.
        detail: String,
    },
    /// Going on would do harm, such as losing what was promised: whenever it happens, it ends the process with `code`
    /// if the service is required, and fails the service otherwise.
    Fatal {
        /// The exit code of the process.
        code: u8,
        /// Cause of the failure in one sentence.
        detail: String,
    },
}

impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitReason::Clean => f.write_str("returned"),
            ExitReason::Error(detail) => write!(f, "error: {detail}"),
            ExitReason::Panic(detail) => write!(f, "panic: {detail}"),
            ExitReason::Frozen => f.write_str("missed its heartbeat"),
            ExitReason::Killed => f.write_str("was killed"),
            ExitReason::Init { code, detail } => write!(f, "init failed ({code}): {detail}"),
            ExitReason::Fatal { code, detail } => write!(f, "cannot go on ({code}): {detail}"),
        }
    }
}

/// Event that can happen to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first event ever: start what has no dependencies.
    Boot,
    /// The shell spawned the task.
    Started {
        /// Task instance that was spawned.
        task: TaskId,
    },
    /// The task said it is ready.
    BootReady {
        /// Task instance that is ready.
        task: TaskId,
    },
    /// The task is gone.
    Exited {
        /// Task instance that is gone.
        task: TaskId,
        /// Reason why it ended.
        reason: ExitReason,
    },
    /// The task is alive.
    Beat {
        /// Task instance that gave a sign of life.
        task: TaskId,
    },
    /// The time that `next_wakeup` named has come.
    TimerFired,
    /// A condition of a service outside this process changed (never another service). It gates readiness, not starts.
    DependencyChanged {
        /// Index of the service.
        service: u16,
        /// Name of the condition.
        name: &'static str,
        /// Whether the condition holds now.
        met: bool,
    },
    /// Pressure on a service began or ended. It changes write readiness only.
    Pressure {
        /// Index of the service.
        service: u16,
        /// Name of the queue or resource under pressure.
        cause: &'static str,
        /// Whether the pressure is on now.
        on: bool,
    },
    /// An operator wants the service started afresh: clears `Failed` and the restart window.
    RestartRequested {
        /// Index of the service.
        service: u16,
    },
    /// Leave, in order, within the drain deadline.
    DrainRequested,
    /// Drains from now on have this much time; one under way keeps what it has.
    DrainDeadlineChanged {
        /// Maximum duration of a drain in milliseconds.
        deadline_ms: u64,
    },
    /// Nothing of that phase is left besides tasks. Information only; exits decide.
    PhaseDrained {
        /// Phase that is drained.
        phase: Phase,
    },
}

/// Reason why policy aborts a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    /// It missed its heartbeat.
    Frozen,
    /// It did not leave before the deadline of its drain phase.
    DrainDeadline,
    /// An operator asked for a restart.
    Restart,
}

/// Order that the supervisor can give.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Spawn the task now.
    Start {
        /// Task instance to spawn.
        task: TaskId,
    },
    /// Announcement only: policy keeps the timer, `next_wakeup` says when.
    StartAfter {
        /// Task instance to restart.
        task: TaskId,
        /// Milliseconds until the restart.
        delay_ms: u64,
    },
    /// The service has a new state.
    Publish {
        /// Index of the service.
        service: u16,
        /// State the service has from now on.
        state: State,
    },
    /// Tell the tasks of this phase in these services to stop.
    StopPhase {
        /// Phase that begins.
        phase: Phase,
        /// Indexes of the services that have live tasks in it and whose turn it is.
        services: Vec<u16>,
        /// When what is left will be aborted: a moment, not a span.
        deadline: Millis,
    },
    /// End the task without asking it.
    Abort {
        /// Task instance to abort.
        task: TaskId,
        /// Reason of the abort.
        why: AbortReason,
    },
    /// Once a second while a task that was told to stop has not left: log it by name.
    Straggler {
        /// Task instance that does not leave.
        task: TaskId,
    },
    /// Everything is over: 0 clean, 75 drained with aborts, or the code of the failed `Init`.
    Finish {
        /// The exit code of the process.
        code: u8,
    },
}

/// The published state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Before it is first ready, or while something it depends on does not serve.
    Starting,
    /// It serves.
    Ready,
    /// It had been ready and does not serve because of its own tasks.
    Restarting,
    /// One of its tasks is in a crash loop; it may or may not serve.
    Degraded,
    /// The same under a law that makes a node unready that requires the service.
    Unready,
    /// A crash loop under a fatal law, or an end after which it must not go on; stays until an operator restarts it.
    Failed,
    /// The node is leaving.
    Draining,
    /// The node has left.
    Stopped,
}

impl State {
    /// The name as it is serialized.
    pub const fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Restarting => "restarting",
            State::Degraded => "degraded",
            State::Unready => "unready",
            State::Failed => "failed",
            State::Draining => "draining",
            State::Stopped => "stopped",
        }
    }
}
