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
    fn counts_follow_the_peers(ops in proptest::collection::vec((0u64..40, 0u8..4, 0u8..5), 0..200)) {
        let groups = TableLimits { group_peers_max: 5, group_bucket_max: 3, ..TableLimits::default() };
        let limits = TableLimits { peers_max: 20, unmet_min: 5, ..groups };
        let mut table = PeerTable::new(position(u64::MAX), limits);
        for (peer, network, op) in ops {
            let addresses = [ip(&format!("8.{network}.0.{peer}"))];
            let met: Vec<u64> = table.peers.iter().filter(|peer| peer.is_met).map(|peer| peer.target).collect();
            match op {
                0 => drop(table.remove(&peer, &position(peer))),
                1 => drop(table.insert(peer, position(peer), &addresses)),
                2 if peer < 8 => drop(table.insert_named(peer, position(peer))),
                3 => table.mark(&peer, &position(peer), true),
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
            let (met, unmet): (Vec<_>, Vec<_>) = table.peers.iter().partition(|peer| peer.is_met);
            prop_assert_eq!(met.len(), table.met);
            prop_assert!(unmet.len() <= 5.max(met.len() / 3), "{} beside {}", unmet.len(), met.len());
            let nearest = table.nearest(&position(1), 40);
            prop_assert!(met.is_empty() || nearest.len() == met.len(), "those that were met, and nobody else");
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
    let limits = TableLimits { peers_max: 16, unmet_min: 4, ..TableLimits::default() };
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

#[test]
fn whom_nobody_has_met_is_asked_where_nobody_else_is_known_and_makes_room_when_it_fails() {
    let mut table = filled(TableLimits::default(), 0);
    let claimed: Vec<u64> = (0..16).collect();
    for peer in 0..100 {
        table.insert_unmet(peer, position(peer), &[]);
    }
    let known: Vec<u64> = table.nearest(&position(7), 99).into_iter().map(|candidate| candidate.target).collect();
    assert_eq!((known.len(), table.expects_somebody()), (16, true));
    assert!(claimed.iter().all(|peer| known.contains(peer)));
    for peer in &claimed {
        table.mark(peer, &position(*peer), true);
    }
    assert!(!table.expects_somebody(), "nobody is waited for in vain");
    assert_eq!(table.insert_unmet(500, position(500), &[]), Inserted::New);
    assert_eq!((table.len(), table.expects_somebody()), (16, true));
    // One that was met is all there is to ask, however near the others claim to be.
    table.insert(1000, position(1000), &[]);
    let known = table.nearest(&position(500), 99);
    assert_eq!(known.iter().map(|candidate| candidate.target).collect::<Vec<_>>(), [1000]);
    // A quarter of many is more than a few, and of few that are left it is few again.
    let mut table = filled(TableLimits::default(), 90);
    for peer in 100..1000 {
        table.insert_unmet(peer, position(peer), &[]);
    }
    assert_eq!((table.met(), table.len()), (90, 120));
    for peer in 0..60 {
        assert!(table.remove(&peer, &position(peer)));
    }
    assert_eq!((table.met(), table.len()), (30, 46));
}

#[test]
fn whom_the_operator_names_has_a_place_whoever_else_is_there() {
    let limits = TableLimits { peers_max: 16, bucket_max: 8, group_peers_max: 2, ..TableLimits::default() };
    let own = position(u64::MAX);
    let mut by_distance: Vec<u64> = (0..2000).collect();
    by_distance.sort_by_key(|peer| std::cmp::Reverse(distance(&own, &position(*peer))));
    let mut table = PeerTable::new(own, limits);
    let fill = |table: &mut PeerTable<u64>| {
        for peer in 100..2000 {
            table.insert(peer, position(peer), &[ip("127.0.0.1")]);
        }
    };
    fill(&mut table);
    let named: Vec<u64> = by_distance.into_iter().filter(|peer| *peer < 100).take(10).collect();
    let outcomes: Vec<Inserted> = named.iter().map(|peer| table.insert_named(*peer, position(*peer))).collect();
    // The furthest share one bucket, which has no more places than these.
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Inserted::New).count(), 8, "{outcomes:?}");
    fill(&mut table);
    let stays = |peer: &&u64| table.is_met(peer, &position(**peer));
    assert_eq!(named.iter().filter(stays).count(), 8);
    assert!(table.len() <= 16);
    // Nor does it lose its place by where it is reached.
    let mut table = PeerTable::new(own, limits);
    let here = [ip("203.0.1.1")];
    for peer in [1, 2] {
        assert_eq!(table.insert(peer, position(peer), &here), Inserted::New);
    }
    assert_eq!(table.insert(3, position(3), &here), Inserted::GroupFull);
    assert_eq!(table.insert_named(3, position(3)), Inserted::New);
    assert_eq!(table.insert(3, position(3), &here), Inserted::Known);
    assert_eq!(table.insert_named(2, position(2)), Inserted::Known, "named later");
}
