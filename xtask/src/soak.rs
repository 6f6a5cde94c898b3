//! The complete proofs: the same checks as in `ci`, with far more of everything, and the known vulnerabilities.

use crate::ci::{self, Step, Tests, cargo_tool, run_steps};
use crate::runner::{CommandLine, Session};
use crate::{audit, coverage, sanitizers};
use anyhow::Result;

const SIM: &str = "cargo run --release -p sim -- --seeds 1000000";

const STEPS: &[Step] = &[
    Step { name: "sim", about: "a million simulated lives of the supervisor", action: |s| s.run_line(SIM) },
    Step { name: "loom", about: "the atomics; exhaustive in ci already", action: |s| s.run_tests(&ci::loom()) },
    Step { name: "shuttle", about: "kernel, log and mailbox under many more schedules", action: shuttle },
    Step { name: "sanitizers", about: "ThreadSanitizer over kernel, log and mailbox; Miri", action: sanitizers::whole },
    Step { name: "coverage", about: "lines and branches that the tests reach, by crate", action: coverage::check },
    Step { name: "node", about: "the black-box tests, longer", action: node },
    Step { name: "fuzz", about: "every decoder against a minute of noise", action: fuzz },
    Step { name: "audit", about: "known vulnerabilities", action: audit::check },
];

/// Folders of crates with a fuzz workspace, and its targets.
const FUZZ_TARGETS: &[(&str, &[&str])] = &[
    ("mailbox", &["record", "envelope", "receipt", "dto"]),
    ("oap", &["header", "stream", "hello", "zstd"]),
    ("transport", &["scheduler"]),
];

/// Runs everything; hours, not minutes.
pub fn run() -> Result<()> {
    run_steps(STEPS, &mut Session::new())
}

/// The fuzz targets are a workspace of their own; the flag lets the stable compiler build them with the sanitizer.
fn fuzz(session: &mut Session) -> Result<()> {
    cargo_tool(session, "fuzz", "cargo install cargo-fuzz --locked --debug")?;
    for (name, targets) in FUZZ_TARGETS {
        for target in *targets {
            let line = format!("cargo fuzz run --fuzz-dir crates/{name}/fuzz {target} -- -max_total_time=60");
            session.run(&CommandLine::new(&line).env("RUSTC_BOOTSTRAP", "1"))?;
        }
    }
    Ok(())
}

fn shuttle(session: &mut Session) -> Result<()> {
    ci::shuttle().try_for_each(|command| session.run_tests(&command.env("SHUTTLE_ITERATIONS", "100000")))
}

fn node(session: &mut Session) -> Result<()> {
    let command = ci::test_command(session, Tests::BlackBox, "soak").env("MACRO_SOAK", "1");
    session.run_tests(&command)
}
