//! Reconciliation: what a run says it paid against what a ledger says it booked.

use crate::model::Tally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Comparison of a run with a ledger, by asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// Every asset agrees.
    pub agrees: bool,
    /// One line for each asset that either side knows, sorted by name.
    pub assets: Vec<AssetReconciliation>,
}

/// Comparison of one asset. Amounts are decimal digits, because JSON has no numbers of this size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetReconciliation {
    /// The asset.
    pub asset: String,
    /// Transfers the run has, as decimal digits.
    pub expected_count: String,
    /// Transfers the ledger has, as decimal digits.
    pub found_count: String,
    /// Units from the pot to payees, as the run says.
    pub expected_paid: String,
    /// Units from the pot to payees, as the ledger says.
    pub found_paid: String,
    /// Units from payees back to the pot, as the run says.
    pub expected_taken_back: String,
    /// Units from payees back to the pot, as the ledger says.
    pub found_taken_back: String,
    /// Units that left the pot in the ledger and not in the run; negative if the ledger has less.
    pub delta: String,
    /// The judgement.
    pub verdict: Verdict,
}

/// Judgement over one asset of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Count and sums are equal.
    Agrees,
    /// The ledger has less than the run: something was not booked.
    Missing,
    /// The ledger has more than the run: something was booked that nobody sealed.
    Surplus,
    /// The ledger has as much, in other transfers.
    Differs,
}

/// Compares by asset; the order of the tallies does not matter, and several of one asset count together.
pub fn reconcile(expected: &[Tally], found: &[Tally]) -> Reconciliation {
    let mut sides: BTreeMap<&str, [SideSums; 2]> = BTreeMap::new();
    for (side, tallies) in [expected, found].into_iter().enumerate() {
        for tally in tallies {
            sides.entry(&tally.asset).or_default()[side].add(tally);
        }
    }
    let assets: Vec<_> = sides.iter().map(|(asset, [expected, found])| compare(asset, expected, found)).collect();
    Reconciliation { agrees: assets.iter().all(|asset| asset.verdict == Verdict::Agrees), assets }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct SideSums {
    count: u64,
    paid: u128,
    taken_back: u128,
    /// More than 2^128: agrees with nothing.
    overflows: bool,
}

impl SideSums {
    fn add(&mut self, tally: &Tally) {
        let Tally { count, paid, taken_back, .. } = tally;
        self.count = self.count.saturating_add(*count);
        let (paid, paid_over) = self.paid.overflowing_add(*paid);
        let (taken_back, taken_back_over) = self.taken_back.overflowing_add(*taken_back);
        (self.paid, self.taken_back) = (paid, taken_back);
        self.overflows |= paid_over || taken_back_over;
    }
}

fn compare(asset: &str, expected: &SideSums, found: &SideSums) -> AssetReconciliation {
    // Left the pot: paid less what came back. Both sums of each sign are compared without ever being negative.
    let more = found.paid.checked_add(expected.taken_back);
    let less = expected.paid.checked_add(found.taken_back);
    let overflows = expected.overflows || found.overflows;
    let delta = more.zip(less).filter(|_| !overflows).map(|(more, less)| {
        let sign = if more < less { "-" } else { "" };
        format!("{sign}{}", more.abs_diff(less))
    });
    let verdict = match (expected == found && !overflows, found.count.cmp(&expected.count), more.cmp(&less)) {
        (true, ..) => Verdict::Agrees,
        (_, std::cmp::Ordering::Less, _) => Verdict::Missing,
        (_, std::cmp::Ordering::Greater, _) => Verdict::Surplus,
        (_, _, std::cmp::Ordering::Less) => Verdict::Missing,
        (_, _, std::cmp::Ordering::Greater) => Verdict::Surplus,
        _ => Verdict::Differs,
    };
    AssetReconciliation {
        asset: asset.to_owned(),
        expected_count: expected.count.to_string(),
        found_count: found.count.to_string(),
        expected_paid: expected.paid.to_string(),
        found_paid: found.paid.to_string(),
        expected_taken_back: expected.taken_back.to_string(),
        found_taken_back: found.taken_back.to_string(),
        delta: delta.unwrap_or_else(|| "more than 2^128".to_owned()),
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(asset: &str, count: u64, paid: u128, taken_back: u128) -> Tally {
        Tally { asset: asset.to_owned(), count, paid, taken_back }
    }

    #[test]
    fn each_asset_has_its_verdict() {
        for (expected, found, verdict, delta) in [
            (vec![tally("A", 2, 10, 1)], vec![tally("A", 2, 10, 1)], Verdict::Agrees, "0"),
            (vec![tally("A", 1, 4, 0), tally("A", 1, 6, 1)], vec![tally("A", 2, 10, 1)], Verdict::Agrees, "0"),
            (vec![tally("A", 2, 10, 0)], vec![], Verdict::Missing, "-10"),
            (vec![tally("A", 2, 10, 0)], vec![tally("A", 2, 9, 0)], Verdict::Missing, "-1"),
            (vec![], vec![tally("A", 1, 0, 0)], Verdict::Surplus, "0"),
            (vec![tally("A", 2, 10, 5)], vec![tally("A", 2, 10, 2)], Verdict::Surplus, "3"),
            (vec![tally("A", 2, 10, 5)], vec![tally("A", 2, 11, 6)], Verdict::Differs, "0"),
            (vec![tally("A", 1, u128::MAX, 0)], vec![tally("A", 1, u128::MAX, 0)], Verdict::Agrees, "0"),
            (
                vec![tally("A", 1, u128::MAX, 0), tally("A", 1, 1, 0)],
                vec![tally("A", 2, 0, 0)],
                Verdict::Differs,
                "more than 2^128",
            ),
        ] {
            let reconciliation = reconcile(&expected, &found);
            let line = &reconciliation.assets[0];
            assert_eq!((line.verdict, line.delta.as_str()), (verdict, delta), "{expected:?} {found:?}");
            assert_eq!(reconciliation.agrees, verdict == Verdict::Agrees);
        }
        assert!(reconcile(&[], &[]).agrees);
        let two = reconcile(&[tally("B", 1, 1, 0), tally("A", 1, 1, 0)], &[tally("A", 1, 1, 0)]);
        assert!(!two.agrees);
        assert_eq!(two.assets.iter().map(|line| line.verdict).collect::<Vec<_>>(), [Verdict::Agrees, Verdict::Missing]);
        let json = serde_json::to_value(&two).unwrap();
        assert_eq!(
            (&json["assets"][1]["expected_paid"], &json["assets"][1]["verdict"]),
            (&"1".into(), &"missing".into())
        );
    }
}
