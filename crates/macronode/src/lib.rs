//! macronode: one binary that composes the services and supervises them on one kernel.
//!
//! The story of one life is in `run.rs`; what exists is declared in `specs.rs`.

mod adapters;
mod banner;
mod cli;
// mod client;
// mod commands;
mod config;
mod config_watch;
mod data_dir;
pub mod docs;
// mod doctor;
mod errors;
mod health;
mod ingress;
mod listeners;
mod logging;
mod run;
mod specs;
mod work;

use std::ffi::OsString;

use cli::Command;
use errors::{Code, Exit, Failure};

/// Does what the command line says; everything that went wrong has been printed.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let command = match cli::parse(arguments) {
        Ok(command) => command,
        Err(exit) => return exit,
    };
    let done = match command {
        Command::Run(flags) => start(&flags),
        other => Err(Failure::new(Code::CannotStart, format!("{other:?}"))),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("macronode: {failure}");
        failure.code.exit()
    })
}

fn start(flags: &cli::RunArgs) -> Result<Exit, Failure> {
    let sources = flags.sources();
    let loaded = config::load(&sources).map_err(|errors| Failure::new(errors.0[0].code(), errors.to_string()))?;
    run::run(sources, loaded)
}
