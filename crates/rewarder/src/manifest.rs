//! `run.json`: everything about a run that a payee, an auditor or the next run needs to know, and its one hash.
//!
//! The file is canonical JSON (RFC 8785). Its **commitment** is the BLAKE3 hash of its bytes: whoever knows the
//! commitment can check the manifest with `b3sum run.json`, then every artifact and input by the hashes in it. There is
//! no wall clock, no path and no machine in it: the same inputs give the same bytes, however their files are called.

use std::collections::BTreeMap;

use ron_calculus::Units;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{CanonicalError, to_canonical};
use crate::epoch::EpochId;
use crate::keys::PublicKey;

/// Version of the manifest's format, and with it of the way in which a commitment is computed: names of inputs are not
/// part of it, and an envelope is hashed in its canonical form.
pub const FORMAT: u32 = 2;
/// The version before, in which names of inputs and the spelling of an envelope were part of the commitment. Its runs
/// are read, verified, paid and corrected; none is made.
pub const FORMAT_WITH_NAMES: u32 = 1;
/// Longest manifest that is read, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// What a run was made from and came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Name of the epoch.
    pub epoch: EpochId,
    /// Key of the run: it orders equals and identifies payouts.
    pub run_key: String,
    /// How the run ended.
    pub status: RunStatus,
    /// Why it is in quarantine.
    pub reason: Option<String>,
    /// Version of the rules it was computed by.
    pub ruleset: u32,
    /// The policy in force.
    pub policy: PolicyFacts,
    /// The files of usage, sorted by hash.
    pub inputs: Vec<InputFacts>,
    /// Hash of what the files say, however they are split, ordered and packed.
    pub content: String,
    /// Rows in all files.
    pub rows: u64,
    /// Actors in all files.
    pub actors: u64,
    /// Units added to the pools from an earlier epoch.
    pub carry: BTreeMap<String, Units>,
    /// Commitment of the run they come from.
    pub carry_from: Option<String>,
    /// What was divided, by asset in the policy's order; nothing in quarantine.
    pub assets: Vec<AssetFacts>,
    /// Hash of each file beside this one.
    pub artifacts: BTreeMap<String, String>,
    /// Payouts that follow from this run.
    pub intents: Vec<IntentFacts>,
    /// The run that this one corrects.
    pub corrects: Option<CorrectsFacts>,
    /// Place for a proof of the whole computation.
    pub proof: Option<Value>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The pools are divided.
    Computed,
    /// An invariant did not hold: nothing is ever paid.
    Quarantined,
}

/// The policy in force, and who stands behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFacts {
    /// Name of the policy.
    pub id: String,
    /// Hash of its canonical JSON, with the pools of this run written in.
    pub hash: String,
    /// Whether trusted keys have signed it.
    pub signed: bool,
    /// The keys that did, sorted.
    pub signers: Vec<PublicKey>,
    /// Pools that were given with the run, in place of the signed policy's.
    pub pools_overridden: BTreeMap<String, Units>,
}

/// One file of usage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFacts {
    /// Hash of its bytes.
    pub b3: String,
    /// Name as it was given; in a manifest only where its format has names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Length in bytes.
    pub bytes: u64,
}

/// What became of one asset's pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetFacts {
    /// Name of the asset.
    pub asset: String,
    /// Units to be paid out, with what was carried in.
    pub pool: Units,
    /// Units paid out.
    pub paid: Units,
    /// Units left over: pool minus paid.
    pub delta: Units,
    /// Actors that are paid.
    pub payees: u64,
    /// Roots of the trees over the amounts.
    pub roots: Roots,
    /// Sum in the root of the sum tree: every provable payout is counted in it.
    pub provable: Units,
}

/// Roots of the trees over the amounts of one asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roots {
    /// OpenZeppelin's `standard-v1`; none if nobody is paid.
    pub oz: Option<String>,
    /// The BLAKE3 sum tree.
    pub sum: String,
}

/// Payouts of one asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentFacts {
    /// Name of the asset.
    pub asset: String,
    /// Number of payouts.
    pub count: u64,
    /// Units from the pot to payees.
    pub paid: Units,
    /// Units from payees back to the pot.
    pub taken_back: Units,
}

/// The run that a correction corrects, and how far. It may be a correction itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrectsFacts {
    /// Its epoch.
    pub epoch: EpochId,
    /// Key of the first run of the chain, which orders equals here as it did there.
    pub run_key: String,
    /// Its commitment.
    pub commitment: String,
    /// Most units that are taken back from one actor; none: whatever it was paid.
    pub clawback_max: Option<Units>,
    /// Whether it pays out what the corrected run left over, which no epoch may carry in then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_left_over: bool,
    /// Units that it leaves alone: what it and the runs before it left over, for other epochs to carry in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reserved: BTreeMap<String, Units>,
    /// How it comes out, by asset.
    pub assets: Vec<CorrectedFacts>,
}

/// How a correction comes out in one asset: `paid_before + pay - take_back = entitled + carried`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrectedFacts {
    /// Name of the asset.
    pub asset: String,
    /// Units that should have been paid.
    pub entitled: Units,
    /// Units that were paid.
    pub paid_before: Units,
    /// Units paid now.
    pub pay: Units,
    /// Units taken back now.
    pub take_back: Units,
    /// Units overpaid and not taken back: a correction of this one finds them as paid, and may take them back.
    pub carried: Units,
    /// Units that are nobody's now, for the next epoch to carry in: the pool minus what is reserved, entitled and
    /// carried.
    #[serde(default, skip_serializing_if = "Units::is_zero")]
    pub left_over: Units,
}

impl InputFacts {
    /// The same without its name, which follows from no content.
    #[must_use]
    pub fn nameless(&self) -> InputFacts {
        InputFacts { name: None, ..self.clone() }
    }
}

impl Manifest {
    /// The bytes of `run.json`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CanonicalError> {
        to_canonical(self)
    }

    /// Whether it is of a format that this version reads, and has names exactly where that format has them.
    pub fn is_readable(&self) -> bool {
        let has_names = self.format == FORMAT_WITH_NAMES;
        let is_known = has_names || self.format == FORMAT;
        is_known && self.inputs.iter().all(|facts| facts.name.is_some() == has_names)
    }

    /// Units left over, for the next epoch to carry in.
    pub fn left_over(&self) -> BTreeMap<String, Units> {
        let mut left: BTreeMap<String, Units> = match &self.corrects {
            Some(corrects) => corrects.assets.iter().map(|facts| (facts.asset.clone(), facts.left_over)).collect(),
            None => self.assets.iter().map(|facts| (facts.asset.clone(), facts.delta)).collect(),
        };
        left.retain(|_, units| units.0 > 0);
        left
    }

    /// Facts of one asset.
    pub fn asset(&self, name: &str) -> Option<&AssetFacts> {
        self.assets.iter().find(|facts| facts.asset == name)
    }
}

/// The commitment of a manifest: the hash of its bytes.
pub fn commitment(manifest_bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(manifest_bytes).as_bytes()
}
