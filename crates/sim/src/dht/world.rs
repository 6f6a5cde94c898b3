//! The network: nodes with their tables and records, who is alive, and what a node answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ron_lookup::{Candidate, Millis, PeerTable, Position, Sweep, TableLimits, distance, ip_group};
use ron_store::Record;

use crate::rng::Rng;

/// Copies of a record.
pub(super) const REPLICAS: usize = ron_types::limits::lookup::NEAREST;
/// Peers in one bucket of a partial table.
const BUCKET_PEERS: usize = 10;
/// Numbers from here on belong to nodes that do not exist.
const GHOSTS: u32 = 1 << 30;
/// Virtual time at which everything begins.
pub(super) const BEGIN_MS: Millis = 1_000_000_000_000;

/// What nodes know of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// Everybody knows everybody, as the overlay of a cluster tells them: one step suffices.
    #[default]
    Complete,
    /// Each node has a Kademlia table.
    Partial,
}

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It answers.
    Honest,
    /// It takes every question and never answers.
    BlackHole,
    /// It answers late.
    Slow,
    /// It shows forged and old records, and names its own kind and nodes that do not exist.
    Liar,
    /// A liar whose id was made to stand beside a key: it knows nothing, and names its own kind.
    Eclipse,
}

/// A record that a node keeps for others.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: Arc<Record>,
    pub(super) refreshed_ms: Millis,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) address: IpAddr,
    pub(super) nature: Nature,
    pub(super) is_alive: bool,
    /// Empty where membership is complete.
    pub(super) table: PeerTable<u32>,
    pub(super) records: BTreeMap<Position, Kept>,
    pub(super) repair: Sweep,
}

/// What comes back from a question.
pub(super) enum Answer {
    Nothing,
    Refused { after_ms: Millis },
    Records { after_ms: Millis, records: Vec<Arc<Record>>, closer: Vec<Candidate<u32>> },
}

/// A network under simulation.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) membership: Membership,
    pub(super) nodes: Vec<Node>,
    /// The table that all nodes share where membership is complete.
    pub(super) shared: PeerTable<u32>,
    /// Nodes that are alive, by position.
    pub(super) alive: Vec<(Position, u32)>,
    /// What liars show: by key, forged records and an old one.
    pub(super) lies: BTreeMap<Position, Vec<Arc<Record>>>,
    pub(super) rng: Rng,
    pub(super) now_ms: Millis,
}

pub(super) fn random_position(rng: &mut Rng) -> Position {
    let mut position = [0; 32];
    position.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.draw().to_be_bytes()));
    position
}

fn random_address(rng: &mut Rng) -> IpAddr {
    let [a, b, c, d, ..] = rng.draw().to_be_bytes();
    // Public addresses only: private ones would be free of every bound.
    IpAddr::V4(Ipv4Addr::new(11 + a % 100, b, c, d))
}

fn partial_limits() -> TableLimits {
    TableLimits { bucket_max: BUCKET_PEERS, ..TableLimits::default() }
}

impl World {
    /// A network of honest nodes that know each other.
    pub fn new(nodes: usize, membership: Membership, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let shared = PeerTable::new(random_position(&mut rng), TableLimits::default());
        let (lies, alive) = (BTreeMap::new(), Vec::new());
        let mut world = World { membership, nodes: Vec::new(), shared, alive, lies, rng, now_ms: BEGIN_MS };
        for _ in 0..nodes {
            let (position, address) = (random_position(&mut world.rng), random_address(&mut world.rng));
            world.push(position, address, Nature::Honest);
        }
        if membership == Membership::Partial {
            (0..nodes as u32).for_each(|node| world.fill_table(node));
        }
        world
    }

    fn push(&mut self, position: Position, address: IpAddr, nature: Nature) -> u32 {
        let number = self.nodes.len() as u32;
        let period_ms = ron_types::limits::lookup::REPAIR_PERIOD.as_millis() as Millis;
        // Nodes begin their walks at different times, or all would repair the same records at once.
        let repair = Sweep::new(period_ms, REPLICAS, self.now_ms + self.rng.between(0, period_ms));
        let table = PeerTable::new(position, partial_limits());
        let records = BTreeMap::new();
        self.nodes.push(Node { position, address, nature, is_alive: true, table, records, repair });
        let place = self.alive.partition_point(|(at, _)| *at < position);
        self.alive.insert(place, (position, number));
        if self.membership == Membership::Complete {
            self.shared.insert(number, position, &[address]);
        }
        number
    }

