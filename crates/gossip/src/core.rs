//! The lanes of one engine and the peers they share.

use bytes::Bytes;

use crate::config::CoreConfig;
use crate::names::{LaneName, Micros, MsgId, Origin, Peer};
use crate::shell::{Misbehaviour, Outcomes, PublishError, Published, Shell};
use crate::wire::Message;

/// The lanes of one engine.
pub struct Core {
    _config: CoreConfig,
    me: Origin,
    epoch: u64,
    peers: Vec<Peer>,
}

/// What a link is for in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Messages are pushed over it.
    Eager,
    /// Only digests go over it.
    Lazy,
}

/// The way of a message through this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Lane of the message.
    pub lane: LaneName,
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u64,
    /// Peer that brought it first; none for an own publication, or if that peer has left.
    pub from: Option<Peer>,
    /// Links it came over.
    pub hops: u8,
    /// Copies that came after the first.
    pub duplicates: u32,
    /// Peers that the lane's messages are pushed to now.
    pub eager: Vec<Peer>,
    /// Peers that get digests now.
    pub lazy: Vec<Peer>,
}

/// A message of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The id of the message.
    pub msg_id: MsgId,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u64,
    /// Links it came over.
    pub hops: u8,
    /// Content.
    pub payload: Bytes,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Own publications.
    pub published: u64,
    /// Messages handed to the node, own publications included.
    pub delivered: u64,
    /// Messages and chunks that were here already.
    pub duplicates: u64,
    /// Messages and chunks of data given to outboxes.
    pub data_sent: u64,
    /// Other messages given to outboxes.
    pub control_sent: u64,
    /// Times that an outbox had no room or a lane no credit.
    pub busy: u64,
    /// Grafts and pulls sent.
    pub asked: u64,
    /// Messages that came because they were asked for.
    pub repaired: u64,
    /// Messages lost to this node, as told by gaps.
    pub lost: u64,
    /// Strikes given to peers.
    pub strikes: u64,
}

impl Core {
    /// An engine without lanes. `me` is this node as an origin, `epoch` its life (wall-clock milliseconds at its start,
    /// greater than in any life before), `seed` what its choices among peers are drawn from.
    pub fn new(config: CoreConfig, me: Origin, epoch: u64, seed: u64) -> Self {
        let _ = seed;
        Core { _config: config, me, epoch, peers: Vec::new() }
    }

    /// A session to a peer is up. False if there are as many peers as there may be.
    pub fn peer_up<S: Shell>(&mut self, _now: Micros, peer: Peer, _shell: &mut S) -> bool {
        self.peers.push(peer);
        true
    }

    /// The session to a peer is gone.
    pub fn peer_down<S: Shell>(&mut self, _now: Micros, peer: &Peer, _shell: &mut S) {
        self.peers.retain(|known| known != peer);
    }

    /// A peer sent a message.
    pub fn receive<S: Shell>(
        &mut self,
        _now: Micros,
        _peer: &Peer,
        _message: Message,
        _shell: &mut S,
    ) -> Result<(), Misbehaviour> {
        Ok(())
    }

    /// This node publishes a message.
    pub fn publish<S: Shell>(
        &mut self,
        _now: Micros,
        lane: &LaneName,
        payload: Bytes,
        _shell: &mut S,
    ) -> Result<Published, PublishError> {
        let msg_id = crate::names::msg_id(&self.me, self.epoch, lane, 1, &payload);
        Ok(Published { msg_id, epoch: self.epoch, seq: 1, outcomes: Outcomes::default() })
    }

    /// Does what is due, and says when the next thing is. Everything else may bring that time forward: ask
    /// [`Core::next_at`] again after a batch of events.
    pub fn tick<S: Shell>(&mut self, _now: Micros, _shell: &mut S) -> Micros {
        self.next_at()
    }

    /// When the next thing is due.
    pub fn next_at(&self) -> Micros {
        Micros::MAX
    }

    /// Messages of an origin's current epoch that the ring still holds, from a number on.
    pub fn replay(&self, _lane: &LaneName, _origin: &Origin, _from_seq: u64) -> impl Iterator<Item = Held> + '_ {
        std::iter::empty()
    }

    /// The lanes, and what the link to a peer is for in each.
    pub fn lanes_of(&self, _peer: &Peer) -> Vec<(LaneName, Link)> {
        Vec::new()
    }

    /// The way of a message that the ring still holds.
    pub fn trace(&self, _id: &MsgId) -> Option<Trace> {
        None
    }

    /// Bytes of memory held; never more than [`CoreConfig::memory_bytes_max`].
    pub fn memory_bytes(&self) -> usize {
        0
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }
}
