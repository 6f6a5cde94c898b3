//! Documents: which go, which are held, and what room is left to the operator.

use bytes::Bytes;
use redb::{Database, TableDefinition};
use ron_store::{
    Applied, Bounds, Change, ContentId, NameRecord, Provided, Record, Shortages, Store, Subject, TTL_MAX_MS,
};

use crate::samples::{NOW_MS, public_key, signer};

const HOUR_MS: u64 = 3_600_000;
/// When whatever nothing holds since the beginning has gone.
const LATER_MS: u64 = NOW_MS + TTL_MAX_MS + HOUR_MS;

fn document(number: u8) -> Bytes {
    Bytes::from(vec![number; 1_000])
}

fn id(number: u8) -> ContentId {
    ContentId::of_bytes(&document(number))
}

fn put(store: &Store, number: u8, now_ms: u64) -> Applied {
    apply(store, Change::Manifest { content: id(number), bytes: document(number) }, now_ms)
}

fn apply(store: &Store, change: Change, now_ms: u64) -> Applied {
    store.apply(&[change], now_ms).expect("a batch")[0]
}

fn there(store: &Store) -> Vec<u8> {
    (0..=255).filter(|number| store.manifest(&id(*number)).expect("readable").is_some()).collect()
}

fn provide(number: u8) -> Change {
    Change::Provide(Provided { content: id(number), addrs: vec![], protocols: vec![], ttl_ms: HOUR_MS })
}

fn memory() -> Store {
    let store = Store::in_memory(Bounds::default()).expect("a store");
    store.set_owner(public_key(1));
    store
}

