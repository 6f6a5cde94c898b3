//! Attacks on the gossip core, each with what it can do at most.

use bytes::Bytes;
use ron_gossip::{DisconnectReason, LaneName};
use sim::gossip::{Behaviour, Network, Settings, Topology};

const SECOND: u64 = 1_000_000;

fn lane() -> LaneName {
    LaneName::new("news").expect("a name")
}

/// A network of honest nodes that has made its tree.
fn network(nodes: usize, seed: u64) -> Network {
    network_with(Settings::new(nodes, Topology::Random(6), seed))
}

fn network_with(settings: Settings) -> Network {
    let mut network = Network::new(settings);
    network.run_for(SECOND);
    talk(&mut network, &[0, 1, 2], 5);
    network
}

fn talk(network: &mut Network, nodes: &[usize], rounds: usize) {
    for _ in 0..rounds {
        for node in nodes {
            let payload = Bytes::from(format!("{node} at {}", network.now));
            network.publish(*node, &lane(), &payload).expect("alive").expect("room");
            network.run_for(SECOND / 20);
        }
    }
}

/// Everything of the honest reached all the honest, once and in order, and memory stayed under the formula.
fn judge(network: &Network) {
    assert_eq!(network.witness.violations, Vec::<String>::new());
    assert_eq!(network.missed(0), []);
    let max = network.settings.config.memory_bytes_max();
    for core in (0..network.len()).filter_map(|node| network.core(node)) {
        assert!(core.memory_bytes() <= max);
    }
}

#[test]
fn eclipse_one_honest_link_is_enough() {
    let mut network = network(10, 1);
    let victim = network.add_node(Behaviour::Honest);
    network.join(victim, 3);
    for _ in 0..12 {
        let attacker = network.add_node(Behaviour::Censor);
        network.join(attacker, victim);
        network.join(attacker, 5);
    }
    let before = network.witness.publications.len();
    talk(&mut network, &[0, 1, victim], 30);
    network.run_for(20 * SECOND);
    assert_eq!(network.missed(before), []);
    judge(&network);
    let to_victim = network.witness.latencies.iter().max().expect("deliveries");
    assert!(*to_victim < 10 * SECOND, "{to_victim}");
}

#[test]
fn censors_delay_and_do_not_suppress() {
    let mut network = network(30, 2);
    for node in 20..30 {
        network.set_behaviour(node, Behaviour::Censor);
    }
    let before = network.witness.latencies.len();
    talk(&mut network, &[0, 1, 2], 30);
    network.run_for(20 * SECOND);
    judge(&network);
    let mut latencies = network.witness.latencies[before..].to_vec();
    latencies.sort_unstable();
    assert!(latencies[latencies.len() / 2] < SECOND, "the median is {}", latencies[latencies.len() / 2]);
}

#[test]
fn lying_digests_are_found_out() {
    let mut network = network(15, 3);
    let liar = network.add_node(Behaviour::LyingDigests { lane: lane(), origins: vec![0, 1, 2] });
    (3..8).for_each(|node| network.join(liar, node));
    network.set_behaviour(liar, Behaviour::LyingDigests { lane: lane(), origins: vec![0, 1, 2] });
    talk(&mut network, &[0, 1, 2], 700);
    network.run_for(20 * SECOND);
    judge(&network);
    assert_eq!(network.witness.lost.iter().sum::<u64>(), 0, "lies are no gaps");
    assert!(network.disconnects.iter().any(|(_, peer, _)| *peer == liar), "left in the end");
    assert!(network.disconnects.iter().all(|(_, peer, why)| *peer == liar && *why == DisconnectReason::Misbehaved));
    // Each lie costs one small question at most.
    let lies = network.kinds[4];
    assert!(network.counts().asked < lies, "{} questions", network.counts().asked);
}

#[test]
fn a_flood_is_carried_and_crowds_nobody_out() {
    let mut network = network(12, 4);
    let flooder = network.add_node(Behaviour::flood(lane(), 20));
    (3..6).for_each(|node| network.join(flooder, node));
    network.set_behaviour(flooder, Behaviour::flood(lane(), 20));
    talk(&mut network, &[0, 1, 2], 20);
    network.set_behaviour(flooder, Behaviour::Censor);
    network.run_for(20 * SECOND);
    judge(&network);
    assert!(network.witness.made_up > 10_000, "the flood was one: {}", network.witness.made_up);
}

