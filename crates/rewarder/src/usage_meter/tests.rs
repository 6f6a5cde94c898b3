//! The meter's books: what is counted is sealed once, through crashes and restarts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ron_kernel::Metrics;
use ron_log::sim::Survival;
use ron_log::{RamDisk, SimDisk};

use super::*;

fn id(epoch: &str) -> EpochId {
    epoch.parse().expect("an epoch")
}

/// Totals by actor and metric.
type Sums = BTreeMap<(String, String), u128>;

fn opened(disk: &SimDisk) -> Store {
    small(disk, 3)
}

/// A store whose segments are so small that it reclaims some in nearly every test.
fn small(disk: &SimDisk, files_kept: usize) -> Store {
    Store::open_with(Arc::new(disk.clone()), files_kept, 4096).expect("it opens").0
}

fn open_rows(store: &Store) -> Sums {
    let rows = store.book().to_write(true);
    rows.map(|row| ((row.actor.to_owned(), row.metric.to_owned()), row.quantity)).collect()
}

/// Reads a file of plain names.
fn file_rows(file: &[u8]) -> Sums {
    let text = std::str::from_utf8(file).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("actor,metric,quantity"));
    let row = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().expect("three fields").to_owned();
        let key = (next(), next());
        (key, next().parse().expect("a number"))
    };
    lines.map(row).collect()
}

fn plus(mut sums: Sums, more: &Sums) -> Sums {
    more.iter().for_each(|(key, amount)| *sums.entry(key.clone()).or_default() += amount);
    sums
}

fn total(sums: &Sums) -> u128 {
    sums.values().sum()
}

#[test]
fn rows_survive_a_restart_and_a_seal_begins_anew() {
    let disk = SimDisk::new(1);
    let mut store = opened(&disk);
    store.add("b", "m.x", 2);
    store.add("a", "m.y", 3);
    store.save().expect("saved");
    store.add("a", "m.y", 4);
    store.save().expect("saved");
    drop(store);
    let mut store = opened(&disk.restart());
    let expected = Sums::from([(("a".into(), "m.y".into()), 7), (("b".into(), "m.x".into()), 2)]);
    assert_eq!(open_rows(&store), expected);
    let sealed = store.seal(&id("e1"), None).expect("sealed");
    let (shown, file) = store.file("e1").expect("kept");
    assert_eq!(&file[..], b"actor,metric,quantity\na,m.y,7\nb,m.x,2\n");
    assert_eq!((shown, blake3::hash(&file).as_bytes()), (sealed.clone(), &sealed.hash));
    assert_eq!((sealed.rows, sealed.bytes, sealed.number), (2, file.len() as u64, 1));
    assert_eq!(open_rows(&store), Sums::new());
    store.add("a", "m.y", 1);
    assert_eq!(store.seal(&id("e1"), None), Ok(sealed), "the same epoch is the same file");
    assert_eq!(total(&open_rows(&store)), 1, "and what came after is for the next");
}

#[test]
fn odd_requests_are_refused_and_change_nothing() {
    let mut store = opened(&SimDisk::new(1));
    store.add("a", "m", 1);
    for actor in ["", "a\nb", &"x".repeat(257), "epoch/e", "anonymous", "operator", "(other)"] {
        assert_eq!(store.seal(&id("e"), Some(actor)), Err(UsageError::BadActor));
    }
    assert_eq!(store.file("e").err(), Some(UsageError::Unknown("e".to_owned())));
    store.seal(&id("e"), Some("node")).expect("sealed");
    let otherwise = UsageError::SealedOtherwise { epoch: "e".to_owned(), sealed_as: Some("node".to_owned()) };
    assert_eq!(store.seal(&id("e"), None), Err(otherwise));
    assert_eq!(total(&open_rows(&store)), 0);
}

