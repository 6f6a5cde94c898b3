//! What a book takes, refuses, tells and survives.

use super::*;
use crate::limits::{BATCH_ENTRIES_MAX, PAGE_LINES_MAX};
use crate::model::{Direction, Entry};
use ron_log::{Disk, LogOptions, RamDisk, RealDisk, SimDisk};

mod damage;
mod pages;
mod property;

/// A small log without threads, so that a simulation decides everything.
pub(super) fn small() -> BookOptions {
    let log = LogOptions {
        segment_bytes: 8192,
        quota_bytes: 1 << 20,
        reserve_bytes: 1024,
        gather_bytes_max: 64 << 10,
        ..LogOptions::default()
    };
    BookOptions { log, has_threads: false, ..BookOptions::default() }
}

pub(super) fn open(disk: &SimDisk) -> (Book, Opened) {
    Book::open(Arc::new(disk.clone()), small()).expect("a book")
}

pub(super) fn key(number: u64) -> [u8; 32] {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

pub(super) fn pay(number: u64, account: &str, amount: u128) -> Entry {
    Entry { key: key(number), account: account.to_owned(), amount, direction: Direction::Pay }
}

pub(super) fn take_back(number: u64, account: &str, amount: u128) -> Entry {
    Entry { direction: Direction::TakeBack, ..pay(number, account, amount) }
}

pub(super) fn batch(run: u8, entries: Vec<Entry>) -> Batch {
    let (asset, pot) = ("RON".to_owned(), format!("epoch/{run}"));
    Batch { run: [run; 32], asset, pot, follows: None, entries }
}

pub(super) async fn net(book: &Book, account: &str) -> String {
    let balances = book.balances(account).await.expect("readable");
    balances.first().map_or_else(|| "0".to_owned(), Balance::net)
}

fn refusal(result: Result<Vec<Outcome>, LedgerError>) -> String {
    match result {
        Err(LedgerError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn the_same_is_a_duplicate_and_other_content_a_conflict() {
    let (book, _) = open(&SimDisk::new(1));
    let first = batch(1, vec![pay(1, "a", 10), pay(2, "b", 20)]);
    assert_eq!(book.submit(&first).await.unwrap(), [Outcome::Accepted; 2]);
    assert_eq!(book.submit(&first).await.unwrap(), [Outcome::Duplicate; 2]);
    let changes: [(&str, Batch); 6] = [
        ("amount", batch(1, vec![pay(1, "a", 11)])),
        ("account", batch(1, vec![pay(1, "b", 10)])),
        ("direction", batch(1, vec![take_back(1, "a", 10)])),
        ("run", batch(2, vec![pay(1, "a", 10)])),
        ("asset", Batch { asset: "EUR".to_owned(), ..batch(1, vec![pay(1, "a", 10)]) }),
        ("pot", Batch { pot: "other".to_owned(), ..batch(1, vec![pay(1, "a", 10)]) }),
    ];
    for (what, changed) in changes {
        assert_eq!(book.submit(&changed).await.unwrap(), [Outcome::Conflict], "{what}");
    }
    let mixed = batch(1, vec![pay(3, "c", 1), pay(3, "c", 1), pay(3, "c", 2), pay(1, "a", 10), pay(4, "c", 5)]);
    let expected = [Outcome::Accepted, Outcome::Duplicate, Outcome::Conflict, Outcome::Duplicate, Outcome::Accepted];
    assert_eq!(book.submit(&mixed).await.unwrap(), expected, "one key several times in a batch");
    assert_eq!(
        (net(&book, "a").await, net(&book, "c").await, net(&book, "epoch/1").await),
        ("10".into(), "6".into(), "-36".into())
    );
    let tally = Tally { asset: "RON".to_owned(), count: 4, paid: 36, taken_back: 0 };
    assert_eq!(book.tally(&[1; 32]).await.unwrap(), [tally]);
    assert_eq!(book.tally(&[2; 32]).await.unwrap(), []);
    assert!(book.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn nobody_gives_back_more_than_he_has() {
    let (book, _) = open(&SimDisk::new(1));
    book.submit(&batch(1, vec![pay(1, "a", 10)])).await.unwrap();
    let why = refusal(book.submit(&batch(2, vec![pay(2, "b", 5), take_back(3, "a", 11)])).await);
    assert!(why.contains("a does not have the units of RON"), "{why}");
    assert_eq!(net(&book, "b").await, "0", "nothing of a refused batch is booked");
    let there_and_back = batch(2, vec![pay(2, "b", 5), take_back(3, "b", 5), take_back(4, "a", 10)]);
    assert_eq!(book.submit(&there_and_back).await.unwrap(), [Outcome::Accepted; 3]);
    assert_eq!(
        (net(&book, "a").await, net(&book, "b").await, net(&book, "epoch/2").await),
        ("0".into(), "0".into(), "10".into())
    );
    assert_eq!(book.submit(&there_and_back).await.unwrap(), [Outcome::Duplicate; 3], "what is booked stays true");
    let tally = Tally { asset: "RON".to_owned(), count: 3, paid: 5, taken_back: 15 };
    assert_eq!(book.tally(&[2; 32]).await.unwrap(), [tally]);
}

#[tokio::test]
async fn what_cannot_be_booked_is_refused_with_the_reason() {
    let (book, _) = open(&SimDisk::new(1));
    let long = "x".repeat(1025);
    let many = (0..=BATCH_ENTRIES_MAX as u64).map(|number| pay(number, "a", 1)).collect();
    let cases = [
        (batch(1, vec![pay(1, "", 1)]), "name of the account"),
        (batch(1, vec![pay(1, &long, 1)]), "1 to 1024 bytes"),
        (batch(1, vec![pay(1, "nul\0", 1)]), "no zero byte"),
        (batch(1, vec![pay(1, "epoch/1", 1)]), "both pot and payee"),
        (Batch { asset: String::new(), ..batch(1, vec![]) }, "name of the asset"),
        (Batch { pot: long.clone(), ..batch(1, vec![]) }, "name of the pot"),
        (batch(1, many), "16385 entries"),
        (batch(1, vec![pay(1, "a", u128::MAX), pay(2, "b", 1)]), "2^128"),
    ];
    for (refused, expected) in cases {
        let why = refusal(book.submit(&refused).await);
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(book.submit(&batch(1, vec![])).await.unwrap(), []);
    book.submit(&batch(1, vec![pay(1, "a", u128::MAX - 5)])).await.unwrap();
    assert!(refusal(book.submit(&batch(2, vec![pay(2, "b", 6)])).await).contains("units of RON would have moved"));
    assert_eq!(book.submit(&batch(2, vec![pay(2, "b", 5)])).await.unwrap(), [Outcome::Accepted], "to the last unit");
    assert_eq!(net(&book, "a").await, (u128::MAX - 5).to_string());
}

#[tokio::test]
async fn a_restart_finds_the_same_book() {
    let disk = SimDisk::new(1);
    let (book, opened) = open(&disk);
    assert_eq!((opened.batches, opened.damage), (0, None));
    for run in 1..20 {
        let entries =
            (0..40).map(|number| pay(u64::from(run) * 100 + number, &format!("payee {number}"), u128::from(run)));
        book.submit(&batch(run, entries.collect())).await.unwrap();
    }
    let before = book.verify().await.unwrap();
    assert!(before.is_clean(), "{before:?}");
    drop(book);
    let (book, opened) = open(&disk.crash(0));
    assert_eq!((opened.batches, opened.transfers, opened.accounts), (19, 760, 40 + 19));
    assert!(opened.recovery.segments > 3, "it went over several segments");
    assert_eq!(book.verify().await.unwrap(), before);
    assert_eq!((net(&book, "payee 7").await, net(&book, "epoch/9").await), ("190".into(), "-360".into()));
    assert_eq!(book.submit(&batch(3, vec![pay(307, "payee 7", 3)])).await.unwrap(), [Outcome::Duplicate]);
    assert_eq!(book.submit(&batch(3, vec![pay(307, "payee 7", 4)])).await.unwrap(), [Outcome::Conflict]);
}

#[tokio::test]
async fn a_full_book_refuses_for_now_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new(1);
    let options = || BookOptions { log: LogOptions { quota_bytes: 24 << 10, ..small().log }, ..small() };
    let (book, _) = Book::open(Arc::new(disk.clone()), options()).unwrap();
    let one = |number: u64| batch(1, vec![pay(number, &"x".repeat(900), 1)]);
    let mut booked = 0;
    let full = loop {
        match book.submit(&one(booked)).await {
            Ok(_) => booked += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&full, LedgerError::Unavailable(why) if why.contains("quota")), "{full}");
    assert_eq!(book.submit(&one(0)).await.unwrap(), [Outcome::Duplicate], "what is there is still known");
    drop(book);
    let (book, _) = open(&disk.restart());
    assert_eq!(book.submit(&one(booked)).await.unwrap(), [Outcome::Accepted], "with a larger quota");
    let (few, _) = Book::open(Arc::new(SimDisk::new(2)), BookOptions { transfers_max: 2, ..small() }).unwrap();
    few.submit(&batch(1, vec![pay(1, "a", 1), pay(2, "a", 1)])).await.unwrap();
    let full = few.submit(&batch(1, vec![pay(3, "a", 1)])).await;
    assert!(matches!(full, Err(LedgerError::Unavailable(why)) if why.contains("2 transfers")));
}

#[tokio::test]
async fn a_full_device_refuses_for_now_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new(1);
    let (book, _) = open(&disk);
    let one = |number: u64| batch(1, vec![pay(number, &"x".repeat(900), 1)]);
    disk.limit_bytes(Some(48 << 10));
    let mut booked = 0;
    let full = loop {
        match book.submit(&one(booked)).await {
            Ok(_) => booked += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&full, LedgerError::Unavailable(why) if why.contains("device")), "{full}");
    disk.limit_bytes(None);
    // The first try finds the device still called full, and has it looked at again.
    let _ = book.submit(&one(booked)).await;
    let _ = book.inner.log.flush();
    let outcomes = book.submit(&one(booked)).await.unwrap();
    assert!(outcomes == [Outcome::Accepted] || outcomes == [Outcome::Duplicate], "{outcomes:?}");
    assert_eq!(net(&book, &"x".repeat(900)).await, (booked + 1).to_string());
}

#[tokio::test]
async fn a_failed_disk_acknowledges_nothing() {
    let disk = SimDisk::new(1);
    let (book, _) = open(&disk);
    book.submit(&batch(1, vec![pay(1, "a", 1)])).await.unwrap();
    disk.fail_sync(disk.syncs());
    for _ in 0..2 {
        let failed = book.submit(&batch(1, vec![pay(2, "b", 1)])).await;
        assert!(matches!(failed, Err(LedgerError::Unavailable(why)) if why.contains("failed for good")));
    }
    assert!(book.balances("b").await.is_err(), "what may be lost is told to nobody");
    drop(book);
    let (book, opened) = open(&disk.crash(0));
    assert_eq!((opened.transfers, opened.damage), (1, None));
    assert_eq!(
        book.submit(&batch(1, vec![pay(1, "a", 1), pay(2, "b", 1)])).await.unwrap(),
        [Outcome::Duplicate, Outcome::Accepted]
    );
}

#[tokio::test]
async fn a_book_in_memory_works_the_same() {
    let (book, _) = Book::open(Arc::new(RamDisk::new()), BookOptions::default()).unwrap();
    for number in 0..200 {
        book.submit(&batch(1, vec![pay(number, "a", 1)])).await.unwrap();
    }
    assert_eq!(net(&book, "a").await, "200");
    assert!(book.verify().await.unwrap().is_clean());
    book.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_on_a_real_disk() {
    let folder = tempfile::tempdir().unwrap();
    let options = || {
        let log = LogOptions { segment_bytes: 64 << 10, gather_bytes_max: 16 << 10, ..BookOptions::default().log };
        BookOptions { log, ..BookOptions::default() }
    };
    let disk = || Arc::new(RealDisk::open(folder.path()).unwrap()) as Arc<dyn Disk>;
    let (book, _) = Book::open(disk(), options()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_u64 {
        let book = book.clone();
        tasks.spawn(async move {
            for round in 0..25 {
                // Two tasks submit each batch, so that one of them meets duplicates that may not be durable yet.
                let first = (task / 2 * 25 + round) * 20;
                let entries = (first..first + 20).map(|number| pay(number, &format!("payee {}", number % 50), 1));
                let outcomes = book.submit(&batch(1, entries.collect())).await.unwrap();
                assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Conflict));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let tally = Tally { asset: "RON".to_owned(), count: 2000, paid: 2000, taken_back: 0 };
    assert_eq!(book.tally(&[1; 32]).await.unwrap(), [tally]);
    let report = book.verify().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(matches!(inspect(folder.path()), Err(BookError::Log(LogError::InUse))), "a node has it open");
    tokio::task::spawn_blocking(move || book.close().unwrap()).await.unwrap();
    let inspection = inspect(folder.path()).unwrap();
    assert_eq!(inspection.report, report);
    assert_eq!(inspection.balances("payee 3")[0].net(), "40");
    let page = inspection.statement("payee 3", None, 3).unwrap();
    let (book, opened) = Book::open(disk(), options()).unwrap();
    assert!(opened.recovery.sealed && opened.damage.is_none());
    assert_eq!(book.statement("payee 3", None, 3).await.unwrap(), page);
    assert_eq!(page.lines.len(), 3);
}
