//! The nodes that this one knows: which of them keep records, where they are, how they answer.
//!
//! A node enters the table when it was met (a connection proved its id) or when it announced itself on the overlay with
//! a signed record. Announcements cost nothing to make up, so nodes that are known by theirs alone are few, and make
//! room for nodes that were met. Nodes that others merely name are candidates: they can be asked, and nothing is placed
//! with them.

mod candidates;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libp2p::Multiaddr;
use ron_lookup::{Candidate, Inserted, IpGroup, PeerTable, TableLimits, ip_group, shared_bits};
use ron_store::{Key, PeerId, PeerRecord};
use ron_types::limits::dht as limits;

use crate::convert::{dialable, ip_of};
use crate::members::candidates::Candidates;
use crate::words::{PeerView, Source};

/// Nodes that broke the rules and are not taken in again for a while.
const DISTRUSTED_MAX: usize = 1024;
/// Time for which they are not taken in.
const DISTRUSTED_MS: u64 = 600_000;

/// The nodes that this one knows. All calls are short: one lock, no I/O.
pub(crate) struct Members {
    own: PeerId,
    inner: Mutex<Inner>,
}

struct Inner {
    table: PeerTable<PeerId>,
    facts: HashMap<PeerId, Facts>,
    candidates: Candidates,
    /// Connections of each connected node, known or not, and the address it was reached at.
    connections: HashMap<PeerId, Connected>,
    distrusted: HashMap<PeerId, u64>,
    /// Unix milliseconds of the last answer of anybody.
    answered_ms: u64,
    /// Whether loopback addresses are dialled: only by a node that listens there itself.
    with_loopback: bool,
    /// Somebody could not be taken in.
    has_refused: bool,
    /// The table differs from what was written down.
    is_changed: bool,
    /// The first walk through the network is done.
    has_joined: bool,
    /// Unix milliseconds since which announcements are heard.
    hears_since_ms: Option<u64>,
}

struct Connected {
    count: usize,
    reached: Option<IpAddr>,
}

struct Facts {
    addrs: Vec<Multiaddr>,
    record: Option<PeerRecord>,
    source: Source,
    is_announced: bool,
    since_ms: u64,
    failures: u32,
    first_failure_ms: u64,
    rtt: Option<Duration>,
}

/// What became of a node that was met or announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is known from now on.
    New,
    /// It was known.
    Known,
    /// It is not taken in.
    Refused,
    /// It was known by its announcement alone, and where it was met now there is no place for it.
    Forgotten,
}

/// A node that was met or announced.
struct Arrival<'a> {
    peer: PeerId,
    addrs: Vec<Multiaddr>,
    /// Addresses that decide on its network: reached if it was met, else claimed.
    ips: &'a [IpAddr],
    source: Source,
    is_met: bool,
}

impl Members {
    pub fn new(own: PeerId, peers_max: usize) -> Self {
        let unmet_max = peers_max / limits::UNMET_ONE_IN;
        let limits = TableLimits { peers_max, unmet_max, ..TableLimits::default() };
        let inner = Inner {
            table: PeerTable::new(own.key().0, limits),
            facts: HashMap::new(),
            candidates: Candidates::default(),
            connections: HashMap::new(),
            distrusted: HashMap::new(),
            answered_ms: 0,
            with_loopback: false,
            has_refused: false,
            is_changed: false,
            has_joined: false,
            hears_since_ms: None,
        };
        Members { own, inner: Mutex::new(inner) }
    }

    /// Nothing that runs under this lock panics, so that a poisoned table is whole.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes nearest to a key, nearest first, without this one.
    pub fn nearest(&self, key: &Key, count: usize) -> Vec<PeerId> {
        self.lock().table.nearest(&key.0, count).into_iter().map(|candidate| candidate.target).collect()
    }

    /// As [`Members::nearest`], for a lookup.
    pub fn nearest_candidates(&self, key: &Key, count: usize) -> Vec<Candidate<PeerId>> {
        self.lock().table.nearest(&key.0, count)
    }

