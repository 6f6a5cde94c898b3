//! Coverage: lines and branches that the tests reach, by crate, and the share of branches that loom reaches.

use crate::ci::cargo_tool;
use crate::debian::Unpacked;
use crate::runner::{CommandLine, Session};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// LLVM of the compiler's major version: another one does not read its records.
const PACKAGES: [&str; 2] = ["libllvm22", "llvm-22"];
const LLVM: &str = "usr/lib/llvm-22/bin";

/// Least share of the branches of the atomics that their models take.
const LOOM_BRANCHES_PERCENT_MIN: f64 = 90.0;
/// The crate of the atomics.
const ATOMICS: &str = "crates/cells";

/// Crates to measure.
#[derive(Args, Default)]
pub struct Options {
    /// Measure the tests of this package alone; may be repeated
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Measure only the models of the atomics
    #[arg(long, conflicts_with = "packages")]
    loom: bool,
}

/// Reached of all, in one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    reached: u64,
    all: u64,
}

/// Lines and branches of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    lines: Share,
    branches: Share,
}

impl Share {
    fn read(summary: &Value) -> Share {
        let number = |key: &str| summary[key].as_u64().unwrap_or(0);
        Share { reached: number("covered"), all: number("count") }
    }

    /// None where there is nothing to reach.
    fn percent(self) -> Option<f64> {
        (self.all > 0).then(|| self.reached as f64 * 100.0 / self.all as f64)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent() {
            Some(percent) => write!(formatter, "{percent:>6.1} % of {:<6}", self.all),
            None => write!(formatter, "{:>17}", "-"),
        }
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        self.reached += other.reached;
        self.all += other.all;
    }
}

/// Measures what is asked for.
pub fn run(options: &Options) -> Result<()> {
    let mut session = Session::new();
    let tools = tools(&mut session)?;
    if !options.loom {
        tests(&mut session, &tools, &options.packages)?;
    }
    if options.packages.is_empty() { loom(&mut session, &tools) } else { Ok(()) }
}

/// Measures everything, as a step of a longer check.
pub fn check(session: &mut Session) -> Result<()> {
    let tools = tools(session)?;
    tests(session, &tools, &[])?;
    loom(session, &tools)
}

fn tools(session: &mut Session) -> Result<Unpacked> {
    cargo_tool(session, "llvm-cov", "cargo install cargo-llvm-cov --locked --debug")?;
    Unpacked::with(session, &PACKAGES)
}

/// Every test, those that run the binary included: its own records are read too, except those of nodes killed.
fn tests(session: &mut Session, tools: &Unpacked, packages: &[String]) -> Result<()> {
    let chosen = match packages {
        [] => "--workspace".to_owned(),
        packages => packages.iter().map(|name| format!("-p {name}")).collect::<Vec<_>>().join(" "),
    };
    let report = "target/coverage.json";
    let line = format!("cargo llvm-cov nextest {chosen} --profile soak {FORM} --output-path {report}");
    session.run_tests(&recorded(tools, &line, "target/coverage"))?;
    println!("\n{}", table(&by_crate(&read(session, report)?)));
    Ok(())
}

/// The models of the atomics by themselves: what only other tests reach is reached in no interleaving. The usual filter
/// of files would leave out dependencies that are no published crates.
fn loom(session: &mut Session, tools: &Unpacked) -> Result<()> {
    let report = "target/coverage-loom.json";
    let line = format!(
        "cargo llvm-cov test --manifest-path tools/models/Cargo.toml -p loom-models --dep-coverage ron-cells \
         --no-default-ignore-filename-regex {FORM} --output-path {report}"
    );
    session.run_tests(&recorded(tools, &line, "target/coverage-loom"))?;
    let crates = by_crate(&read(session, report)?);
    println!("\nunder loom:\n{}", table(&crates));
    let atomics = crates.get(ATOMICS).context("no records of the atomics")?;
    let percent = atomics.branches.percent().context("the compiler recorded no branches")?;
    ensure!(
        percent >= LOOM_BRANCHES_PERCENT_MIN,
        "loom takes {percent:.1} % of the branches of {ATOMICS}; at least {LOOM_BRANCHES_PERCENT_MIN} % are asked for"
    );
    Ok(())
}

