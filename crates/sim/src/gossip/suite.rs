//! The scenarios that are run as a whole: steady traffic, half of the nodes killed, two partitions, loss.

use std::collections::BTreeSet;

use bytes::Bytes;
use ron_gossip::{LaneName, Micros};

use super::{Network, Report, Settings};
use crate::rng::Rng;

const SECOND: Micros = 1_000_000;

/// What happens to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Nothing but messages.
    Steady,
    /// Half of the nodes die at once in the middle of traffic; the rest stays joined.
    KillHalf,
    /// The network falls into two halves that both go on, then heals.
    Partition,
    /// One frame of a hundred is lost, and sessions break.
    Loss,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 4] = [Scenario::Steady, Scenario::KillHalf, Scenario::Partition, Scenario::Loss];
}

/// The lane that scenarios publish in.
pub(super) fn lane() -> LaneName {
    LaneName::new("news").unwrap_or_else(|_| unreachable!("four letters"))
}

/// Publishes messages at random nodes that are alive, one each `every`.
fn chatter(network: &mut Network, rng: &mut Rng, messages: usize, every: Micros) {
    for number in 0..messages {
        let alive: Vec<usize> = (0..network.len()).filter(|node| network.is_alive(*node)).collect();
        let payload = Bytes::from(format!("message {number} at {}", network.now));
        network.publish(rng.pick(&alive), &lane(), &payload);
        network.run_for(every);
    }
}

/// Half of the nodes, such that the others stay joined: a network that death itself took apart can only heal by new
/// links, which are not this protocol's.
fn half_to_kill(settings: &Settings, rng: &mut Rng) -> BTreeSet<usize> {
    let links = settings.topology.links(settings.nodes, settings.seed);
    let neighbours = |node: usize| {
        links.iter().filter_map(move |(one, other)| match node {
            _ if *one == node => Some(*other),
            _ if *other == node => Some(*one),
            _ => None,
        })
    };
    let mut alive: BTreeSet<usize> = [rng.between(0, settings.nodes as u64 - 1) as usize].into();
    let mut edge: Vec<usize> = neighbours(*alive.first().unwrap_or(&0)).collect();
    while alive.len() < settings.nodes.div_ceil(2) && !edge.is_empty() {
        let node = edge.swap_remove(rng.between(0, edge.len() as u64 - 1) as usize);
        if alive.insert(node) {
            edge.extend(neighbours(node));
        }
    }
    (0..settings.nodes).filter(|node| !alive.contains(node)).collect()
}

/// Runs one scenario with so many messages in its measured part. The network is kept for a closer look.
pub fn run_suite(scenario: Scenario, mut settings: Settings, messages: usize) -> (Report, Network) {
    let mut rng = Rng::new(settings.seed ^ 0x5eed);
    let to_kill = if scenario == Scenario::KillHalf { half_to_kill(&settings, &mut rng) } else { BTreeSet::new() };
    if scenario == Scenario::Loss {
        settings.loss_per_million = 10_000;
    }
    let every = 20_000;
    let mut network = Network::new(settings);
    network.run_for(SECOND);
    // The first messages make the tree: they go over every link.
    chatter(&mut network, &mut rng, 20, every);
    network.run_for(2 * SECOND);
    let mark = (network.witness.publications.len(), network.counts(), network.witness.deliveries);
    match scenario {
        Scenario::Steady => chatter(&mut network, &mut rng, messages, every),
        Scenario::KillHalf => {
            chatter(&mut network, &mut rng, messages / 4, every);
            to_kill.iter().for_each(|node| network.kill(*node));
            chatter(&mut network, &mut rng, messages - messages / 4, every);
        }
        Scenario::Partition => {
            let half: BTreeSet<usize> = (0..network.len() / 2).collect();
            network.partition(&half);
            chatter(&mut network, &mut rng, messages, every);
            network.run_for(5 * SECOND);
            network.heal();
        }
        Scenario::Loss => {
            for _ in 0..10 {
                chatter(&mut network, &mut rng, messages / 10, every);
                let node = rng.between(0, network.len() as u64 - 1) as usize;
                let neighbours = network.neighbours(node);
                network.interrupt(node, rng.pick(&neighbours));
            }
        }
    }
    network.run_for(30 * SECOND);
    (network.report(mark.0, mark.1, mark.2), network)
}
