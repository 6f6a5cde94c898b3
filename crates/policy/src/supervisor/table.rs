//! The books of the supervisor: what follows from the plan once, and what is known of each task and service.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::drain_plan::{Step, steps};
use crate::{AbortReason, ExitReason, Millis, Plan, PlanError, RestartLaw, State, TaskId};

/// The plan and what follows from it, shared by all copies of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(Arc<Fixed>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fixed {
    plan: Plan,
    ids: Vec<TaskId>,
    laws: Vec<RestartLaw>,
    heartbeats_ms: Vec<Option<u64>>,
    /// For each task instance, the drain step that stops it.
    step_of: Vec<usize>,
    /// For each service, the instances of each of its tasks.
    pools: Vec<Vec<Range<usize>>>,
    /// For each service, all of its instances.
    spans: Vec<Range<usize>>,
    providers: Vec<Vec<u16>>,
    /// For each service, those that it leaves before.
    outlived_by: Vec<Vec<u16>>,
    providers_first: Vec<u16>,
    steps: Vec<Step>,
}

/// The plan never changes, so that it does not tell two states of one supervisor apart.
impl Hash for Table {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Table {
    pub(crate) fn new(plan: Plan) -> Result<Self, PlanError> {
        plan.validate()?;
        let mut fixed = Fixed {
            ids: Vec::new(),
            laws: Vec::new(),
            heartbeats_ms: Vec::new(),
            step_of: Vec::new(),
            pools: Vec::new(),
            spans: Vec::new(),
            providers: plan.providers()?,
            outlived_by: plan.outlived_by()?,
            providers_first: plan.topological_order()?,
            steps: steps(&plan),
            plan,
        };
        fixed.lay_out_tasks();
        fixed.find_steps();
        Ok(Table(Arc::new(fixed)))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.0.plan
    }

    pub(crate) fn ids(&self) -> &[TaskId] {
        &self.0.ids
    }

    pub(crate) fn law(&self, index: usize) -> RestartLaw {
        self.0.laws[index]
    }

    pub(crate) fn heartbeat_ms(&self, index: usize) -> Option<u64> {
        self.0.heartbeats_ms[index]
    }

    pub(crate) fn step_of(&self, index: usize) -> usize {
        self.0.step_of[index]
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0.steps
    }

    pub(crate) fn providers(&self, service: u16) -> &[u16] {
        &self.0.providers[usize::from(service)]
    }

    pub(crate) fn outlived_by(&self, service: u16) -> &[u16] {
        &self.0.outlived_by[usize::from(service)]
    }

    pub(crate) fn providers_first(&self) -> &[u16] {
        &self.0.providers_first
    }

    pub(crate) fn pools_of(&self, service: u16) -> &[Range<usize>] {
        &self.0.pools[usize::from(service)]
    }

    pub(crate) fn tasks_of(&self, service: u16) -> Range<usize> {
        self.0.spans[usize::from(service)].clone()
    }

    pub(crate) fn find(&self, id: TaskId) -> Option<usize> {
        let pool = self.0.pools.get(usize::from(id.service))?.get(usize::from(id.task))?;
        let index = pool.start + usize::from(id.instance);
        pool.contains(&index).then_some(index)
    }

    /// The mistake of `Mutation::ProvidersStopFirst`.
    #[cfg(feature = "mutation")]
    pub(crate) fn reverse_within_phases(&mut self) {
        let mut fixed = Fixed::clone(&self.0);
        fixed.steps.reverse();
        fixed.steps.sort_by_key(|step| step.phase);
        fixed.find_steps();
        self.0 = Arc::new(fixed);
    }
}

impl Fixed {
    fn lay_out_tasks(&mut self) {
        for (service, service_plan) in self.plan.services.iter().enumerate() {
            let first = self.ids.len();
            let mut pools = Vec::with_capacity(service_plan.tasks.len());
            for (task, task_plan) in service_plan.tasks.iter().enumerate() {
                let start = self.ids.len();
                for instance in 0..task_plan.instances {
                    self.ids.push(TaskId { service: service as u16, task: task as u16, instance });
                    self.laws.push(service_plan.law);
                    self.heartbeats_ms.push(task_plan.heartbeat_ms);
                }
                pools.push(start..self.ids.len());
            }
            self.pools.push(pools);
            self.spans.push(first..self.ids.len());
        }
    }

    fn find_steps(&mut self) {
        let step_of = |id: &TaskId| {
            let phase = self.plan.services[usize::from(id.service)].tasks[usize::from(id.task)].phase;
            let stops_it = |step: &Step| step.phase == phase && step.services.contains(&id.service);
            self.steps.iter().position(stops_it).expect("every task of a valid plan has its drain step")
        };
        self.step_of = self.ids.iter().map(step_of).collect();
    }
}

/// Reason for the start of a waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StartKind {
    First,
    /// Its restart delay is over; the start counts as a restart.
    Law,
    /// An operator asked; the start is not held against it.
    Operator,
}

