//! The shell as the policy sees it: virtual time, a queue of things to come, and tasks that misbehave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ron_policy::invariants::{Observer, Violation};
use ron_policy::{Action, Event, ExitReason, Millis, Phase, Plan, Supervisor, TaskId};

use crate::jobs::{Job, Jobs};
use crate::mutation::{Mutation, plant};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::{Failure, Stats, plan};

/// More than any seed needs; a run that passes it goes round in a circle.
const EVENTS_MAX: u64 = 200_000;
/// Offers of jobs that are made once the drain was requested.
const OFFERS_AFTER_DRAIN_MAX: u64 = 500;
/// The view is judged at every so many events: it is the costliest judgement.
const VIEW_EVERY: u64 = 16;
/// The first service has the intake and the workers (see `plan`).
const INTAKE: (u16, u16) = (0, 0);
const WORKERS: (u16, u16) = (0, 1);

/// Runs one seed; with a mutation, one that is expected to fail.
pub fn run_seed(seed: u64, mutation: Option<Mutation>) -> Result<Stats, Failure> {
    Shell::new(seed, mutation, Trace::new(seed, None)).run()
}

/// Runs a seed and hands every line of its trace to `sink`.
pub fn trace_seed(seed: u64, mutation: Option<Mutation>, sink: &mut dyn FnMut(&str)) -> Result<Stats, Failure> {
    Shell::new(seed, mutation, Trace::new(seed, Some(sink))).run()
}

/// Something that will happen; for a task only if it is still the same life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    Spawned { index: usize, life: u32 },
    Booted { index: usize, life: u32 },
    Beats { index: usize, life: u32 },
    Freezes { index: usize, life: u32 },
    Exits { index: usize, life: u32, how: How },
    JobOffered,
    JobDone { index: usize, life: u32, job: Job },
    OperatorRestart { service: u16 },
    Pressure { service: u16, on: bool },
    Condition { service: u16, met: bool },
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Clean,
    Error,
    Panic,
    Killed,
    Init,
    Fatal,
}

impl How {
    fn reason(self) -> ExitReason {
        match self {
            How::Clean => ExitReason::Clean,
            How::Error => ExitReason::Error("refused".to_owned()),
            How::Panic => ExitReason::Panic("boom".to_owned()),
            How::Killed => ExitReason::Killed,
            How::Init => ExitReason::Init { code: 70, detail: "port in use".to_owned() },
            How::Fatal => ExitReason::Fatal { code: 70, detail: "disk failed".to_owned() },
        }
    }
}

/// One task instance as the shell has it.
#[derive(Clone, Debug, Default)]
struct Body {
    /// Counts starts and ends: what was to come for an earlier life does not come.
    life: u32,
    starts: u32,
    alive: bool,
    up: bool,
    frozen: bool,
    told: bool,
    /// Whether the task has decided when to leave, or never to.
    leaving: bool,
    /// Whether the task crashes soon after every start.
    cursed: bool,
    job: Option<Job>,
}

struct Shell<'a> {
    seed: u64,
    now: Millis,
    rng: Rng,
    supervisor: Supervisor,
    observer: Observer,
    ids: Vec<TaskId>,
    bodies: Vec<Body>,
    coming: BinaryHeap<Reverse<(Millis, u64, Coming)>>,
    coming_count: u64,
    jobs: Jobs,
    job_every_ms: u64,
    /// Percentage of tasks that ignore the order to stop; twice as many are slow to follow it.
    rude_percent: u64,
    drain_requested: bool,
    offers_after_drain: u64,
    finished: bool,
    stats: Stats,
    trace: Trace<'a>,
}

impl<'a> Shell<'a> {
    fn new(seed: u64, mutation: Option<Mutation>, trace: Trace<'a>) -> Self {
        let mut rng = Rng::new(seed);
        let plan = plan::draw_plan(&mut rng);
        let observer = Observer::new(plan.clone()).expect("random plans are valid");
        let supervisor = plant(mutation, Supervisor::new(plan, seed).expect("random plans are valid"));
        let ids: Vec<TaskId> = supervisor.tasks().collect();
        let curse = rng.pick(&[0, 0, 10, 40]);
        let bodies = ids.iter().map(|_| Body { cursed: rng.percent(curse), ..Body::default() }).collect();
        let jobs = Jobs::new(rng.between(1, 8) as usize);
        Shell {
            seed,
            now: 0,
            supervisor,
            observer,
            bodies,
            ids,
            coming: BinaryHeap::new(),
            coming_count: 0,
            jobs,
            job_every_ms: rng.between(20, 1_000),
            rude_percent: rng.pick(&[0, 0, 5, 20]),
            drain_requested: false,
            offers_after_drain: 0,
            finished: false,
            stats: Stats { seeds: 1, ..Stats::default() },
            trace,
            rng,
        }
    }

