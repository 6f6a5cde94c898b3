//! The complete proofs: the same checks as in `ci`, with far more of everything, and the known vulnerabilities.

use crate::ci::{self, Step, Tests, cargo_tool, run_steps};
use crate::runner::{CommandLine, Session};
use crate::{audit, coverage, sanitizers};
use anyhow::Result;

const SIM: &str = "cargo run --release -p sim -- --seeds 1000000";
const SIM_DHT: &str = "cargo run --release -p sim -- dht --long";

/// Folders of fuzz targets, and the targets in each. A test compares them with the files.
const FUZZED: &[(&str, &[&str])] = &[
    ("crates/calculus/fuzz", &["policy"]),
    ("crates/gossip/fuzz", &["gossip_control"]),
    ("crates/index/fuzz", &["dto"]),
    ("crates/mailbox/fuzz", &["record", "envelope", "receipt", "dto"]),
    ("crates/oap/fuzz", &["header", "stream", "hello", "zstd"]),
    ("crates/rewarder/fuzz", &["envelope", "manifest", "paid"]),
    ("crates/store/fuzz", &["ids", "records", "wire", "ipns"]),
    ("crates/transport/fuzz", &["scheduler"]),
    ("crates/usage/fuzz", &["csv", "ndjson", "parquet"]),
];

/// Crates below the node whose tests have a longer form. A test compares them with the code.
const LONGER: &[&str] =
    &["ron-calculus", "ron-usage", "ron-ledger", "ron-transport", "svc-mailbox", "svc-rewarder", "sim"];

const STEPS: &[Step] = &[
    Step { name: "sim", about: "a million simulated lives of the supervisor; a day of churn in the DHT", action: sim },
    Step { name: "loom", about: "the atomics; exhaustive in ci already", action: |s| s.run_tests(&ci::loom()) },
    Step { name: "shuttle", about: "kernel, log and mailbox under many more schedules", action: shuttle },
    Step { name: "sanitizers", about: "ThreadSanitizer over what has threads; Miri", action: sanitizers::whole },
    Step { name: "coverage", about: "lines and branches that the tests reach, by crate", action: coverage::check },
    Step { name: "node", about: "the black-box tests, longer", action: node },
    Step { name: "current-thread", about: "all black-box tests on the one-thread runtime", action: current_thread },
    Step {
        name: "services",
        about: "the tests of the crates below the node that have a longer form",
        action: services,
    },
    Step { name: "fuzz", about: "everything that reads bytes of others, against a minute of noise each", action: fuzz },
    Step { name: "audit", about: "known vulnerabilities", action: audit::check },
];

/// Runs everything; hours, not minutes.
pub fn run() -> Result<()> {
    run_steps(STEPS, &mut Session::new())
}

/// The fuzz targets are a workspace of their own; the flag lets the stable compiler build them with the sanitizer.
fn fuzz(session: &mut Session) -> Result<()> {
    cargo_tool(session, "fuzz", "cargo install cargo-fuzz --locked --debug")?;
    for (folder, target) in FUZZED.iter().flat_map(|(folder, targets)| targets.iter().map(move |name| (folder, name))) {
        let line = format!("cargo fuzz run --fuzz-dir {folder} {target} -- -max_total_time=60");
        session.run(&CommandLine::new(&line).env("RUSTC_BOOTSTRAP", "1"))?;
    }
    Ok(())
}

fn sim(session: &mut Session) -> Result<()> {
    session.run_line(SIM)?;
    session.run_line(SIM_DHT)
}

fn shuttle(session: &mut Session) -> Result<()> {
    ci::shuttle().try_for_each(|command| session.run_tests(&command.env("SHUTTLE_ITERATIONS", "100000")))
}

fn node(session: &mut Session) -> Result<()> {
    let command = ci::test_command(session, Tests::BlackBox, "soak").env("MACRO_SOAK", "1");
    session.run_tests(&command)
}

fn current_thread(session: &mut Session) -> Result<()> {
    session.run_tests(&ci::on_one_thread(ci::test_command(session, Tests::BlackBox, "ci")))
}

/// All of their tests: which of them are longer is theirs to know.
fn services(session: &mut Session) -> Result<()> {
    let command = ci::test_command(session, Tests::Of(LONGER), "soak").env("MACRO_SOAK", "1");
    session.run_tests(&command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{self, SourceFile};
    use std::collections::BTreeSet;

    fn files() -> Vec<SourceFile> {
        tree::read(&tree::root()).expect("the tree is read")
    }

    #[test]
    fn every_fuzz_target_is_run() {
        let files = files();
        let found = files.iter().filter_map(|file| {
            let (folder, target) = file.path.split_once("/fuzz_targets/")?;
            Some((folder, target.strip_suffix(".rs")?))
        });
        let run = FUZZED.iter().flat_map(|(folder, targets)| targets.iter().map(move |target| (*folder, *target)));
        assert_eq!(run.collect::<BTreeSet<_>>(), found.collect::<BTreeSet<_>>());
    }

    #[test]
    fn every_crate_with_a_longer_form_is_run_in_it() {
        let files = files();
        let asks = |file: &&SourceFile| {
            let is_code = file.path.ends_with(".rs") && file.path.starts_with("crates/");
            let word = |text: &String| text.contains("testkit::soak()") || text.contains("var_os(\"MACRO_SOAK\")");
            is_code && file.text.as_ref().is_some_and(word)
        };
        let package = |file: &SourceFile| {
            let folder = file.path.split('/').nth(1)?;
            let manifest = files.iter().find(|file| file.path == format!("crates/{folder}/Cargo.toml"))?;
            let name = manifest.text.as_ref()?.lines().find_map(|line| line.strip_prefix("name = "))?;
            Some(name.trim_matches('"').to_owned())
        };
        let found: BTreeSet<String> = files.iter().filter(asks).filter_map(package).collect();
        // The node's own are a step of their own, and the kit only passes the word on.
        let run: BTreeSet<String> = LONGER.iter().copied().chain(["macronode", "testkit"]).map(str::to_owned).collect();
        assert_eq!(run, found);
    }
}
