//! The mailbox's metrics, read from the objects themselves when they are scraped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use ron_kernel::clock;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::queue::QueueProbe;
use ron_kernel::scrape::Scrape;
use ron_log::Shortage;

use crate::engine::{Engine, lock};
use crate::scrub::{ScrubPass, ScrubView};
use crate::specs::SHARD_NAMES;
use crate::types::DeadReason;
use crate::wall::ahead_of;

/// Topics that a counter names; others are counted under `other`.
const TOPICS_NAMED_MAX: usize = 32;

/// What the mailbox adds to a scrape, for the documentation and the contract.
pub const METRICS: &[MetricSpec] = &[
    metric("saturation", "gauge", &["queue", "shard"], "How full a shard's queue is, from 0 to 1"),
    metric("inflight", "gauge", &["shard"], "Messages with consumers"),
    metric("mailbox_ready", "gauge", &["shard"], "Messages that may be delivered"),
    metric("mailbox_delayed", "gauge", &["shard"], "Messages that wait for their time"),
    metric("mailbox_waiters", "gauge", &["shard"], "Receivers waiting for a message"),
    metric(
        "reorder_depth_max",
        "gauge",
        &["shard"],
        "Most newer messages delivered before an older one that was ready",
    ),
    metric("dlq_total", "counter", &["topic", "reason"], "Messages that died; the busiest topics by name, then other"),
    metric("mailbox_breakers_open", "gauge", &["shard"], "Partitions whose breaker is open or half open"),
    metric(
        "mailbox_breaker_open_total",
        "counter",
        &["topic"],
        "Times a breaker opened because deliveries fail; the first topics by name, then other",
    ),
    metric("integrity_fail_total", "counter", &["reason"], "Messages whose bytes are not what was sent"),
    metric("mailbox_read_fail_total", "counter", &[], "Deliveries given back because the message could not be read"),
    metric("requeue_backoff_total", "counter", &[], "Wake-ups of the scanner that found a shard's queue full"),
    metric("unwritten_steps_total", "counter", &[], "Leases and their ends not recorded because the log was full"),
    metric("scanner_wake_jitter_ms", "histogram", &[], "How late the scanner woke, in milliseconds"),
    metric(
        "mailbox_memory_bytes",
        "gauge",
        &["kind"],
        "Bytes of memory of messages, groups and keys: used, and the limit beyond which sends are refused",
    ),
    metric(
        "mailbox_clock_jump_seconds",
        "gauge",
        &["kind"],
        "Seconds the wall clock jumped ahead: held (nothing expires by them) and ahead (of the running node)",
    ),
    metric("log_bytes", "gauge", &["kind"], "Bytes of the log: total, live, quota, gathered"),
    metric("log_segments", "gauge", &[], "Files of the log"),
    metric(
        "log_files_lost",
        "gauge",
        &["kind"],
        "Files of the log that the last start found missing, cut, or (the manifest) lost",
    ),
    metric(
        "log_full",
        "gauge",
        &["reason"],
        "1 while the log has no room for data: its quota is used up, or its device is full",
    ),
    metric("log_syncs_total", "counter", &[], "Commits to the disk"),
    metric(
        "log_caller_syncs_total",
        "counter",
        &[],
        "Commits to the disk by a caller that was alone, without the log's thread",
    ),
    metric("log_records_total", "counter", &[], "Records written"),
    metric("log_failed", "gauge", &[], "1 once the log has failed and takes nothing more"),
    metric("log_scrub_bytes_total", "counter", &[], "Bytes of the log read and checked"),
    metric(
        "log_scrub_progress",
        "gauge",
        &[],
        "Part of the log the running scrub is through with, or the last one, from 0 to 1",
    ),
    metric(
        "log_scrub_finished_seconds",
        "gauge",
        &[],
        "When the last scrub ended, in seconds since 1970; 0 before the first",
    ),
    metric("log_scrub_duration_seconds", "gauge", &[], "How long the last scrub took"),
    metric(
        "log_scrub_damaged_records",
        "gauge",
        &[],
        "Damaged records that the last scrub, or the running one, has found",
    ),
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
#[derive(Debug)]
pub(crate) struct Counts {
    /// By topic and by reason.
    deaths: Mutex<BTreeMap<String, BTreeMap<&'static str, u64>>>,
    openings: Mutex<BTreeMap<String, u64>>,
    integrity: Mutex<BTreeMap<&'static str, u64>>,
    reads_failed: Counter,
    backoffs: Counter,
    unwritten: Counter,
    wake_jitter: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        let wake_jitter = Histogram::new([0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0]);
        Counts {
            deaths: Mutex::default(),
            openings: Mutex::default(),
            integrity: Mutex::default(),
            reads_failed: Counter::default(),
            backoffs: Counter::default(),
            unwritten: Counter::default(),
            wake_jitter,
        }
    }
}

impl Counts {
    /// A message of this topic died.
    pub fn died(&self, topic: &str, reason: DeadReason) {
        *count_of(&mut lock(&self.deaths), topic).entry(reason.as_str()).or_default() += 1;
    }

