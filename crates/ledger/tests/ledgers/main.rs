//! Ledgers that are elsewhere, against a real PostgreSQL and against servers that misbehave.
#![allow(clippy::disallowed_methods, reason = "the kernel's tasks and deadlines are not what is under test")]

mod http;
mod postgres;

use ron_ledger::{Batch, Direction, Entry, Ledger, LedgerError, Outcome, Tally};

fn key(number: u64) -> [u8; 32] {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

fn pay(number: u64, account: &str, amount: u128) -> Entry {
    Entry { key: key(number), account: account.to_owned(), amount, direction: Direction::Pay }
}

fn take_back(number: u64, account: &str, amount: u128) -> Entry {
    Entry { direction: Direction::TakeBack, ..pay(number, account, amount) }
}

fn batch(run: u8, entries: Vec<Entry>) -> Batch {
    let (asset, pot) = ("RON".to_owned(), format!("epoch/{run}"));
    Batch { run: [run; 32], asset, pot, follows: None, entries }
}

/// Entries numbered from `first` on, of one unit each, to a hundred payees.
fn many(run: u8, first: u64, count: u64) -> Batch {
    batch(run, (first..first + count).map(|number| pay(number, &format!("payee {}", number % 100), 1)).collect())
}

fn tally(count: u64, paid: u128, taken_back: u128) -> Tally {
    Tally { asset: "RON".to_owned(), count, paid, taken_back }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, LedgerError>) -> String {
    match result {
        Err(LedgerError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn absence<T: std::fmt::Debug>(result: Result<T, LedgerError>) -> String {
    match result {
        Err(LedgerError::Unavailable(why)) => why,
        other => panic!("not unavailable: {other:?}"),
    }
}

/// What every ledger does, whatever it is made of. Uses the runs 1 and 2, and a new ledger.
async fn does_what_a_ledger_does(ledger: &impl Ledger) {
    let first = batch(1, vec![pay(1, "a", 10), pay(2, "ålice", u128::MAX / 4)]);
    assert_eq!(ledger.submit(&first).await.expect("good"), [Outcome::Accepted; 2]);
    assert_eq!(ledger.submit(&first).await.expect("good"), [Outcome::Duplicate; 2]);
    let changes = [
        ("amount", batch(1, vec![pay(1, "a", 11)])),
        ("account", batch(1, vec![pay(1, "b", 10)])),
        ("direction", batch(1, vec![take_back(1, "a", 10)])),
        ("run", batch(2, vec![pay(1, "a", 10)])),
        ("asset", Batch { asset: "EUR".to_owned(), ..batch(1, vec![pay(1, "a", 10)]) }),
        ("pot", Batch { pot: "other".to_owned(), ..batch(1, vec![pay(1, "a", 10)]) }),
    ];
    for (what, changed) in changes {
        assert_eq!(ledger.submit(&changed).await.expect("good"), [Outcome::Conflict], "{what}");
    }
    let mixed =
        batch(1, vec![pay(3, "c", 1), pay(3, "c", 1), pay(3, "c", 2), pay(1, "x", 1), pay(1, "a", 10), pay(4, "c", 5)]);
    let expected = [
        Outcome::Accepted,
        Outcome::Duplicate,
        Outcome::Conflict,
        Outcome::Conflict,
        Outcome::Duplicate,
        Outcome::Accepted,
    ];
    assert_eq!(ledger.submit(&mixed).await.expect("good"), expected, "one key several times in a batch");
    let too_much = batch(2, vec![pay(5, "b", 5), take_back(6, "a", 11)]);
    assert!(refusal(ledger.submit(&too_much).await).contains("a does not have the units of RON"));
    let back = batch(2, vec![take_back(6, "b", 5), pay(5, "b", 5), take_back(7, "a", 10)]);
    assert_eq!(
        ledger.submit(&back).await.expect("good"),
        [Outcome::Accepted; 3],
        "nothing of the refused batch was booked"
    );
    assert!(refusal(ledger.submit(&batch(1, vec![pay(8, "", 1)])).await).contains("account"));
    assert_eq!(ledger.submit(&batch(1, vec![])).await.expect("good"), []);
    assert_eq!(ledger.tally(&[1; 32]).await.expect("good"), [tally(4, 16 + u128::MAX / 4, 0)]);
    assert_eq!(ledger.tally(&[2; 32]).await.expect("good"), [tally(3, 5, 15)]);
    assert_eq!(ledger.tally(&[3; 32]).await.expect("good"), []);
}

/// A batch of this run from the pot of another.
fn batch_from(run: u8, pot: u8, follows: Option<u8>, entries: Vec<Entry>) -> Batch {
    Batch { pot: format!("epoch/{pot}"), follows: follows.map(|run| [run; 32]), ..batch(run, entries) }
}

/// One pot, one run; one run, one correction. Uses the runs and pots from 20 on.
async fn keeps_pots(ledger: &impl Ledger) {
    assert_eq!(ledger.one_run_per_pot().await, Ok(true));
    let [first, second] = [batch(20, vec![pay(2000, "a", 10)]), batch_from(21, 20, None, vec![pay(2100, "a", 10)])];
    assert_eq!(ledger.submit(&first).await.expect("good"), [Outcome::Accepted]);
    assert!(refusal(ledger.submit(&second).await).contains("epoch/20 is taken by run b3:1414"));
    let other_asset = Batch { asset: "EUR".to_owned(), ..second.clone() };
    assert!(refusal(ledger.submit(&other_asset).await).contains("taken"), "whatever the asset");
    assert_eq!(ledger.tally(&[21; 32]).await.expect("good"), [], "nothing of it is booked");
    let fix = batch_from(22, 22, Some(20), vec![take_back(2200, "a", 4), pay(2201, "b", 4)]);
    assert_eq!(ledger.submit(&fix).await.expect("good"), [Outcome::Accepted; 2]);
    let again = batch_from(23, 23, Some(20), vec![take_back(2300, "a", 4)]);
    assert!(refusal(ledger.submit(&again).await).contains("corrected by run b3:1616"));
    let late = batch(20, vec![pay(2000, "a", 10), pay(2001, "c", 1)]);
    assert!(refusal(ledger.submit(&late).await).contains("corrected by run b3:1616"), "what is corrected is over");
    for sent in [&first, &fix] {
        let outcomes = ledger.submit(sent).await.expect("good");
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Duplicate), "what is booked stays a duplicate");
    }
    let next = batch_from(24, 24, Some(22), vec![pay(2400, "b", 1)]);
    assert_eq!(ledger.submit(&next).await.expect("good"), [Outcome::Accepted], "a correction of the correction");
}
