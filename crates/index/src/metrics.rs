//! The index's metrics: what is counted as it happens, under the contract's names.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::scrape::Scrape;
use ron_lookup::BreakerState;

use crate::capacity::Sums;
use crate::shared::Shared;
use crate::words::Outcome;

/// Upper bounds of the buckets of answers, in seconds: from a hit to the deadline and beyond.
const RESOLVE_BUCKETS: [f64; 12] = [0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.4, 0.8, 1.2, 1.25];
/// Upper bounds of the buckets of lookups, in milliseconds.
const LOOKUP_BUCKETS: [f64; 11] = [1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 150.0, 250.0, 400.0, 800.0, 1200.0];

/// What the index adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric("resolve_latency_seconds", "histogram", &[], "Time from a question to its answer"),
    metric("index_dht_lookup_ms", "histogram", &[], "Time of lookups among peers and routers, in milliseconds"),
    metric(
        "breaker_state",
        "gauge",
        &["target", "state"],
        "1 for the state a target's breaker is in; the first targets by id",
    ),
    metric(
        "breaker_open_total",
        "counter",
        &["target"],
        "Times a target's breaker opened; the first targets by id, then other",
    ),
    metric("resolve_deadline_hit", "counter", &[], "Lookups, and waits for one, that ended at their deadline"),
    metric("index_cache_hits_total", "counter", &[], "Questions answered from memory"),
    metric("index_cache_misses_total", "counter", &[], "Questions that memory could not answer"),
    metric("index_lookups_total", "counter", &["outcome"], "Lookups among peers and routers, by how they ended"),
    metric("index_asks_total", "counter", &["kind"], "Questions to peers and routers: first ones, and hedges"),
    metric("index_forged_total", "counter", &[], "Replies whose records do not hold"),
    metric(
        "index_probes_total",
        "counter",
        &["result"],
        "Providers asked for a chunk of what they say they have: proven, failed, or unknown where none came",
    ),
    metric(
        "index_renewals_total",
        "counter",
        &["result"],
        "Records of this node that were to be signed anew: renewed, or failed and tried again a minute later",
    ),
    metric("index_cache_bytes", "gauge", &[], "Bytes of answers in memory, about"),
    metric("index_records", "gauge", &[], "Records in the store"),
    metric("index_records_bytes", "gauge", &[], "Bytes of the records in the store"),
    metric("index_workers_wanted", "gauge", &[], "Resolvers that the load of the last minute asks for"),
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
    resolve: Histogram,
    lookup: Histogram,
    deadline_hit: Counter,
    hits: Counter,
    misses: Counter,
    forged: Counter,
    /// Probes of providers that proved, failed, and said nothing.
    probes: [Counter; 3],
    /// Records renewed, and those that could not be.
    renewals: [Counter; 2],
    outcomes: [Counter; 4],
    arrived: Counter,
    served: Counter,
    service_us: Counter,
}

impl Counts {
    pub fn new() -> Self {
        Counts {
            resolve: Histogram::new(RESOLVE_BUCKETS),
            lookup: Histogram::new(LOOKUP_BUCKETS),
            deadline_hit: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            forged: Counter::default(),
            probes: std::array::from_fn(|_| Counter::default()),
            renewals: std::array::from_fn(|_| Counter::default()),
            outcomes: std::array::from_fn(|_| Counter::default()),
            arrived: Counter::default(),
            served: Counter::default(),
            service_us: Counter::default(),
        }
    }

    pub fn resolved(&self, took: Duration) {
        self.resolve.observe(took.as_secs_f64());
    }

    pub fn hit(&self) {
        self.hits.inc();
    }

    pub fn missed(&self) {
        self.misses.inc();
    }

    pub fn deadline_hit(&self) {
        self.deadline_hit.inc();
    }

    pub fn forged(&self) {
        self.forged.inc();
    }