    /// Network of addresses that a node is in, where that counts.
    pub fn ip_group_of(&self, peer: &PeerId) -> Option<IpGroup> {
        let inner = self.lock();
        let reached = inner.connections.get(peer).and_then(|connected| connected.reached);
        let said = || inner.facts.get(peer).and_then(|facts| facts.addrs.first()).and_then(ip_of);
        let named = || inner.candidates.addrs_of(peer)?.first().and_then(ip_of);
        let ip = reached.or_else(said).or_else(named)?;
        ip_group(ip, TableLimits::default().private_is_exempt)
    }

    /// Whether this node is among the `count` nearest to a key.
    pub fn is_responsible(&self, key: &Key, count: usize) -> bool {
        let nearest = self.lock().table.nearest(&key.0, count);
        let own = self.own.key().distance(key);
        nearest.len() < count || nearest.iter().any(|one| Key(one.position).distance(key) > own)
    }

    /// The table as it is, to be compared with what it will be.
    pub fn table(&self) -> PeerTable<PeerId> {
        self.lock().table.clone()
    }

    /// Number of known nodes.
    pub fn len(&self) -> usize {
        self.lock().table.len()
    }

    /// Number of connections.
    pub fn connected(&self) -> usize {
        self.lock().connections.values().map(|connected| connected.count).sum()
    }

    /// Whether there is a connection with this node.
    pub fn is_connected(&self, peer: &PeerId) -> bool {
        self.lock().connections.contains_key(peer)
    }

    /// Where a node is reached, as far as anybody said.
    pub fn addrs_of(&self, peer: &PeerId) -> Vec<Multiaddr> {
        let inner = self.lock();
        let known = inner.facts.get(peer).map(|facts| facts.addrs.clone());
        known.or_else(|| inner.candidates.addrs_of(peer)).unwrap_or_default()
    }

    /// Whether a node can be asked: there is a connection or an address.
    pub fn is_reachable(&self, peer: &PeerId) -> bool {
        let inner = self.lock();
        inner.facts.contains_key(peer) || inner.connections.contains_key(peer) || inner.candidates.contains(peer)
    }

    /// What a node said of itself, if that still holds.
    pub fn record_of(&self, peer: &PeerId, now_ms: u64) -> Option<PeerRecord> {
        let inner = self.lock();
        let record = inner.facts.get(peer)?.record.clone();
        record.filter(|record| record.expires_ms > now_ms)
    }

    /// Loopback addresses of others are worth something to a node that listens there.
    pub fn allow_loopback(&self, is_allowed: bool) {
        self.lock().with_loopback = is_allowed;
    }

    /// A connected node showed that it keeps records and where it listens.
    pub fn met(&self, peer: PeerId, claimed: &[Multiaddr], now_ms: u64) -> Entry {
        let mut inner = self.lock();
        let addrs = dialable(claimed, inner.with_loopback);
        if addrs.is_empty() {
            return Entry::Refused;
        }
        // Where it was reached counts, not what it claims: else it would choose its network.
        let reached = inner.connections.get(&peer).and_then(|connected| connected.reached);
        let ips: Vec<IpAddr> = reached.map_or_else(|| addrs.iter().filter_map(ip_of).collect(), |ip| vec![ip]);
        let source = inner.candidates.source_of(&peer).unwrap_or(Source::Met);
        inner.enter(self.own, Arrival { peer, addrs, ips: &ips, source, is_met: true }, now_ms)
    }

    /// A node announced itself; the signature of its record holds. Nobody has been there: until the node is met, it is
    /// known as one that may be made up.
    pub fn announced(&self, record: PeerRecord, now_ms: u64) -> Entry {
        let mut inner = self.lock();
        let addrs = dialable(&record.addrs, inner.with_loopback);
        if addrs.is_empty() {
            return Entry::Refused;
        }
        let ips: Vec<IpAddr> = addrs.iter().filter_map(ip_of).collect();
        let peer = record.peer;
        let known = inner.facts.get(&peer).and_then(|facts| facts.record.as_ref());
        if known.is_some_and(|known| known.sequence > record.sequence) {
            // Somebody says again what the node said before; where it is now, it said since.
            return Entry::Known;
        }
        let arrival = Arrival { peer, addrs, ips: &ips, source: Source::Overlay, is_met: false };
        let entry = inner.enter(self.own, arrival, now_ms);
        if let Some(facts) = inner.facts.get_mut(&peer) {
            facts.is_announced = true;
            facts.keep_record(record);
        }
        entry
    }

