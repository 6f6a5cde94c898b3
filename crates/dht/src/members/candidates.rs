//! Nodes that others named: where they would be reached, until they were met or too many others were named.

use std::collections::{HashMap, VecDeque};

use libp2p::Multiaddr;
use ron_store::PeerId;
use ron_types::limits::dht::CANDIDATES_MAX;

use crate::words::Source;

/// A bounded book of addresses; the oldest entry makes room.
#[derive(Default)]
pub(super) struct Candidates {
    entries: HashMap<PeerId, Entry>,
    /// In the order they were named; an id whose number is not that of its entry was removed or named again.
    order: VecDeque<(PeerId, u64)>,
    next: u64,
}

struct Entry {
    addrs: Vec<Multiaddr>,
    source: Source,
    number: u64,
}

impl Candidates {
    pub fn add(&mut self, peer: PeerId, addrs: Vec<Multiaddr>, source: Source) {
        let number = self.next;
        self.next += 1;
        self.entries.insert(peer, Entry { addrs, source, number });
        self.order.push_back((peer, number));
        // Twice as many, so that removed entries are not kept in line for ever.
        while self.entries.len() > CANDIDATES_MAX || self.order.len() > 2 * CANDIDATES_MAX {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&oldest);
            }
        }
    }

    pub fn contains(&self, peer: &PeerId) -> bool {
        self.entries.contains_key(peer)
    }

    pub fn addrs_of(&self, peer: &PeerId) -> Option<Vec<Multiaddr>> {
        self.entries.get(peer).map(|entry| entry.addrs.clone())
    }

    pub fn source_of(&self, peer: &PeerId) -> Option<Source> {
        self.entries.get(peer).map(|entry| entry.source)
    }

    pub fn remove(&mut self, peer: &PeerId) {
        self.entries.remove(peer);
    }
}
