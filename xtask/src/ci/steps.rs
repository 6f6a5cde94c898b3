//! The step engine: run in order, time each, stop at the first failure, end with a table and the test totals.

use crate::runner::Session;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// One step of a longer check.
pub struct Step {
    /// How the command line names it.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Does it; an error stops the check.
    pub action: fn(&mut Session) -> Result<()>,
}

/// Runs the steps; the last line printed on success is the total of tests.
pub fn run_steps(steps: &[Step], session: &mut Session) -> Result<()> {
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for step in steps {
        println!("\n=== {}: {} ===", step.name, step.about);
        let started = now();
        outcome = (step.action)(session).with_context(|| format!("step {} failed", step.name));
        times.push((step.name, started.elapsed()));
        if outcome.is_err() {
            break;
        }
    }
    println!("\n{}\n{}", table(&times, outcome.is_ok()), session.tally);
    outcome
}

/// The time, for telling how long something took.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; the kernel's clock is not linked here")]
pub fn now() -> Instant {
    Instant::now()
}

fn table(times: &[(&str, Duration)], is_ok: bool) -> String {
    let mut lines = vec![format!("{:<16}{:>9}", "step", "seconds")];
    for (index, (name, time)) in times.iter().enumerate() {
        let mark = if index + 1 == times.len() && !is_ok { "  FAILED" } else { "" };
        lines.push(format!("{name:<16}{:>9.1}{mark}", time.as_secs_f64()));
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    lines.push(format!("{:<16}{:>9.1}", "total", total.as_secs_f64()));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    fn pass_one(session: &mut Session) -> Result<()> {
        session.tally.passed += 1;
        Ok(())
    }

    #[test]
    fn the_first_failure_stops_the_check_and_is_named() {
        let steps = [
            Step { name: "good", about: "", action: pass_one },
            Step { name: "bad", about: "", action: |_| anyhow::bail!("broken") },
            Step { name: "never", about: "", action: pass_one },
        ];
        let mut session = Session { root: std::env::temp_dir(), tally: Tally::default() };
        let error = run_steps(&steps, &mut session).expect_err("the second step fails");
        assert_eq!(format!("{error:#}"), "step bad failed: broken");
        assert_eq!(session.tally.passed, 1);
    }

    #[test]
    fn the_table_adds_up() {
        let times = [("fmt", Duration::from_millis(1500)), ("test", Duration::from_secs(60))];
        let expected = "step              seconds\nfmt                   1.5\ntest                 60.0  FAILED\ntotal                61.5";
        assert_eq!(table(&times, false), expected);
        assert!(!table(&times, true).contains("FAILED"));
    }
}
