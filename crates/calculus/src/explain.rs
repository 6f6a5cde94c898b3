//! Every integer of one actor's amount, or why it is zero.

use serde::{Deserialize, Serialize};

use crate::allocate::{AssetAllocation, Question};
use crate::units::Units;

/// How one actor's amounts came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The actor.
    pub actor: String,
    /// One for each asset of the policy.
    pub assets: Vec<AssetExplanation>,
}

/// How one actor's amount of one asset came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetExplanation {
    /// Name of the asset.
    pub asset: String,
    /// Units the actor gets.
    pub amount: Units,
}

/// Explains an actor, also one that has no rows.
pub fn explain(_question: &Question<'_>, _allocations: &[AssetAllocation], _actor: &str) -> Explanation {
    unimplemented!()
}
