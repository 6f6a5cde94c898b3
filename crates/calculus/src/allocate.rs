//! Who gets how much.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::totals::Totals;

/// Everything that an allocation follows from.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The policy, with every pool filled in.
    pub policy: &'a Policy,
    /// What everyone did.
    pub totals: &'a Totals,
    /// Key of the run, which orders equals.
    pub run_key: &'a [u8; 32],
    /// Units of each asset left over by an earlier epoch, added to its pool.
    pub carry: &'a BTreeMap<String, u128>,
    /// Threads to use; the answer does not depend on it.
    pub threads: usize,
}

/// The amounts of one asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetAllocation {
    /// Name of the asset.
    pub asset: String,
    /// Units that were to be paid out, with what was carried in.
    pub pool: u128,
    /// Units paid out: the sum of the amounts.
    pub paid: u128,
    /// Amount of each actor, in the order of the roster.
    pub amounts: Vec<u128>,
}

/// Why there is no allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A number left its range.
    #[error("overflow: {0}")]
    Overflow(String),
    /// More would be paid than there is.
    #[error("conservation: {0}")]
    Conservation(String),
    /// The usage does not fit the policy, or two ids are the same payee.
    #[error("schema: {0}")]
    Schema(String),
}

/// Divides every pool of the policy.
pub fn allocate(_question: &Question<'_>) -> Result<Vec<AssetAllocation>, Breach> {
    unimplemented!()
}
