//! The supervisor under every order of events that a small plan and little bad luck allow.

use sim::lifecycle::{Lifecycle, Luck, lifecycle};
use stateright::{Checker, Model};

fn check_all(model: Lifecycle) -> usize {
    let checker = model.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn two_services_and_two_crashes() {
    let luck = Luck { crashes: 2, freezes: 0, operator_restarts: 0, wakeups_before_drain: 3 };
    let states = check_all(lifecycle(2, luck, None));
    assert!((2_000..200_000).contains(&states), "{states} states");
}

#[test]
fn two_services_a_freeze_and_an_operator() {
    let luck = Luck { crashes: 0, freezes: 1, operator_restarts: 1, wakeups_before_drain: 3 };
    let states = check_all(lifecycle(2, luck, None));
    assert!((2_000..200_000).contains(&states), "{states} states");
}

#[test]
fn three_services_and_a_crash() {
    let luck = Luck { crashes: 1, freezes: 0, operator_restarts: 0, wakeups_before_drain: 2 };
    let states = check_all(lifecycle(3, luck, None));
    assert!((2_000..200_000).contains(&states), "{states} states");
}
