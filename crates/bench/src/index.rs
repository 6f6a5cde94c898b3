//! The index: answers from memory and store beside bare servers, lookups among nodes that do not answer beside stock
//! Kademlia, and a store of millions of records.

mod copies;
#[cfg(feature = "peers")]
mod helia;
mod hits;
#[cfg(feature = "peers")]
mod kademlia;
mod lookups;
mod node;
mod ours;
mod page;
mod processes;
mod records;
mod thread;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use self::hits::Side;
use self::lookups::{Plan, Series};
use self::records::StoreFigures;
use crate::kernel::Size;
use crate::mailbox::scratch::Scratch;
use crate::process::run_until_interrupted;
pub use copies::{CopyArgs, serve as serve_copy};
pub use records::{StoreArgs, run_child as run_store};

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IndexPart {
    /// Answers from memory and from the store, over HTTP.
    Hits,
    /// Lookups in networks of 12 and 100 nodes.
    Lookups,
    /// The store with millions of records.
    Store,
}

/// Choices for one run of the bench.
#[derive(Debug)]
pub struct Options {
    /// Short or whole.
    pub size: Size,
    /// How often each thing is measured.
    pub rounds: usize,
    /// How long each load runs each time.
    pub time: Duration,
    /// The one part to measure; all if none.
    pub only: Option<IndexPart>,
    /// Whether peers are measured as well.
    pub peers: bool,
    /// Provider records of the store.
    pub records: u64,
    /// Numbers of nodes of the networks that are measured.
    pub nodes: RangeInclusive<usize>,
    /// Path of the node's binary, or why there is none.
    pub node: Result<PathBuf, String>,
    /// Folder for everything that is written.
    pub scratch: PathBuf,
}

/// Something that was not measured, and why.
type Absent = (String, String);

/// Results of one run.
#[derive(Default)]
pub struct Outcome {
    hits: Vec<Side>,
    lookups: Vec<Series>,
    store: Option<StoreFigures>,
    absent: Vec<Absent>,
    only: Option<IndexPart>,
    quick: bool,
    peers: bool,
    rounds: usize,
    time: Duration,
}

impl Options {
    /// What is looked up in one measurement.
    fn plan(&self) -> Plan {
        Plan {
            published: self.size.pick(20, 120),
            unpublished: self.size.pick(5, 30),
            every: Duration::from_millis(10),
            patience: Duration::from_secs(12),
        }
    }

    fn has(&self, part: IndexPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// Measures until done or interrupted; either way every process it started is ended.
pub fn measure(options: Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let options = Options { scratch: scratch.folder("index")?, ..options };
    run_until_interrupted(measure_all(&options))
}

/// A part that fails is told as not measured; the others go on.
async fn measure_all(options: &Options) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        only: options.only,
        quick: options.size.pick(true, false),
        peers: options.peers,
        rounds: options.rounds,
        time: options.time,
        ..Outcome::default()
    };
    if options.has(IndexPart::Hits) {
        match Box::pin(hits::measure(options, &mut outcome.absent)).await {
            Ok(hits) => outcome.hits = hits,
            Err(error) => not_measured(&mut outcome.absent, "answers over HTTP", &error),
        }
    }
    if options.has(IndexPart::Lookups) {
        outcome.lookups = Box::pin(lookups::measure(options, &mut outcome.absent)).await;
    }
    if options.has(IndexPart::Store) {
        let (folder, records) = (options.scratch.clone(), options.records);
        let measuring = tokio::task::spawn_blocking(move || records::measure_apart(&folder, records, records / 10));
        match measuring.await? {
            Ok(figures) => outcome.store = Some(figures),
            Err(error) => not_measured(&mut outcome.absent, "the store", &error),
        }
    }
    Ok(outcome)
}

fn not_measured(absent: &mut Vec<Absent>, what: &str, error: &anyhow::Error) {
    eprintln!("*** {what} is NOT measured: {error:#}");
    absent.push((what.to_owned(), format!("{error:#}")));
}
