//! The power goes at every operation of the disk: what was acknowledged is there, and every key is booked exactly once
//! after all batches have come again.

use super::tests::{batch, net, open, pay, small, take_back};
use super::*;
use ron_log::SimDisk;
use ron_log::sim::Survival;
use tokio::runtime::Runtime;

/// Batches of several sizes, over several segments; the fifth takes back, the last is larger than a page.
fn script() -> Vec<Batch> {
    let mut batches = Vec::new();
    for run in 1..=8_u8 {
        let size = [1, 3, 20, 2, 5, 30, 1, 60][usize::from(run) - 1];
        let first = u64::from(run) * 100;
        let entries = (first..first + size).map(|number| match run {
            5 => take_back(number, &format!("payee {}", number % 5), 1),
            _ => pay(number, &format!("payee {}", number % 20), 1 + u128::from(run)),
        });
        batches.push(batch(run, entries.collect()));
    }
    batches
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Submits the batches until the power goes; gives the number of those that were acknowledged.
async fn play(disk: &SimDisk, batches: &[Batch], in_one_group: usize) -> usize {
    let Ok((book, _)) = Book::open(Arc::new(disk.clone()), small()) else { return 0 };
    let mut acknowledged = 0;
    for group in batches.chunks(in_one_group) {
        // All but the last of a group are appended only: the last one's commit takes them along.
        for appended in &group[..group.len() - 1] {
            if book.inner.append(appended).is_err() {
                return acknowledged;
            }
        }
        if book.submit(&group[group.len() - 1]).await.is_err() {
            return acknowledged;
        }
        acknowledged += group.len();
    }
    acknowledged
}

fn survivals(seed: u64) -> [Survival; 5] {
    let drawn = seed * 2 + 3;
    [
        Survival::Nothing,
        Survival::Everything,
        Survival::Sectors(drawn),
        Survival::Pages(drawn),
        Survival::Sectors(drawn + 1),
    ]
}

/// Looks at what a crash left, then lets all batches come again.
async fn check(found: &SimDisk, batches: &[Batch], acknowledged: usize, what: &str) {
    let (book, opened) = open(found);
    assert_eq!(opened.damage, None, "{what}");
    let mut seen_absent = false;
    for (number, batch) in batches.iter().enumerate() {
        let there = {
            let state = lock(&book.inner.state);
            batch.entries.iter().filter(|entry| state.keys().get(&entry.key).is_some()).count()
        };
        assert!(there == 0 || there == batch.entries.len(), "{what}: batch {number} is torn");
        assert!(there > 0 || number >= acknowledged, "{what}: batch {number} was acknowledged and is gone");
        assert!(there == 0 || !seen_absent, "{what}: batch {number} is there and one before it is not");
        seen_absent |= there == 0;
    }
    assert!(book.verify().await.expect("readable").is_clean(), "{what}");
    for (number, batch) in batches.iter().enumerate() {
        let outcomes = book.submit(batch).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_known = outcomes.iter().all(|outcome| *outcome == Outcome::Duplicate);
        assert!(is_known || number >= acknowledged, "{what}: batch {number} was booked twice");
        assert!(!outcomes.contains(&Outcome::Conflict), "{what}");
    }
    check_sums(&book, batches, what).await;
    drop(book);
    let (book, opened) = open(&found.restart());
    assert_eq!(opened.transfers, batches.iter().map(|batch| batch.entries.len() as u64).sum::<u64>(), "{what}");
    check_sums(&book, batches, what).await;
}

/// Every key is effective exactly once.
async fn check_sums(book: &Book, batches: &[Batch], what: &str) {
    for batch in batches {
        let (mut paid, mut taken_back) = (0, 0);
        for entry in &batch.entries {
            let sum = if entry.direction == crate::Direction::Pay { &mut paid } else { &mut taken_back };
            *sum += entry.amount;
        }
        let expected = Tally { asset: "RON".to_owned(), count: batch.entries.len() as u64, paid, taken_back };
        assert_eq!(book.tally(&batch.run).await.expect("readable"), [expected], "{what}");
        let owed = if paid > 0 { format!("-{paid}") } else { taken_back.to_string() };
        assert_eq!(net(book, &batch.pot).await, owed, "{what}");
    }
}

fn crash_everywhere(in_one_group: usize) {
    let batches = script();
    let runtime = runtime();
    let operations = runtime.block_on(async {
        let disk = SimDisk::new(5);
        assert_eq!(play(&disk, &batches, in_one_group).await, batches.len());
        disk.operations()
    });
    assert!(operations > 25, "the script does little: {operations} operations");
    let mut recoveries = 0;
    for operation in 0..operations {
        let disk = SimDisk::new(5);
        disk.crash_at(operation);
        let acknowledged = runtime.block_on(play(&disk, &batches, in_one_group));
        assert!(disk.has_crashed());
        for survival in survivals(operation) {
            let what = format!("operation {operation} ({}), {survival:?}", disk.operation(operation));
            let found = disk.crash_with(survival);
            runtime.block_on(check(&found, &batches, acknowledged, &what));
            crash_again(&runtime, &disk.crash_with(survival), &batches, acknowledged, operation, &what);
            recoveries += 1;
        }
    }
    println!("{operations} crash points, {recoveries} recoveries, each key exactly once");
}

/// The power goes a second time, while the first crash is being mended or the batches come again.
fn crash_again(runtime: &Runtime, found: &SimDisk, batches: &[Batch], acknowledged: usize, seed: u64, what: &str) {
    found.crash_at(seed * 7 % 29);
    let again = runtime.block_on(play(found, batches, 1));
    let survival = survivals(seed + 1)[(seed % 5) as usize];
    let what = format!("{what}, and again {survival:?}");
    runtime.block_on(check(&found.crash_with(survival), batches, acknowledged.max(again), &what));
}

#[test]
fn one_batch_in_each_commit() {
    crash_everywhere(1);
}

#[test]
fn several_batches_in_one_commit() {
    crash_everywhere(4);
}

#[test]
fn a_sync_that_fails_loses_no_acknowledged_batch() {
    let (batches, runtime) = (script(), runtime());
    let syncs = {
        let disk = SimDisk::new(5);
        runtime.block_on(play(&disk, &batches, 1));
        disk.syncs()
    };
    for sync in 0..syncs {
        let disk = SimDisk::new(5);
        disk.fail_sync(sync);
        let acknowledged = runtime.block_on(play(&disk, &batches, 1));
        let what = format!("sync {sync} failed");
        runtime.block_on(check(&disk.restart(), &batches, acknowledged, &what));
        for survival in survivals(sync) {
            runtime.block_on(check(&disk.crash_with(survival), &batches, acknowledged, &what));
        }
    }
}
