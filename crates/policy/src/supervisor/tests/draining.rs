//! The drain: order, deadlines, and an end that always comes.

use super::*;
use crate::AbortReason;

fn stop(phase: Phase, services: &[u16], deadline: Millis) -> Action {
    Action::StopPhase { phase, services: services.to_vec(), deadline }
}

fn leave(task: TaskId) -> Event {
    Event::Exited { task, reason: ExitReason::Clean }
}

fn abort(task: TaskId) -> Action {
    Action::Abort { task, why: AbortReason::DrainDeadline }
}

fn all(services: &[u16], state: State) -> Vec<Action> {
    services.iter().map(|service| publish(*service, state)).collect()
}

/// log: flush; queue on log: intake, work; api on queue: intake.
fn three() -> Plan {
    plan(vec![
        service("log", &[], &[Phase::Work, Phase::Flush]),
        service("queue", &["log"], &[Phase::Intake, Phase::Work]),
        service("api", &["queue"], &[Phase::Intake]),
    ])
}

#[test]
fn steps_follow_phases_and_then_the_graph_reversed() {
    let mut driven = DrivenSupervisor::ready(three());
    let mut expected = all(&[2, 1, 0], State::Draining);
    expected.push(stop(Phase::Intake, &[2], 3_250));
    assert_eq!(driven.step(Event::DrainRequested), expected);
    assert_eq!(driven.step(Event::DrainRequested), [], "asking again changes nothing");
    assert_eq!(driven.step(Event::PhaseDrained { phase: Phase::Intake }), [], "exits decide");
    assert_eq!(driven.at(1_100).step(leave(id(2, 0, 0))), [stop(Phase::Intake, &[1], 3_250)]);
    assert_eq!(driven.step(leave(id(1, 0, 0))), [stop(Phase::Work, &[1], 3_700)]);
    assert_eq!(driven.step(leave(id(1, 1, 0))), [stop(Phase::Work, &[0], 3_700)]);
    assert_eq!(driven.step(leave(id(0, 0, 0))), [stop(Phase::Flush, &[0], 3_910)]);
    let mut expected = all(&[2, 1, 0], State::Stopped);
    expected.push(Action::Finish { code: 0 });
    assert_eq!(driven.step(leave(id(0, 1, 0))), expected);
    assert_eq!(driven.step(Event::DrainRequested), [], "nothing follows the end");
    assert_eq!(driven.supervisor.next_wakeup(), None);
}

#[test]
fn the_drain_takes_the_very_steps_of_the_rehearsal() {
    let mut driven = DrivenSupervisor::ready(three());
    let mut taken = Vec::new();
    let mut actions = driven.step(Event::DrainRequested);
    while let Some(Action::StopPhase { phase, services, deadline }) =
        actions.iter().find(|action| matches!(action, Action::StopPhase { .. })).cloned()
    {
        let names: Vec<&str> = services.iter().map(|index| three().services[usize::from(*index)].name).collect();
        taken.push((phase, names, deadline - 1_000));
        let leaves = |task: &TaskId| {
            services.contains(&task.service)
                && three().services[usize::from(task.service)].tasks[usize::from(task.task)].phase == phase
        };
        let tasks: Vec<TaskId> = driven.supervisor.tasks().filter(leaves).collect();
        actions.clear();
        for task in &tasks {
            actions.extend(driven.step(leave(*task)));
        }
    }
    let rehearsed: Vec<_> =
        crate::drain_plan(&three()).into_iter().map(|step| (step.phase, step.services, step.deadline_ms)).collect();
    assert_eq!(taken, rehearsed);
}

#[test]
fn tasks_that_stay_are_named_each_second_then_aborted_and_the_code_says_so() {
    let mut driven = DrivenSupervisor::ready(three());
    driven.step(Event::DrainRequested);
    let straggler = Action::Straggler { task: id(2, 0, 0) };
    assert_eq!((driven.wake(), driven.now), (vec![straggler.clone()], 2_000));
    assert_eq!((driven.wake(), driven.now), (vec![straggler], 3_000));
    // The queue is told later than the end of its own phase: it has the time of the next one.
    assert_eq!((driven.wake(), driven.now), (vec![abort(id(2, 0, 0)), stop(Phase::Intake, &[1], 3_700)], 3_250));
    assert_eq!(driven.step(leave(id(2, 0, 0))), [], "the exit of an aborted task is late");
    assert_eq!(driven.step(leave(id(1, 0, 0))), [stop(Phase::Work, &[1], 3_700)]);
    assert_eq!((driven.wake(), driven.now), (vec![abort(id(1, 1, 0)), stop(Phase::Work, &[0], 3_910)], 3_700));
    assert_eq!((driven.wake(), driven.now), (vec![abort(id(0, 0, 0)), stop(Phase::Flush, &[0], 4_000)], 3_910));
    let actions = driven.step(leave(id(0, 1, 0)));
    assert_eq!(actions.last(), Some(&Action::Finish { code: 75 }));
}

