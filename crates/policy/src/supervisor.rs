//! The supervisor: one pure step from what happened to what must be done.

mod drain;
mod table;
#[cfg(test)]
mod tests;

use self::drain::Drain;
pub(crate) use self::table::{Mode, Service, StartKind, Table, Task};
use crate::mutation::Mutation;
use crate::{AbortReason, Action, Escalation, Event, ExitReason, Millis, Plan, PlanError, RestartLaw, State, TaskId};

/// Decides for every service of a plan. Equal histories of `(now, event)` give equal actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Supervisor {
    /// The plan and what follows from it; never changes.
    pub(crate) table: Table,
    seed: u64,
    /// Maximum duration of a drain, as last configured.
    drain_deadline_ms: u64,
    /// One entry per task instance, in the order of the plan.
    pub(crate) tasks: Vec<Task>,
    /// One entry per service, in the order of the plan.
    pub(crate) services: Vec<Service>,
    booted: bool,
    drain: Option<Drain>,
    finished: bool,
    mutation: Option<Mutation>,
}

/// Orders of one step, kept in the parts that are joined at its end.
#[derive(Default)]
struct Orders {
    /// Services that stop being ready, dependents first.
    losses: Vec<Action>,
    /// Orders that follow from the event and the timers.
    acts: Vec<Action>,
    /// Services that become ready, providers first.
    gains: Vec<Action>,
    starts: Vec<Action>,
}

impl Supervisor {
    /// A supervisor that has seen nothing yet. The seed draws the restart delays.
    pub fn new(plan: Plan, seed: u64) -> Result<Self, PlanError> {
        let table = Table::new(plan)?;
        Ok(Supervisor {
            seed,
            drain_deadline_ms: table.plan().drain_deadline_ms,
            tasks: vec![Task::default(); table.ids().len()],
            services: vec![Service::default(); table.plan().services.len()],
            table,
            booted: false,
            drain: None,
            finished: false,
            mutation: None,
        })
    }

    /// The supervisor with one deliberate mistake in it.
    #[cfg(feature = "mutation")]
    pub fn with_mutation(mut self, mutation: Option<Mutation>) -> Self {
        self.mutation = mutation;
        if self.is_mutated(Mutation::ProvidersStopFirst) {
            self.table.reverse_within_phases();
        }
        self
    }

    /// Takes one event and answers with what must be done, in order. Timers that are due count as fired, whatever
    /// the event, except that a beat fires none. Late and unknown events change nothing.
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Action> {
        if self.finished {
            return Vec::new();
        }
        if let (Event::Beat { task }, None) = (&event, &self.drain) {
            let task = *task;
            // A beat decides nothing: the shell hands on many at once, and none is judged by the silence of another.
            self.with_task(task, |task| task.beat(now));
            return Vec::new();
        }
        let mut orders = Orders::default();
        self.take(now, event, &mut orders.acts);
        if self.drain.is_some() {
            self.advance_drain(now, &mut orders.acts);
        }
        if self.drain.is_none() || self.is_mutated(Mutation::RestartWhileDraining) {
            self.fire_timers(now, &mut orders.acts);
            self.settle(now, &mut orders);
        }
        let Orders { mut losses, acts, gains, starts } = orders;
        losses.extend(acts);
        losses.extend(gains);
        losses.extend(starts);
        losses
    }

