//! What can be asked of `macronode reward`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ron_calculus::Units;
use svc_rewarder::{EpochId, ProofFormat};

use super::super::usage::UsageCommand;
use crate::cli::ApiArgs;

/// What to do with rewards.
#[derive(Debug, Subcommand)]
pub enum RewardCommand {
    /// Divide the pools of an epoch and write the run: amounts, roots, manifest. Needs no node.
    Run(RunArgs),
    /// Compute a run again from its folder and compare every byte; exits with 70 if anything differs.
    Verify(VerifyArgs),
    /// Print the proof of one actor's payout, or that there is none.
    Proof(ProofArgs),
    /// Print a proof for every payout, one JSON object in each line.
    Proofs(ProofsArgs),
    /// Show every integer of one actor's amounts, or why they are zero.
    Explain(ExplainArgs),
    /// Compare two runs, actor by actor, with the cause of each change.
    Diff(DiffArgs),
    /// Try a draft policy on the usage of a run; writes nothing.
    Whatif(WhatifArgs),
    /// Write a correction of a run, or of its last correction: what should have been paid minus what was.
    Correct(CorrectArgs),
    /// Sign a correction, so that a node that asks for signatures pays it.
    Sign(SignRunArgs),
    /// Let a node pay out a run that waits for a person; a correction in a folder is brought to the node first.
    Release(ReleaseArgs),
    /// Have a node never pay a run that waits for a person, so that the right one can be made under its name.
    Reject(RejectArgs),
    /// Have a node remove the artifacts of settled epochs to make room; what was paid stays in the ledger.
    Prune(PruneArgs),
    /// Make, sign and check policies, and the keys that sign them.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show and seal what a running node did for whom.
    #[command(subcommand)]
    Usage(UsageCommand),
}

