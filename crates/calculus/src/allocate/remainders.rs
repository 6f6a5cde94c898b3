//! Largest remainder: everyone is rounded down, and the units left over go to the largest remainders.

use rayon::prelude::*;

use crate::allocate::division::Division;
use crate::allocate::scores::{PoolScores, sum};
use crate::allocate::ties::TieOrder;
use crate::allocate::{Breach, select};

/// The amounts, in the order of the scores.
pub fn divide(division: &Division, ties: &TieOrder<'_>, pool: PoolScores) -> Result<Vec<u128>, Breach> {
    let PoolScores { actors, mut scores } = pool;
    // The remainders take the place of the scores: at ten million actors a third column would be 160 MB.
    let mut amounts: Vec<u128> = scores
        .par_iter_mut()
        .map(|score| {
            let (amount, remainder) = division.floor(*score);
            *score = remainder;
            amount
        })
        .collect();
    let remainders = scores;
    let left = left_over(division, &amounts)?;
    if left == 0 {
        return Ok(amounts);
    }
    // Every remainder is below one unit, so more of them are above zero than units are left: zeros get nothing.
    let cut = select::largest(&remainders, left);
    amounts.par_iter_mut().zip(&remainders).for_each(|(amount, remainder)| {
        *amount += u128::from(*remainder > cut.value);
    });
    let indices = remainders.par_iter().enumerate().filter(|(_, remainder)| **remainder == cut.value);
    let equals: Vec<u32> = indices.map(|(index, _)| index as u32).collect();
    for index in ties.first(&actors, &equals, (left - cut.above) as usize) {
        amounts[index as usize] += 1;
    }
    Ok(amounts)
}

fn left_over(division: &Division, amounts: &[u128]) -> Result<u64, Breach> {
    let payable = division.payable();
    let left = sum(amounts).and_then(|sum| payable.checked_sub(sum));
    let left = left.and_then(|left| u64::try_from(left).ok()).filter(|left| *left < division.kept.max(1));
    left.ok_or_else(|| Breach::Conservation(format!("shares rounded down do not fit into {payable} units")))
}
