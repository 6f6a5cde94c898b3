//! The peers a node knows, ordered by position, with bounds on how many of one network of addresses it believes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ron_types::limits::lookup as limits;

use crate::lookup::{Candidate, LookupTarget};
use crate::space::{Position, bit, distance, shared_bits};

/// Bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableLimits {
    /// Peers in all; nearer ones push out the furthest.
    pub peers_max: usize,
    /// Peers among them that nobody has met: more claim to be there and are refused.
    pub unmet_max: usize,
    /// Peers that share a prefix of the same length with the node; `usize::MAX` where membership is complete.
    pub bucket_max: usize,
    /// Peers of one network of addresses in all.
    pub group_peers_max: usize,
    /// Peers of one network of addresses in one bucket.
    pub group_bucket_max: usize,
    /// Whether private addresses are as free of these bounds as loopback: a cluster lives in one private network.
    pub private_is_exempt: bool,
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits {
            peers_max: limits::TABLE_PEERS_MAX,
            unmet_max: limits::TABLE_UNMET_MAX,
            bucket_max: usize::MAX,
            group_peers_max: limits::TABLE_GROUP_PEERS_MAX,
            group_bucket_max: limits::TABLE_GROUP_BUCKET_MAX,
            private_is_exempt: true,
        }
    }
}

/// A network of addresses: an IPv4 /16 or an IPv6 /32. Whoever has one address there can have many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpGroup {
    /// First two bytes of an IPv4 address.
    V4([u8; 2]),
    /// First four bytes of an IPv6 address.
    V6([u8; 4]),
}

/// What became of a peer that was offered to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the table now.
    New,
    /// It was in the table; its addresses are the new ones now.
    Known,
    /// Refused: its network of addresses has all its places. A peer that was met before stays with its old addresses;
    /// one that had only claimed to be elsewhere is out of the table now.
    GroupFull,
    /// Refused: its bucket has all its places, and none of them is known to fail.
    BucketFull,
    /// Refused: the table is full of nearer peers, or has no place for one that nobody has met.
    TableFull,
}

/// Known peers, ordered by position.
#[derive(Clone, Debug)]
pub struct PeerTable<T> {
    own: Position,
    limits: TableLimits,
    /// Sorted by position: the peers nearest to any key lie in a few runs.
    peers: Vec<Peer<T>>,
    groups: BTreeMap<IpGroup, GroupCount>,
}

/// Peers of one network of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GroupCount {
    met: usize,
    unmet: usize,
}

#[derive(Clone, Debug)]
struct Peer<T> {
    position: Position,
    target: T,
    groups: Vec<IpGroup>,
    /// Whether it was met where it is said to be; else it is only claimed to be there.
    is_met: bool,
    is_failing: bool,
}

/// The network of an address; `None` for loopback, and for private addresses where they are exempt.
pub fn ip_group(address: IpAddr, private_is_exempt: bool) -> Option<IpGroup> {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_exempt = v4.is_loopback() || (private_is_exempt && (v4.is_private() || v4.is_link_local()));
            let [first, second, ..] = v4.octets();
            (!is_exempt).then_some(IpGroup::V4([first, second]))
        }
        IpAddr::V6(v6) => {
            let is_private = v6.is_unique_local() || v6.is_unicast_link_local();
            let is_exempt = v6.is_loopback() || (private_is_exempt && is_private);
            let [a, b, c, d, ..] = v6.octets();
            (!is_exempt).then_some(IpGroup::V6([a, b, c, d]))
        }
    }
}

impl<T: LookupTarget> PeerTable<T> {
    /// An empty table of the node at `own`.
    pub fn new(own: Position, limits: TableLimits) -> Self {
        PeerTable { own, limits, peers: Vec::new(), groups: BTreeMap::new() }
    }

