//! Payouts that follow from a run: a pure function of it, so that after a crash they are simply asked for again.

use ron_calculus::{AssetAllocation, Roster, Units};
use ron_ledger::{Batch, Direction, Entry, RunKey, Tally};

use crate::hashing::hash_parts;
use crate::job::Computed;
use crate::manifest::IntentFacts;

/// The payouts of one run, in a fixed order: by asset in the policy's order, then by actor.
#[derive(Clone, Debug)]
pub struct Intents<'a> {
    run: RunKey,
    pot: String,
    follows: Option<RunKey>,
    roster: &'a Roster,
    paying: &'a [AssetAllocation],
    /// Units taken back, by asset and actor; empty unless the run is a correction.
    take_back: &'a [Vec<u128>],
}

/// Identity of a payout. The amount is not part of it: the same payout with another amount must collide, and be seen.
pub fn intent_key(run: &RunKey, asset: &str, actor: &str) -> [u8; 32] {
    hash_parts(&[b"svc-rewarder|intent|v1", run, asset.as_bytes(), actor.as_bytes()])
}

impl<'a> Intents<'a> {
    /// The payouts of a run; none if it is in quarantine.
    pub fn of(computed: &'a Computed) -> Intents<'a> {
        let (roster, paying) = computed.paying();
        let corrected = computed.outcome.as_ref().ok().and_then(|payouts| payouts.corrected.as_ref());
        let take_back = corrected.map_or(&[][..], |corrected| &corrected.take_back);
        let (run, pot, follows) = (computed.run_key, computed.basis.epoch.pot(), None);
        Intents { run, pot, follows, roster, paying, take_back }
    }

    /// The same of a correction of this run: the ledger books one correction of each run.
    pub fn following(self, follows: Option<RunKey>) -> Intents<'a> {
        Intents { follows, ..self }
    }

    /// The next payouts of one asset from a place on, at most so many, and the place behind them; none at the end.
    ///
    /// Places count actors and assets, paid or not, so that any place can be gone to without a search. A place is all
    /// that must be remembered across a crash; forgetting it costs duplicates, which the ledger knows.
    pub fn batch(&self, place: u64, entries_max: usize) -> Option<(Batch, u64)> {
        let actors = self.roster.len();
        let mut place = usize::try_from(place).ok()?;
        while actors > 0 && place / actors < self.paying.len() {
            let asset_index = place / actors;
            let asset = &self.paying[asset_index].asset;
            let mut entries = Vec::with_capacity(entries_max.min(actors));
            while place / actors == asset_index && entries.len() < entries_max {
                entries.extend(self.entry(asset_index, place % actors));
                place += 1;
            }
            if !entries.is_empty() {
                let (run, follows, pot) = (self.run, self.follows, self.pot.clone());
                let batch = Batch { run, asset: asset.clone(), pot, follows, entries };
                return Some((batch, place as u64));
            }
        }
        None
    }

    /// Sums by asset that a ledger must have when all payouts are booked.
    pub fn tallies(&self) -> Vec<Tally> {
        let tally = |(index, allocation): (usize, &AssetAllocation)| {
            let take_back = self.take_back.get(index).map_or(&[][..], Vec::as_slice);
            let count = |amounts: &[u128]| amounts.iter().filter(|amount| **amount > 0).count() as u64;
            Tally {
                asset: allocation.asset.clone(),
                count: count(&allocation.amounts) + count(take_back),
                paid: allocation.paid,
                taken_back: take_back.iter().sum(),
            }
        };
        self.paying.iter().enumerate().map(tally).collect()
    }

    /// The same for the manifest.
    pub fn facts(&self) -> Vec<IntentFacts> {
        let facts = |Tally { asset, count, paid, taken_back }: Tally| {
            let (paid, taken_back) = (Units(paid), Units(taken_back));
            IntentFacts { asset, count, paid, taken_back }
        };
        self.tallies().into_iter().map(facts).collect()
    }

    fn entry(&self, asset_index: usize, actor_index: usize) -> Option<Entry> {
        let pay = self.paying[asset_index].amounts[actor_index];
        let take_back = self.take_back.get(asset_index).map_or(0, |take_back| take_back[actor_index]);
        let (amount, direction) = if pay > 0 { (pay, Direction::Pay) } else { (take_back, Direction::TakeBack) };
        let account = self.roster.get(actor_index);
        let key = || intent_key(&self.run, &self.paying[asset_index].asset, account);
        (amount > 0).then(|| Entry { key: key(), account: account.to_owned(), amount, direction })
    }
}
