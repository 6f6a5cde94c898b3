//! The whole check of a fresh clone as named, timed steps that stop at the first failure.

use crate::runner::{CommandLine, Session};
use crate::{clients, layers, sanitizers, tidy};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs::File;
use std::path::Path;
use std::process::Command;

mod beside;
mod cache;
mod changed;
mod maps;
mod models;
mod nextest;
mod processes;
mod specs;
mod steps;
mod times;
mod tools;

use cache::Cache;
use changed::{Change, Touch};
pub use models::models;
pub use nextest::{Tests, on_one_thread, test_command};
use steps::Place;
use steps::run_steps;
pub use steps::{Step, now};
pub use tools::cargo_tool;

/// Which steps to run, and with what.
#[derive(Args)]
pub struct Options {
    /// Run this step alone
    #[arg(long, value_name = "STEP", conflicts_with_all = ["from", "changed"])]
    only: Option<String>,
    /// Run this step and those after it
    #[arg(long, value_name = "STEP", conflicts_with = "changed")]
    from: Option<String>,
    /// Run the steps and tests that changes since this commit can touch [default: where the branch left origin/main]
    #[arg(long, value_name = "BASE", num_args = 0..=1)]
    changed: Option<Option<String>>,
    /// Build everything, crates of others included, instead of using what earlier runs compiled
    #[arg(long, conflicts_with_all = ["only", "from", "changed"])]
    from_nothing: bool,
    /// Name the steps and stop
    #[arg(long)]
    list: bool,
    /// Run one step for the run that started it beside others
    #[arg(long, value_name = "STEP", hide = true)]
    part: Option<String>,
    /// Run with the target folder that the caller prepared; the text says what it held
    #[arg(long, value_name = "TEXT", hide = true)]
    prepared: Option<String>,
}

/// The steps, in the order in which a failure is cheapest to find. What waits for a network or one thread runs beside
/// the first builds, which end before the tests begin.
const STEPS: &[Step] = &[
    Step::new("tools", "what the machine must have; installed when missing", tools::install),
    Step::new("deny", "licences, bans, sources", tools::deny).at(Place::Beside).touched_by(Touch::Rust),
    Step::new("maps", "the generated map under the real Mermaid parser", maps::check)
        .at(Place::Beside)
        .touched_by(Touch::Files(&["docs/concurrency.md", "tests/mermaid/", "xtask/src/clients/packages.rs"])),
    Step::new("specs", "TLC: the model holds, and its planted bugs are found", specs::check)
        .at(Place::Beside)
        .touched_by(Touch::Files(&["specs/"])),
    Step::new("fetch-clients", "what the real clients need from registries", clients::install)
        .at(Place::Beside)
        .touched_by(CLIENTS),
    Step::new("fetch-sanitizers", "the compiler of the sanitizers", sanitizers::fetch)
        .at(Place::Beside)
        .touched_by(KERNEL),
    Step::new("fmt", "formatting", fmt).touched_by(Touch::Rust),
    Step::new("tidy", "house style", |_| tidy::run()),
    Step::new("layers", "dependency order of the crates", |_| layers::run()),
    Step::new("clippy", "lints, warnings are errors", clippy).touched_by(Touch::Rust),
    Step::new("build", "every test, compiled while what runs beside still waits", build).touched_by(Touch::Rust),
    Step::new("test", "every unit and black-box test", test).at(Place::Alone),
    Step::new("current-thread", "suites that try the runtime, on one thread", test_on_one_thread)
        .at(Place::Alone)
        .touched_by(Touch::Packages(&["macronode"], &[])),
    Step::new("clients", "real clients do a real job on a node", clients::check).at(Place::Beside).touched_by(CLIENTS),
    Step::new("doctest", "the examples in the documentation", doctest).touched_by(Touch::Rust),
    Step::new("doc", "documentation, warnings are errors", doc).touched_by(Touch::Rust),
    Step::new("loom", "the atomics under every interleaving", |s| models::run(s, "loom-models"))
        .touched_by(Touch::Packages(&["ron-cells"], MODELS)),
    Step::new("shuttle", "kernel, log, mailbox and transport under random schedules", |s| {
        models::run(s, "shuttle-models")
    })
    .touched_by(Touch::Packages(&["ron-kernel", "svc-mailbox", "ron-log", "ron-transport"], MODELS)),
    Step::new("mutation", "planted mistakes are found by simulation and model", |s| models::run(s, "mutation-models"))
        .touched_by(Touch::Packages(&["sim"], MODELS)),
    Step::new("sim", "10,000 simulated lives of the supervisor; gossip and lookups at scale", sim)
        .touched_by(Touch::Packages(&["sim"], &[])),
    Step::new("sanitizers", "ThreadSanitizer over the tests of the kernel", sanitizers::sample).touched_by(KERNEL),
];

