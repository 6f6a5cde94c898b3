//! What the core asks of the node around it: to send to peers, and to give to subscribers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use oap::{AppId, Frame};
use ron_gossip::{
    CONTROL_FLOW, Delivered, DisconnectReason, LaneName, Origin, Peer, SIGNATURE_BYTES, SendOutcome, Shell, SignedText,
};
use ron_kernel::clock;
use ron_transport::{NodeId, NodeKey, PushError};

use super::lane_table::LaneTable;
use crate::metrics::Counts;
use crate::peers::Link;
use crate::words::{Item, Message};

/// Least and longest time that a publisher is told to wait for a busy peer.
const RETRY_AFTER_MS: (u32, u32) = (10, 1_000);
/// Bytes that a peer is taken to read in a millisecond, for that advice: about 100 Mbit/s.
const PEER_BYTES_PER_MS: usize = 12_500;

/// The node around one core, for one call.
pub(super) struct EngineShell<'a> {
    pub me: NodeId,
    pub key: &'a NodeKey,
    pub links: &'a HashMap<Peer, Arc<Link>>,
    pub lanes: &'a mut LaneTable,
    pub counts: &'a Counts,
    /// Bytes in a second that each peer may be sent; 0 for no bound.
    pub peer_bytes_per_second: usize,
    /// Whether the call is a publication, whose refusals its caller counts with those for lack of credit.
    pub is_publishing: bool,
}

impl Shell for EngineShell<'_> {
    fn send(&mut self, peer: &Peer, _lane: &LaneName, flow: u64, message: Bytes) -> SendOutcome {
        let Some(link) = self.links.get(peer) else { return SendOutcome::NotReady };
        let bytes = message.len();
        match link.outbox.push(flow, Frame::event(AppId::GOSSIP, 0, message)) {
            Ok(()) => {
                self.counts.sent(1);
                if flow != CONTROL_FLOW && self.peer_bytes_per_second > 0 {
                    link.budget.spend(clock::now(), self.peer_bytes_per_second, bytes);
                }
                SendOutcome::Sent
            }
            Err(PushError::Full { queued_bytes, .. }) => {
                if !self.is_publishing {
                    count_busy(link, self.counts);
                }
                SendOutcome::Busy { retry_after_ms: retry_after_ms(queued_bytes) }
            }
            Err(PushError::Unfit(_)) => SendOutcome::TooLarge { max: link.facts.agreed.max_frame as u32 },
            Err(PushError::Closed) => SendOutcome::NotReady,
        }
    }

    fn may_send(&mut self, peer: &Peer) -> Result<(), u32> {
        if self.peer_bytes_per_second == 0 {
            return Ok(());
        }
        let Some(link) = self.links.get(peer) else { return Ok(()) };
        link.budget.check(clock::now(), self.peer_bytes_per_second).map_err(|wait| {
            if !self.is_publishing {
                count_busy(link, self.counts);
            }
            wait.as_millis() as u32
        })
    }

    fn sign(&mut self, text: &SignedText) -> Option<[u8; SIGNATURE_BYTES]> {
        Some(self.key.sign(text))
    }

    fn verify(&mut self, origin: &Origin, text: &SignedText, signature: &[u8]) -> bool {
        NodeId::from_bytes(origin.0).verifies(text, signature)
    }

    fn is_heard(&self, lane: &LaneName) -> bool {
        self.lanes.is_heard(lane)
    }

    fn shed_oldest(&mut self, peer: &Peer, flow: u64, bytes: usize) -> usize {
        let (frames, bytes) = self.links.get(peer).map_or((0, 0), |link| link.outbox.shed_oldest(flow, bytes));
        if frames > 0 {
            self.counts.shed();
        }
        // Credit counts messages; headers are the outbox's.
        bytes - frames * oap::HEADER_BYTES
    }

    fn disconnect(&mut self, peer: &Peer, why: DisconnectReason) {
        if let Some(link) = self.links.get(peer) {
            tracing::warn!(node_id = %link.node_id, %why, "the session ends");
            link.ending.notify_one();
        }
    }

    fn deliver(&mut self, lane: &LaneName, delivered: Delivered<'_>) {
        // The content may have to be copied: nobody who is not there needs it.
        if !self.lanes.is_heard(lane) {
            return;
        }
        let origin = NodeId::from_bytes(delivered.origin.0);
        let message = Message {
            origin,
            epoch: delivered.epoch,
            seq: delivered.seq,
            hops: delivered.hops,
            payload: delivered.payload(),
        };
        self.lanes.give_message(lane, message, origin == self.me, delivered.arrival);
    }

    fn gap(&mut self, lane: &LaneName, origin: &Origin, epoch: u64, from: u64, to: u64) {
        self.counts.gap();
        self.lanes.give_notice(lane, &Item::Gap { origin: NodeId::from_bytes(origin.0), epoch, from, to });
    }

    fn new_epoch(&mut self, lane: &LaneName, origin: &Origin, epoch: u64) {
        self.lanes.give_notice(lane, &Item::Epoch { origin: NodeId::from_bytes(origin.0), epoch });
    }
}

/// A message found no room on the way to this peer.
pub(super) fn count_busy(link: &Link, counts: &Counts) {
    link.busy.fetch_add(1, Ordering::Relaxed);
    counts.backpressure(link.node_id);
}

fn retry_after_ms(queued_bytes: usize) -> u32 {
    let (least, longest) = RETRY_AFTER_MS;
    ((queued_bytes / PEER_BYTES_PER_MS) as u32).clamp(least, longest)
}
