//! The lookup core in networks of a few hundred nodes: what is published is found, survives churn, and no lie is
//! believed. Sizes are what a debug build does in seconds; `sim dht` runs the large ones.

use sim::dht::{DhtReport, DhtScenario, DhtSettings, Membership, World, run_dht};

const NODES: usize = 200;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    1..=if soak { 20 } else { 1 }
}

fn settings(seed: u64) -> DhtSettings {
    DhtSettings { lookups: 600, titles: 30, churn_hours: 2, repairs: true, seed }
}

fn run(scenario: DhtScenario, membership: Membership, settings: DhtSettings) -> DhtReport {
    let report = run_dht(scenario, &World::new(NODES, membership, settings.seed), settings);
    println!("{scenario:?} {report}");
    report
}

fn keeps_its_promises(scenario: DhtScenario) -> Vec<DhtReport> {
    let mut reports = Vec::new();
    for seed in seeds() {
        for membership in [Membership::Complete, Membership::Partial] {
            let report = run(scenario, membership, settings(seed));
            assert_eq!(report.broken(scenario), Vec::<String>::new(), "{seed}: {report}");
            reports.push(report);
        }
    }
    reports
}

#[test]
fn a_healthy_network_finds_everything() {
    keeps_its_promises(DhtScenario::Steady);
}

#[test]
fn black_holes_and_slow_peers_do_not_delay() {
    keeps_its_promises(DhtScenario::Sick);
}

/// A liar with a record that its owner once signed and that is not over has some first answers, as docs/index.md says,
/// and none after the look in the background.
#[test]
fn no_lie_is_believed() {
    for report in keeps_its_promises(DhtScenario::Liars) {
        assert!(report.first_stale > 0, "the scenario is too kind to prove anything: {report}");
        assert!(report.stale * 10 <= report.first_stale, "{report}");
    }
}

#[test]
fn records_survive_churn() {
    keeps_its_promises(DhtScenario::Churn);
}

#[test]
fn without_being_handed_on_records_are_lost() {
    let settings = DhtSettings { repairs: false, churn_hours: 24, lookups: 100, ..settings(1) };
    let report = run(DhtScenario::Churn, Membership::Complete, settings);
    assert!(report.surviving.0 * 2 < report.surviving.1, "the scenario is too kind to prove anything: {report}");
    assert!(report.broken(DhtScenario::Churn).contains(&"records were lost".to_owned()), "{report}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let report = |seed| run(DhtScenario::Liars, Membership::Partial, DhtSettings { lookups: 60, ..settings(seed) });
    assert_eq!(report(3), report(3));
    assert_ne!(report(3), report(4));
}