#[test]
fn a_tenant_seals_its_own_rows_and_leaves_those_of_others() {
    let disk = SimDisk::new(1);
    let mut store = opened(&disk);
    for (actor, amount) in [("alice", 3), ("bob", 5)] {
        store.add(actor, "m.x", amount);
    }
    store.save().expect("saved");
    store.add("alice", "m.y", 4);
    let own = store.seal_own(&id("alice-1"), "alice", None).expect("sealed");
    assert_eq!((own.tenant.as_deref(), own.rows), (Some("alice"), 2));
    assert_eq!(&store.file("alice-1").expect("kept").1[..], b"actor,metric,quantity\nalice,m.x,3\nalice,m.y,4\n");
    assert_eq!(open_rows(&store), Sums::from([(("bob".into(), "m.x".into()), 5)]));
    store.add("alice", "m.x", 7);
    assert_eq!(store.seal_own(&id("alice-1"), "alice", None), Ok(own.clone()), "the same epoch is the same file");
    let others = UsageError::SealedForOthers("alice-1".to_owned());
    assert_eq!(store.seal_own(&id("alice-1"), "bob", None).as_ref(), Err(&others));
    assert_eq!(store.seal(&id("alice-1"), None).as_ref(), Err(&others));
    let reserved = store.seal_own(&id("o"), "operator", None);
    assert_eq!(reserved, Err(UsageError::Reserved("operator".to_owned())));
    store.save().expect("saved");
    drop(store);
    let mut store = opened(&disk.restart());
    let expected = Sums::from([(("alice".into(), "m.x".into()), 7), (("bob".into(), "m.x".into()), 5)]);
    assert_eq!(open_rows(&store), expected, "what was sealed stays so, what was not does too");
    assert_eq!(store.seal_own(&id("alice-1"), "alice", None), Ok(own));
    assert_eq!(store.seal_own(&id("nothing"), "carol", None).expect("sealed").rows, 0);
    let rest = store.seal(&id("all"), None).expect("sealed");
    assert_eq!((rest.rows, total(&open_rows(&store))), (2, 0));
}

#[test]
fn files_of_a_tenant_push_out_nobody_elses() {
    let disk = SimDisk::new(1);
    let mut store = small(&disk, 2);
    store.add("bob", "m", 1);
    store.seal(&id("all"), None).expect("sealed");
    store.add("bob", "m", 2);
    store.seal_own(&id("bob"), "bob", None).expect("sealed");
    for number in 0..20 {
        store.add("alice", "m", 1);
        store.seal_own(&id(&format!("alice-{number}")), "alice", None).expect("sealed");
        store.save().expect("saved");
    }
    let check = |store: &Store| {
        assert!(store.file("all").is_ok() && store.file("bob").is_ok());
        let kept: Vec<u32> = (0..20).filter(|number| store.file(&format!("alice-{number}")).is_ok()).collect();
        assert_eq!(kept, [18, 19]);
    };
    check(&store);
    drop(store);
    check(&small(&disk.restart(), 2));
}

#[test]
fn old_files_are_let_go_and_their_epochs_stay_sealed() {
    let disk = SimDisk::new(1);
    let mut store = small(&disk, 2);
    let mut sealed = Vec::new();
    for number in 0..6 {
        store.add("a", "m", number);
        sealed.push(store.seal(&id(&format!("e{number}")), None).expect("sealed"));
        store.save().expect("saved");
    }
    let check = |store: &mut Store| {
        for (number, seal) in sealed.iter().enumerate() {
            let epoch = format!("e{number}");
            assert_eq!(store.seal(&id(&epoch), None).as_ref(), Ok(seal));
            assert_eq!(store.file(&epoch).is_ok(), number >= 4, "{epoch}");
        }
        assert_eq!(store.file("e0").err(), Some(UsageError::Forgotten("e0".to_owned())));
    };
    check(&mut store);
    drop(store);
    check(&mut small(&disk.restart(), 2));
}

#[test]
fn the_log_stays_small_however_long_it_counts() {
    let disk = SimDisk::new(1);
    let mut store = small(&disk, 3);
    let mut segments_most = 0;
    for round in 0..400_u64 {
        for actor in 0..10 {
            store.add(&format!("a{actor}"), "m", 1);
        }
        store.save().expect("saved");
        if round.is_multiple_of(40) {
            store.seal(&id(&format!("e{round}")), None).expect("sealed");
        }
        segments_most = segments_most.max(store.log().usage().segments);
    }
    assert!(segments_most <= 4, "{segments_most} segments of 4 KiB for ten rows and three files");
    drop(store);
    let store = small(&disk.restart(), 3);
    let sealed: u128 =
        ["e280", "e320", "e360"].iter().map(|epoch| total(&file_rows(&store.file(epoch).unwrap().1))).sum();
    assert_eq!((sealed, total(&open_rows(&store))), (1200, 390));
}

