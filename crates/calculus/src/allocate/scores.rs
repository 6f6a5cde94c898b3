//! Scores: what everyone did, weighed and added up, by pool.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::allocate::Breach;
use crate::allocate::plan::{AssetPlan, SlotUse};
use crate::totals::Totals;

/// Whose scores they are.
#[derive(Clone, Debug)]
pub enum Actors {
    /// Those of the whole roster, in its order.
    All,
    /// Those at these places of the roster, in its order.
    Some(Vec<u32>),
}

impl Actors {
    /// Place in the roster of the score at this index.
    pub fn place(&self, index: usize) -> usize {
        match self {
            Actors::All => index,
            Actors::Some(places) => places[index] as usize,
        }
    }

    /// Index of the score of the actor at this place of the roster.
    pub fn index(&self, place: usize) -> Option<usize> {
        match self {
            Actors::All => Some(place),
            Actors::Some(places) => places.binary_search(&u32::try_from(place).ok()?).ok(),
        }
    }
}

/// The scores in one pool.
#[derive(Clone, Debug)]
pub struct PoolScores {
    /// Whose they are.
    pub actors: Actors,
    /// The scores.
    pub scores: Vec<u128>,
}

/// The scores in every pool of an asset.
pub fn of_pools(totals: &Totals, plan: &AssetPlan<'_>) -> Result<Vec<PoolScores>, Breach> {
    if plan.policy.groups.is_empty() { Ok(vec![of_all(totals, plan)?]) } else { of_groups(totals, plan) }
}

/// Sum of all; none if it leaves 128 bits. No number is negative, so the order of adding does not matter even then.
pub fn sum(numbers: &[u128]) -> Option<u128> {
    numbers.par_iter().copied().map(Some).reduce(|| Some(0), |a, b| a?.checked_add(b?))
}

/// One pool for everyone.
fn of_all(totals: &Totals, plan: &AssetPlan<'_>) -> Result<PoolScores, Breach> {
    // The first by place, so that the reason does not depend on which thread was faster.
    let overflown = AtomicUsize::new(usize::MAX);
    let score = |place: usize| {
        let mut entries = totals.entries(place);
        let sum = entries.try_fold(0_u128, |sum, (slot, total)| match plan.slots[usize::from(slot)] {
            SlotUse::Counts { weight, .. } => sum.checked_add(weight.checked_mul(total)?),
            SlotUse::Elsewhere | SlotUse::Weightless => Some(sum),
        });
        sum.unwrap_or_else(|| {
            overflown.fetch_min(place, Ordering::Relaxed);
            0
        })
    };
    let scores = (0..totals.roster().len()).into_par_iter().map(score).collect();
    match overflown.into_inner() {
        usize::MAX => Ok(PoolScores { actors: Actors::All, scores }),
        place => Err(overflow(totals, plan, place)),
    }
}

/// A pool for each group. Most actors are in few of many groups, so only scores above zero are kept.
fn of_groups(totals: &Totals, plan: &AssetPlan<'_>) -> Result<Vec<PoolScores>, Breach> {
    let mut pools: Vec<(Vec<u32>, Vec<u128>)> = vec![Default::default(); plan.pools.len()];
    for place in 0..totals.roster().len() {
        for (slot, total) in totals.entries(place) {
            let SlotUse::Counts { weight, pool } = plan.slots[usize::from(slot)] else { continue };
            let (places, scores) = &mut pools[pool];
            let points = weight.checked_mul(total).ok_or_else(|| overflow(totals, plan, place))?;
            match (places.last(), scores.last_mut()) {
                (Some(last), Some(score)) if *last as usize == place => {
                    *score = score.checked_add(points).ok_or_else(|| overflow(totals, plan, place))?;
                }
                _ if points > 0 => {
                    // The plan refused rosters that do not fit.
                    places.push(place as u32);
                    scores.push(points);
                }
                _ => {}
            }
        }
    }
    Ok(pools.into_iter().map(|(places, scores)| PoolScores { actors: Actors::Some(places), scores }).collect())
}

fn overflow(totals: &Totals, plan: &AssetPlan<'_>, place: usize) -> Breach {
    plan.overflow(&format!("the score of `{}` adds up", totals.roster().get(place)))
}
