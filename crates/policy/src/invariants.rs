//! The invariants, each written once and judged from the outside: by events and actions alone.
//!
//! | id | what always holds |
//! |---|---|
//! | I1 | nothing is started, or announced to be, once a drain began |
//! | I2 | no service starts, or is published ready, while one it depends on does not serve |
//! | I3 | a drain stops phases in order, dependents before providers, and tells each task before it aborts it |
//! | I4 | each restart delay lies inside the law's window for its `n`, and delays at the cap do not fall into step |
//! | I5 | degraded, unready or failed, as its law says, if and only if its restarts in the window pass that law |
//! | I6 | the end is announced once, no later than the drain deadline, and nothing follows it |
//! | I7 | no task is started again before it is gone |

use std::collections::VecDeque;

use crate::supervisor::Table;
use crate::{
    AbortReason, Action, Escalation, Event, ExitReason, Millis, NodeView, Phase, Plan, PlanError, State, TaskId,
};

/// A window of delays at least this wide shows by chance four equal draws in a row about once in 10^9.
const COLLAPSE_WIDTH_MS_MIN: u64 = 1_000;
const COLLAPSE_RUN: u32 = 4;
/// How many restarts are remembered beyond those that make a crash loop.
const RESTARTS_KEPT_MIN: usize = 64;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{id}: {detail}")]
pub struct Violation {
    /// Number of the invariant, `I1` to `I7`.
    pub id: &'static str,
    /// Events that broke it, in words.
    pub detail: String,
}

