//! The supervisor's loop: one `select!` that turns the world into events for the policy, and performs its actions.

mod chaos;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ron_cells::Monotone;
use ron_policy::invariants::Observer;
use ron_policy::{
    AbortReason, Action, Event, ExitReason, Plan, PlanError, State, Supervisor, TaskId, TaskState, TaskView,
};
use ron_types::{Error, Kind};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Interval;
use tokio_util::task::JoinMap;
use tracing::Instrument as _;

use crate::builder::{BuiltTask, KernelOptions, SUPERVISOR};
use crate::bus::KernelEvent;
use crate::coalesce::{Coalesce, Coalescing};
use crate::deadline::Deadline;
use crate::handle::{KernelHandle, Request};
use crate::outages::Outages;
use crate::queue::QueueReceiver;
use crate::spec::{Fate, Overflow, QueueKind, QueueSpec, ServiceSpec};
use crate::status::{NodeStatus, TaskStatus};
use crate::task::{Control, Order, RESTART_GRACE, TaskContext, TaskResult, exit_reason, live};

/// Applied configuration changes on their way from the watcher to the supervisor.
pub const CONFIG_UPDATES: QueueSpec = QueueSpec {
    owner: "macronode",
    service: "kernel",
    name: "cfg_updates",
    kind: QueueKind::Mpsc,
    capacity: ron_types::limits::CONFIG_UPDATES_CAPACITY,
    bytes_max: None,
    from: "config_watcher",
    to: "supervisor",
    overflow: Overflow::Coalesce,
    holds_up_writers: false,
    answer: "newest wins; the services to restart add up",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};

/// The loop turns at least this often, so that a stuck supervisor shows.
const TURN_EVERY: Duration = Duration::from_millis(500);

/// A configuration now in force, and whom it concerns.
#[derive(Debug)]
pub struct ConfigChange {
    /// Version of the configuration; grows by one with each change.
    pub version: u64,
    /// Services that must be restarted to take it up.
    pub restart: Vec<&'static str>,
    /// Maximum duration of a drain from now on.
    pub drain_deadline: Duration,
}

impl Coalesce for ConfigChange {
    type Key = ();

    fn key(&self) {}

    fn absorb(&mut self, newer: Self) {
        self.version = newer.version;
        self.drain_deadline = newer.drain_deadline;
        self.restart.extend(newer.restart);
        self.restart.sort_unstable();
        self.restart.dedup();
    }
}

/// Summary of a node's end.
#[derive(Debug)]
pub struct ExitReport {
    /// The process exit code.
    pub code: u8,
    /// Tasks that had to be aborted, by name.
    pub aborted: Vec<String>,
    /// Duration of the drain.
    pub drained_in: Duration,
    /// Every step, if recording was asked for.
    pub record: Vec<(u64, Event, Vec<Action>)>,
}

/// Event that wakes the supervisor's loop.
enum Happened {
    Ended(TaskId, ExitReason),
    Asked(Request),
    Configured(ConfigChange),
    Woke,
}

