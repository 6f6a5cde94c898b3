//! Metrics of the process itself, read from `/proc/self` when scraped; absent where there is no such thing.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ron_kernel::metrics::MetricSpec;

const RESIDENT: MetricSpec = gauge("process_resident_memory_bytes", "Memory of the process that is in RAM");
const OPEN_FDS: MetricSpec = gauge("process_open_fds", "File descriptors in use");
const MAX_FDS: MetricSpec = gauge("process_max_fds", "File descriptors the process may use");
const STARTED: MetricSpec = gauge("process_start_time_seconds", "When the process started, in seconds since 1970");
const CPU: MetricSpec = MetricSpec {
    name: "process_cpu_seconds_total",
    kind: "counter",
    labels: &[],
    help: "Processor time used, in user and system mode",
};
const BUILD: MetricSpec =
    MetricSpec { name: "build_info", kind: "gauge", labels: &["version"], help: "Always 1; its label says what runs" };

/// Every metric this module adds to the kernel's registry.
pub const PROCESS_METRICS: &[MetricSpec] = &[RESIDENT, OPEN_FDS, MAX_FDS, STARTED, CPU, BUILD];

const fn gauge(name: &'static str, help: &'static str) -> MetricSpec {
    MetricSpec { name, kind: "gauge", labels: &[], help }
}

/// Reads the numbers at each scrape.
#[derive(Debug)]
pub(crate) struct ProcessNumbers {
    started_seconds: Option<f64>,
}

impl ProcessNumbers {
    pub(crate) fn new() -> Self {
        ProcessNumbers { started_seconds: started_seconds() }
    }
}

impl Collector for ProcessNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gauges = [
            (RESIDENT, resident_bytes()),
            (OPEN_FDS, open_fds()),
            (MAX_FDS, max_fds()),
            (STARTED, self.started_seconds),
        ];
        for (spec, value) in gauges {
            if let Some(value) = value {
                encode(&mut encoder, &spec, MetricType::Gauge, &ConstGauge::new(value))?;
            }
        }
        if let Some(value) = cpu_seconds() {
            encode(&mut encoder, &CPU, MetricType::Counter, &ConstCounter::new(value))?;
        }
        let mut build = encoder.encode_descriptor(BUILD.name, BUILD.help, None, MetricType::Gauge)?;
        let labels = [(BUILD.labels[0], env!("CARGO_PKG_VERSION"))];
        ConstGauge::new(1i64).encode(build.encode_family(&labels)?)
    }
}

fn encode<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    spec: &MetricSpec,
    kind: MetricType,
    value: &M,
) -> Result<(), std::fmt::Error> {
    let name = spec.name.trim_end_matches("_total");
    value.encode(encoder.encode_descriptor(name, spec.help, None, kind)?)
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: f64 = word_after(&status, "VmRSS:")?.parse().ok()?;
    Some(kib * 1024.0)
}

fn open_fds() -> Option<f64> {
    // The descriptor that reads the directory is not one of the process's own.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    word_after(&limits, "Max open files")?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some((stat_field(&stat, 14)? + stat_field(&stat, 15)?) / ticks_per_second())
}

fn started_seconds() -> Option<f64> {
    let boot: f64 = word_after(&fs::read_to_string("/proc/stat").ok()?, "btime")?.parse().ok()?;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(boot + stat_field(&stat, 22)? / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// A field of `/proc/self/stat`, counted from one as in its manual; only those after the name, which may hold blanks.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The first word after the label that begins a line.
fn word_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label))?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_blanks_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 12345 1000 200";
        let got = [stat_field(stat, 14), stat_field(stat, 15), stat_field(stat, 22), stat_field(stat, 99)];
        assert_eq!(got, [Some(250.0), Some(50.0), Some(12345.0), None]);
        assert_eq!(word_after("Max cpu  1\nMax open files   1024  4096 files\n", "Max open files"), Some("1024"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_scrape_holds_every_declared_metric() {
        let metrics = ron_kernel::Metrics::new();
        metrics.register_collector(Box::new(ProcessNumbers::new()));
        let text = metrics.render();
        for spec in PROCESS_METRICS {
            assert!(text.contains(&format!("# TYPE {} {}\n", spec.name, spec.kind)), "{spec:?} is missing in {text}");
        }
        assert!(text.contains(concat!("build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n")), "{text}");
        let now = ron_kernel::clock::unix_millis() as f64 / 1000.0;
        let started = started_seconds().expect("linux");
        assert!(started > now - 3_600.0 && started <= now + 2.0, "{started} {now}");
        assert!(resident_bytes().expect("linux") > 1e6 && open_fds() <= max_fds());
    }
}