    fn run(mut self) -> Result<Stats, Failure> {
        self.schedule_luck();
        self.feed(Event::Boot)?;
        while let Some(event_at) = self.next_time() {
            let timer = self.supervisor.next_wakeup();
            if timer.is_some_and(|at| at <= event_at) {
                // The timer of a busy shell is late now and then.
                let late_ms = if self.rng.percent(20) { self.rng.between(0, 3) } else { 0 };
                self.now = self.now.max(event_at.min(timer.unwrap_or(event_at).saturating_add(late_ms)));
                self.feed(Event::TimerFired)?;
            } else if let Some(Reverse((at, _, coming))) = self.coming.pop() {
                self.now = at;
                self.happen(coming)?;
            }
            self.check_progress()?;
            if self.finished {
                break;
            }
        }
        self.jobs.judge().map_err(|(id, detail)| self.failure(id, detail))?;
        self.observer.ended().map_err(|violation| self.violated(violation))?;
        self.stats.jobs = self.jobs.admitted() as u64;
        Ok(self.stats)
    }

    /// The earlier of the timer and what comes next.
    fn next_time(&self) -> Option<Millis> {
        let coming = self.coming.peek().map(|Reverse((at, _, _))| *at);
        match (self.supervisor.next_wakeup(), coming) {
            (Some(timer), None) => Some(timer),
            (_, coming) => coming,
        }
    }

    fn check_progress(&self) -> Result<(), Failure> {
        if self.supervisor.next_wakeup().is_some_and(|at| at <= self.now) {
            return Err(self.failure("W1", "a timer that is due was left".to_owned()));
        }
        if self.stats.events > EVENTS_MAX {
            return Err(self.failure("W1", format!("no end after {EVENTS_MAX} events")));
        }
        Ok(())
    }

    fn failure(&self, id: &'static str, detail: String) -> Failure {
        Failure { seed: self.seed, at_ms: self.now, id, detail }
    }

    fn violated(&self, violation: Violation) -> Failure {
        self.failure(violation.id, violation.detail)
    }

    fn plan(&self) -> &Plan {
        self.supervisor.plan()
    }

    fn after(&mut self, delay_ms: u64, coming: Coming) {
        self.coming_count += 1;
        self.coming.push(Reverse((self.now + delay_ms, self.coming_count, coming)));
    }

    /// Schedules the faults from outside and the order to leave.
    fn schedule_luck(&mut self) {
        let horizon_ms = self.rng.pick(&[500, 5_000, 15_000, 30_000]);
        let drain_at = if self.rng.percent(80) { self.rng.between(0, horizon_ms) } else { horizon_ms };
        self.after(drain_at, Coming::Drain);
        let services = self.plan().services.len() as u64;
        for _ in 0..self.rng.between(0, 4) {
            let at = self.rng.between(0, horizon_ms);
            let service = self.rng.between(0, services - 1) as u16;
            let back_at = at + self.rng.between(1, 3_000);
            match self.rng.between(0, 2) {
                0 => self.after(at, Coming::OperatorRestart { service }),
                1 => {
                    self.after(at, Coming::Pressure { service, on: true });
                    self.after(back_at, Coming::Pressure { service, on: false });
                }
                _ => {
                    self.after(at, Coming::Condition { service, met: false });
                    self.after(back_at, Coming::Condition { service, met: true });
                }
            }
        }
        self.after(self.job_every_ms, Coming::JobOffered);
    }

    /// Gives the policy an event, judges its answer, and does as it says.
    fn feed(&mut self, event: Event) -> Result<(), Failure> {
        self.stats.events += 1;
        let actions = self.supervisor.step(self.now, event.clone());
        self.trace.event(self.now, self.supervisor.plan(), &event, &actions);
        self.observer.observe(self.now, &event, &actions).map_err(|violation| self.violated(violation))?;
        if self.stats.events.is_multiple_of(VIEW_EVERY) {
            let view = self.supervisor.node_view(self.now);
            self.observer.observe_view(&view).map_err(|violation| self.violated(violation))?;
        }
        for action in actions {
            self.perform(action);
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start { task } => self.start(self.index(task)),
            Action::Abort { task, .. } => self.abort(self.index(task)),
            Action::StopPhase { phase, services, .. } => self.stop(phase, &services),
            Action::Finish { .. } => {
                self.finished = true;
                self.stats.drains += 1;
                self.jobs.close();
            }
            Action::StartAfter { .. } | Action::Publish { .. } | Action::Straggler { .. } => {}
        }
    }

