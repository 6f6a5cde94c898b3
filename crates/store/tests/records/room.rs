//! Room in the store: bounds on the number and on the bytes of records, and what is left to the node itself.

use ron_store::{
    Applied, Bounds, Change, ContentId, IpnsRecord, Key, NameRecord, Provided, ProviderRecord, Record, Store,
};

use crate::samples::{IpnsParts, NOW_MS, public_key, row_and_value_bytes, signer};

const HOUR_MS: u64 = 3_600_000;

fn store(records_max: usize, records_bytes_max: usize) -> Store {
    Store::in_memory(Bounds { records_max, records_bytes_max, ..Bounds::default() }).expect("a store")
}

fn apply(store: &Store, change: Change) -> Applied {
    store.apply(&[change], NOW_MS).expect("a batch")[0]
}

/// An IPNS record of this many bytes and a few more.
fn ipns(number: u8, value_bytes: usize, sequence: u64) -> Record {
    let parts = IpnsParts { value: vec![b'x'; value_bytes], sequence, ..IpnsParts::default() };
    let name = public_key(number).peer_id();
    Record::Ipns(IpnsRecord::parse(&name, &parts.signed_by(number)).expect("a record"))
}

/// A provider record of the node with the key 1.
fn provider(content: ContentId, sequence: u64) -> Record {
    Record::Provider(ProviderRecord {
        key: content.key(),
        peer: public_key(1).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse().expect("an address")],
        protocols: vec![],
        region: None,
        sequence,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + HOUR_MS,
        signer: public_key(1),
        signature: [0; 64],
    })
}

fn name(label: &str, sequence: u64) -> Record {
    let value = ContentId::of_bytes(label.as_bytes());
    let record = NameRecord::sign(label, value, sequence, NOW_MS, NOW_MS + HOUR_MS, &signer(1));
    Record::Name(record.expect("within bounds"))
}

fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(row_and_value_bytes).sum()
}

#[test]
fn large_records_fill_the_bytes_long_before_the_count() {
    let store = store(1_000_000, 100_000);
    let outcomes: Vec<Applied> = (1..=20).map(|number| apply(&store, Change::Put(ipns(number, 9_000, 1)))).collect();
    let stored = outcomes.iter().filter(|applied| **applied == Applied::Stored).count();
    assert_eq!(stored, 10, "{outcomes:?}");
    assert!(outcomes[stored..].iter().all(|applied| *applied == Applied::Full));
    let bytes = store.counts().records_bytes;
    assert_eq!(bytes, bytes_of(&(1..=10).map(|number| ipns(number, 9_000, 1)).collect::<Vec<_>>()));
    assert!(bytes <= 100_000 - 100_000 / 16);
    // A small one may still fit where a large one does not.
    assert_eq!(apply(&store, Change::Put(ipns(30, 10, 1))), Applied::Stored);
}

#[test]
fn a_full_store_takes_records_that_do_not_grow_and_gets_bytes_back_from_those_that_shrink() {
    let store = store(100, 20_000);
    assert_eq!(apply(&store, Change::Put(ipns(1, 9_000, 1))), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(ipns(2, 9_000, 1))), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(ipns(3, 9_000, 1))), Applied::Full);
    assert_eq!(apply(&store, Change::Put(ipns(1, 9_800, 2))), Applied::Full, "it would grow");
    assert_eq!(apply(&store, Change::Put(ipns(1, 9_000, 3))), Applied::Stored, "it does not");
    assert_eq!(apply(&store, Change::Put(ipns(1, 9_000, 3))), Applied::Same);
    assert_eq!(apply(&store, Change::Put(ipns(1, 100, 4))), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(ipns(3, 9_000, 1))), Applied::Full);
    assert_eq!(apply(&store, Change::Put(ipns(2, 100, 2))), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(ipns(3, 9_000, 1))), Applied::Stored);
    let held = [ipns(1, 100, 4), ipns(2, 100, 2), ipns(3, 9_000, 1)];
    assert_eq!(store.counts().records_bytes, bytes_of(&held));
    // It is kept for longer when it comes again, with as many bytes.
    let again = store.apply(&[Change::Put(held[2].clone())], NOW_MS + 5 * HOUR_MS).expect("a batch");
    assert_eq!(again, [Applied::Same]);
    assert_eq!(store.counts().records_bytes, bytes_of(&held));
    store.expire(NOW_MS + 60 * HOUR_MS).expect("expired");
    assert_eq!((store.count(), store.counts().records_bytes), (0, 0));
}