/// Stage in the life of a task instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// It will be started as soon as the providers of its service serve.
    Waiting {
        kind: StartKind,
    },
    /// The start was ordered.
    Starting,
    Running,
    /// The abort was ordered; its exit has not been seen.
    Aborting {
        why: AbortReason,
    },
    Restarting {
        at: Millis,
    },
    /// Gone for good, in a drain.
    Stopped,
    /// Gone until an operator restarts the service.
    Failed,
}

/// State of one task instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub(crate) mode: Mode,
    pub(crate) up: bool,
    pub(crate) was_up: bool,
    pub(crate) last_seen: Millis,
    /// Moments of its restarts, oldest first; bounded by `history_max`.
    pub(crate) restarts: VecDeque<Millis>,
    pub(crate) restarts_total: u64,
    pub(crate) last_exit: Option<ExitReason>,
}

impl Default for Task {
    fn default() -> Self {
        Task {
            mode: Mode::Waiting { kind: StartKind::First },
            up: false,
            was_up: false,
            last_seen: 0,
            restarts: VecDeque::new(),
            restarts_total: 0,
            last_exit: None,
        }
    }
}

/// Enough restarts to tell a crash loop, and to double any delay past every cap.
fn history_max(law: RestartLaw) -> usize {
    (law.more_than as usize).saturating_add(1).max(64)
}

impl Task {
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.mode, Mode::Starting | Mode::Running | Mode::Aborting { .. })
    }

    pub(crate) fn start(&mut self, kind: StartKind, law: RestartLaw, now: Millis) {
        match kind {
            StartKind::First => {}
            StartKind::Law => self.record_restart(law, now),
            StartKind::Operator => self.restarts_total += 1,
        }
        self.mode = Mode::Starting;
        self.last_seen = now;
    }

    pub(crate) fn started(&mut self, now: Millis) {
        if self.mode == Mode::Starting {
            self.mode = Mode::Running;
            self.last_seen = now;
        }
    }

    pub(crate) fn boot_ready(&mut self, now: Millis) {
        self.started(now);
        if self.mode == Mode::Running {
            (self.up, self.was_up) = (true, true);
        }
    }

    pub(crate) fn beat(&mut self, now: Millis) {
        if self.mode == Mode::Running {
            self.last_seen = self.last_seen.max(now);
        }
    }

    pub(crate) fn abort(&mut self, why: AbortReason) {
        self.mode = Mode::Aborting { why };
        self.up = false;
    }

    /// The mode it left from, or nothing if it was not there to leave. It stays stopped unless the caller says more.
    pub(crate) fn exited(&mut self, reason: ExitReason) -> Option<Mode> {
        if !self.is_live() {
            return None;
        }
        let frozen = self.mode == (Mode::Aborting { why: AbortReason::Frozen });
        self.last_exit = Some(if frozen { ExitReason::Frozen } else { reason });
        self.up = false;
        Some(std::mem::replace(&mut self.mode, Mode::Stopped))
    }

    /// The exit code of a very first start that could not be set up, or of a task that says the process must not go on.
    pub(crate) fn ends_process_with(&self) -> Option<u8> {
        match self.last_exit {
            Some(ExitReason::Init { code, .. }) if self.restarts_total == 0 && !self.was_up => Some(code),
            Some(ExitReason::Fatal { code, .. }) => Some(code),
            _ => None,
        }
    }

    /// Whether it said that it must not go on.
    pub(crate) fn must_not_go_on(&self) -> bool {
        matches!(self.last_exit, Some(ExitReason::Fatal { .. }))
    }

    pub(crate) fn record_restart(&mut self, law: RestartLaw, now: Millis) {
        self.restarts_total += 1;
        while self.restarts.len() >= history_max(law) {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now);
    }

    /// The `n` of the restart law.
    pub(crate) fn restarts_in_window(&self, law: RestartLaw, now: Millis) -> u32 {
        let inside = |at: &&Millis| now.saturating_sub(**at) < law.window_ms;
        self.restarts.iter().rev().take_while(inside).count() as u32
    }
}

/// State of one service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Service {
    /// State as last published.
    pub(crate) state: State,
    pub(crate) since: Millis,
    /// Every instance has been up once.
    pub(crate) complete: bool,
    /// Complete, and each task has an instance that is up.
    pub(crate) own_up: bool,
    /// Up, and so is everything it depends on.
    pub(crate) serving: bool,
    pub(crate) failed: bool,
    pub(crate) conditions_unmet: Vec<&'static str>,
    pub(crate) pressure: Vec<&'static str>,
}

impl Default for Service {
    fn default() -> Self {
        Service {
            state: State::Starting,
            since: 0,
            complete: false,
            own_up: false,
            serving: false,
            failed: false,
            conditions_unmet: Vec::new(),
            pressure: Vec::new(),
        }
    }
}