const FORM: &str = "--branch --json --summary-only";

/// Branches are recorded by an option that the stable compiler has but hides.
fn recorded(tools: &Unpacked, line: &str, folder: &str) -> CommandLine {
    let tool = |name: &str| tools.file(LLVM).join(name).display().to_string();
    tools
        .command(CommandLine::new(line))
        .env("LLVM_COV", &tool("llvm-cov"))
        .env("LLVM_PROFDATA", &tool("llvm-profdata"))
        .env("CARGO_LLVM_COV_SETUP", "no")
        .env("CARGO_LLVM_COV_TARGET_DIR", folder)
        .env("RUSTC_BOOTSTRAP", "1")
}

fn read(session: &Session, report: &str) -> Result<Value> {
    let text = std::fs::read_to_string(session.root.join(report)).context(report.to_owned())?;
    serde_json::from_str(&text).context(report.to_owned())
}

/// Adds up the sources of each crate; tests are no part of what they reach.
fn by_crate(report: &Value) -> BTreeMap<String, Reached> {
    let mut crates: BTreeMap<String, Reached> = BTreeMap::new();
    for file in report["data"][0]["files"].as_array().into_iter().flatten() {
        let path = file["filename"].as_str().unwrap_or_default();
        let Some(name) = crate_of(path) else { continue };
        let reached = crates.entry(name).or_default();
        reached.lines += Share::read(&file["summary"]["lines"]);
        reached.branches += Share::read(&file["summary"]["branches"]);
    }
    crates
}

/// `crates/log` of `/any/where/crates/log/src/scan.rs`.
fn crate_of(path: &str) -> Option<String> {
    let (before, within) = path.rsplit_once("/src/")?;
    let is_test = within == "tests.rs" || within.ends_with("/tests.rs") || within.contains("tests/");
    let mut folders = before.rsplit('/');
    let (name, parent) = (folders.next()?, folders.next()?);
    let crate_name = if parent == "crates" { format!("crates/{name}") } else { name.to_owned() };
    (!is_test && (parent == "crates" || name == "xtask")).then_some(crate_name)
}

fn table(crates: &BTreeMap<String, Reached>) -> String {
    let mut total = Reached::default();
    let mut lines = vec![format!("{:<18}{:>12}{:>20}", "crate", "lines", "branches")];
    for (name, reached) in crates {
        total.lines += reached.lines;
        total.branches += reached.branches;
        lines.push(format!("{name:<18}{}   {}", reached.lines, reached.branches));
    }
    lines.push(format!("{:<18}{}   {}", "total", total.lines, total.branches));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_are_added_up_by_crate_without_their_tests() {
        let file = |path: &str, reached: u64| {
            let share = json!({ "count": 10, "covered": reached });
            json!({ "filename": path, "summary": { "lines": share, "branches": { "count": 0, "covered": 0 } } })
        };
        let files = [
            file("/a/crates/log/src/scan.rs", 4),
            file("/a/crates/log/src/disk/ram.rs", 5),
            file("/a/crates/log/src/disk/tests.rs", 10),
            file("/a/crates/log/tests/log/main.rs", 10),
            file("/a/xtask/src/main.rs", 1),
            file("/a/registry/src/index/tokio-1/src/lib.rs", 10),
        ];
        let crates = by_crate(&json!({ "data": [{ "files": files }] }));
        let lines: Vec<(&str, Share)> = crates.iter().map(|(name, reached)| (name.as_str(), reached.lines)).collect();
        let share = |reached, all| Share { reached, all };
        assert_eq!(lines, [("crates/log", share(9, 20)), ("xtask", share(1, 10))]);
        assert_eq!(crates["xtask"].branches.percent(), None, "nothing to reach is not nothing reached");
        let table = table(&crates);
        let last = table.lines().last().expect("a total");
        assert_eq!(last.split_whitespace().collect::<Vec<_>>().join(" "), "total 33.3 % of 30 -");
    }
}
