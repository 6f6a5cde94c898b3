//! Files that an earlier version wrote: the tables are made here by their names, as they lie on disk.

use std::path::Path;

use bytes::Bytes;
use redb::{Database, TableDefinition};
use ron_store::{Applied, Bounds, Change, ContentId, Counts, PeerRecord, ProviderRecord, Record, Store, Subject};

use crate::samples::{NOW_MS, public_key, row_and_value_bytes, signer};

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const OTHERS: TableDefinition<'static, &[u8; 33], &[u8]> = TableDefinition::new("others");
const EXPIRING: TableDefinition<'static, &[u8; 37], ()> = TableDefinition::new("expiring");
const LABELS: TableDefinition<'static, &[u8], ()> = TableDefinition::new("labels");
const PROVIDED: TableDefinition<'static, &[u8; 32], &[u8]> = TableDefinition::new("provided");
const MANIFESTS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("manifests");
const PINS: TableDefinition<'static, &str, u64> = TableDefinition::new("pins");
const REMEMBERED: TableDefinition<'static, &[u8; 32], &[u8]> = TableDefinition::new("remembered");

const DOCUMENT: &[u8] = b"a document from before names were kept standing";

/// A file of the layout 1 before it had the table `named`, with a document and a pin of it.
fn write_without_named(path: &Path) -> Result<(), redb::Error> {
    let document = ContentId::of_bytes(DOCUMENT);
    let database = Database::create(path)?;
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("layout", 1)?;
        meta.insert("manifests_bytes", DOCUMENT.len() as u64)?;
        transaction.open_table(MANIFESTS)?.insert(document.multihash_bytes().as_slice(), DOCUMENT)?;
        transaction.open_table(PINS)?.insert(Subject::Content(document).to_string().as_str(), NOW_MS)?;
        transaction.open_table(OTHERS)?;
        transaction.open_table(EXPIRING)?;
        transaction.open_table(LABELS)?;
        transaction.open_table(PROVIDED)?;
        transaction.open_table(REMEMBERED)?;
    }
    transaction.commit()?;
    Ok(())
}

#[test]
fn a_file_from_before_names_were_kept_standing_opens_with_all_it_has() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("index.redb");
    write_without_named(&path).expect("an older file");
    let document = ContentId::of_bytes(DOCUMENT);
    let name = Change::KeepName { label: "site".to_owned(), value: document };
    for (named, applied) in [(0, Applied::Stored), (1, Applied::Same)] {
        let opened = Store::open(&path, Bounds::default()).expect("a store");
        assert_eq!(opened.lost, None);
        let store = opened.store;
        let expected = Counts { named, manifests: 1, manifests_bytes: DOCUMENT.len(), pins: 1, ..Counts::default() };
        assert_eq!(store.counts(), expected);
        assert_eq!(store.manifest(&document).expect("readable"), Some(Bytes::from_static(DOCUMENT)));
        assert_eq!(store.pins(None, 9).expect("readable"), [(Subject::Content(document), NOW_MS)]);
        assert_eq!(store.apply(std::slice::from_ref(&name), NOW_MS).expect("a batch"), [applied]);
        assert_eq!(store.named(None, 9).expect("readable"), [("site".to_owned(), document)]);
    }
}

/// Takes the rows out of a file that say how many bytes of records are in which table; says how many there were.
fn forget_bytes(path: &Path, is_forgotten: impl Fn(&str) -> bool) -> Result<usize, redb::Error> {
    let database = Database::create(path)?;
    let transaction = database.begin_write()?;
    let forgotten = transaction.open_table(META)?.extract_if(|name, _| is_forgotten(name))?.count();
    transaction.commit()?;
    Ok(forgotten)
}

#[test]
fn a_file_from_before_bytes_of_records_were_counted_is_counted_when_it_is_opened() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("index.redb");
    let open = || Store::open(&path, Bounds::default()).expect("a store");
    let provider = |number: u8| ProviderRecord {
        key: ContentId::of_bytes(&[number]).key(),
        peer: public_key(number).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse().expect("an address"); usize::from(number)],
        protocols: vec![],
        region: None,
        sequence: 1,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + u64::from(number) * 3_600_000,
        signer: public_key(number),
        signature: [0; 64],
    };
    let peer = PeerRecord::sign(vec![], 1, NOW_MS + 9, &signer(1)).expect("within bounds");
    let records = [Record::Provider(provider(1)), Record::Provider(provider(2)), Record::Peer(peer)];
    let changes: Vec<Change> = records.iter().cloned().map(Change::Put).collect();
    open().store.apply(&changes, NOW_MS).expect("a batch");
    let bytes = records.iter().map(row_and_value_bytes).sum::<usize>();
    assert_eq!(open().store.counts().records_bytes, bytes);

    let is_counted = |name: &str| name == "others" || name.starts_with("providers/");
    assert_eq!(forget_bytes(&path, is_counted).expect("an older file"), 3);
    // And one that an earlier version wrote to after a later one.
    let is_of_hour = |name: &str| name.starts_with("providers/");
    for forget in [None, Some(is_of_hour)] {
        forget.map(|forget| forget_bytes(&path, forget).expect("an older file"));
        let opened = open();
        assert_eq!((opened.lost, opened.store.counts().records_bytes), (None, bytes));
    }
    let store = open().store;
    store.expire(NOW_MS + 3_600_000 * 2).expect("expired");
    assert_eq!(
        store.counts().records_bytes,
        row_and_value_bytes(&records[1]),
        "the other hour, and the peer, are over"
    );
    drop(store);
    assert_eq!(open().store.counts().records_bytes, row_and_value_bytes(&records[1]));
    assert_eq!(forget_bytes(&path, is_of_hour).expect("a file"), 1, "an hour that is dropped leaves no row");
}
