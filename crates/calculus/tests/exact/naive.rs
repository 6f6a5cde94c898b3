//! A division so small and plain that it can be checked by eye, against which the real one is held.

use proptest::prelude::*;

use crate::case::{Case, RUN_KEY};
use ron_calculus::allocate::tie_hash;

/// Bounds and rule of a tiny pool.
#[derive(Clone, Copy, Debug)]
struct Rules {
    pool: u128,
    cap: Option<u128>,
    minimum: u128,
    rule: &'static str,
}

/// Exact shares as numerators over one denominator for each, by capping one actor after the other.
fn shares(rules: Rules, scores: &[u128]) -> Vec<(u128, u128)> {
    let mut capped = vec![false; scores.len()];
    loop {
        let total: u128 = scores.iter().zip(&capped).filter(|(_, capped)| !**capped).map(|(score, _)| score).sum();
        let count = capped.iter().filter(|capped| **capped).count() as u128;
        let left = rules.pool - count * rules.cap.unwrap_or(0);
        let is_over = |index: usize| {
            let cap = rules.cap.unwrap_or(u128::MAX / 1_000_000);
            !capped[index] && scores[index] * left > cap * total
        };
        match (0..scores.len()).filter(|index| is_over(*index)).max_by_key(|index| scores[*index]) {
            Some(index) => capped[index] = true,
            None => {
                let share = |index: usize| match capped[index] {
                    true => (rules.cap.unwrap_or(0), 1),
                    false => (scores[index] * left, total.max(1)),
                };
                return (0..scores.len()).map(share).collect();
            }
        }
    }
}

/// Scores with those set to zero whom the minimum leaves out: the smallest leave until all that stay reach it.
fn kept(rules: Rules, scores: &[u128]) -> Vec<u128> {
    let mut scores = scores.to_vec();
    loop {
        let shares = shares(rules, &scores);
        let is_short = |index: &usize| scores[*index] > 0 && shares[*index].0 < rules.minimum * shares[*index].1;
        if !(0..scores.len()).any(|index| is_short(&index)) {
            return scores;
        }
        let lowest = scores.iter().copied().filter(|score| *score > 0).min().expect("one is short");
        scores.iter_mut().filter(|score| **score == lowest).for_each(|score| *score = 0);
    }
}

fn divide(rules: Rules, scores: &[u128], order: &[[u8; 32]]) -> Vec<u128> {
    let scores = kept(rules, scores);
    let shares = shares(rules, &scores);
    let floors: Vec<u128> = shares.iter().map(|(above, below)| above / below).collect();
    let paid = |amounts: &[u128]| amounts.iter().sum::<u128>();
    match rules.rule {
        "floor_carry" => floors,
        "webster" => {
            let most = rules.cap.unwrap_or(rules.pool);
            let mut amounts: Vec<u128> =
                scores.iter().map(|score| if *score > 0 { rules.minimum } else { 0 }).collect();
            // Unit by unit to the largest score / (2 * units + 1).
            while paid(&amounts) < rules.pool {
                let takers = (0..scores.len()).filter(|index| scores[*index] > 0 && amounts[*index] < most);
                let next = takers.min_by(|a, b| {
                    let claims = (scores[*a] * (2 * amounts[*b] + 1)).cmp(&(scores[*b] * (2 * amounts[*a] + 1)));
                    claims.reverse().then(order[*a].cmp(&order[*b]))
                });
                let Some(next) = next else { break };
                amounts[next] += 1;
            }
            amounts
        }
        _ => {
            let mut amounts = floors;
            let is_all_capped = scores.iter().zip(&shares).all(|(score, share)| *score == 0 || share.1 == 1);
            let total: u128 = scores.iter().sum();
            // A share over 1 is the cap or a whole number, either way nothing is left over for it.
            while total > 0 && !is_all_capped && paid(&amounts) < rules.pool {
                let open = (0..scores.len()).filter(|index| amounts[*index] * shares[*index].1 < shares[*index].0);
                let next = open.min_by(|a, b| {
                    let remainder = |index: usize| shares[index].0 % shares[index].1;
                    remainder(*b).cmp(&remainder(*a)).then(order[*a].cmp(&order[*b]))
                });
                let Some(next) = next else { break };
                amounts[next] += 1;
            }
            amounts
        }
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let rule = prop::sample::select(vec!["largest_remainder", "floor_carry", "webster"]);
    (0_u128..60, prop::option::of(1_u128..30), 0_u128..12, rule).prop_map(|(pool, cap, minimum, rule)| {
        let minimum = cap.map_or(minimum, |cap| minimum.min(cap));
        Rules { pool, cap, minimum, rule }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn tiny_pools_are_divided_as_by_hand(rules in rules(), scores in prop::collection::vec(0_u128..12, 1..9)) {
        let Rules { pool, cap, minimum, rule } = rules;
        let cap_field = cap.map_or(String::new(), |cap| format!(r#","cap":"{cap}""#));
        let fields = format!(r#""pool":"{pool}","minimum":"{minimum}","rounding":"{rule}"{cap_field}"#);
        let case = Case::simple(&fields, &scores);
        let totals = case.totals();
        let order: Vec<[u8; 32]> =
            totals.roster().iter().map(|actor| *tie_hash(&RUN_KEY, actor).as_bytes()).collect();
        prop_assert_eq!(case.amounts(), divide(rules, &scores, &order));
    }
}
