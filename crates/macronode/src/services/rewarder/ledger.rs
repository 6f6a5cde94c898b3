//! `macronode ledger`: the embedded book, read with or without a node.

use clap::Subcommand;

use crate::commands::Report;
use crate::errors::Failure;

/// What to do with the embedded ledger.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {}

/// Carries out a `ledger` command.
pub fn ledger(command: &LedgerCommand) -> Result<Report, Failure> {
    match *command {}
}
