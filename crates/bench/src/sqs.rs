//! The SQS surface beside the native one and beside other servers that speak SQS.

mod client;
mod goals;
mod held;
mod listing;
mod node;
mod page;
mod peers;
mod sign;

use std::path::PathBuf;

use self::node::FreshSqsNode;
use crate::mailbox::cell::{Cell, Workload};
use crate::mailbox::node::{FreshNode, NodeOptions};
use crate::mailbox::results::Results;
use crate::mailbox::scratch::Scratch;
use crate::mailbox::target::{Id, Promise, System};
use crate::mailbox::{Plan, http, measure_cells};
use crate::process::run_until_interrupted;
use crate::report::Row;

pub use self::peers::Given;

const SEND_64: Cell = Cell { workload: Workload::Send, in_flight: 64, payload_bytes: 256 };
const SETTLE_64: Cell = Cell { workload: Workload::Settle, ..SEND_64 };
const BATCH_64: Cell = Cell { workload: Workload::Batch, ..SEND_64 };
const CYCLE_64: Cell = Cell { workload: Workload::Cycle, ..SEND_64 };
const CELLS: [Cell; 6] =
    [Cell { in_flight: 1, ..SEND_64 }, SEND_64, BATCH_64, SETTLE_64, Cell { in_flight: 1, ..CYCLE_64 }, CYCLE_64];

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SqsPart {
    /// Sending, one and ten at a time.
    Send,
    /// Receiving and deleting what waits.
    Settle,
    /// Sending, receiving and deleting.
    Cycle,
    /// Many messages in flight.
    Held,
    /// Many queues listed.
    Listing,
}

/// Choices for one run of the bench.
#[derive(Debug)]
pub struct Options {
    /// Cells, rounds and times.
    pub plan: Plan,
    /// The one part to measure; all if none.
    pub only: Option<SqsPart>,
    /// Whether other servers are measured as well.
    pub peers: bool,
    /// Servers that run already.
    pub given: Vec<Given>,
    /// Path of the node's binary.
    pub node: PathBuf,
}

/// Results of one run.
pub struct Outcome {
    results: Results,
    rows: Vec<Row>,
    absent: Vec<(String, String)>,
    refusals: u64,
    plan: Plan,
    peers: bool,
}

impl Options {
    fn has(&self, part: SqsPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn cells(&self) -> Vec<Cell> {
        let part = |workload| match workload {
            Workload::Send | Workload::Batch => SqsPart::Send,
            Workload::Settle => SqsPart::Settle,
            Workload::Cycle => SqsPart::Cycle,
        };
        CELLS.into_iter().filter(|cell| self.has(part(cell.workload))).collect()
    }
}

/// Measures until done or interrupted; either way every process it started is ended.
pub fn measure(options: &Options) -> anyhow::Result<Outcome> {
    run_until_interrupted(measure_all(options))
}

async fn measure_all(options: &Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let (plan, peers) = (options.plan, options.peers || !options.given.is_empty());
    let (results, rows, absent) = (Results::default(), Vec::new(), Vec::new());
    let mut outcome = Outcome { results, rows, absent, refusals: 0, plan, peers };
    let cells = options.cells();
    if !cells.is_empty() {
        let mut systems = own_systems(options, &scratch)?;
        if peers {
            let (started, absent) = peers::start(&scratch, &options.given).await?;
            systems.extend(started);
            outcome.absent.extend(absent);
        }
        measure_cells(&plan, &cells, &mut systems, &mut outcome.results).await;
        outcome.rows.extend(goals::rows(&outcome.results).into_iter().filter(|row| {
            // Of one part alone only its own targets are shown.
            options.only.is_none() || row.ratio.is_some()
        }));
    }
    if options.has(SqsPart::Held) {
        outcome.take("messages in flight", held::measure(&options.node, &scratch, SEND_64.payload_bytes).await);
    }
    if options.has(SqsPart::Listing) {
        outcome.take("listing", listing::measure(&options.node, &scratch).await);
    }
    outcome.refusals = http::refusals();
    Ok(outcome)
}

/// This node over both of its surfaces.
fn own_systems(options: &Options, scratch: &Scratch) -> anyhow::Result<Vec<System>> {
    let node = |name| -> anyhow::Result<NodeOptions> {
        Ok(NodeOptions {
            binary: options.node.clone(),
            folder: scratch.folder(name)?,
            amnesia: false,
            settings: String::new(),
        })
    };
    let native = FreshNode::new(node("native")?);
    let sqs = FreshSqsNode::new(node("sqs")?);
    Ok(vec![
        System::new(Id::Durable, "macronode", "durable, HTTP/JSON", Promise::Synced, native),
        System::new(Id::Sqs, "macronode", "durable, SQS with signatures", Promise::Synced, sqs),
    ])
}

impl Outcome {
    fn take(&mut self, part: &str, row: anyhow::Result<Row>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => {
                eprintln!("*** {part}: NOT measured: {error:#}");
                self.absent.push((part.to_owned(), format!("{error:#}")));
            }
        }
    }
}
