//! A model of a small plan with little bad luck, whose every order of events a checker can try on the real supervisor.

use ron_policy::invariants::Observer;
use ron_policy::{
    Action, Escalation, Event, ExitReason, Millis, Phase, Plan, RestartLaw, ServicePlan, Supervisor, TaskId, TaskPlan,
};
use stateright::{Model, Property};

use crate::mutation::{Mutation, plant};

/// Name of the property that a mistake in the policy breaks.
pub const INVARIANTS: &str = "the invariants hold";
const NOT_STUCK: &str = "something can happen until the end";
const FINISHES: &str = "the end is announced";

/// How much may go wrong in one history.
#[derive(Clone, Copy)]
pub struct Luck {
    /// Number of tasks that crash.
    pub crashes: u8,
    /// Number of tasks that stand still.
    pub freezes: u8,
    /// Number of services that an operator restarts.
    pub operator_restarts: u8,
    /// Number of times that time goes on before the drain.
    pub wakeups_before_drain: u8,
}

/// A plan, and what may go wrong with it.
pub struct Lifecycle {
    plan: Plan,
    luck: Luck,
    mutation: Option<Mutation>,
}

/// One task as the environment has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Body {
    alive: bool,
    up: bool,
    frozen: bool,
    told: bool,
    aborted: bool,
}

/// The supervisor, its tasks, and the luck that is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    supervisor: Supervisor,
    observer: Observer,
    now: Millis,
    bodies: Vec<Body>,
    crashes_left: u8,
    freezes_left: u8,
    operator_restarts_left: u8,
    wakeups_left: u8,
    finished: bool,
    /// The first invariant that did not hold.
    pub broken: Option<&'static str>,
}

/// What happens next; tasks and services are meant by their place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The task was spawned and said it is ready.
    Ready(usize),
    /// The task is killed.
    Crash(usize),
    /// The task stands still.
    Freeze(usize),
    /// The task was told to stop, or aborted, and goes.
    Leave(usize),
    /// An operator restarts the service.
    OperatorRestart(u16),
    /// Time goes on to the next wakeup; whoever is not frozen beats just before.
    Wake,
    /// The drain is requested.
    Drain,
}

impl ModelState {
    fn ids(&self) -> Vec<TaskId> {
        self.supervisor.tasks().collect()
    }

    fn feed(&mut self, event: Event) {
        let actions = self.supervisor.step(self.now, event.clone());
        let verdict = self.observer.observe(self.now, &event, &actions);
        let view_verdict = self.observer.observe_view(&self.supervisor.node_view(self.now));
        if let Err(violation) = verdict.and(view_verdict) {
            self.broken = self.broken.or(Some(violation.id));
        }
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        let ids = self.ids();
        let index_of = |task| ids.iter().position(|id| *id == task).expect("tasks of the plan");
        match action {
            Action::Start { task } => self.bodies[index_of(task)] = Body { alive: true, ..Body::default() },
            Action::Abort { task, .. } => self.bodies[index_of(task)].aborted = true,
            Action::StopPhase { phase, services, .. } => {
                for (index, id) in ids.iter().enumerate() {
                    let plan = &self.supervisor.plan().services[usize::from(id.service)].tasks[usize::from(id.task)];
                    self.bodies[index].told |= plan.phase == phase && services.contains(&id.service);
                }
            }
            Action::Finish { .. } => self.finished = true,
            Action::StartAfter { .. } | Action::Publish { .. } | Action::Straggler { .. } => {}
        }
    }

    fn gone(&mut self, index: usize, reason: ExitReason) {
        self.bodies[index] = Body::default();
        let task = self.ids()[index];
        self.feed(Event::Exited { task, reason });
    }

    fn wake(&mut self) {
        let Some(at) = self.supervisor.next_wakeup() else { return };
        self.now = at - 1;
        for (index, task) in self.ids().into_iter().enumerate() {
            if self.bodies[index].up && !self.bodies[index].frozen {
                self.feed(Event::Beat { task });
            }
        }
        if self.supervisor.next_wakeup() == Some(at) {
            self.now = at;
            self.feed(Event::TimerFired);
        }
    }
}

impl Model for Lifecycle {
    type State = ModelState;
    type Action = Choice;