/// Strangers meet the end of their share; the node itself publishes, renews and withdraws in what is left.
#[test]
fn the_node_itself_has_room_where_strangers_have_none() {
    let by_count = store(32, 1_000_000);
    let by_bytes = store(1_000_000, 8_000);
    for store in [by_count, by_bytes] {
        let strangers = (0..100_u8).map(|key| match provider(ContentId::of_bytes(&[key]), 1) {
            Record::Provider(record) => Record::Provider(ProviderRecord { key: Key([key; 32]), ..record }),
            other => other,
        });
        let full =
            strangers.map(|record| apply(&store, Change::Put(record))).filter(|applied| *applied == Applied::Full);
        assert!(full.count() > 50);
        let content = ContentId::of_bytes(b"ours");
        assert_eq!(apply(&store, Change::Put(provider(content, 1))), Applied::Full, "as a stranger's");
        assert_eq!(apply(&store, Change::PutOwn(provider(content, 1))), Applied::Stored);
        assert_eq!(apply(&store, Change::PutOwn(name("ours", 1))), Applied::Stored);
        let provided = Provided { content, addrs: vec![], protocols: vec![], ttl_ms: HOUR_MS };
        assert_eq!(apply(&store, Change::Provide(provided)), Applied::Stored);
        assert_eq!(apply(&store, Change::Renew(provider(content, 1 << 40))), Applied::Stored, "though it grows");
        // The reserve ends too.
        let mut own = (0..40).map(|number| apply(&store, Change::PutOwn(name(&format!("n{number}"), 1))));
        assert!(own.any(|applied| applied == Applied::Full));
    }
}

#[test]
fn nothing_is_kept_of_an_update_whose_record_is_refused_and_a_withdrawal_is_done_anyway() {
    let store = store(2, 1_000_000);
    let (ours, other) = (ContentId::of_bytes(b"ours"), ContentId::of_bytes(b"other"));
    let provided = |content| Change::Provide(Provided { content, addrs: vec![], protocols: vec![], ttl_ms: HOUR_MS });
    let update = |changes: Vec<Change>| store.apply_updates(&[changes], NOW_MS).expect("a batch").remove(0);
    use Applied::{Full, Older, Refused, Same, Stored};
    assert_eq!(update(vec![Change::PutOwn(provider(ours, 2)), provided(ours)]), [Stored, Stored]);
    let keep = Change::KeepName { label: "ours".to_owned(), value: ours };
    assert_eq!(update(vec![Change::PutOwn(name("ours", 2)), keep]), [Stored, Stored]);

    assert_eq!(update(vec![Change::PutOwn(provider(other, 1)), provided(other)]), [Full, Refused]);
    let keep = |label: &str| Change::KeepName { label: label.to_owned(), value: other };
    assert_eq!(update(vec![Change::PutOwn(name("other", 1)), keep("other")]), [Full, Refused]);
    assert_eq!(update(vec![Change::PutOwn(name("ours", 1)), keep("ours")]), [Older, Refused]);
    // One with a named end, which would end what stands.
    assert_eq!(update(vec![Change::PutOwn(provider(ours, 1)), Change::Withdraw(ours.key())]), [Older, Refused]);
    assert_eq!(store.own_keys(None, 9).expect("readable"), [ours.key()]);
    assert_eq!(store.named(None, 9).expect("readable"), [("ours".to_owned(), ours)]);
    assert_eq!(update(vec![Change::PutOwn(provider(ours, 2)), provided(ours)]), [Same, Same]);

    let Record::Provider(record) = provider(ours, 1) else { panic!("a provider record") };
    let withdrawal = Record::Provider(ProviderRecord { addrs: vec![], expires_ms: NOW_MS, ..record });
    assert_eq!(update(vec![Change::PutOwn(withdrawal), Change::Withdraw(ours.key())]), [Older, Stored]);
    let gone = NameRecord::sign("ours", ours, 1, NOW_MS, NOW_MS, &signer(1)).expect("within bounds");
    let drop_name = Change::DropName("ours".to_owned());
    assert_eq!(update(vec![Change::PutOwn(Record::Name(gone)), drop_name]), [Older, Stored]);
    assert_eq!((store.counts().provided, store.counts().named), (0, 0));
    assert_eq!(update(vec![]), []);
}
