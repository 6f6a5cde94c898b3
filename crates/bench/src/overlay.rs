//! Lanes of a node beside NATS over TLS, sessions beside raw loopback, handshakes with and without post-quantum keys.

mod drive;
mod lanes;
#[cfg(feature = "peers")]
mod nats;
mod node;
mod page;
mod raw;
mod session;
mod slow;

use std::path::PathBuf;
use std::time::Duration;

use self::drive::{Connect, Figures};
use self::node::LaneNode;
use crate::kernel::Size;
use crate::mailbox::scratch::Scratch;
use crate::process::run_until_interrupted;

/// One cell: subscribers and bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    subscribers: usize,
    payload_bytes: usize,
}

const CELLS: [Cell; 6] = [
    Cell { subscribers: 1, payload_bytes: 64 },
    Cell { subscribers: 1, payload_bytes: 1024 },
    Cell { subscribers: 1, payload_bytes: 64 * 1024 },
    Cell { subscribers: 8, payload_bytes: 64 },
    Cell { subscribers: 8, payload_bytes: 1024 },
    Cell { subscribers: 8, payload_bytes: 64 * 1024 },
];

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OverlayPart {
    /// Messages through a node and through NATS.
    Lanes,
    /// Bytes over one session and over bare loopback.
    Sessions,
    /// Handshakes with and without post-quantum keys.
    Handshakes,
    /// A subscriber that stops reading.
    Slow,
}

/// Choices for one run of the bench.
#[derive(Debug)]
pub struct Options {
    /// Short or whole.
    pub size: Size,
    /// How often each thing is measured.
    pub rounds: usize,
    /// How long each thing is measured each time.
    pub time: Duration,
    /// The one part to measure; all if none.
    pub only: Option<OverlayPart>,
    /// Whether NATS is measured as well.
    pub peers: bool,
    /// Path of the node's binary.
    pub node: PathBuf,
}

/// Results of one run. Each list has one figure for each round, so that ratios are taken round by round.
#[derive(Default)]
pub struct Outcome {
    ours: Vec<(Cell, Figures)>,
    nats: Vec<(Cell, Figures)>,
    nats_name: String,
    /// Bytes a second at 64 KiB: one session, loopback with a write for each frame, loopback in batches, and the same
    /// passed on by a process in between.
    session: Vec<f64>,
    raw_single: Vec<f64>,
    raw_batched: Vec<f64>,
    raw_relayed: Vec<f64>,
    hybrid: Vec<f64>,
    classical: Vec<f64>,
    /// p99 in milliseconds while everybody reads, and while one of eight does not.
    all_read: Vec<f64>,
    one_stuck: Vec<f64>,
    absent: Vec<(String, String)>,
    quick: bool,
    peers: bool,
    rounds: usize,
    time: Duration,
}

/// Measures until done or interrupted; either way every process it started is ended.
pub fn measure(options: &Options) -> anyhow::Result<Outcome> {
    run_until_interrupted(measure_all(options))
}

async fn measure_all(options: &Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let (quick, peers) = (options.size.pick(true, false), options.peers);
    let mut outcome = Outcome { quick, peers, rounds: options.rounds, time: options.time, ..Outcome::default() };
    let has = |part| options.only.is_none_or(|only| only == part);
    if has(OverlayPart::Lanes) {
        measure_lanes(options, &scratch, &mut outcome).await?;
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}: sessions, handshakes, a stuck reader", round + 1, options.rounds);
        if has(OverlayPart::Sessions) {
            outcome.session.push(session::bytes_per_second(options.time).await?);
            outcome.raw_single.push(raw::bytes_per_second(options.time, raw::Way::WriteEach)?);
            outcome.raw_batched.push(raw::bytes_per_second(options.time, raw::Way::Batched)?);
            outcome.raw_relayed.push(raw::bytes_per_second(options.time, raw::Way::Relayed)?);
        }
        if has(OverlayPart::Handshakes) {
            outcome.hybrid.push(session::handshakes_per_second(options.time, true).await?);
            outcome.classical.push(session::handshakes_per_second(options.time, false).await?);
        }
        if has(OverlayPart::Slow) {
            let node = LaneNode::start(&options.node, scratch.folder(&format!("slow-{round}"))?).await?;
            outcome.all_read.push(slow::p99_ms(&node, false, options.time).await?);
            outcome.one_stuck.push(slow::p99_ms(&node, true, options.time).await?);
        }
    }
    Ok(outcome)
}

/// Every cell in every round, the systems taking turns.
async fn measure_lanes(options: &Options, scratch: &Scratch, outcome: &mut Outcome) -> anyhow::Result<()> {
    let node = LaneNode::start(&options.node, scratch.folder("lanes")?).await?;
    let nats = start_nats(options, scratch, outcome).await;
    for cell in CELLS {
        let (mut ours, mut theirs) = (Figures::default(), Figures::default());
        for round in 0..=options.rounds {
            eprintln!("{cell:?}: round {round} of {}", options.rounds);
            // The first round warms both up and is thrown away.
            let drop_first = |figures: &mut Figures, one| {
                if round > 0 {
                    figures.push(one)
                }
            };
            drop_first(&mut ours, drive::measure(&node, cell, options.time).await?);
            if let Some(nats) = &nats {
                match nats.measure(cell, options.time).await {
                    Ok(one) => drop_first(&mut theirs, one),
                    Err(error) => outcome.absent.push((format!("NATS, {cell:?}"), format!("{error:#}"))),
                }
            }
        }
        outcome.ours.push((cell, ours));
        outcome.nats.push((cell, theirs));
    }
    Ok(())
}

/// A system behind a pointer, so that a build without its client has the same shape.
trait Measured {
    fn measure(&self, cell: Cell, time: Duration)
    -> futures_util::future::BoxFuture<'_, anyhow::Result<drive::Figure>>;
}

impl<T: Connect + Sync> Measured for T {
    fn measure(
        &self,
        cell: Cell,
        time: Duration,
    ) -> futures_util::future::BoxFuture<'_, anyhow::Result<drive::Figure>> {
        Box::pin(drive::measure(self, cell, time))
    }
}

#[cfg(feature = "peers")]
async fn start_nats(options: &Options, scratch: &Scratch, outcome: &mut Outcome) -> Option<Box<dyn Measured>> {
    if !options.peers {
        return None;
    }
    let started = async { nats::Nats::start(scratch.folder("nats")?).await }.await;
    match started {
        Ok(nats) => {
            outcome.nats_name = nats.name.clone();
            Some(Box::new(nats))
        }
        Err(error) => {
            eprintln!("*** NATS is NOT measured: {error:#}");
            outcome.absent.push(("NATS".to_owned(), format!("{error:#}")));
            None
        }
    }
}

#[cfg(not(feature = "peers"))]
async fn start_nats(options: &Options, _scratch: &Scratch, outcome: &mut Outcome) -> Option<Box<dyn Measured>> {
    if options.peers {
        let reason = "this binary was built without the feature `peers`";
        outcome.absent.push(("NATS".to_owned(), reason.to_owned()));
        std::future::ready(()).await;
    }
    None
}
