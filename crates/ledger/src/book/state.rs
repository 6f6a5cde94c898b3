//! The book in memory: what replaying its records gives. It knows no disk and no clock.

use super::index::{KeyIndex, Names};
use super::record::{self, Chain, Head, Row};
use crate::limits::ASSETS_MAX;
use crate::model::{Batch, Direction, LedgerError, Outcome, RunKey, Tally};
use crate::pot;
use crate::words::check_words;
use ron_log::Position;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Units that left an account and units that came to it, in one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub debits: u128,
    pub credits: u128,
}

impl Sums {
    fn plus(self, debits: u128, credits: u128) -> Option<Sums> {
        Some(Sums { debits: self.debits.checked_add(debits)?, credits: self.credits.checked_add(credits)? })
    }
}

/// Ends of the two chains that a statement follows back; 0 is "none", else the number and one.
#[derive(Clone, Copy, Default)]
struct Ends {
    /// Last transfer in which the account was the payee.
    transfer: u32,
    /// Last batch in which the account was the pot.
    batch: u32,
}

/// Place of a batch in the log and in the numbering of transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPlace {
    pub position: Position,
    /// Number of its first transfer.
    pub first: u32,
    /// Batch before it with the same pot: its number and one, or 0.
    pot_previous: u32,
}

/// Sums of one asset of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct RunSums {
    asset: u32,
    count: u64,
    paid: u128,
    taken_back: u128,
}

/// A side of a transfer: whose statement it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Payee,
    Pot,
}

/// Place from which a statement goes back: the next transfer as payee and the next as pot, each its number and one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trail {
    pub payee: u32,
    pub pot: u32,
}

/// What would become of a batch.
pub(super) struct Plan {
    pub outcomes: Vec<Outcome>,
    /// Largest amount that would be booked.
    pub largest: u128,
    /// Transfers that would be booked.
    pub accepted: u32,
}

pub(super) struct State {
    accounts: Names,
    ends: Vec<Ends>,
    assets: Names,
    /// For each asset, the units that ever moved: what pots gave and took.
    moved: Vec<u128>,
    /// By account and asset; their numbers are ours, so that nobody can make them collide.
    balances: hashbrown::HashMap<(u32, u32), Sums>,
    keys: KeyIndex,
    runs: HashMap<RunKey, Vec<RunSums>>,
    /// The run that pays from each pot, by the number of its account: the first that did.
    payers: HashMap<u32, RunKey>,
    /// The run that corrects a run.
    followers: HashMap<RunKey, RunKey>,
    batches: Vec<BatchPlace>,
    /// For each transfer, the one before it of the same payee: its number and one, or 0.
    previous: Vec<u32>,
    fingerprints: RandomState,
    pub chain: Chain,
    /// Things that no sequence of submitted batches can lead to, found while records were taken in.
    pub contradictions: u64,
}

impl State {
    pub fn new() -> State {
        State {
            accounts: Names::new(),
            ends: Vec::new(),
            assets: Names::new(),
            moved: Vec::new(),
            balances: hashbrown::HashMap::new(),
            keys: KeyIndex::new(),
            runs: HashMap::new(),
            payers: HashMap::new(),
            followers: HashMap::new(),
            batches: Vec::new(),
            previous: Vec::new(),
            fingerprints: RandomState::new(),
            chain: Chain::default(),
            contradictions: 0,
        }
    }

    pub fn transfers(&self) -> usize {
        self.previous.len()
    }

    pub fn batches(&self) -> &[BatchPlace] {
        &self.batches
    }

    pub fn account_names(&self) -> &Names {
        &self.accounts
    }

    pub fn keys(&self) -> &KeyIndex {
        &self.keys
    }

