//! Bits that flip in the file: what each costs, and what becomes of a file that cannot be trusted.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ron_store::{
    Applied, Bounds, Change, ContentId, Key, NameRecord, Provided, ProviderFields, ProviderRecord, Record, Store,
    StoreError, Subject,
};

use crate::samples::{NOW_MS, public_key, signer};

const HOUR_MS: u64 = 3_600_000;
/// Kept things of each kind.
const KEPT: usize = 40;

fn bounds() -> Bounds {
    // No page of the file is remembered: what is read is read from the disk.
    Bounds { cache_bytes: 0, ..Bounds::default() }
}

fn document(number: usize) -> Bytes {
    Bytes::from(format!("document {number} ").repeat(20 + number))
}

fn id(number: usize) -> ContentId {
    ContentId::of_bytes(&document(number))
}

fn provider(number: usize) -> ProviderRecord {
    ProviderRecord {
        key: Key(*blake3::hash(&number.to_le_bytes()).as_bytes()),
        peer: public_key(number as u8).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse().expect("an address")],
        protocols: vec![],
        region: None,
        sequence: 1,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + HOUR_MS,
        signer: public_key(number as u8),
        signature: [7; 64],
    }
}

fn changes() -> Vec<Change> {
    let of = |number: usize| {
        let (content, label) = (id(number), format!("name-{number}"));
        let name = NameRecord::sign(&label, content, 1, NOW_MS, NOW_MS + HOUR_MS, &signer(1)).expect("within bounds");
        [
            Change::Manifest { content, bytes: document(number) },
            Change::Pin(Subject::Content(content)),
            Change::Provide(Provided { content, addrs: vec![], protocols: vec![], ttl_ms: HOUR_MS }),
            Change::KeepName { label, value: content },
            Change::PutOwn(Record::Name(name)),
            Change::Put(Record::Provider(provider(number))),
            Change::Remember { request: [number as u8; 32], answer: Bytes::from("done"), until_ms: NOW_MS + HOUR_MS },
        ]
    };
    (0..KEPT).flat_map(of).collect()
}

/// A file with forty things of each kind.
fn write(path: &Path) {
    let store = Store::open(path, bounds()).expect("a store").store;
    let applied = store.apply(&changes(), NOW_MS).expect("a batch");
    assert!(applied.iter().all(|applied| *applied == Applied::Stored), "{applied:?}");
}

/// How many things of each kind can be read: documents, pins, provided keys, names, name records, provider records and
/// remembered answers. None of them is anything but what was written.
fn readable(store: &Store) -> Result<[usize; 7], StoreError> {
    let (mut documents, mut providers, mut remembered) = (0, 0, 0);
    for number in 0..KEPT {
        if let Some(bytes) = store.manifest(&id(number))? {
            assert_eq!(bytes, document(number));
            documents += 1;
        }
        providers += store.providers(&provider(number).key, NOW_MS, 9)?.len();
        remembered += usize::from(store.remembered(&[number as u8; 32], NOW_MS)?.is_some());
    }
    let pins = store.pins(None, 100)?.len();
    let provided = store.provided(None, 100)?.len();
    let named = store.named(None, 100)?.len();
    let names = store.names(&public_key(1), None, 100, NOW_MS)?.len();
    Ok([documents, pins, provided, named, names, providers, remembered])
}

fn lost(store: &Store) -> Result<usize, StoreError> {
    Ok(readable(store)?.iter().map(|there| KEPT - there.min(&KEPT)).sum())
}

fn file(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("records.redb")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn places(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect()
}

#[test]
fn a_flipped_bit_in_a_document_costs_that_document_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let mut bytes = std::fs::read(&path).expect("a file");
    let hit = places(&bytes, &document(7));
    assert!(!hit.is_empty());
    hit.iter().for_each(|at| bytes[at + 30] ^= 4);
    std::fs::write(&path, &bytes).expect("written");

    let opened = Store::open(&path, bounds()).expect("a store");
    assert_eq!(opened.lost, None);
    let store = opened.store;
    assert_eq!(store.manifest(&id(7)).expect("an answer"), None);
    assert_eq!(lost(&store).expect("readable"), 1);
    assert_eq!((store.damage(), Store::is_damaged(&path)), (None, false));
    // Whoever writes next drops the row, and the document can be kept anew.
    let before = store.counts();
    store.expire(NOW_MS).expect("written");
    assert_eq!(store.take_dropped_rows().len(), 1);
    assert_eq!(store.counts().manifests_bytes, before.manifests_bytes - document(7).len());
    let again = Change::Manifest { content: id(7), bytes: document(7) };
    assert_eq!(store.apply(&[again], NOW_MS).expect("a batch"), [Applied::Stored]);
    assert_eq!((lost(&store).expect("readable"), store.counts()), (0, before));
    drop(store);
    let opened = Store::open(&path, bounds()).expect("a store");
    assert_eq!((opened.lost, lost(&opened.store).expect("readable")), (None, 0));
}

