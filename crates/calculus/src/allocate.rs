//! Who gets how much.
//!
//! The steps: `plan` tells what each total counts for, `scores` weighs and adds up, `division` decides whom the minimum
//! leaves out and whom the cap stops, `remainders` and `webster` turn shares into whole units, `ties` orders equals.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::parallel;
use crate::policy::{Policy, Rounding};
use crate::totals::Totals;

pub(crate) mod division;
pub(crate) mod plan;
pub(crate) mod remainders;
pub(crate) mod scores;
mod select;
pub(crate) mod ties;
pub(crate) mod webster;
pub(crate) mod wide;

use division::Division;
use plan::{AssetPlan, PoolPlan};
use scores::PoolScores;
use ties::TieOrder;
pub use ties::tie_hash;

/// Everything that an allocation follows from.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The policy, with every pool filled in.
    pub policy: &'a Policy,
    /// What everyone did.
    pub totals: &'a Totals,
    /// Key of the run, which orders equals.
    pub run_key: &'a [u8; 32],
    /// Units of each asset left over by an earlier epoch, added to its pool.
    pub carry: &'a BTreeMap<String, u128>,
    /// Threads to use; the answer does not depend on it.
    pub threads: usize,
}

/// The amounts of one asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetAllocation {
    /// Name of the asset.
    pub asset: String,
    /// Units that were to be paid out, with what was carried in.
    pub pool: u128,
    /// Units paid out: the sum of the amounts.
    pub paid: u128,
    /// Amount of each actor, in the order of the roster.
    pub amounts: Vec<u128>,
}

/// Why there is no allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A number left its range.
    #[error("overflow: {0}")]
    Overflow(String),
    /// More would be paid than there is.
    #[error("conservation: {0}")]
    Conservation(String),
    /// The usage does not fit the policy, or two ids are the same payee.
    #[error("schema: {0}")]
    Schema(String),
}

/// Divides every pool of the policy.
pub fn allocate(question: &Question<'_>) -> Result<Vec<AssetAllocation>, Breach> {
    parallel::with_threads(question.threads, || {
        let plans = plan::plans(question)?;
        plans.iter().map(|plan| allocate_asset(question, plan)).collect()
    })
}

fn allocate_asset(question: &Question<'_>, plan: &AssetPlan<'_>) -> Result<AssetAllocation, Breach> {
    let ties = TieOrder::new(question, plan.policy.ties);
    let mut amounts = Vec::new();
    let mut pool = 0_u128;
    for (planned, scores) in plan.pools.iter().zip(scores::of_pools(question.totals, plan)?) {
        pool = pool.checked_add(planned.units).ok_or_else(|| plan.overflow("its pools add up"))?;
        let places = scores.actors.clone();
        let divided = divide(&ties, plan, planned, scores)?;
        match places {
            scores::Actors::All => amounts = divided,
            scores::Actors::Some(places) => {
                amounts.resize(question.totals.roster().len(), 0_u128);
                for (place, amount) in places.iter().zip(divided) {
                    // Each is part of a pool, and the pools together fit.
                    amounts[*place as usize] += amount;
                }
            }
        }
    }
    amounts.resize(question.totals.roster().len(), 0);
    let breach = |paid| Breach::Conservation(format!("asset `{}`: {paid} paid of {pool}", plan.policy.asset));
    let paid = scores::sum(&amounts).ok_or_else(|| breach("more than 128 bits".to_owned()))?;
    if paid > pool {
        return Err(breach(paid.to_string()));
    }
    Ok(AssetAllocation { asset: plan.policy.asset.clone(), pool, paid, amounts })
}

/// Amounts of those who have a score in one pool, in the order of the scores.
fn divide(
    ties: &TieOrder<'_>,
    plan: &AssetPlan<'_>,
    planned: &PoolPlan,
    pool: PoolScores,
) -> Result<Vec<u128>, Breach> {
    let division = Division::of(plan, planned, &pool.scores)?;
    let amounts = match plan.policy.rounding {
        Rounding::FloorCarry => pool.scores.par_iter().map(|score| division.floor(*score).0).collect(),
        Rounding::LargestRemainder => remainders::divide(&division, ties, pool)?,
        Rounding::Webster => webster::divide(&division, ties, pool)?,
    };
    let must_pay = match plan.policy.rounding {
        Rounding::FloorCarry => None,
        _ => Some(division.payable()),
    };
    let paid = scores::sum(&amounts);
    let is_good = paid.is_some_and(|paid| paid <= division.payable() && must_pay.is_none_or(|must| paid == must));
    if is_good {
        return Ok(amounts);
    }
    let (asset, payable) = (&plan.policy.asset, division.payable());
    Err(Breach::Conservation(format!("asset `{asset}`: the amounts add up to {paid:?}, not to {payable}")))
}
