//! The store: what is kept, what is pushed out, and what becomes of a damaged file.

use std::path::Path;

use bytes::Bytes;
use ron_store::{
    Applied, Bounds, Change, ContentId, Expired, IpnsRecord, Key, Multiaddr, NameRecord, PeerId, PeerRecord, Provided,
    ProviderRecord, PublicKey, Record, Store, Subject, TTL_MAX_MS,
};

use ron_types::limits::records::EXPIRED_AT_ONCE_MAX;

use crate::samples::{IpnsParts, NOW_MS, public_key, row_and_value_bytes, signer};

const HOUR_MS: u64 = 3_600_000;

fn memory() -> Store {
    Store::in_memory(Bounds::default()).expect("a store")
}

fn open(path: &Path) -> Store {
    let opened = Store::open(path, Bounds::default()).expect("a store");
    assert_eq!(opened.lost, None);
    opened.store
}

fn key_of(number: u16) -> PublicKey {
    PublicKey(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// A record that nobody signed, which the store does not mind.
fn provider(key: u8, peer: u16, signer: u16) -> ProviderRecord {
    ProviderRecord {
        key: Key([key; 32]),
        peer: key_of(peer).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse::<Multiaddr>().expect("an address")],
        protocols: vec![],
        region: None,
        sequence: 1,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + HOUR_MS,
        signer: key_of(signer),
        signature: [0; 64],
    }
}

fn put(store: &Store, record: ProviderRecord, now_ms: u64) -> Applied {
    apply(store, Change::Put(Record::Provider(record)), now_ms)
}

fn apply(store: &Store, change: Change, now_ms: u64) -> Applied {
    store.apply(&[change], now_ms).expect("a batch")[0]
}

fn peers(store: &Store, key: u8, now_ms: u64) -> Vec<PeerId> {
    let found = store.providers(&Key([key; 32]), now_ms, 100).expect("providers");
    found.into_iter().map(|record| record.peer).collect()
}

#[test]
fn a_later_record_takes_the_place_of_an_earlier_one() {
    let store = memory();
    let first = provider(1, 1, 1);
    assert_eq!(put(&store, first.clone(), NOW_MS), Applied::Stored);
    assert_eq!(put(&store, first.clone(), NOW_MS), Applied::Same);
    let later = ProviderRecord { sequence: 2, expires_ms: NOW_MS + 7 * HOUR_MS, ..first.clone() };
    assert_eq!(put(&store, later.clone(), NOW_MS), Applied::Stored);
    assert_eq!(put(&store, first, NOW_MS), Applied::Older);
    assert_eq!(store.providers(&Key([1; 32]), NOW_MS, 9).expect("providers"), [later]);
    assert_eq!(store.count(), 1);
}

#[test]
fn a_withdrawal_keeps_earlier_records_away() {
    let store = memory();
    let record = provider(1, 1, 1);
    put(&store, record.clone(), NOW_MS);
    let withdrawal = ProviderRecord { sequence: 2, addrs: vec![], expires_ms: NOW_MS, ..record.clone() };
    assert_eq!(put(&store, withdrawal, NOW_MS), Applied::Stored);
    assert_eq!(put(&store, record, NOW_MS), Applied::Older);
    assert!(peers(&store, 1, NOW_MS).is_empty());
    assert_eq!(store.expire(NOW_MS + TTL_MAX_MS + HOUR_MS).expect("expired"), 1);
    assert_eq!(store.count(), 0);
}

#[test]
fn what_is_over_or_lasts_too_long_is_refused() {
    let store = memory();
    assert_eq!(put(&store, provider(1, 1, 1), NOW_MS + HOUR_MS), Applied::Refused);
    let lasting = ProviderRecord { expires_ms: NOW_MS + TTL_MAX_MS + 301_000, ..provider(1, 1, 1) };
    assert_eq!(put(&store, lasting, NOW_MS), Applied::Refused);
    assert_eq!(store.count(), 0);
}

#[test]
fn a_vouching_signer_does_not_push_out_what_the_peer_says() {
    let store = memory();
    put(&store, provider(1, 1, 1), NOW_MS);
    let lie = ProviderRecord { sequence: u64::MAX, ..provider(1, 1, 2) };
    assert_eq!(put(&store, lie, NOW_MS), Applied::Stored);
    let found = store.providers(&Key([1; 32]), NOW_MS, 9).expect("providers");
    assert_eq!(found.iter().map(ProviderRecord::is_self_signed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_key_has_64_providers_and_those_who_speak_for_themselves_stay() {
    let store = memory();
    for peer in 0..60 {
        assert_eq!(put(&store, provider(1, peer, 1_000), NOW_MS), Applied::Stored);
    }
    let withdrawal = |peer| ProviderRecord { addrs: vec![], expires_ms: NOW_MS, ..provider(1, peer, peer) };
    for peer in 100..104 {
        assert_eq!(put(&store, withdrawal(peer), NOW_MS), Applied::Stored);
    }
    assert_eq!(put(&store, provider(1, 60, 1_000), NOW_MS), Applied::KeyFull, "one more that is vouched for");
    assert_eq!(put(&store, withdrawal(104), NOW_MS), Applied::KeyFull, "one more withdrawal");
    for peer in 200..264 {
        assert_eq!(put(&store, provider(1, peer, peer), NOW_MS), Applied::Stored, "{peer} speaks for itself");
    }
    assert_eq!(store.count(), 64);
    let held: usize = (200..264).map(|peer| row_and_value_bytes(&Record::Provider(provider(1, peer, peer)))).sum();
    assert_eq!(store.counts().records_bytes, held, "who is pushed out gives bytes back");
    assert_eq!(put(&store, provider(1, 265, 1_000), NOW_MS), Applied::KeyFull, "who is vouched for pushes out nobody");
    let newer = ProviderRecord { sequence: 2, ..provider(1, 200, 200) };
    assert_eq!(put(&store, newer, NOW_MS), Applied::Stored, "one that is there can be renewed");
    let late_ms = NOW_MS + HOUR_MS;
    let late = ProviderRecord { issued_ms: late_ms, expires_ms: late_ms + 1, ..provider(1, 264, 1_000) };
    assert_eq!(put(&store, late, late_ms), Applied::Stored, "what is over makes room for anyone");
    assert_eq!(peers(&store, 1, late_ms), [key_of(264).peer_id()]);
    assert_eq!(store.providers(&Key([1; 32]), NOW_MS, 5).expect("providers").len(), 5);
}

#[test]
fn names_that_end_together_are_dropped_in_steps() {
    let store = memory();
    let name = |number: usize| {
        Change::Put(Record::Name(NameRecord {
            label: format!("n{number}"),
            owner: key_of(1),
            value: ContentId::of_bytes(b"abc"),
            sequence: 1,
            issued_ms: NOW_MS,
            expires_ms: NOW_MS + 1,
            signature: [0; 64],
        }))
    };
    let names: Vec<Change> = (0..EXPIRED_AT_ONCE_MAX + 10).map(name).collect();
    assert!(store.apply(&names, NOW_MS).expect("a batch").iter().all(|applied| *applied == Applied::Stored));
    let later_ms = NOW_MS + 2 * HOUR_MS;
    let first = store.expire_some(later_ms).expect("expired");
    assert_eq!(first, Expired { dropped: EXPIRED_AT_ONCE_MAX, has_more: true });
    assert_eq!(store.count(), 10, "others who write have their turn now");
    assert_eq!(store.expire_some(later_ms).expect("expired"), Expired { dropped: 10, has_more: false });
    assert_eq!((store.count(), store.counts().records_bytes), (0, 0));
}

#[test]
fn bounds_are_answers() {
    let bounds = Bounds { records_max: 2, manifests_bytes_max: 10, ..Bounds::default() };
    let store = Store::in_memory(bounds).expect("a store");
    put(&store, provider(1, 1, 1), NOW_MS);
    let peer = |number| Record::Peer(PeerRecord::sign(vec![], 1, NOW_MS + 9, &signer(number)).expect("a record"));
    assert_eq!(apply(&store, Change::Put(peer(1)), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(peer(2)), NOW_MS), Applied::Full);
    assert_eq!(put(&store, provider(2, 1, 1), NOW_MS), Applied::Full);
    let manifest = |text: &'static str| Change::Manifest {
        content: ContentId::of_bytes(text.as_bytes()),
        bytes: Bytes::from_static(text.as_bytes()),
    };
    assert_eq!(apply(&store, manifest("123456"), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, manifest("abcdef"), NOW_MS), Applied::Full);
    assert_eq!(apply(&store, Change::Forget(ContentId::of_bytes(b"123456")), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, manifest("abcdef"), NOW_MS), Applied::Stored);
}

#[test]
fn manifests_are_what_their_ids_say() {
    let store = memory();
    let content = ContentId::of_bytes(b"right");
    let with = |bytes: &'static [u8]| Change::Manifest { content, bytes: Bytes::from_static(bytes) };
    assert_eq!(apply(&store, with(b"wrong"), NOW_MS), Applied::Refused);
    assert_eq!(apply(&store, with(b"right"), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, with(b"right"), NOW_MS), Applied::Same);
    assert_eq!(store.manifest(&content).expect("a manifest").as_deref(), Some(b"right".as_slice()));
    let large = Bytes::from(vec![0; 1024 * 1024 + 1]);
    let large = Change::Manifest { content: ContentId::of_bytes(&large), bytes: large };
    assert_eq!(apply(&store, large, NOW_MS), Applied::Refused);
    assert_eq!((store.counts().manifests, store.counts().manifests_bytes), (1, 5));
}

#[test]
fn pins_names_and_provided_content_are_listed_in_pages() {
    let store = memory();
    let subjects: Vec<Subject> = ["name:a", "name:a/b", "name:b"].map(|text| text.parse().expect("a name")).to_vec();
    for subject in &subjects {
        assert_eq!(apply(&store, Change::Pin(subject.clone()), NOW_MS), Applied::Stored);
        let Subject::Name(name) = subject else { continue };
        let record = NameRecord::sign(name.label(), ContentId::of_bytes(b""), 1, NOW_MS, NOW_MS + 9, &signer(1));
        apply(&store, Change::Put(Record::Name(record.expect("a record"))), NOW_MS);
    }
    let pins = |after| store.pins(after, 2).expect("pins").into_iter().map(|(subject, _)| subject).collect::<Vec<_>>();
    assert_eq!((pins(None), pins(Some(&subjects[1]))), (subjects[..2].to_vec(), subjects[2..].to_vec()));
    assert_eq!(apply(&store, Change::Pin(subjects[0].clone()), NOW_MS), Applied::Same);
    assert_eq!(apply(&store, Change::Unpin(subjects[0].clone()), NOW_MS), Applied::Stored);
    assert!(!store.is_pinned(&subjects[0]).expect("an answer") && store.is_pinned(&subjects[1]).expect("an answer"));

    let labels = |owner: u8, after| {
        let names = store.names(&public_key(owner), after, 2, NOW_MS).expect("names");
        names.into_iter().map(|record| record.label).collect::<Vec<_>>()
    };
    assert_eq!((labels(1, None), labels(1, Some("a/b"))), (vec!["a".into(), "a/b".into()], vec!["b".into()]));
    assert!(labels(2, None).is_empty());
    assert!(store.name(&public_key(1), "a/b", NOW_MS).expect("an answer").is_some());
    assert!(store.name(&public_key(1), "a/b", NOW_MS + 9).expect("an answer").is_none());

    let provided = |number: u8| Provided {
        content: ContentId::blake3([number; 32]),
        addrs: vec![],
        protocols: vec!["http".to_owned()],
        ttl_ms: HOUR_MS,
    };
    for number in 0..3 {
        assert_eq!(apply(&store, Change::Provide(provided(number)), NOW_MS), Applied::Stored);
    }
    let keys = store.own_keys(None, 10).expect("keys");
    assert!(keys.is_sorted() && keys.len() == 3);
    assert_eq!(store.own_keys(Some(keys[0]), 1).expect("keys"), keys[1..2]);
    assert_eq!(apply(&store, Change::Withdraw(keys[0]), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, Change::Withdraw(keys[0]), NOW_MS), Applied::Same);
    assert_eq!(store.counts().provided, 2);
    let names =
        [("a", 1), ("a/b", 2), ("b", 3)].map(|(label, value)| (label.to_owned(), ContentId::of_bytes(&[value])));
    for (label, value) in names.clone() {
        assert_eq!(apply(&store, Change::KeepName { label: label.clone(), value }, NOW_MS), Applied::Stored);
        assert_eq!(apply(&store, Change::KeepName { label, value }, NOW_MS), Applied::Same);
    }
    assert_eq!(store.named(None, 10).expect("names"), names);
    assert_eq!(store.named(Some("a"), 1).expect("names"), names[1..2]);
    assert_eq!(apply(&store, Change::DropName("a".to_owned()), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, Change::DropName("a".to_owned()), NOW_MS), Applied::Same);
    let wrong = Change::KeepName { label: "No".to_owned(), value: names[0].1 };
    assert_eq!((apply(&store, wrong, NOW_MS), store.counts().named), (Applied::Refused, 2));
    let endless = Provided { ttl_ms: u64::MAX, ..provided(9) };
    assert_eq!(apply(&store, Change::Provide(endless), NOW_MS), Applied::Refused);
}

#[test]
fn only_what_the_node_still_says_is_renewed() {
    let store = memory();
    let content = ContentId::of_bytes(b"abc");
    let record = |sequence| ProviderRecord { key: content.key(), sequence, ..provider(1, 1, 1) };
    let renew = |sequence| Change::Renew(Record::Provider(record(sequence)));
    assert_eq!(apply(&store, renew(1), NOW_MS), Applied::Refused, "nobody said so");
    let provided = Provided { content, addrs: vec![], protocols: vec![], ttl_ms: HOUR_MS };
    apply(&store, Change::Provide(provided), NOW_MS);
    assert_eq!(apply(&store, renew(2), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, renew(1), NOW_MS), Applied::Older);
    apply(&store, Change::Withdraw(content.key()), NOW_MS);
    assert_eq!(apply(&store, renew(3), NOW_MS), Applied::Refused, "signed before the withdrawal was written");

    let name = |value: &[u8], sequence| {
        let value = ContentId::of_bytes(value);
        let record = NameRecord::sign("app", value, sequence, NOW_MS, NOW_MS + HOUR_MS, &signer(1));
        Change::Renew(Record::Name(record.expect("within bounds")))
    };
    assert_eq!(apply(&store, name(b"one", 1), NOW_MS), Applied::Refused);
    let value = ContentId::of_bytes(b"one");
    apply(&store, Change::KeepName { label: "app".to_owned(), value }, NOW_MS);
    assert_eq!(apply(&store, name(b"one", 1), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, name(b"two", 2), NOW_MS), Applied::Refused, "it stands for something else");
}

#[test]
fn a_name_that_was_taken_back_stands_for_nothing_and_older_records_do_not_return() {
    let store = memory();
    let owner = public_key(1);
    let record = |sequence, ttl_ms| {
        let record = NameRecord::sign("app", ContentId::of_bytes(b"x"), sequence, NOW_MS, NOW_MS + ttl_ms, &signer(1));
        record.expect("within bounds")
    };
    let put = |record: NameRecord, now_ms| apply(&store, Change::Put(Record::Name(record)), now_ms);
    assert_eq!(put(record(1, HOUR_MS), NOW_MS), Applied::Stored);
    let withdrawal = record(2, 0);
    assert!(withdrawal.withdraws() && Record::Name(withdrawal.clone()).verify(NOW_MS + HOUR_MS).is_ok());
    assert_eq!(put(withdrawal.clone(), NOW_MS), Applied::Stored);
    assert_eq!(put(record(1, HOUR_MS), NOW_MS + 1), Applied::Older);
    assert_eq!(store.name(&owner, "app", NOW_MS).expect("an answer"), None);
    assert_eq!(store.names(&owner, None, 10, NOW_MS).expect("an answer"), []);
    assert_eq!(store.name_or_withdrawal(&owner, "app", NOW_MS).expect("an answer"), Some(withdrawal.clone()));
    let (from, to) = (Key([0; 32]), Key([255; 32]));
    let handed_on = store.records_in(from, to, 10, NOW_MS).expect("records");
    assert_eq!(handed_on, [Record::Name(withdrawal)], "other nodes hear of it");
    assert_eq!(store.records_in(from, to, 10, NOW_MS + TTL_MAX_MS).expect("records"), [], "until nothing older lives");
}

#[test]
fn the_first_answer_to_a_request_is_remembered() {
    let store = memory();
    let remember = |answer: &'static str, until_ms| Change::Remember {
        request: [7; 32],
        answer: Bytes::from_static(answer.as_bytes()),
        until_ms,
    };
    assert_eq!(apply(&store, remember("first", NOW_MS + HOUR_MS), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, remember("second", NOW_MS + 9), NOW_MS), Applied::Same);
    assert_eq!(store.remembered(&[7; 32], NOW_MS).expect("an answer").as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.remembered(&[7; 32], NOW_MS + HOUR_MS).expect("an answer"), None);
    assert_eq!(apply(&store, remember("late", NOW_MS + 3 * HOUR_MS), NOW_MS + HOUR_MS), Applied::Stored);
    store.expire(NOW_MS + 3 * HOUR_MS).expect("expired");
    assert!(store.remembered(&[7; 32], NOW_MS + 2 * HOUR_MS).expect("an answer").is_some());
    store.expire(NOW_MS + 4 * HOUR_MS).expect("expired");
    assert_eq!((store.counts().remembered, store.remembered(&[7; 32], NOW_MS).expect("an answer")), (0, None));
}

#[test]
fn an_ipns_record_with_a_far_end_is_kept_for_48_hours_from_when_it_came_last() {
    let store = memory();
    let name = public_key(4).peer_id();
    let record = IpnsRecord::parse(&name, &IpnsParts::default().signed_by(4)).expect("a record");
    let change = Change::Put(Record::Ipns(record.clone()));
    assert_eq!(apply(&store, change.clone(), NOW_MS), Applied::Stored);
    assert_eq!(store.ipns(&name, NOW_MS + TTL_MAX_MS - 1).expect("an answer"), Some(record));
    assert_eq!(store.ipns(&name, NOW_MS + TTL_MAX_MS).expect("an answer"), None);
    assert_eq!(apply(&store, change, NOW_MS + HOUR_MS), Applied::Same);
    assert!(store.ipns(&name, NOW_MS + TTL_MAX_MS).expect("an answer").is_some());
    assert_eq!(store.expire(NOW_MS + TTL_MAX_MS + 3 * HOUR_MS).expect("expired"), 1);
    assert_eq!(store.count(), 0);
}

#[test]
fn everything_is_there_after_a_restart_and_nothing_after_a_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index.redb");
    let store = open(&path);
    let other = Store::open(&path, Bounds::default());
    assert!(matches!(other.map(|_| ()), Err(ron_store::StoreError::InUse(_))));
    for peer in 0..10 {
        put(
            &store,
            ProviderRecord { expires_ms: NOW_MS + u64::from(peer + 1) * HOUR_MS, ..provider(1, peer, peer) },
            NOW_MS,
        );
    }
    let counts = store.counts();
    drop(store);

    let store = open(&path);
    assert_eq!((store.counts(), peers(&store, 1, NOW_MS).len()), (counts, 10));
    // Hours are learned one by one while records come and go.
    assert!(store.learn_hour().expect("learned"));
    put(&store, provider(2, 1, 1), NOW_MS);
    while store.learn_hour().expect("learned") {}
    assert_eq!((peers(&store, 1, NOW_MS).len(), peers(&store, 2, NOW_MS).len()), (10, 1));
    assert_eq!(store.expire(NOW_MS + 5 * HOUR_MS).expect("expired"), 5);
    assert_eq!(peers(&store, 1, NOW_MS).len(), 6);
    store.clear().expect("cleared");
    assert_eq!((store.counts(), peers(&store, 1, NOW_MS).len()), (Default::default(), 0));
    drop(store);
    assert_eq!(open(&path).count(), 0);
}

#[test]
fn a_file_that_is_no_store_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index.redb");
    for number in 1..=2 {
        std::fs::write(&path, vec![b'x'; 20_000]).expect("written");
        let opened = Store::open(&path, Bounds::default()).expect("a store");
        let (store, lost) = (opened.store, opened.lost.expect("something was lost"));
        assert!(lost.contains(&format!("index.redb.damaged-{number}")), "{lost}");
        assert!(folder.path().join(format!("index.redb.damaged-{number}")).exists());
        put(&store, provider(1, 1, 1), NOW_MS);
        drop(store);
        assert_eq!(open(&path).count(), 1);
    }
}