#[test]
fn a_damaged_document_that_is_published_again_is_kept_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let mut bytes = std::fs::read(&path).expect("a file");
    places(&bytes, &document(7)).iter().for_each(|at| bytes[at + 30] ^= 4);
    std::fs::write(&path, &bytes).expect("written");
    let store = Store::open(&path, bounds()).expect("a store").store;
    let again = Change::Manifest { content: id(7), bytes: document(7) };
    assert_eq!(store.apply(&[again], NOW_MS).expect("a batch"), [Applied::Stored]);
    assert_eq!(lost(&store).expect("readable"), 0);
}

#[test]
fn damaged_rows_of_every_kind_cost_themselves_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let mut bytes = std::fs::read(&path).expect("a file");
    // Behind the signer of a provider record stands whether it is the peer itself, which is 0 or 1.
    let signed = places(&bytes, &public_key(3).0);
    assert!(!signed.is_empty());
    signed.iter().for_each(|at| bytes[at + 32] = 9);
    // A name's record holds its label before the content.
    let labels = places(&bytes, b"name-5\x24");
    assert!(!labels.is_empty());
    labels.iter().for_each(|at| bytes[at + 7] = 0x7f);
    // A pin is a text.
    let pins = places(&bytes, id(9).to_string().as_bytes());
    assert!(!pins.is_empty());
    pins.iter().for_each(|at| bytes[at + 10] = b'?');
    std::fs::write(&path, &bytes).expect("written");

    let store = Store::open(&path, bounds()).expect("a store").store;
    assert_eq!(readable(&store).expect("readable"), [KEPT, KEPT - 1, KEPT, KEPT, KEPT - 1, KEPT - 1, KEPT]);
    store.expire(NOW_MS).expect("written");
    assert_eq!((store.take_dropped_rows().len(), store.damage()), (3, None));
    assert_eq!(
        store.apply(&changes(), NOW_MS).expect("a batch").iter().filter(|one| **one == Applied::Stored).count(),
        3
    );
    assert_eq!(lost(&store).expect("readable"), 0);
}

/// A name that stands for document 7, and a provider of it who has signed.
fn signed() -> [Record; 2] {
    let name = NameRecord::sign("app", id(7), 1, NOW_MS, NOW_MS + HOUR_MS, &signer(2)).expect("within bounds");
    let ProviderRecord { key, peer, addrs, protocols, region, sequence, issued_ms, expires_ms, .. } = provider(2);
    let fields = ProviderFields { key, peer, addrs, protocols, region, sequence, issued_ms, expires_ms };
    [Record::Name(name), Record::Provider(ProviderRecord::sign(fields, &signer(2)).expect("within bounds"))]
}

/// A store with the signed records, in the file of which each of these texts got another byte.
fn with_changed(path: &Path, changed: &[(&[u8], usize, u8)]) -> Store {
    let store = Store::open(path, bounds()).expect("a store").store;
    let applied = store.apply(&signed().map(Change::Put), NOW_MS).expect("a batch");
    assert_eq!(applied, [Applied::Stored; 2]);
    drop(store);
    let mut bytes = std::fs::read(path).expect("a file");
    for (text, at, bits) in changed {
        let hit = places(&bytes, text);
        assert!(!hit.is_empty());
        hit.iter().for_each(|place| bytes[place + at] ^= bits);
    }
    std::fs::write(path, &bytes).expect("written");
    Store::open(path, bounds()).expect("a store").store
}

fn found(store: &Store) -> Vec<Record> {
    store.records_in(Key([0; 32]), Key([0xff; 32]), 9, NOW_MS).expect("readable")
}

