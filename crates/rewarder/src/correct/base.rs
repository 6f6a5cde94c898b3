//! What the manifest of a corrected run shows of a correction, which names its commitment: nobody can say other things
//! of what was paid, left over and carried in.

use std::collections::BTreeMap;

use ron_calculus::Units;
use ron_calculus::tree::sum::SumTree;

use super::Correction;
use crate::hashing::b3;
use crate::manifest::{Manifest, commitment};

impl Correction {
    /// Why the correction does not begin from the run of this manifest; none if it does.
    pub fn objection(&self, manifest: &[u8], threads: usize) -> Option<String> {
        let what = self.difference(manifest, threads)?;
        Some(format!("it does not begin from what {} and those before it have paid and left over: {what}", self.epoch))
    }

    fn difference(&self, manifest: &[u8], threads: usize) -> Option<String> {
        if commitment(manifest) != self.commitment {
            return Some("its manifest is of another run".to_owned());
        }
        let corrected: Manifest = match serde_json::from_slice(manifest) {
            Ok(corrected) => corrected,
            Err(error) => return Some(format!("its manifest cannot be read: {error}")),
        };
        let order_key = corrected.corrects.as_ref().map_or(&corrected.run_key, |before| &before.run_key);
        if corrected.epoch != self.epoch || *order_key != b3(&self.run_key) {
            return Some("its name or the key of its run is another".to_owned());
        }
        if !self.carries(&corrected.carry, corrected.carry_from.as_deref()) {
            return Some(format!("{} carried in, not {}", listed(&corrected.carry), listed(&self.carry)));
        }
        let reserved = reserved_by(&corrected, self.bounds.takes_left_over);
        if reserved.as_ref() != Some(&self.reserved) {
            let reserved = reserved.map_or_else(|| "more than 2^128".to_owned(), |units| listed(&units));
            return Some(format!("{reserved} left over, not {}", listed(&self.reserved)));
        }
        self.paid_difference(&corrected, threads)
    }

    /// The sums of what was paid must be those of the manifest, and the amounts of an ordinary run the very ones that
    /// its tree is over. A correction has only the tree of what it paid itself.
    fn paid_difference(&self, corrected: &Manifest, threads: usize) -> Option<String> {
        let expected = paid_by(corrected);
        let sums = self.paid.iter().map(|(asset, amounts)| {
            let sum = amounts.iter().try_fold(0_u128, |sum, amount| sum.checked_add(*amount));
            sum.map(|sum| (asset.clone(), Units(sum)))
        });
        // An asset of which nobody has anything has no line for anybody where there is nobody.
        let mut sums: Option<BTreeMap<String, Units>> = sums.collect();
        sums.iter_mut().for_each(|sums| sums.retain(|_, units| units.0 > 0));
        if sums.as_ref() != Some(&expected) {
            let sums = sums.map_or_else(|| "more than 2^128".to_owned(), |units| listed(&units));
            return Some(format!("{} paid, not {sums}", listed(&expected)));
        }
        if corrected.corrects.is_some() {
            return None;
        }
        let is_published = |(asset, amounts): &(String, Vec<u128>)| {
            let tree = SumTree::build(asset, &self.roster, amounts, threads);
            let root = tree.map(|tree| b3(&tree.root().hash));
            root.is_ok_and(|root| corrected.asset(asset).is_some_and(|facts| facts.roots.sum == root))
        };
        let other = self.paid.iter().find(|paid| !is_published(paid))?;
        Some(format!("the amounts of {} are not those that its tree is over", other.0))
    }
}

/// Units that everybody together has of each asset once the run and all before it are settled, where it is not nothing.
fn paid_by(run: &Manifest) -> BTreeMap<String, Units> {
    let mut paid: BTreeMap<String, Units> = match &run.corrects {
        None => run.assets.iter().map(|facts| (facts.asset.clone(), facts.paid)).collect(),
        Some(corrects) => {
            let has = |units: &crate::manifest::CorrectedFacts| units.entitled.0.saturating_add(units.carried.0);
            corrects.assets.iter().map(|facts| (facts.asset.clone(), Units(has(facts)))).collect()
        }
    };
    paid.retain(|_, units| units.0 > 0);
    paid
}

/// Units of each asset that a run and those before it leave to epochs that carry them in; none past 128 bits.
fn reserved_by(run: &Manifest, is_last_taken: bool) -> Option<BTreeMap<String, Units>> {
    let mut reserved = run.corrects.as_ref().map(|before| before.reserved.clone()).unwrap_or_default();
    if !is_last_taken {
        for (asset, left) in run.left_over() {
            let units = reserved.entry(asset).or_default();
            units.0 = units.0.checked_add(left.0)?;
        }
    }
    Some(reserved)
}

/// Units by asset in words.
fn listed(units: &BTreeMap<String, Units>) -> String {
    let each: Vec<String> = units.iter().map(|(asset, units)| format!("{units} {asset}")).collect();
    if each.is_empty() { "nothing was".to_owned() } else { format!("{} were", each.join(", ")) }
}
