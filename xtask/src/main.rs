//! The chores of this repository as one command: `cargo xtask <tidy|layers|docgen|clients|ci|soak|coverage|audit>`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod audit;
mod ci;
mod clients;
mod coverage;
mod debian;
mod docgen;
mod finding;
mod layers;
mod runner;
mod sanitizers;
mod soak;
mod source;
mod tally;
mod tidy;
mod tree;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this repository")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// House style over every file that git knows
    Tidy,
    /// Dependency order of the crates
    Layers,
    /// Rewrite the generated documents and say what changed
    Docgen,
    /// Real SQS clients do a real job on a node
    Clients(clients::Options),
    /// The whole check, as on a fresh machine
    Ci(ci::Options),
    /// The complete proofs: hours, not minutes
    Soak,
    /// Lines and branches that the tests reach, by crate
    Coverage(coverage::Options),
    /// Known vulnerabilities in the dependencies
    Audit,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Tidy => tidy::run(),
        Chore::Layers => layers::run(),
        Chore::Docgen => docgen::run(),
        Chore::Clients(options) => clients::run(&options),
        Chore::Ci(options) => ci::run(&options),
        Chore::Soak => soak::run(),
        Chore::Coverage(options) => coverage::run(&options),
        Chore::Audit => audit::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
