//! What each total counts for: the weight of each slot in each asset, and the pool it has a part in.

use crate::allocate::wide::multiply_divide;
use crate::allocate::{Breach, Question};
use crate::policy::{AssetPolicy, Policy, integer_weights};
use crate::totals::Slot;

/// One pool that is divided by itself.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// Group that it is for; none: for everyone.
    pub group: Option<String>,
    /// Units in it, with what was carried in.
    pub units: u128,
    /// Units of these that an earlier epoch left over.
    pub carried: u128,
}

/// How one asset is divided.
#[derive(Clone, Debug)]
pub struct AssetPlan<'a> {
    /// Its part of the policy.
    pub policy: &'a AssetPolicy,
    /// Its pools, by group.
    pub pools: Vec<PoolPlan>,
    /// What each slot of the totals counts here.
    pub slots: Vec<SlotUse>,
}

/// What a slot counts for one asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// Nothing: it is for another asset alone.
    Elsewhere,
    /// Nothing: the metric has no weight.
    Weightless,
    /// So many points for each unit, in this pool.
    Counts { weight: u128, pool: usize },
}

impl AssetPlan<'_> {
    /// The breach of a number that left 128 bits.
    pub fn overflow(&self, what: &str) -> Breach {
        Breach::Overflow(format!("asset `{}`: {what} to more than 128 bits", self.policy.asset))
    }
}

/// Reads the policy for these totals.
pub fn plans<'a>(question: &Question<'a>) -> Result<Vec<AssetPlan<'a>>, Breach> {
    let (policy, slots) = (question.policy, question.totals.slots());
    if question.totals.roster().len() > u32::MAX as usize {
        return Err(Breach::Overflow("more than 2^32 actors".to_owned()));
    }
    let is_asset = |name: &str| policy.assets.iter().any(|asset| asset.asset == name);
    if let Some(unknown) = question.carry.keys().find(|name| !is_asset(name)) {
        return Err(Breach::Schema(format!("carried units of asset `{unknown}`, which the policy does not know")));
    }
    slots.iter().try_for_each(|slot| known(policy, slot))?;
    let plan = |asset: &'a AssetPolicy| {
        let carried = question.carry.get(&asset.asset).copied().unwrap_or(0);
        Ok(AssetPlan { policy: asset, pools: pools(asset, carried)?, slots: uses(asset, slots)? })
    };
    policy.assets.iter().map(plan).collect()
}

/// Refuses names that nothing in the policy has: a typing error there would silently pay others.
fn known(policy: &Policy, slot: &Slot) -> Result<(), Breach> {
    if let Some(name) = &slot.asset
        && !policy.assets.iter().any(|asset| asset.asset == *name)
    {
        return Err(Breach::Schema(format!("usage for asset `{name}`, which the policy does not know")));
    }
    if let Some(group) = &slot.group
        && !policy.assets.iter().any(|asset| asset.groups.contains_key(group))
    {
        return Err(Breach::Schema(format!("usage in group `{group}`, which the policy does not know")));
    }
    Ok(())
}

fn uses(asset: &AssetPolicy, slots: &[Slot]) -> Result<Vec<SlotUse>, Breach> {
    let weights = integer_weights(&asset.weights).ok_or_else(|| {
        Breach::Overflow(format!("asset `{}`: weights over a common denominator leave 128 bits", asset.asset))
    })?;
    let groups: Vec<&String> = asset.groups.keys().collect();
    let use_of = |slot: &Slot| {
        if slot.asset.as_ref().is_some_and(|name| *name != asset.asset) {
            return Ok(SlotUse::Elsewhere);
        }
        let weight = weights.get(slot.metric.as_str()).copied().unwrap_or(0);
        if weight == 0 {
            return Ok(SlotUse::Weightless);
        }
        // Without groups there is one pool, and everything counts for it.
        if groups.is_empty() {
            return Ok(SlotUse::Counts { weight, pool: 0 });
        }
        let (name, metric) = (&asset.asset, &slot.metric);
        let Some(group) = &slot.group else {
            let reason = format!("usage `{metric}` without a group, and asset `{name}` has a pool for each group");
            return Err(Breach::Schema(reason));
        };
        let pool = groups.binary_search(&group).map_err(|_| {
            Breach::Schema(format!("usage `{metric}` in group `{group}`, which asset `{name}` has no pool for"))
        })?;
        Ok(SlotUse::Counts { weight, pool })
    };
    slots.iter().map(use_of).collect()
}

fn pools(asset: &AssetPolicy, carried: u128) -> Result<Vec<PoolPlan>, Breach> {
    let total = asset.total_pool().ok_or_else(|| Breach::Schema(format!("asset `{}` has no pool", asset.asset)))?;
    if total.checked_add(carried).is_none() {
        return Err(Breach::Overflow(format!("asset `{}`: pool and carried units leave 128 bits", asset.asset)));
    }
    if asset.groups.is_empty() {
        return Ok(vec![PoolPlan { group: None, units: total + carried, carried }]);
    }
    let own: Vec<u128> = asset.groups.values().map(|units| units.0).collect();
    let planned = asset.groups.iter().zip(spread(carried, &own)).map(|((group, units), carried)| PoolPlan {
        group: Some(group.clone()),
        units: units.0 + carried,
        carried,
    });
    Ok(planned.collect())
}

/// What was carried in, spread over the groups in proportion to their pools; fractions go to the largest remainders and
/// among equals to the first by name. Groups are few and named by the policy, so no hash is needed to be fair to them.
fn spread(carried: u128, pools: &[u128]) -> Vec<u128> {
    let total: u128 = pools.iter().sum();
    let parts: Vec<(u128, u128)> = match total {
        0 => pools.iter().map(|_| multiply_divide(carried, 1, pools.len() as u128)).collect(),
        _ => pools.iter().map(|units| multiply_divide(carried, *units, total)).collect(),
    };
    let left = carried - parts.iter().map(|part| part.0).sum::<u128>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(parts[*index].1), *index));
    let mut spread: Vec<u128> = parts.into_iter().map(|part| part.0).collect();
    // Fewer units are left than there are groups.
    order.iter().zip(0..left).for_each(|(index, _)| spread[*index] += 1);
    spread
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn what_was_carried_is_spread_to_the_unit() {
        for (carried, pools, expected) in [
            (0, &[1, 2][..], &[0, 0][..]),
            (3, &[1, 1], &[2, 1]),
            (10, &[1, 2], &[3, 7]),
            (5, &[0, 0, 0], &[2, 2, 1]),
            (
                u128::MAX - 3,
                &[1, 2],
                &[113427455640312821154458202477256070484, 226854911280625642308916404954512140968],
            ),
        ] {
            assert_eq!(spread(carried, pools), expected);
        }
    }
}
