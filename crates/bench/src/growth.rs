//! What grows with time and size: a load that goes on for minutes, over queues of several lengths, and work that
//! touches very much at once. Benchmarks of seconds do not see what is not given back.

mod crowds;
mod innocent;
mod page;
mod steady;

use std::path::PathBuf;

use rustix::process::Signal;

use crate::kernel::Size;
use crate::mailbox::cell::Payload;
use crate::mailbox::node::NodeOptions;
use crate::mailbox::scratch::Scratch;
use crate::report::Row;
use crowds::Crowd;
pub use page::GrowthPage;
use steady::{LOG_BYTES, Steady};

/// What a run is told.
pub struct Options {
    /// Length of the run.
    pub size: Size,
    /// Seconds of the load beside which no message waits.
    pub seconds: f64,
    /// Path of the node's binary.
    pub node: PathBuf,
}

/// Findings of a run: what has a target, and the curve.
#[derive(Default)]
pub struct Outcome {
    /// The rows that have targets.
    pub rows: Vec<Row>,
    /// The load at each size.
    pub curve: Vec<Steady>,
    /// Work that touches much at once.
    pub crowds: Vec<Crowd>,
}

/// Bytes of each message.
const PAYLOAD_BYTES: usize = 256;
/// How many times shorter the loads are beside which messages wait.
pub const SHORTER: f64 = 5.0;

/// Loads a node at each size, one after the other.
pub async fn measure(options: &Options) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new()?;
    let payload = Payload::new(PAYLOAD_BYTES);
    let mut outcome = Outcome::default();
    for waiting in options.size.pick(vec![0, 10_000], vec![0, 100_000, 1_000_000]) {
        // The first has the targets; the others show how the figures change with what waits.
        let seconds = if waiting == 0 { options.seconds } else { options.seconds / SHORTER };
        eprintln!("{seconds} s of load while {waiting} messages wait");
        let node_options = NodeOptions {
            binary: options.node.clone(),
            folder: scratch.folder("growth")?,
            amnesia: false,
            settings: format!("[mailbox]\ndisk_bytes_max = \"{}MiB\"\n", LOG_BYTES >> 20),
        };
        let node = node_options.start().await?;
        node.fill(&payload, waiting).await?;
        let mut steady = steady::load(&node, &node_options, &payload, waiting, seconds).await?;
        node.end(Signal::TERM)?;
        let again = node_options.start().await?;
        (steady.restart, steady.restart_bytes) = (again.took, again.rss_bytes()?);
        again.end(Signal::KILL)?;
        node_options.clear()?;
        eprintln!("  {steady:?}");
        if waiting == 0 {
            outcome.rows = steady.rows();
        }
        outcome.curve.push(steady);
    }
    let node = NodeOptions {
        binary: options.node.clone(),
        folder: scratch.folder("crowds")?,
        amnesia: false,
        settings: String::new(),
    };
    outcome.crowds = Box::pin(crowds::measure(&node, options.size, &payload)).await?;
    outcome.rows.extend(outcome.crowds.iter().flat_map(Crowd::rows));
    Ok(outcome)
}
