//! Known vulnerabilities in the dependencies, from a local copy of the advisory database when there is one.

use crate::ci::cargo_tool;
use crate::runner::Session;
use anyhow::Result;

/// A checkout that several clones share; the only thing outside the clone that is ever looked at.
const SHARED_DATABASE: &str = "../shared/advisory-db";

/// Runs the audit by itself.
pub fn run() -> Result<()> {
    check(&mut Session::new())
}

/// Runs the audit as a step of a longer check.
pub fn check(session: &mut Session) -> Result<()> {
    cargo_tool(session, "audit", "cargo install cargo-audit --locked --debug")?;
    if session.root.join(SHARED_DATABASE).is_dir() {
        println!("advisories: the local copy in {SHARED_DATABASE}");
        return session.run_line(&format!("cargo audit --db {SHARED_DATABASE} --no-fetch --stale"));
    }
    println!("advisories: cargo-audit's own copy, fetched now");
    session.run_line("cargo audit")
}