#[test]
fn a_record_that_a_flipped_bit_made_another_is_not_signed_any_more_and_is_dropped_by_the_next_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let (digest, address) = (id(7).multihash_bytes(), [8, 4, 192, 0, 2, 17]);
    let store = with_changed(&file(&folder), &[(&digest, 9, 4), (&address, 5, 1)]);
    let changed = found(&store);
    assert_eq!(changed.len(), 2, "they make sense");
    assert!(changed.iter().all(|record| !signed().contains(record) && !store.is_still_signed(record)));
    store.expire(NOW_MS).expect("written");
    assert_eq!((store.take_dropped_rows().len(), store.count(), found(&store)), (2, 0, vec![]));
    // They can be published anew, and are verified once.
    let again = store.apply(&signed().map(Change::Put), NOW_MS).expect("a batch");
    assert_eq!(again, [Applied::Stored; 2]);
    assert!((0..2).all(|_| found(&store).iter().all(|record| store.is_still_signed(record))));
    store.expire(NOW_MS).expect("written");
    assert_eq!((store.take_dropped_rows().len(), store.count()), (0, 2));
}

#[test]
fn a_row_of_another_record_or_one_kept_beyond_its_end_makes_no_sense() {
    let folder = tempfile::tempdir().expect("a folder");
    // The highest byte of the name's end in milliseconds, which stands before it; and who has signed as a provider.
    let end = (NOW_MS + HOUR_MS).to_be_bytes();
    let [name, _] = signed();
    let end_of_name = [end.as_slice(), &name.encode()[..8]].concat();
    let provider = [public_key(2).0.as_slice(), &[0, 1]].concat();
    let store = with_changed(&file(&folder), &[(&end_of_name, 0, 1), (&provider, 3, 1)]);
    assert_eq!(store.name(&public_key(2), "app", NOW_MS).expect("readable"), None);
    assert_eq!(store.providers(&self::provider(2).key, NOW_MS, 9).expect("readable"), []);
    assert_eq!(found(&store), []);
    store.expire(NOW_MS).expect("written");
    assert_eq!((store.take_dropped_rows().len(), store.count()), (2, 0));
    assert_eq!(store.apply(&signed().map(Change::Put), NOW_MS).expect("a batch"), [Applied::Stored; 2]);
    assert_eq!(found(&store).len(), 2);
    store.expire(NOW_MS + 2 * HOUR_MS).expect("written");
    assert_eq!(store.count(), 0, "and they end when they say");
}

/// Reads all there is, as a node does in the course of days, then starts anew, as after damage a node must.
fn after_next_start(path: &Path) -> (Store, bool) {
    let opened = Store::open(path, bounds()).expect("a store");
    let is_read = readable(&opened.store);
    assert_eq!(is_read.is_err(), opened.store.damage().is_some(), "{is_read:?}");
    let was_damaged = opened.lost.is_some() || is_read.is_err();
    drop(opened);
    let opened = Store::open(path, bounds()).expect("a store");
    assert_eq!(opened.lost.is_some(), is_read.is_err());
    (opened.store, was_damaged)
}

#[test]
fn a_bit_that_flips_anywhere_costs_what_it_hits() {
    const FLIPS: usize = 32;
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let whole = std::fs::read(&path).expect("a file");
    // Only pages that hold something count.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let (mut rescued, mut cost_little, mut cost_all) = (0, 0, 0);
    for flip in 0..FLIPS {
        let at = used[(flip * 7919) % used.len()];
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (flip % 8);
        let folder = tempfile::tempdir().expect("a folder");
        let path = file(&folder);
        std::fs::write(&path, &bytes).expect("written");
        let (store, was_damaged) = after_next_start(&path);
        let lost = lost(&store).expect("readable");
        rescued += usize::from(was_damaged);
        cost_little += usize::from(lost <= 2);
        cost_all += usize::from(lost == 7 * KEPT);
        // And it takes everything again, at the latest after the start that follows what only a writer comes upon.
        let store = match store.apply(&changes(), NOW_MS) {
            Ok(_) => store,
            Err(error) => {
                assert!(store.damage().is_some(), "byte {at}: {error}");
                drop(store);
                let opened = Store::open(&path, bounds()).expect("a store");
                assert!(opened.lost.is_some(), "byte {at}");
                opened.store.apply(&changes(), NOW_MS).unwrap_or_else(|error| panic!("byte {at}: {error}"));
                opened.store
            }
        };
        assert_eq!(readable(&store).expect("readable")[0], KEPT, "byte {at}");
    }
    println!("{FLIPS} flips: {rescued} files replaced, {cost_little} cost at most two rows, {cost_all} cost all");
    assert!(cost_little * 10 >= FLIPS * 9, "{cost_little} of {FLIPS}");
    assert!(cost_all * 16 <= FLIPS, "{cost_all} of {FLIPS}");
}