    fn index(&self, task: TaskId) -> usize {
        self.ids.binary_search(&task).expect("the policy names tasks of its plan")
    }

    fn start(&mut self, index: usize) {
        let body = &mut self.bodies[index];
        self.stats.restarts += u64::from(body.starts > 0);
        let Body { starts, life, cursed, .. } = *body;
        *body = Body { life: life + 1, starts: starts + 1, alive: true, cursed, ..Body::default() };
        let delay_ms = self.rng.between(0, 10);
        self.after(delay_ms, Coming::Spawned { index, life: life + 1 });
    }

    fn spawned(&mut self, index: usize, life: u32) {
        let first = self.bodies[index].starts == 1;
        if first && self.rng.draw().is_multiple_of(400) {
            let delay_ms = self.rng.between(0, 100);
            self.after(delay_ms, Coming::Exits { index, life, how: How::Init });
            return;
        }
        let boot_ms = self.rng.between(0, 200);
        self.after(boot_ms, Coming::Booted { index, life });
        if self.rng.draw().is_multiple_of(400) {
            let life_ms = self.rng.between(0, 20_000);
            self.after(life_ms, Coming::Exits { index, life, how: How::Fatal });
        }
        let doomed = if self.bodies[index].cursed { 90 } else { 15 };
        if self.rng.percent(doomed) {
            let life_ms =
                if self.bodies[index].cursed { self.rng.between(0, 400) } else { self.rng.between(0, 20_000) };
            let how = self.rng.pick(&[How::Clean, How::Error, How::Panic, How::Panic, How::Killed, How::Init]);
            self.after(life_ms, Coming::Exits { index, life, how });
        } else if self.rng.percent(10) {
            let life_ms = self.rng.between(0, 20_000);
            self.after(life_ms, Coming::Freezes { index, life });
        }
        self.beat_later(index, life);
    }

    fn heartbeat_ms(&self, index: usize) -> Option<u64> {
        let id = self.ids[index];
        self.plan().services[usize::from(id.service)].tasks[usize::from(id.task)].heartbeat_ms
    }

    fn beat_later(&mut self, index: usize, life: u32) {
        if let Some(heartbeat_ms) = self.heartbeat_ms(index) {
            self.after(heartbeat_ms * 2 / 3, Coming::Beats { index, life });
        }
    }

    /// Most leave soon, some late, a few never.
    fn stop(&mut self, phase: Phase, services: &[u16]) {
        for index in 0..self.ids.len() {
            let id = self.ids[index];
            let task_phase = self.plan().services[usize::from(id.service)].tasks[usize::from(id.task)].phase;
            if task_phase == phase && services.contains(&id.service) && self.bodies[index].alive {
                self.bodies[index].told = true;
                if !self.is_worker(index) {
                    self.leave_later(index);
                } else {
                    self.work(index);
                }
            }
        }
    }

    fn leave_later(&mut self, index: usize) {
        let life = self.bodies[index].life;
        if std::mem::replace(&mut self.bodies[index].leaving, true) {
            return;
        }
        if self.bodies[index].frozen || self.rng.percent(self.rude_percent) {
            return;
        }
        let delay_ms =
            if self.rng.percent(2 * self.rude_percent) { self.rng.between(0, 4_000) } else { self.rng.between(0, 60) };
        self.after(delay_ms, Coming::Exits { index, life, how: How::Clean });
    }

    /// An aborted task does nothing more; a few never report it.
    fn abort(&mut self, index: usize) {
        self.stats.aborts += 1;
        let Some(life) = self.end_work(index) else { return };
        if !self.rng.percent(4) {
            let delay_ms = self.rng.between(0, 30);
            self.after(delay_ms, Coming::Exits { index, life, how: How::Killed });
        }
    }

    /// The job in its hands is answered as it goes down. Gives the number of the life that is left, if it has one.
    fn end_work(&mut self, index: usize) -> Option<u32> {
        let body = &mut self.bodies[index];
        body.up = false;
        body.frozen = true;
        let alive = body.alive;
        body.life += u32::from(alive);
        let life = body.life;
        if let Some(job) = body.job.take() {
            self.jobs.answer(job);
        }
        alive.then_some(life)
    }