    /// A provider was asked for a chunk.
    pub fn probed(&self, is_proven: Option<bool>) {
        let result = match is_proven {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        self.probes[result].inc();
    }

    /// A record of this node was renewed, or could not be.
    pub fn renewed(&self, is_done: bool) {
        self.renewals[usize::from(!is_done)].inc();
    }

    /// A lookup came to the pool.
    pub fn arrived(&self) {
        self.arrived.inc();
    }

    /// A resolver is done with a lookup.
    pub fn served(&self, took: Duration) {
        self.served.inc();
        self.service_us.inc_by(took.as_micros() as u64);
    }

    /// A lookup among peers ended.
    pub fn looked_up(&self, outcome: Outcome, took: Duration) {
        self.outcomes[outcome as usize].inc();
        self.lookup.observe(took.as_secs_f64() * 1e3);
    }

    /// Lookups so far that ended so.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].get()
    }

    /// Sums for the capacity rule.
    pub fn sums(&self) -> Sums {
        Sums {
            arrived: self.arrived.get(),
            served: self.served.get(),
            service_us: self.service_us.get(),
            hits: self.hits.get(),
        }
    }
}

/// Reads the counts when somebody scrapes.
pub(crate) struct IndexMetrics {
    /// Weak, because what is shared holds the kernel, which holds the metrics.
    pub shared: Weak<Shared>,
}

impl fmt::Debug for IndexMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IndexMetrics")
    }
}

impl Collector for IndexMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let counts = &shared.counts;
        let mut scrape = Scrape::new(&mut encoder, METRICS);
        scrape.histogram("resolve_latency_seconds", &counts.resolve)?;
        scrape.histogram("index_dht_lookup_ms", &counts.lookup)?;
        scrape.counter("resolve_deadline_hit", counts.deadline_hit.get())?;
        scrape.counter("index_cache_hits_total", counts.hits.get())?;
        scrape.counter("index_cache_misses_total", counts.misses.get())?;
        scrape.counter("index_forged_total", counts.forged.get())?;
        let outcomes = [Outcome::Found, Outcome::Absent, Outcome::Unknown, Outcome::Degraded];
        let outcomes = outcomes.map(|outcome| (vec![("outcome", outcome.as_str())], counts.outcome(outcome)));
        scrape.counters("index_lookups_total", &outcomes)?;
        let (asks, hedges) = shared.targets.asked();
        let asks = [("first", asks), ("hedge", hedges)].map(|(kind, count)| (vec![("kind", kind)], count));
        scrape.counters("index_asks_total", &asks)?;
        let [proven, lied, unknown] = &counts.probes;
        let probes = [("proven", proven), ("failed", lied), ("unknown", unknown)];
        let probes = probes.map(|(result, count)| (vec![("result", result)], count.get()));
        scrape.counters("index_probes_total", &probes)?;
        let [renewed, failed] = &counts.renewals;
        let renewals = [("renewed", renewed), ("failed", failed)];
        let renewals = renewals.map(|(result, count)| (vec![("result", result)], count.get()));
        scrape.counters("index_renewals_total", &renewals)?;
        scrape.gauge("index_cache_bytes", shared.cache.size().1 as f64)?;
        scrape.gauge("index_records", shared.options.store.count() as f64)?;
        scrape.gauge("index_records_bytes", shared.options.store.counts().records_bytes as f64)?;
        let capacity = shared.load.capacity(counts.sums(), shared.options.resolvers);
        scrape.gauge("index_workers_wanted", capacity.workers_wanted as f64)?;
        breakers(&shared, &mut scrape)
    }
}

fn breakers(shared: &Shared, scrape: &mut Scrape<'_, '_>) -> fmt::Result {
    let views = shared.targets.views(shared.now_ms());
    let named: Vec<(String, BreakerState)> = views.iter().map(|view| (view.target.to_string(), view.state)).collect();
    let states: Vec<_> =
        named.iter().map(|(target, state)| (vec![("target", target.as_str()), ("state", word(*state))], 1.0)).collect();
    scrape.gauges("breaker_state", &states)?;
    let opened = shared.targets.opened();
    let opened: Vec<_> = opened.iter().map(|(target, count)| (vec![("target", target.as_str())], *count)).collect();
    scrape.counters("breaker_open_total", &opened)
}

/// The word for a state in metrics.
fn word(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half_open",
        BreakerState::Open => "open",
    }
}
