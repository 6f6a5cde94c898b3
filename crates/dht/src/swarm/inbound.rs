//! Requests of other nodes: so many in a second and so many at once for each, then the queue of those who answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use libp2p::Swarm;
use libp2p::request_response::ResponseChannel;
use ron_kernel::{Deadline, clock};
use ron_store::wire::{Answer, AskError, Request};
use ron_types::limits::dht as limits;
use tokio::time::Instant;

use crate::network::Behaviour;
use crate::network::codec::Asking;
use crate::shared::{Answering, Asked, Shared};

/// Requests of other nodes.
pub(super) struct Inbound {
    shared: Arc<Shared>,
    /// What each connected node may still do; as many as there are connections.
    quotas: HashMap<libp2p::PeerId, Quota>,
}

struct Quota {
    waiting: usize,
    asks: Bucket,
    records: Bucket,
}

/// A bucket of tokens that holds those of one second, kept as the time at which it is full again.
struct Bucket {
    full_at: Instant,
}

impl Bucket {
    fn full(now: Instant) -> Self {
        Bucket { full_at: now }
    }

    fn take(&mut self, units: u64, per_second: u64, now: Instant) -> bool {
        let second = Duration::from_secs(1);
        let cost = second.as_nanos() as u64 * units.max(1) / per_second.max(1);
        let missing = self.full_at.saturating_duration_since(now);
        let cost = Duration::from_nanos(cost).min(second);
        if missing + cost > second {
            return false;
        }
        self.full_at = now + missing + cost;
        true
    }
}

impl Inbound {
    pub fn new(shared: Arc<Shared>) -> Self {
        Inbound { shared, quotas: HashMap::new() }
    }

    /// Hands a request to those who answer, or refuses it at once.
    pub fn take(
        &mut self,
        swarm: &mut Swarm<Behaviour>,
        peer: libp2p::PeerId,
        asking: Asking,
        channel: ResponseChannel<Answer>,
    ) {
        let refusal = self.refusal(peer, &asking.request);
        // Counted even when refused: libp2p says of every request that it has ended.
        let quota = self.quotas.entry(peer).or_insert_with(|| Quota::full(clock::now()));
        quota.waiting += 1;
        let (Some(ours), None) = (crate::convert::ours(&peer), refusal) else {
            return self.refuse(swarm, channel);
        };
        let budget = match &asking.request {
            Request::Ask { budget_ms, .. } | Request::Prove { budget_ms, .. } => {
                Duration::from_millis(u64::from(*budget_ms))
            }
            Request::Keep { .. } => limits::ASK_TIME_MAX,
        };
        let by = Deadline::after(budget.min(limits::ASK_TIME_MAX));
        let asked = Asked { peer: ours, request: asking.request, channel, by, bytes: asking.bytes };
        if let Err((asked, _)) = self.shared.asked.offer_or_return(asked) {
            self.refuse(swarm, asked.channel);
        }
    }

    /// Whether a node has had its share; which, is counted.
    fn refusal(&mut self, peer: libp2p::PeerId, request: &Request) -> Option<()> {
        let now = clock::now();
        let per_second = self.shared.live.get().value.asks_per_peer_per_second;
        let refused = &self.shared.counts.refused;
        let quota = self.quotas.entry(peer).or_insert_with(|| Quota::full(now));
        if quota.waiting >= limits::ASKS_PER_PEER_WAITING_MAX {
            refused.share.inc();
            return Some(());
        }
        let records = match request {
            Request::Ask { .. } => 0,
            // All of a document is hashed for it.
            Request::Prove { .. } => limits::PROOF_COSTS_RECORDS,
            Request::Keep { records } => records.len() as u64,
        };
        let has_tokens = quota.asks.take(1, per_second, now)
            && (records == 0 || quota.records.take(records, limits::OFFERED_PER_PEER_PER_SECOND, now));
        if !has_tokens {
            refused.rate.inc();
            return Some(());
        }
        None
    }

    fn refuse(&self, swarm: &mut Swarm<Behaviour>, channel: ResponseChannel<Answer>) {
        self.shared.counts.asked.busy.inc();
        let _ = swarm.behaviour_mut().index.send_response(channel, Answer::Refused(AskError::Busy));
    }

    /// Sends an answer; whoever no longer waits for it does not get it.
    pub fn send(&self, swarm: &mut Swarm<Behaviour>, answering: Answering) {
        let _ = swarm.behaviour_mut().index.send_response(answering.channel, answering.answer);
    }

    /// A request of this node was answered or came to nothing.
    pub fn ended(&mut self, peer: &libp2p::PeerId) {
        if let Some(quota) = self.quotas.get_mut(peer) {
            quota.waiting = quota.waiting.saturating_sub(1);
        }
    }

    /// The last connection of this node ended.
    pub fn peer_gone(&mut self, peer: &libp2p::PeerId) {
        self.quotas.remove(peer);
    }
}

impl Quota {
    fn full(now: Instant) -> Self {
        Quota { waiting: 0, asks: Bucket::full(now), records: Bucket::full(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_second_through_and_then_its_rate() {
        let start = clock::now();
        let mut bucket = Bucket::full(start);
        let mut taken_at = |after_ms, units| {
            let now = start + Duration::from_millis(after_ms);
            (0..100).filter(|_| bucket.take(units, 10, now)).count()
        };
        assert_eq!(taken_at(0, 1), 10);
        assert_eq!(taken_at(200, 1), 2);
        assert_eq!(taken_at(60_000, 1000), 1, "more than it holds passes when it is full");
        assert_eq!(taken_at(60_000, 1), 0);
    }
}