/// Whose policy it is, and what it may cost to run it.
#[derive(Args, Debug)]
pub struct OrderArgs {
    /// Units of an asset to divide, in place of the policy's pool; may be repeated
    #[arg(long = "pool", value_name = "ASSET=UNITS", value_parser = pool)]
    pub pools: Vec<(String, Units)>,
    /// The trusted keys that must have signed the policy: {"threshold":1,"keys":["ed25519:…"]}
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Run a policy that nobody has signed; the manifest says so
    #[arg(long)]
    pub unsigned: bool,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// What a run may cost.
#[derive(Args, Debug)]
pub struct CostArgs {
    /// Threads to use; the result does not depend on it [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Memory for reading and adding up, as in 512MiB or 2GiB; what does not fit is spilled to the temporary folder
    #[arg(long, value_name = "BYTES", default_value = "2GiB", value_parser = memory)]
    pub memory: u64,
}

/// What to run.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The name of the epoch: A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "ID")]
    pub epoch: EpochId,
    /// Usage as CSV, NDJSON or Parquet, also gzip or zstd: actor, quantity, and if need be metric, group, asset
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub usage: Vec<PathBuf>,
    /// The policy, bare or in a signed envelope
    #[arg(long, value_name = "FILE")]
    pub policy: PathBuf,
    /// The folder to write the run to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Add what this earlier run left over to the pools
    #[arg(long, value_name = "DIR")]
    pub carry_from: Option<PathBuf>,
    /// Also draw the distribution as an SVG
    #[arg(long)]
    pub plot: bool,
    /// Print the manifest as JSON
    #[arg(long)]
    pub json: bool,
    /// Whose policy, at what cost.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// What to verify.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The folder of the run
    pub dir: PathBuf,
    /// The usage files it was made from, to be read again too
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub usage: Vec<PathBuf>,
    /// The trusted keys that must have signed the policy
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// The folder of the run that it corrects; needed for a correction of an older version that carries units in
    #[arg(long, value_name = "DIR")]
    pub corrects: Option<PathBuf>,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Whose proof.
#[derive(Args, Debug)]
pub struct ProofArgs {
    /// The folder of the run
    pub dir: PathBuf,
    /// The actor, exactly as in the usage
    pub actor: String,
    /// oz for contracts and wallets (OpenZeppelin), sum to be shown that the payout is counted in the total
    #[arg(long, value_name = "FORMAT", default_value = "oz")]
    pub format: ProofFormat,
    /// Only this asset
    #[arg(long, value_name = "ASSET")]
    pub asset: Option<String>,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// Which proofs.
#[derive(Args, Debug)]
pub struct ProofsArgs {
    /// The folder of the run
    pub dir: PathBuf,
    /// oz for contracts and wallets (OpenZeppelin), sum to be shown that the payouts are counted in the total
    #[arg(long, value_name = "FORMAT", default_value = "oz")]
    pub format: ProofFormat,
    /// Only this asset
    #[arg(long, value_name = "ASSET")]
    pub asset: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// Whose amounts to explain.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The folder of the run
    pub dir: PathBuf,
    /// The actor, exactly as in the usage
    pub actor: String,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How much of a difference to show.
#[derive(Args, Debug)]
pub struct ChangesArgs {
    /// Actors to list for each asset, largest change first
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub top: u32,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which runs to compare.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The folder of the run to compare with
    pub from: PathBuf,
    /// The folder of the other run
    pub to: PathBuf,
    /// How much to show.
    #[command(flatten)]
    pub changes: ChangesArgs,
}

/// Which draft to try.
#[derive(Args, Debug)]
pub struct WhatifArgs {
    /// The folder of the run whose usage is taken
    pub dir: PathBuf,
    /// The draft policy, signed or not [default: the run's own]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Units of an asset to divide; may be repeated
    #[arg(long = "pool", value_name = "ASSET=UNITS", value_parser = pool)]
    pub pools: Vec<(String, Units)>,
    /// How much to show.
    #[command(flatten)]
    pub changes: ChangesArgs,
}

/// What to correct.
#[derive(Args, Debug)]
pub struct CorrectArgs {
    /// The folder of the run that was paid
    pub dir: PathBuf,
    /// The name of the correction's own epoch
    #[arg(long, value_name = "ID")]
    pub epoch: EpochId,
    /// The usage as it should have been [default: the run's own]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub usage: Vec<PathBuf>,
    /// The policy as it should have been, bare or in a signed envelope [default: the run's own]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// The folder to write the correction to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Units of each asset that are taken back from one actor at most [default: whatever was overpaid]
    #[arg(long, value_name = "UNITS")]
    pub clawback_max: Option<Units>,
    /// Also pay out what the run left over: no epoch has carried it in, and none will
    #[arg(long)]
    pub take_left_over: bool,
    /// Print the manifest as JSON
    #[arg(long)]
    pub json: bool,
    /// Whose policy, at what cost.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// Which held epoch to reject, and why.
#[derive(Args, Debug)]
pub struct RejectArgs {
    /// The epoch
    pub epoch: EpochId,
    /// Why, for those who look at the epoch later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whose artifacts to remove.
#[derive(Args, Debug)]
pub struct PruneArgs {
    /// The epochs
    #[arg(value_name = "EPOCH", num_args = 1.., required = true)]
    pub epochs: Vec<EpochId>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which correction to sign.
#[derive(Args, Debug)]
pub struct SignRunArgs {
    /// The folder of the correction
    pub dir: PathBuf,
    /// The folder of the run that it corrects; needed for a correction of an older version that carries units in
    #[arg(long, value_name = "DIR")]
    pub corrects: Option<PathBuf>,
    /// The private key (PEM, PKCS#8); `policy key` makes one
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// What it may cost.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// What to release.
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    /// The epoch, or the folder of its run
    pub epoch: String,
    /// Also release an epoch that was quarantined by its ledger or by damaged files, once that is mended; payouts that
    /// are booked are not booked again
    #[arg(long)]
    pub lift_quarantine: bool,
    /// Bring a correction that nobody has signed; the node must take such
    #[arg(long)]
    pub unsigned: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print a new policy to start from.
    New(NewPolicyArgs),
    /// Sign a policy; an envelope that others have signed gets one more signature.
    Sign(SignArgs),
    /// Check a policy, and its signatures if there are keys to check them with.
    Check(CheckArgs),
    /// Make a key that signs policies, or show the public half of one that is there.
    Key(KeyArgs),
}

/// What the policy starts with.
#[derive(Args, Debug)]
pub struct NewPolicyArgs {
    /// The name of the policy
    #[arg(long, value_name = "NAME", default_value = "demo")]
    pub id: String,
    /// The asset that is paid
    #[arg(long, value_name = "ASSET", default_value = "RON")]
    pub asset: String,
    /// Units of it to divide, in its smallest unit
    #[arg(long, value_name = "UNITS", default_value = "1000000")]
    pub pool: Units,
    /// Worth of one unit of a metric, a whole number or a ratio; may be repeated [default: usage=1]
    #[arg(long = "weight", value_name = "METRIC=N", value_parser = weight)]
    pub weights: Vec<(String, String)>,
    /// Write to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to sign.
#[derive(Args, Debug)]
pub struct SignArgs {
    /// The policy, or an envelope that others have signed
    pub file: PathBuf,
    /// The private key (PEM, PKCS#8); `policy key` makes one
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Write the envelope to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The policy, bare or in an envelope
    pub file: PathBuf,
    /// The trusted keys that must have signed it
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which key.
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// The file of the private key; made, readable by you alone, if it is not there
    pub file: PathBuf,
    /// Add the public half to this list of trusted keys; made with a threshold of 1 if it is not there
    #[arg(long, value_name = "FILE")]
    pub trust: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// An asset and a number of units.
fn pool(text: &str) -> Result<(String, Units), String> {
    let (asset, units) = text.split_once('=').ok_or("write it as ASSET=UNITS, as in RON=1000000")?;
    Ok((asset.to_owned(), units.parse().map_err(|error: ron_calculus::units::NotUnits| error.to_string())?))
}

fn weight(text: &str) -> Result<(String, String), String> {
    let (metric, weight) = text.split_once('=').ok_or("write it as METRIC=N, as in usage=1 or bytes=3/7")?;
    Ok((metric.to_owned(), weight.to_owned()))
}

/// A number of bytes, perhaps with a unit.
fn memory(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        unit => return Err(format!("`{unit}` is no unit of memory; there are KiB, MiB and GiB")),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(scale));
    bytes.filter(|bytes| *bytes >= MEMORY_MIN).ok_or_else(|| "a number of bytes from 16MiB on, as in 2GiB".to_owned())
}

/// Less would not hold the buffers that reading needs.
const MEMORY_MIN: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read() {
        assert_eq!(pool("RON=5"), Ok(("RON".to_owned(), Units(5))));
        assert!(pool("RON").is_err() && pool("RON=-5").is_err() && pool("RON=1.5").is_err());
        assert_eq!(memory("64MiB"), Ok(64 << 20));
        assert_eq!(memory("2G"), Ok(2 << 30));
        for wrong in ["", "1", "2GB", "-1GiB", "99999999999GiB"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