#[test]
fn a_wakeup_that_comes_far_too_late_ends_everything_in_one_step() {
    let mut driven = DrivenSupervisor::ready(three());
    driven.step(Event::DrainRequested);
    let actions = driven.at(1_000_000).step(Event::TimerFired);
    let aborts = actions.iter().filter(|action| matches!(action, Action::Abort { .. })).count();
    assert_eq!(aborts, 5);
    assert_eq!(actions.last(), Some(&Action::Finish { code: 75 }));
}

#[test]
fn pending_restarts_are_dropped_and_exits_are_final() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[]), worker("b", &[])]));
    driven.step(panic_of(main_of(0)));
    let restart_at = driven.supervisor.next_wakeup().unwrap();
    assert_eq!(driven.step(Event::DrainRequested).last(), Some(&stop(Phase::Work, &[1], 3_700)));
    assert_eq!(driven.at(restart_at).step(Event::TimerFired), []);
    assert_eq!(driven.step(Event::RestartRequested { service: 0 }), []);
    assert_eq!(driven.step(panic_of(main_of(1))).last(), Some(&Action::Finish { code: 0 }));
}

#[test]
fn a_drain_may_come_at_any_time() {
    let mut unborn = DrivenSupervisor::new(three());
    let mut expected = all(&[2, 1, 0], State::Draining);
    expected.extend(all(&[2, 1, 0], State::Stopped));
    expected.push(Action::Finish { code: 0 });
    assert_eq!(unborn.step(Event::DrainRequested), expected);
    assert_eq!(unborn.step(Event::Boot), []);

    let mut booting = DrivenSupervisor::new(three());
    booting.step(Event::Boot);
    assert_eq!(booting.step(Event::DrainRequested).last(), Some(&stop(Phase::Work, &[0], 3_700)));
    assert_eq!(booting.step(Event::BootReady { task: id(0, 0, 0) }), [], "a start that was under way");
    assert_eq!(booting.step(leave(id(0, 0, 0))), [stop(Phase::Flush, &[0], 3_910)]);
    assert_eq!(booting.step(leave(id(0, 1, 0))).last(), Some(&Action::Finish { code: 0 }));
}

#[test]
fn no_heartbeat_is_missed_while_draining() {
    let mut beating = worker("a", &[]);
    beating.tasks[0].heartbeat_ms = Some(200);
    let mut driven = DrivenSupervisor::ready(plan(vec![beating]));
    driven.step(Event::DrainRequested);
    assert_eq!(driven.at(1_900).step(Event::TimerFired), []);
}

#[test]
fn a_task_that_is_being_aborted_is_waited_for_like_any_other() {
    let mut beating = worker("a", &[]);
    beating.tasks[0].heartbeat_ms = Some(200);
    let mut driven = DrivenSupervisor::ready(plan(vec![beating]));
    driven.wake();
    assert_eq!(driven.step(Event::DrainRequested).last(), Some(&stop(Phase::Work, &[0], driven.now + 2_700)));
    assert_eq!(driven.step(leave(main_of(0))).last(), Some(&Action::Finish { code: 0 }));
}

#[test]
fn no_time_at_all_is_still_an_end() {
    let mut driven = DrivenSupervisor::ready(Plan { drain_deadline_ms: 0, ..three() });
    assert_eq!(driven.step(Event::DrainRequested).last(), Some(&Action::Finish { code: 75 }));
}

#[test]
fn a_drain_has_the_time_that_was_configured_when_it_was_requested() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
    let begun = driven.now;
    assert_eq!(driven.step(Event::DrainDeadlineChanged { deadline_ms: 10_000 }), []);
    let actions = driven.step(Event::DrainRequested);
    assert_eq!(actions.last(), Some(&stop(Phase::Work, &[0], begun + 9_000)));
    assert_eq!(driven.step(Event::DrainDeadlineChanged { deadline_ms: 100 }), [], "too late for this one");
    assert_eq!(driven.wake(), [Action::Straggler { task: main_of(0) }]);
    driven.now = begun + 9_000;
    assert!(driven.step(Event::TimerFired).contains(&abort(main_of(0))));
}