    /// Time at which to come back with `TimerFired` if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Millis> {
        if self.finished {
            return None;
        }
        let drain = self.drain.as_ref().map(Drain::next_wakeup);
        if drain.is_some() && !self.is_mutated(Mutation::RestartWhileDraining) {
            return drain;
        }
        let of_tasks = (0..self.tasks.len()).filter_map(|index| self.task_wakeup(index));
        let of_services = (0..self.services.len() as u16).filter_map(|service| self.service_wakeup(service));
        of_tasks.chain(of_services).chain(drain).min()
    }

    /// Plan under supervision.
    pub fn plan(&self) -> &Plan {
        self.table.plan()
    }

    /// Whether a drain was requested, or brought about by a first start that failed.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Every task instance, in the order of the plan.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.table.ids().iter().copied()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the `Stop` of the running drain step is addressed to this task.
    pub(crate) fn is_told_to_stop(&self, index: usize) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.is_current(self.table.step_of(index)))
    }

    fn is_mutated(&self, mutation: Mutation) -> bool {
        cfg!(feature = "mutation") && self.mutation == Some(mutation)
    }

    fn take(&mut self, now: Millis, event: Event, acts: &mut Vec<Action>) {
        match event {
            Event::Boot => self.boot(now),
            Event::DrainRequested => self.begin_drain(now, None, acts),
            Event::DrainDeadlineChanged { deadline_ms } => self.drain_deadline_ms = deadline_ms,
            Event::RestartRequested { service } => self.restart_service(service, acts),
            Event::DependencyChanged { service, name, met } => {
                if let Some(service) = self.services.get_mut(usize::from(service)) {
                    set_member(&mut service.conditions_unmet, name, !met);
                }
            }
            Event::Pressure { service, cause, on } => {
                if let Some(service) = self.services.get_mut(usize::from(service)) {
                    set_member(&mut service.pressure, cause, on);
                }
            }
            Event::Started { task } => self.with_task(task, |task| task.started(now)),
            Event::BootReady { task } => self.with_task(task, |task| task.boot_ready(now)),
            Event::Exited { task, reason } => self.exited(now, task, reason, acts),
            Event::Beat { .. } | Event::TimerFired | Event::PhaseDrained { .. } => {}
        }
    }

    fn with_task(&mut self, task: TaskId, change: impl FnOnce(&mut Task)) {
        if let Some(index) = self.table.find(task) {
            change(&mut self.tasks[index]);
        }
    }

    fn boot(&mut self, now: Millis) {
        if self.booted || self.drain.is_some() {
            return;
        }
        self.booted = true;
        self.services.iter_mut().for_each(|service| service.since = now);
    }

    fn exited(&mut self, now: Millis, id: TaskId, reason: ExitReason, acts: &mut Vec<Action>) {
        let Some(index) = self.table.find(id) else { return };
        let task = &mut self.tasks[index];
        let Some(mode) = task.exited(reason) else { return };
        if self.drain.is_some() && !self.is_mutated(Mutation::RestartWhileDraining) {
            return;
        }
        let task = &mut self.tasks[index];
        let is_required = self.table.plan().services[usize::from(id.service)].required;
        if mode == (Mode::Aborting { why: AbortReason::Restart }) {
            task.mode = Mode::Waiting { kind: StartKind::Operator };
        } else if let Some(code) = task.ends_process_with().filter(|_| is_required) {
            self.begin_drain(now, Some(code), acts);
        } else if task.must_not_go_on() {
            // The harm would be to this service alone: the others go on without it.
            self.fail_service(id.service);
        } else {
            self.restart_by_law(now, index, acts);
        }
    }

    fn restart_by_law(&mut self, now: Millis, index: usize, acts: &mut Vec<Action>) {
        let id = self.table.ids()[index];
        let law = self.table.law(index);
        let n = self.tasks[index].restarts_in_window(law, now);
        let of_service = self.restarts_of(id.service, now);
        if self.services[usize::from(id.service)].failed {
            self.tasks[index].mode = Mode::Failed;
        } else if law.then == Escalation::Fatal && of_service.saturating_add(1) > law.more_than {
            self.tasks[index].record_restart(law, now);
            self.fail_service(id.service);
        } else {
            let delay_ms = self.delay_ms(&law, n, id, now);
            self.tasks[index].mode = Mode::Restarting { at: now.saturating_add(delay_ms) };
            acts.push(Action::StartAfter { task: id, delay_ms });
        }
    }

    fn delay_ms(&self, law: &RestartLaw, n: u32, id: TaskId, now: Millis) -> u64 {
        let (low, high) = law.delay_window(n);
        let uncapped = law.jitter_ms.0.saturating_mul(1_u64.checked_shl(n).unwrap_or(u64::MAX));
        if self.is_mutated(Mutation::DelayCollapsesAtCap) && uncapped > low {
            return uncapped.min(high);
        }
        law.delay(n, self.seed, id, now)
    }

    /// What still runs in a failed service goes on, but the service does not serve and nothing of it is restarted.
    fn fail_service(&mut self, service: u16) {
        self.services[usize::from(service)].failed = true;
        for index in self.table.tasks_of(service) {
            let task = &mut self.tasks[index];
            if !task.is_live() {
                task.mode = Mode::Failed;
            }
        }
    }

    fn restart_service(&mut self, service: u16, acts: &mut Vec<Action>) {
        if usize::from(service) >= self.services.len() || self.drain.is_some() {
            return;
        }
        self.services[usize::from(service)].failed = false;
        for index in self.table.tasks_of(service) {
            let task = &mut self.tasks[index];
            task.restarts.clear();
            match task.mode {
                Mode::Starting | Mode::Running => {
                    task.abort(AbortReason::Restart);
                    acts.push(Action::Abort { task: self.table.ids()[index], why: AbortReason::Restart });
                }
                Mode::Aborting { .. } => task.abort(AbortReason::Restart),
                Mode::Waiting { kind: StartKind::First } => {}
                _ => task.mode = Mode::Waiting { kind: StartKind::Operator },
            }
        }
    }

    fn fire_timers(&mut self, now: Millis, acts: &mut Vec<Action>) {
        for index in 0..self.tasks.len() {
            if self.frozen_at(index).is_some_and(|at| at <= now) {
                self.tasks[index].abort(AbortReason::Frozen);
                acts.push(Action::Abort { task: self.table.ids()[index], why: AbortReason::Frozen });
                if self.is_mutated(Mutation::StartsBeforeExit) {
                    self.tasks[index].mode = Mode::Waiting { kind: StartKind::Law };
                }
            }
            if matches!(self.tasks[index].mode, Mode::Restarting { at } if at <= now) {
                self.tasks[index].mode = Mode::Waiting { kind: StartKind::Law };
            }
        }
    }

    fn task_wakeup(&self, index: usize) -> Option<Millis> {
        let task = &self.tasks[index];
        let restart = match task.mode {
            Mode::Restarting { at } => Some(at),
            _ => None,
        };
        [restart, self.frozen_at(index)].into_iter().flatten().min()
    }

    /// When a service in a crash loop will no longer be: once so many of its restarts have left the window.
    fn service_wakeup(&self, service: u16) -> Option<Millis> {
        if !matches!(self.services[usize::from(service)].state, State::Degraded | State::Unready) {
            return None;
        }
        let law = self.plan().services[usize::from(service)].law;
        let tasks = &self.tasks[self.table.tasks_of(service)];
        let mut restarts: Vec<Millis> = tasks.iter().flat_map(|task| task.restarts.iter().copied()).collect();
        restarts.sort_unstable_by(|a, b| b.cmp(a));
        restarts.get(law.more_than as usize).map(|at| at.saturating_add(law.window_ms))
    }

    fn frozen_at(&self, index: usize) -> Option<Millis> {
        let task = &self.tasks[index];
        let limit_ms = self.table.heartbeat_ms(index)?;
        (task.mode == Mode::Running).then(|| task.last_seen.saturating_add(limit_ms))
    }

    /// Draws the consequences for services: who serves, who may start, what is published.
    fn settle(&mut self, now: Millis, orders: &mut Orders) {
        self.find_who_serves();
        if self.booted && self.drain.is_none() || self.is_mutated(Mutation::RestartWhileDraining) {
            self.start_what_waits(now, &mut orders.starts);
        }
        if self.drain.is_none() {
            self.publish_changes(now, orders);
        }
    }

    fn find_who_serves(&mut self) {
        for position in 0..self.services.len() {
            let service = self.table.providers_first()[position];
            let index = usize::from(service);
            let tasks = self.table.tasks_of(service);
            let complete = self.services[index].complete || self.tasks[tasks].iter().all(|task| task.was_up);
            let own_up = complete && self.has_one_up_of_each_task(service);
            let serving = self.booted
                && own_up
                && !self.services[index].failed
                && self.services[index].conditions_unmet.is_empty()
                && self.providers_serve(service);
            let service = &mut self.services[index];
            (service.complete, service.own_up, service.serving) = (complete, own_up, serving);
        }
    }

    fn has_one_up_of_each_task(&self, service: u16) -> bool {
        self.table.pools_of(service).iter().all(|pool| self.tasks[pool.clone()].iter().any(|task| task.up))
    }

    pub(crate) fn providers_serve(&self, service: u16) -> bool {
        self.table.providers(service).iter().all(|provider| self.services[usize::from(*provider)].serving)
    }

    fn start_what_waits(&mut self, now: Millis, starts: &mut Vec<Action>) {
        for service in 0..self.services.len() as u16 {
            if self.services[usize::from(service)].failed || !self.providers_serve(service) {
                continue;
            }
            for index in self.table.tasks_of(service) {
                if let Mode::Waiting { kind } = self.tasks[index].mode {
                    self.tasks[index].start(kind, self.table.law(index), now);
                    starts.push(Action::Start { task: self.table.ids()[index] });
                }
            }
        }
    }

    fn publish_changes(&mut self, now: Millis, orders: &mut Orders) {
        let count = self.services.len();
        for position in (0..count).rev() {
            let service = self.table.providers_first()[position];
            let state = self.state_of(service, now);
            if state != State::Ready {
                self.publish(service, state, now, &mut orders.losses);
            }
        }
        for position in 0..count {
            let service = self.table.providers_first()[position];
            if self.state_of(service, now) == State::Ready {
                self.publish(service, State::Ready, now, &mut orders.gains);
            }
        }
    }

    fn publish(&mut self, service: u16, state: State, now: Millis, into: &mut Vec<Action>) {
        let entry = &mut self.services[usize::from(service)];
        if entry.state != state {
            entry.state = state;
            entry.since = now;
            into.push(Action::Publish { service, state });
        }
    }

    fn state_of(&self, service: u16, now: Millis) -> State {
        let entry = &self.services[usize::from(service)];
        let serving = entry.serving || (entry.own_up && self.is_mutated(Mutation::DependentReadyFirst));
        if entry.failed {
            State::Failed
        } else if self.restarts_of(service, now) > self.plan().services[usize::from(service)].law.more_than {
            self.plan().services[usize::from(service)].law.looping_state()
        } else if serving {
            State::Ready
        } else if entry.complete && !entry.own_up {
            State::Restarting
        } else {
            State::Starting
        }
    }

    /// Restarts of all tasks of a service in the window of its law: a pool is in a crash loop as a whole.
    fn restarts_of(&self, service: u16, now: Millis) -> u32 {
        let restarts = |index: usize| match self.is_mutated(Mutation::DegradedNeverClears) {
            true => self.tasks[index].restarts.len() as u32,
            false => self.tasks[index].restarts_in_window(self.table.law(index), now),
        };
        self.table.tasks_of(service).map(restarts).sum()
    }
}

fn set_member(set: &mut Vec<&'static str>, name: &'static str, member: bool) {
    set.retain(|other| *other != name);
    if member {
        set.push(name);
    }
}
