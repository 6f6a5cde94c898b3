//! The rewarder's metrics, read from the objects themselves when they are scraped.

use ron_kernel::metrics::MetricSpec;

/// What the rewarder adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric(
        "reward_runs_total",
        "counter",
        &["status"],
        "Runs by how they ended: sealed, settled, refused, quarantined",
    ),
    metric("quarantine_total", "counter", &["reason"], "Epochs quarantined: conservation, overflow, schema, intent"),
    metric("dropped_results_total", "counter", &[], "Computed runs that a shutdown dropped before they were sealed"),
    metric("reward_compute_latency_seconds", "histogram", &[], "Time a run took from its first row to its amounts"),
    metric(
        "reward_conservation_delta_minor",
        "gauge",
        &[],
        "Units that the last sealed run left in its pots, all assets together",
    ),
    metric("reward_epochs", "gauge", &["status"], "Epochs the node keeps, by status"),
    metric("reward_inputs_bytes", "gauge", &[], "Bytes of uploaded inputs on the disk"),
    metric(
        "reward_intents_total",
        "counter",
        &["outcome"],
        "Payouts answered by the ledger: accepted, duplicate, conflict",
    ),
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
