//! What the core asks of the world, and what it tells it.

use bytes::Bytes;

use crate::names::{self, LaneName, MsgId, Origin, Peer};
use crate::ring::Stored;
use crate::seal::{SIGNATURE_BYTES, SignedText};
use crate::wire::Key;

/// The world of one engine: sessions to peers, and local subscribers. No method may wait.
pub trait Shell {
    /// Puts one encoded message into the outbox of a peer. `flow` is what the outbox schedules by: the lane's, or
    /// [`crate::CONTROL_FLOW`] for what must not stand behind data. The bytes are shared with other peers and the ring.
    fn send(&mut self, peer: &Peer, lane: &LaneName, flow: u64, message: Bytes) -> SendOutcome;

    /// Whether a peer may be sent data now, within a budget that the world keeps; otherwise the milliseconds until it
    /// may. A peer over its budget is not slow: the lane's policy for slow ones does not apply.
    fn may_send(&mut self, _peer: &Peer) -> Result<(), u32> {
        Ok(())
    }

    /// This node's signature over a batch of its messages; none in a world without a key. Asked only where it signs
    /// ([`crate::CoreConfig::signatures`]).
    fn sign(&mut self, _text: &SignedText) -> Option<[u8; SIGNATURE_BYTES]> {
        None
    }

    /// Whether a signature over a batch is the origin's. Asked only where this node looks at signatures.
    fn verify(&mut self, _origin: &Origin, _text: &SignedText, _signature: &[u8]) -> bool {
        false
    }

    /// Whether somebody here hears a lane. Asked when a lane has to go for another.
    fn is_heard(&self, _lane: &LaneName) -> bool {
        false
    }

    /// Drops the oldest queued frames of a flow until so many bytes are free; the answer is how many bytes were. Asked
    /// only in lanes whose policy is [`SlowConsumer::DropOldest`].
    fn shed_oldest(&mut self, peer: &Peer, flow: u64, bytes: usize) -> usize;

    /// Ends the session to a peer. The core has taken the peer down already; a later `peer_down` for it does nothing.
    fn disconnect(&mut self, peer: &Peer, why: DisconnectReason);

    /// A message is new here; called once for each, in the order of its origin, own publications included.
    fn deliver(&mut self, lane: &LaneName, message: Delivered<'_>);

    /// Messages `from..=to` of an origin are lost to this node: nobody it knows holds them any more.
    fn gap(&mut self, lane: &LaneName, origin: &Origin, epoch: u64, from: u64, to: u64);

    /// An origin began anew after a restart: its numbers begin at 1 again.
    fn new_epoch(&mut self, lane: &LaneName, origin: &Origin, epoch: u64);
}

/// What became of one message for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// In the outbox of the session.
    Sent,
    /// No room, or no credit. What the lane's policy then does: [`SlowConsumer`].
    Busy {
        /// When to try again, in milliseconds.
        retry_after_ms: u32,
    },
    /// Larger than what the peer takes.
    TooLarge {
        /// Largest message the peer takes, in bytes.
        max: u32,
    },
    /// The session is not up, or goes down.
    NotReady,
}

/// What a lane does when a peer takes its messages too slowly. In every case the peer's own gap recovery comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowConsumer {
    /// Tells the publisher `busy`, keeps the place in the ring and goes on from there when the peer has room.
    #[default]
    Busy,
    /// Makes room by dropping what waits longest for that peer in this lane.
    DropOldest,
    /// Drops the new message for that peer and goes on with the next.
    DropNewest,
    /// Ends the session.
    Disconnect,
}

/// A message as it is handed to local subscribers.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Lane the message was published in.
    pub lane: &'a LaneName,
    /// Node that published it.
    pub origin: &'a Origin,
    /// Start of the origin's life that published it, as wall-clock milliseconds.
    pub epoch: u64,
    /// Number of the message in its origin, epoch and lane; from 1, without holes.
    pub seq: u64,
    /// Links the message came over; 0 for an own publication.
    pub hops: u8,
    /// Number of its arrival in this lane's ring; see [`crate::Core::arrived`].
    pub arrival: u64,
    pub(crate) stored: &'a Stored,
}

