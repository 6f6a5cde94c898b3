//! Our own side of a measurement: one job in a process of its own, which says on its last line what it did.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use ron_calculus::{Policy, Question, Totals, allocate};
use ron_kernel::clock;
use ron_ledger::{Book, BookOptions, Ledger as _, Outcome};
use ron_log::RealDisk;
use ron_types::limits::rewarder::BATCH_ENTRIES_MAX;
use ron_usage::{InputFile, Limits, Progress};
use serde_json::json;
use svc_rewarder::{Folder, Intents, SealedRun};

use super::{Job, POOL, Sample};

/// What the process is told.
#[derive(clap::Args, Debug)]
pub struct ChildArgs {
    /// The job
    job: Job,
    /// The usage file, or the folder of a run
    file: PathBuf,
    /// Folder for what does not fit into memory, or for the ledger
    spill: PathBuf,
    /// Memory cap in bytes
    #[arg(long)]
    memory: u64,
    /// Threads
    #[arg(long)]
    threads: usize,
}

struct GoOn;

impl Progress for GoOn {
    fn read(&self, bytes: u64, of: u64) -> bool {
        bytes <= of
    }
}

/// Does the job and prints a [`Sample`].
pub fn run(arguments: &ChildArgs) -> anyhow::Result<()> {
    let sample = match arguments.job {
        Job::Run => book(arguments)?,
        _ => count(arguments)?,
    };
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}

/// Books the payouts of the run in `file` in a new embedded ledger in `spill`, as a node does: from the sealed files.
fn book(arguments: &ChildArgs) -> anyhow::Result<Sample> {
    let (book, _) = Book::open(Arc::new(RealDisk::open(&arguments.spill)?), BookOptions::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let started = clock::now();
    let folder = Arc::new(Folder::open(&arguments.file)?);
    let loaded = SealedRun::open(folder, arguments.memory, arguments.threads)?.load()?;
    let intents = Intents::of(&loaded.computed);
    let (mut place, mut booked) = (0, 0_u64);
    while let Some((batch, next)) = intents.batch(place, BATCH_ENTRIES_MAX) {
        let outcomes = runtime.block_on(book.submit(&batch))?;
        booked += outcomes.iter().filter(|outcome| **outcome == Outcome::Accepted).count() as u64;
        place = next;
    }
    let tallies = runtime.block_on(book.tally(&loaded.computed.run_key))?;
    let seconds = clock::now().duration_since(started).as_secs_f64();
    anyhow::ensure!(tallies == intents.tallies(), "the ledger has {tallies:?}");
    let sum = tallies.iter().map(|tally| tally.paid).sum::<u128>().to_string();
    Ok(Sample { seconds, actors: booked, sum, peak_mib: own_peak_mib()?, booking_peak_mib: 0.0 })
}

fn own_peak_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    peak_mib(&status).context("the system says how much memory was used")
}

fn count(arguments: &ChildArgs) -> anyhow::Result<Sample> {
    let limits = Limits {
        memory_bytes: arguments.memory,
        threads: arguments.threads,
        spill: Some(arguments.spill.clone()),
        unpacked_bytes_max: u64::MAX,
    };
    let files = [InputFile::new("usage", &arguments.file)];
    let started = clock::now();
    let read = ron_usage::read(&files, &limits, &GoOn)?;
    let sum = match arguments.job {
        Job::Allocate => paid(&read.totals, arguments.threads)?,
        _ => {
            let totals = &read.totals;
            (0..totals.roster().len()).flat_map(|actor| totals.entries(actor)).map(|(_, total)| total).sum()
        }
    };
    let seconds = clock::now().duration_since(started).as_secs_f64();
    let actors = read.totals.roster().len() as u64;
    Ok(Sample { seconds, actors, sum: sum.to_string(), peak_mib: own_peak_mib()?, booking_peak_mib: 0.0 })
}

/// Divides the pool; the sum of the amounts.
fn paid(totals: &Totals, threads: usize) -> anyhow::Result<u128> {
    let policy: Policy = serde_json::from_value(policy())?;
    let (run_key, carry) = ([7; 32], BTreeMap::new());
    let question = Question { policy: &policy, totals, run_key: &run_key, carry: &carry, threads };
    let allocations = allocate(&question)?;
    Ok(allocations.iter().flat_map(|asset| &asset.amounts).sum())
}

/// The smallest policy.
pub fn policy() -> serde_json::Value {
    let asset = json!({"asset": "RON", "pool": POOL.to_string(), "weights": {"usage": "1"}});
    json!({"id": "bench", "ruleset": 1, "assets": [asset]})
}

/// Peak resident memory in what the system says about a process.
pub fn peak_mib(status: &str) -> Option<f64> {
    let text = crate::machine::field(status, "VmHWM")?;
    Some(text.trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_one_and_memory_is_read() {
        assert!(serde_json::from_value::<Policy>(policy()).is_ok());
        assert_eq!(peak_mib("Name:\tx\nVmHWM:\t  2048 kB\n"), Some(2.0));
        assert_eq!(peak_mib("Name:\tx\n"), None);
    }
}
