//! The restart law, crash loops, freezes, first starts that fail, and the operator.

use super::*;
use crate::{AbortReason, Escalation};

fn with_law(then: Escalation, more_than: u32) -> ServicePlan {
    let law = RestartLaw { more_than, then, ..RestartLaw::MACRONODE };
    ServicePlan { law, ..worker("a", &[]) }
}

fn delay_in(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::StartAfter { delay_ms, .. } => Some(*delay_ms),
        _ => None,
    })
}

#[test]
fn every_kind_of_exit_is_restarted() {
    let reasons = [
        ExitReason::Clean,
        ExitReason::Error("x".to_owned()),
        ExitReason::Panic("x".to_owned()),
        ExitReason::Killed,
        ExitReason::Frozen,
        ExitReason::Init { code: 70, detail: "x".to_owned() },
    ];
    for reason in reasons {
        let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
        let actions = driven.step(Event::Exited { task: main_of(0), reason: reason.clone() });
        let delay = delay_in(&actions).unwrap_or_else(|| panic!("{reason:?} is not restarted"));
        assert!((100..=500).contains(&delay), "{reason:?}: {delay}");
        assert_eq!(driven.supervisor.next_wakeup(), Some(driven.now + delay));
        assert_eq!(driven.wake(), [start(main_of(0))], "{reason:?}");
        assert_eq!(driven.up(main_of(0)), [publish(0, State::Ready)]);
    }
}

#[test]
fn delays_double_and_the_sixth_restart_degrades_until_the_window_says_otherwise() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
    let mut restarts = Vec::new();
    for n in 0..6 {
        assert_ne!(driven.state(0), State::Degraded, "n = {n}");
        let delay = delay_in(&driven.step(panic_of(main_of(0)))).unwrap();
        let (low, high) = RestartLaw::MACRONODE.delay_window(n);
        assert!((low..=high).contains(&delay), "n = {n}: {delay}");
        driven.wake();
        restarts.push(driven.now);
        driven.up(main_of(0));
    }
    assert_eq!(driven.state(0), State::Degraded);
    assert_eq!(driven.supervisor.next_wakeup(), Some(restarts[0] + 60_000));
    assert_eq!(driven.at(restarts[0] + 59_999).step(Event::TimerFired), []);
    assert_eq!(driven.wake(), [publish(0, State::Ready)]);
    assert_eq!(driven.supervisor.next_wakeup(), None);
}

#[test]
fn a_pool_is_in_a_crash_loop_as_a_whole() {
    let mut pool = with_law(Escalation::Degraded, 2);
    pool.tasks[0].instances = 3;
    let mut driven = DrivenSupervisor::ready(plan(vec![pool]));
    for instance in [0, 1] {
        driven.step(panic_of(id(0, 0, instance)));
        driven.wake();
        driven.up(id(0, 0, instance));
        assert_eq!(driven.state(0), State::Ready, "two restarts are allowed");
    }
    driven.step(panic_of(id(0, 0, 2)));
    assert_eq!(driven.wake(), [publish(0, State::Degraded), start(id(0, 0, 2))]);
}

#[test]
fn a_fatal_loop_fails_the_service_until_an_operator_restarts_it() {
    let mut fatal = with_law(Escalation::Fatal, 1);
    fatal.tasks.push(TaskPlan { name: "other", ..fatal.tasks[0].clone() });
    let mut driven = DrivenSupervisor::ready(plan(vec![fatal, worker("top", &["a"])]));
    driven.step(panic_of(id(0, 0, 0)));
    driven.wake();
    driven.up(id(0, 0, 0));
    let actions = driven.step(panic_of(id(0, 0, 0)));
    assert_eq!(actions, [publish(1, State::Starting), publish(0, State::Failed)]);
    assert_eq!(driven.step(panic_of(id(0, 1, 0))), [], "its other tasks are not restarted either");
    assert_eq!(driven.supervisor.next_wakeup(), None);

    let actions = driven.step(Event::RestartRequested { service: 0 });
    assert_eq!(actions, [publish(0, State::Restarting), start(id(0, 0, 0)), start(id(0, 1, 0))]);
    driven.up(id(0, 0, 0));
    assert_eq!(driven.up(id(0, 1, 0)), [publish(0, State::Ready), publish(1, State::Ready)]);
    assert_eq!(delay_in(&driven.step(panic_of(id(0, 0, 0)))).map(|delay| delay <= 500), Some(true), "a fresh window");
}

#[test]
fn an_operator_restart_aborts_what_runs_and_starts_it_without_delay() {
    let mut pool = worker("a", &[]);
    pool.tasks[0].instances = 2;
    let mut driven = DrivenSupervisor::ready(plan(vec![pool]));
    driven.step(panic_of(id(0, 0, 1)));
    let actions = driven.step(Event::RestartRequested { service: 0 });
    let abort = Action::Abort { task: id(0, 0, 0), why: AbortReason::Restart };
    assert_eq!(actions, [publish(0, State::Restarting), abort, start(id(0, 0, 1))]);
    let exit = Event::Exited { task: id(0, 0, 0), reason: ExitReason::Killed };
    assert_eq!(driven.step(exit), [start(id(0, 0, 0))]);
    let view = driven.supervisor.task_view(id(0, 0, 0), driven.now);
    assert_eq!((view.restarts_60s, view.restarts_total), (0, 1), "not held against it");
}

