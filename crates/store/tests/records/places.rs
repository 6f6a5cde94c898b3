//! The places of one key: the node's own records always have theirs, and no stranger can take them all for good.

use ron_store::{Applied, Bounds, Change, Key, ProviderRecord, PublicKey, Record, Store};
use ron_types::limits::records::PROVIDERS_PER_KEY_MAX;

use crate::samples::NOW_MS;

const HOUR_MS: u64 = 3_600_000;
const KEY: Key = Key([7; 32]);
const OWNER: u32 = 1_000_000;

fn key_of(number: u32) -> PublicKey {
    PublicKey(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn record(peer: u32, signer: u32) -> Record {
    Record::Provider(ProviderRecord {
        key: KEY,
        peer: key_of(peer).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse().expect("an address")],
        protocols: vec![],
        region: None,
        sequence: 1,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + 48 * HOUR_MS,
        signer: key_of(signer),
        signature: [0; 64],
    })
}

fn store() -> Store {
    let store = Store::in_memory(Bounds::default()).expect("a store");
    store.set_owner(key_of(OWNER));
    store
}

/// Puts strangers with these numbers, who speak for themselves; says how many found a place.
fn strangers(store: &Store, numbers: std::ops::Range<u32>) -> usize {
    let changes: Vec<Change> = numbers.map(|number| Change::Put(record(number, number))).collect();
    let applied = store.apply(&changes, NOW_MS).expect("a batch");
    applied.iter().filter(|applied| **applied == Applied::Stored).count()
}

fn own(store: &Store, peer: u32) -> Applied {
    store.apply(&[Change::PutOwn(record(peer, OWNER))], NOW_MS).expect("a batch")[0]
}

/// Who has a place and is one of these.
fn placed(store: &Store, numbers: std::ops::Range<u32>) -> usize {
    let found = store.providers(&KEY, NOW_MS, 100).expect("providers");
    let peers: Vec<_> = numbers.map(|number| key_of(number).peer_id()).collect();
    found.iter().filter(|record| peers.contains(&record.peer)).count()
}

#[test]
fn the_node_itself_finds_a_place_at_a_key_that_strangers_filled() {
    let store = store();
    assert_eq!(strangers(&store, 0..64), PROVIDERS_PER_KEY_MAX);
    for peer in [OWNER, 5_000, 5_001] {
        assert_eq!(own(&store, peer), Applied::Stored, "it provides itself, or vouches for somebody");
    }
    assert_eq!(placed(&store, 0..64), PROVIDERS_PER_KEY_MAX - 3);
    assert_eq!(store.count(), PROVIDERS_PER_KEY_MAX, "each took the place of a stranger");
}

#[test]
fn strangers_never_push_out_what_the_node_signed() {
    let store = store();
    for peer in 5_000..5_010 {
        assert_eq!(own(&store, peer), Applied::Stored);
    }
    strangers(&store, 0..2_000);
    assert_eq!(placed(&store, 5_000..5_010), 10);
    // All places may be the node's own, and then there is none for more of them.
    for peer in 5_010..5_064 {
        assert_eq!(own(&store, peer), Applied::Stored);
    }
    assert_eq!(own(&store, 5_064), Applied::KeyFull);
    assert_eq!(strangers(&store, 2_000..2_100), 0);
    assert_eq!(placed(&store, 5_000..5_064), PROVIDERS_PER_KEY_MAX);
}

/// Keys cost nothing. Whoever comes first does not keep the others out, and whoever comes last, with however many,
/// does not push out those who were there. The bounds are far from what a fair draw comes to.
#[test]
fn neither_the_first_nor_the_last_who_makes_up_keys_has_all_places() {
    let store = store();
    assert_eq!(strangers(&store, 0..64), PROVIDERS_PER_KEY_MAX);
    let late = strangers(&store, 10_000..10_064);
    assert!((1..=63).contains(&late), "{late} of 64 who came late have a place");
    let placed_before = store.providers(&KEY, NOW_MS, 100).expect("providers").len();
    assert_eq!(placed_before, PROVIDERS_PER_KEY_MAX);
    strangers(&store, 20_000..22_000);
    let first = placed(&store, 0..64) + placed(&store, 10_000..10_064);
    assert!(first >= 12, "{first} places are those of the 128 who were there before the flood");
    assert_eq!(store.count(), PROVIDERS_PER_KEY_MAX);
}

#[test]
fn the_draw_is_another_one_at_each_node() {
    // A late provider is refused by some of the nodes nearest to a key, and taken by others.
    let taken = (0..40).filter(|_| {
        let store = store();
        strangers(&store, 0..64);
        strangers(&store, 9_999..10_000) == 1
    });
    let taken = taken.count();
    assert!((1..=39).contains(&taken), "{taken} of 40 nodes took it");
}
