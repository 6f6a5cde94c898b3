//! The step engine: steps run in order, some beside the others; the first failure ends the run, and a table of times
//! ends its output.

use crate::ci::beside::Beside;
use crate::ci::changed::Touch;
use crate::ci::times::{StepTime, Times};
use crate::runner::Session;
use anyhow::{Context, Result};
use std::process::Command;
use std::time::Instant;

/// Output of the steps that run beside others, while they run.
const LOGS: &str = "target/ci-logs";

/// How a step stands to the steps before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After the step before it, whatever runs beside.
    InOrder,
    /// After the step before it, and after all that runs beside: it measures times.
    Alone,
    /// As a process of its own beside the steps that follow: it waits for a network, a browser or one thread.
    Beside,
}

/// One step of a longer check.
pub struct Step {
    /// How the command line names it.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Does it; an error stops the check.
    pub action: fn(&mut Session) -> Result<()>,
    /// How it stands to the others.
    pub place: Place,
    /// Which changes it can notice.
    pub touch: Touch,
}

impl Step {
    /// A step in order that every change can touch.
    pub const fn new(name: &'static str, about: &'static str, action: fn(&mut Session) -> Result<()>) -> Step {
        Step { name, about, action, place: Place::InOrder, touch: Touch::Always }
    }

    /// The same in another place.
    pub const fn at(mut self, place: Place) -> Step {
        self.place = place;
        self
    }

    /// The same for these changes only.
    pub const fn touched_by(mut self, touch: Touch) -> Step {
        self.touch = touch;
        self
    }
}

/// Makes the command that runs one step alone, for the steps that run beside others.
pub type Launch<'a> = &'a dyn Fn(&Step) -> Command;

/// Runs the steps; the last line printed on success is the total of tests.
pub fn run_steps(steps: &[&Step], session: &mut Session, launch: Launch<'_>) -> (Times, Result<()>) {
    let started = now();
    let mut beside = Beside::new(session.root.join(LOGS));
    let mut times = Times::default();
    let mut outcome = Ok(());
    for step in steps {
        if step.place == Place::Alone {
            beside.wait();
        }
        if beside.has_failed() {
            break;
        }
        println!("\n=== {}: {} ===", step.name, step.about);
        // A step that is all of the run has nothing to run beside, and is followed as it goes.
        if step.place == Place::Beside && steps.len() > 1 {
            println!("runs beside the next steps; its output follows when it has ended, and grows in {LOGS}");
            outcome = beside.start(step.name, launch(step));
        } else {
            outcome = run_one(step, session, &mut times);
        }
        if outcome.is_err() {
            break;
        }
    }
    if outcome.is_err() && !beside.has_failed() {
        beside.stop();
    }
    let (ended, failure) = beside.finish();
    // What failed beside ends the step that ran meanwhile, whose own error then says nothing.
    let outcome = failure.map_or(outcome, Err);
    for part in ended {
        session.tally += part.tally;
        times.steps.push(part);
    }
    times.wall = started.elapsed();
    println!("\n{times}\n{}", session.tally);
    (times, outcome)
}

fn run_one(step: &Step, session: &mut Session, times: &mut Times) -> Result<()> {
    let started = now();
    let (tally_before, building_before) = (session.tally, session.building);
    let outcome = (step.action)(session).with_context(|| format!("step {} failed", step.name));
    times.steps.push(StepTime {
        name: step.name.to_owned(),
        is_beside: false,
        building: session.building - building_before,
        total: started.elapsed(),
        tally: session.tally - tally_before,
        passed: outcome.is_ok(),
    });
    outcome
}

/// The time, for telling how long something took.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; the kernel's clock is not linked here")]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
