//! The release gate: whether payouts leave by themselves, or wait for a person.

use std::collections::BTreeMap;

use ron_calculus::policy::ReleaseLimits;
use ron_calculus::{AssetAllocation, Roster};

use super::engine::Engine;
use super::reads::open_run;
use crate::job::Computed;
use crate::store::Store;

/// Why a person must look at the run before it is paid; none if the policy lets it go. Blocks.
pub(crate) fn objection(engine: &Engine, store: &Store, computed: &Computed) -> Option<String> {
    let policy = &computed.basis.policy;
    let limits = policy.release.as_ref()?;
    if limits.by_hand {
        return Some("the policy asks for a person".to_owned());
    }
    if let Some(objection) = over_total(limits, computed) {
        return Some(objection);
    }
    if limits.change_percent_max.is_none() && limits.new_payees_max.is_none() {
        return None;
    }
    // Compared with the last epoch under the same policy: a node may pay for several programmes, which share no payees.
    let before = match store.last_settled(&policy.id) {
        None => return compare(limits, computed, None),
        Some(row) => open_run(engine, &row).and_then(|run| run.load()),
    };
    match before {
        Ok(before) => compare(limits, computed, Some(&before.computed)),
        Err(error) => Some(format!("the last settled epoch cannot be read, so that nothing can be compared: {error}")),
    }
}

fn over_total(limits: &ReleaseLimits, computed: &Computed) -> Option<String> {
    computed.paying().1.iter().find_map(|allocation| {
        let (asset, paid) = (&allocation.asset, allocation.paid);
        let max = limits.total_max.get(asset).filter(|max| paid > max.0)?;
        Some(format!("{asset}: {paid} units are more than the {max} that leave without a person"))
    })
}

/// Compares with what was paid before: each asset by itself, each actor in it, those that are in one of the runs alone
/// included.
fn compare(limits: &ReleaseLimits, now: &Computed, before: Option<&Computed>) -> Option<String> {
    let nobody = Roster::default();
    let (roster, paying) = now.paying();
    let (roster_before, paid) = before.map_or((&nobody, &[][..]), Computed::paying);
    let pairs = pairs(paid, paying);
    if let (Some(percent), Some(_)) = (limits.change_percent_max, before)
        && let Some(objection) = pairs.iter().find_map(|pair| appears(pair, percent))
    {
        return Some(objection);
    }
    let at = |allocation: Option<&AssetAllocation>, place: Option<usize>| {
        allocation.zip(place).map_or(0, |(allocation, place)| allocation.amounts[place])
    };
    let mut new_payees = 0_u64;
    for (actor, place_before, place) in both(roster_before, roster) {
        let mut is_new = false;
        for (asset, (earlier, amount)) in &pairs {
            let (earlier, amount) = (at(*earlier, place_before), at(*amount, place));
            if let Some(percent) = limits.change_percent_max.filter(|max| changes_more(earlier, amount, *max)) {
                return Some(changed(asset, actor, earlier, amount, percent));
            }
            // Whoever had a unit of another asset is new to this one.
            is_new |= earlier == 0 && amount > 0;
        }
        new_payees += u64::from(is_new);
    }
    let max = limits.new_payees_max.filter(|max| new_payees > *max)?;
    Some(format!("{new_payees} payees were not paid before in one of their assets; {max} leave without a person"))
}

/// All actors of two rosters in byte order with their places in both, one after the other: as large as the runs
/// themselves, a list of them would double the memory.
fn both<'a>(first: &'a Roster, second: &'a Roster) -> impl Iterator<Item = (&'a str, Option<usize>, Option<usize>)> {
    let (mut a, mut b) = (0, 0);
    std::iter::from_fn(move || {
        let left = (a < first.len()).then(|| first.get(a));
        let right = (b < second.len()).then(|| second.get(b));
        let actor = match (left, right) {
            (Some(left), Some(right)) => left.min(right),
            (left, right) => left.or(right)?,
        };
        let found = ((left == Some(actor)).then_some(a), (right == Some(actor)).then_some(b));
        a += usize::from(found.0.is_some());
        b += usize::from(found.1.is_some());
        Some((actor, found.0, found.1))
    })
}

/// An asset with what was paid of it before and what is paid now.
type Pair<'a> = (&'a str, (Option<&'a AssetAllocation>, Option<&'a AssetAllocation>));

/// The assets of both runs: one that a policy drops is one that changes.
fn pairs<'a>(before: &'a [AssetAllocation], now: &'a [AssetAllocation]) -> Vec<Pair<'a>> {
    let mut pairs: BTreeMap<&str, (Option<&AssetAllocation>, Option<&AssetAllocation>)> = BTreeMap::new();
    before.iter().for_each(|allocation| pairs.entry(&allocation.asset).or_default().0 = Some(allocation));
    now.iter().for_each(|allocation| pairs.entry(&allocation.asset).or_default().1 = Some(allocation));
    pairs.into_iter().collect()
}

/// An asset of which nothing was paid in the epoch before: no share of nothing bounds what is paid of it now.
fn appears(pair: &Pair<'_>, percent: u32) -> Option<String> {
    let (asset, (earlier, now)) = pair;
    let paid = now.filter(|now| now.paid > 0 && earlier.is_none_or(|earlier| earlier.paid == 0))?.paid;
    Some(format!("{asset}: {paid} units, and none before: a change of more than {percent} %"))
}

fn changed(asset: &str, actor: &str, earlier: u128, amount: u128, percent: u32) -> String {
    format!("{asset}: {actor:?} had {earlier} and would get {amount}: a change of more than {percent} %")
}

/// Whether an amount that was paid before changes by more than this share of it. New payees are counted, not compared.
fn changes_more(earlier: u128, amount: u128, percent: u32) -> bool {
    earlier > 0 && wide(earlier.abs_diff(amount), 100) > wide(earlier, percent)
}

/// Product of 128 and 32 bits, high part first: amounts near 2^128 must not wrap into a small change.
fn wide(amount: u128, factor: u32) -> (u128, u128) {
    let (high, low) = (amount >> 64, amount & u128::from(u64::MAX));
    let low = low * u128::from(factor);
    (high * u128::from(factor) + (low >> 64), low & u128::from(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_measured_exactly_up_to_the_largest_amounts() {
        for (earlier, amount, percent, expected) in [
            (100, 150, 50, false),
            (100, 151, 50, true),
            (100, 50, 50, false),
            (100, 49, 50, true),
            (0, 1_000, 1, false),
            (3, 0, 99, true),
            (3, 0, 100, false),
            (u128::MAX, u128::MAX / 2, 50, true),
            (u128::MAX, u128::MAX / 2 + 1, 50, false),
            (u128::MAX, 0, 100, false),
            (1, u128::MAX, u32::MAX, true),
        ] {
            assert_eq!(changes_more(earlier, amount, percent), expected, "{earlier} {amount} {percent}");
        }
    }
}
