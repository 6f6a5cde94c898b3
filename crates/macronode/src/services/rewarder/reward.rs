//! `macronode reward`: runs, proofs and policies, with or without a node.

mod args;
mod changes;
mod folders;
mod policy;
mod progress;
mod proofs;
mod release;
mod run;
mod show;
mod sign;
mod verify;

pub use args::RewardCommand;

use super::usage;
use crate::commands::{Report, wait};
use crate::errors::Failure;

/// Carries out a `reward` command.
pub fn reward(command: &RewardCommand) -> Result<Report, Failure> {
    match command {
        RewardCommand::Run(args) => run::run(args),
        RewardCommand::Verify(args) => verify::verify(args),
        RewardCommand::Proof(args) => proofs::proof(args),
        RewardCommand::Proofs(args) => proofs::proofs(args),
        RewardCommand::Explain(args) => show::explain(args),
        RewardCommand::Diff(args) => changes::diff(args),
        RewardCommand::Whatif(args) => changes::whatif(args),
        RewardCommand::Correct(args) => run::correct(args),
        RewardCommand::Reject(args) => wait(release::reject(args)),
        RewardCommand::Prune(args) => wait(release::prune(args)),
        RewardCommand::Sign(args) => sign::sign(args),
        RewardCommand::Release(args) => wait(release::release(args)),
        RewardCommand::Policy(command) => policy::policy(command),
        RewardCommand::Usage(command) => wait(usage::usage(command)),
    }
}
