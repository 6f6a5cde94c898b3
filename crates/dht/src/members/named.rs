//! Nodes that the operator named: those of his list, and those that he named by hand since the start.

use std::collections::{HashSet, VecDeque};

use ron_store::PeerId;
use ron_types::limits::dht::BOOTSTRAP_MAX;

/// A bounded set of names; of those by hand the oldest makes room.
#[derive(Default)]
pub(super) struct Named {
    listed: HashSet<PeerId>,
    by_hand: VecDeque<PeerId>,
}

impl Named {
    /// Takes the list in the place of an earlier one.
    pub fn list(&mut self, peers: impl IntoIterator<Item = PeerId>) {
        self.listed = peers.into_iter().take(BOOTSTRAP_MAX).collect();
    }

    pub fn add(&mut self, peer: PeerId) {
        if self.contains(&peer) {
            return;
        }
        if self.by_hand.len() >= BOOTSTRAP_MAX {
            self.by_hand.pop_front();
        }
        self.by_hand.push_back(peer);
    }

    pub fn contains(&self, peer: &PeerId) -> bool {
        self.listed.contains(peer) || self.by_hand.contains(peer)
    }

    pub fn iter(&self) -> impl Iterator<Item = &PeerId> {
        self.listed.iter().chain(&self.by_hand)
    }
}