#[test]
fn an_operator_restart_before_the_first_start_changes_nothing() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    assert_eq!(driven.step(Event::RestartRequested { service: 0 }), []);
    driven.step(Event::Boot);
    assert_eq!(driven.step(Event::RestartRequested { service: 1 }), []);
    assert_eq!(started_in(&driven.up(main_of(0))), [main_of(1)]);
}

#[test]
fn beats_that_arrive_late_together_save_every_task_that_beat() {
    let mut pool = worker("a", &[]);
    pool.tasks[0].heartbeat_ms = Some(2_000);
    pool.tasks[0].instances = 2;
    let mut driven = DrivenSupervisor::ready(plan(vec![pool]));
    let (first, second) = (main_of(0), TaskId { instance: 1, ..main_of(0) });
    driven.at(9_000);
    assert_eq!(driven.step(Event::Beat { task: first }), [], "the other one's beat is on its way");
    assert_eq!(driven.step(Event::Beat { task: second }), []);
    assert_eq!(driven.step(Event::TimerFired), []);
    assert_eq!(driven.supervisor.next_wakeup(), Some(11_000));
}

#[test]
fn silence_is_aborted_and_recorded_as_frozen() {
    let mut beating = worker("a", &[]);
    beating.tasks[0].heartbeat_ms = Some(2_000);
    let mut driven = DrivenSupervisor::ready(plan(vec![beating]));
    assert_eq!(driven.supervisor.next_wakeup(), Some(3_000));
    driven.at(2_500).step(Event::Beat { task: main_of(0) });
    assert_eq!(driven.supervisor.next_wakeup(), Some(4_500));
    let abort = Action::Abort { task: main_of(0), why: AbortReason::Frozen };
    assert_eq!(driven.wake(), [publish(0, State::Restarting), abort]);
    assert_eq!(driven.supervisor.next_wakeup(), None, "nothing until it is gone");
    assert_eq!(driven.step(Event::Beat { task: main_of(0) }), [], "too late");
    let actions = driven.step(Event::Exited { task: main_of(0), reason: ExitReason::Clean });
    assert!(delay_in(&actions).is_some());
    let last_exit = driven.supervisor.task_view(main_of(0), driven.now).last_exit;
    assert_eq!(last_exit.as_deref(), Some("missed its heartbeat"));
}

#[test]
fn a_first_start_that_fails_drains_what_runs_and_ends_with_its_code() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    driven.step(Event::Boot);
    driven.up(main_of(0));
    let init = ExitReason::Init { code: 64, detail: "bad port".to_owned() };
    let actions = driven.step(Event::Exited { task: main_of(1), reason: init });
    let stop = Action::StopPhase { phase: Phase::Work, services: vec![0], deadline: 1_000 + 2_700 };
    assert_eq!(actions, [publish(1, State::Draining), publish(0, State::Draining), stop]);
    let actions = driven.step(Event::Exited { task: main_of(0), reason: ExitReason::Clean });
    assert_eq!(actions.last(), Some(&Action::Finish { code: 64 }));
}

#[test]
fn a_second_start_that_fails_is_a_restart_like_any_other() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("a", &[])]));
    driven.step(Event::Boot);
    driven.step(panic_of(main_of(0)));
    driven.wake();
    let init = ExitReason::Init { code: 64, detail: "bad port".to_owned() };
    assert!(delay_in(&driven.step(Event::Exited { task: main_of(0), reason: init })).is_some());
}

#[test]
fn a_task_that_says_the_process_must_not_go_on_is_obeyed_at_any_time() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("a", &[])]));
    driven.step(Event::Boot);
    driven.up(main_of(0));
    let fatal = ExitReason::Fatal { code: 70, detail: "disk failed".to_owned() };
    let actions = driven.step(Event::Exited { task: main_of(0), reason: fatal });
    assert_eq!(actions.last(), Some(&Action::Finish { code: 70 }));
}

#[test]
fn a_task_that_always_dies_at_once_keeps_a_bounded_history() {
    let law = RestartLaw { jitter_ms: (0, 0), ..RestartLaw::MACRONODE };
    let mut driven = DrivenSupervisor::new(plan(vec![ServicePlan { law, ..worker("a", &[]) }]));
    driven.step(Event::Boot);
    for _ in 0..500 {
        let actions = driven.step(panic_of(main_of(0)));
        assert_eq!(started_in(&actions), [main_of(0)], "a delay of 0 is over at once");
    }
    assert!(driven.supervisor.tasks[0].restarts.len() <= 64);
    assert_eq!(driven.state(0), State::Degraded);
}