    /// Says what would become of each entry, or why the whole batch is refused. Changes nothing.
    pub fn plan(&self, batch: &Batch, transfers_max: u32) -> Result<Plan, LedgerError> {
        check_words(batch)?;
        self.check_assets(&[&batch.asset])?;
        let base = self.fingerprint_base(&batch.run, &batch.asset, &batch.pot);
        let mut fresh: HashMap<&[u8; 32], u64> = HashMap::with_capacity(batch.entries.len());
        let (mut paid, mut taken_back, mut largest) = (0_u128, 0_u128, 0);
        let mut takes_back = false;
        let mut outcomes = Vec::with_capacity(batch.entries.len());
        for entry in &batch.entries {
            let fingerprint = self.fingerprint(base, &entry.account, entry.amount, entry.direction);
            let known = self.keys.get(&entry.key).or_else(|| fresh.get(&entry.key).copied());
            outcomes.push(match known {
                Some(before) if before == fingerprint => Outcome::Duplicate,
                Some(_) => Outcome::Conflict,
                None => Outcome::Accepted,
            });
            if known.is_some() {
                continue;
            }
            fresh.insert(&entry.key, fingerprint);
            takes_back |= entry.direction == Direction::TakeBack;
            largest = largest.max(entry.amount);
            let sum = if entry.direction == Direction::Pay { &mut paid } else { &mut taken_back };
            *sum = sum.checked_add(entry.amount).ok_or_else(|| refused("the batch is worth more than 2^128 units"))?;
        }
        let accepted = u32::try_from(fresh.len()).expect("a batch is bounded");
        if self.transfers() as u64 + u64::from(accepted) > u64::from(transfers_max) {
            return Err(LedgerError::Unavailable(format!("the book is full: it holds {transfers_max} transfers")));
        }
        if accepted > 0 {
            self.check_pot(batch)?;
        }
        self.check_sums(batch, paid, taken_back)?;
        if takes_back {
            self.check_balances(batch, &outcomes)?;
        }
        Ok(Plan { outcomes, largest, accepted })
    }

    /// Whether there is room for those of these assets that the book does not know.
    pub fn check_assets(&self, assets: &[&str]) -> Result<(), LedgerError> {
        let new = assets.iter().filter(|asset| self.assets.find(asset).is_none()).count();
        if new > 0 && self.assets.len() + new > ASSETS_MAX {
            let known = self.assets.len();
            return Err(refused(format!("the book has {known} assets, and no more than {ASSETS_MAX} find room in it")));
        }
        Ok(())
    }

    /// One pot, one run; one run, one correction. Asked only of what would be booked: what is there stays a duplicate,
    /// also in a book of before this rule.
    fn check_pot(&self, batch: &Batch) -> Result<(), LedgerError> {
        let payer = self.accounts.find(&batch.pot).and_then(|pot| self.payers.get(&pot));
        let follower = |run: &RunKey| self.followers.get(run).copied();
        let followed_by = batch.follows.as_ref().and_then(follower);
        pot::check(batch, payer.copied(), follower(&batch.run), followed_by).map_err(refused)
    }

    /// No sum of one account can overflow while the sums of all together do not.
    fn check_sums(&self, batch: &Batch, paid: u128, taken_back: u128) -> Result<(), LedgerError> {
        let before = self.assets.find(&batch.asset).map_or(0, |asset| self.moved[asset as usize]);
        let fits = paid.checked_add(taken_back).and_then(|moved| before.checked_add(moved)).is_some();
        if fits { Ok(()) } else { Err(refused(format!("more than 2^128 units of {} would have moved", batch.asset))) }
    }

    /// After the batch, no payee that gave something back may owe. The batch counts as a whole, in any order.
    fn check_balances(&self, batch: &Batch, outcomes: &[Outcome]) -> Result<(), LedgerError> {
        let mut changed: HashMap<&str, (Sums, bool)> = HashMap::new();
        for (entry, outcome) in batch.entries.iter().zip(outcomes) {
            if *outcome != Outcome::Accepted {
                continue;
            }
            let before = || (self.sums(&entry.account, &batch.asset), false);
            let (sums, gave_back) = changed.entry(&entry.account).or_insert_with(before);
            *gave_back |= entry.direction == Direction::TakeBack;
            let (debits, credits) =
                if entry.direction == Direction::Pay { (0, entry.amount) } else { (entry.amount, 0) };
            *sums = sums.plus(debits, credits).ok_or_else(|| refused("the sums of an account overflow"))?;
        }
        let owes = |(_, (sums, gave_back)): &(&&str, &(Sums, bool))| *gave_back && sums.debits > sums.credits;
        // The first by name, so that the same batch is always refused with the same words.
        match changed.iter().filter(owes).map(|(account, _)| *account).min() {
            Some(account) => {
                let asset = &batch.asset;
                Err(refused(format!("{account} does not have the units of {asset} that are taken back")))
            }
            None => Ok(()),
        }
    }

    /// Sums of an account in an asset; zeros where there is nothing.
    pub fn sums(&self, account: &str, asset: &str) -> Sums {
        let found = self.accounts.find(account).zip(self.assets.find(asset));
        found.and_then(|found| self.balances.get(&found)).copied().unwrap_or_default()
    }

