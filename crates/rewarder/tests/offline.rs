//! Reward runs without a node: from files to a folder, and everything that is asked of the folder afterwards.

#[path = "offline/before.rs"]
mod before;
#[path = "offline/carried.rs"]
mod carried;
#[path = "offline/changes.rs"]
mod changes;
#[path = "offline/crash.rs"]
mod crash;
#[path = "offline/determinism.rs"]
mod determinism;
#[path = "offline/formats.rs"]
mod formats;
#[path = "offline/leftovers.rs"]
mod leftovers;
#[path = "offline/proofs.rs"]
mod proofs;
#[path = "offline/refusals.rs"]
mod refusals;
#[path = "offline/sealed.rs"]
mod sealed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ron_calculus::Units;
use ron_log::{Disk, RamDisk};
use ron_usage::InputFile;
use svc_rewarder::{Computed, Cost, Job, PolicyDocument, Seal, SealedRun, Trust, Unwatched, artifacts, compute};

const MEMORY_BYTES: u64 = 256 << 20;

/// The smallest policy there is.
const SMALLEST: &str =
    r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000000","weights":{"usage":"1"}}]}"#;

/// Two assets, three metrics, a cap and a minimum.
const RICH: &str = r#"{"id":"rich","ruleset":1,"assets":[
  {"asset":"RON","pool":"1000003","weights":{"usage":"1","bytes":"3/7"},"cap":"90000"},
  {"asset":"USDC","pool":"777","weights":{"bytes":"2"},"minimum":"3","rounding":"webster"}]}"#;

/// A folder of files, and what is ordered with them.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { folder: tempfile::tempdir().expect("a scratch folder") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// An order with these files and this policy, unsigned.
    fn job(&self, files: &[(&str, &str)], policy: &str) -> Job {
        let inputs = files.iter().map(|(name, text)| InputFile::new(*name, self.write(name, text)));
        Job {
            epoch: "2026-11".parse().expect("an epoch"),
            inputs: inputs.collect(),
            policy: unsigned(policy),
            pools: BTreeMap::new(),
            carry: BTreeMap::new(),
            carry_from: None,
            cost: cost(2),
        }
    }
}

fn cost(threads: usize) -> Cost {
    Cost { threads, memory_bytes: MEMORY_BYTES, spill: None }
}

fn unsigned(policy: &str) -> PolicyDocument {
    let trust = Trust { allows_unsigned: true, ..Trust::default() };
    PolicyDocument::read(policy.as_bytes(), trust).expect("a policy")
}

fn computed(job: &Job) -> Computed {
    let computed = compute(job, &Unwatched).expect("a run");
    if let Err(breach) = &computed.outcome {
        panic!("in quarantine: {breach}");
    }
    computed
}

/// A run written to memory.
fn written(job: &Job) -> (Arc<dyn Disk>, Seal) {
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    let seal = artifacts::write(&computed(job), &*disk, job.cost.threads, &Unwatched).expect("written");
    (disk, seal)
}

fn opened(disk: &Arc<dyn Disk>) -> SealedRun {
    SealedRun::open(Arc::clone(disk), MEMORY_BYTES, 2).expect("a run")
}

/// Every file of a folder.
fn files(disk: &dyn Disk) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let file = disk.open(&name).expect("there");
        let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
        file.read_at(0, &mut bytes).expect("read");
        (name, bytes)
    };
    disk.list().expect("listed").into_iter().map(read).collect()
}

/// Usage of so many actors in two metrics, without pattern and always the same.
fn usage(actors: usize) -> String {
    let mut text = "actor,metric,quantity\n".to_owned();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for actor in 0..actors {
        for metric in ["usage", "bytes"] {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let actor = if actor % 3 == 0 { format!("0x{actor:040x}") } else { format!("actor-{actor} é\"") };
            let cell = actor.replace('"', "\"\"");
            text += &format!("\"{cell}\",{metric},{}\n", seed % 10_000 / (1 + seed % 7));
        }
    }
    text
}

fn units(asset: &str, units: u128) -> BTreeMap<String, Units> {
    BTreeMap::from([(asset.to_owned(), Units(units))])
}
