//! Real clients do a real job on a real node; one line tells how each went, and none is left out in silence.

use crate::ci::now;
use crate::runner::Session;
use crate::tree::target_folder;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

mod job;
mod node;
mod packages;
mod readme;

use job::Ended;
use node::Node;
use packages::Packages;
pub use packages::{Unready, npm_packages};

/// Which clients to run, and on which build.
#[derive(Args, Default)]
pub struct Options {
    /// Run these clients alone
    names: Vec<String>,
    /// Name the clients and stop
    #[arg(long)]
    list: bool,
    /// Build and use the optimised node
    #[arg(long)]
    release: bool,
    /// Let the node take every caller for the operator instead of checking signatures
    #[arg(long)]
    unsigned: bool,
    /// Take the examples of the client `readme` from another file
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

/// One client and its job.
struct Client {
    name: &'static str,
    about: &'static str,
    packages: Packages,
    /// The script; empty where the packages are the program.
    script: &'static str,
    limit: Duration,
}

const CLIENTS: &[Client] = &[
    client("boto3", "Python, JSON protocol", Packages::PYTHON, "boto3_job.py", 180),
    client("boto3-query", "Python before JSON: the Query protocol", Packages::PYTHON_QUERY, "boto3_job.py", 180),
    client("awscli", "the command line", Packages::PYTHON, "awscli_job.py", 180),
    client("celery", "Celery with SQS as its broker", Packages::PYTHON, "celery_job.py", 240),
    client("node", "JavaScript SDK v3, which checks every MD5", Packages::Npm, "job.mjs", 120),
    client("payee", "the page of a payee in Chromium", Packages::Npm, "payee_page.mjs", 180),
    client(
        "merkle",
        "OpenZeppelin's library, which rebuilds the roots of reward runs",
        Packages::Npm,
        "merkle.mjs",
        180,
    ),
    client(
        "helia",
        "Helia's client of delegated routing, and the IPNS library of its makers",
        Packages::NpmWithNode { folder: "helia" },
        "job.mjs",
        180,
    ),
    client(
        "libp2p",
        "a libp2p node in JavaScript that meets ours",
        Packages::NpmWithNode { folder: "libp2p" },
        "job.mjs",
        120,
    ),
    client("rust", "the Rust SDK", Packages::Cargo, "", 120),
    client("readme", "the README's examples in four languages", Packages::All, "", 120),
    client(
        "schemathesis",
        "made-up requests to the native surface",
        Packages::PYTHON_SCHEMATHESIS,
        "schemathesis_job.py",
        180,
    ),
    client("dsse", "signed policies in an independent library", Packages::PYTHON_DSSE, "dsse_job.py", 120),
    client("oap", "a Python client of OAP/1, written from its page", Packages::PYTHON_OAP, "oap_job.py", 180),
    client("kill", "boto3 while the node is killed again and again", Packages::PYTHON, "kill_job.py", 240),
];

const fn client(
    name: &'static str,
    about: &'static str,
    packages: Packages,
    script: &'static str,
    limit_s: u64,
) -> Client {
    Client { name, about, packages, script, limit: Duration::from_secs(limit_s) }
}

/// How a client fared.
enum Fate {
    Passed { checks: u64 },
    Skipped(String),
    Failed(String),
}

/// Where things lie.
pub struct Folders {
    /// The scripts in the repository.
    pub sources: PathBuf,
    /// What is installed and logged.
    pub cache: PathBuf,
    /// What is built.
    pub target: PathBuf,
    /// The text whose examples are run.
    pub readme: PathBuf,
}

/// The command: runs the chosen clients.
pub fn run(options: &Options) -> Result<()> {
    let mut session = Session::new();
    if options.list {
        choose(&options.names)?.iter().for_each(|client| println!("{:<14}{}", client.name, client.about));
        return Ok(());
    }
    let outcome = build(&mut session, options).and_then(|()| run_chosen(&mut session, options));
    println!("{}", session.tally);
    outcome
}

/// Installs what the clients need from registries, without building any of it: a step that only waits.
pub fn install(session: &mut Session) -> Result<()> {
    let folders = folders(session, &Options::default());
    std::fs::create_dir_all(&folders.cache).context("the clients' cache")?;
    for client in CLIENTS {
        match client.packages.install(&folders) {
            Ok(()) => {}
            // The client itself will say that it is skipped.
            Err(Unready::NotInstalled(reason)) => println!("{}: {reason}", client.name),
            Err(Unready::Broken(error)) => return Err(error),
        }
    }
    Ok(())
}

/// The step of the whole check: every client, on the node that the tests were built with. To build the node alone
/// would choose other features of its dependencies, and with them build almost everything again.
pub fn check(session: &mut Session) -> Result<()> {
    session.run_line("cargo test --workspace --tests --no-run")?;
    let skipped_before = session.tally.skipped;
    run_chosen(session, &Options::default())?;
    // By hand a client may be skipped; a check that lets one go has not checked it.
    let skipped = session.tally.skipped - skipped_before;
    ensure!(skipped == 0, "{skipped} clients could not be installed; the lines with SKIPPED say why");
    Ok(())
}

fn build(session: &mut Session, options: &Options) -> Result<()> {
    session.run_line(if options.release { "cargo build -p macronode --release" } else { "cargo build -p macronode" })
}

fn run_chosen(session: &mut Session, options: &Options) -> Result<()> {
    let chosen = choose(&options.names)?;
    let binary = target_folder(&session.root).join(if options.release { "release" } else { "debug" }).join("macronode");
    let folders = folders(session, options);
    std::fs::create_dir_all(&folders.cache).context("the clients' cache")?;
    let mut lines = Vec::new();
    let mut failed = 0;
    for client in &chosen {
        let started = now();
        let fate = run_client(client, &folders, &binary, options.unsigned);
        let line = told(client, &fate, started.elapsed());
        println!("{line}");
        match fate {
            Fate::Passed { checks } => session.tally.passed += checks,
            Fate::Skipped(_) => session.tally.skipped += 1,
            Fate::Failed(_) => failed += 1,
        }
        lines.push(line);
    }
    session.tally.failed += failed;
    println!("\n{}", lines.join("\n"));
    let skipped = lines.iter().filter(|line| line.contains("SKIPPED")).count();
    println!("clients: {} run, {skipped} skipped, {failed} failed", chosen.len() - skipped);
    ensure!(
        failed == 0,
        "{failed} of {} clients failed; their logs are in {}",
        chosen.len(),
        folders.cache.join("logs").display()
    );
    Ok(())
}

fn folders(session: &Session, options: &Options) -> Folders {
    let target = target_folder(&session.root);
    Folders {
        sources: session.root.join("tests/clients"),
        cache: target.join("clients"),
        target,
        readme: options.readme.clone().unwrap_or_else(|| session.root.join("README.md")),
    }
}

fn choose(names: &[String]) -> Result<Vec<&'static Client>> {
    if let Some(unknown) = names.iter().find(|name| !CLIENTS.iter().any(|client| client.name == **name)) {
        bail!("no client is called {unknown}; `cargo xtask clients --list` names them");
    }
    let is_chosen = |client: &&Client| names.is_empty() || names.iter().any(|name| name == client.name);
    Ok(CLIENTS.iter().filter(is_chosen).collect())
}