    /// What a known node said of itself; the signature of its record holds.
    pub fn introduced(&self, record: PeerRecord) {
        if let Some(facts) = self.lock().facts.get_mut(&record.peer) {
            facts.keep_record(record);
        }
    }

    /// Somebody named a node that is not known; it can be asked from now on. `false` if it cannot be dialled.
    pub fn suggest(&self, peer: PeerId, addrs: &[Multiaddr], source: Source, now_ms: u64) -> bool {
        let mut inner = self.lock();
        if peer == self.own || inner.is_distrusted(&peer, now_ms) {
            return false;
        }
        let addrs = dialable(addrs, inner.with_loopback);
        let is_dialable = !addrs.is_empty();
        if is_dialable && !inner.facts.contains_key(&peer) {
            inner.candidates.add(peer, addrs, source);
        }
        is_dialable
    }

    /// A node no longer keeps records, or never did.
    pub fn leave(&self, peer: &PeerId) -> bool {
        self.lock().remove(peer)
    }

    /// A node broke the rules: it is not known any more, nor taken in for a while.
    pub fn distrust(&self, peer: PeerId, now_ms: u64) {
        let mut inner = self.lock();
        inner.remove(&peer);
        inner.candidates.remove(&peer);
        inner.distrusted.retain(|_, until_ms| *until_ms > now_ms);
        if inner.distrusted.len() < DISTRUSTED_MAX {
            inner.distrusted.insert(peer, now_ms + DISTRUSTED_MS);
        }
    }

    /// A connection began.
    pub fn connection_opened(&self, peer: PeerId, reached: Option<IpAddr>) {
        let mut inner = self.lock();
        let connected = inner.connections.entry(peer).or_insert(Connected { count: 0, reached });
        connected.count += 1;
    }

    /// A connection ended; true if it was the last one.
    pub fn connection_closed(&self, peer: &PeerId) -> bool {
        let mut inner = self.lock();
        let Some(connected) = inner.connections.get_mut(peer) else { return true };
        connected.count -= 1;
        let is_last = connected.count == 0;
        if is_last {
            inner.connections.remove(peer);
        }
        is_last
    }

    /// No connection is left: the network began anew.
    pub fn disconnect_all(&self) {
        self.lock().connections.clear();
    }

    /// A node gave a sign of life.
    pub fn answered(&self, peer: &PeerId, rtt: Duration, now_ms: u64) {
        let mut inner = self.lock();
        inner.answered_ms = now_ms;
        if let Some(facts) = inner.facts.get_mut(peer) {
            facts.failures = 0;
            facts.rtt = Some(rtt);
            inner.table.mark(peer, &peer.key().0, false);
        }
    }

    /// A dial or a question came to nothing; true if the node is no longer known for it. While nobody at all answers it
    /// is this node that is cut off, and forgetting everybody would keep it so.
    pub fn failed(&self, peer: &PeerId, now_ms: u64) -> bool {
        let mut inner = self.lock();
        let answered_ms = inner.answered_ms;
        let Some(facts) = inner.facts.get_mut(peer) else {
            if !inner.connections.contains_key(peer) {
                inner.candidates.remove(peer);
            }
            return false;
        };
        if facts.failures == 0 {
            facts.first_failure_ms = now_ms;
        }
        facts.failures += 1;
        let is_over = facts.failures >= limits::FAILURES_MAX && answered_ms > facts.first_failure_ms;
        inner.table.mark(peer, &peer.key().0, true);
        is_over && inner.remove(peer)
    }

    /// The first walk through the network is done, or there is nowhere to walk.
    pub fn joined(&self) {
        self.lock().has_joined = true;
    }

    /// Announcements are heard from now on, or no longer.
    pub fn hears(&self, since_ms: Option<u64>) {
        self.lock().hears_since_ms = since_ms;
    }

