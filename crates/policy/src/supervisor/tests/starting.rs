//! What starts when, and who is ready when.

use super::*;

#[test]
fn providers_serve_before_dependents_start() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("top", &["base"]), worker("base", &[])]));
    assert_eq!(driven.step(Event::Boot), [start(main_of(1))]);
    assert_eq!(driven.step(Event::Boot), [], "only the first boot counts");
    assert_eq!(driven.step(Event::Started { task: main_of(1) }), []);
    assert_eq!(driven.step(Event::BootReady { task: main_of(1) }), [publish(1, State::Ready), start(main_of(0))]);
    assert_eq!(driven.up(main_of(0)), [publish(0, State::Ready)]);
}

#[test]
fn a_pool_is_first_ready_as_a_whole_and_then_serves_with_one() {
    let mut pool = worker("pool", &[]);
    pool.tasks[0].instances = 2;
    let mut driven = DrivenSupervisor::new(plan(vec![pool]));
    assert_eq!(driven.step(Event::Boot), [start(id(0, 0, 0)), start(id(0, 0, 1))]);
    assert_eq!(driven.up(id(0, 0, 0)), []);
    assert_eq!(driven.up(id(0, 0, 1)), [publish(0, State::Ready)]);
    let after_one = driven.step(panic_of(id(0, 0, 0)));
    assert!(matches!(after_one[..], [Action::StartAfter { .. }]), "{after_one:?}");
    let after_both = driven.step(panic_of(id(0, 0, 1)));
    assert_eq!(after_both[0], publish(0, State::Restarting));
}

#[test]
fn a_lost_provider_takes_its_dependents_along_in_order() {
    let services = vec![worker("base", &[]), worker("middle", &["base"]), worker("top", &["middle"])];
    let mut driven = DrivenSupervisor::ready(plan(services));
    let actions = driven.step(panic_of(main_of(0)));
    let lost = [publish(2, State::Starting), publish(1, State::Starting), publish(0, State::Restarting)];
    assert_eq!(actions[..3], lost);
    driven.wake();
    let back = driven.up(main_of(0));
    assert_eq!(back, [publish(0, State::Ready), publish(1, State::Ready), publish(2, State::Ready)]);
}

#[test]
fn a_restart_waits_for_the_provider() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    driven.step(panic_of(main_of(1)));
    let due = driven.supervisor.next_wakeup().unwrap();
    driven.at(due - 1).step(panic_of(main_of(0)));
    assert_eq!(started_in(&driven.at(due).step(Event::TimerFired)), []);
    assert_eq!(started_in(&driven.wake()), [main_of(0)]);
    assert_eq!(started_in(&driven.up(main_of(0))), [main_of(1)]);
}

#[test]
fn a_service_without_tasks_serves_as_its_providers_do() {
    let mut driven = DrivenSupervisor::new(plan(vec![
        worker("base", &[]),
        service("alias", &["base"], &[]),
        worker("top", &["alias"]),
    ]));
    assert_eq!(driven.step(Event::Boot), [start(main_of(0))]);
    let actions = driven.up(main_of(0));
    assert_eq!(actions, [publish(0, State::Ready), publish(1, State::Ready), start(main_of(2))]);
}

#[test]
fn an_outside_condition_gates_readiness_and_not_the_start() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    let condition = |met| Event::DependencyChanged { service: 0, name: "disk", met };
    driven.step(condition(false));
    assert_eq!(driven.step(Event::Boot), [start(main_of(0))]);
    assert_eq!(driven.up(main_of(0)), []);
    assert_eq!(driven.step(condition(true)), [publish(0, State::Ready), start(main_of(1))]);
    driven.up(main_of(1));
    assert_eq!(driven.step(condition(false)), [publish(1, State::Starting), publish(0, State::Starting)]);
}

#[test]
fn late_and_unknown_events_change_nothing() {
    let nobody = id(9, 9, 9);
    let beyond = id(0, 0, 1);
    for event in [
        Event::Started { task: main_of(0) },
        Event::BootReady { task: main_of(0) },
        Event::Beat { task: main_of(0) },
        Event::Started { task: nobody },
        Event::BootReady { task: beyond },
        Event::Beat { task: nobody },
        panic_of(nobody),
        panic_of(beyond),
        Event::RestartRequested { service: 9 },
        Event::Pressure { service: 9, cause: "x", on: true },
        Event::DependencyChanged { service: 9, name: "x", met: false },
        Event::PhaseDrained { phase: Phase::Work },
        Event::TimerFired,
    ] {
        let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
        let before = driven.supervisor.clone();
        assert_eq!(driven.step(event.clone()), [], "{event:?}");
        assert_eq!(driven.supervisor, before, "{event:?}");
    }
    let mut gone = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
    gone.step(panic_of(main_of(0)));
    assert_eq!(gone.step(panic_of(main_of(0))), [], "a second exit");
    assert_eq!(gone.step(Event::BootReady { task: main_of(0) }), [], "ready after the exit");
}
