//! The complete proofs: the same checks as in `ci`, with far more of everything, and the known vulnerabilities.

use crate::ci::{self, Step, Tests, cargo_tool};
use crate::runner::{CommandLine, Session};
use crate::{audit, coverage, sanitizers};
use anyhow::{Context, Result};

const SIM: &str = "cargo run --release -p sim -- --seeds 1000000";
const SIM_DHT: &str = "cargo run --release -p sim -- dht --long";

/// The package of the fuzz targets; its programs are the list of them.
const FUZZ_MANIFEST: &str = "fuzz/Cargo.toml";

/// Crates below the node whose tests have a longer form. A test compares them with the code.
const LONGER: &[&str] =
    &["ron-calculus", "ron-usage", "ron-ledger", "ron-transport", "svc-mailbox", "svc-rewarder", "sim"];

const STEPS: &[Step] = &[
    Step::new("sim", "a million simulated lives of the supervisor; a day of churn in the DHT", sim),
    Step::new("loom", "the atomics; exhaustive in ci already", loom),
    Step::new("shuttle", "kernel, log and mailbox under many more schedules", shuttle),
    Step::new("sanitizers", "ThreadSanitizer over what has threads; Miri", sanitizers::whole),
    Step::new("coverage", "lines and branches that the tests reach, by crate", coverage::check),
    Step::new("node", "the black-box tests, longer", node),
    Step::new("current-thread", "all black-box tests on the one-thread runtime", current_thread),
    Step::new("services", "the tests of the crates below the node that have a longer form", services),
    Step::new("fuzz", "everything that reads bytes of others, against a minute of noise each", fuzz),
    Step::new("audit", "known vulnerabilities", audit::check),
];

/// Runs everything; hours, not minutes.
pub fn run() -> Result<()> {
    ci::run_in_order(STEPS)
}

/// What the fuzzer finds of its own is added to the corpus, beside the committed seeds that it begins with.
fn fuzz(session: &mut Session) -> Result<()> {
    cargo_tool(session, "fuzz", "cargo install cargo-fuzz --locked --debug")?;
    let manifest = std::fs::read_to_string(session.root.join(FUZZ_MANIFEST)).context(FUZZ_MANIFEST)?;
    for target in fuzz_targets(&manifest)? {
        // The fuzzer keeps what it finds in the first folder, which must be there.
        let corpus = format!("fuzz/corpus/{target}");
        std::fs::create_dir_all(session.root.join(&corpus)).with_context(|| corpus.clone())?;
        session.run(&fuzz_command(&target))?;
    }
    Ok(())
}

/// A minute of one target. The variable lets the stable compiler build it with the sanitizer.
fn fuzz_command(target: &str) -> CommandLine {
    let folders = format!("fuzz/corpus/{target} fuzz/seeds/{target}");
    let line = format!("cargo fuzz run --features libfuzzer {target} {folders} -- -max_total_time=60");
    CommandLine::new(&line).env("RUSTC_BOOTSTRAP", "1")
}

/// Names of the programs of a manifest.
fn fuzz_targets(manifest: &str) -> Result<Vec<String>> {
    let table: toml::Table = manifest.parse().context(FUZZ_MANIFEST)?;
    let programs = table.get("bin").and_then(toml::Value::as_array).context("no programs")?;
    let name = |program: &toml::Value| Some(program.get("name")?.as_str()?.to_owned());
    programs.iter().map(|program| name(program).context("a program without a name")).collect()
}

fn sim(session: &mut Session) -> Result<()> {
    session.run_line(SIM)?;
    session.run_line(SIM_DHT)
}

fn shuttle(session: &mut Session) -> Result<()> {
    let command = ci::models(session, "shuttle-models").env("SHUTTLE_ITERATIONS", "100000");
    session.run_tests(&command)
}

fn loom(session: &mut Session) -> Result<()> {
    let command = ci::models(session, "loom-models");
    session.run_tests(&command)
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
        let manifest = files.iter().find(|file| file.path == FUZZ_MANIFEST).expect("the manifest of the targets");
        let run = fuzz_targets(manifest.text.as_deref().expect("text")).expect("targets");
        // Wherever such a folder is: one beside its crate would be run by nobody.
        let found = files.iter().filter_map(|file| {
            let (folder, target) = file.path.split_once("fuzz_targets/")?;
            Some((folder, target.strip_suffix(".rs")?))
        });
        let run: BTreeSet<_> = run.iter().map(|target| ("fuzz/", target.as_str())).collect();
        assert_eq!(run, found.collect::<BTreeSet<_>>());
        assert!(!run.is_empty());
    }

    #[test]
    fn a_fuzz_target_begins_with_its_seeds() {
        let line = fuzz_command("oap_header").to_string();
        let folders = "oap_header fuzz/corpus/oap_header fuzz/seeds/oap_header";
        assert!(
            line.ends_with(&format!("cargo fuzz run --features libfuzzer {folders} -- -max_total_time=60")),
            "{line}"
        );
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
