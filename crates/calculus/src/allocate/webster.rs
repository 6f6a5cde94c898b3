//! The divisor method of Webster: unit after unit goes to whom the next one is owed most, so a larger pool takes from
//! nobody.
//!
//! An actor with score `s` and `a` units has the claim `s / (2a + 1)` to one more; the largest claims win. Everyone who
//! is paid has at least the minimum and at most the cap. Instead of giving units one by one, the amounts are those of
//! shares rounded half up, `s * scale / total`, with the largest scale at which they fit into the pool; the few units
//! left then go to the largest claims among those whom the next scale would give one more.

use std::cmp::Ordering;

use rayon::prelude::*;
use ruint::aliases::U512;

use crate::allocate::Breach;
use crate::allocate::division::{Division, Standing};
use crate::allocate::scores::PoolScores;
use crate::allocate::ties::TieOrder;

/// The scale that fits a pool.
#[derive(Clone, Debug)]
pub struct Webster<'a> {
    division: &'a Division,
    /// Most that anyone gets.
    most: u128,
    /// The scale, and the one after it; none: everyone gets the most.
    scales: Option<(Scale, Scale)>,
    /// Units left over at this scale.
    pub left: u128,
}

/// A scale, also as the number of 128 bits that it almost always is.
#[derive(Clone, Copy, Debug)]
struct Scale {
    wide: U512,
    narrow: Option<u128>,
}

impl Scale {
    fn new(wide: U512) -> Scale {
        Scale { wide, narrow: u128::try_from(wide).ok() }
    }
}

impl<'a> Webster<'a> {
    /// Finds the scale.
    pub fn solve(division: &'a Division, scores: &[u128]) -> Webster<'a> {
        let most = division.cap.unwrap_or(division.pool);
        let mut webster = Webster { division, most, scales: None, left: 0 };
        if most.checked_mul(u128::from(division.kept)).is_none_or(|units| units > division.pool) {
            let scale = webster.largest_scale(scores);
            webster.scales = Some((Scale::new(scale), Scale::new(scale + U512::ONE)));
            webster.left = webster.left_at(Scale::new(scale), scores).unwrap_or(0);
        }
        webster
    }

    /// The scale that was found; none if everyone gets the most.
    pub fn scale(&self) -> Option<U512> {
        self.scales.map(|(scale, _)| scale.wide)
    }

    /// Amount at the scale that was found.
    pub fn amount(&self, score: u128) -> u128 {
        self.scales.map_or_else(|| self.all_or_nothing(score), |(scale, _)| self.amount_at(scale, score))
    }

    /// Whether the next scale would give one more unit.
    pub fn is_next(&self, score: u128) -> bool {
        self.scales.is_some_and(|(scale, next)| self.amount_at(next, score) > self.amount_at(scale, score))
    }

    /// Whose claim to one more unit is larger: `Less` if that of the first.
    pub fn compare_claims(&self, a: u128, b: u128) -> Ordering {
        let claim = |score, other| U512::from(score) * (U512::from(self.amount(other)) * U512::from(2) + U512::ONE);
        claim(b, a).cmp(&claim(a, b))
    }

    fn all_or_nothing(&self, score: u128) -> u128 {
        match self.division.standing(score) {
            Standing::Nothing | Standing::BelowMinimum => 0,
            Standing::Capped | Standing::Shares => self.most,
        }
    }

    /// The share at this scale, rounded half up, within the bounds.
    fn amount_at(&self, scale: Scale, score: u128) -> u128 {
        match self.division.standing(score) {
            Standing::Nothing | Standing::BelowMinimum => return 0,
            Standing::Capped | Standing::Shares => {}
        }
        let total = self.division.kept_score;
        let narrow = || {
            let twice = scale.narrow?.checked_mul(score)?.checked_mul(2)?.checked_add(total)?;
            Some(twice / total.checked_mul(2)?)
        };
        let rounded = narrow().unwrap_or_else(|| {
            let (two, wide_total) = (U512::from(2), U512::from(total));
            let wide = (scale.wide * U512::from(score) * two + wide_total) / (wide_total * two);
            u128::try_from(wide).unwrap_or(u128::MAX)
        });
        rounded.clamp(self.division.minimum.min(self.most), self.most)
    }

    /// Units that the amounts at this scale leave in the pool; none if they are more than it has.
    fn left_at(&self, scale: Scale, scores: &[u128]) -> Option<u128> {
        let amounts = scores.par_iter().map(|score| Some(self.amount_at(scale, *score)));
        let sum = amounts.reduce(|| Some(0), |a, b| a?.checked_add(b?));
        self.division.pool.checked_sub(sum?)
    }

    /// The largest scale at which the amounts fit: looked for around the exact shares, where it almost always is.
    fn largest_scale(&self, scores: &[u128]) -> U512 {
        let shared = U512::from(self.division.shared_score.max(1));
        let start = U512::from(self.division.shared_pool) * U512::from(self.division.kept_score) / shared;
        let fits = |scale: U512| self.left_at(Scale::new(scale), scores).is_some();
        let mut step = U512::ONE;
        let (mut low, mut high) = (start, start);
        if fits(start) {
            // Someone is below the most, and gets beyond any bound as the scale grows: this ends.
            while low == high || fits(high) {
                (low, high) = (high, high + step);
                step <<= 1;
            }
        } else {
            // At scale zero everyone has the minimum, for which the pool suffices.
            while !low.is_zero() && (low == high || !fits(low)) {
                (low, high) = (low.saturating_sub(step), low);
                step <<= 1;
            }
        }
        while high - low > U512::ONE {
            let middle = (low + high) >> 1;
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// The amounts, in the order of the scores.
pub fn divide(division: &Division, ties: &TieOrder<'_>, pool: PoolScores) -> Result<Vec<u128>, Breach> {
    let PoolScores { actors, scores } = pool;
    let webster = Webster::solve(division, &scores);
    let mut amounts: Vec<u128> = scores.par_iter().map(|score| webster.amount(*score)).collect();
    if webster.left == 0 {
        return Ok(amounts);
    }
    let next = scores.par_iter().enumerate().filter(|(_, score)| webster.is_next(**score));
    let mut next: Vec<(u64, u32)> = next.map(|(index, _)| (ties.prefix(actors.place(index)), index as u32)).collect();
    let left = usize::try_from(webster.left).ok().filter(|left| *left < next.len());
    let left = left.ok_or_else(|| Breach::Conservation(format!("nobody is next for {} units", webster.left)))?;
    next.select_nth_unstable_by(left, |a, b| {
        let claims = webster.compare_claims(scores[a.1 as usize], scores[b.1 as usize]);
        let places = (actors.place(a.1 as usize), actors.place(b.1 as usize));
        claims.then(a.0.cmp(&b.0)).then_with(|| ties.compare_rest(places.0, places.1))
    });
    next[..left].iter().for_each(|(_, index)| amounts[*index as usize] += 1);
    Ok(amounts)
}
