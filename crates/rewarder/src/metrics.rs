//! The rewarder's metrics, read from the objects themselves when they are scraped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::histogram::Histogram;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::scrape::Scrape;
use ron_ledger::Outcome;

use crate::service::engine::{Engine, lock};
use crate::store::{EpochRow, EpochStatus, QuarantineReason};

/// What the rewarder adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric(
        "reward_runs_total",
        "counter",
        &["status"],
        "Runs by how they went: sealed, refused, failed, settled, quarantined",
    ),
    metric(
        "quarantine_total",
        "counter",
        &["reason"],
        "Epochs quarantined: conservation, overflow, schema, intent, integrity, rejected",
    ),
    metric("dropped_results_total", "counter", &[], "Computed runs that were dropped before they were sealed"),
    metric("reward_compute_latency_seconds", "histogram", &[], "Time a run took from its first byte to its roots"),
    metric(
        "reward_conservation_delta_minor",
        "gauge",
        &[],
        "Units that the last sealed run left in its pots, all assets together",
    ),
    metric(
        "reward_intents_total",
        "counter",
        &["outcome"],
        "Payouts answered by the ledger: accepted, duplicate, conflict",
    ),
    metric("reward_epochs", "gauge", &["status"], "Sealed epochs by status"),
    metric("reward_computing", "gauge", &[], "Epochs being computed or waiting for it"),
    metric("reward_inputs_bytes", "gauge", &[], "Bytes of uploaded inputs"),
    metric("readyz_degraded", "gauge", &["cause"], "1 while payouts wait for this: the ledger, or the seal log"),
];

const fn metric(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind, labels, help }
}

/// Ends of runs that are counted.
const RUN_STATUSES: [&str; 5] = ["sealed", "refused", "failed", "settled", "quarantined"];
const OUTCOMES: [&str; 3] = ["accepted", "duplicate", "conflict"];

/// What is counted as it happens.
#[derive(Debug)]
pub(crate) struct Counts {
    numbers: Mutex<Numbers>,
    compute: Histogram,
}

#[derive(Debug, Default)]
struct Numbers {
    runs: BTreeMap<&'static str, u64>,
    quarantines: BTreeMap<&'static str, u64>,
    outcomes: BTreeMap<&'static str, u64>,
    results_dropped: u64,
    delta_minor: f64,
    ledger_waits: bool,
    keeps_pots: Option<bool>,
}

impl Default for Counts {
    fn default() -> Self {
        let buckets = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
        Counts { numbers: Mutex::default(), compute: Histogram::new(buckets) }
    }
}

impl Counts {
    /// A run ended this way.
    pub fn ran(&self, status: &'static str) {
        *lock(&self.numbers).runs.entry(status).or_default() += 1;
    }

    /// A run took this long to compute.
    pub fn computed_in(&self, took: Duration) {
        self.compute.observe(took.as_secs_f64());
    }

    /// A computed run was lost before it was sealed.
    pub fn result_dropped(&self) {
        lock(&self.numbers).results_dropped += 1;
    }

    /// A run was sealed.
    pub fn sealed(&self, row: &EpochRow) {
        self.ran("sealed");
        // A gauge holds 53 bits exactly; the manifest has every digit.
        let delta = row.totals.iter().map(|total| total.pool.0.saturating_sub(total.paid.0) as f64).sum();
        lock(&self.numbers).delta_minor = delta;
        if row.status == EpochStatus::Quarantined {
            self.ended(row);
        }
    }

    /// An epoch is settled or quarantined.
    pub fn ended(&self, row: &EpochRow) {
        self.ran(row.status.as_str());
        if let Some(why) = &row.quarantine {
            *lock(&self.numbers).quarantines.entry(why.reason.as_str()).or_default() += 1;
        }
    }

    /// The ledger answered.
    pub fn answered(&self, outcomes: &[Outcome]) {
        let mut numbers = lock(&self.numbers);
        for outcome in outcomes {
            let word = match outcome {
                Outcome::Accepted => OUTCOMES[0],
                Outcome::Duplicate => OUTCOMES[1],
                Outcome::Conflict => OUTCOMES[2],
            };
            *numbers.outcomes.entry(word).or_default() += 1;
        }
    }

    /// Whether payouts wait for the ledger.
    pub fn ledger_waits(&self) -> bool {
        lock(&self.numbers).ledger_waits
    }

    /// Says whether payouts wait for the ledger.
    pub fn set_ledger_waits(&self, waits: bool) {
        lock(&self.numbers).ledger_waits = waits;
    }
}

impl Counts {
    /// Whether the ledger said of itself that it pays each pot from one run; none before it was asked.
    pub fn keeps_pots(&self) -> Option<bool> {
        lock(&self.numbers).keeps_pots
    }

    /// Takes down what the ledger says of itself.
    pub fn set_keeps_pots(&self, keeps_pots: bool) {
        lock(&self.numbers).keeps_pots = Some(keeps_pots);
    }
}

/// Reads the rewarder when it is scraped.
pub(crate) struct RewarderMetrics {
    /// Weak, because the engine holds the kernel, which holds the metrics.
    engine: Weak<Engine>,
}

impl RewarderMetrics {
    pub fn new(engine: &Arc<Engine>) -> Self {
        RewarderMetrics { engine: Arc::downgrade(engine) }
    }
}

impl fmt::Debug for RewarderMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RewarderMetrics")
    }
}

impl Collector for RewarderMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut scrape = Scrape::new(&mut encoder, METRICS);
        let counts = &engine.counts;
        {
            let numbers = lock(&counts.numbers);
            let of = |counted: &BTreeMap<&'static str, u64>, word: &str| counted.get(word).copied().unwrap_or(0);
            let runs = RUN_STATUSES.map(|status| (vec![("status", status)], of(&numbers.runs, status)));
            scrape.counters("reward_runs_total", &runs)?;
            let reasons = QuarantineReason::ALL.map(QuarantineReason::as_str);
            let reasons = reasons.map(|reason| (vec![("reason", reason)], of(&numbers.quarantines, reason)));
            scrape.counters("quarantine_total", &reasons)?;
            let outcomes = OUTCOMES.map(|outcome| (vec![("outcome", outcome)], of(&numbers.outcomes, outcome)));
            scrape.counters("reward_intents_total", &outcomes)?;
            scrape.counter("dropped_results_total", numbers.results_dropped)?;
            scrape.gauge("reward_conservation_delta_minor", numbers.delta_minor)?;
        }
        scrape.histogram("reward_compute_latency_seconds", &counts.compute)?;
        let store = engine.store().ok();
        let statuses = EpochStatus::ALL.map(EpochStatus::as_str).into_iter();
        let epochs = store.map(|store| store.counts()).unwrap_or_default();
        let epochs: Vec<_> = statuses.zip(epochs).map(|(status, n)| (vec![("status", status)], n as f64)).collect();
        scrape.gauges("reward_epochs", &epochs)?;
        scrape.gauge("reward_computing", engine.flights().len() as f64)?;
        scrape.gauge("reward_inputs_bytes", engine.options.inputs.bytes() as f64)?;
        let log_waits = store.is_none_or(|store| store.failed().is_some());
        let causes = [("ledger", counts.ledger_waits()), ("seal_log", log_waits)];
        scrape.gauges("readyz_degraded", &causes.map(|(cause, on)| (vec![("cause", cause)], f64::from(u8::from(on)))))
    }
}
