//! Products of two 128-bit numbers, compared and divided without loss.

use std::cmp::Ordering;

use ruint::aliases::U256;

/// Quotient and remainder of `a * b / divisor`. One of the factors is at most the divisor, so the quotient fits.
pub fn multiply_divide(a: u128, b: u128, divisor: u128) -> (u128, u128) {
    debug_assert!(divisor > 0 && (a <= divisor || b <= divisor));
    // Most products fit, and a division of 128 bits takes a fifth of the time of one of 256.
    if let Some(product) = a.checked_mul(b) {
        let quotient = product / divisor;
        return (quotient, product - quotient * divisor);
    }
    let (quotient, remainder) = product(a, b).div_rem(U256::from(divisor));
    (low_half(&quotient), low_half(&remainder))
}

/// Compares `a * b` with `c * d`.
pub fn compare_products((a, b): (u128, u128), (c, d): (u128, u128)) -> Ordering {
    match (a.checked_mul(b), c.checked_mul(d)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => product(a, b).cmp(&product(c, d)),
    }
}

fn product(a: u128, b: u128) -> U256 {
    // Two factors below 2^128 cannot leave 256 bits.
    U256::from(a).wrapping_mul(U256::from(b))
}

fn low_half(number: &U256) -> u128 {
    let [low, high, ..] = *number.as_limbs();
    u128::from(low) | u128::from(high) << 64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ruint::aliases::U512;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_wider_arithmetic(a: u128, b: u128, c: u128, d: u128, shift in 0_u32..128) {
            let (a, divisor) = ((a >> shift).min(c.max(1)), c.max(1));
            let (quotient, remainder) = multiply_divide(a, b, divisor);
            let expected = U512::from(a) * U512::from(b);
            prop_assert_eq!(U512::from(quotient) * U512::from(divisor) + U512::from(remainder), expected);
            prop_assert!(remainder < divisor);
            let other = U512::from(c) * U512::from(d);
            prop_assert_eq!(compare_products((a, b), (c, d)), expected.cmp(&other));
        }
    }
}
