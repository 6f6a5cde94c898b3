//! Correction epochs: what should have been paid, minus what was.
//!
//! Who got too little is paid the rest. Who got too much gives it back, as far as the order allows; what is not taken
//! back is carried in the manifest. The order among equals is that of the corrected run, so that nobody's amount
//! changes for another reason than the error.
//!
//! Corrections are a chain: a correction is itself a run that can be corrected. What was paid then is what was paid
//! before it, plus what it paid, minus what it took back, so that whatever it carried can be taken back by the next.
//!
//! What a run left over is spent once: by the one epoch that carries it in, or by the one correction that is told to
//! take it up. Every other correction leaves it alone, whether an epoch has carried it in by now or not, so that it can
//! be told from the runs themselves that no unit is paid twice.

mod base;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use ron_calculus::{AssetAllocation, Breach, Roster, Units};
use ron_ledger::RunKey;
use serde::{Deserialize, Serialize};

use crate::epoch::EpochId;
use crate::hashing::b3;
use crate::job::Computed;
use crate::manifest::{CorrectedFacts, CorrectsFacts};

/// Assets, and the amount of each actor in the order of a roster.
pub type PaidAmounts = Vec<(String, Vec<u128>)>;

/// The run to correct: an ordinary one, or the last correction of one.
#[derive(Clone, Debug)]
pub struct Correction {
    /// Its epoch.
    pub epoch: EpochId,
    /// Key of the run at the beginning of the chain, which orders equals.
    pub run_key: RunKey,
    /// Its commitment.
    pub commitment: [u8; 32],
    /// Bounds of the correction.
    pub bounds: Bounds,
    /// Units of each asset that runs of the chain left over and that belong to the epochs that carry them in.
    pub reserved: BTreeMap<String, Units>,
    /// Units that were carried into it, which are in the pools of every run of its chain.
    pub carry: BTreeMap<String, Units>,
    /// Commitment of the run that they come from.
    pub carry_from: Option<String>,
    /// Its manifest, byte for byte; none in a correction of a version that did not keep it.
    pub manifest: Option<Arc<[u8]>>,
    /// Who was in the chain up to it.
    pub roster: Roster,
    /// Assets that were paid, and what each actor has of them in the order of the roster.
    pub paid: PaidAmounts,
}

/// What a correction may take, and from whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Most units that are taken back from one actor; none: whatever it was paid.
    pub clawback_max: Option<Units>,
    /// What the corrected run left over is paid out too: no epoch has carried it in, and none may from now on.
    pub takes_left_over: bool,
}

/// What a correction does.
#[derive(Clone, Debug)]
pub struct Corrected {
    /// Everyone who was paid or should have been.
    pub roster: Roster,
    /// Units paid now; the pool of each is exactly what is paid.
    pub pay: Vec<AssetAllocation>,
    /// Units taken back now, by asset and actor.
    pub take_back: Vec<Vec<u128>>,
    /// How it comes out, by asset.
    pub facts: Vec<CorrectedFacts>,
}

impl Correction {
    /// The correction of a run with this commitment; a breach if what was paid does not add up.
    pub fn of(paid: &Computed, commitment: [u8; 32], bounds: Bounds) -> Result<Correction, Breach> {
        let (roster, amounts) = paid_after(paid)?;
        let (epoch, run_key) = (paid.basis.epoch.clone(), *paid.order_key());
        let reserved = reserved_after(paid, bounds.takes_left_over)?;
        let (carry, carry_from) = (paid.basis.carry.clone(), paid.basis.carry_from.clone());
        let (manifest, paid) = (None, amounts);
        Ok(Correction { epoch, run_key, commitment, bounds, reserved, carry, carry_from, manifest, roster, paid })
    }

    /// Keeps the manifest of the corrected run, from which others see what the correction begins from.
    #[must_use]
    pub fn with_manifest(self, manifest: &[u8]) -> Correction {
        Correction { manifest: Some(manifest.into()), ..self }
    }

    /// Whether units are carried in exactly as they were into the corrected run: a correction has no others.
    pub fn carries(&self, carry: &BTreeMap<String, Units>, carry_from: Option<&str>) -> bool {
        self.carry == *carry && self.carry_from.as_deref() == carry_from
    }

    /// Whether both begin from the same run and from the same amounts.
    pub fn begins_as(&self, other: &Correction) -> bool {
        let same_run =
            (&self.epoch, &self.run_key, &self.commitment) == (&other.epoch, &other.run_key, &other.commitment);
        let same_units = (&self.bounds, &self.reserved) == (&other.bounds, &other.reserved);
        let same_carry = other.carries(&self.carry, self.carry_from.as_deref());
        // An asset of which nobody has any is not in the file of what was paid.
        let of_somebody = |(_, amounts): &&(String, Vec<u128>)| !amounts.is_empty();
        let same_paid = self.paid.iter().filter(of_somebody).eq(other.paid.iter().filter(of_somebody));
        same_run && same_units && same_carry && self.roster == other.roster && same_paid
    }