const CLIENTS: Touch = Touch::Packages(&["macronode"], &["tests/clients/", "README.md", "xtask/src/clients"]);
const KERNEL: Touch = Touch::Packages(
    &["ron-kernel", "ron-amnesia"],
    &["xtask/src/sanitizers.rs", "xtask/src/debian.rs", "xtask/thread-sanitizer.txt"],
);

const MODELS: &[&str] = &["tools/models/"];

/// The workspaces; the one beside the main one holds what the node is never built with.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "tools/models/Cargo.toml"];
const SIM_RUNS: [&str; 3] = ["--seeds 10000", "gossip", "dht"];

/// Where the times of the last run are.
const TIMES_FILE: &str = "target/ci-times.json";
/// Target folder of a run that uses nothing of earlier ones.
const NOTHING: &str = "target/from-nothing";

/// Runs the chosen steps.
pub fn run(options: &Options) -> Result<()> {
    if options.part.is_some() || options.prepared.is_some() {
        // Whoever ends the process that was typed means the whole run.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    if let Some(name) = &options.part {
        return run_part(find(name)?);
    }
    let root = crate::tree::root();
    let (chosen, touched_tests) = choose(&root, options)?;
    if options.list {
        chosen.iter().for_each(|step| println!("{:<18}{}", step.name, step.about));
        return Ok(());
    }
    if options.is_whole() && options.prepared.is_none() {
        return run_prepared(&root, options.from_nothing);
    }
    let mut session = Session::new();
    session.touched_tests = touched_tests;
    let (times, outcome) = run_steps(&chosen, &mut session, &launch);
    // The failure of a step says more than that its time could not be written.
    let source = options.prepared.as_deref().unwrap_or("target folder of the checkout");
    let written = times.write(&root.join(TIMES_FILE), source);
    outcome.and(written)
}

/// Runs the steps of another list, each in order.
pub fn run_in_order(steps: &[Step]) -> Result<()> {
    let steps: Vec<&Step> = steps.iter().collect();
    run_steps(&steps, &mut Session::new(), &launch).1
}

impl Options {
    fn is_whole(&self) -> bool {
        self.only.is_none() && self.from.is_none() && self.changed.is_none()
    }
}

/// The whole check as a process of its own, whose commands all build into one prepared folder: outside the clone, where
/// the crates of others are kept between runs, or an empty one. All that this starts holds the lock of the folder: no
/// other run uses it while something of this one still builds, even if this process was killed.
fn run_prepared(root: &Path, from_nothing: bool) -> Result<()> {
    let _lock = lock_checkout(root)?;
    let cache = if from_nothing { None } else { open_cache(root) };
    let (folder, about) = match &cache {
        Some(cache) => {
            cache.lock_for_programs()?;
            (cache.folder().to_owned(), "kept between runs")
        }
        None => {
            let folder = root.join(NOTHING);
            if folder.exists() {
                std::fs::remove_dir_all(&folder).context("what an earlier run built")?;
            }
            (folder, "built from nothing")
        }
    };
    println!("crates of others: {about}, in {}", folder.display());
    let mut command = this_program();
    command.args(["ci", "--prepared", about]);
    // Somebody's own setting of the second would have artifacts where nothing of ours is forgotten.
    command.env("CARGO_TARGET_DIR", &folder).env("CARGO_BUILD_BUILD_DIR", &folder);
    // What would speed up the next build of the same checkout only costs time and disk in one that is built once.
    command.env("CARGO_INCREMENTAL", "0");
    let status = command.status().context("the check itself")?;
    if let Some(Err(error)) = cache.map(|cache| cache.shrink()) {
        // On the other output: the total of tests is the last line of this one.
        eprintln!("the next run will drop what this one compiled: {error:#}");
    }
    if status.success() { Ok(()) } else { bail!("the check ended with {status}") }
}

