//! The generated map under Mermaid's own parser: what does not parse there is shown to nobody as a picture.

use crate::clients::{Unready, npm_packages};
use crate::runner::{CommandLine, Session};
use crate::tree;
use anyhow::{Context, Result, bail};

const SOURCES: &str = "tests/mermaid";
/// Where the parser is installed, in the target folder.
const HOME: &str = "mermaid";
/// The documents with maps.
const DOCUMENTS: [&str; 1] = ["docs/concurrency.md"];

/// First the check itself on planted mistakes, then the documents.
pub fn check(session: &mut Session) -> Result<()> {
    let home = tree::target_folder(&session.root).join(HOME);
    match npm_packages(&session.root.join(SOURCES), &home) {
        Ok(()) => {}
        Err(Unready::NotInstalled(reason)) => bail!("Mermaid could not be installed: {reason}"),
        Err(Unready::Broken(error)) => return Err(error),
    }
    let documents = DOCUMENTS.iter().map(|document| session.root.join(document).display().to_string());
    let command =
        documents.fold(CommandLine::new("node check.mjs --self-test"), |command, document| command.arg(&document));
    let outcome = command.run(&home)?;
    match outcome.code {
        Some(0) => Ok(()),
        _ => Err(anyhow::anyhow!("{command}")).context("a map does not parse, or the check does not find mistakes"),
    }
}