/// A node that can be run, once.
pub struct Kernel {
    supervisor: Supervisor,
    observer: Observer,
    options: KernelOptions,
    handle: KernelHandle,
    inbox: QueueReceiver<Request>,
    config_updates: Coalescing<ConfigChange>,
    services: Vec<(&'static ServiceSpec, Vec<BuiltTask>)>,
    tasks: JoinMap<TaskId, TaskResult>,
    /// What chaos keeps the runtime's threads busy with.
    stalls: JoinSet<()>,
    controls: HashMap<TaskId, Control>,
    /// Instances told to end for a restart, and when patience ends.
    leaving: Vec<(TaskId, Deadline)>,
    drain_asked: Option<Deadline>,
    aborted: Vec<String>,
    finished: Option<u8>,
    record: Vec<(u64, Event, Vec<Action>)>,
    /// Events caused by actions, waiting for the current step to end.
    pending: VecDeque<Event>,
}

impl Kernel {
    pub(crate) fn new(
        plan: Plan,
        options: KernelOptions,
        handle: KernelHandle,
        inbox: QueueReceiver<Request>,
        config_updates: Coalescing<ConfigChange>,
        services: Vec<(&'static ServiceSpec, Vec<BuiltTask>)>,
    ) -> Result<Self, PlanError> {
        Ok(Kernel {
            observer: Observer::new(plan.clone())?,
            supervisor: Supervisor::new(plan, options.seed)?,
            options,
            handle,
            inbox,
            config_updates,
            services,
            tasks: JoinMap::new(),
            stalls: JoinSet::new(),
            controls: HashMap::new(),
            leaving: Vec::new(),
            drain_asked: None,
            aborted: Vec::new(),
            finished: None,
            record: Vec::new(),
            pending: VecDeque::new(),
        })
    }

    /// Handle for everything outside the kernel's own loop.
    pub fn handle(&self) -> KernelHandle {
        self.handle.clone()
    }

    /// Runs the node until it has drained.
    pub async fn run(mut self) -> ExitReport {
        self.announce_series();
        self.step(Event::Boot);
        let mut pulse = tokio::time::interval(TURN_EVERY);
        // After a stall, the beats that were missed would all show the same moment.
        pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.finished.is_none() {
            self.turn(&mut pulse).await;
        }
        self.tasks.abort_all();
        ExitReport {
            code: self.finished.unwrap_or_default(),
            aborted: self.aborted,
            drained_in: self
                .drain_asked
                .map_or(Duration::ZERO, |end| self.options.drain_deadline.saturating_sub(end.remaining())),
            record: self.record,
        }
    }

    /// Waits for the next thing that can happen, and handles it.
    async fn turn(&mut self, pulse: &mut Interval) {
        let wake = self.until_wakeup();
        let mut is_pulse = false;
        let happened = tokio::select! {
            biased;
            _ = pulse.tick() => {
                is_pulse = true;
                Happened::Woke
            }
            Some((task, joined)) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                Happened::Ended(task, exit_reason(joined))
            }
            Some(request) = self.inbox.recv() => Happened::Asked(request),
            change = self.config_updates.recv() => Happened::Configured(change),
            () = tokio::time::sleep(wake) => Happened::Woke,
        };
        self.feed_beats();
        self.abort_overdue();
        // Only a timer proves that the runtime turns: with all its threads stuck, requests of the admin thread would
        // still wake this loop, which has a thread of its own.
        if is_pulse {
            self.handle.inner.last_turn_ms.raise(self.handle.now_ms());
        }
        match happened {
            Happened::Ended(task, reason) => self.ended(task, reason),
            Happened::Asked(request) => self.serve(request),
            Happened::Configured(change) => self.config_changed(change),
            Happened::Woke => self.wake(),
        }
    }

    fn until_wakeup(&self) -> Duration {
        let now = self.handle.now_ms();
        let policy = self.supervisor.next_wakeup().map(|at| Duration::from_millis(at.saturating_sub(now)));
        policy.map_or(TURN_EVERY, |wait| wait.min(TURN_EVERY))
    }

    fn wake(&mut self) {
        if self.supervisor.next_wakeup().is_some_and(|at| at <= self.handle.now_ms()) {
            self.step(Event::TimerFired);
        }
    }

    /// Hands on the beats since the last look, before anything is judged: tasks raise a cell, so that beating costs
    /// them nothing. If the loop itself was late, the machine stood still and silence proves nothing: all get a beat.
    fn feed_beats(&mut self) {
        let stood_still = self.handle.last_turn_age() > 2 * TURN_EVERY;
        let mut alive = Vec::new();
        for (task, control) in &mut self.controls {
            let beat = control.beat.get();
            if beat > control.told || stood_still {
                control.told = beat;
                alive.push(*task);
            }
        }
        for task in alive {
            self.step(Event::Beat { task });
        }
    }

    fn abort_overdue(&mut self) {
        let (overdue, waiting) = std::mem::take(&mut self.leaving).into_iter().partition(|(_, end)| end.has_passed());
        self.leaving = waiting;
        for (task, _) in overdue {
            self.abort(task);
        }
    }

    /// One step of the policy, its actions performed, and the events these cause in turn.
    fn step(&mut self, event: Event) {
        self.pending.push_back(event);
        while let Some(event) = self.pending.pop_front() {
            self.step_once(event);
        }
    }

    fn step_once(&mut self, event: Event) {
        let now = self.handle.now_ms();
        let actions = self.supervisor.step(now, event.clone());
        if let Err(violation) = self.observer.observe(now, &event, &actions) {
            self.handle.metrics().invariant_violations.at(violation.id).inc();
            tracing::error!(invariant = violation.id, detail = %violation.detail, "the supervisor broke a promise");
            debug_assert!(false, "{}: {}", violation.id, violation.detail);
        }
        let quiet = matches!(event, Event::Beat { .. }) && actions.is_empty();
        if self.options.record {
            self.record.push((now, event, actions.clone()));
        }
        for action in actions {
            self.perform(action, now);
        }
        if !quiet {
            self.publish_status(now);
        }
    }

