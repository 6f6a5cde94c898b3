//! Every metric of the node, in one struct handed down from `main`. Label values are `&'static str`, so no label set
//! can grow without bound.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::collector::Collector;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::scrape::BARE_TOTAL;

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Upper bounds of the latency buckets, in seconds.
const LATENCY_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.1, 5.0];

/// Name, kind, labels and help text of a metric: the source of docs/metrics.md.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Name as scraped.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// One sentence on what the metric counts.
    pub help: &'static str,
}

/// A counter for each value of one label.
#[derive(Clone, Debug)]
pub struct CounterBy(&'static str, Family<Labels<1>, Counter>);

/// A gauge for each value of one label.
#[derive(Clone, Debug)]
pub struct GaugeBy(&'static str, Family<Labels<1>, Gauge>);

/// A histogram of seconds for each endpoint and method.
#[derive(Clone, Debug)]
pub struct Latency(Family<Labels<2>, Histogram, fn() -> Histogram>);

impl CounterBy {
    /// The counter of one label value; keep it where it is used often.
    pub fn at(&self, value: &'static str) -> Counter {
        self.1.get_or_create_owned(&[(self.0, value)])
    }
}

impl GaugeBy {
    /// The gauge of one label value.
    pub fn at(&self, value: &'static str) -> Gauge {
        self.1.get_or_create_owned(&[(self.0, value)])
    }
}

impl Latency {
    /// The histogram of one endpoint and method; keep it where it is used often.
    pub fn at(&self, endpoint: &'static str, method: &'static str) -> Histogram {
        self.0.get_or_create_owned(&[("endpoint", endpoint), ("method", method)])
    }
}

/// Declares the struct, its registration and the table of specs from one list.
macro_rules! metrics {
    ($($field:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        /// The metrics the kernel and the planes write to.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Mutex<Registry>,
            $(#[doc = $help] pub $field: metrics!(@type $kind),)*
        }

        /// Every metric declared here, in order.
        pub const METRICS: &[MetricSpec] = &[
            $(MetricSpec { name: $name, kind: metrics!(@word $kind), labels: &[$($label),*], help: $help },)*
        ];

        impl Metrics {
            /// A fresh registry with every metric registered.
            pub fn new() -> Arc<Self> {
                let mut registry = Registry::default();
                $(let $field = metrics!(@make $kind [$($label),*]);
                  metrics!(@register $kind registry $name $help $field);)*
                Arc::new(Metrics { registry: Mutex::new(registry), $($field,)* })
            }
        }
    };
    (@type counter_by) => { CounterBy };
    (@type gauge_by) => { GaugeBy };
    (@type counter) => { Counter };
    (@type gauge) => { Gauge };
    (@type latency) => { Latency };
    (@word counter_by) => { "counter" };
    (@word counter) => { "counter" };
    (@word gauge_by) => { "gauge" };
    (@word gauge) => { "gauge" };
    (@word latency) => { "histogram" };
    (@make counter_by [$label:literal]) => { CounterBy($label, Family::default()) };
    (@make gauge_by [$label:literal]) => { GaugeBy($label, Family::default()) };
    (@make counter []) => { Counter::default() };
    (@make gauge []) => { Gauge::default() };
    (@make latency [$($label:literal),*]) => {
        Latency(Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)))
    };
    (@register counter $registry:ident $name:literal $help:literal $field:ident) => {
        $registry.register($name.trim_end_matches("_total"), $help, $field.clone());
    };
    (@register counter_by $registry:ident $name:literal $help:literal $field:ident) => {
        $registry.register($name.trim_end_matches("_total"), $help, $field.1.clone());
    };
    (@register gauge_by $registry:ident $name:literal $help:literal $field:ident) => {
        $registry.register($name, $help, $field.1.clone());
    };
    (@register latency $registry:ident $name:literal $help:literal $field:ident) => {
        $registry.register($name, $help, $field.0.clone());
    };
    (@register gauge $registry:ident $name:literal $help:literal $field:ident) => {
        $registry.register($name, $help, $field.clone());
    };
}

metrics! {
    queue_dropped: counter_by "queue_dropped_total" ["queue"] "Items a queue dropped to make room";
    busy_rejections: counter_by "busy_rejections_total" ["endpoint"] "Requests or items refused because something bounded was full";
    tasks_spawned: counter_by "tasks_spawned_total" ["kind"] "Tasks started";
    tasks_completed: counter_by "tasks_completed_total" ["kind"] "Tasks that ended by themselves";
    tasks_aborted: counter_by "tasks_aborted_total" ["kind"] "Tasks aborted because they did not end in time";
    tasks_canceled: counter_by "tasks_canceled_total" ["kind"] "Work given up because shutdown began";
    io_timeouts: counter_by "io_timeouts_total" ["op"] "Waits that ended at their deadline";
    io_errors: counter_by "io_errors_total" ["op"] "Input and output that failed";
    backoff_retries: counter_by "backoff_retries_total" ["op"] "Tries after the first one";
    service_restarts: counter_by "service_restarts_total" ["service"] "Restarts of a service's tasks";
    request_latency: latency "request_latency_seconds" ["endpoint", "method"] "Time from a request understood to its answer";
    readyz_state: gauge_by "readyz_state" ["service"] "Readiness: 0 unready, 1 degraded, 2 ready";
    dependency_unmet: gauge_by "ready_dependency_unmet" ["dep"] "1 while a dependency is not met";
    facet_busy: counter_by "facet_busy_total" ["facet"] "Permits a facet refused";
    facet_deadline_timeouts: counter_by "facet_deadline_timeouts_total" ["facet"] "Facet work ended by its deadline";
    circuit_open: counter_by "circuit_open_total" ["endpoint"] "Times a circuit opened";
    config_coalesced: counter "config_coalesced_total" [] "Configuration changes absorbed by a newer one";
    config_updates: counter "config_update_total" [] "Configuration changes applied";
    config_rejected: counter "config_reload_rejected_total" [] "Configuration edits refused; the old one stays";
    config_version: gauge "config_version" [] "Version of the configuration in force";
    runtime_still: gauge "runtime_still_seconds" [] "Whole seconds since the runtime last turned; from 2 on the node is not ready";
    bus_lagged: counter_by "bus_lagged_total" ["service"] "Events a bus receiver missed before it was handed a snapshot";
    frame_rejects: counter_by "frame_reject_total" ["reason"] "Frames and bodies refused";
    connections_open: gauge_by "connections_open" ["listener"] "Connections held now";
    http_body_bytes: gauge "http_body_bytes" [] "Bytes of HTTP request bodies held in memory now";
    http_answer_bytes: gauge "http_answer_bytes" [] "Bytes of HTTP answers held in memory now, until they have left";
    http_waiting: gauge "http_waiting" [] "HTTP requests that wait for messages or events now";
    connections_refused: counter_by "connections_refused_total" ["reason"] "Connections refused at accept";
    meter_overflow: counter "meter_overflow_total" [] "Amounts counted under (other) because the usage meter has no row left for their tenant";
    invariant_violations: counter_by "invariant_violations_total" ["invariant"] "Broken promises of the supervisor; always zero";
}

/// Metrics read from the objects themselves at scrape time.
pub const COLLECTED: &[MetricSpec] = &[
    MetricSpec { name: "queue_depth", kind: "gauge", labels: &["queue"], help: "Items waiting in a queue" },
    MetricSpec {
        name: "queue_high_water",
        kind: "gauge",
        labels: &["queue"],
        help: "Most items that ever waited in a queue",
    },
    MetricSpec { name: "semaphore_inflight", kind: "gauge", labels: &["facet"], help: "Permits of a facet in use" },
];

impl Metrics {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a collector that reads its values when scraped.
    pub fn register_collector(&self, collector: Box<dyn Collector>) {
        self.registry().register_collector(collector);
    }

    /// The scrape in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut open_metrics = String::with_capacity(16 * 1024);
        let encoded = prometheus_client::encoding::text::encode(&mut open_metrics, &self.registry());
        encoded.expect("writing to a string does not fail");
        let mut text = prometheus_text(&open_metrics);
        // A family without a series yet is not encoded, but a reader should see that it exists.
        for spec in METRICS.iter().filter(|spec| !open_metrics.contains(&format!(" {} ", spec.family()))) {
            let _ = write!(text, "# HELP {0} {1}.\n# TYPE {0} {2}\n", spec.name, spec.help, spec.kind);
        }
        text
    }
}