    /// Whether every node of the network is known. Up to as many as one answer names, each neighbour has named them
    /// all; beyond that only if every known node announces itself, and has had the time to.
    pub fn is_complete(&self, now_ms: u64) -> bool {
        let inner = self.lock();
        let heard_long = |since_ms: u64| now_ms >= since_ms + 2 * limits::ANNOUNCE_INTERVAL.as_millis() as u64;
        let all_announce = || inner.facts.values().all(|facts| facts.is_announced);
        let is_small = inner.table.len() < limits::REPLICATION;
        inner.has_joined
            && !inner.has_refused
            && (is_small || (inner.hears_since_ms.is_some_and(heard_long) && all_announce()))
    }

    /// How every known node stands, nearest first.
    pub fn views(&self) -> Vec<PeerView> {
        let inner = self.lock();
        let own = self.own.key();
        let view = |(peer, facts): (&PeerId, &Facts)| PeerView {
            peer: *peer,
            addrs: facts.addrs.clone(),
            connections: inner.connections.get(peer).map_or(0, |connected| connected.count),
            rtt: facts.rtt,
            failures: facts.failures,
            since_ms: facts.since_ms,
            source: facts.source,
            shared_bits: shared_bits(&own.0, &peer.key().0),
        };
        let mut views: Vec<PeerView> = inner.facts.iter().map(view).collect();
        views.sort_by_key(|view| own.distance(&view.peer.key()));
        views
    }

    /// The nodes worth writing down, if they changed since this was last asked: those first that were met and answer.
    pub fn to_save(&self) -> Option<Vec<(PeerId, Vec<Multiaddr>)>> {
        let mut inner = self.lock();
        if !std::mem::take(&mut inner.is_changed) || inner.facts.is_empty() {
            return None;
        }
        let mut known: Vec<(&PeerId, &Facts)> =
            inner.facts.iter().filter(|(_, facts)| !facts.addrs.is_empty()).collect();
        let is_unmet = |peer: &PeerId| !inner.table.is_met(peer, &peer.key().0);
        known.sort_by_cached_key(|(peer, facts)| (is_unmet(peer), facts.failures, facts.since_ms, **peer));
        known.truncate(limits::PEERS_SAVED_MAX);
        Some(known.into_iter().map(|(peer, facts)| (*peer, facts.addrs.clone())).collect())
    }

    /// Has the nodes written down again.
    pub fn save_again(&self) {
        self.lock().is_changed = true;
    }
}

impl Inner {
    fn is_distrusted(&self, peer: &PeerId, now_ms: u64) -> bool {
        self.distrusted.get(peer).is_some_and(|until_ms| *until_ms > now_ms)
    }

    fn enter(&mut self, own: PeerId, arrival: Arrival<'_>, now_ms: u64) -> Entry {
        let Arrival { peer, addrs, ips, source, is_met } = arrival;
        if peer == own || self.is_distrusted(&peer, now_ms) {
            return Entry::Refused;
        }
        let inserted = match is_met {
            true => self.table.insert(peer, peer.key().0, ips),
            false => self.table.insert_unmet(peer, peer.key().0, ips),
        };
        match inserted {
            Inserted::New => {
                self.candidates.remove(&peer);
                // Whoever was alone has a network to walk through now.
                self.has_joined &= self.table.len() > 1;
                let facts = Facts {
                    addrs,
                    record: None,
                    source,
                    is_announced: false,
                    since_ms: now_ms,
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
                if let Some(facts) = self.facts.get_mut(&peer)
                    && facts.addrs != addrs
                {
                    facts.addrs = addrs;
                    self.is_changed = true;
                }
                Entry::Known
            }
            _ => {
                self.has_refused = true;
                Entry::Refused
            }
        }
    }

    /// The table makes room for a nearer node by dropping another, and does not say whom.
    fn forget_pushed_out(&mut self) {
        if self.facts.len() > self.table.len() {
            let table = &self.table;
            self.facts.retain(|peer, _| table.contains(peer, &peer.key().0));
            self.has_refused = true;
        }
    }

    fn remove(&mut self, peer: &PeerId) -> bool {
        let was_there = self.table.remove(peer, &peer.key().0);
        if self.facts.remove(peer).is_some() {
            self.is_changed = true;
        }
        was_there
    }
}

impl Facts {
    fn keep_record(&mut self, record: PeerRecord) {
        let is_newer = self.record.as_ref().is_none_or(|known| record.sequence >= known.sequence);
        if is_newer {
            self.record = Some(record);
        }
    }
}

#[cfg(test)]
mod tests;
