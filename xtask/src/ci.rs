//! The whole check of a fresh clone as named, timed steps that stop at the first failure.

use crate::runner::{CommandLine, Session};
use crate::{clients, layers, sanitizers, tidy};
use anyhow::{Context, Result};
use clap::Args;

mod maps;
mod specs;
mod steps;
mod tools;

pub use steps::{Step, now, run_steps};
pub use tools::cargo_tool;

/// Which steps to run.
#[derive(Args)]
pub struct Options {
    /// Run this step alone
    #[arg(long, value_name = "STEP", conflicts_with = "from")]
    only: Option<String>,
    /// Run this step and those after it
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Name the steps and stop
    #[arg(long)]
    list: bool,
}

/// The steps, in the order in which a failure is cheapest to find.
const STEPS: &[Step] = &[
    Step { name: "tools", about: "what the machine must have; installed when missing", action: tools::install },
    Step { name: "fmt", about: "formatting", action: |s| s.run_line(FMT) },
    Step { name: "clippy", about: "lints, warnings are errors", action: clippy },
    Step { name: "tidy", about: "house style", action: |_| tidy::run() },
    Step { name: "layers", about: "dependency order of the crates", action: |_| layers::run() },
    Step { name: "maps", about: "the generated map under the real Mermaid parser", action: maps::check },
    Step { name: "deny", about: "licences, bans, sources", action: |s| s.run_line(DENY) },
    Step { name: "test", about: "every unit and black-box test", action: test },
    Step { name: "quic", about: "sessions over QUIC, which is not in an ordinary build", action: quic },
    Step { name: "doctest", about: "the examples in the documentation", action: doctest },
    Step { name: "current-thread", about: "suites that try the runtime, on one thread", action: test_current_thread },
    Step { name: "clients", about: "real SQS clients do a real job on a node", action: clients::check },
    Step { name: "loom", about: "the atomics under every interleaving", action: |s| s.run_tests(&loom()) },
    Step { name: "shuttle", about: "kernel, log and mailbox under random schedules", action: shuttle_tests },
    Step { name: "sanitizers", about: "ThreadSanitizer over the tests of the kernel", action: sanitizers::sample },
    Step { name: "sim", about: "10,000 simulated lives of the supervisor; gossip and lookups at scale", action: sim },
    Step { name: "specs", about: "TLC: the model holds, and its planted bugs are found", action: specs::check },
    Step { name: "doc", about: "documentation, warnings are errors", action: doc },
];

const FMT: &str = "cargo fmt --all --check -- --color never";
const DENY: &str = "cargo deny check licenses bans sources";
const SIM: &str = "cargo run --release -p sim -- --seeds 10000";
const SIM_GOSSIP: &str = "cargo run --release -p sim -- gossip";
const SIM_DHT: &str = "cargo run --release -p sim -- dht";

/// Runs the chosen steps.
pub fn run(options: &Options) -> Result<()> {
    let chosen = choose(STEPS, options)?;
    if options.list {
        chosen.iter().for_each(|step| println!("{:<16}{}", step.name, step.about));
        return Ok(());
    }
    run_steps(chosen, &mut Session::new())
}

fn choose<'a>(steps: &'a [Step], options: &Options) -> Result<&'a [Step]> {
    let Some(name) = options.only.as_ref().or(options.from.as_ref()) else { return Ok(steps) };
    let position = steps.iter().position(|step| step.name == name);
    let first = position.with_context(|| format!("no step is called {name}; `cargo xtask ci --list` names them"))?;
    Ok(if options.only.is_some() { &steps[first..=first] } else { &steps[first..] })
}

fn clippy(session: &mut Session) -> Result<()> {
    session.run_line("cargo clippy --workspace --all-targets -- -D warnings")
}

fn test(session: &mut Session) -> Result<()> {
    let command = test_command(session, Tests::All, "ci");
    session.run_tests(&command)
}

/// The crates that know QUIC, and the binary for the one suite that joins nodes over it.
fn quic(session: &mut Session) -> Result<()> {
    let known = "-p ron-transport -p svc-overlay --features ron-transport/quic,svc-overlay/quic";
    session.run_line(&format!("cargo clippy {known} --all-targets -- -D warnings"))?;
    let has_nextest = CommandLine::new("cargo nextest --version").is_ok(&session.root);
    let runner = if has_nextest { "cargo nextest run --profile ci" } else { "cargo test" };
    session.run_tests(&CommandLine::new(&format!("{runner} {known}")))?;
    // Of the whole workspace, so that only what has the feature is built again, and of its tests only this suite.
    let node = "--workspace --features macronode/quic --test overlay quic::";
    session.run_tests(&CommandLine::new(&format!("{runner} {node}")))
}