/// Rewrites OpenMetrics to the older text format: a counter's HELP and TYPE carry its full name, and there is no EOF.
fn prometheus_text(open_metrics: &str) -> String {
    let counters: Vec<&str> = open_metrics.lines().filter_map(counter_name).collect();
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let renamed = ["# HELP ", "# TYPE "].iter().find_map(|prefix| {
            let (name, rest) = line.strip_prefix(prefix)?.split_once(' ')?;
            counters.contains(&name).then(|| format!("{prefix}{name}_total {rest}"))
        });
        let line = renamed.as_deref().unwrap_or(line);
        // Both a header and a sample name the counter once, at their beginning.
        text.push_str(&line.replacen(BARE_TOTAL, "", 1));
        text.push('\n');
    }
    text
}

fn counter_name(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

impl MetricSpec {
    /// The name in OpenMetrics, where a counter's family has no suffix.
    fn family(&self) -> &'static str {
        self.name.strip_suffix("_total").filter(|_| self.kind == "counter").unwrap_or(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Bare;

    impl Collector for Bare {
        fn encode(&self, mut encoder: prometheus_client::encoding::DescriptorEncoder<'_>) -> std::fmt::Result {
            crate::scrape::Scrape::new(&mut encoder, &[]).counter("deadline_hit", 3)
        }
    }

    #[test]
    fn a_counter_may_be_named_without_the_suffix() {
        let metrics = Metrics::new();
        metrics.register_collector(Box::new(Bare));
        let text = metrics.render();
        assert!(text.contains("# TYPE deadline_hit counter\ndeadline_hit 3\n"), "{text}");
    }

    #[test]
    fn a_scrape_is_prometheus_text() {
        let metrics = Metrics::new();
        metrics.busy_rejections.at("work").inc();
        let text = metrics.render();
        assert!(text.contains("# TYPE busy_rejections_total counter\n"), "{text}");
        assert!(text.contains("busy_rejections_total{endpoint=\"work\"} 1\n"), "{text}");
        assert!(!text.contains("# EOF"));
    }
}
