//! Weights as whole numbers without a common factor: ratios are for people, the arithmetic has none.

use std::collections::BTreeMap;

use ruint::aliases::U256;

use super::Weight;

/// Each weight times the least common denominator, divided by what all have in common; none if that leaves 128 bits
/// or a denominator is zero.
///
/// The result depends on the proportions alone: weights times ten, or written as other fractions, are the same weights.
pub fn integer_weights(weights: &BTreeMap<String, Weight>) -> Option<BTreeMap<&str, u128>> {
    if weights.values().any(|weight| weight.denominator == 0) {
        return None;
    }
    let reduced: Vec<(&str, U256, U256)> = weights
        .iter()
        .map(|(metric, weight)| {
            let (numerator, denominator) = (U256::from(weight.numerator), U256::from(weight.denominator));
            let common = numerator.gcd(denominator);
            (metric.as_str(), numerator / common, denominator / common)
        })
        .collect();
    // A zero is 0/1 by now, so its denominator does not count.
    let multiple = reduced.iter().try_fold(U256::ONE, |multiple, (_, _, denominator)| {
        (multiple / multiple.gcd(*denominator)).checked_mul(*denominator)
    })?;
    let scaled: Option<Vec<(&str, U256)>> = reduced
        .iter()
        .map(|(metric, numerator, denominator)| Some((*metric, numerator.checked_mul(multiple / denominator)?)))
        .collect();
    let scaled = scaled?;
    let common = scaled.iter().fold(U256::ZERO, |common, (_, weight)| common.gcd(*weight));
    let divisor = if common.is_zero() { U256::ONE } else { common };
    scaled.into_iter().map(|(metric, weight)| Some((metric, u128::try_from(weight / divisor).ok()?))).collect()
}
