//! A book, seals, runs and proofs that the version before one run for each pot has made: they open, verify, and hold.
//!
//! Made by a node: `e1`; `e2`, which carries in what that left over; `held`, which waits for a person; `broken`, in
//! quarantine; and `fix`, a correction of `e1`. The zeros at the end of the book's segments are left out.

use std::fs;
use std::path::Path;

use ron_ledger::{Book, BookOptions, Direction, Entry, Ledger as _, LedgerError, Outcome};
use ron_log::RealDisk;
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::hashing::{b3, parse_b3};
use svc_rewarder::job::{read, settle};
use svc_rewarder::proofs::ProofFormat;
use svc_rewarder::store::{EpochStatus, Store};
use svc_rewarder::verify::verify;
use svc_rewarder::{Folder, Intents};

use super::*;

/// The runs that paid, in the order in which they were settled.
const PAID: [&str; 3] = ["e1", "e2", "fix"];
/// Bytes of a segment of the book.
const SEGMENT_BYTES: u64 = 32 << 20;

/// A copy, as the node left it.
fn data() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/before"), scratch.path());
    for number in 1..=2 {
        let segment = scratch.path().join(format!("ledger/{number:08}.log"));
        fs::File::options().write(true).open(segment).expect("there").set_len(SEGMENT_BYTES).expect("room");
    }
    scratch
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("there") {
        let entry = entry.expect("read");
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => assert!(fs::copy(entry.path(), to).is_ok()),
        }
    }
}

fn run(data: &Path, epoch: &str) -> SealedRun {
    let folder = Folder::open(data.join("epochs").join(epoch)).expect("there");
    SealedRun::open(Arc::new(folder), MEMORY_BYTES, 2).expect("a run")
}

fn book(data: &Path) -> Book {
    let disk = Arc::new(RealDisk::open(data.join("ledger")).expect("the folder"));
    let (book, opened) = Book::open(disk, BookOptions::default()).expect("a book");
    assert_eq!((opened.damage, opened.transfers > 60), (None, true));
    book
}

#[test]
fn runs_of_before_verify_and_prove_what_they_paid() {
    let data = data();
    for (epoch, payee) in [("e1", "p29"), ("e2", "new"), ("held", "x"), ("fix", "p07")] {
        let run = run(data.path(), epoch);
        let found = verify(&run, &[], &cost(2), &Unwatched).expect("compared");
        assert!(found.is_clean(), "{epoch}: {found:?}");
        let proofs = run.load().expect("whole").prove(payee, ProofFormat::Sum, None).expect("proven");
        assert!(!serde_json::to_string(&proofs).expect("JSON").is_empty());
    }
    let broken = verify(&run(data.path(), "broken"), &[], &cost(2), &Unwatched).expect("compared");
    assert!(broken.is_clean(), "{broken:?}");
}

#[test]
fn seals_of_before_are_read() {
    let data = data();
    let store = Store::open(Arc::new(RealDisk::open(data.path().join("log")).expect("the folder"))).expect("a log");
    assert!(!store.recovery().has_losses());
    for (epoch, status) in [
        ("e1", EpochStatus::Settled),
        ("e2", EpochStatus::Settled),
        ("fix", EpochStatus::Settled),
        ("held", EpochStatus::Held),
        ("broken", EpochStatus::Quarantined),
    ] {
        let row = store.get(epoch).expect("sealed");
        assert_eq!(row.status, status, "{epoch}");
        assert_eq!(row.commitment, b3(&run(data.path(), epoch).commitment()), "{epoch}");
    }
    let settled = store.settled_last(10);
    assert_eq!(settled.iter().map(|row| row.epoch.as_str()).collect::<Vec<_>>(), ["fix", "e2", "e1"]);
    assert_eq!(store.corrected_by("e1").as_deref(), Some("fix"));
    assert_eq!(store.carried_into("e1").as_deref(), Some("e2"));
}