    /// Facts for the manifest, without how it comes out.
    pub fn facts(&self) -> CorrectsFacts {
        CorrectsFacts {
            epoch: self.epoch.clone(),
            run_key: b3(&self.run_key),
            commitment: b3(&self.commitment),
            clawback_max: self.bounds.clawback_max,
            takes_left_over: self.bounds.takes_left_over,
            reserved: self.reserved.clone(),
            assets: Vec::new(),
        }
    }

    /// Compares what everyone is entitled to with what was paid.
    pub fn apply(&self, entitled_roster: &Roster, entitled: &[AssetAllocation]) -> Result<Corrected, Breach> {
        let known = |asset: &str| entitled.iter().any(|allocation| allocation.asset == asset);
        if let Some((asset, _)) = self.paid.iter().find(|(asset, _)| !known(asset)) {
            return Err(Breach::Schema(format!("{asset} was paid, but the policy of the correction does not know it")));
        }
        let (roster, places) = union(&self.roster, entitled_roster);
        let mut corrected = Corrected { roster, pay: Vec::new(), take_back: Vec::new(), facts: Vec::new() };
        for allocation in entitled {
            let paid = self.paid.iter().find(|(asset, _)| *asset == allocation.asset).map(|(_, amounts)| amounts);
            let outcome = self.correct_asset(&places, paid.map_or(&[], Vec::as_slice), allocation)?;
            corrected.pay.push(outcome.pay);
            corrected.take_back.push(outcome.take_back);
            corrected.facts.push(outcome.facts);
        }
        Ok(corrected)
    }

    fn correct_asset(&self, places: &[Places], paid: &[u128], entitled: &AssetAllocation) -> Result<OneAsset, Breach> {
        let asset = &entitled.asset;
        let available = self.available(entitled)?;
        let mut sums = Sums::default();
        let mut amounts = Vec::with_capacity(places.len());
        let mut take_back = Vec::with_capacity(places.len());
        for place in places {
            let before = place.0.and_then(|index| paid.get(index)).copied().unwrap_or(0);
            let now = place.1.map_or(0, |index| entitled.amounts[index]);
            let too_much = before.saturating_sub(now);
            let taken = self.bounds.clawback_max.map_or(too_much, |most| too_much.min(most.0));
            let step = [now, before, now.saturating_sub(before), taken, too_much - taken];
            sums.add(step).ok_or_else(|| Breach::Overflow(format!("{asset}: a sum of the correction")))?;
            amounts.push(now.saturating_sub(before));
            take_back.push(taken);
        }
        let mut facts = sums.facts(asset);
        let balanced = facts.paid_before.0.checked_add(facts.pay.0).and_then(|sum| sum.checked_sub(facts.take_back.0));
        if facts.entitled.0 != entitled.paid || balanced != facts.entitled.0.checked_add(facts.carried.0) {
            return Err(Breach::Conservation(format!("{asset}: the correction does not add up: {facts:?}")));
        }
        // What is overpaid and not taken back is not there to be left over, and may be more than there was.
        facts.left_over = Units((available - facts.entitled.0).saturating_sub(facts.carried.0));
        let (pool, paid) = (facts.pay.0, facts.pay.0);
        let pay = AssetAllocation { asset: asset.clone(), pool, paid, amounts };
        Ok(OneAsset { pay, take_back, facts })
    }

    /// Units of the pool that are nobody else's; a breach if more of them are due.
    fn available(&self, entitled: &AssetAllocation) -> Result<u128, Breach> {
        let AssetAllocation { asset, pool, paid, .. } = entitled;
        let reserved = self.reserved.get(asset).map_or(0, |units| units.0);
        let short = || {
            Breach::Conservation(format!(
                "{asset}: {paid} units are due from a pool of {pool}, of which {reserved} were left over and belong to \
                 the epoch that carries them in; give a larger pool, or have the correction take up what {} left over \
                 (`--take-left-over`) if no epoch has carried it in",
                self.epoch
            ))
        };
        pool.checked_sub(reserved).filter(|available| available >= paid).ok_or_else(short)
    }
}

/// Units of each asset that a run and those before it in its chain leave to epochs that carry them in.
fn reserved_after(run: &Computed, is_last_taken: bool) -> Result<BTreeMap<String, Units>, Breach> {
    let mut reserved = run.basis.correction.as_ref().map(|before| before.reserved.clone()).unwrap_or_default();
    if !is_last_taken {
        for (asset, left) in run.left_over() {
            let units = reserved.entry(asset.clone()).or_default();
            let sum = units.0.checked_add(left.0);
            units.0 = sum.ok_or_else(|| Breach::Overflow(format!("{asset}: the sum of what was left over")))?;
        }
    }
    Ok(reserved)
}

