//! Tests of what is known of other nodes.

use std::net::Ipv4Addr;

use ron_transport::NodeKey;
use ron_types::limits::lookup::TABLE_GROUP_PEERS_MAX;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;

fn peer(number: u16) -> PeerId {
    let mut key = [0; 32];
    key[..2].copy_from_slice(&number.to_be_bytes());
    PeerId::of_ed25519(&key)
}

fn addr(ip: [u8; 4]) -> Multiaddr {
    crate::convert::over_tcp((Ipv4Addr::from(ip), 4001).into())
}

fn members() -> Members {
    Members::new(peer(0), 1000)
}

fn meet(members: &Members, number: u16, ip: [u8; 4]) -> Entry {
    members.connection_opened(peer(number), Some(IpAddr::from(ip)));
    members.met(peer(number), &[addr(ip)], NOW_MS)
}

#[test]
fn one_network_of_addresses_has_few_places_whatever_it_claims() {
    let members = members();
    let is_taken = |number: &u16| meet(&members, *number, [203, 0, *number as u8, 1]) == Entry::New;
    let (taken, refused): (Vec<u16>, Vec<u16>) = (1..1000).partition(is_taken);
    assert!(taken.len() <= TABLE_GROUP_PEERS_MAX, "{} nodes of one /16 were taken in", taken.len());
    assert_eq!(members.len(), taken.len());
    // They were reached in one network, and claim to be in another.
    assert_eq!(members.met(peer(refused[0]), &[addr([198, 51, 100, 1])], NOW_MS), Entry::Refused);
    assert_eq!(meet(&members, 2000, [198, 51, 100, 1]), Entry::New);
    assert!(!members.is_complete(NOW_MS));
}

#[test]
fn the_table_is_bounded_and_its_facts_with_it() {
    let members = Members::new(peer(0), 32);
    for number in 1..500 {
        meet(&members, number, [10, (number >> 8) as u8, number as u8, 1]);
    }
    assert_eq!(members.len(), 32);
    assert_eq!(members.views().len(), 32, "whoever was pushed out is forgotten");
    assert_eq!(members.nearest(&peer(0).key(), 100).len(), 32);
}

#[test]
fn one_that_fails_is_forgotten_but_not_while_nobody_answers() {
    let members = members();
    for number in [1, 2] {
        meet(&members, number, [10, 0, 0, number as u8]);
    }
    for _ in 0..20 {
        assert!(!members.failed(&peer(1), NOW_MS + 10), "it may be us who are cut off");
    }
    members.answered(&peer(2), Duration::from_millis(1), NOW_MS + 20);
    assert!(members.failed(&peer(1), NOW_MS + 30));
    assert_eq!(members.nearest(&Key([0; 32]), 9), vec![peer(2)]);
    members.answered(&peer(2), Duration::from_millis(1), NOW_MS + 40);
    for _ in 1..limits::FAILURES_MAX {
        assert!(!members.failed(&peer(2), NOW_MS + 50));
    }
    members.answered(&peer(2), Duration::from_millis(1), NOW_MS + 60);
    assert!(!members.failed(&peer(2), NOW_MS + 70), "an answer forgives what was before");
}

#[test]
fn one_that_lies_is_not_taken_in_again_for_a_while() {
    let members = members();
    meet(&members, 1, [10, 0, 0, 1]);
    members.distrust(peer(1), NOW_MS);
    assert_eq!(members.met(peer(1), &[addr([10, 0, 0, 1])], NOW_MS + 1), Entry::Refused);
    assert!(!members.suggest(peer(1), &[addr([10, 0, 0, 1])], Source::Met, NOW_MS + 1));
    assert_eq!(members.met(peer(1), &[addr([10, 0, 0, 1])], NOW_MS + DISTRUSTED_MS), Entry::New);
    for number in 2..2000 {
        members.distrust(peer(number), NOW_MS);
    }
    assert!(members.lock().distrusted.len() <= DISTRUSTED_MAX);
}

#[test]
fn nodes_that_others_name_are_bounded_and_in_no_table() {
    let members = members();
    for number in 1..=(limits::CANDIDATES_MAX as u16 + 100) {
        assert!(members.suggest(peer(number), &[addr([10, 0, 0, 1])], Source::Met, NOW_MS));
    }
    assert!(!members.is_reachable(&peer(1)), "the oldest made room");
    assert!(members.is_reachable(&peer(limits::CANDIDATES_MAX as u16)));
    assert_eq!((members.len(), members.nearest(&Key([0; 32]), 9).len()), (0, 0));
    assert!(!members.suggest(peer(0), &[addr([10, 0, 0, 1])], Source::Met, NOW_MS), "this node itself");
    assert!(!members.suggest(peer(5), &[addr([127, 0, 0, 1])], Source::Met, NOW_MS), "our own loopback");
    members.allow_loopback(true);
    assert!(members.suggest(peer(5), &[addr([127, 0, 0, 1])], Source::Met, NOW_MS));
}

#[test]
fn what_a_node_said_before_does_not_move_it_back() {
    let members = members();
    let key = NodeKey::generate().expect("randomness");
    let record = |ip, sequence| PeerRecord::sign(vec![addr(ip)], sequence, NOW_MS + 1000, &key).expect("in bounds");
    let id = PeerId::from(key.node_id());
    assert_eq!(members.announced(record([10, 0, 0, 1], 1), NOW_MS), Entry::New);
    assert_eq!(members.announced(record([10, 0, 0, 2], 2), NOW_MS), Entry::Known);
    assert_eq!(members.announced(record([10, 0, 0, 1], 1), NOW_MS), Entry::Known);
    assert_eq!(members.addrs_of(&id), vec![addr([10, 0, 0, 2])]);
    assert_eq!(members.record_of(&id, NOW_MS).map(|record| record.sequence), Some(2));
    assert_eq!(members.record_of(&id, NOW_MS + 1000), None, "it is over");
}