/// Two runs of one checkout would write the same files below its `target`.
fn lock_checkout(root: &Path) -> Result<File> {
    let folder = root.join("target");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let lock = File::create(folder.join("ci.lock")).context("the lock of this checkout")?;
    ensure!(lock.try_lock().is_ok(), "another run uses this checkout");
    Ok(lock)
}

fn open_cache(root: &Path) -> Option<Cache> {
    Cache::open(root).inspect_err(|error| println!("nothing of earlier runs is used: {error:#}")).ok()
}

/// One step for a run that started it beside others; its last line is for that run. The line before may be a program's
/// that ended without a line feed.
fn run_part(step: &Step) -> Result<()> {
    let mut session = Session::new();
    let outcome = (step.action)(&mut session);
    println!("\n{}", beside::counts(session.tally, session.building));
    outcome
}

fn launch(step: &Step) -> Command {
    let mut command = this_program();
    command.args(["ci", "--part", step.name]);
    command
}

/// The program that runs, even where cargo has replaced its file since.
fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

fn find(name: &str) -> Result<&'static Step> {
    let found = STEPS.iter().find(|step| step.name == name);
    found.with_context(|| format!("no step is called {name}; `cargo xtask ci --list` names them"))
}

/// The steps to run, and the filter for the tests among them.
fn choose(root: &Path, options: &Options) -> Result<(Vec<&'static Step>, Option<String>)> {
    if let Some(base) = &options.changed {
        let change = Change::since(root, base.as_deref())?;
        let touched = STEPS.iter().filter(|step| change.touches(step.touch)).collect();
        return Ok((touched, change.tests()));
    }
    if let Some(name) = &options.only {
        return Ok((vec![find(name)?], None));
    }
    let first = options.from.as_deref().map(find).transpose()?.map_or(STEPS[0].name, |step| step.name);
    Ok((STEPS.iter().skip_while(|step| step.name != first).collect(), None))
}

fn fmt(session: &mut Session) -> Result<()> {
    let line = |manifest: &&str| format!("cargo fmt --all --manifest-path {manifest} --check -- --color never");
    WORKSPACES.iter().try_for_each(|manifest| session.run_line(&line(manifest)))
}

fn clippy(session: &mut Session) -> Result<()> {
    // The first command that compiles: a Cargo.lock that does not fit the manifests is found, not rewritten.
    session.run_line("cargo clippy --locked --workspace --all-targets -- -D warnings")?;
    session.run(&models::clippy(session))
}

fn build(session: &mut Session) -> Result<()> {
    session.run_line("cargo nextest run --workspace --no-run")
}

fn test(session: &mut Session) -> Result<()> {
    let command = test_command(session, Tests::All, "ci");
    session.run_tests(&command)
}

fn doctest(session: &mut Session) -> Result<()> {
    session.run_line("cargo test --workspace --doc")
}

fn test_on_one_thread(session: &mut Session) -> Result<()> {
    let command = test_command(session, Tests::OneThread, "ci");
    session.run_tests(&command)
}

/// The simulator as the tests were built with: `cargo run -p sim` would choose other features of its dependencies, and
/// with them build almost everything again.
fn sim(session: &mut Session) -> Result<()> {
    session.run_line("cargo test --workspace --tests --no-run")?;
    let program = crate::tree::target_folder(&session.root).join("debug/sim");
    SIM_RUNS.iter().try_for_each(|arguments| session.run_line(&format!("{} {arguments}", program.display())))
}