/// What everyone has once this run and all before it in its chain are settled.
fn paid_after(run: &Computed) -> Result<(Roster, PaidAmounts), Breach> {
    let (roster, paying) = run.paying();
    let corrected = run.outcome.as_ref().ok().and_then(|payouts| payouts.corrected.as_ref());
    let (Some(before), Some(corrected)) = (&run.basis.correction, corrected) else {
        let amounts = paying.iter().map(|allocation| (allocation.asset.clone(), allocation.amounts.clone()));
        return Ok((roster.clone(), amounts.collect()));
    };
    // The roster of a correction has everybody of the runs before it.
    let (_, places) = union(&before.roster, roster);
    let mut paid = PaidAmounts::new();
    for (allocation, take_back) in paying.iter().zip(&corrected.take_back) {
        let earlier = before.paid.iter().find(|(asset, _)| *asset == allocation.asset).map(|(_, amounts)| amounts);
        let amount = |(place, (pay, back)): (&Places, (&u128, &u128))| {
            let had = place.0.and_then(|index| earlier?.get(index)).copied().unwrap_or(0);
            let has = had.checked_add(*pay).and_then(|sum| sum.checked_sub(*back));
            has.ok_or_else(|| Breach::Conservation(format!("{}: more was taken back than paid", allocation.asset)))
        };
        let amounts = places.iter().zip(allocation.amounts.iter().zip(take_back)).map(amount);
        paid.push((allocation.asset.clone(), amounts.collect::<Result<_, _>>()?));
    }
    Ok((roster.clone(), paid))
}

struct OneAsset {
    pay: AssetAllocation,
    take_back: Vec<u128>,
    facts: CorrectedFacts,
}

/// Entitled, paid before, pay, take back, carried.
#[derive(Default)]
struct Sums([u128; 5]);

impl Sums {
    fn add(&mut self, step: [u128; 5]) -> Option<()> {
        for (sum, part) in self.0.iter_mut().zip(step) {
            *sum = sum.checked_add(part)?;
        }
        Some(())
    }

    fn facts(&self, asset: &str) -> CorrectedFacts {
        let [entitled, paid_before, pay, take_back, carried] = self.0.map(Units);
        let (asset, left_over) = (asset.to_owned(), Units(0));
        CorrectedFacts { asset, entitled, paid_before, pay, take_back, carried, left_over }
    }
}

/// Places of one actor in two rosters.
pub type Places = (Option<usize>, Option<usize>);

/// All actors of two rosters in byte order, with their places in both.
pub fn union(first: &Roster, second: &Roster) -> (Roster, Vec<Places>) {
    let mut roster = Roster::default();
    let mut places = Vec::with_capacity(first.len().max(second.len()));
    let (mut a, mut b) = (0, 0);
    while a < first.len() || b < second.len() {
        let left = (a < first.len()).then(|| first.get(a));
        let right = (b < second.len()).then(|| second.get(b));
        let actor = match (left, right) {
            (Some(left), Some(right)) => left.min(right),
            (left, right) => left.or(right).unwrap_or_default(),
        };
        let place = ((left == Some(actor)).then_some(a), (right == Some(actor)).then_some(b));
        a += usize::from(place.0.is_some());
        b += usize::from(place.1.is_some());
        let is_next = roster.push(actor);
        debug_assert!(is_next, "both rosters are in order");
        places.push(place);
    }
    (roster, places)
}

/// A line of `paid.ndjson`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaidLine<'a> {
    #[serde(borrow)]
    actor: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    asset: std::borrow::Cow<'a, str>,
    amount: Units,
}

/// Writes what was paid before, so that the correction can be verified without the run it corrects.
pub fn write_paid(correction: &Correction, to: &mut (dyn Write + Send)) -> io::Result<()> {
    for (index, actor) in correction.roster.iter().enumerate() {
        for (asset, amounts) in &correction.paid {
            let amount = Units(amounts[index]);
            serde_json::to_writer(&mut *to, &PaidLine { actor: actor.into(), asset: asset.into(), amount })?;
            to.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// Reads what [`write_paid`] wrote.
pub fn read_paid(text: &[u8]) -> io::Result<(Roster, PaidAmounts)> {
    let wrong =
        |line: usize, why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {why}", line + 1));
    let mut roster = Roster::default();
    let mut paid = PaidAmounts::new();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (number, line) in lines.enumerate() {
        let line: PaidLine<'_> = serde_json::from_slice(line).map_err(|error| wrong(number, &error.to_string()))?;
        let is_same = roster.len().checked_sub(1).is_some_and(|last| roster.get(last) == line.actor);
        if !is_same && !roster.push(&line.actor) {
            return Err(wrong(number, "the actors are not in order"));
        }
        // An asset begins with the first actor and has one line for each: amounts cannot slip to another actor.
        let amounts = match paid.iter_mut().find(|(asset, _)| *asset == line.asset) {
            Some((_, amounts)) => amounts,
            None => &mut paid.push_mut((line.asset.into_owned(), Vec::new())).1,
        };
        amounts.push(line.amount.0);
        if amounts.len() != roster.len() {
            return Err(wrong(number, "an actor has not one line for each asset"));
        }
    }
    if paid.iter().any(|(_, amounts)| amounts.len() != roster.len()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not every actor has a line for every asset"));
    }
    Ok((roster, paid))
}
