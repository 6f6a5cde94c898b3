//! Rewriting the generated documents: the golden test that compares them can also write them.

use crate::runner::{CommandLine, Session};
use anyhow::Result;

/// Rewrites the documents and prints what changed.
pub fn run() -> Result<()> {
    let mut session = Session::new();
    let written = session.run(&CommandLine::new("cargo test -p macronode --test docs").env("MACRO_DOCGEN", "write"));
    session.run_line("git diff --stat -- docs")?;
    let new = CommandLine::new("git ls-files -o --exclude-standard -- docs").output(&session.root)?;
    new.lines().for_each(|path| println!(" {path} | new"));
    written
}
