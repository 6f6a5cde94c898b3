//! The DHT's metrics: what is counted as it happens.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::scrape::Scrape;

use crate::shared::Shared;

/// What the DHT adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric("dht_peers", "gauge", &[], "Nodes that keep records and are known now"),
    metric("dht_connections", "gauge", &[], "Connections with other nodes"),
    metric("dht_server", "gauge", &[], "1 while the node keeps records for others"),
    metric("dht_asks_total", "counter", &["outcome"], "Questions of this node, by what became of them"),
    metric("dht_ask_seconds", "histogram", &[], "Time to the answer of another node"),
    metric("dht_asked_total", "counter", &["outcome"], "Questions and offers of other nodes, by what became of them"),
    metric("dht_refused_total", "counter", &["reason"], "What other nodes sent and was refused"),
    metric("dht_placed_total", "counter", &["outcome"], "Records given to the nodes nearest to their keys"),
    metric("dht_dials_failed_total", "counter", &[], "Dials that came to nothing"),
    metric("dht_peers_refused_total", "counter", &[], "Nodes not taken in: too many of one network, or no room"),
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
#[derive(Default)]
pub(crate) struct Counts {
    /// Questions of this node.
    pub asks: Asks,
    /// Questions of other nodes.
    pub asked: Asked,
    /// What other nodes sent and was refused.
    pub refused: Refusals,
    /// Records that another node took.
    pub placed: Counter,
    /// Records that another node did not take.
    pub not_placed: Counter,
    /// Dials that came to nothing.
    pub dials_failed: Counter,
    /// Nodes not taken in.
    pub peers_refused: Counter,
    /// Time to the answer of another node.
    pub ask_seconds: AskSeconds,
}

/// Questions of this node, by what became of them.
#[derive(Default)]
pub(crate) struct Asks {
    pub answered: Counter,
    pub failed: Counter,
    pub timeout: Counter,
    pub cancelled: Counter,
    pub busy: Counter,
}

/// Questions of other nodes, by what became of them.
#[derive(Default)]
pub(crate) struct Asked {
    pub answered: Counter,
    pub busy: Counter,
    pub late: Counter,
}

/// Reasons why something is refused.
#[derive(Default)]
pub(crate) struct Refusals {
    /// A message longer than the protocol has it.
    pub oversized: Counter,
    /// A message that cannot be read.
    pub garbage: Counter,
    /// A record that is not signed by whom it must be.
    pub forged: Counter,
    /// A record that is over, or not yet valid.
    pub stale: Counter,
    /// A record whose key is nearer to many other nodes.
    pub far: Counter,
    /// A record that nobody asked for.
    pub unasked: Counter,
    /// More questions in a second than one node may have.
    pub rate: Counter,
    /// More questions at once than one node may have.
    pub share: Counter,
    /// More bytes than the node has room for.
    pub memory: Counter,
}

/// A histogram with the bounds of a lookup.
pub(crate) struct AskSeconds(pub Histogram);

impl Default for AskSeconds {
    fn default() -> Self {
        AskSeconds(Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 2.5, 5.0]))
    }
}

/// Reads the counts when somebody scrapes.
pub(crate) struct DhtMetrics {
    /// Weak, because what is shared holds the kernel, which holds the metrics.
    pub shared: Weak<Shared>,
}

impl fmt::Debug for DhtMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DhtMetrics")
    }
}

impl Collector for DhtMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let counts = &shared.counts;
        let mut scrape = Scrape::new(&mut encoder, METRICS);
        scrape.gauge("dht_peers", shared.members.len() as f64)?;
        scrape.gauge("dht_connections", shared.members.connected() as f64)?;
        scrape.gauge("dht_server", f64::from(u8::from(shared.is_server())))?;
        let asks = &counts.asks;
        by(
            &mut scrape,
            "dht_asks_total",
            "outcome",
            &[
                ("answered", &asks.answered),
                ("failed", &asks.failed),
                ("timeout", &asks.timeout),
                ("cancelled", &asks.cancelled),
                ("busy", &asks.busy),
            ],
        )?;
        scrape.histogram("dht_ask_seconds", &counts.ask_seconds.0)?;
        let asked = &counts.asked;
        by(
            &mut scrape,
            "dht_asked_total",
            "outcome",
            &[("answered", &asked.answered), ("busy", &asked.busy), ("late", &asked.late)],
        )?;
        let refused = &counts.refused;
        by(
            &mut scrape,
            "dht_refused_total",
            "reason",
            &[
                ("oversized", &refused.oversized),
                ("garbage", &refused.garbage),
                ("forged", &refused.forged),
                ("stale", &refused.stale),
                ("far", &refused.far),
                ("unasked", &refused.unasked),
                ("rate", &refused.rate),
                ("share", &refused.share),
                ("memory", &refused.memory),
            ],
        )?;
        by(&mut scrape, "dht_placed_total", "outcome", &[("taken", &counts.placed), ("failed", &counts.not_placed)])?;
        scrape.counter("dht_dials_failed_total", counts.dials_failed.get())?;
        scrape.counter("dht_peers_refused_total", counts.peers_refused.get())
    }
}

fn by(
    scrape: &mut Scrape<'_, '_>,
    name: &'static str,
    label: &'static str,
    counters: &[(&'static str, &Counter)],
) -> fmt::Result {
    let series: Vec<_> = counters.iter().map(|(value, counter)| (vec![(label, *value)], counter.get())).collect();
    scrape.counters(name, &series)
}