#[test]
fn made_up_lanes_and_origins_stay_in_their_bounds() {
    let mut network = network(8, 5);
    let attacker = network.add_node(Behaviour::Openings);
    (3..6).for_each(|node| network.join(attacker, node));
    network.set_behaviour(attacker, Behaviour::Openings);
    talk(&mut network, &[0, 1, 2], 30);
    let max = network.settings.config.origins_per_lane_max;
    assert!(network.witness.made_up > max as u64, "more than the table holds: {}", network.witness.made_up);
    network.run_for(20 * SECOND);
    judge(&network);
    assert_eq!(network.disconnects, [], "nobody is blamed for relaying");
}

#[test]
fn replayed_messages_are_not_delivered_again() {
    let mut network = network(12, 6);
    let replayer = network.add_node(Behaviour::Replay { heard: Vec::new() });
    (3..6).for_each(|node| network.join(replayer, node));
    network.set_behaviour(replayer, Behaviour::Replay { heard: Vec::new() });
    let before = network.counts();
    talk(&mut network, &[0, 1, 2], 40);
    network.run_for(20 * SECOND);
    judge(&network);
    let replayed = network.counts().duplicates - before.duplicates;
    assert!(replayed > 5_000, "there was something to refuse: {replayed}");
    // Nobody but the neighbours of the replaying node even hears of it.
    assert!((6..12).all(|node| network.received[node] < 20_000));
}

#[test]
fn huge_numbers_and_lists_have_no_effect() {
    let mut network = network(10, 7);
    let behaviour = Behaviour::Huge { lane: lane(), about: 0 };
    let attacker = network.add_node(behaviour.clone());
    (3..6).for_each(|node| network.join(attacker, node));
    network.set_behaviour(attacker, behaviour);
    talk(&mut network, &[0, 1, 2], 60);
    network.run_for(20 * SECOND);
    judge(&network);
    assert_eq!(
        network.witness.lost[..attacker].iter().sum::<u64>(),
        0,
        "whose sessions end again and again is its own"
    );
    assert!(network.undecodable > 0);
}

#[test]
fn lives_at_the_edge_of_time_turn_no_honest_nodes_against_each_other() {
    for clock_skew_ms in [50, 10 * 60_000] {
        let mut network = network_with(Settings { clock_skew_ms, ..Settings::new(12, Topology::Random(6), 8) });
        let behaviour = Behaviour::EdgeOfTime { lane: lane(), around_ms: clock_skew_ms };
        let attacker = network.add_node(behaviour.clone());
        (3..6).for_each(|node| network.join(attacker, node));
        network.set_behaviour(attacker, behaviour);
        talk(&mut network, &[0, 1, 2], 60);
        network.run_for(20 * SECOND);
        judge(&network);
        assert!(network.witness.made_up > 100, "some are taken: {}", network.witness.made_up);
        let among_honest = |(one, other, _): &&(usize, usize, DisconnectReason)| *one < attacker && *other < attacker;
        assert_eq!(network.disconnects.iter().find(among_honest), None, "clocks {clock_skew_ms} ms apart");
    }
}

#[test]
fn a_made_up_past_makes_a_node_begin_anew_now_and_then_and_loses_nothing() {
    let mut network = network(12, 9);
    let behaviour = Behaviour::FalsePast { lane: lane(), about: 0 };
    let attacker = network.add_node(behaviour.clone());
    // The node that the lies are about, and one that would pass them on.
    [0, 3].iter().for_each(|node| network.join(attacker, *node));
    network.set_behaviour(attacker, behaviour);
    let (before, began) = (network.witness.publications.len(), network.now);
    let mut epochs = std::collections::BTreeSet::new();
    for _ in 0..600 {
        let published = network.publish(0, &lane(), &Bytes::from_static(b"true")).expect("alive").expect("room");
        epochs.insert(published.epoch);
        network.run_for(SECOND / 10);
    }
    let seconds = (network.now - began) / SECOND;
    network.set_behaviour(attacker, Behaviour::Censor);
    network.run_for(20 * SECOND);
    assert_eq!(network.missed(before), []);
    judge(&network);
    assert!(epochs.len() as u64 > 1, "there was something to believe");
    assert!(epochs.len() as u64 <= seconds / 10 + 2, "{} lives in {seconds} seconds", epochs.len());
    let blamed = |(_, other, _): &&(usize, usize, DisconnectReason)| *other < attacker;
    assert_eq!(network.disconnects.iter().find(blamed), None);
}
