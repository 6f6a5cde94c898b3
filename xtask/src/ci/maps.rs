//! The generated map under Mermaid's own parser: what does not parse there is shown to nobody as a picture.

use crate::clients::{Unready, npm_packages};
use crate::runner::{CommandLine, Session};
use anyhow::{Context, Result, bail};

const SOURCES: &str = "tests/mermaid";
const HOME: &str = "target/mermaid";
/// The documents with maps, from the folder where the parser is installed.
const DOCUMENTS: [&str; 1] = ["../../docs/concurrency.md"];

/// First the check itself on planted mistakes, then the documents.
pub fn check(session: &mut Session) -> Result<()> {
    let home = session.root.join(HOME);
    match npm_packages(&session.root.join(SOURCES), &home) {
        Ok(()) => {}
        Err(Unready::NotInstalled(reason)) => bail!("Mermaid could not be installed: {reason}"),
        Err(Unready::Broken(error)) => return Err(error),
    }
    let command = CommandLine::new(&format!("node check.mjs --self-test {}", DOCUMENTS.join(" ")));
    let outcome = command.run(&home)?;
    match outcome.code {
        Some(0) => Ok(()),
        _ => Err(anyhow::anyhow!("{command}")).context("a map does not parse, or the check does not find mistakes"),
    }
}
