//! The overlay's metrics: what is counted as it happens, under the contract's names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use ron_kernel::metrics::{MetricSpec, Metrics};
use ron_kernel::scrape::Scrape;
use ron_transport::{Closed, ConnectError, NodeId};

use crate::peers::Link;
use crate::shared::Shared;
use crate::specs::GOSSIP_EGRESS;

/// Peers that a counter names; others are counted under `other`.
const PEERS_NAMED_MAX: usize = 64;

/// What the overlay adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric("session_open_total", "counter", &[], "Sessions with peers that began"),
    metric("session_close_total", "counter", &[], "Sessions with peers that ended"),
    metric("gossip_frames_total", "counter", &["dir"], "Frames of gossip: tx to peers, rx from them"),
    metric("handshake_timeouts_total", "counter", &[], "Nodes that did not show who they are in time"),
    metric(
        "backpressure_events_total",
        "counter",
        &["peer"],
        "Messages that found a peer's queue full; the first peers by id, then other",
    ),
    metric("tls_handshakes_total", "counter", &["group"], "Sessions that began, by the key exchange they agreed on"),
    metric(
        "handshake_refusals_total",
        "counter",
        &["reason"],
        "Sessions that did not begin: timeout, pin, post_quantum, refused, hello, frames, tls or io",
    ),
    metric("overlay_peers", "gauge", &[], "Peers with a session now"),
    metric("overlay_gaps_total", "counter", &[], "Ranges of messages that nobody could give any more"),
    metric("overlay_misbehaviour_total", "counter", &[], "Frames of peers that break the protocol"),
    metric("overlay_frames_lost_total", "counter", &[], "Frames of peers given up because an engine had no room"),
];

const fn metric(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind, labels, help }
}

/// What is counted as it happens.
pub(crate) struct Counts {
    opened: Counter,
    closed: Counter,
    sent: Counter,
    received: Counter,
    handshake_timeouts: Counter,
    gaps: Counter,
    misbehaviour: Counter,
    lost: Counter,
    backpressure: Mutex<BTreeMap<String, u64>>,
    /// By key exchange, which has few names.
    handshakes: Mutex<BTreeMap<&'static str, u64>>,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    node: Arc<Metrics>,
}

impl Counts {
    pub fn new(node: Arc<Metrics>) -> Self {
        Counts {
            opened: Counter::default(),
            closed: Counter::default(),
            sent: Counter::default(),
            received: Counter::default(),
            handshake_timeouts: Counter::default(),
            gaps: Counter::default(),
            misbehaviour: Counter::default(),
            lost: Counter::default(),
            backpressure: Mutex::default(),
            handshakes: Mutex::default(),
            refusals: Mutex::default(),
            node,
        }
    }

    pub fn opened(&self) {
        self.opened.inc();
    }

    pub fn closed(&self) {
        self.closed.inc();
    }

    pub fn sent(&self, frames: usize) {
        self.sent.inc_by(frames as u64);
    }

    pub fn received(&self, frames: usize) {
        self.received.inc_by(frames as u64);
    }

    pub fn gap(&self) {
        self.gaps.inc();
    }

    pub fn shed(&self) {
        // The contract of channels names this counter so, without the ending that the queue's own name has.
        self.node.queue_dropped.at("gossip_egress").inc();
    }

    pub fn lost(&self, frames: usize) {
        self.lost.inc_by(frames as u64);
    }

    pub fn frame_refused(&self, reason: &'static str) {
        self.node.frame_rejects.at(reason).inc();
    }

    pub fn misbehaved(&self, link: &Link, what: &dyn std::fmt::Display) {
        self.misbehaviour.inc();
        tracing::debug!(node_id = %link.node_id, %what, "a peer broke the protocol");
    }

    /// A session began, with this key exchange.
    pub fn handshake_done(&self, tls_group: &'static str) {
        count_one(&self.handshakes, tls_group);
    }