/// Whatever part of the file is overwritten, the store opens, and tells of the damage or does not come upon it.
#[test]
fn a_damaged_file_is_never_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index.redb");
    let store = open(&path);
    let changes = (0..2_000).map(|peer| Change::Put(Record::Provider(provider(peer as u8, peer, peer))));
    store.apply(&changes.collect::<Vec<_>>(), NOW_MS).expect("a batch");
    drop(store);
    let whole = std::fs::read(&path).expect("a file");
    let mut told = 0;
    for start in (0..whole.len()).step_by(whole.len() / 8) {
        let mut bytes = whole.clone();
        let end = bytes.len().min(start + 9_000);
        bytes[start..end].fill(0xa5);
        std::fs::write(&path, &bytes).expect("written");
        let opened = Store::open(&path, Bounds::default()).unwrap_or_else(|error| panic!("byte {start}: {error}"));
        let is_found = (0..=255).any(|key| opened.store.providers(&Key([key; 32]), NOW_MS, 64).is_err());
        told += usize::from(is_found || opened.lost.is_some());
        drop(opened);
        std::fs::remove_file(&path).expect("removed");
        let _ = std::fs::remove_file(folder.path().join("index.redb.is-damaged"));
    }
    assert!(told > 0);
}

/// The pages are whole and a record in one is not: nothing but reading it can tell.
#[test]
fn damage_that_is_found_while_reading_sets_the_file_aside_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index.redb");
    let store = open(&path);
    for peer in 0..3 {
        put(&store, provider(peer as u8, peer, peer), NOW_MS);
    }
    drop(store);
    let mut bytes = std::fs::read(&path).expect("a file");
    let signer = key_of(1).0;
    let places: Vec<usize> = (0..bytes.len() - 33).filter(|at| bytes[*at..].starts_with(&signer)).collect();
    assert!(!places.is_empty());
    // Behind the signer stands whether it is the peer itself.
    places.iter().for_each(|at| bytes[at + 32] = 9);
    std::fs::write(&path, &bytes).expect("written");

    let store = open(&path);
    assert_eq!(peers(&store, 0, NOW_MS).len(), 1);
    let damaged = store.providers(&Key([1; 32]), NOW_MS, 9);
    assert!(matches!(damaged, Err(ron_store::StoreError::Damaged(_))), "{damaged:?}");
    drop(store);
    let opened = Store::open(&path, Bounds::default()).expect("a store");
    assert!(opened.lost.is_some() && opened.store.count() == 0);
    put(&opened.store, provider(1, 1, 1), NOW_MS);
    drop(opened);
    assert_eq!(open(&path).count(), 1);
}

