//! What every node was told, held against what was published: once, in order, unchanged, and gaps only where told.

use std::collections::{BTreeMap, HashMap};

use ron_gossip::{Delivered, LaneName, Micros, MsgId, Origin};

use super::node_of;

/// A message that somebody published.
#[derive(Clone, Debug)]
pub struct Publication {
    /// When.
    pub at: Micros,
    /// Who.
    pub node: usize,
    /// Its id.
    pub msg_id: MsgId,
    /// A bit for each node that got it.
    got: Vec<u64>,
}

impl Publication {
    /// Whether a node got it.
    pub fn reached(&self, node: usize) -> bool {
        self.got.get(node / 64).is_some_and(|bits| bits >> (node % 64) & 1 == 1)
    }
}

/// Where a node is in one origin and lane.
#[derive(Clone, Copy, Debug)]
struct Place {
    epoch: u64,
    next: u64,
    /// A message or a gap was told: from then on there are no holes.
    started: bool,
}

/// The account of all nodes.
#[derive(Debug, Default)]
pub struct Witness {
    /// Everything published, in order.
    pub publications: Vec<Publication>,
    by_id: HashMap<MsgId, usize>,
    places: Vec<BTreeMap<(LaneName, Origin), Place>>,
    /// What must not be: a copy, a wrong order, an unknown content, a hole that was not told.
    pub violations: Vec<String>,
    /// Messages told as lost, by node.
    pub lost: Vec<u64>,
    /// Time from publication to delivery at other nodes.
    pub latencies: Vec<Micros>,
    /// Hops at other nodes.
    pub hops: Vec<u8>,
    /// Deliveries at other nodes than the publisher.
    pub deliveries: u64,
    /// Deliveries of messages that attackers made up.
    pub made_up: u64,
}

impl Witness {
    pub(super) fn grow(&mut self, nodes: usize) {
        self.places.resize_with(nodes, BTreeMap::new);
        self.lost.resize(nodes, 0);
    }

    /// A node begins anew and knows nothing.
    pub(super) fn forget(&mut self, node: usize) {
        self.places[node].clear();
        for publication in &mut self.publications {
            if let Some(bits) = publication.got.get_mut(node / 64) {
                *bits &= !(1 << (node % 64));
            }
        }
    }

    /// A node is about to publish this id. Called before deliveries are judged.
    pub(super) fn published(&mut self, at: Micros, node: usize, msg_id: MsgId) {
        self.by_id.insert(msg_id, self.publications.len());
        self.publications.push(Publication { at, node, msg_id, got: Vec::new() });
    }

    pub(super) fn delivered(&mut self, now: Micros, node: usize, message: &Delivered<'_>, honest: bool) {
        self.follow(node, message);
        let id = message.msg_id();
        let Some(at) = self.by_id.get(&id) else {
            // The publisher's own delivery comes before its call returns, and is noted by it.
            if node_of(&message.origin.0) == Some(node) && message.hops == 0 {
                self.published(now, node, id);
                self.mark(self.publications.len() - 1, node);
            } else if honest {
                self.violations.push(format!("node {node} got a message that nobody published: {message:?}"));
            } else {
                self.made_up += 1;
            }
            return;
        };
        let at = *at;
        self.mark(at, node);
        self.latencies.push(now - self.publications[at].at);
        self.hops.push(message.hops);
        self.deliveries += 1;
    }

    fn mark(&mut self, at: usize, node: usize) {
        let got = &mut self.publications[at].got;
        if got.len() <= node / 64 {
            got.resize(node / 64 + 1, 0);
        }
        if got[node / 64] >> (node % 64) & 1 == 1 {
            self.violations.push(format!("node {node} got message {at} twice"));
        }
        got[node / 64] |= 1 << (node % 64);
    }

    fn follow(&mut self, node: usize, message: &Delivered<'_>) {
        let fresh = Place { epoch: message.epoch, next: message.seq, started: false };
        let place = self.places[node].entry((*message.lane, *message.origin)).or_insert(fresh);
        if place.epoch == message.epoch && place.next == message.seq {
            (place.next, place.started) = (message.seq + 1, true);
        } else {
            let told = format!("epoch {} seq {}", message.epoch, message.seq);
            self.violations.push(format!("node {node} got {told} of {:?}, expected {place:?}", message.origin));
            *place = Place { next: message.seq + 1, started: true, ..fresh };
        }
    }

    pub(super) fn gap(&mut self, node: usize, lane: &LaneName, origin: &Origin, epoch: u64, from: u64, to: u64) {
        self.lost[node] += to - from + 1;
        let fresh = Place { epoch, next: from, started: true };
        let place = self.places[node].entry((*lane, *origin)).or_insert(fresh);
        if place.epoch != epoch || place.next != from || to < from {
            self.violations.push(format!("node {node} was told a gap {from}..{to} of {origin:?} at {place:?}"));
        }
        *place = Place { next: to.saturating_add(1), ..fresh };
    }

    pub(super) fn new_epoch(&mut self, node: usize, lane: &LaneName, origin: &Origin, epoch: u64) {
        let known = self.places[node].insert((*lane, *origin), Place { epoch, next: 1, started: true });
        if known.is_some_and(|known| known.epoch >= epoch) {
            self.violations.push(format!("node {node} went back to epoch {epoch} of {origin:?}"));
        }
    }
}
