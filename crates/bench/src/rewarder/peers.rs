//! Who does the job: this library, the node's command, and what people use today, each in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ron_kernel::clock;
use serde_json::Value;

use super::child::{peak_mib, policy};
use super::data::Epoch;
use super::postgres::PostgresPeer;
use super::{Job, MEMORY_BYTES, Sample};
use crate::mailbox::scratch::{Scratch, target_folder};

const SCRIPT: &str = include_str!("peers.py");
/// Package, its name on the page, and the most rows it gets: pandas holds every row as an object.
const PACKAGES: [(&str, &str, u64); 3] =
    [("duckdb", "DuckDB", u64::MAX), ("polars", "Polars", u64::MAX), ("pandas", "pandas", 10_000_000)];

/// Most rows that PostgreSQL gets: more would take it most of an hour to load.
const POSTGRES_ROWS_MAX: u64 = 10_000_000;

/// Something that can do a job.
#[derive(Debug)]
pub enum Engine {
    /// This library in a process of this binary.
    Ours,
    /// `macronode reward run`.
    Node(PathBuf),
    /// A package of Python, in an environment of its own.
    Python { package: &'static str, name: String, rows_max: u64, python: PathBuf },
    /// SQL in a server of its own.
    Postgres { name: String, peer: Box<PostgresPeer> },
}

/// Name of something that is not measured, and why.
pub type Absent = (String, String);

/// Installs the packages beside the build and starts the server; those that could not be, with the reason.
pub fn install(scratch: &Scratch) -> anyhow::Result<(Vec<Engine>, Vec<Absent>)> {
    let folder = target_folder()?.join("tools").join("rewarder");
    let (mut engines, mut absent) = (Vec::new(), Vec::new());
    for (package, name, rows_max) in PACKAGES {
        match environment(&folder, package) {
            Ok((python, version)) => {
                engines.push(Engine::Python { package, name: format!("{name} {version}"), rows_max, python });
            }
            Err(error) => absent.push((name.to_owned(), format!("{error:#}"))),
        }
    }
    let started = PostgresPeer::start(&scratch.folder("postgres")?).and_then(|peer| Ok((peer.version()?, peer)));
    match started {
        Ok((version, peer)) => {
            engines.push(Engine::Postgres { name: format!("PostgreSQL {version}"), peer: Box::new(peer) });
        }
        Err(error) => absent.push(("PostgreSQL".to_owned(), format!("{error:#}"))),
    }
    Ok((engines, absent))
}

fn environment(folder: &Path, package: &str) -> anyhow::Result<(PathBuf, String)> {
    let python = folder.join("bin").join("python");
    if !python.is_file() {
        finish(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    let ask = format!("import importlib.metadata as all; print(all.version('{package}'))");
    let version = || finish(Command::new(&python).args(["-c", &ask]));
    if let Ok(version) = version() {
        return Ok((python.clone(), version));
    }
    eprintln!("installing {package}");
    finish(Command::new(&python).args(["-m", "pip", "install", "--quiet", package, "pyarrow"]))?;
    let version = version()?;
    Ok((python, version))
}

/// Runs to the end; what it printed last.
pub fn finish(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().lines().last().unwrap_or_default().to_owned();
    anyhow::ensure!(output.status.success(), "ended with {}: {}", output.status, text(&output.stderr));
    Ok(text(&output.stdout))
}

impl Engine {
    /// Name on the page.
    pub fn name(&self) -> String {
        match self {
            Engine::Ours | Engine::Node(_) => "macronode".to_owned(),
            Engine::Python { name, .. } | Engine::Postgres { name, .. } => name.clone(),
        }
    }

    /// Whether it is measured at this job.
    pub fn can(&self, job: Job, epoch: Epoch) -> bool {
        match self {
            Engine::Ours => job != Job::Run,
            Engine::Node(_) => job == Job::Run,
            Engine::Python { rows_max, .. } => job != Job::Run && epoch.rows <= *rows_max,
            Engine::Postgres { .. } => job != Job::Run && epoch.rows <= POSTGRES_ROWS_MAX,
        }
    }

    /// Does the job once.
    pub fn run(&self, job: Job, epoch: Epoch, file: &Path, folder: &Path) -> anyhow::Result<Sample> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let word = if job == Job::Aggregate { "aggregate" } else { "allocate" };
        match self {
            Engine::Ours => own_child(word, file, folder, &threads),
            Engine::Postgres { peer, .. } => peer.run(job, epoch, folder),
            Engine::Python { package, python, .. } => {
                let mut command = Command::new(python);
                command.args(["-c", SCRIPT, package, word]).arg(file).args([&threads, &super::POOL.to_string()]);
                Ok(serde_json::from_str(&finish(&mut command)?)?)
            }
            Engine::Node(node) => run_node(node, file, folder, &threads),
        }
    }
}

/// A process of this binary.
fn own_child(word: &str, file: &Path, folder: &Path, threads: &str) -> anyhow::Result<Sample> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["rewarder-child", word]).arg(file).arg(folder);
    command.args(["--memory", &MEMORY_BYTES.to_string(), "--threads", threads]);
    Ok(serde_json::from_str(&finish(&mut command)?)?)
}

/// Runs the command, watches its memory, and reads what it paid from the manifest.
fn run_node(node: &Path, file: &Path, folder: &Path, threads: &str) -> anyhow::Result<Sample> {
    let (policy_file, out) = (folder.join("policy.json"), folder.join("out"));
    std::fs::write(&policy_file, policy().to_string())?;
    let mut command = Command::new(node);
    command.args(["reward", "run", "--unsigned", "--epoch", "bench", "--threads", threads, "--usage"]).arg(file);
    command.arg("--policy").arg(&policy_file).arg("--out").arg(&out).args(["--memory", &MEMORY_BYTES.to_string()]);
    let started = clock::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut peak = 0.0_f64;
    let status = loop {
        // The peak only grows, so that the last look before the end has nearly all of it.
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        peak = peak.max(peak_mib(&status).unwrap_or(0.0));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let seconds = clock::now().duration_since(started).as_secs_f64();
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("run.json"))?)?;
    let paid = manifest["assets"][0]["paid"].as_str().context("the manifest says what was paid")?.to_owned();
    let actors = manifest["actors"].as_u64().or_else(|| manifest["actors"].as_str()?.parse().ok()).unwrap_or(0);
    let ledger = folder.join("ledger");
    std::fs::create_dir_all(&ledger)?;
    let booked = own_child("run", &out, &ledger, threads)?;
    anyhow::ensure!(booked.sum == paid, "{} units are booked, {paid} are paid", booked.sum);
    std::fs::remove_dir_all(&out)?;
    std::fs::remove_dir_all(&ledger)?;
    let seconds = seconds + booked.seconds;
    Ok(Sample { seconds, actors, sum: paid, peak_mib: peak, booking_peak_mib: booked.peak_mib })
}
