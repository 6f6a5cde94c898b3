//! One test for each of the two that judge: seeds of the simulator, and every order of events of a small plan.

use sim::lifecycle::{INVARIANTS, Luck, lifecycle};
use sim::{Mutation, run_seed};
use stateright::{Checker, HasDiscoveries, Model};

#[test]
fn each_mistake_is_caught_by_its_invariant() {
    for mutation in Mutation::ALL {
        let caught = (0..2_000).find_map(|seed| run_seed(seed, Some(mutation)).err());
        let failure = caught.unwrap_or_else(|| panic!("{mutation:?} was not noticed in 2000 seeds"));
        assert_eq!(failure.id, mutation.caught_by(), "{mutation:?}: {failure}");
    }
}

#[test]
fn mistakes_are_found() {
    let luck = Luck { crashes: 2, freezes: 1, operator_restarts: 0, wakeups_before_drain: 3 };
    let mistakes = [
        Mutation::RestartWhileDraining,
        Mutation::DependentReadyFirst,
        Mutation::ProvidersStopFirst,
        Mutation::StartsBeforeExit,
    ];
    for mutation in mistakes {
        let model = lifecycle(2, luck, Some(mutation));
        let checker = model.checker().finish_when(HasDiscoveries::AnyOf([INVARIANTS].into())).spawn_bfs().join();
        let path = checker.discovery(INVARIANTS).unwrap_or_else(|| panic!("{mutation:?} was not found"));
        assert_eq!(path.last_state().broken, Some(mutation.caught_by()), "{mutation:?}");
    }
}
