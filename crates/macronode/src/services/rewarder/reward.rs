//! `macronode reward`: runs, proofs and policies, with or without a node.

use clap::Subcommand;

use crate::commands::Report;
use crate::errors::Failure;

/// What to do with rewards.
#[derive(Debug, Subcommand)]
pub enum RewardCommand {}

/// Carries out a `reward` command.
pub fn reward(command: &RewardCommand) -> Result<Report, Failure> {
    match *command {}
}