impl Delivered<'_> {
    /// The content: put together or copied when somebody asks, since a node that only relays has no use for it. A slice
    /// of the ring's copy if it travelled whole and has [`crate::SHARED_BYTES_MIN`] bytes.
    pub fn payload(&self) -> Bytes {
        self.stored.payload()
    }

    /// Bytes of the content.
    pub fn payload_bytes(&self) -> usize {
        self.stored.payload_bytes()
    }

    /// The id: computed when somebody asks, like the content.
    pub fn msg_id(&self) -> MsgId {
        let key = Key { origin: *self.origin, epoch: self.epoch, seq: self.seq };
        self.stored.msg_id(self.lane, &key)
    }
}

/// What a publisher learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The epoch of this node.
    pub epoch: u64,
    /// Number of the message in this lane.
    pub seq: u64,
    /// What became of it for each peer it is pushed to; the other peers get a digest and ask.
    pub outcomes: Outcomes,
    /// Hashes of its chunks, if it travels in chunks: they are what its id is made of.
    pub(crate) hashes: Option<Bytes>,
}

impl Published {
    /// The id of the message: computed when somebody asks. Content that travels in chunks was hashed when it was cut,
    /// and is not read again.
    pub fn msg_id(&self, origin: &Origin, lane: &LaneName, payload: &[u8]) -> MsgId {
        match &self.hashes {
            Some(hashes) => names::msg_id_of_chunks(origin, self.epoch, lane, self.seq, hashes),
            None => names::msg_id(origin, self.epoch, lane, self.seq, payload),
        }
    }
}

/// Outcomes by peer, held in place: there are never more than the fan-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    outcomes: [Option<(Peer, SendOutcome)>; crate::FAN_OUT_MAX],
}

impl Outcomes {
    pub(crate) fn push(&mut self, peer: Peer, outcome: SendOutcome) {
        if let Some(free) = self.outcomes.iter_mut().find(|slot| slot.is_none()) {
            *free = Some((peer, outcome));
        }
    }

    /// The outcomes; empty where the node has no peers.
    pub fn iter(&self) -> impl Iterator<Item = (Peer, SendOutcome)> + '_ {
        self.outcomes.iter().flatten().copied()
    }

    /// The longest wait that a busy peer asks for, in milliseconds.
    pub fn retry_after_ms(&self) -> Option<u32> {
        let busy = |(_, outcome)| match outcome {
            SendOutcome::Busy { retry_after_ms } => Some(retry_after_ms),
            _ => None,
        };
        self.iter().filter_map(busy).max()
    }
}

/// Why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Larger than a message may be.
    #[error("a message has at most {max} bytes")]
    TooLarge {
        /// Largest message, in bytes.
        max: usize,
    },
    /// The lane's burst budget is spent.
    #[error("the lane is over its budget; again in {retry_after_ms} ms")]
    Busy {
        /// When to try again, in milliseconds.
        retry_after_ms: u32,
    },
    /// There are as many lanes as there may be, and none of them may go.
    #[error("there are {max} lanes in this engine, and all are in use")]
    TooManyLanes {
        /// Number of lanes of one engine.
        max: usize,
    },
}

/// What a peer did wrong in one message. The message had no effect; the core counts it against the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// The peer is not connected, as far as this core knows.
    #[error("no session to this peer")]
    UnknownPeer,
    /// An epoch of zero, or further ahead of this node's clock than clocks may differ.
    #[error("an epoch of zero or more than a day ahead")]
    EpochAhead,
    /// More new lanes and origins than one peer may bring. Refused without a strike: the peer may only have relayed it.
    #[error("too many new lanes and origins")]
    TooManyOpenings,
    /// A message without a signature, where one is required. Refused without a strike: the peer may have relayed it.
    #[error("a message that its origin did not sign")]
    Unsigned,
    /// A message with a signature that is not its origin's.
    #[error("a false signature")]
    Forged,
    /// A chunk whose hash is not the one its head announced.
    #[error("a chunk that is not the announced one")]
    WrongChunk,
}

/// Why the core ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The peer takes messages too slowly in a lane that does not wait.
    #[error("too slow for a lane")]
    Slow,
    /// The peer's strikes are over the bound.
    #[error("misbehaved too often")]
    Misbehaved,
}
