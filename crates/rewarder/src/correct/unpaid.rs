//! What a ledger refused of the run that a correction corrects: amounts that were due to some payees, and not paid.
//!
//! A run of which a ledger refuses some payees stays in quarantine, with everybody else paid. Its correction begins
//! from what was really paid. Who is left out is named by a hash in the manifest, and in a file beside it, so that it
//! can be held against the amounts that the corrected run has published.

use std::collections::BTreeMap;

use ron_calculus::{AssetAllocation, Breach, Roster, Units};
use serde::{Deserialize, Serialize};

use super::Correction;
use crate::canonical::{CanonicalError, to_canonical};
use crate::hashing::{b3, hash_parts};

/// Longest file of unpaid amounts in bytes.
pub const UNPAID_BYTES_MAX: u64 = 1 << 20;

/// Units that were due and not paid, by asset and actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unpaid(BTreeMap<String, BTreeMap<String, Units>>);

impl Unpaid {
    /// Whether everything was paid.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what an actor was not paid of an asset.
    pub fn add(&mut self, asset: &str, actor: &str, units: Units) {
        self.0.entry(asset.to_owned()).or_default().insert(actor.to_owned(), units);
    }

    /// Every amount, by asset and actor.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Units)> {
        self.0
            .iter()
            .flat_map(|(asset, actors)| actors.iter().map(|(actor, units)| (asset.as_str(), actor.as_str(), *units)))
    }

    /// Whether a payout of this asset to this actor is among them.
    pub fn names(&self, asset: &str, actor: &str) -> bool {
        self.0.get(asset).is_some_and(|actors| actors.contains_key(actor))
    }

    /// Units of each asset; none past 128 bits.
    pub fn sums(&self) -> Option<BTreeMap<String, Units>> {
        let sum = |actors: &BTreeMap<String, Units>| {
            actors.values().try_fold(0_u128, |sum, units| sum.checked_add(units.0)).map(Units)
        };
        self.0.iter().map(|(asset, actors)| Some((asset.clone(), sum(actors)?))).collect()
    }

    /// What the manifest names it by; none if everything was paid.
    pub fn hash(&self) -> Option<String> {
        let bytes = self.to_bytes().ok().filter(|_| !self.is_empty())?;
        Some(b3(&hash_parts(&[b"svc-rewarder|unpaid|v1", &bytes])))
    }

    /// Canonical JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CanonicalError> {
        to_canonical(self)
    }
}

impl Correction {
    /// The correction of a run of which some payouts were refused: each names an asset and an actor, who was due an
    /// amount of it.
    pub fn without(mut self, refused: &[(String, String)]) -> Result<Correction, Breach> {
        let wrong = |asset: &str, actor: &str| {
            Breach::Schema(format!("{} pays nothing of {asset} to {actor:?} that could be unpaid", self.epoch))
        };
        let mut unpaid = Unpaid::default();
        for (asset, actor) in refused {
            let place = self.roster.find(actor).ok_or_else(|| wrong(asset, actor))?;
            let amounts = self.paid.iter().find(|(known, _)| known == asset).map(|(_, amounts)| amounts);
            let due = amounts.map_or(0, |amounts| amounts[place]);
            if due == 0 {
                return Err(wrong(asset, actor));
            }
            unpaid.add(asset, actor, Units(due));
        }
        // None can be missing: each was found just now.
        for (asset, amounts) in &mut self.paid {
            for (actor, _) in unpaid.0.get(asset).into_iter().flatten() {
                let place = self.roster.place_for(actor);
                amounts[place] = 0;
            }
        }
        Ok(Correction { unpaid, ..self })
    }

    /// Who was refused is due nothing: the ledger would refuse it again, with a part of the correction booked.
    pub(super) fn check_unpaid(&self, roster: &Roster, entitled: &[AssetAllocation]) -> Result<(), Breach> {
        for (asset, actor, _) in self.unpaid.iter() {
            let allocation = entitled.iter().find(|allocation| allocation.asset == asset);
            let due = allocation.zip(roster.find(actor)).map_or(0, |(allocation, place)| allocation.amounts[place]);
            if due > 0 {
                let what = format!("{due} units of {asset} are due to {actor:?}, whom the ledger refused");
                return Err(Breach::Schema(format!("{what}: leave it out of the usage (`--usage`)")));
            }
        }
        Ok(())
    }

    /// What was paid of an asset, with what was due and not paid: the amounts that the corrected run has published.
    /// None if somebody was due an amount and was paid another, or is not there.
    pub(super) fn published(&self, asset: &str, amounts: &[u128]) -> Option<Vec<u128>> {
        let mut published = amounts.to_vec();
        for (actor, units) in self.unpaid.0.get(asset).into_iter().flatten() {
            let amount = &mut published[self.roster.find(actor)?];
            if *amount > 0 || units.0 == 0 {
                return None;
            }
            *amount = units.0;
        }
        Some(published)
    }
}