#[test]
fn a_document_that_nothing_holds_goes_after_two_days_and_others_stay() {
    let store = memory();
    assert!((1..=6).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    apply(&store, Change::Pin(Subject::Content(id(2))), NOW_MS);
    apply(&store, provide(3), NOW_MS);
    apply(&store, Change::KeepName { label: "ours".to_owned(), value: id(4) }, NOW_MS);
    // A name of somebody else, pinned.
    let name = NameRecord::sign("app", id(5), 1, LATER_MS, LATER_MS + HOUR_MS, &signer(2)).expect("within bounds");
    let text = format!("name:app@{}", name.owner);
    apply(&store, Change::Put(Record::Name(name)), LATER_MS - HOUR_MS);
    apply(&store, Change::Pin(text.parse().expect("a name")), NOW_MS);
    // One is published again in the meantime.
    assert_eq!(put(&store, 6, NOW_MS + 5 * HOUR_MS), Applied::Same);
    store.expire(NOW_MS + TTL_MAX_MS - HOUR_MS).expect("written");
    assert_eq!(there(&store), [1, 2, 3, 4, 5, 6]);
    store.expire(LATER_MS).expect("written");
    assert_eq!(there(&store), [2, 3, 4, 5, 6]);
    assert_eq!((store.counts().manifests, store.counts().manifests_bytes), (5, 5_000));
    store.expire(LATER_MS + 5 * HOUR_MS).expect("written");
    assert_eq!(there(&store), [2, 3, 4, 5]);
}

#[test]
fn a_name_of_this_node_with_an_end_holds_its_document_until_then() {
    let store = memory();
    assert!((1..=2).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    let named_ms = NOW_MS + TTL_MAX_MS / 2;
    let until_ms = named_ms + TTL_MAX_MS;
    let own = NameRecord::sign("ours", id(1), 1, named_ms, until_ms, &signer(1)).expect("within bounds");
    let strangers = NameRecord::sign("app", id(2), 1, named_ms, until_ms, &signer(2)).expect("within bounds");
    assert_eq!(apply(&store, Change::PutOwn(Record::Name(own)), named_ms), Applied::Stored);
    assert_eq!(apply(&store, Change::Put(Record::Name(strangers)), named_ms), Applied::Stored);
    store.expire(until_ms).expect("written");
    assert_eq!(there(&store), [1]);
    store.expire(until_ms + HOUR_MS).expect("written");
    assert!(there(&store).is_empty());
}

#[test]
fn a_document_that_is_let_go_of_stays_for_two_days_more() {
    let store = memory();
    assert!((1..=3).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    apply(&store, Change::Pin(Subject::Content(id(1))), NOW_MS);
    apply(&store, provide(2), NOW_MS);
    apply(&store, Change::KeepName { label: "ours".to_owned(), value: id(3) }, NOW_MS);
    let late_ms = NOW_MS + 10 * TTL_MAX_MS;
    store.expire(late_ms).expect("written");
    assert_eq!(there(&store), [1, 2, 3]);
    apply(&store, Change::Unpin(Subject::Content(id(1))), late_ms);
    apply(&store, Change::Withdraw(id(2).key()), late_ms);
    apply(&store, Change::DropName("ours".to_owned()), late_ms);
    store.expire(late_ms + TTL_MAX_MS - HOUR_MS).expect("written");
    assert_eq!(there(&store), [1, 2, 3]);
    store.expire(late_ms + TTL_MAX_MS + HOUR_MS).expect("written");
    assert_eq!(there(&store), Vec::<u8>::new());
    // All notes about them are gone, too.
    assert_eq!(store.expire(late_ms + 3 * TTL_MAX_MS).expect("written"), 0);
}

#[test]
fn a_document_is_removed_by_command_unless_something_holds_it() {
    let store = memory();
    assert!((1..=4).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    apply(&store, Change::Pin(Subject::Content(id(2))), NOW_MS);
    apply(&store, provide(3), NOW_MS);
    apply(&store, Change::KeepName { label: "ours".to_owned(), value: id(4) }, NOW_MS);
    let removed: Vec<Applied> = (1..=5).map(|number| apply(&store, Change::Forget(id(number)), NOW_MS)).collect();
    assert_eq!(removed, [Applied::Stored, Applied::Held, Applied::Held, Applied::Held, Applied::Same]);
    assert_eq!(there(&store), [2, 3, 4]);
    // What a batch changes counts at once for what follows in it.
    let both = [Change::DropName("ours".to_owned()), Change::Forget(id(4))];
    assert_eq!(store.apply(&both, NOW_MS).expect("a batch"), [Applied::Stored, Applied::Stored]);
    assert_eq!(there(&store), [2, 3]);
    let listed = store.manifests(None, 1).expect("readable");
    let rest = store.manifests(listed.last().map(|(id, _)| id), 9).expect("readable");
    assert_eq!((listed.len(), rest.len(), rest[0].1), (1, 1, 1_000));
}

#[test]
fn documents_that_fill_the_store_leave_room_to_the_operator_and_make_room_again() {
    let bounds = Bounds { manifests_bytes_max: 16_000, ..Bounds::default() };
    let store = Store::in_memory(bounds).expect("a store");
    assert!((1..=15).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    assert_eq!(store.shortages(), Shortages::default());
    assert_eq!(put(&store, 16, NOW_MS), Applied::Full);
    let full = Shortages { documents: true, ..Shortages::default() };
    assert_eq!(store.shortages(), full);
    let operators = |number: u8| Change::OperatorsManifest { content: id(number), bytes: document(number) };
    assert_eq!(apply(&store, operators(17), NOW_MS), Applied::Stored);
    assert_eq!(apply(&store, operators(18), NOW_MS), Applied::Full);
    assert_eq!(store.shortages(), full);
    // Removing two makes room for whoever was refused, and it is told.
    assert_eq!(apply(&store, Change::Forget(id(1)), NOW_MS), Applied::Stored);
    assert_eq!(store.shortages(), full);
    assert_eq!(apply(&store, Change::Forget(id(2)), NOW_MS), Applied::Stored);
    assert_eq!(store.shortages(), Shortages::default());
    assert_eq!(put(&store, 16, NOW_MS), Applied::Stored);
    // And so does time.
    assert_eq!(put(&store, 19, NOW_MS), Applied::Full);
    store.expire(LATER_MS).expect("written");
    assert_eq!((store.shortages(), put(&store, 19, LATER_MS)), (Shortages::default(), Applied::Stored));
}

#[test]
fn documents_of_a_file_from_before_they_had_an_end_go_two_days_after_they_are_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.redb");
    let open = || Store::open(&path, Bounds::default()).expect("a store");
    let store = open().store;
    assert!((1..=3).all(|number| put(&store, number, NOW_MS) == Applied::Stored));
    apply(&store, Change::Pin(Subject::Content(id(2))), NOW_MS);
    drop(store);
    // An earlier version has neither the ends nor notes of them, and wrote one that has none later.
    let database = Database::create(&path).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    transaction.delete_table(TableDefinition::<&[u8], u64>::new("document_ends")).expect("deleted");
    transaction.delete_table(TableDefinition::<&[u8; 37], ()>::new("expiring")).expect("deleted");
    transaction.open_table(TableDefinition::<&[u8; 37], ()>::new("expiring")).expect("a table");
    transaction.commit().expect("committed");
    drop(database);
    let opened = open();
    assert_eq!((opened.lost, there(&opened.store)), (None, vec![1, 2, 3]));
    let seen_ms = LATER_MS + 50 * HOUR_MS;
    opened.store.expire(seen_ms).expect("written");
    assert_eq!(there(&opened.store), [1, 2, 3]);
    drop(opened.store);
    let store = open().store;
    store.expire(seen_ms + TTL_MAX_MS + HOUR_MS).expect("written");
    assert_eq!(there(&store), [2]);
}