    /// A breaker of this topic opened.
    pub fn breaker_opened(&self, topic: &str) {
        *count_of(&mut lock(&self.openings), topic) += 1;
    }

    /// Messages were not what was sent.
    pub fn integrity_failed(&self, reason: &'static str, messages: u64) {
        *lock(&self.integrity).entry(reason).or_default() += messages;
    }

    /// Messages could not be read, which says nothing of their bytes.
    pub fn reads_failed(&self, messages: u64) {
        self.reads_failed.inc_by(messages);
    }

    /// A wake-up found a shard's queue full.
    pub fn requeue_backed_off(&self) {
        self.backoffs.inc();
    }

    /// Steps of deliveries were not recorded.
    pub fn steps_unwritten(&self, steps: u64) {
        self.unwritten.inc_by(steps);
    }

    /// The scanner woke this much later than it wanted to.
    pub fn scanner_woke_late(&self, late: Duration) {
        self.wake_jitter.observe(late.as_secs_f64() * 1000.0);
    }
}

/// What is counted of a topic, or of all topics that came when there was no label left. Found without an allocation:
/// a turn may end very many messages.
fn count_of<'a, T: Default>(counts: &'a mut BTreeMap<String, T>, topic: &str) -> &'a mut T {
    let is_new = !counts.contains_key(topic);
    let label = if is_new && counts.len() >= TOPICS_NAMED_MAX { "other" } else { topic };
    if !counts.contains_key(label) {
        counts.insert(label.to_owned(), T::default());
    }
    counts.get_mut(label).expect("inserted above")
}

impl DeadReason {
    /// As it is written in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeadReason::MaxAttempts => "max_attempts",
            DeadReason::Expired => "expired",
            DeadReason::Integrity => "integrity",
            DeadReason::Rejected => "rejected",
        }
    }
}

/// Reads the mailbox when it is scraped.
pub(crate) struct MailboxMetrics {
    /// Weak, because the engine holds the kernel, which holds the metrics.
    engine: Weak<Engine>,
    work: Vec<QueueProbe>,
}

impl MailboxMetrics {
    pub fn new(engine: &Arc<Engine>, probes: Vec<QueueProbe>) -> Self {
        let work = probes.into_iter().filter(|probe| probe.spec().name.starts_with("work_tx[")).collect();
        MailboxMetrics { engine: Arc::downgrade(engine), work }
    }
}

impl fmt::Debug for MailboxMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MailboxMetrics")
    }
}

impl Collector for MailboxMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut scrape = Scrape::new(&mut encoder, METRICS);
        let active = engine.routing.get().value.shards;
        let fills = self.work.iter().zip(SHARD_NAMES).take(active);
        let fills: Vec<_> = fills
            .map(|(probe, shard)| (vec![("queue", "work_tx"), ("shard", shard)], f64::from(probe.fill())))
            .collect();
        scrape.gauges("saturation", &fills)?;
        let shards = engine.shards.iter().zip(SHARD_NAMES).take(active);
        let numbers: Vec<_> = shards.map(|(lane, shard)| (shard, *lock(&lane.shared.numbers))).collect();
        let by_shard = |read: fn(&crate::engine::ShardNumbers) -> u64| {
            numbers.iter().map(|(shard, numbers)| (vec![("shard", *shard)], read(numbers) as f64)).collect::<Vec<_>>()
        };
        scrape.gauges("inflight", &by_shard(|numbers| numbers.leased))?;
        scrape.gauges("mailbox_ready", &by_shard(|numbers| numbers.ready))?;
        scrape.gauges("mailbox_delayed", &by_shard(|numbers| numbers.delayed))?;
        scrape.gauges("mailbox_waiters", &by_shard(|numbers| numbers.waiters))?;
        scrape.gauges("reorder_depth_max", &by_shard(|numbers| numbers.reorder_depth_max))?;
        scrape.gauges("mailbox_breakers_open", &by_shard(|numbers| numbers.breakers_open))?;
        let memory = [("used", engine.memory_bytes()), ("limit", engine.live.get().value.memory_bytes_max)];
        let memory = memory.map(|(kind, bytes)| (vec![("kind", kind)], bytes as f64));
        scrape.gauges("mailbox_memory_bytes", &memory)?;
        write_counts(&mut scrape, &engine.counts)?;
        write_log(&mut scrape, &engine)
    }
}

fn write_counts(scrape: &mut Scrape<'_, '_>, counts: &Counts) -> fmt::Result {
    let deaths = lock(&counts.deaths).clone();
    let deaths: Vec<_> = deaths
        .iter()
        .flat_map(|(topic, reasons)| {
            reasons.iter().map(move |(reason, n)| (vec![("topic", topic.as_str()), ("reason", *reason)], *n))
        })
        .collect();
    scrape.counters("dlq_total", &deaths)?;
    let openings = lock(&counts.openings).clone();
    let openings: Vec<_> = openings.iter().map(|(topic, n)| (vec![("topic", topic.as_str())], *n)).collect();
    scrape.counters("mailbox_breaker_open_total", &openings)?;
    let integrity = lock(&counts.integrity).clone();
    let integrity: Vec<_> = integrity.iter().map(|(reason, n)| (vec![("reason", *reason)], *n)).collect();
    scrape.counters("integrity_fail_total", &integrity)?;
    scrape.counters("mailbox_read_fail_total", &[(vec![], counts.reads_failed.get())])?;
    scrape.counters("requeue_backoff_total", &[(vec![], counts.backoffs.get())])?;
    scrape.counters("unwritten_steps_total", &[(vec![], counts.unwritten.get())])?;
    scrape.histogram("scanner_wake_jitter_ms", &counts.wake_jitter)
}

