//! Every integer of one actor's amount, or why it is zero.
//!
//! The numbers add up by themselves: quantity times weight gives points, points give the score, score times shared pool
//! over shared score gives floor and remainder, and the rounding says whether one unit was added.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::allocate::division::{Division, Standing};
use crate::allocate::plan::{self, AssetPlan, PoolPlan, SlotUse};
use crate::allocate::scores::{self, PoolScores};
use crate::allocate::ties::{TieOrder, tie_hash};
use crate::allocate::webster::Webster;
use crate::allocate::{AssetAllocation, Breach, Question};
use crate::parallel;
use crate::policy::Rounding;
use crate::units::Units;

/// How one actor's amounts came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The actor.
    pub actor: String,
    /// Hash (hex) that orders it among equals, where the policy does so by hash: the smallest comes first.
    pub tie_hash: String,
    /// One for each asset of the policy.
    pub assets: Vec<AssetExplanation>,
}

/// How one actor's amount of one asset came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetExplanation {
    /// Name of the asset.
    pub asset: String,
    /// Units the actor gets: the sum of what it gets from each pool; in a correction what it should have.
    pub amount: Units,
    /// What a correction does about it: pays and takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<CorrectedAmount>,
    /// Why that is zero, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_zero: Option<WhyZero>,
    /// The pools it has a part in.
    pub pools: Vec<PoolExplanation>,
    /// What it did that has no weight in this asset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<Uncounted>,
}

/// One actor in a correction: `paid_before + pay - take_back = amount + carried`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectedAmount {
    /// Units it was paid before.
    pub paid_before: Units,
    /// Units it is paid now: those that are proven.
    pub pay: Units,
    /// Units taken back from it now.
    pub take_back: Units,
    /// Units it has too much and keeps for now.
    pub carried: Units,
}

/// Why somebody gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyZero {
    /// No row names the actor.
    NotInUsage,
    /// Nothing that it did has a weight in this asset.
    ZeroWeight,
    /// All its quantities that have a weight are zero.
    ZeroQuantity,
    /// There is nothing to divide.
    EmptyPool,
    /// Its share is below the minimum.
    BelowMinimum,
    /// Its share is below one unit, and the units left over went to larger remainders.
    NoUnitsLeft,
}

/// A quantity that has no weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    /// Name of the metric.
    pub metric: String,
    /// Group of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Sum of the rows.
    pub quantity: Units,
}

/// What one metric is worth in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    /// Name of the metric.
    pub metric: String,
    /// Group of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Sum of the rows.
    pub quantity: Units,
    /// Points for one unit: the policy's weights, brought to whole numbers.
    pub weight: Units,
    /// Quantity times weight.
    pub points: Units,
}

/// How one actor's amount from one pool came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolExplanation {
    /// Group that the pool is for; none: for everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Units to divide, with what was carried in.
    pub pool: Units,
    /// Units of these that an earlier epoch left over.
    pub carried: Units,
    /// What the actor did.
    pub points: Vec<Points>,
    /// Sum of its points.
    pub score: Units,
    /// Sum of everyone's.
    pub total_score: Units,
    /// Actors with a score above zero.
    pub actors: u64,
    /// The minimum and what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<MinimumExplanation>,
    /// The cap and what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<CapExplanation>,
    /// Units shared by those who are paid and not capped.
    pub shared_pool: Units,
    /// Sum of their scores: the denominator of the remainder.
    pub shared_score: Units,
    /// Whole units of score times shared pool over shared score; the cap for whom it stops, zero for whom the minimum
    /// leaves out.
    pub floor: Units,
    /// What is left of that division: the numerator over `shared_score`.
    pub remainder: Units,
    /// How fractions became units.
    pub rounding: RoundingExplanation,
    /// Units from this pool.
    pub amount: Units,
    /// Why that is zero, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_zero: Option<WhyZero>,
}

/// What the minimum did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimumExplanation {
    /// Least that is paid.
    pub minimum: Units,
    /// Whether the actor is paid.
    pub is_kept: bool,
    /// Actors that are paid.
    pub kept_actors: u64,
    /// Sum of their scores.
    pub kept_score: Units,
}

/// What the cap did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapExplanation {
    /// Most that one actor gets.
    pub cap: Units,
    /// Whether the actor gets just that.
    pub is_capped: bool,
    /// Actors that get just that.
    pub capped_actors: u64,
}

