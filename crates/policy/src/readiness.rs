//! What the supervisor knows, as an operator and a load balancer want to read it.

use serde::Serialize;

use crate::supervisor::{Mode, Supervisor};
use crate::{Millis, State, TaskId};

/// The state of the node as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// A required service has not been ready yet.
    Starting,
    /// Every required service serves.
    Ready,
    /// Ready, but some service is in a crash loop or failed, or refuses writes for want of room.
    Degraded,
    /// A required service does not serve.
    Unready,
    /// The drain is under way.
    Draining,
    /// The drain is over.
    Stopped,
}

/// The node as `/readyz` shows it.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct NodeView {
    /// State of the node in one word.
    pub state: NodeState,
    /// Whether `/readyz` says 200.
    pub accepts_reads: bool,
    /// Whether `/readyz?writes` says 200: reads are accepted and no required service is under pressure.
    pub accepts_writes: bool,
    /// In the order of the plan.
    pub services: Vec<ServiceView>,
    /// Reasons why reads are not accepted, as `service: reason`.
    pub unmet: Vec<String>,
    /// Causes of pressure now.
    pub pressure: Vec<PressureView>,
}

/// One service as `/readyz` shows it.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct ServiceView {
    /// Name of the service.
    pub name: &'static str,
    /// State as last published.
    pub state: State,
    /// Whether the node is ready only with this service.
    pub required: bool,
    /// Since when it is in that state.
    pub since_ms: Millis,
    /// Reason why the service is not ready.
    pub reason: Option<String>,
    /// Restarts of all its tasks within the window of its law.
    pub restarts_60s: u32,
    /// Whether it and everything it depends on is up.
    pub serving: bool,
    /// Whether it serves and is not under pressure.
    pub accepts_writes: bool,
    /// Whether requests to it are refused at once: it has never been ready, failed, or is in a crash loop and does not
    /// serve.
    #[serde(skip)]
    pub is_out: bool,
}

/// One cause of pressure.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct PressureView {
    /// Name of the service.
    pub service: &'static str,
    /// Name of the queue or resource under pressure.
    pub cause: &'static str,
}

/// Stage in the life of a task instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// For what its service depends on.
    Waiting,
    /// Ordered, not yet spawned.
    Starting,
    /// Spawned.
    Running,
    /// Its restart delay runs.
    Restarting,
    /// Told to stop or aborted, not gone yet.
    Stopping,
    /// Gone, in a drain.
    Stopped,
    /// Gone until an operator restarts its service.
    Failed,
}

/// One task instance as `/topology` shows it.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Stage in the life of the instance.
    pub state: TaskState,
    /// Restarts within the window of its law.
    pub restarts_60s: u32,
    /// Number of restarts since the start of the node.
    pub restarts_total: u64,
    /// Exit reason of the last life, in words.
    pub last_exit: Option<String>,
    /// Time of the next start, while one is waited for.
    pub restart_at: Option<Millis>,
}

impl Supervisor {
    /// Readiness of the node now.
    pub fn node_view(&self, now: Millis) -> NodeView {
        let services: Vec<ServiceView> =
            (0..self.services.len() as u16).map(|service| self.service_view(service, now)).collect();
        let state = self.node_state();
        let accepts_reads = matches!(state, NodeState::Ready | NodeState::Degraded);
        let accepts_writes =
            accepts_reads && services.iter().all(|service| !service.required || service.accepts_writes);
        let unmet = (0..services.len())
            .filter(|index| self.blocks_node(*index))
            .map(|index| {
                let reason = services[index].reason.as_deref().unwrap_or("does not serve");
                format!("{}: {reason}", services[index].name)
            })
            .collect();
        NodeView { state, accepts_reads, accepts_writes, services, unmet, pressure: self.pressure_views() }
    }

    /// One task now; an id that is not in the plan reads as stopped.
    pub fn task_view(&self, task: TaskId, now: Millis) -> TaskView {
        let Some(index) = self.table.find(task) else {
            let state = TaskState::Stopped;
            return TaskView { state, restarts_60s: 0, restarts_total: 0, last_exit: None, restart_at: None };
        };
        let task = &self.tasks[index];
        let restart_at = match task.mode {
            Mode::Restarting { at } => Some(at),
            _ => None,
        };
        TaskView {
            state: self.task_state(index),
            restarts_60s: task.restarts_in_window(self.table.law(index), now),
            restarts_total: task.restarts_total,
            last_exit: task.last_exit.as_ref().map(ToString::to_string),
            restart_at,
        }
    }

    fn task_state(&self, index: usize) -> TaskState {
        match self.tasks[index].mode {
            Mode::Aborting { .. } => TaskState::Stopping,
            Mode::Starting | Mode::Running if self.is_told_to_stop(index) => TaskState::Stopping,
            Mode::Starting => TaskState::Starting,
            Mode::Running => TaskState::Running,
            Mode::Waiting { .. } => TaskState::Waiting,
            Mode::Restarting { .. } => TaskState::Restarting,
            Mode::Stopped => TaskState::Stopped,
            Mode::Failed => TaskState::Failed,
        }
    }