#[test]
fn records_of_a_region_come_in_order_and_whole_keys() {
    let store = memory();
    for key in 0..10 {
        for peer in 0..3 {
            let expires_ms = NOW_MS + u64::from(peer + 1) * HOUR_MS;
            put(&store, ProviderRecord { expires_ms, ..provider(key, peer, peer) }, NOW_MS);
        }
    }
    let name = NameRecord::sign("a", ContentId::of_bytes(b""), 1, NOW_MS, NOW_MS + 9, &signer(1)).expect("a record");
    apply(&store, Change::Put(Record::Name(name.clone())), NOW_MS);
    let keys = |from: u8, to: u8, max| {
        let records = store.records_in(Key([from; 32]), Key([to; 32]), max, NOW_MS).expect("records");
        records.iter().map(|record| record.key().0[0]).collect::<Vec<_>>()
    };
    assert_eq!(keys(3, 4, 100), [3, 3, 3, 4, 4, 4]);
    assert_eq!(keys(3, 9, 4), [3, 3, 3, 4, 4, 4]);
    assert_eq!(keys(3, 9, 3), [3, 3, 3]);
    let all = store.records_in(Key([0; 32]), Key([0xff; 32]), 1_000, NOW_MS).expect("records");
    assert_eq!(all.len(), 31);
    assert!(all.is_sorted_by_key(Record::key) && all.contains(&Record::Name(name)));
    assert_eq!(
        store.records_in(Key([0; 32]), Key([0xff; 32]), 1_000, NOW_MS + 2 * HOUR_MS).expect("records").len(),
        10
    );
}