/// How fractions became units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum RoundingExplanation {
    /// The units left over went to the largest remainders.
    LargestRemainder {
        /// Units left over after everyone was rounded down.
        left_over: Units,
        /// Place among the remainders, from 1; none for who does not share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u64>,
        /// Whether the actor got one of them: its rank is at most their number.
        plus_one: bool,
    },
    /// Fractions were carried into the next epoch.
    FloorCarry,
    /// Webster: the amount is `(2 * score * scale + total) / (2 * total)` rounded down, within the bounds, plus one for
    /// the largest claims; the total is that of the scores that are paid.
    Webster {
        /// The scale; none if everyone gets the cap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<String>,
        /// Units left over at this scale.
        left_over: Units,
        /// Place, from 1, among the claims of those whom the next scale gives one more; none for who is not among them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u64>,
        /// Whether the actor got one of the units left over: its rank is at most their number.
        plus_one: bool,
    },
}

/// Explains an actor, also one that has no rows. The allocations are those of the question.
pub fn explain(question: &Question<'_>, allocations: &[AssetAllocation], actor: &str) -> Result<Explanation, Breach> {
    parallel::with_threads(question.threads, || {
        let place = question.totals.roster().find(actor);
        let plans = plan::plans(question)?;
        let explained = plans.iter().map(|plan| explain_asset(question, plan, allocations, place));
        let tie_hash = tie_hash(question.run_key, actor).to_hex().to_string();
        Ok(Explanation { actor: actor.to_owned(), tie_hash, assets: explained.collect::<Result<_, _>>()? })
    })
}

fn explain_asset(
    question: &Question<'_>,
    plan: &AssetPlan<'_>,
    allocations: &[AssetAllocation],
    place: Option<usize>,
) -> Result<AssetExplanation, Breach> {
    let asset = plan.policy.asset.clone();
    let Some(place) = place else {
        let why_zero = Some(WhyZero::NotInUsage);
        let (amount, correction, pools, uncounted) = (Units(0), None, Vec::new(), Vec::new());
        return Ok(AssetExplanation { asset, amount, correction, why_zero, pools, uncounted });
    };
    let ties = TieOrder::new(question, plan.policy.ties);
    let mut pools = Vec::new();
    for (index, scores) in scores::of_pools(question.totals, plan)?.into_iter().enumerate() {
        let points = points(question, plan, place, index);
        if !points.is_empty() {
            let division = Division::of(plan, &plan.pools[index], &scores.scores)?;
            let viewed = View { division: &division, ties: &ties, scores: &scores, place };
            pools.push(viewed.explain(plan, &plan.pools[index], points));
        }
    }
    let allocated = allocations.iter().find(|allocation| allocation.asset == asset);
    let amount = allocated.and_then(|allocation| allocation.amounts.get(place)).copied().unwrap_or(0);
    let why_zero = (amount == 0).then(|| why_zero(&pools));
    let (amount, correction, uncounted) = (Units(amount), None, uncounted(question, plan, place));
    Ok(AssetExplanation { asset, amount, correction, why_zero, pools, uncounted })
}

/// The reason that came nearest to a payout.
fn why_zero(pools: &[PoolExplanation]) -> WhyZero {
    let order = [WhyZero::NoUnitsLeft, WhyZero::BelowMinimum, WhyZero::EmptyPool, WhyZero::ZeroQuantity];
    let is_there = |reason: &WhyZero| pools.iter().any(|pool| pool.why_zero == Some(*reason));
    order.into_iter().find(is_there).unwrap_or(WhyZero::ZeroWeight)
}

fn points(question: &Question<'_>, plan: &AssetPlan<'_>, place: usize, pool: usize) -> Vec<Points> {
    let entries = question.totals.entries(place);
    let counted = entries.filter_map(|(slot, total)| match plan.slots[usize::from(slot)] {
        SlotUse::Counts { weight, pool: of } if of == pool => {
            let slot = &question.totals.slots()[usize::from(slot)];
            // The scores were computed before, so no product leaves 128 bits.
            let points = Units(weight.wrapping_mul(total));
            let (metric, group) = (slot.metric.clone(), slot.group.clone());
            Some(Points { metric, group, quantity: Units(total), weight: Units(weight), points })
        }
        _ => None,
    });
    counted.collect()
}

fn uncounted(question: &Question<'_>, plan: &AssetPlan<'_>, place: usize) -> Vec<Uncounted> {
    let entries = question.totals.entries(place);
    let weightless = entries.filter(|(slot, _)| plan.slots[usize::from(*slot)] == SlotUse::Weightless);
    let told = weightless.map(|(slot, total)| {
        let slot = &question.totals.slots()[usize::from(slot)];
        Uncounted { metric: slot.metric.clone(), group: slot.group.clone(), quantity: Units(total) }
    });
    told.collect()
}

