//! Tests of the rules; a driven that judges every step by the invariants carries them.

mod draining;
mod random;
mod restarting;
mod starting;
mod views;

use super::Supervisor;
use crate::invariants::Observer;
use crate::{Action, Event, ExitReason, Millis, Phase, Plan, RestartLaw, ServicePlan, State, TaskId, TaskPlan};

pub(super) fn plan(services: Vec<ServicePlan>) -> Plan {
    Plan { services, drain_deadline_ms: 3_000 }
}

/// A required service with one task of one instance per phase given.
pub(super) fn service(name: &'static str, depends_on: &[&'static str], phases: &[Phase]) -> ServicePlan {
    const NAMES: [&str; 4] = ["intake", "work", "flush", "observe"];
    let task = |phase: &Phase| TaskPlan {
        name: NAMES[usize::from(phase.number() - 1)],
        instances: 1,
        phase: *phase,
        heartbeat_ms: None,
    };
    ServicePlan {
        name,
        required: true,
        depends_on: depends_on.to_vec(),
        serves: vec![],
        law: RestartLaw::MACRONODE,
        tasks: phases.iter().map(task).collect(),
    }
}

pub(super) fn worker(name: &'static str, depends_on: &[&'static str]) -> ServicePlan {
    service(name, depends_on, &[Phase::Work])
}

pub(super) const fn id(service: u16, task: u16, instance: u16) -> TaskId {
    TaskId { service, task, instance }
}

/// The first instance of the first task.
pub(super) const fn main_of(service: u16) -> TaskId {
    id(service, 0, 0)
}

pub(super) fn publish(service: u16, state: State) -> Action {
    Action::Publish { service, state }
}

pub(super) fn start(task: TaskId) -> Action {
    Action::Start { task }
}

pub(super) fn panic_of(task: TaskId) -> Event {
    Event::Exited { task, reason: ExitReason::Panic("boom".to_owned()) }
}

pub(super) struct DrivenSupervisor {
    pub(super) supervisor: Supervisor,
    pub(super) observer: Observer,
    pub(super) now: Millis,
}

impl DrivenSupervisor {
    pub(super) fn new(plan: Plan) -> Self {
        let observer = Observer::new(plan.clone()).unwrap();
        DrivenSupervisor { supervisor: Supervisor::new(plan, 7).unwrap(), observer, now: 1_000 }
    }

    /// Booted, with every task up.
    pub(super) fn ready(plan: Plan) -> Self {
        let mut driven = DrivenSupervisor::new(plan);
        let mut to_start = driven.step(Event::Boot);
        while !to_start.is_empty() {
            let tasks: Vec<TaskId> = started_in(&to_start);
            to_start = tasks.into_iter().flat_map(|task| driven.up(task)).collect();
        }
        assert!(driven.supervisor.services.iter().all(|service| service.state == State::Ready));
        driven
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        let actions = self.supervisor.step(self.now, event.clone());
        self.observer.observe(self.now, &event, &actions).unwrap_or_else(|broken| panic!("{broken} at {event:?}"));
        if matches!(event, Event::Beat { .. }) {
            // A beat fires no timers, so what is due stays due and is not yet shown.
            return actions;
        }
        let view = self.supervisor.node_view(self.now);
        self.observer.observe_view(&view).unwrap_or_else(|broken| panic!("{broken} at {event:?}"));
        if let Some(wakeup) = self.supervisor.next_wakeup() {
            assert!(wakeup > self.now, "a wakeup that is due is left after {event:?}");
        }
        actions
    }

    pub(super) fn up(&mut self, task: TaskId) -> Vec<Action> {
        let mut actions = self.step(Event::Started { task });
        actions.extend(self.step(Event::BootReady { task }));
        actions
    }

    pub(super) fn at(&mut self, now: Millis) -> &mut Self {
        self.now = now;
        self
    }

    /// Goes to the next wakeup and fires it.
    pub(super) fn wake(&mut self) -> Vec<Action> {
        self.now = self.supervisor.next_wakeup().expect("there is a timer");
        self.step(Event::TimerFired)
    }

    pub(super) fn state(&self, service: u16) -> State {
        self.supervisor.services[usize::from(service)].state
    }
}

pub(super) fn started_in(actions: &[Action]) -> Vec<TaskId> {
    let task = |action: &Action| match action {
        Action::Start { task } => Some(*task),
        _ => None,
    };
    actions.iter().filter_map(task).collect()
}