    fn init_states(&self) -> Vec<ModelState> {
        let supervisor = plant(self.mutation, Supervisor::new(self.plan.clone(), 1).expect("the plan is valid"));
        let mut state = ModelState {
            observer: Observer::new(self.plan.clone()).expect("the plan is valid"),
            now: 1,
            bodies: vec![Body::default(); supervisor.tasks().count()],
            supervisor,
            crashes_left: self.luck.crashes,
            freezes_left: self.luck.freezes,
            operator_restarts_left: self.luck.operator_restarts,
            wakeups_left: self.luck.wakeups_before_drain,
            finished: false,
            broken: None,
        };
        state.feed(Event::Boot);
        vec![state]
    }

    fn actions(&self, state: &ModelState, choices: &mut Vec<Choice>) {
        if state.finished || state.broken.is_some() {
            return;
        }
        for (index, body) in state.bodies.iter().enumerate().filter(|(_, body)| body.alive) {
            let free = !body.aborted && !body.frozen;
            let possible = [
                (free && !body.up, Choice::Ready(index)),
                (free && state.crashes_left > 0, Choice::Crash(index)),
                (free && body.up && state.freezes_left > 0, Choice::Freeze(index)),
                (body.aborted || (free && body.told), Choice::Leave(index)),
            ];
            choices.extend(possible.into_iter().filter(|(can, _)| *can).map(|(_, choice)| choice));
        }
        let draining = state.supervisor.is_draining();
        if state.operator_restarts_left > 0 && !draining {
            choices.push(Choice::OperatorRestart(0));
        }
        if state.supervisor.next_wakeup().is_some() && (draining || state.wakeups_left > 0) {
            choices.push(Choice::Wake);
        }
        if !draining {
            choices.push(Choice::Drain);
        }
    }

    fn next_state(&self, last: &ModelState, choice: Choice) -> Option<ModelState> {
        let mut state = last.clone();
        let ids = state.ids();
        match choice {
            Choice::Ready(index) => {
                state.bodies[index].up = true;
                state.feed(Event::Started { task: ids[index] });
                state.feed(Event::BootReady { task: ids[index] });
            }
            Choice::Crash(index) => {
                state.crashes_left -= 1;
                state.gone(index, ExitReason::Killed);
            }
            Choice::Freeze(index) => {
                state.freezes_left -= 1;
                state.bodies[index].frozen = true;
            }
            Choice::Leave(index) => state.gone(index, ExitReason::Clean),
            Choice::OperatorRestart(service) => {
                state.operator_restarts_left -= 1;
                state.feed(Event::RestartRequested { service });
            }
            Choice::Wake => {
                state.wakeups_left = state.wakeups_left.saturating_sub(1);
                state.wake();
            }
            Choice::Drain => state.feed(Event::DrainRequested),
        }
        Some(state)
    }

    /// Every choice uses up luck, time, or a step of a life: there is no circle. So a history that is never stuck
    /// ends, and `FINISHES` says the same in the checker's own terms.
    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(INVARIANTS, |_, state: &ModelState| state.broken.is_none()),
            Property::always(NOT_STUCK, |model: &Lifecycle, state: &ModelState| {
                let mut choices = Vec::new();
                model.actions(state, &mut choices);
                state.finished || state.broken.is_some() || !choices.is_empty()
            }),
            Property::eventually(FINISHES, |_, state: &ModelState| state.finished),
        ]
    }
}

/// The first so many services of this plan: base, a worker that beats, and a writer; top, an intake on base; side, a
/// worker on its own.
pub fn lifecycle(services: usize, luck: Luck, mutation: Option<Mutation>) -> Lifecycle {
    let law = RestartLaw { jitter_ms: (1, 1), cap_ms: 2, more_than: 1, window_ms: 30, then: Escalation::Degraded };
    let task = |name, phase, heartbeat_ms| TaskPlan { name, instances: 1, phase, heartbeat_ms };
    let service = |name, depends_on: &[&'static str], tasks| ServicePlan {
        name,
        required: true,
        depends_on: depends_on.to_vec(),
        serves: vec![],
        law,
        tasks,
    };
    let mut all = vec![
        service("base", &[], vec![task("work", Phase::Work, Some(10))]),
        service("top", &["base"], vec![task("intake", Phase::Intake, None), task("work", Phase::Work, None)]),
        service("side", &[], vec![task("work", Phase::Work, None)]),
    ];
    all[2].law.then = Escalation::Fatal;
    all[2].law.more_than = 0;
    all.truncate(services);
    Lifecycle { plan: Plan { services: all, drain_deadline_ms: 40 }, luck, mutation }
}
