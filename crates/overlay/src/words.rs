//! The words of the overlay's surfaces: what was published, what a subscriber gets, how a peer stands.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use ron_gossip::{LaneName, MsgId, Origin};
use ron_transport::{Direction, NodeId};

/// A message that the node took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Name of the message; it never stands for two contents.
    pub msg_id: MsgId,
    /// The node that published it: this one.
    pub origin: NodeId,
    /// The origin's life; its numbers begin again with each.
    pub epoch: u64,
    /// Number of the message in its lane and epoch, from 1.
    pub seq: u64,
    /// What became of it at each peer it was pushed to.
    pub peers: Vec<PeerOutcome>,
}

/// What became of a message at one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOutcome {
    /// The peer; this node itself where there is no peer.
    pub node_id: NodeId,
    /// What became of it.
    pub outcome: Outcome,
}

/// What becomes of a message on its way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the peer's queue.
    Sent,
    /// The peer's queue, or its lane's share, is full.
    Busy {
        /// Time after which another try may find room.
        retry_after: Duration,
    },
    /// It is larger than the peer takes.
    TooLarge {
        /// Largest payload, in bytes.
        max: usize,
    },
    /// There is no peer to send it to.
    NoPeers,
    /// The session with the peer is not up.
    NotReady,
}

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A message, each once and in its origin's order.
    Message(Message),
    /// Messages that nobody could give any more.
    Gap {
        /// Who published them.
        origin: NodeId,
        /// Life of the origin.
        epoch: u64,
        /// First number missed.
        from: u64,
        /// Last number missed.
        to: u64,
    },
    /// An origin began a new life: its numbers begin again.
    Epoch {
        /// The origin.
        origin: NodeId,
        /// Its new life.
        epoch: u64,
    },
    /// This subscriber was too slow.
    Lagged {
        /// Items it lost.
        dropped: u64,
    },
}

/// A message as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who published it.
    pub origin: NodeId,
    /// Life of the origin.
    pub epoch: u64,
    /// Number of the message in its lane and epoch.
    pub seq: u64,
    /// Links it came over.
    pub hops: u8,
    /// Its bytes.
    pub payload: Bytes,
}

impl Message {
    /// Name of the message, computed here: only those who show it need it.
    pub fn msg_id(&self, lane: &LaneName) -> MsgId {
        ron_gossip::msg_id(&Origin(*self.origin.as_bytes()), self.epoch, lane, self.seq, &self.payload)
    }
}

/// How a peer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Its id.
    pub node_id: NodeId,
    /// Where it is reached, or came from.
    pub address: String,
    /// State of the session.
    pub state: PeerState,
    /// Who opened the session.
    pub direction: Direction,
    /// Key exchange of the session.
    pub tls_group: Option<&'static str>,
    /// Last measured time to the peer and back.
    pub rtt: Option<Duration>,
    /// Bytes that wait for it.
    pub queued_bytes: usize,
    /// Bytes that may wait for it; 0 without a session.
    pub queued_bytes_max: usize,
    /// Messages refused because its queue was full.
    pub busy_total: u64,
    /// Its links, by lane.
    pub lanes: Vec<LaneLink>,
}

/// State of the session with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Frames go to and fro.
    Connected,
    /// It is being dialled.
    Dialing,
    /// It could not be reached and is dialled again soon.
    Backoff,
    /// The session ends once what is queued is sent.
    Draining,
}

/// A peer's part in one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneLink {
    /// The lane.
    pub lane: LaneName,
    /// Whether messages are pushed to it (`eager`), or it is only told of them.
    pub is_eager: bool,
}

/// Something that happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayEvent {
    /// A session is up.
    Up {
        /// With whom.
        node_id: NodeId,
        /// Where it comes from.
        address: SocketAddr,
    },
    /// A session ended.
    Down {
        /// With whom.
        node_id: NodeId,
    },
    /// A peer was added or removed.
    PeersChanged,
}

impl Outcome {
    /// The word of the surfaces.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Sent => "sent",
            Outcome::Busy { .. } => "busy",
            Outcome::TooLarge { .. } => "too_large",
            Outcome::NoPeers => "no_peers",
            Outcome::NotReady => "not_ready",
        }
    }
}

impl PeerState {
    /// The word of the surfaces.
    pub fn as_str(self) -> &'static str {
        match self {
            PeerState::Connected => "connected",
            PeerState::Dialing => "dialing",
            PeerState::Backoff => "backoff",
            PeerState::Draining => "draining",
        }
    }
}