    fn perform(&mut self, action: Action, now: u64) {
        match action {
            Action::Start { task } => self.start(task),
            Action::StartAfter { task, delay_ms } => {
                let (service, name) = self.names(task);
                self.handle.metrics().service_restarts.at(service).inc();
                tracing::warn!(service, task = %name, delay_ms, "restarting after a delay");
            }
            Action::Publish { service, state } => self.publish(service, state),
            Action::StopPhase { phase, services, deadline } => {
                let deadline = Deadline::after(Duration::from_millis(deadline.saturating_sub(now)));
                let names: Vec<&str> =
                    services.iter().map(|service| self.services[usize::from(*service)].0.name).collect();
                tracing::info!(phase = phase.name(), services = ?names, "stopping");
                self.handle.inner.stopping.send_modify(|stopping| stopping.stop(&services, phase, deadline));
            }
            Action::Abort { task, why: AbortReason::Restart } => self.ask_to_leave(task),
            Action::Abort { task, why } => {
                let (service, name) = self.names(task);
                tracing::warn!(service, task = %name, ?why, "aborting");
                if why == AbortReason::DrainDeadline {
                    self.handle.metrics().tasks_aborted.at(self.spec_name(task)).inc();
                    self.aborted.push(name);
                }
                self.abort(task);
            }
            Action::Straggler { task } => {
                let (service, name) = self.names(task);
                tracing::warn!(service, task = %name, "still stopping");
            }
            Action::Finish { code } => self.finished = Some(code),
        }
    }

    fn start(&mut self, task: TaskId) {
        let built = &self.services[usize::from(task.service)].1[usize::from(task.task)];
        let now = self.handle.now_ms();
        let control = Control { order: watch::Sender::new(Order::Run), beat: Arc::new(Monotone::new(now)), told: now };
        let context = TaskContext {
            id: task,
            spec: built.spec,
            phase: built.spec.phase,
            handle: self.handle.clone(),
            stopping: self.handle.inner.stopping.subscribe(),
            order: control.order.subscribe(),
            beat: Arc::clone(&control.beat),
        };
        let span = tracing::info_span!("task", name = built.spec.name, instance = task.instance);
        let life = live(context, Arc::clone(&built.factory)).instrument(span);
        self.handle.metrics().tasks_spawned.at(built.spec.name).inc();
        self.controls.insert(task, control);
        self.tasks.spawn(task, life);
        self.pending.push_back(Event::Started { task });
    }

    fn ended(&mut self, task: TaskId, reason: ExitReason) {
        self.controls.remove(&task);
        self.leaving.retain(|(leaving, _)| *leaving != task);
        let (service, name) = self.names(task);
        self.handle.metrics().tasks_completed.at(self.spec_name(task)).inc();
        if !self.supervisor.is_draining() {
            tracing::warn!(service, task = %name, %reason, "a task ended");
            let event = KernelEvent::ServiceCrashed { service, task: self.spec_name(task), reason: reason.to_string() };
            self.handle.bus().publish(event);
        }
        self.step(Event::Exited { task, reason });
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::BootReady(task) => self.step(Event::BootReady { task }),
            Request::Drain => self.drain(),
            Request::Restart { service, reply } => {
                let found = self.service_index(&service);
                let answer = found.ok_or_else(|| self.unknown("service", &service));
                if let Ok(service) = answer {
                    self.step(Event::RestartRequested { service });
                }
                let _ = reply.send(answer.map(drop));
            }
            Request::Pressure { service, cause, on } => {
                if let Some(service) = self.service_index(service) {
                    self.step(Event::Pressure { service, cause, on });
                }
            }
            Request::Dependency { service, name, met } => {
                if let Some(service) = self.service_index(service) {
                    self.handle.metrics().dependency_unmet.at(name).set(i64::from(!met));
                    self.step(Event::DependencyChanged { service, name, met });
                }
            }
            Request::Chaos { task, share, order, reply } => {
                let _ = reply.send(self.chaos(&task, share, order));
            }
            Request::Stall { time } => self.stall(time),
        }
    }

    fn drain(&mut self) {
        if self.drain_asked.is_some() {
            return;
        }
        self.drain_asked = Some(Deadline::after(self.options.drain_deadline));
        self.handle.inner.stopping.send_modify(|stopping| stopping.draining = true);
        self.handle.bus().publish(KernelEvent::Shutdown);
        self.step(Event::DrainRequested);
    }

    fn set_drain_deadline(&mut self, deadline: Duration) {
        // A drain under way keeps the time it was given.
        if self.drain_asked.is_none() && self.options.drain_deadline != deadline {
            self.options.drain_deadline = deadline;
            self.handle.inner.drain_deadline.publish(deadline);
            self.step(Event::DrainDeadlineChanged { deadline_ms: deadline.as_millis() as u64 });
        }
    }

