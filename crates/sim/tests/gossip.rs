//! The gossip core in networks of many nodes: everybody gets everything once and in order, at little more than one
//! send. Sizes are what a debug build does in seconds; `sim gossip` runs the large ones, and `MACRO_SOAK=1` more seeds.

use bytes::Bytes;
use ron_gossip::LaneName;
use sim::gossip::{Network, Report, Scenario, Settings, Topology, run_suite};

const SECOND: u64 = 1_000_000;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    1..=if soak { 20 } else { 1 }
}

fn lane() -> LaneName {
    LaneName::new("news").expect("a name")
}

fn run(scenario: Scenario, nodes: usize, messages: usize, seed: u64) -> (Report, Network) {
    let (report, network) = run_suite(scenario, Settings::new(nodes, Topology::Random(8), seed), messages);
    println!("{scenario:?} seed {seed}: {report}");
    assert_eq!(network.witness.violations, Vec::<String>::new(), "{scenario:?} seed {seed}");
    (report, network)
}

#[test]
fn a_hundred_nodes_in_steady_state() {
    for seed in seeds() {
        let (report, _) = run(Scenario::Steady, 100, 150, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
        assert!(report.sends_per_delivery <= 1.3, "{report}");
    }
}

#[test]
fn a_thousand_nodes_in_steady_state() {
    // Links of one site: with those of a continent the nodes learn for some hundred messages how late a push may be.
    let settings = Settings { latency: (1_000, 5_000), ..Settings::new(1000, Topology::Random(8), 1) };
    let (report, network) = run_suite(Scenario::Steady, settings, 10);
    println!("{report}");
    assert_eq!(network.witness.violations, Vec::<String>::new());
    assert_eq!((report.missed, report.lost), (0, 0), "{report}");
    assert!(report.sends_per_delivery <= 1.3, "{report}");
}

#[test]
fn a_hundred_nodes_of_which_half_die() {
    for seed in seeds() {
        let (report, _) = run(Scenario::KillHalf, 100, 100, seed);
        assert_eq!((report.nodes, report.missed), (50, 0), "{report}");
        assert!(report.repaired > 0, "the deaths were noticed: {report}");
    }
}

#[test]
fn two_partitions_that_heal_converge() {
    for seed in seeds() {
        let (report, _) = run(Scenario::Partition, 60, 100, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
        assert!(report.sends_per_delivery <= 1.3, "history goes once as well: {report}");
    }
}

#[test]
fn lost_frames_and_broken_sessions_are_made_good() {
    for seed in seeds() {
        let (report, _) = run(Scenario::Loss, 40, 100, seed);
        assert_eq!((report.missed, report.lost), (0, 0), "{report}");
        assert!(report.repaired > 0, "{report}");
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let report = |seed| run_suite(Scenario::Loss, Settings::new(20, Topology::Random(4), seed), 50).0;
    assert_eq!(report(5), report(5));
    assert_ne!(report(5), report(6));
}

#[test]
fn every_shape_delivers_small_and_large() {
    for topology in [Topology::Line, Topology::Ring, Topology::Star, Topology::Mesh] {
        let mut network = Network::new(Settings::new(12, topology, 3));
        network.run_for(SECOND);
        for round in 0..20 {
            for node in [0, 5, 11] {
                let size = if round % 10 == 5 { 2_500_000 } else { 100 };
                let payload = Bytes::from(vec![(round * 16 + node) as u8; size]);
                network.publish(node, &lane(), &payload).expect("alive").expect("room");
                network.run_for(SECOND / 10);
            }
        }
        network.run_for(20 * SECOND);
        assert_eq!(network.witness.violations, Vec::<String>::new(), "{topology:?}");
        assert_eq!(network.missed(0), [], "{topology:?}");
        assert_eq!(network.witness.lost.iter().sum::<u64>(), 0, "{topology:?}");
    }
}

#[test]
fn a_node_in_the_middle_that_returns_catches_up() {
    let mut network = Network::new(Settings::new(5, Topology::Line, 3));
    network.run_for(SECOND);
    let say = |network: &mut Network, nodes: &[usize]| {
        for number in 0..30u64 {
            for node in nodes {
                let payload = Bytes::from(format!("{number} of {node} at {}", network.now));
                network.publish(*node, &lane(), &payload).expect("alive").expect("room");
            }
            network.run_for(SECOND / 20);
        }
    };
    say(&mut network, &[0, 2, 4]);
    network.run_for(5 * SECOND);
    assert_eq!(network.missed(0), []);
    network.kill(2);
    say(&mut network, &[0, 4]);
    network.restart(2);
    say(&mut network, &[0, 2, 4]);
    network.run_for(20 * SECOND);
    assert_eq!(network.witness.violations, Vec::<String>::new());
    let missed = network.missed(0);
    let by_others: Vec<_> = missed.iter().filter(|(_, node)| *node != 2).collect();
    assert_eq!(by_others, Vec::<&(usize, usize)>::new(), "both sides got what was said meanwhile");
    let own_past = |at: usize| network.witness.publications[at].node == 2;
    assert!(missed.iter().all(|(at, _)| own_past(*at)), "a restarted node has all but its own past: {missed:?}");
    assert_eq!(network.witness.lost.iter().sum::<u64>(), 0);
}

#[test]
fn a_slow_link_delays_nobody_else_and_is_told_what_it_lost() {
    let mut settings = Settings::new(8, Topology::Mesh, 3);
    settings.outbox_bytes = 64 << 10;
    settings.config.ring_messages_per_lane = 200;
    let mut network = Network::new(settings);
    for other in 0..7 {
        network.slow_down(other, 7, 5_000);
    }
    network.run_for(SECOND);
    let mut busy = 0;
    for number in 0..1500u64 {
        let payload = Bytes::from(vec![number as u8; 1000]);
        let published = network.publish(0, &lane(), &payload).expect("alive").expect("room");
        busy += usize::from(published.outcomes.retry_after_ms().is_some());
        network.run_for(SECOND / 100);
    }
    network.run_for(120 * SECOND);
    assert_eq!(network.witness.violations, Vec::<String>::new());
    assert!(busy > 0, "the publisher was told");
    let missed = network.missed(0);
    assert!(missed.iter().all(|(_, node)| *node == 7), "only the slow one misses any");
    let lost = network.witness.lost.clone();
    assert_eq!(lost[..7], [0; 7]);
    assert_eq!(missed.len() as u64, lost[7], "and what it misses it was told");
    assert!(lost[7] > 0, "the link was slow enough");
}
