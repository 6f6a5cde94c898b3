//! Whom the minimum leaves out, whom the cap stops, and what the others share: exact, by comparing products.

use std::cmp::Ordering;

use rayon::prelude::*;

use crate::allocate::Breach;
use crate::allocate::plan::{AssetPlan, PoolPlan};
use crate::allocate::wide::{compare_products, multiply_divide};

/// How a pool is divided before anything is rounded.
///
/// Equal scores are treated equally by every step, so that a score alone tells where an actor stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Units in the pool.
    pub pool: u128,
    /// Actors with a score above zero.
    pub actors: u64,
    /// Sum of all scores.
    pub total_score: u128,
    /// Most that one actor gets.
    pub cap: Option<u128>,
    /// Least that is paid; zero if there is no such bound.
    pub minimum: u128,
    /// Actors that are paid.
    pub kept: u64,
    /// Lowest score that is paid, if any is.
    pub kept_from: u128,
    /// Sum of the scores that are paid.
    pub kept_score: u128,
    /// Actors that get the cap.
    pub capped: u64,
    /// Lowest score that gets the cap, if any does.
    pub capped_from: u128,
    /// Units that the others share in proportion to their scores.
    pub shared_pool: u128,
    /// Sum of the scores of those who share.
    pub shared_score: u128,
}

/// Where an actor stands in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no score.
    Nothing,
    /// Its share is below the minimum.
    BelowMinimum,
    /// It gets the cap.
    Capped,
    /// It has a share in proportion to its score.
    Shares,
}

impl Division {
    /// Divides a pool.
    pub fn of(plan: &AssetPlan<'_>, planned: &PoolPlan, scores: &[u128]) -> Result<Division, Breach> {
        let range = Range::of(scores).ok_or_else(|| plan.overflow("the scores add up"))?;
        let bound = |units: Option<crate::Units>| units.map(|units| units.0);
        let division = Division {
            pool: planned.units,
            actors: range.count,
            total_score: range.sum,
            cap: bound(plan.policy.cap),
            minimum: bound(plan.policy.minimum).unwrap_or(0),
            kept: range.count,
            kept_from: range.least,
            kept_score: range.sum,
            capped: 0,
            capped_from: 0,
            shared_pool: planned.units,
            shared_score: range.sum,
        };
        // Where nobody comes near a bound, which is the usual case, the scores need no sorting.
        let is_plain = !division.is_over_cap(range.most) && division.reaches_minimum(range.least);
        Ok(if range.count == 0 || is_plain { division } else { Sorted::new(scores).fill(division) })
    }

    /// Where an actor with this score stands.
    pub fn standing(&self, score: u128) -> Standing {
        if score == 0 {
            Standing::Nothing
        } else if self.kept == 0 || score < self.kept_from {
            Standing::BelowMinimum
        } else if self.capped > 0 && score >= self.capped_from {
            Standing::Capped
        } else {
            Standing::Shares
        }
    }

    /// Amount rounded down, and the remainder over the shared score.
    pub fn floor(&self, score: u128) -> (u128, u128) {
        match self.standing(score) {
            Standing::Nothing | Standing::BelowMinimum => (0, 0),
            Standing::Capped => (self.cap.unwrap_or(0), 0),
            Standing::Shares => multiply_divide(self.shared_pool, score, self.shared_score),
        }
    }

    /// Units that are paid if no fraction is lost: all, unless there is nobody to share or everyone is at the cap.
    pub fn payable(&self) -> u128 {
        if self.shared_score > 0 { self.pool } else { self.capped_units() }
    }

    fn capped_units(&self) -> u128 {
        // Each of them was capped because the pool had more than that for it.
        u128::from(self.capped) * self.cap.unwrap_or(0)
    }

    fn is_over_cap(&self, score: u128) -> bool {
        let over = |cap| compare_products((score, self.shared_pool), (cap, self.shared_score)) == Ordering::Greater;
        self.cap.is_some_and(over)
    }

    fn reaches_minimum(&self, score: u128) -> bool {
        compare_products((score, self.shared_pool), (self.minimum, self.shared_score)) != Ordering::Less
    }
}

/// What one look at all scores tells.
struct Range {
    count: u64,
    sum: u128,
    least: u128,
    most: u128,
}

impl Range {
    const NONE: Range = Range { count: 0, sum: 0, least: u128::MAX, most: 0 };

