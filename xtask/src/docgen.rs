//! Rewriting the generated documents: the golden test that compares them can also write them.

use crate::runner::{CommandLine, Session};
use anyhow::Result;

/// The test that writes the documents when the environment says so.
const WRITER: &str = "docs::generated_pages_are_what_the_code_declares";

/// Rewrites the documents and prints what changed.
pub fn run() -> Result<()> {
    let mut session = Session::new();
    let test = CommandLine::new(&format!("cargo test --workspace --test it -- --exact {WRITER}"));
    let written = session.run_tests(&test.env("MACRO_DOCGEN", "write"));
    session.run_line("git diff --stat -- docs")?;
    let new = CommandLine::new("git ls-files -o --exclude-standard -- docs").output(&session.root)?;
    new.lines().for_each(|path| println!(" {path} | new"));
    written
}