    fn node_state(&self) -> NodeState {
        if self.is_finished() {
            return NodeState::Stopped;
        }
        if self.is_draining() {
            return NodeState::Draining;
        }
        let mut blocking = (0..self.services.len()).filter(|index| self.blocks_node(*index)).peekable();
        if blocking.peek().is_some() {
            let boots = |index: usize| !self.services[index].complete && self.services[index].state == State::Starting;
            return if blocking.all(boots) { NodeState::Starting } else { NodeState::Unready };
        }
        let limps = |state: State| matches!(state, State::Degraded | State::Unready | State::Failed);
        match self.services.iter().any(|service| limps(service.state) || !service.pressure.is_empty()) {
            true => NodeState::Degraded,
            false => NodeState::Ready,
        }
    }

    /// A required service that does not serve, or must not be asked.
    fn blocks_node(&self, index: usize) -> bool {
        let service = &self.services[index];
        self.plan().services[index].required && (!service.serving || service.state == State::Unready)
    }

    /// A short restart is not: what a caller asks meanwhile waits in the queue of the service. Nor is a drain, in which
    /// what was admitted is still answered.
    fn is_out(&self, index: usize) -> bool {
        let service = &self.services[index];
        match service.state {
            State::Failed => true,
            // A pool in a crash loop may well serve: what lives of it works on.
            State::Degraded | State::Unready => !service.serving,
            State::Starting => !service.complete,
            State::Ready | State::Restarting | State::Draining | State::Stopped => false,
        }
    }

    fn service_view(&self, service: u16, now: Millis) -> ServiceView {
        let plan = &self.plan().services[usize::from(service)];
        let known = &self.services[usize::from(service)];
        let restarts = |index: usize| self.tasks[index].restarts_in_window(self.table.law(index), now);
        ServiceView {
            name: plan.name,
            state: known.state,
            required: plan.required,
            since_ms: known.since,
            reason: self.reason(service, now),
            restarts_60s: self.table.tasks_of(service).map(restarts).sum(),
            serving: known.serving,
            accepts_writes: known.serving && known.pressure.is_empty(),
            is_out: self.is_out(usize::from(service)),
        }
    }

    fn reason(&self, service: u16, now: Millis) -> Option<String> {
        match self.services[usize::from(service)].state {
            State::Ready => None,
            State::Draining => Some("the node is leaving".to_owned()),
            State::Stopped => Some("the node has left".to_owned()),
            State::Degraded | State::Unready => Some(self.loop_reason(service, now)),
            State::Failed => Some(self.failure_reason(service, now)),
            State::Restarting => Some(self.exit_reason(service)),
            State::Starting => Some(self.starting_reason(service)),
        }
    }

    fn loop_reason(&self, service: u16, now: Millis) -> String {
        let law = self.plan().services[usize::from(service)].law;
        let count = |index: &usize| self.tasks[*index].restarts_in_window(law, now);
        let worst = self.table.tasks_of(service).max_by_key(count);
        worst.map_or_else(String::new, |index| {
            let name = self.task_name(index);
            let exit = self.tasks[index].last_exit.as_ref().map_or_else(String::new, |exit| format!("; last: {exit}"));
            format!("{name} was restarted {} times within {} ms{exit}", count(&index), law.window_ms)
        })
    }

    fn failure_reason(&self, service: u16, now: Millis) -> String {
        let fatal = self.table.tasks_of(service).find(|index| self.tasks[*index].must_not_go_on());
        match fatal.and_then(|index| Some((index, self.tasks[index].last_exit.as_ref()?))) {
            Some((index, exit)) => format!("{} {exit}", self.task_name(index)),
            None => self.loop_reason(service, now),
        }
    }

    fn exit_reason(&self, service: u16) -> String {
        let down = self.table.tasks_of(service).find(|index| !self.tasks[*index].up);
        down.map_or_else(String::new, |index| match &self.tasks[index].last_exit {
            Some(exit) => format!("{} {exit}", self.task_name(index)),
            None => format!("{} is restarted", self.task_name(index)),
        })
    }

    fn starting_reason(&self, service: u16) -> String {
        let provider = self.table.providers(service).iter().find(|other| !self.services[usize::from(**other)].serving);
        if let Some(provider) = provider {
            return format!("waits for {}", self.plan().services[usize::from(*provider)].name);
        }
        if let Some(condition) = self.services[usize::from(service)].conditions_unmet.first() {
            return format!("waits for {condition}");
        }
        let tasks = self.table.tasks_of(service);
        let up = self.tasks[tasks.clone()].iter().filter(|task| task.was_up).count();
        format!("{up} of {} tasks have been ready", tasks.len())
    }

    fn task_name(&self, index: usize) -> String {
        let id = self.table.ids()[index];
        let task = &self.plan().services[usize::from(id.service)].tasks[usize::from(id.task)];
        if task.instances == 1 { task.name.to_owned() } else { format!("{}[{}]", task.name, id.instance) }
    }

    fn pressure_views(&self) -> Vec<PressureView> {
        let of_service = |index: usize| {
            let service = self.plan().services[index].name;
            self.services[index].pressure.iter().map(move |cause| PressureView { service, cause })
        };
        (0..self.services.len()).flat_map(of_service).collect()
    }
}