fn run_client(client: &Client, folders: &Folders, binary: &Path, unsigned: bool) -> Fate {
    let command = match client.packages.ready(folders, client.script) {
        Ok(command) => command,
        Err(packages::Unready::NotInstalled(reason)) => return Fate::Skipped(reason),
        Err(packages::Unready::Broken(error)) => return Fate::Failed(format!("{error:#}")),
    };
    match on_a_node(client, command, folders, binary, unsigned) {
        Ok(ended) => judged(&ended, client.limit),
        Err(error) => Fate::Failed(format!("{error:#}")),
    }
}

/// Each client has a node of its own, so that what one leaves behind cannot help or hinder another.
fn on_a_node(client: &Client, mut command: Command, folders: &Folders, binary: &Path, unsigned: bool) -> Result<Ended> {
    let log = folders.cache.join("logs").join(format!("{}.log", client.name));
    let mut node = Node::start(binary, &folders.cache.join("nodes").join(client.name), unsigned)?;
    let key = if unsigned { node::Key::any() } else { node.make_key()? };
    quiet_environment(&mut command);
    command.env("AWS_ENDPOINT_URL", node.url()).env("AWS_DEFAULT_REGION", "eu-central-1");
    command.env("AWS_ACCESS_KEY_ID", key.id).env("AWS_SECRET_ACCESS_KEY", key.secret);
    command.env("MACRONODE", node.binary()).env("MACRO_DATA_DIR", node.data());
    command.env("SQS_SIGNATURES", if unsigned { "off" } else { "on" });
    let ended = job::run(command, &log, client.limit, || node.kill_and_restart())?;
    if !ended.is_good() {
        print_tail("the client", &log, 60);
        print_tail("the node", &node.log(), 30);
    }
    node.stop()?;
    Ok(ended)
}