    /// Offers a peer that was met, with the addresses it was *reached* at; claimed ones would let it choose its group.
    pub fn insert(&mut self, target: T, position: Position, addresses: &[IpAddr]) -> Inserted {
        let groups = self.groups_of(addresses);
        if let Ok(index) = self.find(&target, &position) {
            let old = self.take(index);
            // Moving into a full network is refused like arriving from it; the old addresses stay if it was met there.
            let fits = self.group_has_room(&groups, &position, true);
            if fits || old.is_met {
                let groups = if fits { groups } else { old.groups };
                self.put(Peer { position, target, groups, is_met: true, is_failing: false });
            }
            return if fits { Inserted::Known } else { Inserted::GroupFull };
        }
        if !self.group_has_room(&groups, &position, true) {
            return Inserted::GroupFull;
        }
        if let Err(refused) = self.make_room(&position) {
            return refused;
        }
        self.put(Peer { position, target, groups, is_met: true, is_failing: false });
        Inserted::New
    }

    /// Offers a peer that nobody has met, with the addresses it claims. Claims cost nothing, so such peers are few,
    /// never push anybody out, take no place from peers that were met, and change nothing about one that was.
    pub fn insert_unmet(&mut self, target: T, position: Position, claimed: &[IpAddr]) -> Inserted {
        let groups = self.groups_of(claimed);
        if let Ok(index) = self.find(&target, &position) {
            if self.peers[index].is_met {
                return Inserted::Known;
            }
            let old = self.take(index);
            let fits = self.group_has_room(&groups, &position, false);
            let groups = if fits { groups } else { old.groups };
            self.put(Peer { groups, ..old });
            return Inserted::Known;
        }
        if !self.group_has_room(&groups, &position, false) {
            return Inserted::GroupFull;
        }
        let unmet = self.peers.iter().filter(|peer| !peer.is_met).count();
        if self.peers.len() >= self.limits.peers_max || unmet >= self.limits.unmet_max {
            return Inserted::TableFull;
        }
        if self.bucket(&position).len() >= self.limits.bucket_max {
            return Inserted::BucketFull;
        }
        self.put(Peer { position, target, groups, is_met: false, is_failing: false });
        Inserted::New
    }

    /// Whether a peer is in the table and was met.
    pub fn is_met(&self, target: &T, position: &Position) -> bool {
        self.find(target, position).is_ok_and(|index| self.peers[index].is_met)
    }

    /// Removes a peer; whether it was there.
    pub fn remove(&mut self, target: &T, position: &Position) -> bool {
        let Ok(index) = self.find(target, position) else { return false };
        self.take(index);
        true
    }

    /// Notes whether a peer answers; one that does not makes room for another of its bucket.
    pub fn mark(&mut self, target: &T, position: &Position, is_failing: bool) {
        if let Ok(index) = self.find(target, position) {
            self.peers[index].is_failing = is_failing;
        }
    }

    /// Whether a peer is in the table.
    pub fn contains(&self, target: &T, position: &Position) -> bool {
        self.find(target, position).is_ok()
    }

    /// The `count` peers nearest to `key`, nearest first.
    pub fn nearest(&self, key: &Position, count: usize) -> Vec<Candidate<T>> {
        let mut found = Vec::with_capacity(count.min(self.peers.len()));
        gather(&self.peers, key, 0, count, &mut found);
        let candidate = |peer: &Peer<T>| Candidate {
            target: peer.target.clone(),
            position: peer.position,
            group: peer.groups.first().copied(),
        };
        found.into_iter().map(candidate).collect()
    }