    /// A session did not begin, whoever dialled.
    pub fn handshake_failed(&self, error: &ConnectError) {
        if matches!(error, ConnectError::Timeout { .. }) {
            self.handshake_timeouts.inc();
        }
        count_one(&self.refusals, reason_of(error));
    }

    /// A session was refused because the frames agreed on do not hold a message of gossip.
    pub fn frames_too_small(&self) {
        count_one(&self.refusals, "frames");
    }

    pub fn read_ended(&self, closed: &Closed) {
        match closed {
            Closed::Timeout(op) => drop(self.node.io_timeouts.at(op).inc()),
            Closed::Broken(_) | Closed::Tls(_) => drop(self.node.io_errors.at("read").inc()),
            Closed::Done => {}
            _ => drop(self.node.frame_rejects.at("malformed").inc()),
        }
    }

    pub fn write_ended(&self, closed: &Closed) {
        match closed {
            Closed::Timeout(op) => drop(self.node.io_timeouts.at(op).inc()),
            Closed::Broken(_) | Closed::Tls(_) => drop(self.node.io_errors.at("write").inc()),
            _ => {}
        }
    }

    /// A message found a peer's queue full.
    pub fn backpressure(&self, node_id: NodeId) {
        // The name that the topology and the depth have it by: the row of the queue shows this very counter.
        self.node.busy_rejections.at(GOSSIP_EGRESS.name).inc();
        let mut by_peer = self.backpressure.lock().unwrap_or_else(PoisonError::into_inner);
        let name = node_id.to_string();
        let is_known = by_peer.contains_key(&name) || by_peer.len() < PEERS_NAMED_MAX;
        *by_peer.entry(if is_known { name } else { "other".to_owned() }).or_default() += 1;
    }
}

fn count_one(counts: &Mutex<BTreeMap<&'static str, u64>>, label: &'static str) {
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(label).or_default() += 1;
}

fn reason_of(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Timeout { .. } => "timeout",
        ConnectError::WrongPin { .. } => "pin",
        ConnectError::NotPostQuantum => "post_quantum",
        ConnectError::Refused(..) => "refused",
        ConnectError::BadHello(_) => "hello",
        ConnectError::Tls(_) => "tls",
        ConnectError::Io(_) => "io",
    }
}

/// Reads the counts when somebody scrapes.
pub(crate) struct OverlayMetrics {
    /// Weak, because what is shared holds the kernel, which holds the metrics.
    pub shared: Weak<Shared>,
}

impl fmt::Debug for OverlayMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OverlayMetrics")
    }
}

impl Collector for OverlayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let counts = &shared.counts;
        let mut scrape = Scrape::new(&mut encoder, METRICS);
        scrape.counter("session_open_total", counts.opened.get())?;
        scrape.counter("session_close_total", counts.closed.get())?;
        let frames = [("tx", counts.sent.get()), ("rx", counts.received.get())];
        scrape.counters("gossip_frames_total", &frames.map(|(dir, frames)| (vec![("dir", dir)], frames)))?;
        scrape.counter("handshake_timeouts_total", counts.handshake_timeouts.get())?;
        let by_peer = counts.backpressure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let by_peer: Vec<_> = by_peer.iter().map(|(peer, events)| (vec![("peer", peer.as_str())], *events)).collect();
        scrape.counters("backpressure_events_total", &by_peer)?;
        for (name, label, counts) in [
            ("tls_handshakes_total", "group", &counts.handshakes),
            ("handshake_refusals_total", "reason", &counts.refusals),
        ] {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let rows: Vec<_> = counts.iter().map(|(value, count)| (vec![(label, *value)], *count)).collect();
            scrape.counters(name, &rows)?;
        }
        scrape.gauge("overlay_peers", shared.peers.links().len() as f64)?;
        scrape.counter("overlay_gaps_total", counts.gaps.get())?;
        scrape.counter("overlay_misbehaviour_total", counts.misbehaviour.get())?;
        scrape.counter("overlay_frames_lost_total", counts.lost.get())
    }
}
