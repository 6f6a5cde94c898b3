//! macronode: one binary that composes the services and supervises them on one kernel.
//!
//! The story of one life is in `run.rs`; the services are the list in `services.rs`; what the node itself has is
//! declared in `specs.rs`.

mod adapters;
mod banner;
mod capability_refresher;
mod cli;
mod client;
mod commands;
mod config;
mod config_watch;
mod data_dir;
mod descriptors;
pub mod docs;
mod doctor;
mod dumps;
mod errors;
mod health;
mod ingress;
mod listeners;
mod logging;
mod planes;
mod run;
pub mod services;
mod signals;
mod specs;
mod work;

use std::ffi::OsString;

use errors::{Exit, Failure};

/// Does what the command line says; what went wrong has been printed.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match cli::parse(arguments) {
        Ok(command) => commands::dispatch(command, start),
        Err(exit) => exit,
    }
}

/// The same with services beside those of the binary, for the test of the recipe for services.
#[doc(hidden)]
pub fn main_with_guests(
    guests: &'static [&'static dyn services::Service],
    arguments: impl IntoIterator<Item = OsString>,
) -> Exit {
    services::add_guests(guests);
    main(arguments)
}

fn start(flags: &cli::RunArgs) -> Result<Exit, Failure> {
    let mut sources = flags.sources();
    let loaded = config::load(&sources)?;
    // A file that was there once must be there at every reload: between an unlink and a rename it is a bad edit.
    sources.explicit_file |= loaded.file.is_some();
    run::run(sources, loaded)
}
