//! What holds for every epoch, whatever is in it.

use proptest::prelude::*;
use ron_calculus::policy::Rounding;
use ron_calculus::{AssetAllocation, Units};

use crate::case::Case;
use crate::random::{Random, epoch};

fn shuffled(case: &Case, seed: u64) -> Case {
    let mut case = case.clone();
    let mut random = Random(seed);
    for index in (1..case.rows.len()).rev() {
        case.rows.swap(index, random.below(index as u64 + 1) as usize);
    }
    case
}

/// The same rows, some of them as two that add up to them.
fn split(case: &Case, seed: u64) -> Case {
    let mut random = Random(seed);
    let mut split = case.clone();
    for row in &mut split.rows {
        let part = row.4.0.checked_div(1 + u128::from(random.below(3))).unwrap_or(0);
        row.4 = Units(row.4.0 - part);
    }
    let rest = case.rows.iter().zip(&split.rows).map(|(whole, part)| {
        let mut row = whole.clone();
        row.4 = Units(whole.4.0 - part.4.0);
        row
    });
    let rest: Vec<_> = rest.collect();
    split.rows.extend(rest);
    split
}

/// Whether rounding may lose nothing and no bound holds units back.
fn pays_everything(case: &Case, allocation: &AssetAllocation) -> bool {
    let asset = case.policy.assets.iter().find(|asset| asset.asset == allocation.asset).expect("it was asked for");
    let is_unbounded = asset.cap.is_none() && asset.minimum.is_none() && asset.groups.is_empty();
    is_unbounded && asset.rounding != Rounding::FloorCarry && allocation.amounts.iter().any(|amount| *amount > 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_pool_is_met_to_the_unit(seed: u64) {
        let case = epoch(seed);
        for allocation in case.allocate() {
            let sum: u128 = allocation.amounts.iter().sum();
            prop_assert_eq!(sum, allocation.paid);
            prop_assert!(allocation.paid <= allocation.pool);
            if pays_everything(&case, &allocation) {
                prop_assert_eq!(allocation.paid, allocation.pool);
            }
        }
    }

    #[test]
    fn order_splitting_and_threads_change_nothing(seed: u64, other: u64) {
        let case = epoch(seed);
        let expected = case.allocate();
        let changed = shuffled(&split(&case, other), other);
        prop_assert_eq!(case.totals().content_hash(), changed.totals().content_hash());
        prop_assert_eq!(&changed.allocate(), &expected);
        for threads in [2, 8] {
            prop_assert_eq!(case.try_allocate(threads), Ok(expected.clone()));
        }
    }

    #[test]
    fn scaling_weights_changes_nothing(seed: u64, above in 1_u128..50, below in 1_u128..50) {
        let case = epoch(seed);
        let mut scaled = case.clone();
        for asset in &mut scaled.policy.assets {
            for weight in asset.weights.values_mut() {
                weight.numerator *= above;
                weight.denominator *= below;
            }
        }
        prop_assert_eq!(scaled.allocate(), case.allocate());
    }

    #[test]
    fn equals_get_equals_up_to_one_unit(
        pool: u128,
        quantities in prop::collection::vec(0_u128..9, 1..40),
        bounds in prop::sample::select(vec!["", r#","cap":"7777""#, r#","minimum":"500""#]),
        rule in prop::sample::select(vec!["largest_remainder", "floor_carry", "webster"]),
    ) {
        for pool in [pool, pool % 100_000] {
            let case = Case::simple(&format!(r#""pool":"{pool}","rounding":"{rule}"{bounds}"#), &quantities);
            let amounts = case.amounts();
            for (a, first) in quantities.iter().zip(&amounts) {
                for (b, second) in quantities.iter().zip(&amounts) {
                    if a == b {
                        prop_assert!(first.abs_diff(*second) <= 1, "{} and {}", first, second);
                    } else if a < b {
                        prop_assert!(first <= second, "less work, more units: {} and {}", first, second);
                    }
                }
            }
        }
    }

    #[test]
    fn shares_are_within_one_unit_of_exact(
        pool in 0_u128..1 << 60,
        quantities in prop::collection::vec(0_u128..1 << 40, 1..40),
    ) {
        let total: u128 = quantities.iter().sum();
        prop_assume!(total > 0);
        let amounts = Case::simple(&format!(r#""pool":"{pool}""#), &quantities).amounts();
        for (quantity, amount) in quantities.iter().zip(amounts) {
            let floor = pool * quantity / total;
            prop_assert!(amount == floor || (amount == floor + 1 && pool * quantity % total > 0));
        }
    }

    #[test]
    fn webster_takes_from_nobody_when_the_pool_grows(
        pool in 0_u128..3_000,
        quantities in prop::collection::vec(0_u128..1_000, 1..20),
        bounds in prop::sample::select(vec!["", r#","cap":"120""#]),
    ) {
        let amounts = |pool: u128| {
            Case::simple(&format!(r#""pool":"{pool}","rounding":"webster"{bounds}"#), &quantities).amounts()
        };
        let (less, more) = (amounts(pool), amounts(pool + 1));
        prop_assert!(less.iter().zip(&more).all(|(less, more)| less <= more), "{:?} {:?}", less, more);
    }

    #[test]
    fn caps_and_minimums_hold(seed: u64) {
        let case = epoch(seed);
        for (asset, allocation) in case.policy.assets.iter().zip(case.allocate()) {
            if asset.groups.is_empty() {
                for amount in allocation.amounts.into_iter().filter(|amount| *amount > 0) {
                    prop_assert!(asset.cap.is_none_or(|cap| amount <= cap.0));
                    prop_assert!(asset.minimum.is_none_or(|minimum| amount >= minimum.0));
                }
            }
        }
    }
}

#[test]
fn one_flipped_quantity_or_letter_changes_the_content() {
    let case = epoch(3);
    let hash = case.totals().content_hash();
    for index in 0..case.rows.len() {
        let mut more = case.clone();
        more.rows[index].4.0 += 1;
        assert_ne!(more.totals().content_hash(), hash);
        let mut other = case.clone();
        other.rows[index].0.push('x');
        assert_ne!(other.totals().content_hash(), hash);
        let mut renamed = case.clone();
        renamed.rows[index].1.push('x');
        assert_ne!(renamed.totals().content_hash(), hash);
    }
}