fn write_log(scrape: &mut Scrape<'_, '_>, engine: &Engine) -> fmt::Result {
    let Ok(opened) = engine.opened() else { return Ok(()) };
    let ahead = ahead_of(opened.clock.now(), clock::unix_millis()).as_secs_f64();
    let jumps = [("held", opened.hold().jump_ms as f64 / 1000.0), ("ahead", ahead)];
    scrape.gauges("mailbox_clock_jump_seconds", &jumps.map(|(kind, seconds)| (vec![("kind", kind)], seconds)))?;
    let usage = opened.log.usage();
    let sizes = [
        ("total", usage.bytes_total),
        ("live", usage.bytes_live),
        ("quota", usage.quota_bytes),
        ("gathered", usage.gathered_bytes),
    ];
    let sizes: Vec<_> = sizes.into_iter().map(|(kind, bytes)| (vec![("kind", kind)], bytes as f64)).collect();
    scrape.gauges("log_bytes", &sizes)?;
    scrape.gauges("log_segments", &[(vec![], f64::from(usage.segments))])?;
    let found = &opened.recovery;
    let lost = [
        ("missing", found.segments_missing),
        ("cut", found.segments_cut),
        ("manifest", u32::from(found.manifest_lost)),
    ];
    let lost: Vec<_> = lost.into_iter().map(|(kind, files)| (vec![("kind", kind)], f64::from(files))).collect();
    scrape.gauges("log_files_lost", &lost)?;
    let full = [Shortage::Quota, Shortage::Device]
        .map(|of| (vec![("reason", of.as_str())], f64::from(u8::from(usage.shortage == Some(of)))));
    scrape.gauges("log_full", &full)?;
    scrape.counters("log_syncs_total", &[(vec![], usage.syncs)])?;
    scrape.counters("log_caller_syncs_total", &[(vec![], usage.caller_syncs)])?;
    scrape.counters("log_records_total", &[(vec![], usage.appended)])?;
    scrape.gauges("log_failed", &[(vec![], f64::from(u8::from(opened.log.failed().is_some())))])?;
    write_scrub(scrape, &engine.scrubber.view())
}

fn write_scrub(scrape: &mut Scrape<'_, '_>, scrub: &ScrubView) -> fmt::Result {
    let of_last = |read: fn(&ScrubPass) -> f64| scrub.last.as_ref().map_or(0.0, read);
    let of_newest = |read: fn(&ScrubPass) -> f64| scrub.running.as_ref().or(scrub.last.as_ref()).map_or(0.0, read);
    scrape.counters("log_scrub_bytes_total", &[(vec![], scrub.bytes_checked)])?;
    scrape.gauges("log_scrub_progress", &[(vec![], of_newest(ScrubPass::ratio))])?;
    let finished = of_last(|pass| pass.finished_ms.unwrap_or(0) as f64 / 1000.0);
    scrape.gauges("log_scrub_finished_seconds", &[(vec![], finished)])?;
    let took = of_last(|pass| pass.finished_ms.unwrap_or(0).saturating_sub(pass.started_ms) as f64 / 1000.0);
    scrape.gauges("log_scrub_duration_seconds", &[(vec![], took)])?;
    // A running pass knows nothing of what it has not read yet, so the worse of both counts.
    let damaged = of_last(|pass| pass.damaged_records as f64).max(of_newest(|pass| pass.damaged_records as f64));
    scrape.gauges("log_scrub_damaged_records", &[(vec![], damaged)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_beyond_the_labels_are_counted_as_one_and_the_known_ones_go_on() {
        let counts = Counts::default();
        for _ in 0..2 {
            for topic in 0..TOPICS_NAMED_MAX + 10 {
                counts.died(&format!("t{topic}"), DeadReason::Expired);
                counts.breaker_opened(&format!("t{topic}"));
            }
        }
        counts.died("t0", DeadReason::Rejected);
        let (deaths, openings) = (lock(&counts.deaths).clone(), lock(&counts.openings).clone());
        assert_eq!(deaths.len(), TOPICS_NAMED_MAX + 1);
        assert_eq!(deaths["t0"], BTreeMap::from([("expired", 2), ("rejected", 1)]));
        assert_eq!(deaths["other"], BTreeMap::from([("expired", 20)]));
        assert_eq!((openings.len(), openings["t31"], openings["other"]), (TOPICS_NAMED_MAX + 1, 2, 20));
    }
}