#[tokio::test]
async fn a_book_of_before_knows_its_payouts_and_its_pots() {
    let data = data();
    let book = book(data.path());
    assert!(book.verify().await.expect("counted").is_clean());
    let store = Store::open(Arc::new(RealDisk::open(data.path().join("log")).expect("the folder"))).expect("a log");
    for epoch in PAID {
        let (row, run) = (store.get(epoch).expect("sealed"), run(data.path(), epoch));
        let loaded = run.load().expect("whole");
        let run_key = parse_b3(&row.run_key).expect("a key");
        let follows = row.corrects.as_deref().map(|corrected| store.get(corrected).expect("sealed"));
        let follows = follows.and_then(|row| parse_b3(&row.run_key));
        let intents = Intents::of(&loaded.computed).following(follows);
        assert_eq!(book.tally(&run_key).await.expect("sums"), sorted(intents.tallies()), "{epoch}");
        assert!(!row.is_missing_in(&book.tally(&run_key).await.expect("sums")), "{epoch}");
        let (mut place, mut sent) = (0, 0);
        while let Some((batch, next)) = intents.batch(place, 16) {
            let outcomes = book.submit(&batch).await.expect("answered");
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Duplicate), "{epoch}");
            // Another run at the same pot is another epoch of that name.
            let key = *blake3::hash(&[place as u8]).as_bytes();
            let entries = vec![Entry { key, account: "ann".to_owned(), amount: 1, direction: Direction::Pay }];
            let other = ron_ledger::Batch { run: [9; 32], entries, ..batch };
            let refused = book.submit(&other).await;
            assert!(matches!(&refused, Err(LedgerError::Refused(why)) if why.contains("taken")), "{refused:?}");
            (place, sent) = (next, sent + outcomes.len() as u64);
        }
        assert_eq!(sent, row.intents, "{epoch}");
    }
    tokio::task::spawn_blocking(move || book.close().expect("closed")).await.expect("a thread");
}

fn sorted(mut tallies: Vec<ron_ledger::Tally>) -> Vec<ron_ledger::Tally> {
    tallies.sort_by(|left, right| left.asset.cmp(&right.asset));
    tallies.retain(|tally| tally.count > 0);
    tallies
}

#[tokio::test]
async fn a_run_of_before_is_corrected_and_booked_once() {
    let data = data();
    let run = run(data.path(), "e2");
    let loaded = run.load().expect("whole");
    let scratch = Scratch::new();
    let rows: String = (0..30).map(|number| format!("p{number:02},{}\n", number * number + 1)).collect();
    let policy = String::from_utf8(fs::read(data.path().join("epochs/e2/policy.json")).expect("there")).expect("text");
    let mut job = scratch.job(&[("v.csv", &format!("actor,quantity\n{rows}newer,600\n"))], &policy);
    job.epoch = "fix-2".parse().expect("an epoch");
    let mut basis = read(&job, &Unwatched).expect("read");
    (basis.carry, basis.carry_from) = (loaded.computed.basis.carry.clone(), loaded.computed.basis.carry_from.clone());
    let bounds = Bounds { clawback_max: None, takes_left_over: true };
    basis.correction = Some(Correction::of(&loaded.computed, run.commitment(), bounds).expect("it adds up"));
    let fixed = settle(basis, 2, &Unwatched, ron_calculus::allocate).expect("settled");
    assert!(fixed.outcome.is_ok(), "{:?}", fixed.outcome.as_ref().err());
    let book = book(data.path());
    let follows = Some(loaded.computed.run_key);
    for (intents, expected) in [Outcome::Accepted, Outcome::Duplicate].map(|expected| (Intents::of(&fixed), expected)) {
        let intents = intents.following(follows);
        let mut place = 0;
        while let Some((batch, next)) = intents.batch(place, 16) {
            let outcomes = book.submit(&batch).await.expect("answered");
            assert!(outcomes.iter().all(|outcome| *outcome == expected), "{outcomes:?}");
            place = next;
        }
    }
    let other = Intents::of(&fixed).following(follows).batch(0, 1).expect("a payout").0;
    let other = ron_ledger::Batch {
        run: [8; 32],
        pot: "epoch/fix-3".to_owned(),
        entries: vec![Entry { key: [8; 32], account: "ann".to_owned(), amount: 1, direction: Direction::Pay }],
        ..other
    };
    let refused = book.submit(&other).await;
    assert!(matches!(&refused, Err(LedgerError::Refused(why)) if why.contains("corrected by")), "{refused:?}");
    assert!(book.verify().await.expect("counted").is_clean());
    tokio::task::spawn_blocking(move || book.close().expect("closed")).await.expect("a thread");
}