#[test]
fn a_log_without_room_keeps_the_rows_in_memory() {
    let disk = SimDisk::new(1);
    let mut store = opened(&disk);
    store.add("a", "m", 1);
    store.save().expect("saved");
    disk.limit_bytes(Some(0));
    let mut refusals = 0;
    for round in 0..200_u64 {
        store.add(&format!("a{}", round % 30), "m", 1);
        match store.save() {
            Ok(()) => {}
            Err(LogError::Full { .. } | LogError::Busy) => refusals += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refusals > 0, "the disk was never full");
    disk.limit_bytes(None);
    store.log().look_for_room();
    let _ = store.log().flush();
    store.save().expect("there is room again");
    drop(store);
    assert_eq!(total(&open_rows(&opened(&disk.restart()))), 201);
}

/// One step of somebody who counts and seals.
#[derive(Clone, Debug)]
enum Step {
    Add(u8, u8, u32),
    Save,
    Seal(Option<u8>),
    SealOwn(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..12_u8, 0..3_u8, 1..1_000_000_u32).prop_map(|(actor, metric, amount)| Step::Add(actor, metric, amount)),
        3 => Just(Step::Save),
        1 => prop::option::weighted(0.2, 0..2_u8).prop_map(Step::Seal),
        1 => (0..12_u8).prop_map(Step::SealOwn),
    ];
    prop::collection::vec(step, 1..60)
}

/// What was done, and what of it was promised.
#[derive(Default)]
struct Promised {
    counted: u128,
    /// Counted before the last step that was acknowledged.
    saved: u128,
    sealed: Vec<(UsageSeal, Bytes)>,
    epochs_tried: usize,
}

/// Plays steps until their end or until the power goes.
fn play(disk: &SimDisk, steps: &[Step]) -> Promised {
    let mut promised = Promised::default();
    let Ok((mut store, _)) = Store::open_with(Arc::new(disk.clone()), 1000, 4096) else { return promised };
    for step in steps {
        let done = match step {
            Step::Add(actor, metric, amount) => {
                store.add(&format!("actor-{actor}"), &format!("m{metric}"), u64::from(*amount));
                promised.counted += u128::from(*amount);
                continue;
            }
            Step::Save => store.save().map_err(UsageError::from),
            Step::Seal(_) | Step::SealOwn(_) => {
                promised.epochs_tried += 1;
                let epoch = format!("e{}", promised.epochs_tried);
                let sealed = match step {
                    // Only the rows of the tenant are in the file, so that the others are saved first.
                    Step::SealOwn(actor) => store
                        .save()
                        .map_err(UsageError::from)
                        .and_then(|()| store.seal_own(&id(&epoch), &format!("actor-{actor}"), None)),
                    Step::Seal(Some(actor)) => store.seal(&id(&epoch), Some(&format!("node-{actor}"))),
                    _ => store.seal(&id(&epoch), None),
                };
                sealed.and_then(|sealed| {
                    let file = store.file(&epoch)?.1;
                    promised.sealed.push((sealed, file));
                    Ok(())
                })
            }
        };
        if done.is_err() {
            assert!(disk.has_crashed(), "{done:?}");
            return promised;
        }
        promised.saved = promised.counted;
    }
    promised
}

/// Everything sealed and open, after a look at every promise.
fn check_promises(store: &Store, promised: &Promised, what: &str) -> u128 {
    for (sealed, file) in &promised.sealed {
        let (again, bytes) = store.file(&sealed.epoch).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((&again, &bytes), (sealed, file), "{what}");
    }
    let found: Vec<UsageSeal> = store.sealed().cloned().collect();
    assert!(found.len() <= promised.epochs_tried, "{what}");
    let in_files = found.iter().map(|sealed| file_rows(&store.file(&sealed.epoch).expect("kept").1));
    let all = in_files.fold(open_rows(store), |sums, file| plus(sums, &file));
    let sum = total(&all);
    assert!((promised.saved..=promised.counted).contains(&sum), "{what}: {sum}, saved {}", promised.saved);
    sum
}

/// Whether to try more, and at every operation.
fn is_soak() -> bool {
    std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1")
}