    /// All peers, by position.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &Position)> {
        self.peers.iter().map(|peer| (&peer.target, &peer.position))
    }

    /// Number of peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    fn find(&self, target: &T, position: &Position) -> Result<usize, usize> {
        self.peers.binary_search_by(|peer| (&peer.position, &peer.target).cmp(&(position, target)))
    }

    fn put(&mut self, peer: Peer<T>) {
        for group in &peer.groups {
            *self.groups.entry(*group).or_default().of(peer.is_met) += 1;
        }
        if let Err(index) = self.find(&peer.target, &peer.position) {
            self.peers.insert(index, peer);
        }
    }

    fn take(&mut self, index: usize) -> Peer<T> {
        let peer = self.peers.remove(index);
        for group in &peer.groups {
            if let Some(count) = self.groups.get_mut(group) {
                *count.of(peer.is_met) -= 1;
                if *count == GroupCount::default() {
                    self.groups.remove(group);
                }
            }
        }
        peer
    }

    fn groups_of(&self, addresses: &[IpAddr]) -> Vec<IpGroup> {
        let looked_at = addresses.iter().take(limits::TABLE_ADDRESSES_MAX);
        let mut groups: Vec<_> = looked_at.filter_map(|ip| ip_group(*ip, self.limits.private_is_exempt)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Whether these networks have a place for one more. To a peer that was met only others that were met count, so
    /// that nobody is kept out by claims to be of its network.
    fn group_has_room(&self, groups: &[IpGroup], position: &Position, is_met: bool) -> bool {
        groups.iter().all(|group| {
            let count = self.groups.get(group).copied().unwrap_or_default();
            let in_all = if is_met { count.met } else { count.met + count.unmet };
            let counts = |peer: &&Peer<T>| (peer.is_met || !is_met) && peer.groups.contains(group);
            let in_bucket = || self.bucket(position).iter().filter(counts).count();
            in_all < self.limits.group_peers_max && (in_all == 0 || in_bucket() < self.limits.group_bucket_max)
        })
    }

    /// Peers that share as many leading bits with the node as `position` does: one run of the sorted peers.
    fn bucket(&self, position: &Position) -> &[Peer<T>] {
        let bits = shared_bits(&self.own, position).min(255) as usize;
        let (low, high) = prefix_bounds(position, bits + 1);
        let from = self.peers.partition_point(|peer| peer.position < low);
        let to = self.peers.partition_point(|peer| peer.position <= high);
        &self.peers[from..to]
    }

    /// Makes room for a peer that was met. Those that were not go first, wherever they claim to be.
    fn make_room(&mut self, position: &Position) -> Result<(), Inserted> {
        let bucket = self.bucket(position);
        if bucket.len() >= self.limits.bucket_max {
            let dispensable =
                bucket.iter().filter(|peer| peer.is_failing || !peer.is_met).min_by_key(|peer| peer.is_met);
            let (target, position) =
                dispensable.map(|peer| (peer.target.clone(), peer.position)).ok_or(Inserted::BucketFull)?;
            self.remove(&target, &position);
        }
        if self.peers.len() >= self.limits.peers_max {
            let own = self.own;
            let furthest = self.peers.iter().max_by_key(|peer| (!peer.is_met, distance(&own, &peer.position)));
            let furthest =
                furthest.filter(|peer| !peer.is_met || distance(&own, &peer.position) > distance(&own, position));
            let (target, position) =
                furthest.map(|peer| (peer.target.clone(), peer.position)).ok_or(Inserted::TableFull)?;
            self.remove(&target, &position);
        }
        Ok(())
    }
}

impl GroupCount {
    fn of(&mut self, is_met: bool) -> &mut usize {
        if is_met { &mut self.met } else { &mut self.unmet }
    }
}

/// First and last position with the first `bits` bits of `position`.
fn prefix_bounds(position: &Position, bits: usize) -> (Position, Position) {
    let mask: Position = std::array::from_fn(|index| match bits.saturating_sub(index * 8) {
        0 => 0,
        rest @ 1..8 => !(0xff >> rest),
        _ => 0xff,
    });
    let low = std::array::from_fn(|index| position[index] & mask[index]);
    let high = std::array::from_fn(|index| position[index] | !mask[index]);
    (low, high)
}

/// Collects the peers nearest to `key` from a run of peers that share `depth` bits: first the half on the key's side.
fn gather<'a, T>(run: &'a [Peer<T>], key: &Position, depth: usize, count: usize, found: &mut Vec<&'a Peer<T>>) {
    if run.is_empty() || found.len() >= count {
        return;
    }
    if run.len() == 1 || depth == 256 {
        found.extend(run.iter().take(count - found.len()));
        return;
    }
    let middle = run.partition_point(|peer| !bit(&peer.position, depth));
    let (zeros, ones) = run.split_at(middle);
    let (near, far) = if bit(key, depth) { (ones, zeros) } else { (zeros, ones) };
    gather(near, key, depth + 1, count, found);
    gather(far, key, depth + 1, count, found);
}

#[cfg(test)]
mod tests;