/// Watches one supervisor from its first event on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    table: Table,
    tasks: Vec<SeenTask>,
    services: Vec<SeenService>,
    booted: bool,
    drain_since: Option<Millis>,
    /// Maximum duration of the drain under way, or of the next one.
    drain_deadline_ms: u64,
    last_phase: Option<Phase>,
    finished: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SeenTask {
    /// Started, and neither gone nor given up by the drain.
    live: bool,
    /// An abort was ordered.
    aborted: bool,
    told: bool,
    up: bool,
    was_up: bool,
    starts: u32,
    /// An operator asked for the next start: it is not a restart by the law.
    free_start: bool,
    restarts: VecDeque<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenService {
    state: State,
    failed: bool,
    conditions_unmet: Vec<&'static str>,
    delay_last_ms: u64,
    delay_run: u32,
}

impl Observer {
    /// An observer of a supervisor that has seen nothing yet.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        let table = Table::new(plan)?;
        let service = SeenService {
            state: State::Starting,
            failed: false,
            conditions_unmet: Vec::new(),
            delay_last_ms: 0,
            delay_run: 0,
        };
        let drain_deadline_ms = table.plan().drain_deadline_ms;
        Ok(Observer {
            tasks: vec![SeenTask::default(); table.ids().len()],
            services: vec![service; table.plan().services.len()],
            table,
            booted: false,
            drain_since: None,
            drain_deadline_ms,
            last_phase: None,
            finished: false,
        })
    }

    /// Judges one step: what happened, and what the supervisor answered.
    pub fn observe(&mut self, now: Millis, event: &Event, actions: &[Action]) -> Result<(), Violation> {
        if self.finished {
            return check("I6", actions.is_empty(), || format!("{actions:?} after the end"));
        }
        self.take(now, event);
        for action in actions {
            self.judge(now, action)?;
        }
        if matches!(event, Event::Beat { .. }) && self.drain_since.is_none() {
            // A beat fires no timers: what is due is judged at the step that fires it.
            return Ok(());
        }
        self.judge_all(now)
    }

    /// Judges what the supervisor says of itself after a step.
    pub fn observe_view(&self, view: &NodeView) -> Result<(), Violation> {
        if self.drain_since.is_some() {
            return check("I2", !view.accepts_reads, || "accepts reads while draining".to_owned());
        }
        for (service, serves) in view.services.iter().zip(self.who_serves()) {
            let name = service.name;
            check("I2", service.serving == serves, || format!("{name} serves: {serves}, view: {}", service.serving))?;
        }
        Ok(())
    }

    /// Judges the end of a history: if a drain began, it must be over.
    pub fn ended(&self) -> Result<(), Violation> {
        let over = self.finished || self.drain_since.is_none();
        check("I6", over, || "a drain began, and its end was never announced".to_owned())
    }

    /// Whether the end was announced.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    fn take(&mut self, now: Millis, event: &Event) {
        match event {
            Event::Boot => self.booted = true,
            Event::BootReady { task } => {
                let seen = self.table.find(*task).map(|index| &mut self.tasks[index]);
                if let Some(seen) = seen.filter(|seen| seen.live && !seen.aborted) {
                    (seen.up, seen.was_up) = (true, true);
                }
            }
            Event::Exited { task, reason } => self.take_exit(now, *task, reason),
            Event::DependencyChanged { service, name, met } => {
                if let Some(seen) = self.services.get_mut(usize::from(*service)) {
                    seen.conditions_unmet.retain(|other| other != name);
                    if !met {
                        seen.conditions_unmet.push(name);
                    }
                }
            }
            Event::RestartRequested { service } => self.take_restart_request(*service),
            Event::DrainRequested => self.drain_since = self.drain_since.or(Some(now)),
            Event::DrainDeadlineChanged { deadline_ms } if self.drain_since.is_none() => {
                self.drain_deadline_ms = *deadline_ms;
            }
            Event::DrainDeadlineChanged { .. }
            | Event::Started { .. }
            | Event::Beat { .. }
            | Event::TimerFired
            | Event::Pressure { .. }
            | Event::PhaseDrained { .. } => {}
        }
    }

    fn take_exit(&mut self, now: Millis, task: TaskId, reason: &ExitReason) {
        let Some(index) = self.table.find(task) else { return };
        let n = self.restarts_of(task.service, now);
        let law = self.table.law(index);
        let seen = &mut self.tasks[index];
        if !seen.live {
            return;
        }
        (seen.live, seen.up) = (false, false);
        // A frozen task leaves as frozen, whatever the shell reports.
        let first_init = matches!(reason, ExitReason::Init { .. }) && !seen.was_up && seen.starts == 1;
        let is_fatal = !seen.aborted && matches!(reason, ExitReason::Fatal { .. });
        let is_required = self.table.plan().services[usize::from(task.service)].required;
        let ends_process = is_required && (is_fatal || !seen.aborted && first_init);
        if seen.free_start || self.drain_since.is_some() {
            return;
        }
        if ends_process {
            self.drain_since = Some(now);
        } else if is_fatal || law.then == Escalation::Fatal && n.saturating_add(1) > law.more_than {
            self.services[usize::from(task.service)].failed = true;
        }
    }

    fn take_restart_request(&mut self, service: u16) {
        if self.drain_since.is_some() || usize::from(service) >= self.services.len() {
            return;
        }
        self.services[usize::from(service)].failed = false;
        for seen in &mut self.tasks[self.table.tasks_of(service)] {
            seen.restarts.clear();
            seen.free_start = seen.starts > 0;
        }
    }

    fn judge(&mut self, now: Millis, action: &Action) -> Result<(), Violation> {
        check("I6", !self.finished, || format!("{action:?} after the end"))?;
        match action {
            Action::Start { task } => self.judge_start(now, *task),
            Action::StartAfter { task, delay_ms } => self.judge_delay(now, *task, *delay_ms),
            Action::Publish { service, state } => self.judge_publish(*service, *state),
            Action::StopPhase { phase, services, .. } => self.judge_stop(*phase, services),
            Action::Abort { task, why } => self.judge_abort(*task, *why),
            Action::Straggler { task } => {
                let seen = &self.tasks[self.index(*task)?];
                check("I3", seen.live && seen.told, || format!("{task:?} named, but it was not told to stop"))
            }
            Action::Finish { .. } => self.judge_finish(),
        }
    }

    fn index(&self, task: TaskId) -> Result<usize, Violation> {
        self.table.find(task).ok_or_else(|| Violation { id: "I7", detail: format!("{task:?} is not in the plan") })
    }

    fn judge_start(&mut self, now: Millis, task: TaskId) -> Result<(), Violation> {
        let index = self.index(task)?;
        check("I1", self.drain_since.is_none(), || format!("{task:?} started while draining"))?;
        check("I7", !self.tasks[index].live, || format!("{task:?} started again before it was gone"))?;
        let serves = self.who_serves();
        let provided = self.table.providers(task.service).iter().all(|provider| serves[usize::from(*provider)]);
        check("I2", provided, || format!("{task:?} started before what it depends on serves"))?;

        let kept_max = RESTARTS_KEPT_MIN.max(self.table.law(index).more_than as usize + 1);
        let seen = &mut self.tasks[index];
        if seen.starts > 0 && !seen.free_start {
            seen.restarts.push_back(now);
            if seen.restarts.len() > kept_max {
                seen.restarts.pop_front();
            }
        }
        seen.starts += 1;
        (seen.live, seen.aborted, seen.told, seen.free_start) = (true, false, false, false);
        Ok(())
    }

    fn judge_delay(&mut self, now: Millis, task: TaskId, delay_ms: u64) -> Result<(), Violation> {
        let index = self.index(task)?;
        check("I1", self.drain_since.is_none(), || format!("a start of {task:?} announced while draining"))?;
        let law = self.table.law(index);
        let n = self.restarts_in_window(index, now);
        let (low, high) = law.delay_window(n);
        let inside = (low..=high).contains(&delay_ms);
        check("I4", inside, || format!("{task:?} waits {delay_ms} ms after {n} restarts, not {low}..={high}"))?;

        let at_the_cap = low == law.cap_ms / 2 && high == law.cap_ms;
        if at_the_cap && high - low >= COLLAPSE_WIDTH_MS_MIN {
            let service = &mut self.services[usize::from(task.service)];
            service.delay_run = if service.delay_last_ms == delay_ms { service.delay_run + 1 } else { 1 };
            service.delay_last_ms = delay_ms;
            let falls_into_step = service.delay_run >= COLLAPSE_RUN;
            check("I4", !falls_into_step, || format!("{COLLAPSE_RUN} delays at the cap are all {delay_ms} ms"))?;
        }
        Ok(())
    }

    /// No beginning of the list of actions may show a dependent ready beside a provider that is not.
    fn judge_publish(&mut self, service: u16, state: State) -> Result<(), Violation> {
        let shows_serving = |state: State| matches!(state, State::Ready | State::Degraded | State::Unready);
        self.services[usize::from(service)].state = state;
        for dependent in 0..self.services.len() as u16 {
            if self.services[usize::from(dependent)].state != State::Ready {
                continue;
            }
            for provider in self.table.providers(dependent) {
                let shown = self.services[usize::from(*provider)].state;
                check("I2", shows_serving(shown), || {
                    format!("{} is shown ready beside {} {shown:?}", self.name(dependent), self.name(*provider))
                })?;
            }
        }
        Ok(())
    }

    fn judge_stop(&mut self, phase: Phase, services: &[u16]) -> Result<(), Violation> {
        check("I3", self.drain_since.is_some(), || format!("phase {phase:?} stopped without a drain"))?;
        check("I3", self.last_phase <= Some(phase), || format!("phase {phase:?} after {:?}", self.last_phase))?;
        self.last_phase = Some(phase);
        for index in 0..self.tasks.len() {
            let id = self.table.ids()[index];
            let phase_of_task = self.phase(id);
            if !self.tasks[index].live {
                continue;
            }
            check("I3", phase_of_task >= phase, || format!("phase {phase:?} stopped while {id:?} still runs"))?;
            if phase_of_task == phase {
                let before = services.iter().find(|provider| self.depends_on(id.service, **provider));
                check("I3", before.is_none(), || {
                    format!("{:?} stopped before {id:?}, which depends on it", before.map(|index| self.name(*index)))
                })?;
                self.tasks[index].told |= services.contains(&id.service);
            }
        }
        Ok(())
    }

    fn judge_abort(&mut self, task: TaskId, why: AbortReason) -> Result<(), Violation> {
        let index = self.index(task)?;
        let seen = &mut self.tasks[index];
        seen.up = false;
        seen.aborted = true;
        if why == AbortReason::DrainDeadline {
            check("I3", seen.told, || format!("{task:?} aborted without having been told to stop"))?;
            seen.live = false;
        }
        Ok(())
    }

    fn judge_finish(&mut self) -> Result<(), Violation> {
        check("I6", self.drain_since.is_some(), || "the end without a drain".to_owned())?;
        let left = self.tasks.iter().position(|seen| seen.live);
        check("I3", left.is_none(), || format!("the end while {:?} runs", left.map(|index| self.table.ids()[index])))?;
        self.finished = true;
        Ok(())
    }

    /// What must hold between two steps.
    fn judge_all(&self, now: Millis) -> Result<(), Violation> {
        if let Some(since) = self.drain_since {
            let end = since.saturating_add(self.drain_deadline_ms);
            return check("I6", self.finished || now < end, || format!("no end at {now}, deadline was {end}"));
        }
        let serves = self.who_serves();
        for (index, seen) in self.services.iter().enumerate() {
            let service = index as u16;
            let ready_rightly = seen.state != State::Ready || serves[index];
            check("I2", ready_rightly, || format!("{} is ready, but does not serve", self.name(service)))?;
            let law = self.table.plan().services[index].law;
            let looping = self.restarts_of(service, now) > law.more_than;
            let is_shown_looping = match law.then {
                Escalation::Unready => seen.state == State::Unready,
                Escalation::Degraded | Escalation::Fatal => seen.state == State::Degraded,
            };
            let expected = (looping && !seen.failed, seen.failed);
            let shown = (is_shown_looping, seen.state == State::Failed);
            check("I5", shown == expected, || {
                format!("{} is {:?}; looping {looping}, failed {}", self.name(service), seen.state, seen.failed)
            })?;
        }
        Ok(())
    }

    fn who_serves(&self) -> Vec<bool> {
        let mut serves = vec![false; self.services.len()];
        for service in self.table.providers_first() {
            let seen = &self.services[usize::from(*service)];
            let pools = self.table.pools_of(*service);
            let was_complete = self.tasks[self.table.tasks_of(*service)].iter().all(|task| task.was_up);
            serves[usize::from(*service)] = self.booted
                && !seen.failed
                && seen.conditions_unmet.is_empty()
                && was_complete
                && pools.iter().all(|pool| self.tasks[pool.clone()].iter().any(|task| task.up))
                && self.table.providers(*service).iter().all(|provider| serves[usize::from(*provider)]);
        }
        serves
    }

    fn restarts_in_window(&self, index: usize, now: Millis) -> u32 {
        let window_ms = self.table.law(index).window_ms;
        self.tasks[index].restarts.iter().filter(|at| now.saturating_sub(**at) < window_ms).count() as u32
    }

    fn restarts_of(&self, service: u16, now: Millis) -> u32 {
        self.table.tasks_of(service).map(|index| self.restarts_in_window(index, now)).sum()
    }

    /// Whether it leaves before the other in a drain.
    fn depends_on(&self, dependent: u16, provider: u16) -> bool {
        let direct = self.table.outlived_by(dependent);
        direct.contains(&provider) || direct.iter().any(|between| self.depends_on(*between, provider))
    }

    fn phase(&self, id: TaskId) -> Phase {
        self.table.plan().services[usize::from(id.service)].tasks[usize::from(id.task)].phase
    }

    fn name(&self, service: u16) -> &'static str {
        self.table.plan().services[usize::from(service)].name
    }
}

fn check(id: &'static str, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { id, detail: detail() }) }
}

#[cfg(test)]
mod tests;