fn cases() -> u32 {
    if is_soak() { 500 } else { 12 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Sealed and open rows together are what was counted: exactly without a crash, and after one, wherever it came,
    /// no more than that and no less than what was acknowledged; then counting goes on from there.
    #[test]
    fn every_amount_is_in_one_file_or_open(steps in steps(), seed in 0..1000_u64) {
        let disk = SimDisk::new(seed);
        let promised = play(&disk, &steps);
        let whole = small(&disk.restart(), 1000);
        let open_unsaved = promised.counted - promised.saved;
        prop_assert_eq!(check_promises(&whole, &promised, "no crash") + open_unsaved, promised.counted);
        let operations = disk.operations();
        // A third of the operations in each case; the cases together meet all kinds.
        let step = if is_soak() { 1 } else { 3 };
        for operation in (seed % step..operations).step_by(step as usize) {
            let disk = SimDisk::new(seed);
            disk.crash_at(operation);
            let promised = play(&disk, &steps);
            for survival in [Survival::Nothing, Survival::Everything, Survival::Sectors(seed + operation)] {
                let what = format!("{operation} ({}), {survival:?}", disk.operation(operation));
                let found = disk.crash_with(survival);
                let mut store = small(&found, 1000);
                let before = check_promises(&store, &promised, &what);
                // The seal that was not answered is asked for again: sealed once, whether it was or not.
                store.add("late", "m0", 5);
                let sealed = store.seal(&id("again"), None).expect("sealed");
                prop_assert_eq!(store.seal(&id("again"), None), Ok(sealed));
                store.add("late", "m0", 6);
                store.save().expect("saved");
                let mut store = small(&found.restart(), 1000);
                let (epochs_tried, counted) = (promised.epochs_tried + 1, before + 11);
                let tried = Promised { epochs_tried, counted, saved: counted, sealed: Vec::new() };
                prop_assert_eq!(check_promises(&store, &tried, &what), before + 11);
                store.save().expect("saved");
            }
        }
    }
}

fn in_memory(meter: &Meter) -> UsageMeter {
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    UsageMeter::new(meter.clone(), Box::new(move || Ok(Arc::clone(&disk))), FILES_KEPT)
}

#[tokio::test]
async fn what_services_count_is_shown_and_sealed() {
    let meter = Meter::new(&Metrics::new());
    let usage = in_memory(&meter);
    let soon = || Deadline::after(Duration::from_secs(20));
    assert_eq!(usage.page(None, 10, soon()).await, Err(UsageError::NotReady));
    usage.open().expect("memory");
    for tenant in ["t1", "t2", "t3"] {
        meter.count(tenant, "mailbox.messages_sent", 2);
        meter.count(tenant, "mailbox.bytes_sent", 50);
    }
    let page = usage.page(None, 3, soon()).await.expect("a page");
    assert_eq!((page.rows.len(), page.next.as_deref(), page.rows_total), (4, Some("t2"), 6));
    let rest = usage.page(page.next, 3, soon()).await.expect("a page");
    let last = |metric: &str, quantity| ("t3".to_owned(), metric.to_owned(), quantity);
    assert_eq!(rest.rows, [last("mailbox.bytes_sent", 50), last("mailbox.messages_sent", 2)]);
    assert_eq!(rest.next, None);
    meter.count("t1", "mailbox.messages_sent", 1);
    let sealed = usage.seal(id("e1"), Some("node-1".to_owned()), soon()).await.expect("sealed");
    let (_, file) = usage.file(id("e1"), soon()).await.expect("kept");
    let text = "actor,metric,quantity\nnode-1,mailbox.bytes_sent,150\nnode-1,mailbox.messages_sent,7\n";
    assert_eq!(std::str::from_utf8(&file), Ok(text));
    let page = usage.page(None, 3, soon()).await.expect("a page");
    assert_eq!((page.rows_total, page.sealed), (0, vec![sealed]));
    usage.close().await.expect("closed");
}

#[test]
fn rows_beyond_the_bounds_are_added_together() {
    let mut book = book::Book::with_rows(2);
    for actor in ["a", "b", "c", "d", "a"] {
        book.add(actor, "m", 1);
    }
    let rows = |book: &book::Book| -> Vec<(String, u128)> {
        let mut rows: Vec<_> = book.to_write(true).map(|row| (row.actor.to_owned(), row.quantity)).collect();
        rows.sort();
        rows
    };
    let expected = |rows: &[(&str, u128)]| -> Vec<(String, u128)> {
        rows.iter().map(|(actor, quantity)| ((*actor).to_owned(), *quantity)).collect()
    };
    assert_eq!(rows(&book), expected(&[("(other)", 2), ("a", 2), ("b", 1)]));
    // After a seal all rows are idle, and make room for whoever comes.
    book.begin_anew();
    assert_eq!((rows(&book), book.rows()), (Vec::new(), 0));
    for actor in ["c", "a", "d", "e"] {
        book.add(actor, "m", 1);
    }
    assert_eq!(rows(&book), expected(&[("(other)", 2), ("a", 1), ("c", 1)]));
    book.begin_anew();
    book.begin_anew();
    assert_eq!(book.file_bytes(), book::Book::new().file_bytes(), "rows that nobody used are gone");
    let mut book = book::Book::new();
    let mut count = 0;
    while book.file_bytes() + 3000 < FILE_BYTES_MAX {
        book.add(&format!("{count:02000}"), "m", 1);
        count += 1;
    }
    let rows = book.rows();
    (0..10).for_each(|extra| book.add(&format!("{extra:04000}"), "m", 1));
    assert_eq!(book.rows(), rows + 1, "the names of the rest are too long for the file");
    assert!(file::write(&mut book, None, None).text.len() as u64 <= FILE_BYTES_MAX + 100);
}