fn announce(members: &Members, ip: [u8; 4]) -> (PeerId, Entry) {
    let key = NodeKey::generate().expect("randomness");
    let record = PeerRecord::sign(vec![addr(ip)], 1, NOW_MS + 1000, &key).expect("in bounds");
    (PeerId::from(key.node_id()), members.announced(record, NOW_MS))
}

#[test]
fn announcements_are_few_and_push_nobody_out_that_was_met() {
    let members = Members::new(peer(0), 64);
    for number in 1..=60 {
        meet(&members, number, [10, 0, 0, number as u8]);
    }
    // Some of these are nearer than all that were met.
    let made_up: Vec<(PeerId, Entry)> = (0..500).map(|_| announce(&members, [10, 1, 0, 1])).collect();
    assert_eq!(made_up.iter().filter(|(_, entry)| *entry == Entry::New).count(), 4, "as many as there was room for");
    let known: Vec<PeerId> = members.views().iter().map(|view| view.peer).collect();
    assert!((1..=60).all(|number| known.contains(&peer(number))));
    // Who was met next takes their places, wherever it is.
    for number in 61..=64 {
        assert_eq!(meet(&members, number, [10, 0, 0, number as u8]), Entry::New);
    }
    assert!(members.views().iter().all(|view| !made_up.iter().any(|(peer, _)| *peer == view.peer)));
    // An empty table does not fill with them either.
    let empty = Members::new(peer(0), 64);
    assert_eq!((0..500).filter(|_| announce(&empty, [10, 1, 0, 1]).1 == Entry::New).count(), 64 / limits::UNMET_ONE_IN);
    // Those that were met are written down first.
    meet(&empty, 1, [10, 0, 0, 1]);
    assert_eq!(empty.to_save().expect("it changed")[0].0, peer(1));
}

#[test]
fn a_network_of_addresses_is_where_a_node_is_met_and_not_what_it_announces() {
    let members = members();
    for number in 1..1000 {
        meet(&members, number, [203, 0, number as u8, 1]);
    }
    // It says to be elsewhere, and it is met where there is no place: half of all nodes share no bit with this one.
    let is_far = |peer: &PeerId| shared_bits(&members.own.key().0, &peer.key().0) == 0;
    let mut announced = std::iter::repeat_with(|| announce(&members, [198, 51, 100, 1]));
    let (sly, entry) = announced.find(|(peer, _)| is_far(peer)).expect("there is no end of them");
    assert_eq!(entry, Entry::New);
    let known = members.len() - 1;
    members.connection_opened(sly, Some(IpAddr::from([203, 0, 7, 7])));
    assert_eq!(members.met(sly, &[addr([198, 51, 100, 1])], NOW_MS), Entry::Forgotten);
    assert_eq!((members.len(), members.views().len()), (known, known));
}

#[test]
fn membership_is_complete_when_everybody_was_named() {
    let members = members();
    assert!(!members.is_complete(NOW_MS));
    members.joined();
    assert!(members.is_complete(NOW_MS), "alone");
    meet(&members, 1, [10, 0, 0, 1]);
    assert!(!members.is_complete(NOW_MS), "there is a network to walk through");
    members.joined();
    assert!(members.is_complete(NOW_MS));
    for number in 2..30 {
        meet(&members, number, [10, 0, 0, number as u8]);
    }
    assert!(!members.is_complete(NOW_MS), "more than one answer names");
    let announced = Members::new(peer(0), 1000);
    announced.joined();
    announced.hears(Some(NOW_MS));
    for _ in 0..30 {
        let key = NodeKey::generate().expect("randomness");
        let record = PeerRecord::sign(vec![addr([10, 0, 0, 1])], 1, NOW_MS + 1000, &key).expect("in bounds");
        announced.announced(record, NOW_MS);
    }
    announced.joined();
    assert!(!announced.is_complete(NOW_MS + 1000), "not everybody had the time");
    let later = NOW_MS + 2 * limits::ANNOUNCE_INTERVAL.as_millis() as u64;
    assert!(announced.is_complete(later));
    meet(&announced, 7, [10, 0, 0, 7]);
    assert!(!announced.is_complete(later), "one that announces nothing: there may be more");
}

#[test]
fn responsible_is_whoever_is_among_the_nearest() {
    let members = members();
    let key = Key([0; 32]);
    assert!(members.is_responsible(&key, 1), "alone");
    for number in 1..40 {
        meet(&members, number, [10, 0, 0, number as u8]);
    }
    let mut all: Vec<PeerId> = (0..40).map(peer).collect();
    all.sort_by_key(|peer| peer.key().distance(&key));
    let place = all.iter().position(|one| *one == peer(0)).expect("it is there");
    assert!(members.is_responsible(&key, place + 1));
    assert!(place == 0 || !members.is_responsible(&key, place));
    assert!(members.is_responsible(&peer(0).key(), 1), "nobody is nearer to us than we are");
}

#[test]
fn only_changes_are_written_down() {
    let members = members();
    assert_eq!(members.to_save(), None);
    meet(&members, 1, [10, 0, 0, 1]);
    assert_eq!(members.to_save(), Some(vec![(peer(1), vec![addr([10, 0, 0, 1])])]));
    assert_eq!(members.to_save(), None);
    members.save_again();
    assert!(members.to_save().is_some());
    members.leave(&peer(1));
    assert_eq!(members.to_save(), None, "an empty table is no reason to forget what the file has");
}