/// Documentation of what clippy has checked: with the same compiler, arguments and features, so that nothing is
/// checked twice. Asking for examples, too, makes cargo choose the features of tests, as `--all-targets` does.
fn doc(session: &mut Session) -> Result<()> {
    let sysroot = CommandLine::new("rustc --print sysroot").output(&session.root)?;
    let command = CommandLine::new("cargo doc --workspace --no-deps --lib --bins --examples")
        .env("RUSTC_WORKSPACE_WRAPPER", &format!("{sysroot}/bin/clippy-driver"))
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")
        .env("RUSTDOCFLAGS", "-D warnings");
    session.run(&command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: Option<&str>, from: Option<&str>) -> Result<Vec<&'static str>> {
        let options = Options {
            only: only.map(str::to_owned),
            from: from.map(str::to_owned),
            changed: None,
            from_nothing: false,
            list: false,
            part: None,
            prepared: None,
        };
        Ok(choose(Path::new("."), &options)?.0.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(chosen(None, None).expect("all").len(), STEPS.len());
        assert_eq!(chosen(Some("deny"), None).expect("one"), ["deny"]);
        assert_eq!(chosen(None, Some("sim")).expect("the rest"), ["sim", "sanitizers"]);
        assert!(chosen(Some("nothing"), None).is_err());
    }

    #[test]
    fn step_names_are_unique() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }

    /// Rows of the table below a heading of docs/development.md: name, and minutes in the last column.
    fn allotments(heading: &str) -> Vec<(String, f64)> {
        let page = crate::tree::root().join("docs/development.md");
        let text = std::fs::read_to_string(page).expect("the page of development");
        let section = text.split_once(heading).expect("the heading is there").1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let cells = |line: &str| -> Option<(String, f64)> {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let name = cells.next()?.trim_matches('`').to_owned();
            Some((name, cells.next_back()?.parse().ok()?))
        };
        section.lines().filter(|line| line.starts_with('|')).filter_map(cells).collect()
    }

    /// Nobody keeps to a figure that is missing, or to figures that do not fit together.
    #[test]
    fn every_step_and_every_coming_part_has_its_minutes() {
        let steps = allotments("## What the check takes");
        let in_order = STEPS.iter().map(|step| step.name);
        assert_eq!(steps.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), in_order.collect::<Vec<_>>());
        let parts = allotments("## What coming parts may take");
        let sum = |rows: &[(String, f64)]| rows.iter().map(|(_, minutes)| minutes).sum::<f64>();
        // What runs beside others takes no time of the run.
        let in_order = |name: &str| STEPS.iter().any(|step| step.name == name && step.place != Place::Beside);
        let today: Vec<_> = steps.into_iter().filter(|(name, _)| in_order(name)).collect();
        assert!(sum(&today) <= TODAY_MINUTES, "{} minutes", sum(&today));
        assert!(TODAY_MINUTES + sum(&parts) <= ALL_MINUTES, "{} minutes of coming parts", sum(&parts));
    }

    /// Minutes for the steps that there are, and for all that is planned.
    const TODAY_MINUTES: f64 = 35.0;
    const ALL_MINUTES: f64 = 65.0;

    /// A step that `--changed` never chooses because a package was renamed would be lost in silence.
    #[test]
    fn packages_that_touch_a_step_exist() {
        let files = crate::tree::read(&crate::tree::root()).expect("the tree");
        let manifests: Vec<_> = files.iter().filter(|file| file.path.ends_with("Cargo.toml")).collect();
        for step in STEPS {
            let (packages, starts): (&[&str], &[&str]) = match step.touch {
                Touch::Packages(packages, starts) => (packages, starts),
                Touch::Files(starts) => (&[], starts),
                Touch::Always | Touch::Rust => continue,
            };
            for package in packages {
                let line = format!("name = \"{package}\"");
                let is_there =
                    manifests.iter().any(|file| file.text.as_deref().is_some_and(|text| text.contains(&line)));
                assert!(is_there, "{}: no package {package}", step.name);
            }
            for start in starts {
                assert!(files.iter().any(|file| file.path.starts_with(start)), "{}: no file {start}", step.name);
            }
        }
    }
}
