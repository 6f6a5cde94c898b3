//! How nodes enter what is known and leave it, under the lock that the caller holds.

use ron_lookup::Inserted;
use ron_store::{PeerId, PeerRecord};

use super::{Arrival, By, Entry, Facts, Inner, MEETING_MS};
use crate::convert::Scope;

impl Inner {
    /// What of the addresses of a node is dialled.
    pub(super) fn scope_of(&self, peer: &PeerId) -> Scope {
        if self.named.contains(peer) { Scope::OPERATOR } else { self.scope }
    }

    pub(super) fn is_distrusted(&self, peer: &PeerId, now_ms: u64) -> bool {
        self.distrusted.get(peer).is_some_and(|until_ms| *until_ms > now_ms)
    }

    pub(super) fn enter(&mut self, own: PeerId, arrival: Arrival<'_>, now_ms: u64) -> Entry {
        let Arrival { peer, addrs, ips, source, by } = arrival;
        if peer == own || self.is_distrusted(&peer, now_ms) {
            return Entry::Refused;
        }
        let (position, met_before) = (peer.key().0, self.table.met());
        let was_met = self.table.is_met(&peer, &position);
        let inserted = match by {
            By::Name => self.table.insert_named(peer, position),
            By::Meeting => self.table.insert(peer, position, ips),
            By::Announcement => {
                self.give_up_waiting(now_ms);
                self.table.insert_unmet(peer, position, ips)
            }
        };
        if !was_met && self.table.is_met(&peer, &position) {
            // Whoever was alone has a network to walk through now.
            self.has_joined &= met_before > 0;
            // Where it came in and there are no more than before, another one went that was met.
            self.has_refused |= self.table.met() <= met_before;
        }
        match inserted {
            Inserted::New => {
                self.candidates.remove(&peer);
                let facts = Facts {
                    addrs,
                    record: None,
                    source,
                    is_announced: false,
                    since_ms: now_ms,
                    dialled_ms: None,
                    failures: 0,
                    first_failure_ms: 0,
                    rtt: None,
                };
                self.facts.insert(peer, facts);
                self.is_changed = true;
                self.forget_pushed_out();
                Entry::New
            }
            // It claimed another network than it is in, and there it would not have been taken.
            Inserted::GroupFull if self.facts.contains_key(&peer) && !self.table.contains(&peer, &peer.key().0) => {
                self.remove(&peer);
                self.has_refused = true;
                Entry::Forgotten
            }
            Inserted::Known | Inserted::GroupFull if self.facts.contains_key(&peer) => {
                self.is_changed |= was_met != self.table.is_met(&peer, &position);
                if let Some(facts) = self.facts.get_mut(&peer)
                    && facts.addrs != addrs
                {
                    facts.addrs = addrs;
                    self.is_changed = true;
                }
                Entry::Known
            }
            _ if by == By::Announcement => {
                self.unheard_ms = Some(now_ms);
                Entry::Refused
            }
            _ => {
                self.has_refused = true;
                Entry::Refused
            }
        }
    }

    /// The table makes room for a node by dropping others, and does not say whom.
    fn forget_pushed_out(&mut self) {
        if self.facts.len() > self.table.len() {
            let table = &self.table;
            self.facts.retain(|peer, _| table.contains(peer, &peer.key().0));
        }
    }

    /// Nodes that announced themselves and were not met in time make room for others that do.
    fn give_up_waiting(&mut self, now_ms: u64) {
        if !self.table.expects_somebody() {
            return;
        }
        for (peer, facts) in &self.facts {
            let position = peer.key().0;
            let is_late = facts.dialled_ms.is_some_and(|dialled_ms| now_ms >= dialled_ms + MEETING_MS);
            if is_late && !self.table.is_met(peer, &position) {
                self.table.mark(peer, &position, true);
            }
        }
    }

    /// Nodes that were met before the operator named them have their places from now on.
    pub(super) fn place_named(&mut self) {
        for peer in self.named.iter() {
            let position = peer.key().0;
            if self.table.is_met(peer, &position) {
                self.table.insert_named(*peer, position);
            }
        }
    }

    pub(super) fn remove(&mut self, peer: &PeerId) -> bool {
        let was_there = self.table.remove(peer, &peer.key().0);
        if self.facts.remove(peer).is_some() {
            self.is_changed = true;
        }
        self.forget_pushed_out();
        was_there
    }
}

impl Facts {
    pub(super) fn keep_record(&mut self, record: PeerRecord) {
        let is_newer = self.record.as_ref().is_none_or(|known| record.sequence >= known.sequence);
        if is_newer {
            self.record = Some(record);
        }
    }
}
