//! Our own side of a measurement: one job in a process of its own, which says on its last line what it did.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use ron_calculus::{Policy, Question, Totals, allocate};
use ron_kernel::clock;
use ron_usage::{InputFile, Limits, Progress};
use serde_json::json;

use super::{Job, POOL, Sample};

/// What the process is told.
#[derive(clap::Args, Debug)]
pub struct ChildArgs {
    /// The job
    job: Job,
    /// The usage file
    file: PathBuf,
    /// Folder for what does not fit into memory
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
    let limits = Limits {
        memory_bytes: arguments.memory,
        threads: arguments.threads,
        spill: Some(arguments.spill.clone()),
        unpacked_bytes_max: u64::MAX,
    };
    let files = [InputFile { name: "usage".to_owned(), path: arguments.file.clone() }];
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
    let status = std::fs::read_to_string("/proc/self/status")?;
    let sample = Sample {
        seconds,
        actors: read.totals.roster().len() as u64,
        sum: sum.to_string(),
        peak_mib: peak_mib(&status).context("the system says how much memory was used")?,
    };
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
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
