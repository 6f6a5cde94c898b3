//! The table against a plain sort, and its bounds on networks of addresses.

use proptest::prelude::*;

use super::*;
use crate::Chance;

fn position(seed: u64) -> Position {
    let mut chance = Chance::new(seed);
    let mut position = [0; 32];
    position.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&chance.draw().to_be_bytes()));
    position
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn filled(limits: TableLimits, peers: u64) -> PeerTable<u64> {
    let mut table = PeerTable::new(position(u64::MAX), limits);
    (0..peers).for_each(|peer| {
        table.insert(peer, position(peer), &[ip("127.0.0.1")]);
    });
    table
}

proptest! {
    #[test]
    fn the_nearest_are_those_a_sort_finds(peers in 0u64..300, key in any::<u64>(), count in 0usize..40) {
        let table = filled(TableLimits::default(), peers);
        let key = position(key);
        let mut expected: Vec<u64> = (0..peers).collect();
        expected.sort_by_key(|peer| distance(&key, &position(*peer)));
        expected.truncate(count);
        let found: Vec<u64> = table.nearest(&key, count).into_iter().map(|candidate| candidate.target).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn counts_follow_the_peers(ops in proptest::collection::vec((0u64..40, 0u8..4, 0u8..3), 0..200)) {
        let groups = TableLimits { group_peers_max: 5, group_bucket_max: 3, ..TableLimits::default() };
        let limits = TableLimits { peers_max: 20, unmet_max: 6, ..groups };
        let mut table = PeerTable::new(position(u64::MAX), limits);
        for (peer, network, op) in ops {
            let addresses = [ip(&format!("8.{network}.0.{peer}"))];
            let met: Vec<u64> = table.peers.iter().filter(|peer| peer.is_met).map(|peer| peer.target).collect();
            match op {
                0 => drop(table.remove(&peer, &position(peer))),
                1 => drop(table.insert(peer, position(peer), &addresses)),
                _ => {
                    table.insert_unmet(peer, position(peer), &addresses);
                    let all_stay = met.iter().all(|peer| table.is_met(peer, &position(*peer)));
                    prop_assert!(all_stay, "a claim pushes nobody out");
                }
            }
            prop_assert!(table.len() <= 20);
            let mut counted: BTreeMap<IpGroup, GroupCount> = BTreeMap::new();
            for peer in &table.peers {
                peer.groups.iter().for_each(|group| *counted.entry(*group).or_default().of(peer.is_met) += 1);
            }
            prop_assert_eq!(&counted, &table.groups);
            prop_assert!(counted.values().all(|count| count.met <= 5 && count.unmet <= 5));
            prop_assert!(table.peers.iter().filter(|peer| !peer.is_met).count() <= 6);
            prop_assert!(table.peers.windows(2).all(|pair| pair[0].position < pair[1].position));
        }
    }
}

#[test]
fn a_network_of_addresses_gets_only_its_places() {
    let limits = TableLimits { group_peers_max: 10, group_bucket_max: 4, ..TableLimits::default() };
    let mut table = PeerTable::new(position(u64::MAX), limits);
    let of_network = |peer: u64| [ip(&format!("203.0.{}.{}", peer / 250, peer % 250))];
    let outcomes: Vec<_> = (0..500).map(|peer| table.insert(peer, position(peer), &of_network(peer))).collect();
    let taken = outcomes.iter().filter(|outcome| **outcome == Inserted::New).count();
    assert_eq!((taken, table.len()), (10, 10));
    assert_eq!(outcomes.last(), Some(&Inserted::GroupFull));
    for shared in 0..20 {
        let in_bucket = table.iter().filter(|(_, at)| shared_bits(at, &position(u64::MAX)) == shared).count();
        assert!(in_bucket <= 4, "{in_bucket} share {shared} bits");
    }
    assert_eq!(table.insert(1_000, position(1_000), &[ip("198.51.100.7")]), Inserted::New, "others still fit");
    let two_networks = [ip("198.51.100.8"), ip("203.0.0.1")];
    assert_eq!(table.insert(1_001, position(1_001), &two_networks), Inserted::GroupFull, "each address counts");
}

#[test]
fn a_peer_cannot_move_into_a_full_network() {
    let limits = TableLimits { group_peers_max: 1, ..TableLimits::default() };
    let mut table = PeerTable::new(position(u64::MAX), limits);
    assert_eq!(table.insert(1, position(1), &[ip("203.0.1.1")]), Inserted::New);
    assert_eq!(table.insert(2, position(2), &[ip("198.51.1.1")]), Inserted::New);
    assert_eq!(table.insert(2, position(2), &[ip("203.0.1.2")]), Inserted::GroupFull);
    assert_eq!(table.insert(2, position(2), &[ip("198.51.1.9")]), Inserted::Known);
    assert_eq!(table.insert(3, position(3), &[ip("198.51.1.3")]), Inserted::GroupFull, "2 kept its place");
    assert!(table.remove(&2, &position(2)) && !table.remove(&2, &position(2)));
    assert_eq!(table.insert(3, position(3), &[ip("198.51.1.3")]), Inserted::New);
}

#[test]
fn claims_are_few_and_take_nobodys_place() {
    let own = position(u64::MAX);
    let limits = TableLimits { peers_max: 16, unmet_max: 4, ..TableLimits::default() };
    let claim = |table: &mut PeerTable<u64>, peers: std::ops::Range<u64>| {
        peers.filter(|peer| table.insert_unmet(*peer, position(*peer), &[]) == Inserted::New).count()
    };
    // However near they claim to be, no more than a few come in, and none where it is full.
    let mut table = filled(limits, 14);
    let met: Vec<u64> = (0..14).collect();
    assert_eq!(claim(&mut table, 100..1000), 2);
    assert!(met.iter().all(|peer| table.is_met(peer, &position(*peer))));
    assert_eq!(claim(&mut filled(limits, 3), 100..1000), 4);
    // Those that were met come in at their cost first, even the furthest, and then by distance.
    let mut by_distance: Vec<u64> = (1000..1500).collect();
    by_distance.sort_by_key(|peer| distance(&own, &position(*peer)));
    let (nearest, furthest) = (by_distance[0], by_distance[499]);
    assert_eq!(table.insert(furthest, position(furthest), &[]), Inserted::New);
    assert_eq!(table.insert(nearest, position(nearest), &[]), Inserted::New);
    assert_eq!(table.iter().filter(|(peer, at)| !table.is_met(peer, at)).count(), 0);
    assert!(
        table.contains(&furthest, &position(furthest)) && met.iter().all(|peer| table.contains(peer, &position(*peer)))
    );
    // One that is met is no longer a claim, and a claim makes it none again.
    let mut table = filled(limits, 3);
    assert_eq!(claim(&mut table, 100..200), 4);
    let claimed = table.iter().find(|(peer, _)| **peer >= 100).map(|(peer, _)| *peer).expect("one of them");
    assert_eq!(table.insert(claimed, position(claimed), &[]), Inserted::Known);
    assert_eq!(table.insert_unmet(claimed, position(claimed), &[]), Inserted::Known);
    assert!(table.is_met(&claimed, &position(claimed)));
    assert_eq!(claim(&mut table, 200..300), 1);
}

#[test]
fn a_claimed_network_is_not_the_one_it_is_met_in() {
    let limits = TableLimits { group_peers_max: 2, ..TableLimits::default() };
    let mut table = PeerTable::new(position(u64::MAX), limits);
    let [here, there] = [[ip("203.0.1.1")], [ip("198.51.1.1")]];
    // Claims fill a network for other claims, and for nobody who is really there.
    for peer in [1, 2] {
        assert_eq!(table.insert_unmet(peer, position(peer), &here), Inserted::New);
    }
    assert_eq!(table.insert_unmet(3, position(3), &here), Inserted::GroupFull);
    for peer in [4, 5] {
        assert_eq!(table.insert(peer, position(peer), &here), Inserted::New);
    }
    assert_eq!(table.insert(6, position(6), &here), Inserted::GroupFull, "those who were met have their bound");
    // Whoever claims to be elsewhere and is met in a full network is out.
    assert_eq!(table.insert_unmet(7, position(7), &there), Inserted::New);
    assert_eq!(table.insert(7, position(7), &here), Inserted::GroupFull);
    assert!(!table.contains(&7, &position(7)));
    // And whoever was met cannot claim its way out of its network.
    assert_eq!(table.insert_unmet(4, position(4), &there), Inserted::Known);
    assert_eq!(table.insert(6, position(6), &here), Inserted::GroupFull);
}

#[test]
fn groups_are_networks_and_loopback_is_in_none() {
    let check = |address: &str, exempt, expected| assert_eq!(ip_group(ip(address), exempt), expected, "{address}");
    check("127.0.0.1", false, None);
    check("::1", false, None);
    check("::ffff:127.0.0.9", false, None);
    check("10.1.2.3", true, None);
    check("10.1.2.3", false, Some(IpGroup::V4([10, 1])));
    check("203.0.113.9", true, Some(IpGroup::V4([203, 0])));
    check("::ffff:203.0.113.9", true, Some(IpGroup::V4([203, 0])));
    check("2001:db8:1::1", true, Some(IpGroup::V6([0x20, 1, 0x0d, 0xb8])));
    check("fd00::1", true, None);
}

#[test]
fn a_failing_peer_makes_room_in_a_full_bucket_and_the_furthest_in_a_full_table() {
    let limits = TableLimits { bucket_max: 3, ..TableLimits::default() };
    let mut table = filled(limits, 100);
    let full = (200..).find(|peer| table.clone().insert(*peer, position(*peer), &[]) == Inserted::BucketFull);
    let (late, own) = (full.expect("most fall into the first bucket"), position(u64::MAX));
    let bits = shared_bits(&own, &position(late));
    let sick = table.iter().find(|(_, at)| shared_bits(&own, at) == bits).map(|(peer, _)| *peer).expect("a full one");
    table.mark(&sick, &position(sick), true);
    assert_eq!(table.insert(late, position(late), &[]), Inserted::New);
    assert!(!table.contains(&sick, &position(sick)) && table.contains(&late, &position(late)));

    let small = TableLimits { peers_max: 16, ..TableLimits::default() };
    let table = filled(small, 500);
    let mut nearest: Vec<u64> = (0..500).collect();
    nearest.sort_by_key(|peer| distance(&own, &position(*peer)));
    let mut kept: Vec<u64> = table.iter().map(|(peer, _)| *peer).collect();
    kept.sort_by_key(|peer| distance(&own, &position(*peer)));
    assert_eq!(kept, nearest[..16]);
}
