//! What the core asks of the node around it: to send to peers, and to give to subscribers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame};
use ron_gossip::{Delivered, LaneName, Peer, SendOutcome, Shell, wire};
use ron_transport::NodeId;

use super::lane_table::LaneTable;
use crate::config::EgressOverflow;
use crate::metrics::Counts;
use crate::peers::Link;
use crate::words::{Item, Message, Outcome, PeerOutcome};

/// Least and longest time that a publisher is told to wait for a busy peer.
const RETRY_AFTER_MS: (u64, u64) = (10, 1_000);
/// Bytes that a peer is taken to read in a millisecond, for that advice: about 100 Mbit/s.
const PEER_BYTES_PER_MS: u64 = 12_500;

/// The node around one core, for one call.
pub(super) struct EngineShell<'a> {
    pub me: NodeId,
    pub links: &'a HashMap<NodeId, Arc<Link>>,
    pub lanes: &'a mut LaneTable,
    pub counts: &'a Counts,
    pub overflow: EgressOverflow,
    /// Outcomes of what is being published.
    pub outcomes: Vec<PeerOutcome>,
    /// The frame last encoded: a message mostly goes to several peers as the same bytes.
    pub last_frame: Option<(wire::Key, Bytes)>,
}

impl EngineShell<'_> {
    fn encoded(&mut self, message: &wire::Message) -> Bytes {
        let key = message.key();
        if let Some((_, bytes)) = self.last_frame.as_ref().filter(|(last, _)| *last == key) {
            return bytes.clone();
        }
        let bytes = message.encode();
        self.last_frame = Some((key, bytes.clone()));
        bytes
    }

    fn push(&self, link: &Link, lane: &LaneName, frame: Frame) -> Outcome {
        let flow = lane.flow();
        let max = link.facts.agreed.max_frame;
        if frame.encoded_len() > max {
            return Outcome::TooLarge { max };
        }
        if link.outbox.is_closed() {
            return Outcome::NotReady;
        }
        let bytes = frame.encoded_len();
        let Err(full) = link.outbox.push(flow, frame.clone()) else {
            self.counts.sent(1);
            return Outcome::Sent;
        };
        link.busy.fetch_add(1, Ordering::Relaxed);
        self.counts.backpressure(link.node_id);
        match self.overflow {
            EgressOverflow::ShedOldest if link.outbox.shed_oldest(flow, bytes) > 0 => {
                match link.outbox.push(flow, frame) {
                    Ok(()) => Outcome::Sent,
                    Err(full) => busy(full.queued_bytes),
                }
            }
            EgressOverflow::Disconnect => {
                link.ending.notify_one();
                Outcome::NotReady
            }
            EgressOverflow::ShedOldest | EgressOverflow::RejectNew => busy(full.queued_bytes),
        }
    }
}

fn busy(queued_bytes: usize) -> Outcome {
    let (least, longest) = RETRY_AFTER_MS;
    let retry_after = Duration::from_millis((queued_bytes as u64 / PEER_BYTES_PER_MS).clamp(least, longest));
    Outcome::Busy { retry_after }
}

impl Shell for EngineShell<'_> {
    fn send(&mut self, peer: &Peer, lane: &LaneName, message: &wire::Message) -> SendOutcome {
        let node_id = NodeId::from_bytes(peer.0);
        let Some(link) = self.links.get(&node_id) else { return SendOutcome::NotReady };
        let frame = Frame::event(AppId::GOSSIP, 0, self.encoded(message));
        let outcome = self.push(link, lane, frame);
        if message.is_payload() {
            self.outcomes.push(PeerOutcome { node_id, outcome });
        }
        match outcome {
            Outcome::Sent => SendOutcome::Sent,
            Outcome::Busy { retry_after } => SendOutcome::Busy { retry_after_ms: retry_after.as_millis() as u64 },
            Outcome::TooLarge { max } => SendOutcome::TooLarge { max },
            Outcome::NoPeers | Outcome::NotReady => SendOutcome::NotReady,
        }
    }

    fn deliver(&mut self, lane: &LaneName, delivered: Delivered) {
        let item = Item::Message(message_of(delivered));
        let Item::Message(message) = &item else { return };
        let is_own = message.origin == self.me;
        self.lanes.give(lane, &item, is_own);
    }

    fn gap(&mut self, lane: &LaneName, origin: &Peer, epoch: u64, from: u64, to: u64) {
        self.counts.gap();
        self.lanes.give(lane, &Item::Gap { origin: NodeId::from_bytes(origin.0), epoch, from, to }, false);
    }

    fn new_epoch(&mut self, lane: &LaneName, origin: &Peer, epoch: u64) {
        self.lanes.give(lane, &Item::Epoch { origin: NodeId::from_bytes(origin.0), epoch }, false);
    }

    fn disconnect(&mut self, peer: &Peer) {
        if let Some(link) = self.links.get(&NodeId::from_bytes(peer.0)) {
            link.ending.notify_one();
        }
    }
}

pub(super) fn message_of(delivered: Delivered) -> Message {
    Message {
        msg_id: delivered.msg_id,
        origin: NodeId::from_bytes(delivered.origin.0),
        epoch: delivered.epoch,
        seq: delivered.seq,
        hops: delivered.hops,
        payload: delivered.payload,
    }
}
