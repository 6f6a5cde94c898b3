//! The engine on scripted steps: a failure anywhere ends the check and is named.

use super::*;
use crate::runner::CommandLine;

/// Long against anything these tests wait for: a step that is not ended would show.
const FOREVER: &str = "sleep 600";

fn pass_one(session: &mut Session) -> Result<()> {
    session.tally.passed += 1;
    Ok(())
}

fn fail(_: &mut Session) -> Result<()> {
    anyhow::bail!("broken")
}

fn last_forever(session: &mut Session) -> Result<()> {
    session.run(&CommandLine::new(FOREVER))
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A program that ends as a step beside others does.
const COUNTED: &str = "echo counts of this step: 2 0 0 0 0";

const GOOD: Step = Step::new("good", "", pass_one);
const BAD: Step = Step::new("bad", "", fail);
const ENDLESS: Step = Step::new("endless", "", last_forever);
const ALONE: Step = Step::new("alone", "", pass_one).at(Place::Alone);
const FIRST_BESIDE: Step = Step::new("first-beside", "", fail).at(Place::Beside);
const SECOND_BESIDE: Step = Step::new("second-beside", "", fail).at(Place::Beside);

/// Runs the steps; the ones beside are the two scripts.
fn run(steps: &[&Step], first: &str, second: &str) -> (Session, Times, Result<()>) {
    let mut session = Session::of_a_test();
    let launch = |step: &Step| shell(if step.name == "first-beside" { first } else { second });
    let (times, outcome) = run_steps(steps, &mut session, &launch);
    (session, times, outcome)
}

fn names(times: &Times) -> Vec<(&str, bool)> {
    times.steps.iter().map(|step| (step.name.as_str(), step.passed)).collect()
}

#[test]
fn the_first_failure_stops_the_check_and_is_named() {
    let (session, times, outcome) = run(&[&GOOD, &BAD, &GOOD], "", "");
    assert_eq!(format!("{:#}", outcome.expect_err("the second step fails")), "step bad failed: broken");
    assert_eq!(session.tally.passed, 1);
    assert_eq!(names(&times), [("good", true), ("bad", false)]);
}

/// A failure at every place of the list, each by itself: none of them may pass unseen.
#[test]
fn a_planted_failure_in_any_step_fails_the_check() {
    let all: [&Step; 5] = [&FIRST_BESIDE, &GOOD, &SECOND_BESIDE, &ALONE, &GOOD];
    let (session, _, outcome) = run(&all, COUNTED, COUNTED);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(session.tally.passed, 7, "tests of the steps beside count");
    for planted in 0..all.len() {
        let mut steps = all;
        let (mut first, mut second) = (COUNTED, COUNTED);
        match planted {
            0 => first = "exit 1",
            2 => second = "exit 1",
            _ => steps[planted] = &BAD,
        }
        let (_, times, outcome) = run(&steps, first, second);
        let message = format!("{:#}", outcome.expect_err("a failure is planted"));
        let name = steps[planted].name;
        assert!(message.contains(&format!("step {name} failed")), "{planted}: {message}");
        assert!(names(&times).contains(&(name, false)), "{planted}: {times}");
    }
}

#[test]
fn a_step_beside_that_does_not_come_to_its_counts_has_failed() {
    let (_, times, outcome) = run(&[&FIRST_BESIDE, &GOOD], "exit 0", "");
    let message = format!("{:#}", outcome.expect_err("nothing was counted"));
    assert!(message.contains("step first-beside failed"), "{message}");
    assert!(names(&times).contains(&("first-beside", false)), "{times}");
}

#[test]
fn a_failure_beside_ends_the_step_that_runs_meanwhile_and_is_the_one_that_is_named() {
    let (_, times, outcome) = run(&[&FIRST_BESIDE, &ENDLESS, &GOOD], "exit 3", "");
    let message = format!("{:#}", outcome.expect_err("the step beside fails"));
    assert!(message.contains("step first-beside failed") && !message.contains("endless"), "{message}");
    assert_eq!(names(&times), [("endless", false), ("first-beside", false)]);
}

#[test]
fn a_failure_in_order_ends_what_runs_beside() {
    let (_, times, outcome) = run(&[&FIRST_BESIDE, &BAD], FOREVER, "");
    assert_eq!(format!("{:#}", outcome.expect_err("the step fails")), "step bad failed: broken");
    assert_eq!(names(&times), [("bad", false), ("first-beside", false)]);
}

#[test]
fn a_step_that_runs_alone_waits_for_those_beside() {
    let file = std::env::temp_dir().join(format!("xtask-alone-{}", std::process::id()));
    let script = format!("sleep 0.3; echo done > {}; {COUNTED}", file.display());
    fn looks(session: &mut Session) -> Result<()> {
        let file = std::env::temp_dir().join(format!("xtask-alone-{}", std::process::id()));
        session.run(&CommandLine::new("test -f").arg(&file.display().to_string()))
    }
    let alone = Step::new("alone", "", looks).at(Place::Alone);
    let (_, _, outcome) = run(&[&FIRST_BESIDE, &alone], &script, "");
    assert!(outcome.is_ok(), "{outcome:?}");
    std::fs::remove_file(file).expect("it was written");
}
