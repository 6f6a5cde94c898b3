//! The figures of a run.

use std::fmt;

use ron_gossip::Micros;

/// What a run cost and brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Nodes alive at the end.
    pub nodes: usize,
    /// Messages published.
    pub messages: usize,
    /// Deliveries at other nodes than the publisher.
    pub deliveries: u64,
    /// Frames with payload over links, for each delivery.
    pub sends_per_delivery: f64,
    /// Frames without payload over links, for each delivery.
    pub control_per_delivery: f64,
    /// Median and 99th percentile of hops.
    pub hops: (u8, u8),
    /// Median and 99th percentile of the time from publication to delivery.
    pub latency: (Micros, Micros),
    /// Deliveries that did not happen at nodes that are alive.
    pub missed: usize,
    /// Messages told as lost.
    pub lost: u64,
    /// Deliveries that came because a node asked.
    pub repaired: u64,
    /// Payloads that were there already.
    pub duplicates: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |micros: Micros| micros as f64 / 1000.0;
        write!(
            f,
            "nodes {} messages {} deliveries {} sends/delivery {:.3} control/delivery {:.2} hops p50 {} p99 {} \
             latency ms p50 {:.0} p99 {:.0} missed {} lost {} repaired {} duplicates {}",
            self.nodes,
            self.messages,
            self.deliveries,
            self.sends_per_delivery,
            self.control_per_delivery,
            self.hops.0,
            self.hops.1,
            ms(self.latency.0),
            ms(self.latency.1),
            self.missed,
            self.lost,
            self.repaired,
            self.duplicates
        )
    }
}

/// Median and 99th percentile.
pub(crate) fn percentiles<T: Copy + Ord + Default>(values: &[T]) -> (T, T) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1))).copied();
    (at(50).unwrap_or_default(), at(99).unwrap_or_default())
}
