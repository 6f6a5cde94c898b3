//! Any sequence of batches and restarts does what a plain map of keys would do.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The reference: content by key, and sums that are counted anew each time they are asked for.
#[derive(Default)]
struct Reference {
    booked: BTreeMap<[u8; 32], (u8, String, String, Entry)>,
    payers: BTreeMap<String, u8>,
    followers: BTreeMap<[u8; 32], u8>,
}

impl Reference {
    fn net(&self, account: &str, asset: &str) -> i128 {
        let signed = |(_, of, pot, entry): &(u8, String, String, Entry)| {
            let amount = entry.amount as i128 * if entry.direction == Direction::Pay { 1 } else { -1 };
            let own = if entry.account == account { amount } else { 0 };
            let as_pot = if pot == account { -amount } else { 0 };
            if of == asset { own + as_pot } else { 0 }
        };
        self.booked.values().map(signed).sum()
    }

    /// Whether the batch may book something new: its pot is its own, its run is not corrected, and it is the one that
    /// corrects what it corrects.
    fn may_book(&self, batch: &Batch) -> bool {
        let run = batch.run[0];
        let is_own = |found: Option<&u8>| found.is_none_or(|found| *found == run);
        let follows = batch.follows.and_then(|followed| self.followers.get(&followed));
        is_own(self.payers.get(&batch.pot)) && is_own(follows) && !self.followers.contains_key(&batch.run)
    }

    /// Outcomes, or `None` where a pot or a run is taken, or an account would give back what it does not have.
    fn submit(&mut self, batch: &Batch) -> Option<Vec<Outcome>> {
        let before = self.booked.clone();
        let mut outcomes = Vec::new();
        for entry in &batch.entries {
            let content = (batch.run[0], batch.asset.clone(), batch.pot.clone(), entry.clone());
            outcomes.push(match self.booked.get(&entry.key) {
                Some(known) if *known == content => Outcome::Duplicate,
                Some(_) => Outcome::Conflict,
                None => Outcome::Accepted,
            });
            if outcomes.last() == Some(&Outcome::Accepted) {
                self.booked.insert(entry.key, content);
            }
        }
        let gave_back = batch
            .entries
            .iter()
            .zip(&outcomes)
            .filter(|(entry, outcome)| entry.direction == Direction::TakeBack && **outcome == Outcome::Accepted);
        let owes = |(entry, _): (&Entry, &Outcome)| self.net(&entry.account, &batch.asset) < 0;
        let has_new = outcomes.contains(&Outcome::Accepted);
        if gave_back.into_iter().any(owes) || has_new && !self.may_book(batch) {
            self.booked = before;
            return None;
        }
        if has_new {
            self.payers.insert(batch.pot.clone(), batch.run[0]);
            self.followers.extend(batch.follows.map(|followed| (followed, batch.run[0])));
        }
        Some(outcomes)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Batch),
    Restart,
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry =
        (0..60_u64, 0..5_u8, 0..6_u128, prop::bool::weighted(0.2)).prop_map(|(number, account, amount, back)| {
            let account = format!("account {account}");
            if back { take_back(number, &account, amount) } else { pay(number, &account, amount) }
        });
    prop::collection::vec(entry, 0..12)
}

fn step() -> impl Strategy<Value = Step> {
    let other_pot = prop::option::weighted(0.1, 1..4_u8);
    let follows = prop::option::weighted(0.1, 1..4_u8);
    let submit = (1..4_u8, 0..2_u8, other_pot, follows, entries()).prop_map(|(run, asset, pot, follows, entries)| {
        let asset = ["RON", "EUR"][usize::from(asset)].to_owned();
        let pot = format!("epoch/{}", pot.unwrap_or(run));
        let follows = follows.filter(|followed| *followed != run).map(|run| [run; 32]);
        Step::Submit(Batch { asset, pot, follows, ..batch(run, entries) })
    });
    prop_oneof![8 => submit, 1 => Just(Step::Restart)]
}

fn cases() -> u32 {
    let is_soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    if is_soak { 5000 } else { 150 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_book_does_what_a_map_would(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut disk = SimDisk::new(3);
            let (mut book, _) = open(&disk);
            let mut reference = Reference::default();
            for step in steps {
                let Step::Submit(batch) = step else {
                    drop(book);
                    disk = disk.crash(0);
                    let (opened, found) = open(&disk);
                    assert_eq!((found.damage, found.transfers), (None, reference.booked.len() as u64));
                    book = opened;
                    continue;
                };
                let outcomes = book.submit(&batch).await;
                match reference.submit(&batch) {
                    Some(expected) => assert_eq!(outcomes, Ok(expected)),
                    None => assert!(matches!(outcomes, Err(LedgerError::Refused(_))), "{outcomes:?}"),
                }
            }
            let payees = (0..5).map(|number| format!("account {number}"));
            for account in payees.chain((1..4).map(|run| format!("epoch/{run}"))) {
                for balance in book.balances(&account).await.unwrap() {
                    assert_eq!(balance.net(), reference.net(&account, &balance.asset).to_string());
                }
            }
            for run in 1..4_u8 {
                let of_run = reference.booked.values().filter(|(of, ..)| *of == run).count() as u64;
                let tally = book.tally(&[run; 32]).await.unwrap();
                assert_eq!(tally.iter().map(|tally| tally.count).sum::<u64>(), of_run);
            }
            let report = book.verify().await.unwrap();
            assert!(report.is_clean(), "{report:?}");
        });
    }
}