    /// A new honest node: it fills its table, and those nearest to it learn of it, as when it looks up itself.
    pub(super) fn join(&mut self) -> u32 {
        let (position, address) = (random_position(&mut self.rng), random_address(&mut self.rng));
        let node = self.push(position, address, Nature::Honest);
        if self.membership == Membership::Partial {
            self.fill_table(node);
            self.announce(node, REPLICAS);
        }
        node
    }

    /// Puts a node that stands beside `key` into the network, and into every table near it that takes it.
    pub(super) fn eclipse(&mut self, key: &Position, number: u8) {
        let mut position = *key;
        position[8..].fill(number);
        let address = IpAddr::V4(Ipv4Addr::new(203, 0, 113, number));
        let node = self.push(position, address, Nature::Eclipse);
        if self.membership == Membership::Partial {
            self.announce(node, 10 * REPLICAS);
        }
    }

    fn announce(&mut self, node: u32, to: usize) {
        let Node { position, address, .. } = self.nodes[node as usize];
        for near in self.nearest_alive(&position, to) {
            if near != node {
                self.nodes[near as usize].table.insert(node, position, &[address]);
            }
        }
    }

    /// Fills the buckets of a node with random nodes that are alive.
    pub(super) fn fill_table(&mut self, node: u32) {
        let position = self.nodes[node as usize].position;
        for bits in 0..256 {
            let run = self.bucket(&position, bits);
            if run.1 - run.0 == 0 && bits > self.alive.len().ilog2() + 8 {
                break;
            }
            let count = run.1 - run.0;
            for pick in 0..count.min(BUCKET_PEERS) {
                let is_all = count <= BUCKET_PEERS;
                let index = if is_all { pick } else { self.rng.between(0, count as u64 - 1) as usize };
                let (at, other) = self.alive[run.0 + index];
                let address = self.nodes[other as usize].address;
                self.nodes[node as usize].table.insert(other, at, &[address]);
            }
        }
    }

    /// The run of nodes alive that share exactly `bits` bits with a position.
    fn bucket(&self, position: &Position, bits: u32) -> (usize, usize) {
        let mut other_side = *position;
        other_side[bits as usize / 8] ^= 0x80 >> (bits % 8);
        self.prefix_run(&other_side, bits + 1)
    }

    /// The run of nodes alive that share at least `bits` bits with a position.
    fn prefix_run(&self, position: &Position, bits: u32) -> (usize, usize) {
        let (byte, rest) = (bits as usize / 8, bits % 8);
        let (mut low, mut high) = (*position, *position);
        if byte < position.len() {
            let mask = 0xff >> rest;
            low[byte] &= !mask;
            high[byte] |= mask;
            low[byte + 1..].fill(0);
            high[byte + 1..].fill(0xff);
        }
        let from = self.alive.partition_point(|(at, _)| *at < low);
        let to = self.alive.partition_point(|(at, _)| *at <= high);
        (from, to)
    }

    /// Drops the dead from a table and fills the gaps, as the pings and refreshes of Kademlia do.
    pub(super) fn refresh_table(&mut self, node: u32) {
        let known: Vec<(u32, Position)> =
            self.nodes[node as usize].table.iter().map(|(peer, at)| (*peer, *at)).collect();
        for (peer, at) in known {
            if !self.nodes[peer as usize].is_alive {
                self.nodes[node as usize].table.remove(&peer, &at);
            }
        }
        self.fill_table(node);
    }

    pub(super) fn kill(&mut self, node: u32) {
        let dead = &mut self.nodes[node as usize];
        dead.is_alive = false;
        dead.records.clear();
        let position = dead.position;
        self.alive.retain(|(_, other)| *other != node);
        if self.membership == Membership::Complete {
            self.shared.remove(&node, &position);
        }
    }

    /// The truth, which no node knows: the nodes alive nearest to a key.
    pub(super) fn nearest_alive(&self, key: &Position, count: usize) -> Vec<u32> {
        // The longest prefix with enough nodes: all nearer ones are in it.
        let mut bits = self.alive.len().ilog2() + 1;
        let mut run = self.prefix_run(key, bits);
        while bits > 0 && run.1 - run.0 < count {
            bits -= 1;
            run = self.prefix_run(key, bits);
        }
        let mut near: Vec<_> = self.alive[run.0..run.1].iter().collect();
        near.sort_by_key(|(at, _)| distance(at, key));
        near.into_iter().take(count).map(|(_, node)| *node).collect()
    }