    /// Takes in a batch that is in the log. Every transfer in `rows` is new.
    pub fn apply<'a>(&mut self, position: Position, head: &Head, chain: Chain, rows: impl Iterator<Item = Row<'a>>) {
        let base = self.fingerprint_base(&head.run, &head.asset, &head.pot);
        let asset = self.asset(&head.asset);
        let pot = self.account(&head.pot);
        let batch = u32::try_from(self.batches.len() + 1).expect("fewer batches than transfers");
        let first = u32::try_from(self.previous.len()).expect("transfers are bounded");
        let pot_previous = std::mem::replace(&mut self.ends[pot as usize].batch, batch);
        self.batches.push(BatchPlace { position, first, pot_previous });
        let mut run = RunSums { asset, ..RunSums::default() };
        for row in rows {
            let fingerprint = self.fingerprint(base, row.account, row.amount, row.direction);
            if !self.keys.insert(row.key, fingerprint) {
                self.contradictions += 1;
            }
            let account = self.account(row.account);
            let number = u32::try_from(self.previous.len() + 1).expect("transfers are bounded");
            let before = std::mem::replace(&mut self.ends[account as usize].transfer, number);
            self.previous.push(before);
            run.count += 1;
            match row.direction {
                Direction::Pay => {
                    self.add(account, asset, 0, row.amount);
                    run.paid = self.checked(run.paid, row.amount);
                }
                Direction::TakeBack => {
                    self.add(account, asset, row.amount, 0);
                    run.taken_back = self.checked(run.taken_back, row.amount);
                }
            }
        }
        self.payers.entry(pot).or_insert(head.run);
        if let Some(followed) = head.follows {
            self.followers.entry(followed).or_insert(head.run);
        }
        self.add(pot, asset, run.paid, run.taken_back);
        for units in [run.paid, run.taken_back] {
            self.moved[asset as usize] = self.checked(self.moved[asset as usize], units);
        }
        self.add_to_run(head.run, run);
        self.chain = chain;
    }

    fn account(&mut self, name: &str) -> u32 {
        let (number, is_new) = self.accounts.intern(name);
        if is_new {
            self.ends.push(Ends::default());
        }
        number
    }

    fn asset(&mut self, name: &str) -> u32 {
        let (number, is_new) = self.assets.intern(name);
        if is_new {
            self.moved.push(0);
        }
        number
    }

    fn add(&mut self, account: u32, asset: u32, debits: u128, credits: u128) {
        let sums = self.balances.entry((account, asset)).or_default();
        match sums.plus(debits, credits) {
            Some(more) => *sums = more,
            None => self.contradictions += 1,
        }
    }

    fn checked(&mut self, sum: u128, amount: u128) -> u128 {
        sum.checked_add(amount).unwrap_or_else(|| {
            self.contradictions += 1;
            sum
        })
    }

    fn add_to_run(&mut self, run: RunKey, more: RunSums) {
        let all = self.runs.entry(run).or_default();
        let index = all.iter().position(|sums| sums.asset == more.asset).unwrap_or_else(|| {
            all.push(RunSums { asset: more.asset, ..RunSums::default() });
            all.len() - 1
        });
        let RunSums { count, paid, taken_back, .. } = all[index];
        let (paid, taken_back) = (self.checked(paid, more.paid), self.checked(taken_back, more.taken_back));
        let sums = RunSums { asset: more.asset, count: count + more.count, paid, taken_back };
        self.runs.entry(run).or_default()[index] = sums;
    }

    /// Sums of a run, by asset.
    pub fn tally(&self, run: &RunKey) -> Vec<Tally> {
        let sums = self.runs.get(run).into_iter().flatten();
        let mut tallies: Vec<Tally> = sums
            .map(|sums| {
                let RunSums { asset, count, paid, taken_back } = *sums;
                Tally { asset: self.assets.get(asset).to_owned(), count, paid, taken_back }
            })
            .collect();
        tallies.sort_by(|left, right| left.asset.cmp(&right.asset));
        tallies
    }

    /// What an account has, by asset, sorted by the asset's name.
    pub fn holdings(&self, account: u32) -> Vec<(&str, Sums)> {
        let assets = (0..self.assets.len()).map(|asset| u32::try_from(asset).expect("assets are few"));
        let held = assets.filter_map(|asset| Some((self.assets.get(asset), *self.balances.get(&(account, asset))?)));
        let mut holdings: Vec<_> = held.collect();
        holdings.sort_by_key(|(asset, _)| *asset);
        holdings
    }

    /// Sums of all accounts together, by asset: debits and credits must be equal.
    pub fn totals(&self) -> Vec<(&str, Option<Sums>)> {
        let mut totals = vec![Some(Sums::default()); self.assets.len()];
        for ((_, asset), sums) in &self.balances {
            let total = &mut totals[*asset as usize];
            *total = total.and_then(|total| total.plus(sums.debits, sums.credits));
        }
        let named = totals
            .into_iter()
            .enumerate()
            .map(|(asset, total)| (self.assets.get(u32::try_from(asset).expect("assets are few")), total));
        named.collect()
    }

    /// Whether two books of the same batches say the same of these accounts, which have the same numbers in both.
    pub fn agrees_about(&self, accounts: Range<u32>, other: &State) -> bool {
        accounts.into_iter().all(|account| {
            let is_same =
                (account as usize) < other.accounts.len() && self.accounts.get(account) == other.accounts.get(account);
            is_same
                && self.holdings(account) == other.holdings(account)
                && self.payers.get(&account) == other.payers.get(&account)
        })
    }

    /// Whether they say the same of a run.
    pub fn agrees_about_run(&self, run: &RunKey, other: &State) -> bool {
        self.tally(run) == other.tally(run) && self.followers.get(run) == other.followers.get(run)
    }

    /// The keys of all runs.
    pub fn run_keys(&self) -> Vec<RunKey> {
        self.runs.keys().copied().collect()
    }

    /// Whether two books know equally much; what they know is compared account by account and run by run.
    pub fn agrees_with(&self, other: &State) -> bool {
        self.accounts.len() == other.accounts.len()
            && self.balances.len() == other.balances.len()
            && self.runs.len() == other.runs.len()
            && self.payers.len() == other.payers.len()
            && self.followers.len() == other.followers.len()
    }

    /// Where the statement of an account begins: at its newest transfer.
    pub fn newest(&self, account: u32) -> Trail {
        let Ends { transfer, batch } = self.ends[account as usize];
        Trail { payee: transfer, pot: self.last_of(batch) }
    }

    /// Number and one of the last transfer of a batch that is given by its number and one.
    fn last_of(&self, batch: u32) -> u32 {
        if batch == 0 {
            return 0;
        }
        let next = self.batches.get(batch as usize).map(|next| next.first);
        next.unwrap_or_else(|| u32::try_from(self.previous.len()).expect("transfers are bounded"))
    }

    /// The batch that a transfer is in.
    pub fn batch_of(&self, transfer: u32) -> Option<usize> {
        let after = self.batches.partition_point(|batch| batch.first <= transfer);
        after.checked_sub(1).filter(|_| (transfer as usize) < self.previous.len())
    }

    /// Goes one step back: the newer of the two transfers, and the trail behind it. A trail comes from outside and may
    /// be false: who reads the transfer compares its account.
    pub fn step(&self, trail: Trail) -> Option<(u32, Role, Trail)> {
        if trail.payee > trail.pot {
            let transfer = trail.payee - 1;
            let payee = *self.previous.get(transfer as usize)?;
            return Some((transfer, Role::Payee, Trail { payee, ..trail }));
        }
        let transfer = trail.pot.checked_sub(1)?;
        let batch = &self.batches[self.batch_of(transfer)?];
        let pot = if transfer > batch.first { transfer } else { self.last_of(batch.pot_previous) };
        Some((transfer, Role::Pot, Trail { pot, ..trail }))
    }

    fn fingerprint_base(&self, run: &RunKey, asset: &str, pot: &str) -> u64 {
        self.fingerprints.hash_one((run, asset, pot))
    }

    /// Equal for equal content. It never leaves the process, so that nobody can search for two contents of one value.
    fn fingerprint(&self, base: u64, account: &str, amount: u128, direction: Direction) -> u64 {
        self.fingerprints.hash_one((base, account, amount, direction == Direction::Pay))
    }
}

/// Head of the record for the accepted entries of a batch.
pub(super) fn head_of(batch: &Batch, plan: &Plan, booked_at_ms: u64) -> Head {
    let (asset, pot) = (batch.asset.clone(), batch.pot.clone());
    let amount_bytes = record::amount_bytes(plan.largest);
    Head { booked_at_ms, run: batch.run, asset, pot, follows: batch.follows, count: plan.accepted, amount_bytes }
}

/// The accepted entries of a batch as rows.
pub(super) fn rows_of<'a>(batch: &'a Batch, plan: &'a Plan) -> impl Iterator<Item = Row<'a>> {
    let accepted = batch.entries.iter().zip(&plan.outcomes).filter(|(_, outcome)| **outcome == Outcome::Accepted);
    accepted.map(|(entry, _)| {
        let (key, account) = (entry.key, entry.account.as_str());
        Row { key, account, amount: entry.amount, direction: entry.direction }
    })
}

fn refused(why: impl Into<String>) -> LedgerError {
    LedgerError::Refused(why.into())
}
