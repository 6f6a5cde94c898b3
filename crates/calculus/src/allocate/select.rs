//! Finds the value that separates the largest of many numbers from the rest, without sorting or copying them.

use rayon::prelude::*;

/// Bits looked at in one pass: counters of 32 KiB for each thread stay in its cache.
const DIGIT_BITS: u32 = 12;
const DIGITS: usize = 1 << DIGIT_BITS;
/// So few numbers are sorted rather than counted again.
const SORTED_MAX: u64 = 4096;
/// Numbers that one thread counts before it adds its counters to the others'.
const CHUNK: usize = 1 << 16;

/// Where the largest numbers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The smallest number that is among them.
    pub value: u128,
    /// How many numbers are larger than that.
    pub above: u64,
}

/// Where the `count` largest numbers end; there must be so many, and at least one.
pub fn largest(numbers: &[u128], count: u64) -> Cut {
    debug_assert!(count > 0 && count <= numbers.len() as u64);
    let most = numbers.par_iter().copied().max().unwrap_or(0);
    let mut width = u128::BITS - most.leading_zeros();
    let (mut prefix, mut above) = (0_u128, 0_u64);
    // In each pass `width` low bits are open, the bits above them are `prefix`, and `above` numbers lie beyond it.
    while width > 0 {
        let next = width.saturating_sub(DIGIT_BITS);
        let counters = count_digits(numbers, width, next, prefix);
        let mut digit = DIGITS - 1;
        while above + counters[digit] < count {
            above += counters[digit];
            digit -= 1;
        }
        prefix = prefix << (width - next) | digit as u128;
        width = next;
        if counters[digit] <= SORTED_MAX {
            return among_few(numbers, width, prefix, above, count);
        }
    }
    Cut { value: prefix, above }
}

/// How many of the numbers with this prefix have which digit.
fn count_digits(numbers: &[u128], width: u32, next: u32, prefix: u128) -> Vec<u64> {
    let count = |mut counters: Vec<u64>, chunk: &[u128]| {
        for number in chunk.iter().filter(|number| high(**number, width) == prefix) {
            counters[(number >> next) as usize & (DIGITS - 1)] += 1;
        }
        counters
    };
    let add = |mut a: Vec<u64>, b: Vec<u64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    numbers.par_chunks(CHUNK).fold(|| vec![0; DIGITS], count).reduce(|| vec![0; DIGITS], add)
}

fn among_few(numbers: &[u128], width: u32, prefix: u128, above: u64, count: u64) -> Cut {
    let mut few: Vec<u128> = numbers.par_iter().copied().filter(|number| high(*number, width) == prefix).collect();
    few.sort_unstable_by(|a, b| b.cmp(a));
    let value = few[(count - above - 1) as usize];
    let larger = few.iter().take_while(|number| **number > value).count() as u64;
    Cut { value, above: above + larger }
}

/// The bits above the lowest `width`.
fn high(number: u128, width: u32) -> u128 {
    number.checked_shr(width).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(numbers: &[u128], count: u64) {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let value = sorted[count as usize - 1];
        let above = sorted.iter().filter(|number| **number > value).count() as u64;
        assert_eq!(largest(numbers, count), Cut { value, above });
    }

    #[test]
    fn many_equal_numbers_are_cut_at_their_value() {
        check(&[7; 10_000], 1);
        check(&[7; 10_000], 10_000);
        check(&[0; 3], 2);
        let steps: Vec<u128> = (0..20_000_u128).map(|step| ((step % 7) << 120) | (step % 3)).collect();
        for count in [1, 2_857, 2_858, 10_000, 20_000] {
            check(&steps, count);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_sorting(numbers in prop::collection::vec(any::<u128>(), 1..200), shift in 0_u32..128, at: u64) {
            let numbers: Vec<u128> = numbers.iter().map(|number| number >> shift).collect();
            check(&numbers, at % numbers.len() as u64 + 1);
        }
    }
}
