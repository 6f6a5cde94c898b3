//! Reward runs beside what people use today: adding usage up, dividing a pool, and the whole job.
//!
//! Every measurement is a process of its own, ours too, so that peak memory is its own and nobody profits from a warm
//! heap. All read the same Parquet file and must find the same actors, the same total and the same payout.

mod child;
mod data;
mod page;
mod peers;
mod postgres;
mod race;
mod seal;

use std::path::PathBuf;

use anyhow::Context as _;

use crate::kernel::Size;
use crate::mailbox::scratch::{Scratch, target_folder};
use crate::report::Row;
pub use child::ChildArgs;
pub use child::run as run_child;
use data::Epoch;
use peers::Engine;

/// Units that are divided in every epoch: their product with a score needs more than 64 bits.
const POOL: u64 = 1_000_000_000_000;
/// Most rows of an epoch that is measured in every round. A larger one is measured once: it is there for its memory,
/// and takes minutes.
const ROUNDS_ROWS_MAX: u64 = 10_000_000;
/// The memory cap of our own runs, in bytes.
const MEMORY_BYTES: u64 = 2 << 30;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Job {
    /// Usage rows added up for each actor.
    Aggregate,
    /// The same, and the pool divided to the unit by largest remainders.
    Allocate,
    /// Everything `macronode reward run` does: roots, manifest, tables, files on disk; then its payouts, booked in an
    /// embedded ledger.
    Run,
}

/// Choices for one run of the bench.
#[derive(Debug)]
pub struct Options {
    /// Length of the run.
    pub size: Size,
    /// How often each thing is measured.
    pub rounds: usize,
    /// Most rows of an epoch.
    pub rows_max: u64,
    /// Whether peers are measured as well.
    pub peers: bool,
    /// The node's binary, which does the whole job; none: it is not measured.
    pub node: Option<PathBuf>,
}

/// What one process did.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub struct Sample {
    /// Time of the job, without the start of the process.
    pub seconds: f64,
    /// Actors found.
    pub actors: u64,
    /// Sum of all quantities, or of all payouts, as text.
    pub sum: String,
    /// Peak resident memory of the process in MiB.
    pub peak_mib: f64,
    /// The same of the process that booked the payouts, where that is part of the job: it has the sealed run and the
    /// whole book in memory, which the cap of a run does not speak of.
    #[serde(default)]
    pub booking_peak_mib: f64,
}

/// All samples of one engine for one job on one epoch.
#[derive(Debug)]
pub struct Series {
    epoch: Epoch,
    job: Job,
    engine: String,
    samples: Vec<Sample>,
}

/// Results of one run.
pub struct Outcome {
    size: Size,
    rounds: usize,
    peers: bool,
    series: Vec<Series>,
    absent: Vec<(String, String)>,
    rows: Vec<Row>,
}

/// Measures everything, engine after engine in each round.
pub fn measure(options: &Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let (mut engines, mut absent) = (vec![Engine::Ours], Vec::new());
    match &options.node {
        Some(node) => engines.push(Engine::Node(node.clone())),
        None => absent.push(("the whole job".to_owned(), "there is no macronode beside this binary".to_owned())),
    }
    if options.peers {
        let (found, missing) = peers::install(&scratch)?;
        engines.extend(found);
        absent.extend(missing);
    }
    let mut series = Vec::new();
    for epoch in epochs(options) {
        let file = data::file(epoch, &target_folder()?.join("bench"))?;
        let count = if epoch.rows > ROUNDS_ROWS_MAX { 1 } else { options.rounds };
        for job in [Job::Aggregate, Job::Allocate, Job::Run] {
            let able: Vec<&Engine> = engines.iter().filter(|engine| engine.can(job, epoch)).collect();
            series.extend(rounds(count, epoch, job, &able, &file, &scratch, &mut absent)?);
        }
    }
    let mut rows = page::rows(&series);
    rows.extend(seal::measure(&scratch)?);
    if options.peers {
        let (raced, missing) = race::measure(options.size, options.rounds, &scratch)?;
        rows.extend(raced);
        absent.extend(missing);
    }
    Ok(Outcome { size: options.size, rounds: options.rounds, peers: options.peers, series, absent, rows })
}

/// The epochs of a run: ten rows for each actor.
fn epochs(options: &Options) -> Vec<Epoch> {
    let all = options.size.pick(&[100_000][..], &[1_000_000, 10_000_000, 100_000_000]);
    all.iter().filter(|rows| **rows <= options.rows_max).map(|rows| Epoch { rows: *rows, actors: rows / 10 }).collect()
}

/// Lets engines take turns; one that fails once is left out, and the page says so.
fn rounds(
    rounds: usize,
    epoch: Epoch,
    job: Job,
    engines: &[&Engine],
    file: &std::path::Path,
    scratch: &Scratch,
    absent: &mut Vec<(String, String)>,
) -> anyhow::Result<Vec<Series>> {
    let series = |engine: &&Engine| Series { epoch, job, engine: engine.name(), samples: Vec::new() };
    let mut all: Vec<Series> = engines.iter().map(series).collect();
    let mut failed = vec![false; engines.len()];
    for round in 0..rounds {
        for turn in 0..engines.len() {
            // Another one goes first in every round, so that what a round does to the machine hits all alike.
            let index = (turn + round) % engines.len();
            if failed[index] {
                continue;
            }
            eprintln!("{epoch}: {job:?}, {}, round {}", all[index].engine, round + 1);
            match engines[index].run(job, epoch, file, &scratch.folder(&format!("run-{round}-{index}"))?) {
                Ok(sample) => all[index].samples.push(sample),
                Err(error) => {
                    failed[index] = true;
                    absent.push((format!("{} ({epoch}, {job:?})", all[index].engine), format!("{error:#}")));
                }
            }
        }
    }
    agree(&all).with_context(|| format!("{epoch}, {job:?}"))?;
    all.retain(|series| !series.samples.is_empty());
    Ok(all)
}

/// Engines that found other numbers did other work: their times mean nothing.
fn agree(series: &[Series]) -> anyhow::Result<()> {
    let mut samples = series.iter().flat_map(|series| series.samples.iter().map(move |sample| (series, sample)));
    let Some((_, first)) = samples.next() else { return Ok(()) };
    for (series, sample) in samples {
        anyhow::ensure!(
            (sample.actors, &sample.sum) == (first.actors, &first.sum),
            "{} found {} actors and {}, not {} and {}",
            series.engine,
            sample.actors,
            sample.sum,
            first.actors,
            first.sum
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sum: &str) -> Sample {
        Sample { seconds: 1.0, actors: 2, sum: sum.to_owned(), peak_mib: 3.0, booking_peak_mib: 0.0 }
    }

    #[test]
    fn engines_that_disagree_are_found() {
        let epoch = Epoch { rows: 10, actors: 2 };
        let series = |samples| Series { epoch, job: Job::Aggregate, engine: "x".to_owned(), samples };
        assert!(agree(&[series(vec![sample("7"), sample("7")]), series(Vec::new())]).is_ok());
        assert!(agree(&[series(vec![sample("7")]), series(vec![sample("8")])]).is_err());
    }
}
