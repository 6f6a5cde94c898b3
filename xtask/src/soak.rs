//! The complete proofs: the same checks as in `ci`, with far more of everything, and the known vulnerabilities.

use crate::audit;
use crate::ci::{self, Step, run_steps};
use crate::runner::Session;
use anyhow::Result;

const SIM: &str = "cargo run --release -p sim -- --seeds 1000000";

const STEPS: &[Step] = &[
    Step { name: "sim", about: "a million simulated lives of the supervisor", action: |s| s.run_line(SIM) },
    Step { name: "loom", about: "the atomics; exhaustive in ci already", action: |s| s.run_tests(&ci::loom()) },
    Step { name: "shuttle", about: "the kernel under many more schedules", action: shuttle },
    Step { name: "node", about: "the black-box tests, longer", action: node },
    Step { name: "audit", about: "known vulnerabilities", action: audit::check },
];

/// Runs everything; hours, not minutes.
pub fn run() -> Result<()> {
    run_steps(STEPS, &mut Session::new())
}

fn shuttle(session: &mut Session) -> Result<()> {
    session.run_tests(&ci::shuttle().env("SHUTTLE_ITERATIONS", "100000"))
}

fn node(session: &mut Session) -> Result<()> {
    let command = ci::test_command(session, "-p macronode", "soak").env("MACRO_SOAK", "1");
    session.run_tests(&command)
}
