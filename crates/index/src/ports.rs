//! What the index needs of others: a network of peers that keep records, and routers that answer for other networks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
pub use ron_lookup::IpGroup;
use ron_store::{ContentId, Key, Multiaddr, PeerId, Possession, Record};
use ron_types::Error;

pub use ron_store::wire::{AskError, Question, Reply};

/// Peers that keep records near their keys. Implemented over the DHT; scripted in tests.
pub trait Network: Send + Sync + 'static {
    /// Known peers nearest to a key, nearest first, at most `count` of them.
    fn nearest(&self, key: &Key, count: usize) -> Vec<PeerId>;

    /// Asks one peer, which has `budget` to answer. Dropping the future cancels the question at the peer too.
    fn ask(&self, target: &PeerId, question: Question, budget: Duration)
    -> BoxFuture<'static, Result<Reply, AskError>>;

    /// Peers nearest to a key that can be found out within `budget`, with where they are reached. Here those that are
    /// known; a network that does not know everybody asks on.
    fn closest(&self, key: &Key, count: usize, _budget: Duration) -> BoxFuture<'static, Vec<NearPeer>> {
        let known = self.nearest(key, count).into_iter();
        let near = known.map(|peer| NearPeer { peer, addrs: Vec::new() }).collect();
        Box::pin(std::future::ready(near))
    }

    /// Asks a peer for proof that it keeps the content with this BLAKE3 digest, by the chunk that `draw` decides on;
    /// none if the peer says that it does not.
    fn prove(
        &self,
        _target: &PeerId,
        _digest: [u8; 32],
        _draw: u64,
        _budget: Duration,
    ) -> BoxFuture<'static, Result<Option<Possession>, AskError>> {
        Box::pin(std::future::ready(Err(AskError::Unsupported)))
    }

    /// Places a record at the peers nearest to its key, in the background; Busy if too many wait for that already.
    fn keep(&self, record: Record) -> Result<(), Error>;

    /// Network of addresses that a peer is reached in, where it is known and counts: a lookup does not let one network
    /// fill its front.
    fn group(&self, _peer: &PeerId) -> Option<IpGroup> {
        None
    }

    /// Whether every peer of the network is known: then the nearest known peers are the nearest there are.
    fn complete(&self) -> bool;
}

/// A peer near a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearPeer {
    /// The peer.
    pub peer: PeerId,
    /// Where it is reached; none if nobody said.
    pub addrs: Vec<Multiaddr>,
}

/// A router of somebody else's network, asked like a peer.
pub trait Upstream: Send + Sync + 'static {
    /// Name in answers, metrics and the table of breakers; short, and the same for the life of the node.
    fn name(&self) -> &str;

    /// Asks the router, which has `budget` to answer. Dropping the future cancels the question.
    fn ask(&self, question: UpstreamQuestion, budget: Duration) -> BoxFuture<'static, Result<Reply, AskError>>;
}

/// What a router of another network can be asked. It knows neither our names nor our records of peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamQuestion {
    /// Who has this content.
    Providers(ContentId),
    /// The record of an IPNS name.
    Ipns(PeerId),
}

/// Somebody a lookup can ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetId {
    /// A peer of the network.
    Peer(PeerId),
    /// A router, by its name.
    Upstream(Arc<str>),
}

/// Kind of a target: those of one kind are about as quick as each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetClass {
    /// Peers of the network.
    Peer,
    /// Routers of other networks.
    Upstream,
}

impl TargetId {
    /// Kind of the target.
    pub fn class(&self) -> TargetClass {
        match self {
            TargetId::Peer(_) => TargetClass::Peer,
            TargetId::Upstream(_) => TargetClass::Upstream,
        }
    }
}

impl TargetClass {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            TargetClass::Peer => "peer",
            TargetClass::Upstream => "upstream",
        }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetId::Peer(peer) => peer.fmt(formatter),
            TargetId::Upstream(name) => name.fmt(formatter),
        }
    }
}
