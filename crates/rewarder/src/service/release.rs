//! The release gate: whether payouts leave by themselves, or wait for a person.

use ron_calculus::policy::ReleaseLimits;

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

/// Compares with what was paid before, actor by actor.
fn compare(limits: &ReleaseLimits, now: &Computed, before: Option<&Computed>) -> Option<String> {
    let (roster, paying) = now.paying();
    let paid_before = |asset: &str, actor: &str| {
        let (roster, paying) = before?.paying();
        let allocation = paying.iter().find(|allocation| allocation.asset == asset)?;
        Some(allocation.amounts[roster.find(actor)?])
    };
    let mut new_payees = 0_u64;
    for (index, actor) in roster.iter().enumerate() {
        let (mut is_paid, mut was_paid) = (false, false);
        for allocation in paying {
            let amount = allocation.amounts[index];
            let earlier = paid_before(&allocation.asset, actor).unwrap_or(0);
            (is_paid, was_paid) = (is_paid || amount > 0, was_paid || earlier > 0);
            if let Some(percent) = limits.change_percent_max.filter(|max| changes_more(earlier, amount, *max)) {
                return Some(changed(&allocation.asset, actor, earlier, amount, percent));
            }
        }
        new_payees += u64::from(is_paid && !was_paid);
    }
    if let Some(percent) = limits.change_percent_max
        && let Some((asset, actor, earlier)) =
            gone(now, before).find(|(.., earlier)| changes_more(*earlier, 0, percent))
    {
        return Some(changed(asset, actor, earlier, 0, percent));
    }
    let max = limits.new_payees_max.filter(|max| new_payees > *max)?;
    Some(format!("{new_payees} payees were not paid before; {max} leave without a person"))
}

fn changed(asset: &str, actor: &str, earlier: u128, amount: u128, percent: u32) -> String {
    format!("{asset}: {actor:?} had {earlier} and would get {amount}: a change of more than {percent} %")
}

/// Amounts of those who were paid before and have no row now.
fn gone<'a>(now: &'a Computed, before: Option<&'a Computed>) -> impl Iterator<Item = (&'a str, &'a str, u128)> {
    before.into_iter().flat_map(move |before| {
        let (roster, paying) = before.paying();
        let missing = roster.iter().enumerate().filter(|(_, actor)| now.paying().0.find(actor).is_none());
        missing.flat_map(move |(index, actor)| {
            paying.iter().map(move |allocation| (allocation.asset.as_str(), actor, allocation.amounts[index]))
        })
    })
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
