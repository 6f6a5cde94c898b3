//! The policy: what is weighed, what is paid out, and by which rules, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod check;
mod read;
mod weights;

#[cfg(test)]
mod tests;

pub use weights::integer_weights;

use crate::units::Units;

/// The version of the rules that this build knows.
pub const RULESET: u32 = 1;
/// Longest policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 1 << 20;
/// Longest name of a policy, an asset, a metric or a group, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Most assets of one policy.
pub const ASSETS_MAX: usize = 64;
/// Most groups of one asset.
pub const GROUPS_MAX: usize = 1024;
/// Most weights of one asset.
pub const WEIGHTS_MAX: usize = 1024;

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy: {place}: {reason}")]
pub struct PolicyError {
    /// Place in the document, such as `assets[0].weights.usage`; a dot stands for all of it.
    pub place: String,
    /// What is wrong there.
    pub reason: String,
}

/// A policy as it is written and signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Name of the policy.
    pub id: String,
    /// Version of the rules it is to be read by; this build knows 1.
    pub ruleset: u32,
    /// What is paid out.
    pub assets: Vec<AssetPolicy>,
    /// When payouts may leave by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseLimits>,
}

/// How one asset is divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetPolicy {
    /// Name of the asset.
    pub asset: String,
    /// Units to be paid out; given with the run if absent. With groups it is their sum, and may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Units>,
    /// A pool for each group of rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::groups")]
    pub groups: BTreeMap<String, Units>,
    /// Worth of one unit of each metric: a whole number or a ratio `3/7`.
    #[serde(deserialize_with = "read::weights")]
    pub weights: BTreeMap<String, Weight>,
    /// Most that one actor gets from one pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<Units>,
    /// Least that is paid: who would get less gets nothing, and the others share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Units>,
    /// What happens to fractions of a unit.
    #[serde(default)]
    pub rounding: Rounding,
    /// Who comes first among equals.
    #[serde(default)]
    pub ties: Ties,
}

/// A whole number or ratio above or equal to zero, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Weight {
    /// Above the line.
    pub numerator: u128,
    /// Below the line, never zero.
    pub denominator: u128,
}

/// What happens to fractions of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Everyone is rounded down; the units left over go to the largest remainders. The pool is met to the unit.
    #[default]
    LargestRemainder,
    /// Everyone is rounded down; what is left over is carried into the next epoch.
    FloorCarry,
    /// The divisor method of Webster: nobody loses a unit because the pool grew. The pool is met to the unit.
    Webster,
}

/// Who comes first among equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// Order by a hash of the run and the actor: another order in every epoch, which nobody can choose.
    #[default]
    Hash,
    /// Order by the bytes of the id: easy to follow by hand, and always in favour of the same actors.
    Id,
}

/// When payouts may leave without a person saying so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseLimits {
    /// Whether a person always has to say so.
    pub by_hand: bool,
    /// Most units of each asset in one epoch.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::totals")]
    pub total_max: BTreeMap<String, Units>,
    /// Most that one actor's amount may change against the last settled epoch, in percent of the amount there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_percent_max: Option<u32>,
    /// Most actors that the last settled epoch did not pay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_payees_max: Option<u64>,
}

impl Policy {
    /// The policy with these pools written into it, by asset: what a run was told on its command line becomes part of
    /// what is hashed.
    pub fn with_pools(&self, pools: &BTreeMap<String, u128>) -> Result<Policy, PolicyError> {
        let mut policy = self.clone();
        for (name, units) in pools {
            let asset = policy.assets.iter_mut().find(|asset| asset.asset == *name);
            let refuse = |reason: &str| PolicyError { place: format!("pool of `{name}`"), reason: reason.to_owned() };
            let asset = asset.ok_or_else(|| refuse("the policy has no such asset"))?;
            if !asset.groups.is_empty() {
                return Err(refuse("it is the sum of the pools of its groups, which the policy gives"));
            }
            asset.pool = Some(Units(*units));
        }
        policy.check()?;
        Ok(policy)
    }

    /// Whether every asset has a pool, so that the policy can be run.
    pub fn is_complete(&self) -> bool {
        self.assets.iter().all(|asset| asset.total_pool().is_some())
    }
}

impl AssetPolicy {
    /// Units that the policy gives out: the pool or the sum of the groups; none if the pool is given with the run.
    pub fn total_pool(&self) -> Option<u128> {
        if self.groups.is_empty() {
            return self.pool.map(|units| units.0);
        }
        self.groups.values().try_fold(0_u128, |sum, units| sum.checked_add(units.0))
    }
}

impl From<Weight> for String {
    fn from(weight: Weight) -> String {
        match weight.denominator {
            1 => weight.numerator.to_string(),
            denominator => format!("{}/{denominator}", weight.numerator),
        }
    }
}

impl TryFrom<String> for Weight {
    type Error = String;

    fn try_from(text: String) -> Result<Weight, String> {
        let (numerator, denominator) = text.split_once('/').unwrap_or((&text, "1"));
        let parse = |part: &str| part.parse::<Units>().map(|units| units.0).map_err(|error| error.to_string());
        let weight = Weight { numerator: parse(numerator)?, denominator: parse(denominator)? };
        if weight.denominator == 0 { Err(format!("`{text}` divides by zero")) } else { Ok(weight) }
    }
}