    fn happen(&mut self, coming: Coming) -> Result<(), Failure> {
        if self.is_past_life(coming) {
            return Ok(());
        }
        match coming {
            Coming::Spawned { index, life } => {
                self.spawned(index, life);
                self.feed(Event::Started { task: self.ids[index] })
            }
            Coming::Booted { index, .. } => {
                self.bodies[index].up = !self.bodies[index].frozen;
                self.work(index);
                if self.bodies[index].up { self.feed(Event::BootReady { task: self.ids[index] }) } else { Ok(()) }
            }
            Coming::Beats { index, life } => {
                if self.bodies[index].frozen || self.drain_requested {
                    return Ok(());
                }
                self.beat_later(index, life);
                self.feed(Event::Beat { task: self.ids[index] })
            }
            Coming::Freezes { index, .. } => {
                self.bodies[index].frozen = true;
                Ok(())
            }
            Coming::Exits { index, how, .. } => self.exits(index, how),
            Coming::JobOffered => self.job_offered(),
            Coming::JobDone { index, job, .. } => {
                self.job_done(index, job);
                Ok(())
            }
            Coming::OperatorRestart { service } => self.feed(Event::RestartRequested { service }),
            Coming::Pressure { service, on } => self.feed(Event::Pressure { service, cause: "queue", on }),
            Coming::Condition { service, met } => self.feed(Event::DependencyChanged { service, name: "outside", met }),
            Coming::Drain => {
                self.drain_requested = true;
                self.feed(Event::DrainRequested)
            }
        }
    }

    fn is_past_life(&self, coming: Coming) -> bool {
        match coming {
            Coming::Spawned { index, life }
            | Coming::Booted { index, life }
            | Coming::Beats { index, life }
            | Coming::Freezes { index, life }
            | Coming::Exits { index, life, .. }
            | Coming::JobDone { index, life, .. } => self.bodies[index].life != life,
            _ => false,
        }
    }

    fn exits(&mut self, index: usize, how: How) -> Result<(), Failure> {
        if self.bodies[index].told && self.is_worker(index) && how == How::Clean && self.jobs.is_empty() {
            self.jobs.worker_left();
        }
        self.end_work(index);
        self.bodies[index].alive = false;
        self.feed(Event::Exited { task: self.ids[index], reason: how.reason() })
    }

    fn is_worker(&self, index: usize) -> bool {
        (self.ids[index].service, self.ids[index].task) == WORKERS
    }

    fn job_offered(&mut self) -> Result<(), Failure> {
        let takes_in =
            |(id, body): (&TaskId, &Body)| (id.service, id.task) == INTAKE && body.up && !body.told && !body.frozen;
        if let Some(intake) = self.ids.iter().zip(&self.bodies).position(takes_in) {
            let offered = self.jobs.offer().map_err(|(id, detail)| self.failure(id, detail))?;
            let what = || offered.map_or_else(|| "busy".to_owned(), |job| format!("{job} admitted"));
            self.trace.job(self.now, self.supervisor.plan(), self.ids[intake], what);
        }
        for index in 0..self.ids.len() {
            self.work(index);
        }
        // Offers go on in a drain, but not for ever: a run whose end is never announced must end, to be judged.
        self.offers_after_drain += u64::from(self.drain_requested);
        if self.offers_after_drain < OFFERS_AFTER_DRAIN_MAX {
            let delay_ms = self.rng.between(1, 2 * self.job_every_ms);
            self.after(delay_ms, Coming::JobOffered);
        }
        Ok(())
    }

    /// A worker with free hands takes the next job; told to stop, it leaves when there is none.
    fn work(&mut self, index: usize) {
        let body = &self.bodies[index];
        if !self.is_worker(index) || !body.alive || body.frozen || body.job.is_some() {
            return;
        }
        let life = body.life;
        if body.told && (self.jobs.is_empty() || !body.up) {
            self.leave_later(index);
        } else if body.up
            && let Some(job) = self.jobs.take()
        {
            self.bodies[index].job = Some(job);
            let delay_ms = self.rng.between(1, 300);
            self.after(delay_ms, Coming::JobDone { index, life, job });
            self.trace.job(self.now, self.supervisor.plan(), self.ids[index], || format!("{job} taken"));
        }
    }

    fn job_done(&mut self, index: usize, job: Job) {
        if self.bodies[index].frozen {
            return;
        }
        self.bodies[index].job = None;
        self.jobs.answer(job);
        self.trace.job(self.now, self.supervisor.plan(), self.ids[index], || format!("{job} answered"));
        self.work(index);
    }
}
