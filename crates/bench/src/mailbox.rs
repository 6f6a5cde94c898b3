//! The mailbox beside its peers: who takes part, in which order everything is measured, and what comes of it.

mod backlog;
pub mod ceiling;
pub mod cell;
mod chart;
pub mod child;
pub mod drive;
pub mod engine;
mod goals;
pub mod http;
mod memory;
mod native;
pub mod node;
pub mod page;
#[cfg(feature = "peers")]
pub mod peers;
pub mod results;
pub mod scratch;
pub mod target;

use std::path::{Path, PathBuf};

use self::ceiling::{BareHttp, GroupCommit, RawLog};
use self::cell::{Cell, Workload};
use self::node::{FreshNode, NodeOptions};
use self::results::Results;
use self::scratch::{Scratch, settle_disk};
use self::target::{Id, Promise, System};
use crate::process::run_until_interrupted;
use crate::report::Row;

pub use self::ceiling::router as bare_router;
pub use self::cell::Plan;

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MailboxPart {
    /// Sending.
    Send,
    /// Sending, receiving and acknowledging.
    Cycle,
    /// A long queue against an empty one.
    Backlog,
    /// Memory and restart with ten million messages.
    Memory,
    /// The restarts of the same alone.
    Restart,
}

/// Choices for one run of the bench.
#[derive(Debug)]
pub struct Options {
    /// Cells, rounds and times.
    pub plan: Plan,
    /// The one part to measure; all if none.
    pub only: Option<MailboxPart>,
    /// Whether other systems are measured as well.
    pub peers: bool,
    /// Systems whose name contains one of these; everybody if empty.
    pub systems: Vec<String>,
    /// Path of the node's binary.
    pub node: PathBuf,
}

/// Results of one run.
pub struct Outcome {
    /// Samples of every cell and round.
    pub results: Results,
    /// Rows that compare with the targets.
    pub rows: Vec<Row>,
    /// Systems that could not take part, each with the reason.
    pub absent: Vec<(String, String)>,
    /// Requests to the node that were refused as busy and sent again.
    pub refusals: u64,
    plan: Plan,
    peers: bool,
}

impl Options {
    fn has(&self, part: MailboxPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn wants(&self, name: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|wanted| name.contains(wanted.as_str()))
    }

    fn cells(&self) -> Vec<Cell> {
        let parts = [(MailboxPart::Send, Workload::Send), (MailboxPart::Cycle, Workload::Cycle)];
        let parts = parts.into_iter().filter(|(part, _)| self.has(*part));
        parts.flat_map(|(_, workload)| self.plan.cells(workload)).collect()
    }
}

/// Measures until done or interrupted; either way every process it started is ended.
pub fn measure(options: &Options) -> anyhow::Result<Outcome> {
    run_until_interrupted(measure_all(options))
}

async fn measure_all(options: &Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let (plan, peers) = (options.plan, options.peers);
    let (results, rows, absent) = (Results::default(), Vec::new(), Vec::new());
    let mut outcome = Outcome { results, rows, absent, refusals: 0, plan, peers };
    let cells = options.cells();
    if !cells.is_empty() {
        let mut systems = own_systems(options, &scratch, &mut outcome).await?;
        systems.extend(peer_systems(options, &scratch, &mut outcome).await?);
        measure_cells(&options.plan, &cells, &mut systems, &mut outcome.results).await;
        if options.has(MailboxPart::Send) && options.systems.is_empty() {
            outcome.rows.extend(goals::rows(&outcome.results, options.peers));
        }
    }
    if options.has(MailboxPart::Backlog) && options.wants("macronode") {
        let rows = backlog::measure(&options.plan, &options.node, &scratch).await;
        outcome.take("backlog", rows);
    }
    if (options.has(MailboxPart::Memory) || options.has(MailboxPart::Restart)) && options.wants("macronode") {
        let mut rows = memory::measure(&options.plan, &options.node, &scratch).await;
        if let (Ok(rows), Some(MailboxPart::Restart)) = (&mut rows, options.only) {
            rows.retain(|row| row.name.starts_with("restart"));
        }
        outcome.take("memory", rows);
    }
    outcome.refusals = http::refusals();
    Ok(outcome)
}

impl Outcome {
    fn take(&mut self, part: &str, rows: anyhow::Result<Vec<Row>>) {
        match rows {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => self.miss(part, format!("{error:#}")),
        }
    }