fn doctest(session: &mut Session) -> Result<()> {
    session.run_line("cargo test --workspace --doc")
}

/// A sample: what one thread changes is who waits for whom, which these suites try hardest. `soak` runs all of them.
const ONE_THREAD_SUITES: Tests = Tests::Suites(&["gates", "hostile", "index", "mailbox", "operations", "overlay"]);

fn test_current_thread(session: &mut Session) -> Result<()> {
    session.run_tests(&on_one_thread(test_command(session, ONE_THREAD_SUITES, "ci")))
}

/// The same tests with nodes on the one-thread runtime.
pub fn on_one_thread(command: CommandLine) -> CommandLine {
    command.env("MACRO_TEST_RUNTIME", "current")
}

/// Tests to run.
#[derive(Clone, Copy)]
pub enum Tests {
    /// Every test of the workspace.
    All,
    /// Those that run the binary.
    BlackBox,
    /// Those that run the binary, in these files of its tests.
    Suites(&'static [&'static str]),
    /// Those of these packages.
    Of(&'static [&'static str]),
}

/// nextest when it is there, else libtest with one test at a time, so that timing tests stay alone.
pub fn test_command(session: &Session, tests: Tests, profile: &str) -> CommandLine {
    if CommandLine::new("cargo nextest --version").is_ok(&session.root) {
        // Always the whole workspace, then a filter: `-p macronode` would choose other features of its dependencies,
        // and with them build almost everything again.
        let filter = match tests {
            Tests::All => String::new(),
            Tests::BlackBox => " -E package(macronode)&kind(test)".to_owned(),
            Tests::Suites(names) => {
                let each: Vec<String> = names.iter().map(|name| format!("binary({name})")).collect();
                format!(" -E package(macronode)&kind(test)&({})", each.join("|"))
            }
            Tests::Of(packages) => {
                let each: Vec<String> = packages.iter().map(|package| format!("package(={package})")).collect();
                format!(" -E {}", each.join("|"))
            }
        };
        return CommandLine::new(&format!("cargo nextest run --workspace --profile {profile}{filter}"));
    }
    println!("cargo-nextest is not here: falling back to cargo test");
    let packages = match tests {
        Tests::All => "--workspace --tests".to_owned(),
        Tests::BlackBox => "-p macronode --test *".to_owned(),
        Tests::Suites(names) => {
            "-p macronode".to_owned() + &names.iter().map(|name| format!(" --test {name}")).collect::<String>()
        }
        Tests::Of(packages) => packages.iter().map(|package| format!("-p {package} ")).collect::<String>() + "--tests",
    };
    CommandLine::new(&format!("cargo test {packages} --no-fail-fast -- --test-threads=1"))
}

/// The loom models; a target folder of their own, because the flag rebuilds everything.
pub fn loom() -> CommandLine {
    let command = CommandLine::new("cargo test -p ron-cells --release --target-dir target/loom");
    command.env("RUSTFLAGS", "--cfg loom")
}

/// The shuttle tests; a target folder of their own, for the same reason.
pub fn shuttle() -> impl Iterator<Item = CommandLine> {
    // Kernel and mailbox together, so that their dependencies have the same features and are built once.
    let chosen = [
        "-p ron-kernel -p svc-mailbox --test shuttle",
        "-p ron-log --lib commit_model",
        "-p ron-transport --lib outbox::model",
    ];
    chosen.into_iter().map(|chosen| {
        let command = CommandLine::new(&format!("cargo test {chosen} --release --target-dir target/shuttle"));
        command.env("RUSTFLAGS", "--cfg shuttle")
    })
}

fn shuttle_tests(session: &mut Session) -> Result<()> {
    shuttle().try_for_each(|command| session.run_tests(&command))
}

fn sim(session: &mut Session) -> Result<()> {
    session.run_line(SIM)?;
    session.run_line(SIM_GOSSIP)?;
    session.run_line(SIM_DHT)
}

fn doc(session: &mut Session) -> Result<()> {
    session.run(&CommandLine::new("cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: Option<&str>, from: Option<&str>) -> Result<Vec<&'static str>> {
        let options = Options { only: only.map(str::to_owned), from: from.map(str::to_owned), list: false };
        Ok(choose(STEPS, &options)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(chosen(None, None).expect("all").len(), STEPS.len());
        assert_eq!(chosen(Some("deny"), None).expect("one"), ["deny"]);
        assert_eq!(chosen(None, Some("specs")).expect("the rest"), ["specs", "doc"]);
        assert!(chosen(Some("nothing"), None).is_err());
    }

    #[test]
    fn step_names_are_unique() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
