//! The models of tools/models: a workspace of their own, because the crates they try are built there with features that
//! replace atomics and locks, or plant mistakes, and the node must never be built with these.

use crate::runner::{CommandLine, Session};
use crate::tree;
use anyhow::Result;

const MANIFEST: &str = "tools/models/Cargo.toml";

/// The tests of a package of models. They share the target folder with the main workspace, so that crates of others,
/// which both use with the same features, are built once.
pub fn models(session: &Session, package: &str) -> CommandLine {
    beside_the_main_workspace(session, &format!("cargo test --manifest-path {MANIFEST} -p {package}"))
}

/// The lints of the models. Together they have cells with both checkers, which is good enough to be checked.
pub fn clippy(session: &Session) -> CommandLine {
    let line = format!("cargo clippy --locked --manifest-path {MANIFEST} --workspace --all-targets -- -D warnings");
    beside_the_main_workspace(session, &line)
}

fn beside_the_main_workspace(session: &Session, line: &str) -> CommandLine {
    CommandLine::new(line).env("CARGO_TARGET_DIR", &tree::target_folder(&session.root).display().to_string())
}

/// Runs the models of a package; there must be some.
pub fn run(session: &mut Session, package: &str) -> Result<()> {
    let command = models(session, package);
    session.run_tests(&command)
}

#[cfg(test)]
mod tests;
