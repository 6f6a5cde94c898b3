//! A book that has lost something says so, and pays nobody until it is restored.

use super::*;

/// Takes something from a disk behind everybody's back.
type Damaging = fn(&SimDisk);

async fn filled(disk: &SimDisk) {
    let (book, _) = open(disk);
    for number in 0..60 {
        book.submit(&batch(1, vec![pay(number, &format!("payee {number} {}", "x".repeat(300)), 1)])).await.unwrap();
    }
    book.close().unwrap();
}

/// Offset of the record of a transfer in its segment.
fn find(disk: &SimDisk, number: u64) -> (String, usize) {
    let is_in = |name: &String| {
        let bytes = disk.bytes_of(name)?;
        let at = bytes.windows(32).position(|window| window == key(number))?;
        Some((name.clone(), at))
    };
    disk.names().iter().filter(|name| name.ends_with(".log")).find_map(is_in).expect("it is in the log")
}

async fn must_not_book(disk: &SimDisk, what: &str) {
    for start in 0..3 {
        let (book, opened) = open(disk);
        let why = opened.damage.unwrap_or_else(|| panic!("{what}: start {start} sees no damage"));
        assert_eq!(book.damage(), Some(why.clone()));
        // Not a refusal, which would quarantine every epoch: payouts wait for the restored book.
        let is_waiting = |error: &LedgerError| matches!(error, LedgerError::Unavailable(words) if words.contains(&why));
        let submitted = book.submit(&batch(1, vec![pay(1000, "a", 1)])).await.expect_err("nothing is booked");
        let tallied = book.tally(&[1; 32]).await.expect_err("sums would lack what is lost");
        assert!(is_waiting(&submitted) && is_waiting(&tallied), "{what}: {submitted:?} {tallied:?}");
        let known = format!("payee 40 {}", "x".repeat(300));
        assert_eq!(net(&book, &known).await, "1", "{what}: what is known is told");
    }
}

#[tokio::test]
async fn whatever_is_lost_the_book_stops_booking() {
    let damages: [(&str, Damaging); 6] = [
        ("a byte of a sealed segment", |disk| {
            let (name, at) = find(disk, 7);
            disk.flip_bit(&name, at + 3, 2);
        }),
        ("a byte of the last segment", |disk| {
            let (name, at) = find(disk, 58);
            disk.flip_bit(&name, at + 3, 2);
        }),
        ("a segment", |disk| disk.remove("00000002.log").unwrap()),
        ("the end of a segment", |disk| disk.cut("00000001.log", 4000)),
        ("the end of the last segment", |disk| {
            let (name, at) = find(disk, 58);
            disk.cut(&name, at - 60);
        }),
        ("the list of segments", |disk| {
            disk.remove("manifest.0").unwrap();
            disk.remove("manifest.1").unwrap();
        }),
    ];
    for (what, damage) in damages {
        let disk = SimDisk::new(1);
        filled(&disk).await;
        let disk = disk.restart();
        damage(&disk);
        must_not_book(&disk, what).await;
    }
}

#[tokio::test]
async fn damage_that_comes_later_is_found_by_a_recount() {
    let disk = SimDisk::new(1);
    filled(&disk).await;
    let disk = disk.restart();
    let (book, opened) = open(&disk);
    assert_eq!(opened.damage, None);
    assert!(book.verify().await.unwrap().is_clean());
    let (name, at) = find(&disk, 12);
    disk.flip_bit(&name, at + 40, 0);
    let report = book.verify().await.unwrap();
    assert!(report.faults.iter().any(|fault| fault == "1 unreadable batches"), "{report:?}");
    let submitted = book.submit(&batch(1, vec![pay(1000, "a", 1)])).await;
    let is_waiting = matches!(&submitted, Err(LedgerError::Unavailable(words)) if words.contains("unreadable"));
    assert!(is_waiting, "{submitted:?}");
    drop(book);
    must_not_book(&disk, "rot").await;
}

#[tokio::test]
async fn one_recount_at_a_time_is_shared_and_ends_with_those_who_ask() {
    let disk = SimDisk::new(1);
    filled(&disk).await;
    let (book, _) = open(&disk.restart());
    let ((first, mut outcome), second) = {
        let _nobody_counts = lock(&book.inner.recounts.counting);
        let (first, second) = (book.join_recount(), book.join_recount().0);
        assert!(Arc::ptr_eq(&first.0, &second), "who asks meanwhile shares it");
        (first, second)
    };
    drop((first, second));
    let ended = outcome.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    // It may have been done before the last of them left.
    assert!(ended.as_ref().is_ok_and(BookReport::is_clean) || matches!(ended, Err(BookError::Unavailable(_))));
    {
        let mut ended = {
            let _nobody_counts = lock(&book.inner.recounts.counting);
            book.join_recount().1
        };
        let next = book.verify().await.unwrap();
        assert!(next.is_clean(), "the next one is counted anew");
        let told = ended.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(matches!(&told, Err(BookError::Unavailable(why)) if why.contains("nobody waits")), "{told:?}");
    }
    let (one, other) = tokio::join!(book.verify(), book.verify());
    assert_eq!(one, other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_are_booked_while_the_book_is_counted() {
    let disk = SimDisk::new(1);
    let (book, _) = open(&disk);
    let counted = book.clone();
    let counting = async {
        let mut clean = 0;
        while clean < 20 {
            let report = counted.verify().await.unwrap();
            assert!(report.is_clean(), "{report:?}");
            clean += 1;
        }
    };
    let paying = async {
        for number in 0..600 {
            let payee = format!("payee {}", number % 290);
            book.submit(&batch(1, vec![pay(number, &payee, 1)])).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(counting, paying);
    let report = book.verify().await.unwrap();
    assert_eq!((report.is_clean(), report.transfers), (true, 600));
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_left_alone() {
    let disk = SimDisk::new(1);
    {
        let (book, _) = open(&disk);
        let mut appender = book.inner.log.appender();
        appender.append(Class::Data, &[3, 0, 0], b"from the future").unwrap();
        drop(appender);
        book.close().unwrap();
    }
    let disk = disk.restart();
    for _ in 0..2 {
        let opened = Book::open(Arc::new(disk.clone()), small());
        assert!(matches!(opened, Err(BookError::UnknownVersion(3))));
    }
    assert!(!disk.names().iter().any(|name| name == "DAMAGED"), "it is not damage");
}

#[tokio::test]
async fn an_inspection_finds_what_a_start_finds_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("00000001.log");
    {
        let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
        let (book, _) = Book::open(disk, small()).unwrap();
        book.submit(&batch(1, vec![pay(1, "a", 1)])).await.unwrap();
        book.submit(&batch(1, vec![pay(2, "b", 2)])).await.unwrap();
        book.close().unwrap();
    }
    assert!(inspect(folder.path()).unwrap().report.is_clean());
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(32).position(|window| window == key(1)).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let inspection = inspect(folder.path()).unwrap();
    assert!(!inspection.report.is_clean(), "{:?}", inspection.report);
    assert_eq!(inspection.balances("b")[0].net(), "2");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert!(!folder.path().join("DAMAGED").exists());
}