    fn config_changed(&mut self, change: ConfigChange) {
        self.handle.bus().publish(KernelEvent::ConfigUpdated { version: change.version });
        self.set_drain_deadline(change.drain_deadline);
        for name in change.restart {
            if let Some(service) = self.service_index(name) {
                self.step(Event::RestartRequested { service });
            }
        }
    }

    fn publish(&self, service: u16, state: State) {
        let name = self.services[usize::from(service)].0.name;
        tracing::info!(service = name, ?state, "service state");
        self.handle.bus().publish(KernelEvent::Health { service: name, state });
    }

    fn publish_status(&self, now: u64) {
        let view = self.supervisor.node_view(now);
        let metrics = self.handle.metrics();
        for service in &view.services {
            let value = match service.state {
                State::Ready if service.accepts_writes => 2,
                State::Ready => 1,
                State::Degraded | State::Unready if service.serving => 1,
                _ => 0,
            };
            metrics.readyz_state.at(service.name).set(value);
            metrics.dependency_unmet.at(service.name).set(i64::from(!service.serving));
        }
        let outages = Outages::of(&view);
        if self.handle.outages().get().value != outages {
            self.handle.outages().publish(outages);
        }
        let tasks = std::iter::once(self.own_row()).chain(self.supervisor.tasks().map(|task| self.task_row(task, now)));
        let tasks: Vec<TaskStatus> = tasks.collect();
        self.handle.inner.status.send_if_modified(|status| {
            let changed = status.view != view || status.tasks != tasks;
            if changed {
                *status = Arc::new(NodeStatus { sequence: status.sequence + 1, view, tasks });
            }
            changed
        });
    }

    fn own_row(&self) -> TaskStatus {
        let state = if self.finished.is_some() { TaskState::Stopped } else { TaskState::Running };
        let view = TaskView { state, restarts_60s: 0, restarts_total: 0, last_exit: None, restart_at: None };
        let phase = SUPERVISOR.phase.number();
        TaskStatus { service: SUPERVISOR.owner, unit: "kernel", name: SUPERVISOR.name, instance: 0, phase, view }
    }

    fn task_row(&self, task: TaskId, now: u64) -> TaskStatus {
        let (service, tasks) = &self.services[usize::from(task.service)];
        let spec = tasks[usize::from(task.task)].spec;
        TaskStatus {
            service: spec.owner,
            unit: service.name,
            name: spec.name,
            instance: task.instance,
            phase: spec.phase.number(),
            view: self.supervisor.task_view(task, now),
        }
    }

    fn ask_to_leave(&mut self, task: TaskId) {
        if let Some(control) = self.controls.get(&task) {
            control.order.send_replace(Order::Stop);
            self.leaving.push((task, Deadline::after(RESTART_GRACE)));
        }
    }

    fn abort(&mut self, task: TaskId) {
        self.tasks.abort(&task);
    }

    fn spec_name(&self, task: TaskId) -> &'static str {
        self.services[usize::from(task.service)].1[usize::from(task.task)].spec.name
    }

    fn names(&self, task: TaskId) -> (&'static str, String) {
        let (service, tasks) = &self.services[usize::from(task.service)];
        let built = &tasks[usize::from(task.task)];
        let name = match built.instances {
            1 => built.spec.name.to_owned(),
            _ => format!("{}[{}]", built.spec.name, task.instance),
        };
        (service.name, name)
    }

    fn service_index(&self, name: &str) -> Option<u16> {
        self.services.iter().position(|(spec, _)| spec.name == name).map(|index| index as u16)
    }

    fn unknown(&self, what: &str, name: &str) -> Error {
        let known: Vec<&str> = match what {
            "service" => self.services.iter().map(|(spec, _)| spec.name).collect(),
            _ => self.services.iter().flat_map(|(_, tasks)| tasks.iter().map(|task| task.spec.name)).collect(),
        };
        Error::new(Kind::NotFound, format!("there is no {what} {name}; there are {}", known.join(", ")))
    }

    /// Makes the series of every declared name exist from the first scrape on.
    fn announce_series(&self) {
        let metrics = self.handle.metrics();
        for (service, tasks) in &self.services {
            metrics.service_restarts.at(service.name);
            metrics.bus_lagged.at(service.name);
            for task in tasks {
                for family in
                    [&metrics.tasks_spawned, &metrics.tasks_completed, &metrics.tasks_aborted, &metrics.tasks_canceled]
                {
                    family.at(task.spec.name);
                }
            }
        }
        for op in ["read", "write", "connect", "handshake", "request"] {
            metrics.io_timeouts.at(op);
            metrics.io_errors.at(op);
            metrics.backoff_retries.at(op);
        }
    }
}
