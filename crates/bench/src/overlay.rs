//! Lanes of a node beside NATS, gossipsub and iroh-gossip, sessions beside raw loopback, handshakes, the mailbox over
//! OAP/1, a stopped peer, idle sessions.

mod drive;
#[cfg(feature = "peers")]
mod gossipsub;
mod idle;
mod iroh;
mod lanes;
mod mailbox;
#[cfg(feature = "peers")]
mod nats;
mod node;
mod page;
mod raw;
mod rows;
mod session;
mod stopped;
mod systems;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use ron_kernel::{Deadline, clock};

use self::idle::IdleFigures;
use self::mailbox::MailboxFigures;
use self::stopped::StoppedFigures;
use self::systems::{LaneFigures, Systems};
use crate::kernel::Size;
use crate::mailbox::scratch::Scratch;
use crate::process::run_until_interrupted;

pub use self::idle::{HoldArgs, hold};

/// Time that a part may take, however long its waits add up.
const PART_WITHIN: Duration = Duration::from_mins(20);

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
    /// Messages through a node and through its peers.
    Lanes,
    /// Bytes over one session and over bare loopback.
    Sessions,
    /// Handshakes with and without post-quantum keys.
    Handshakes,
    /// The mailbox over OAP/1.
    Mailbox,
    /// A peer whose process is stopped.
    Stopped,
    /// Sessions that say nothing.
    Idle,
}

const PARTS: [OverlayPart; 6] = [
    OverlayPart::Lanes,
    OverlayPart::Sessions,
    OverlayPart::Handshakes,
    OverlayPart::Mailbox,
    OverlayPart::Stopped,
    OverlayPart::Idle,
];

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
    /// Whether other systems are measured as well.
    pub peers: bool,
    /// Path of the node's binary.
    pub node: PathBuf,
}

/// Results of one run. Each list has one figure for each round, so that ratios are taken round by round.
#[derive(Default)]
pub struct Outcome {
    /// Systems with lanes, this node first.
    lanes: Vec<LaneFigures>,
    /// Bytes a second at 64 KiB: one session, loopback with a write for each frame, loopback in batches, and the same
    /// passed on by a process in between.
    session: Vec<f64>,
    raw_single: Vec<f64>,
    raw_batched: Vec<f64>,
    raw_relayed: Vec<f64>,
    hybrid: Vec<f64>,
    classical: Vec<f64>,
    mailbox: MailboxFigures,
    stopped: StoppedFigures,
    idle: Option<IdleFigures>,
    /// What was not measured, and why.
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
    for part in PARTS.into_iter().filter(|part| options.only.is_none_or(|only| only == *part)) {
        let began = clock::now();
        let measuring = outcome.measure_part(part, options, &scratch).boxed();
        let measured = Deadline::after(PART_WITHIN).run("measuring a part", measuring).await;
        if let Err(error) = measured.map_err(anyhow::Error::from).flatten() {
            outcome.miss(&format!("{part:?}").to_lowercase(), &error);
        }
        eprintln!("{part:?} took {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(outcome)
}

impl Outcome {
    async fn measure_part(&mut self, part: OverlayPart, options: &Options, scratch: &Scratch) -> anyhow::Result<()> {
        let (node, each) = (&*options.node, (options.rounds, options.time));
        match part {
            OverlayPart::Lanes => self.measure_lanes(options, scratch).await,
            OverlayPart::Sessions => self.measure_sessions(options).await,
            OverlayPart::Handshakes => self.measure_handshakes(options).await,
            OverlayPart::Mailbox => mailbox::measure(node, scratch, each, &mut self.mailbox).await,
            OverlayPart::Stopped => stopped::measure(node, scratch, each, &mut self.stopped).await,
            OverlayPart::Idle => {
                let sessions = options.size.pick(1_000, 10_000);
                self.idle = Some(idle::measure(node, scratch, sessions).await?);
                Ok(())
            }
        }
    }

    /// Every cell in every round, the systems taking turns.
    async fn measure_lanes(&mut self, options: &Options, scratch: &Scratch) -> anyhow::Result<()> {
        let systems = Systems::start(options, scratch, self).await?;
        self.lanes = systems.names();
        for cell in CELLS {
            let mut failed = vec![false; systems.len()];
            // The first round warms everybody up and is thrown away.
            for round in 0..=options.rounds {
                for (place, system) in systems.in_order_of(round) {
                    if failed[place] {
                        continue;
                    }
                    eprintln!("{cell}: round {round} of {}: {}", options.rounds, self.lanes[place].name);
                    match system.measure(cell, options.time).await {
                        Ok(figure) if round > 0 => self.lanes[place].push(cell, figure),
                        Ok(_) => {}
                        Err(error) => {
                            failed[place] = true;
                            self.miss(&format!("{}, {cell}", self.lanes[place].name), &error);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn measure_sessions(&mut self, options: &Options) -> anyhow::Result<()> {
        for round in 0..options.rounds {
            eprintln!("sessions: round {} of {}", round + 1, options.rounds);
            self.session.push(session::bytes_per_second(options.time).await?);
            self.raw_single.push(raw::bytes_per_second(options.time, raw::Way::WriteEach)?);
            self.raw_batched.push(raw::bytes_per_second(options.time, raw::Way::Batched)?);
            self.raw_relayed.push(raw::bytes_per_second(options.time, raw::Way::Relayed)?);
        }
        Ok(())
    }

    async fn measure_handshakes(&mut self, options: &Options) -> anyhow::Result<()> {
        for round in 0..options.rounds {
            eprintln!("handshakes: round {} of {}", round + 1, options.rounds);
            self.hybrid.push(session::handshakes_per_second(options.time, true).await?);
            self.classical.push(session::handshakes_per_second(options.time, false).await?);
        }
        Ok(())
    }

    fn miss(&mut self, name: &str, error: &anyhow::Error) {
        eprintln!("*** {name} is NOT measured: {error:#}");
        self.absent.push((name.to_owned(), format!("{error:#}")));
    }
}