    /// Whom a node would ask first about a key.
    pub(super) fn first_candidates(&self, node: u32, key: &Position) -> Vec<Candidate<u32>> {
        let mut candidates = match self.membership {
            Membership::Complete => self.shared.nearest(key, 2 * REPLICAS),
            Membership::Partial => self.nodes[node as usize].table.nearest(key, REPLICAS),
        };
        candidates.retain(|candidate| candidate.target != node);
        candidates
    }

    /// Gives a record to a node to keep.
    pub(super) fn keep(&mut self, node: u32, key: Position, record: &Arc<Record>) {
        let now_ms = self.now_ms;
        let node = &mut self.nodes[node as usize];
        if node.is_alive && matches!(node.nature, Nature::Honest | Nature::Slow) {
            node.records.insert(key, Kept { record: Arc::clone(record), refreshed_ms: now_ms });
        }
    }

    /// What `target` does when `asker` asks for a key.
    pub(super) fn ask(&mut self, asker: u32, target: u32, key: &Position) -> Answer {
        let after_ms = self.latency_ms(asker, target);
        let Some(node) = self.nodes.get(target as usize) else { return Answer::Nothing };
        if !node.is_alive {
            // Half of the dead machines are still there and refuse; the others are silent.
            return if target.is_multiple_of(2) { Answer::Refused { after_ms } } else { Answer::Nothing };
        }
        let honest = || node.records.get(key).map(|kept| Arc::clone(&kept.record)).into_iter().collect();
        let (after_ms, records) = match node.nature {
            Nature::BlackHole => return Answer::Nothing,
            Nature::Slow => (after_ms + self.rng.between(200, 900), honest()),
            Nature::Honest => (after_ms, honest()),
            Nature::Eclipse => (after_ms, Vec::new()),
            Nature::Liar => (after_ms, self.lie(key)),
        };
        let closer = self.closer(target, key);
        Answer::Records { after_ms, records, closer }
    }

    /// A liar shows one of its records, chosen anew each time.
    fn lie(&mut self, key: &Position) -> Vec<Arc<Record>> {
        let Some(lies) = self.lies.get(key) else { return Vec::new() };
        let index = self.rng.between(0, lies.len() as u64 - 1) as usize;
        vec![Arc::clone(&lies[index])]
    }

    fn closer(&mut self, target: u32, key: &Position) -> Vec<Candidate<u32>> {
        match (self.nodes[target as usize].nature, self.membership) {
            (Nature::Liar, _) => self.wrong_closer(key, Nature::Liar, REPLICAS / 2),
            (Nature::Eclipse, _) => self.wrong_closer(key, Nature::Eclipse, 0),
            (_, Membership::Complete) => Vec::new(),
            (_, Membership::Partial) => self.nodes[target as usize].table.nearest(key, REPLICAS),
        }
    }

    /// Nodes of the liar's kind near the key, and `ghosts` that do not exist but would be nearer than anybody.
    fn wrong_closer(&mut self, key: &Position, kind: Nature, ghosts: usize) -> Vec<Candidate<u32>> {
        let mut near = self.nearest_alive(key, 10 * REPLICAS);
        near.retain(|node| self.nodes[*node as usize].nature == kind);
        let friends = near.into_iter().take(REPLICAS - ghosts).map(|node| {
            let Node { position, address, .. } = self.nodes[node as usize];
            Candidate { target: node, position, group: ip_group(address, true) }
        });
        let mut closer: Vec<_> = friends.collect();
        for _ in 0..ghosts {
            let number = self.rng.between(0, 999_999) as u32;
            let mut position = *key;
            position[28..].copy_from_slice(&number.to_be_bytes());
            let group = ip_group(random_address(&mut self.rng), true);
            closer.push(Candidate { target: GHOSTS + number, position, group });
        }
        closer
    }

    /// A pair of nodes has its distance; a hundredth of all answers is late for no reason.
    fn latency_ms(&mut self, one: u32, other: u32) -> Millis {
        let pair = Rng::new(u64::from(one.min(other)) << 32 | u64::from(one.max(other))).between(5, 60);
        let noise = if self.rng.percent(1) { self.rng.between(50, 250) } else { self.rng.between(0, 15) };
        pair + noise
    }
}