/// Nothing of this machine's own AWS set-up, and no bytecode beside the scripts.
fn quiet_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("AWS_") || name.starts_with("CELERY_")) {
            command.env_remove(name);
        }
    }
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1").env("PYTHONUTF8", "1");
}

fn judged(ended: &Ended, limit: Duration) -> Fate {
    if ended.is_good() {
        return Fate::Passed { checks: ended.passed };
    }
    if ended.timed_out {
        return Fate::Failed(format!("not done within {} s, after {} checks", limit.as_secs(), ended.passed));
    }
    if ended.failed.is_empty() {
        return Fate::Failed(format!("exit code {:?} after {} checks", ended.code, ended.passed));
    }
    Fate::Failed(ended.failed.join(", "))
}

fn told(client: &Client, fate: &Fate, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    match fate {
        Fate::Passed { checks } => format!("{:<14}pass     {checks} checks, {seconds:.1} s", client.name),
        Fate::Skipped(reason) => format!("{:<14}SKIPPED  {reason}", client.name),
        Fate::Failed(reason) => format!("{:<14}FAIL     {reason} ({seconds:.1} s)", client.name),
    }
}

fn print_tail(whose: &str, file: &Path, lines_max: usize) {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    println!("--- the end of what {whose} said:");
    lines[lines.len().saturating_sub(lines_max)..].iter().for_each(|line| println!("{line}"));
    println!("---");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_chosen_by_name() {
        let names = |wanted: &[&str]| -> Result<Vec<&str>> {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            Ok(choose(&wanted)?.iter().map(|client| client.name).collect())
        };
        assert_eq!(names(&[]).expect("all").len(), CLIENTS.len());
        assert_eq!(names(&["rust", "boto3"]).expect("two"), ["boto3", "rust"]);
        assert!(names(&["boto4"]).is_err());
    }

    #[test]
    fn a_client_passes_only_by_checks_that_held() {
        let ended = |code, passed, failed: &[&str], timed_out| {
            let failed = failed.iter().map(|name| (*name).to_owned()).collect();
            Ended { code, passed, failed, timed_out }
        };
        for (ended, expected) in [
            (ended(Some(0), 3, &[], false), "pass     3 checks"),
            (ended(Some(0), 0, &[], false), "FAIL     exit code Some(0) after 0 checks"),
            (ended(Some(1), 3, &["fifo"], false), "FAIL     fifo"),
            (ended(Some(0), 3, &["fifo"], false), "FAIL     fifo"),
            (ended(None, 3, &[], false), "FAIL     exit code None after 3 checks"),
            (ended(None, 3, &[], true), "FAIL     not done within 9 s, after 3 checks"),
        ] {
            let line = told(&CLIENTS[0], &judged(&ended, Duration::from_secs(9)), Duration::ZERO);
            assert!(line.starts_with(&format!("boto3         {expected}")), "{line}");
        }
    }
}
