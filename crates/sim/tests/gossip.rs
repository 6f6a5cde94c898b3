//! The gossip core in networks of many nodes: everybody gets everything once and in order, at little more than one send.

use sim::gossip::{Network, Report, Scenario, Settings, Topology, run_suite};

fn run(scenario: Scenario, nodes: usize, messages: usize, seed: u64) -> (Report, Network) {
    let (report, network) = run_suite(scenario, Settings::new(nodes, Topology::Random(8), seed), messages);
    println!("{scenario:?} seed {seed}: {report}");
    assert_eq!(network.witness.violations, Vec::<String>::new(), "{scenario:?} seed {seed}");
    (report, network)
}

#[test]
fn a_hundred_nodes_in_steady_state() {
    for seed in 1..=3 {
        let (report, _) = run(Scenario::Steady, 100, 200, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
        assert!(report.sends_per_delivery <= 1.3, "{report}");
    }
}

#[test]
fn a_hundred_nodes_of_which_half_die() {
    for seed in 1..=3 {
        let (report, _) = run(Scenario::KillHalf, 100, 200, seed);
        assert_eq!(report.nodes, 50);
        let missed = report.missed;
        assert_eq!(missed, 0, "{report}");
    }
}

#[test]
fn two_partitions_that_heal_converge() {
    for seed in 1..=3 {
        let (report, _) = run(Scenario::Partition, 100, 200, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
    }
}

#[test]
fn lost_frames_and_broken_sessions_are_made_good() {
    for seed in 1..=3 {
        let (report, _) = run(Scenario::Loss, 50, 200, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
    }
}
