//! The drain: steps in order, each with a deadline, and an end that always comes.

use super::{Mode, Supervisor};
use crate::drain_plan::phase_end_ms;
use crate::mutation::Mutation;
use crate::{AbortReason, Action, Millis, Phase, State};

/// Interval, in milliseconds, at which a task that does not leave is named.
const STRAGGLER_EVERY_MS: u64 = 1_000;
/// The exit code of a drain that had to abort tasks.
const EXIT_DRAINED_WITH_ABORTS: u8 = 75;

/// State of a drain under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    requested_at: Millis,
    /// Maximum duration, as configured when it was requested.
    total_ms: u64,
    /// The code of the first start whose failure brought it about.
    init_code: Option<u8>,
    aborted: u32,
    /// The step that was told to stop last.
    current: Option<usize>,
    deadline: Millis,
    straggler_at: Millis,
}

impl Drain {
    pub(super) fn next_wakeup(&self) -> Millis {
        self.deadline.min(self.straggler_at)
    }

    pub(super) fn is_current(&self, step: usize) -> bool {
        self.current == Some(step)
    }
}

impl Supervisor {
    pub(super) fn begin_drain(&mut self, now: Millis, init_code: Option<u8>, acts: &mut Vec<Action>) {
        if self.drain.is_some() {
            return;
        }
        self.publish_to_all(State::Draining, now, acts);
        if !self.is_mutated(Mutation::RestartWhileDraining) {
            self.tasks.iter_mut().filter(|task| !task.is_live()).for_each(|task| task.mode = Mode::Stopped);
        }
        self.services.iter_mut().for_each(|service| service.serving = false);
        self.drain = Some(Drain {
            requested_at: now,
            total_ms: self.drain_deadline_ms,
            init_code,
            aborted: 0,
            current: None,
            deadline: now,
            straggler_at: now,
        });
    }

    /// Goes on to the next step as often as the current one has nothing left, and finishes after the last.
    pub(super) fn advance_drain(&mut self, now: Millis, acts: &mut Vec<Action>) {
        while let Some(mut drain) = self.drain.take() {
            if let Some(step) = drain.current
                && self.has_live_tasks(step)
            {
                if now < drain.deadline {
                    self.name_stragglers(&mut drain, step, now, acts);
                    self.drain = Some(drain);
                    return;
                }
                self.abort_step(&mut drain, step, acts);
            }
            let next = (0..self.table.steps().len()).find(|step| self.has_live_tasks(*step));
            if let Some(step) = next {
                self.stop_step(&mut drain, step, now, acts);
            }
            let code = drain.init_code.unwrap_or(if drain.aborted > 0 { EXIT_DRAINED_WITH_ABORTS } else { 0 });
            let forgets = drain.aborted > 0 && self.is_mutated(Mutation::ForgetsToFinish);
            self.drain = Some(drain);
            if next.is_none() {
                self.finish(code, forgets, now, acts);
                return;
            }
        }
    }

    fn finish(&mut self, code: u8, forgets: bool, now: Millis, acts: &mut Vec<Action>) {
        self.finished = true;
        self.publish_to_all(State::Stopped, now, acts);
        if !forgets {
            acts.push(Action::Finish { code });
        }
    }

    fn stop_step(&mut self, drain: &mut Drain, step: usize, now: Millis, acts: &mut Vec<Action>) {
        let phase = self.table.steps()[step].phase;
        drain.current = Some(step);
        drain.deadline = self.deadline_of(drain, phase, now);
        drain.straggler_at = now.saturating_add(STRAGGLER_EVERY_MS);
        if phase == Phase::Flush && self.is_mutated(Mutation::LostShutdown) {
            return;
        }
        let is_live = |service: &u16| {
            self.table.tasks_of(*service).any(|index| self.table.step_of(index) == step && self.tasks[index].is_live())
        };
        let services = self.table.steps()[step].services.iter().copied().filter(is_live).collect();
        acts.push(Action::StopPhase { phase, services, deadline: drain.deadline });
    }

    /// The end of its phase; or of the next phase that is not over, for tasks that are told later than that: nobody
    /// is aborted without having been told, as long as there is time at all.
    fn deadline_of(&self, drain: &Drain, phase: Phase, now: Millis) -> Millis {
        let end_of = |phase: Phase| drain.requested_at.saturating_add(phase_end_ms(drain.total_ms, phase));
        let later = Phase::ALL.into_iter().filter(|other| *other >= phase).map(end_of).find(|end| *end > now);
        later.unwrap_or_else(|| end_of(Phase::Observe))
    }

    fn has_live_tasks(&self, step: usize) -> bool {
        self.live_tasks(step).next().is_some()
    }

    fn live_tasks(&self, step: usize) -> impl Iterator<Item = usize> {
        (0..self.tasks.len()).filter(move |index| self.table.step_of(*index) == step && self.tasks[*index].is_live())
    }

    fn name_stragglers(&self, drain: &mut Drain, step: usize, now: Millis, acts: &mut Vec<Action>) {
        if now < drain.straggler_at {
            return;
        }
        acts.extend(self.live_tasks(step).map(|index| Action::Straggler { task: self.table.ids()[index] }));
        let seconds_passed = (now - drain.straggler_at) / STRAGGLER_EVERY_MS + 1;
        drain.straggler_at += seconds_passed * STRAGGLER_EVERY_MS;
    }

    /// The drain does not wait for the exits of what it aborts: a task that blocks its thread never reports one.
    fn abort_step(&mut self, drain: &mut Drain, step: usize, acts: &mut Vec<Action>) {
        for index in 0..self.tasks.len() {
            if self.table.step_of(index) == step && self.tasks[index].is_live() {
                self.tasks[index].mode = Mode::Stopped;
                self.tasks[index].up = false;
                drain.aborted += 1;
                acts.push(Action::Abort { task: self.table.ids()[index], why: AbortReason::DrainDeadline });
            }
        }
    }

    fn publish_to_all(&mut self, state: State, now: Millis, acts: &mut Vec<Action>) {
        for position in (0..self.services.len()).rev() {
            let service = self.table.providers_first()[position];
            self.publish(service, state, now, acts);
        }
    }
}
