//! An explanation holds every integer of its amount: each is computed again from it alone.

use proptest::prelude::*;
use ron_calculus::Units;
use ron_calculus::explain::{AssetExplanation, PoolExplanation, RoundingExplanation, WhyZero};
use ruint::aliases::U512;

use crate::case::{Case, row};
use crate::random::epoch;

fn wide(units: Units) -> U512 {
    U512::from(units.0)
}

/// The amount that the integers of an explanation lead to.
fn recomputed(pool: &PoolExplanation) -> u128 {
    for points in &pool.points {
        assert_eq!(points.quantity.0 * points.weight.0, points.points.0);
    }
    assert_eq!(pool.points.iter().map(|points| points.points.0).sum::<u128>(), pool.score.0);
    let is_kept = pool.score.0 > 0 && pool.minimum.as_ref().is_none_or(|minimum| minimum.is_kept);
    let capped = pool.cap.as_ref().filter(|cap| cap.is_capped).map(|cap| cap.cap.0);
    let shares = is_kept && capped.is_none();
    if shares {
        let product = wide(pool.floor) * wide(pool.shared_score) + wide(pool.remainder);
        assert_eq!(product, wide(pool.shared_pool) * wide(pool.score));
        assert!(pool.remainder < pool.shared_score);
    }
    if let Some(cap) = &pool.cap {
        assert_eq!(pool.shared_pool.0 + u128::from(cap.capped_actors) * cap.cap.0, pool.pool.0);
    }
    match &pool.rounding {
        RoundingExplanation::FloorCarry => capped.unwrap_or(if shares { pool.floor.0 } else { 0 }),
        RoundingExplanation::LargestRemainder { left_over, rank, plus_one } => {
            assert_eq!(*plus_one, rank.is_some_and(|rank| u128::from(rank) <= left_over.0));
            assert_eq!(rank.is_some(), shares);
            capped.unwrap_or_else(|| if shares { pool.floor.0 + u128::from(*plus_one) } else { 0 })
        }
        RoundingExplanation::Webster { scale, left_over, rank, plus_one } => {
            assert_eq!(*plus_one, rank.is_some_and(|rank| u128::from(rank) <= left_over.0));
            let low = pool.minimum.as_ref().map_or(0, |minimum| minimum.minimum.0);
            let high = pool.cap.as_ref().map_or(pool.pool.0, |cap| cap.cap.0);
            let total = pool.minimum.as_ref().map_or(pool.total_score, |minimum| minimum.kept_score);
            let rounded = scale.as_ref().map(|scale| {
                let scale: U512 = scale.parse().expect("a number");
                let two = U512::from(2);
                (wide(pool.score) * scale * two + wide(total)) / (wide(total) * two)
            });
            let rounded = rounded.map_or(high, |rounded| u128::try_from(rounded).unwrap_or(u128::MAX));
            if is_kept { rounded.clamp(low.min(high), high) + u128::from(*plus_one) } else { 0 }
        }
    }
}

fn check(asset: &AssetExplanation) {
    for pool in &asset.pools {
        assert_eq!(recomputed(pool), pool.amount.0, "{pool:?}");
        assert_eq!(pool.why_zero.is_some(), pool.amount.0 == 0);
    }
    assert_eq!(asset.pools.iter().map(|pool| pool.amount.0).sum::<u128>(), asset.amount.0, "{asset:?}");
    assert_eq!(asset.why_zero.is_some(), asset.amount.0 == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_amount_follows_from_its_explanation(seed: u64) {
        let case = epoch(seed);
        let allocations = case.allocate();
        for (place, actor) in case.totals().roster().iter().enumerate() {
            let explanation = case.explain(&allocations, actor);
            for (asset, allocation) in explanation.assets.iter().zip(&allocations) {
                prop_assert_eq!(asset.amount.0, allocation.amounts[place]);
                check(asset);
            }
            let text = serde_json::to_string(&explanation).expect("it is JSON");
            prop_assert_eq!(serde_json::from_str::<ron_calculus::Explanation>(&text).expect("it is read"), explanation);
        }
    }

    #[test]
    fn ranks_among_remainders_are_all_different(
        pool in 1_u128..1000,
        quantities in prop::collection::vec(1_u128..6, 1..20),
        ties in prop::sample::select(vec!["hash", "id"]),
    ) {
        let case = Case::simple(&format!(r#""pool":"{pool}","ties":"{ties}""#), &quantities);
        let allocations = case.allocate();
        let rank = |actor: &str| match &case.explain(&allocations, actor).assets[0].pools[0].rounding {
            RoundingExplanation::LargestRemainder { rank, .. } => rank.expect("everyone shares"),
            other => panic!("{other:?}"),
        };
        let mut ranks: Vec<u64> = case.totals().roster().iter().map(rank).collect();
        ranks.sort_unstable();
        prop_assert!(ranks.into_iter().eq(1..=quantities.len() as u64));
    }
}

#[test]
fn a_zero_has_its_reason() {
    let why = |case: &Case, actor: &str| case.explain(&case.allocate(), actor).assets[0].why_zero;
    let mut case = Case::simple(r#""pool":"10","minimum":"4","ties":"id""#, &[1, 9]);
    assert_eq!(why(&case, "nobody"), Some(WhyZero::NotInUsage));
    assert_eq!(why(&case, "a0000"), Some(WhyZero::BelowMinimum));
    assert_eq!(why(&case, "a0001"), None);
    case.rows.push(row("idle", 0));
    assert_eq!(why(&case, "idle"), Some(WhyZero::ZeroQuantity));
    case.rows.push(("other".into(), "sleep".into(), None, None, Units(7)));
    assert_eq!(why(&case, "other"), Some(WhyZero::ZeroWeight));
    let explained = case.explain(&case.allocate(), "other");
    assert_eq!(explained.assets[0].uncounted[0].metric, "sleep");
    let few = Case::simple(r#""pool":"1","ties":"id""#, &[1, 1]);
    assert_eq!(why(&few, "a0000"), None);
    assert_eq!(why(&few, "a0001"), Some(WhyZero::NoUnitsLeft));
    assert_eq!(why(&Case::simple(r#""pool":"0""#, &[1]), "a0000"), Some(WhyZero::EmptyPool));
}
