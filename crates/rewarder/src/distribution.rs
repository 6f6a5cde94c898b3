//! How an asset's amounts are spread over its payees: a histogram of round numbers, small enough for a page.

use ron_calculus::Units;
use serde::Serialize;

/// Buckets of one asset at most: beyond that they are ten times as wide as the one before, not two or two and a half.
const BUCKETS_MAX: usize = 27;

/// The payees of one asset by amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AssetDistribution {
    /// Name of the asset.
    pub asset: String,
    /// Actors that are paid.
    pub payees: u64,
    /// Smallest amount that is paid; zero if nobody is.
    pub smallest: Units,
    /// Largest amount that is paid.
    pub largest: Units,
    /// Neighbouring ranges from the smallest to the largest amount; none if nobody is paid.
    pub buckets: Vec<Bucket>,
}

/// Payees whose amount is in one range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// First amount of the range: 1, 2 or 5 with zeros.
    pub from: Units,
    /// First amount beyond it, as text because the last of all is 2^128.
    pub below: String,
    /// Payees with such an amount.
    pub payees: u64,
    /// Units they get together.
    pub paid: Units,
}

/// Sorts amounts of one asset into buckets; amounts of zero are no payouts.
pub fn distribution(asset: &str, amounts: &[u128]) -> AssetDistribution {
    let paid = || amounts.iter().copied().filter(|amount| *amount > 0);
    let (smallest, largest) = paid().fold((u128::MAX, 0), |(low, high), amount| (low.min(amount), high.max(amount)));
    let payees = paid().count() as u64;
    let mut found = AssetDistribution {
        asset: asset.to_owned(),
        payees,
        smallest: Units(if payees == 0 { 0 } else { smallest }),
        largest: Units(largest),
        buckets: Vec::new(),
    };
    if payees > 0 {
        let edges = edges(smallest, largest);
        found.buckets = edges.iter().enumerate().map(|(at, edge)| Bucket::empty(*edge, edges.get(at + 1))).collect();
        for amount in paid() {
            let bucket = &mut found.buckets[edges.partition_point(|edge| *edge <= amount) - 1];
            bucket.payees += 1;
            // All payouts together are at most a pool, which fits.
            bucket.paid.0 = bucket.paid.0.saturating_add(amount);
        }
        let last = found.buckets.last_mut().expect("one holds the smallest");
        last.below = next_round(last.from.0, largest);
    }
    found
}

impl Bucket {
    fn empty(from: u128, below: Option<&u128>) -> Bucket {
        let below = below.map(u128::to_string).unwrap_or_default();
        Bucket { from: Units(from), below, payees: 0, paid: Units(0) }
    }
}

/// First amounts of the buckets: from the last round number up to the smallest, to the last up to the largest.
fn edges(smallest: u128, largest: u128) -> Vec<u128> {
    let fine = between(&rounds(&[1, 2, 5]), smallest, largest);
    if fine.len() <= BUCKETS_MAX { fine } else { between(&rounds(&[1]), smallest, largest) }
}

fn between(rounds: &[u128], smallest: u128, largest: u128) -> Vec<u128> {
    let first = rounds.partition_point(|round| *round <= smallest).saturating_sub(1);
    rounds[first..].iter().copied().take_while(|round| *round <= largest).collect()
}

/// All numbers of 128 bits that are one of these digits and zeros.
fn rounds(digits: &[u128]) -> Vec<u128> {
    let powers = (0..39).map(|zeros| 10_u128.pow(zeros));
    powers.flat_map(|power| digits.iter().filter_map(move |digit| power.checked_mul(*digit))).collect()
}

/// End of the last bucket.
fn next_round(from: u128, largest: u128) -> String {
    let all = rounds(&[1, 2, 5]);
    let next = all.iter().find(|round| **round > largest.max(from));
    next.map_or_else(|| "340282366920938463463374607431768211456".to_owned(), u128::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(amounts: &[u128]) -> Vec<(u128, String, u64, u128)> {
        let buckets = distribution("RON", amounts).buckets.into_iter();
        buckets.map(|bucket| (bucket.from.0, bucket.below, bucket.payees, bucket.paid.0)).collect()
    }

    #[test]
    fn amounts_are_sorted_into_round_buckets() {
        assert_eq!(shown(&[]), []);
        assert_eq!(shown(&[0, 0]), []);
        assert_eq!(shown(&[7]), [(5, "10".to_owned(), 1, 7)]);
        let expected = [
            (2, "5".to_owned(), 2, 6),
            (5, "10".to_owned(), 1, 9),
            (10, "20".to_owned(), 1, 10),
            (20, "50".to_owned(), 0, 0),
            (50, "100".to_owned(), 1, 50),
        ];
        assert_eq!(shown(&[2, 4, 9, 10, 50, 0]), expected);
    }

    #[test]
    fn every_payee_is_in_one_bucket_and_buckets_stay_few() {
        let wide: Vec<u128> = (0..128).map(|bit| 1_u128 << bit).chain([u128::MAX]).collect();
        for amounts in [&wide[..], &[1, u128::MAX], &[u128::MAX], &[1], &[999, 1000, 1001], &wide[3..60]] {
            let found = distribution("RON", amounts);
            assert!((1..=39).contains(&found.buckets.len()), "{}", found.buckets.len());
            assert_eq!(found.buckets.iter().map(|bucket| bucket.payees).sum::<u64>(), amounts.len() as u64);
            for pair in found.buckets.windows(2) {
                assert_eq!(pair[0].below, pair[1].from.to_string());
            }
            let (first, last) = (&found.buckets[0], &found.buckets[found.buckets.len() - 1]);
            assert!(first.from <= found.smallest && first.payees > 0 && last.payees > 0);
            assert!(last.below.parse::<u128>().map_or(true, |below| below > found.largest.0));
        }
    }
}