    fn miss(&mut self, name: &str, reason: String) {
        eprintln!("*** {name} is NOT measured: {reason}");
        self.absent.push((name.to_owned(), reason));
    }
}

/// This node by its client and in both modes over HTTP, its engine, and the ceilings.
async fn own_systems(options: &Options, scratch: &Scratch, outcome: &mut Outcome) -> anyhow::Result<Vec<System>> {
    let mut systems = Vec::new();
    if options.wants("macronode") {
        match fresh_node(&options.node, scratch, "native", false).await {
            Ok(node) => {
                let node = native::NativeNode(node);
                systems.push(System::new(Id::Native, "macronode", "durable, its Rust client", Promise::Synced, node));
            }
            Err(error) => outcome.miss("macronode's client", format!("{error:#}")),
        }
        for (id, setting, amnesia, promise) in
            [(Id::Durable, "durable", false, Promise::Synced), (Id::Amnesia, "--amnesia", true, Promise::Ram)]
        {
            match fresh_node(&options.node, scratch, setting.trim_start_matches('-'), amnesia).await {
                Ok(node) => systems.push(System::new(id, "macronode", format!("{setting}, HTTP/JSON"), promise, node)),
                Err(error) => outcome.miss(&format!("macronode {setting}"), format!("{error:#}")),
            }
        }
    }
    if options.wants("engine") {
        systems.push(engine::start(&scratch.folder("engine")?));
    }
    if options.wants("ceiling") {
        let commit = GroupCommit::new(&scratch.folder("commit")?.join("log"))?;
        let setting = "tasks append and wait, a thread syncs";
        systems.push(System::new(Id::GroupCommit, "bare group commit", setting, Promise::Ceiling, commit));
        let raw = RawLog::new(&scratch.folder("raw")?.join("log"))?;
        let setting = "write and fdatasync of all in flight";
        systems.push(System::new(Id::RawLog, "bare loop", setting, Promise::Ceiling, raw));
        let bare = BareHttp::start()?;
        systems.push(System::new(Id::BareHttp, "bare axum", "parses and answers", Promise::Ceiling, bare));
    }
    Ok(systems)
}

/// One that has shown that it can send.
async fn fresh_node(binary: &Path, scratch: &Scratch, name: &str, amnesia: bool) -> anyhow::Result<FreshNode> {
    let options =
        NodeOptions { binary: binary.to_owned(), folder: scratch.folder(name)?, amnesia, settings: String::new() };
    options.start().await?.fill(&cell::Payload::new(1), 100).await?;
    Ok(FreshNode::new(options))
}

#[cfg(feature = "peers")]
async fn peer_systems(options: &Options, scratch: &Scratch, outcome: &mut Outcome) -> anyhow::Result<Vec<System>> {
    if !options.peers {
        return Ok(Vec::new());
    }
    let (systems, absent) = peers::start(scratch, options.plan.connections_max, |name| options.wants(name)).await?;
    for peer in absent {
        outcome.absent.push((peer.name.to_owned(), peer.reason));
    }
    Ok(systems)
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unused_async, reason = "the other one waits for servers")]
async fn peer_systems(options: &Options, _scratch: &Scratch, _outcome: &mut Outcome) -> anyhow::Result<Vec<System>> {
    anyhow::ensure!(!options.peers, "this build has no clients for the peers: cargo build --features peers");
    Ok(Vec::new())
}

/// Round by round, cell by cell, all systems one after the other, so that what disturbs the machine hits them alike.
pub async fn measure_cells(plan: &Plan, cells: &[Cell], systems: &mut [System], results: &mut Results) {
    for system in systems.iter() {
        results.announce(&system.label);
    }
    for round in 0..plan.rounds {
        for &cell in cells {
            eprintln!("round {} of {}: {cell}", round + 1, plan.rounds);
            for system in systems.iter_mut() {
                settle_disk();
                let (id, name) = (system.label.id, system.label.full());
                match system.measures.measure(cell, plan.times).await {
                    Ok(Some(sample)) => {
                        let p50 = sample.micros.value_at_quantile(0.5) as f64 / 1e3;
                        eprintln!("  {:>9.0}/s  p50 {p50:>8.2} ms  {name}", sample.per_second);
                        results.record(id, cell, round, sample);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        eprintln!("  *** {name} FAILED: {error:#}");
                        results.fail(format!("{name}: {cell}: {error:#}"));
                    }
                }
            }
            systems.reverse();
        }
    }
}