/// Overwrites the pages of the store with the documents, while it is open or not.
fn overwrite_documents(path: &Path) {
    use std::os::unix::fs::FileExt as _;
    const PAGE: usize = 4096;
    let bytes = std::fs::read(path).expect("a file");
    let at = places(&bytes, &document(20))[0] / PAGE * PAGE;
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(&[0xa5; PAGE], at as u64).expect("written");
}

#[test]
fn after_damage_is_found_nothing_is_written_and_the_next_start_copies_what_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let store = Store::open(&path, bounds()).expect("a store").store;
    overwrite_documents(&path);
    assert!(readable(&store).is_err());
    let why = store.damage().expect("damage").to_owned();
    assert!(Store::is_damaged(&path));
    let pin = Change::Pin("name:late".parse().expect("a name"));
    let refused = store.apply(std::slice::from_ref(&pin), NOW_MS);
    assert!(matches!(&refused, Err(StoreError::Damaged(text)) if text.contains(&why)), "{refused:?}");
    assert_eq!(store.pins(None, 100).expect("what can be read is").len(), KEPT);
    drop(store);

    let opened = Store::open(&path, bounds()).expect("a store");
    let told = opened.lost.expect("it is told");
    assert!(told.contains("records.redb.damaged-1") && told.contains("40 pins"), "{told}");
    let [documents, others @ ..] = readable(&opened.store).expect("readable");
    assert_eq!(others, [KEPT; 6], "what was hit are documents: {told}");
    assert!((1..KEPT).contains(&documents), "{documents}: {told}");
    assert_eq!((opened.store.damage(), Store::is_damaged(&path)), (None, false));
    assert_eq!(opened.store.apply(&[pin], NOW_MS).expect("a batch"), [Applied::Stored]);
    let counts = opened.store.counts();
    assert_eq!((counts.manifests, counts.provided, counts.named), (documents, KEPT, KEPT));
    // What was copied ends when it would have ended.
    opened.store.expire(NOW_MS + 3 * HOUR_MS).expect("expired");
    assert_eq!((opened.store.count(), opened.store.counts().records_bytes), (0, 0));
    drop(opened.store);
    assert_eq!(Store::open(&path, bounds()).expect("a store").lost, None);
}

#[test]
fn a_note_about_one_file_does_not_condemn_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    let backup = beside(&path, ".backup");
    std::fs::copy(&path, &backup).expect("copied");
    let store = Store::open(&path, bounds()).expect("a store").store;
    overwrite_documents(&path);
    assert!(readable(&store).is_err());
    drop(store);
    assert!(Store::is_damaged(&path));
    // The operator puts a whole one in its place. The damaged one is kept meanwhile, so that its place is not used
    // again.
    std::fs::rename(&path, beside(&path, ".bad")).expect("moved");
    std::fs::copy(&backup, &path).expect("restored");
    assert!(!Store::is_damaged(&path));
    for _ in 0..2 {
        let opened = Store::open(&path, bounds()).expect("a store");
        assert_eq!((opened.lost, lost(&opened.store).expect("readable")), (None, 0));
    }
    assert!(!beside(&path, ".is-damaged").exists() && !beside(&path, ".damaged-1").exists());
}

#[test]
fn a_note_of_an_earlier_release_beside_a_whole_file_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    write(&path);
    std::fs::write(beside(&path, ".is-damaged"), "the manifest b3:00 is not what it was").expect("written");
    let opened = Store::open(&path, bounds()).expect("a store");
    assert!(opened.lost.is_some());
    assert_eq!(lost(&opened.store).expect("readable"), 0);
    drop(opened);
    let opened = Store::open(&path, bounds()).expect("a store");
    assert_eq!((opened.lost, lost(&opened.store).expect("readable")), (None, 0));
}

#[test]
fn a_note_without_a_file_means_nothing_to_the_file_that_is_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder);
    std::fs::write(beside(&path, ".is-damaged"), "gone").expect("written");
    write(&path);
    let opened = Store::open(&path, bounds()).expect("a store");
    assert_eq!((opened.lost, lost(&opened.store).expect("readable")), (None, 0));
}