/// One actor in one pool.
struct View<'a> {
    division: &'a Division,
    ties: &'a TieOrder<'a>,
    scores: &'a PoolScores,
    place: usize,
}

impl View<'_> {
    fn explain(&self, plan: &AssetPlan<'_>, planned: &PoolPlan, points: Vec<Points>) -> PoolExplanation {
        let division = self.division;
        let score = self.scores.actors.index(self.place).map_or(0, |index| self.scores.scores[index]);
        let standing = division.standing(score);
        let (floor, remainder) = division.floor(score);
        let (rounding, amount) = match plan.policy.rounding {
            Rounding::FloorCarry => (RoundingExplanation::FloorCarry, floor),
            Rounding::LargestRemainder => self.largest_remainder(score),
            Rounding::Webster => self.webster(score),
        };
        let minimum = plan.policy.minimum.map(|minimum| MinimumExplanation {
            minimum,
            is_kept: matches!(standing, Standing::Capped | Standing::Shares),
            kept_actors: division.kept,
            kept_score: Units(division.kept_score),
        });
        let cap = plan.policy.cap.map(|cap| CapExplanation {
            cap,
            is_capped: standing == Standing::Capped,
            capped_actors: division.capped,
        });
        PoolExplanation {
            group: planned.group.clone(),
            pool: Units(planned.units),
            carried: Units(planned.carried),
            points,
            score: Units(score),
            total_score: Units(division.total_score),
            actors: division.actors,
            minimum,
            cap,
            shared_pool: Units(division.shared_pool),
            shared_score: Units(division.shared_score),
            floor: Units(floor),
            remainder: Units(remainder),
            rounding,
            amount: Units(amount),
            why_zero: (amount == 0).then(|| why_nothing(planned, standing)),
        }
    }

    fn largest_remainder(&self, score: u128) -> (RoundingExplanation, u128) {
        let division = self.division;
        let (floor, remainder) = division.floor(score);
        let floors = self.scores.scores.par_iter().map(|other| division.floor(*other).0);
        let left_over = division.payable() - floors.sum::<u128>();
        let shares = |other: u128| division.standing(other) == Standing::Shares;
        let rank =
            shares(score).then(|| self.rank(|other| shares(other).then(|| remainder.cmp(&division.floor(other).1))));
        let plus_one = rank.is_some_and(|rank| u128::from(rank) <= left_over);
        let explained = RoundingExplanation::LargestRemainder { left_over: Units(left_over), rank, plus_one };
        (explained, floor + u128::from(plus_one))
    }

    fn webster(&self, score: u128) -> (RoundingExplanation, u128) {
        let webster = Webster::solve(self.division, &self.scores.scores);
        let is_next = |other: u128| webster.left > 0 && webster.is_next(other);
        let rank =
            is_next(score).then(|| self.rank(|other| is_next(other).then(|| webster.compare_claims(other, score))));
        let plus_one = rank.is_some_and(|rank| u128::from(rank) <= webster.left);
        let scale = webster.scale().map(|scale| scale.to_string());
        let explained = RoundingExplanation::Webster { scale, left_over: Units(webster.left), rank, plus_one };
        (explained, webster.amount(score) + u128::from(plus_one))
    }

    /// Place from 1: how many come before, by this comparison of their scores with the actor's and then by the order of
    /// equals. `Less` says that the other comes first; none that it does not take part.
    fn rank(&self, compare: impl Fn(u128) -> Option<std::cmp::Ordering> + Sync) -> u64 {
        let mine = (self.ties.prefix(self.place), self.place);
        let is_before = |(index, score): &(usize, &u128)| {
            let other = self.scores.actors.place(*index);
            let by_ties =
                || self.ties.prefix(other).cmp(&mine.0).then_with(|| self.ties.compare_rest(other, mine.1)).is_lt();
            match compare(**score) {
                Some(std::cmp::Ordering::Less) => true,
                Some(std::cmp::Ordering::Equal) => by_ties(),
                Some(std::cmp::Ordering::Greater) | None => false,
            }
        };
        self.scores.scores.par_iter().enumerate().filter(is_before).count() as u64 + 1
    }
}

fn why_nothing(planned: &PoolPlan, standing: Standing) -> WhyZero {
    match standing {
        _ if planned.units == 0 => WhyZero::EmptyPool,
        Standing::Nothing => WhyZero::ZeroQuantity,
        Standing::BelowMinimum => WhyZero::BelowMinimum,
        Standing::Capped | Standing::Shares => WhyZero::NoUnitsLeft,
    }
}
