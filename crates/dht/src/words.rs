//! The words of the DHT's surfaces: how a peer stands, and what a walk through the network met.

use std::time::Duration;

use ron_store::{Key, Multiaddr, PeerId, Record};

/// How a node of the network stands with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The node.
    pub peer: PeerId,
    /// Where it is reached.
    pub addrs: Vec<Multiaddr>,
    /// Connections with it now.
    pub connections: usize,
    /// Round trip of the last sign of life.
    pub rtt: Option<Duration>,
    /// Dials and questions in a row that came to nothing.
    pub failures: u32,
    /// Unix milliseconds at which it became known.
    pub since_ms: u64,
    /// How it became known.
    pub source: Source,
    /// Leading bits that its position shares with this node's.
    pub shared_bits: u32,
}

/// How a node became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// It stands in the bootstrap list.
    Bootstrap,
    /// It was written down by an earlier life of this node.
    Remembered,
    /// The overlay told of it.
    Overlay,
    /// It was met in the network.
    Met,
}

impl Source {
    /// In words, as surfaces show it.
    pub const fn word(self) -> &'static str {
        match self {
            Source::Bootstrap => "bootstrap",
            Source::Remembered => "remembered",
            Source::Overlay => "overlay",
            Source::Met => "met",
        }
    }
}

/// This node in its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// This node.
    pub peer: PeerId,
    /// Where it listens.
    pub listen_addrs: Vec<Multiaddr>,
    /// Whether it keeps records for others.
    pub is_server: bool,
    /// Whether it knows every node, so that one hop suffices.
    pub is_complete: bool,
    /// Nodes that it knows.
    pub peers: usize,
    /// Connections that it has.
    pub connections: usize,
}

/// A walk through the network towards a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Where to.
    pub key: Key,
    /// Every question, in the order they were asked.
    pub hops: Vec<Hop>,
    /// What this node and the others had, each record once.
    pub records: Vec<Record>,
    /// Records that this node holds itself.
    pub own: usize,
    /// The nearest nodes that answered, nearest first.
    pub nearest: Vec<PeerId>,
    /// Whether the nearest nodes all answered: there is nothing nearer.
    pub is_converged: bool,
    /// Time of the whole walk.
    pub took: Duration,
}

impl Trace {
    /// The same walk of a node that held these records before it asked.
    pub(crate) fn after(self, own: Vec<Record>) -> Self {
        let (count, mut records) = (own.len(), own);
        for record in self.records {
            if !records.contains(&record) {
                records.push(record);
            }
        }
        Trace { records, own: count, ..self }
    }
}

/// One question of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The node that was asked.
    pub peer: PeerId,
    /// Steps from the nodes that this one knew, which are step 1.
    pub step: u32,
    /// Leading bits that its position shares with the key.
    pub shared_bits: u32,
    /// When it was asked, from the beginning of the walk.
    pub started: Duration,
    /// Time to its answer or failure.
    pub took: Duration,
    /// What it said.
    pub outcome: HopOutcome,
}

/// What a node said to a question of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopOutcome {
    /// It answered.
    Answered {
        /// Records about the key.
        records: usize,
        /// Nodes it knows to be nearer.
        closer: usize,
    },
    /// It did not; the sentence says why.
    Failed(String),
}

/// What happens to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DhtEvent {
    /// A node that keeps records became known.
    Joined(PeerId),
    /// A node is no longer known.
    Left(PeerId),
    /// The node listens somewhere else than before.
    Listening(Vec<Multiaddr>),
    /// The node keeps records for others from now on, or no longer.
    Server(bool),
}