    /// Of the scores above zero; none if their sum leaves 128 bits.
    fn of(scores: &[u128]) -> Option<Range> {
        let add = |range: Option<Range>, score: &u128| match *score {
            0 => range,
            score => range?.join(&Range { count: 1, sum: score, least: score, most: score }),
        };
        let ranges = scores.par_iter().fold(|| Some(Range::NONE), add);
        ranges.reduce(|| Some(Range::NONE), |a, b| a?.join(&b?))
    }

    fn join(&self, other: &Range) -> Option<Range> {
        Some(Range {
            count: self.count + other.count,
            sum: self.sum.checked_add(other.sum)?,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        })
    }
}

/// Scores between two kept sums.
const BLOCK: usize = 1024;

/// The scores above zero from the largest to the smallest, with sums of the first so many.
struct Sorted {
    scores: Vec<u128>,
    /// Sum of all scores before each block: a sum for each score would double the memory.
    sums: Vec<u128>,
}

impl Sorted {
    fn new(scores: &[u128]) -> Sorted {
        let mut scores: Vec<u128> = scores.par_iter().copied().filter(|score| *score > 0).collect();
        scores.par_sort_unstable_by(|a, b| b.cmp(a));
        let block_sums = scores.chunks(BLOCK).scan(0_u128, |sum, block| {
            let before = *sum;
            *sum += block.iter().sum::<u128>();
            Some(before)
        });
        let sums = block_sums.collect();
        Sorted { scores, sums }
    }

    /// The division with the minimum and the cap put into effect.
    fn fill(&self, mut division: Division) -> Division {
        let kept = self.kept(&division);
        let capped = self.capped(&division, kept);
        division.kept = kept as u64;
        division.kept_from = if kept == 0 { 0 } else { self.scores[kept - 1] };
        division.kept_score = self.sum(kept);
        division.capped = capped as u64;
        division.capped_from = if capped == 0 { 0 } else { self.scores[capped - 1] };
        division.shared_pool = division.pool - division.capped_units();
        division.shared_score = self.sum(kept) - self.sum(capped);
        division
    }

    /// Sum of the `count` largest.
    fn sum(&self, count: usize) -> u128 {
        let block = count / BLOCK;
        let before = self.sums.get(block).copied().unwrap_or_else(|| self.sum_of_last());
        before + self.scores[block * BLOCK..count].iter().sum::<u128>()
    }

    /// Sum of everything, for a count that ends with the last block.
    fn sum_of_last(&self) -> u128 {
        let last = self.sums.len().saturating_sub(1);
        self.sums.last().map_or(0, |before| before + self.scores[last * BLOCK..].iter().sum::<u128>())
    }

    /// How many are paid: the most of the largest scores of whom even the smallest reaches the minimum.
    ///
    /// More actors mean a smaller share for the smallest of them, so this can be found by halving.
    fn kept(&self, division: &Division) -> usize {
        let (mut low, mut high) = (0, self.scores.len());
        while low < high {
            let score = self.scores[(low + high) / 2];
            // Equals stay together.
            let start = self.scores.partition_point(|other| *other > score);
            let end = self.scores.partition_point(|other| *other >= score);
            if self.smallest_reaches_minimum(division, end) {
                low = end;
            } else {
                high = start;
            }
        }
        low
    }

    fn smallest_reaches_minimum(&self, division: &Division, kept: usize) -> bool {
        let capped = self.capped(division, kept);
        // The cap is at least the minimum.
        capped == kept || {
            let left = division.pool - capped as u128 * division.cap.unwrap_or(0);
            let share = (self.scores[kept - 1], left);
            compare_products(share, (division.minimum, self.sum(kept) - self.sum(capped))) != Ordering::Less
        }
    }

    /// How many of the `kept` largest get the cap.
    ///
    /// The next one does as long as its share of what the capped ones left is above it. Once that is false it stays
    /// false: each capped actor takes less than its share, which leaves more for each point, but to smaller scores.
    fn capped(&self, division: &Division, kept: usize) -> usize {
        let Some(cap) = division.cap else { return 0 };
        let (mut low, mut high) = (0, kept);
        let total = self.sum(kept);
        while low < high {
            let middle = low.midpoint(high);
            let taken = cap.checked_mul(middle as u128).filter(|taken| *taken <= division.pool);
            let is_over = taken.is_some_and(|taken| {
                let share = (self.scores[middle], division.pool - taken);
                compare_products(share, (cap, total - self.sum(middle))) == Ordering::Greater
            });
            if is_over { low = middle + 1 } else { high = middle }
        }
        low
    }
}
