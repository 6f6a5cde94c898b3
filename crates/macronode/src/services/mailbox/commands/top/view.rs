//! What is shown of the mailbox: two samples made into totals and rates.

use ron_kernel::clock;
use serde::Serialize;
use tokio::time::Instant;

use crate::commands::top::{NodeSample, QueueRow};
use crate::services::mailbox::commands::stats::{NodeStats, Numbers, Shard};

/// Numbers of one topic at one moment.
#[derive(Clone, Debug, Default)]
pub struct TopicSample {
    /// Name of the topic.
    pub name: String,
    /// Numbers from the last time the topic was asked for.
    pub numbers: Numbers,
    /// Rates between the last two times.
    pub rates: TopicRates,
}

/// Rates of a topic per second; unknown until it was asked for twice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopicRates {
    /// Messages sent in a second.
    pub inward: Option<f64>,
    /// Deliveries in a second.
    pub outward: Option<f64>,
    /// Acknowledgements in a second.
    pub acked: Option<f64>,
}

impl TopicRates {
    /// Rates between two looks that are `seconds` apart.
    pub fn between(old: &Numbers, new: &Numbers, seconds: f64) -> TopicRates {
        TopicRates {
            inward: rate(Some(old.sent), new.sent, seconds),
            outward: rate(Some(old.delivered), new.delivered, seconds),
            acked: rate(Some(old.acked), new.acked, seconds),
        }
    }
}

/// Events a second; unknown if there is no earlier count, or one of another run.
fn rate(earlier: Option<u64>, count: u64, seconds: f64) -> Option<f64> {
    let more = count.checked_sub(earlier?)?;
    (seconds > 0.0).then(|| more as f64 / seconds)
}

/// Numbers of the mailbox at one moment.
#[derive(Clone, Debug)]
pub struct MailboxSample {
    /// Moment of the look.
    pub taken: Instant,
    /// Numbers of the mailbox as a whole.
    pub stats: NodeStats,
    /// Topics, by name.
    pub topics: Vec<TopicSample>,
}

/// Contents of the pane. Rates are unknown until there are two samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MailboxView {
    /// Durability of an acknowledged send, in one word.
    pub durability: String,
    /// Number of topics.
    pub topics_total: u64,
    /// Numbers of the log, if there is one.
    pub log: Option<LogRow>,
    /// Numbers of each shard.
    pub shards: Vec<ShardRow>,
    /// The topics, those with the most messages ready first.
    pub topics: Vec<TopicRow>,
}

/// Numbers of the log, as shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogRow {
    /// Bytes in use on the disk.
    pub bytes_total: u64,
    /// Maximum bytes on the disk.
    pub quota_bytes: u64,
    /// What is used up, if sends are refused for it.
    pub full: Option<String>,
    /// Number of segment files.
    pub segments: u32,
    /// Group commits in a second.
    pub syncs_per_second: Option<f64>,
    /// Records appended in a second.
    pub records_per_second: Option<f64>,
    /// Error that ended the log as a place to write.
    pub failed: Option<String>,
}

/// Numbers of one shard, as shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShardRow {
    /// Index of the shard, from 0.
    pub shard: usize,
    /// Messages that may be delivered now.
    pub ready: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages leased to consumers.
    pub leased: u64,
    /// Number of receivers that wait.
    pub waiters: u64,
    /// Queue of jobs for the shard.
    pub queue: Option<QueueRow>,
}

/// Numbers of one topic, as shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopicRow {
    /// Name of the topic.
    pub name: String,
    /// Messages that may be delivered now.
    pub ready: u64,
    /// Messages leased to consumers.
    pub leased: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages sent in a second.
    pub in_per_second: Option<f64>,
    /// Deliveries in a second.
    pub out_per_second: Option<f64>,
    /// Acknowledgements in a second.
    pub acked_per_second: Option<f64>,
    /// Messages that died since the node started.
    pub dead: u64,
    /// Age of the oldest message, in milliseconds.
    pub oldest_age_ms: Option<u64>,
    /// Whether the breaker lets messages out: `closed`, `half_open` or `open`.
    pub breaker: String,
}

/// Column by which topics are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Messages ready.
    #[default]
    Ready,
    /// Messages leased.
    Leased,
    /// Messages delayed.
    Delayed,
    /// Messages sent in a second.
    In,
    /// Deliveries in a second.
    Out,
    /// Acknowledgements in a second.
    Acked,
    /// Messages that died.
    Dead,
    /// Age of the oldest message.
    Oldest,
    /// Name of the topic.
    Name,
}

impl Sort {
    /// All of them, in the order of the key that changes them.
    pub const ALL: [Sort; 9] = [
        Sort::Ready,
        Sort::Leased,
        Sort::Delayed,
        Sort::In,
        Sort::Out,
        Sort::Acked,
        Sort::Dead,
        Sort::Oldest,
        Sort::Name,
    ];

    /// Column with this index.
    pub fn at(index: usize) -> Sort {
        Sort::ALL.get(index).copied().unwrap_or_default()
    }

    /// Index of the next column, around the end.
    pub fn after(index: usize) -> usize {
        (index + 1) % Sort::ALL.len()
    }

    /// The largest first; equal ones by name.
    pub fn apply(self, topics: &mut [TopicRow]) {
        let rate = |rate: Option<f64>| rate.unwrap_or(0.0);
        let key = |topic: &TopicRow| match self {
            Sort::Ready => topic.ready as f64,
            Sort::Leased => topic.leased as f64,
            Sort::Delayed => topic.delayed as f64,
            Sort::In => rate(topic.in_per_second),
            Sort::Out => rate(topic.out_per_second),
            Sort::Acked => rate(topic.acked_per_second),
            Sort::Dead => topic.dead as f64,
            Sort::Oldest => topic.oldest_age_ms.map_or(-1.0, |age| age as f64),
            Sort::Name => 0.0,
        };
        topics.sort_by(|left, right| key(right).total_cmp(&key(left)).then_with(|| left.name.cmp(&right.name)));
    }
}

impl MailboxView {
    /// What a sample shows, with rates since the one before and the queues of the shards.
    pub fn of(now: &MailboxSample, before: Option<&MailboxSample>, node: &NodeSample) -> MailboxView {
        let seconds = before.map_or(0.0, |before| (now.taken - before.taken).as_secs_f64());
        let old_log = before.and_then(|before| before.stats.log.as_ref());
        let log = now.stats.log.as_ref().map(|log| LogRow {
            bytes_total: log.bytes_total,
            quota_bytes: log.quota_bytes,
            full: log.full.clone(),
            segments: log.segments,
            syncs_per_second: rate(old_log.map(|old| old.syncs), log.syncs, seconds),
            records_per_second: rate(old_log.map(|old| old.appended), log.appended, seconds),
            failed: log.failed.clone(),
        });
        let unix_ms = clock::unix_millis();
        let topics = now.topics.iter().map(|TopicSample { name, numbers, rates }| TopicRow {
            name: name.clone(),
            ready: numbers.ready,
            leased: numbers.leased,
            delayed: numbers.delayed,
            in_per_second: rates.inward,
            out_per_second: rates.outward,
            acked_per_second: rates.acked,
            dead: numbers.died,
            oldest_age_ms: (numbers.oldest_ts > 0).then(|| unix_ms.saturating_sub(numbers.oldest_ts)),
            breaker: numbers.breaker.clone(),
        });
        let mut topics: Vec<TopicRow> = topics.collect();
        Sort::default().apply(&mut topics);
        MailboxView {
            durability: now.stats.durability.clone(),
            topics_total: now.stats.topics,
            log,
            shards: now.stats.shards.iter().map(|shard| ShardRow::of(shard, node)).collect(),
            topics,
        }
    }
}

impl TopicRow {
    /// State of the breaker that holds deliveries back; none while it is closed.
    pub fn held(&self) -> Option<&'static str> {
        match self.breaker.as_str() {
            "open" => Some("held"),
            "half_open" => Some("probe"),
            _ => None,
        }
    }
}

impl ShardRow {
    fn of(shard: &Shard, node: &NodeSample) -> ShardRow {
        let name = format!("work_tx[{}]", shard.shard);
        ShardRow {
            shard: shard.shard,
            ready: shard.ready,
            delayed: shard.delayed,
            leased: shard.leased,
            waiters: shard.waiters,
            queue: node.queue(&name),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::commands::view::Queue;

    /// A node with the queue of one shard.
    pub fn node() -> NodeSample {
        let queue =
            |name: &str, depth: usize| Queue { name: name.to_owned(), capacity: 100, depth, ..Queue::default() };
        NodeSample {
            status: Default::default(),
            services: Vec::new(),
            queues: vec![queue("work_tx", 7), queue("work_tx[0]", 50)],
        }
    }

    /// A view made of two samples.
    pub fn view() -> MailboxView {
        let (before, now) = samples();
        MailboxView::of(&now, Some(&before), &node())
    }

    /// Two samples of one node, two seconds apart.
    pub fn samples() -> (MailboxSample, MailboxSample) {
        let stats = |syncs: u64, ready: u64| {
            serde_json::from_value(json!({
                "shards": [{"shard": 0, "ready": ready, "delayed": 3, "leased": 2, "waiters": 1},
                           {"shard": 1, "ready": 0, "delayed": 0, "leased": 0, "waiters": 0}],
                "log": {"bytes_total": 67108864, "quota_bytes": 17179869184_u64, "segments": 1, "syncs": syncs,
                        "appended": syncs * 10, "durable_lsn": 9, "failed": null},
                "topics": 3, "durability": "fsynced", "now_ms": 5,
            }))
            .expect("the shape of the numbers")
        };
        let topic = |name: &str, ready: u64, rate: Option<f64>| TopicSample {
            name: name.to_owned(),
            numbers: Numbers {
                ready,
                died: ready / 10,
                oldest_ts: if ready > 0 { clock::unix_millis() - 90_000 } else { 0 },
                ..Numbers::default()
            },
            rates: TopicRates {
                inward: rate,
                outward: rate.map(|rate| rate / 2.0),
                acked: rate.map(|rate| rate / 4.0),
            },
        };
        let taken = clock::now();
        let before =
            MailboxSample { taken, stats: stats(100, 10), topics: vec![topic("a", 10, None), topic("b", 0, None)] };
        let now = MailboxSample {
            taken: taken + Duration::from_secs(2),
            stats: stats(300, 40),
            topics: vec![topic("a", 40, Some(200.0)), topic("b", 0, None), topic("c", 40, None)],
        };
        (before, now)
    }

    #[test]
    fn rates_come_from_two_samples_of_the_same_run() {
        let (before, now) = samples();
        let view = MailboxView::of(&now, Some(&before), &node());
        let log = view.log.expect("a log");
        assert_eq!((log.syncs_per_second, log.records_per_second), (Some(100.0), Some(1000.0)));
        let rates = (view.topics[0].in_per_second, view.topics[0].out_per_second, view.topics[0].acked_per_second);
        assert_eq!(rates, (Some(200.0), Some(100.0), Some(50.0)));
        let alone = MailboxView::of(&now, None, &node()).log.expect("a log");
        assert_eq!(alone.syncs_per_second, None, "one sample knows no rate");
        let restarted = MailboxView::of(&before, Some(&now), &node()).log.expect("a log");
        assert_eq!(restarted.syncs_per_second, None, "the counts went back");
        assert_eq!(view.topics[2].oldest_age_ms, None, "it holds nothing");
        assert!(view.topics[0].oldest_age_ms >= Some(90_000));
    }

    #[test]
    fn a_shard_comes_with_its_queue() {
        let view = view();
        assert_eq!(view.shards[0].queue.as_ref().map(|queue| queue.depth), Some(50));
        assert_eq!(view.shards[1].queue, None);
    }

    #[test]
    fn topics_are_sorted_by_what_was_asked() {
        let mut topics = view().topics;
        let mut order = |sort: Sort| {
            sort.apply(&mut topics);
            topics.iter().map(|topic| topic.name.clone()).collect::<String>()
        };
        assert_eq!(
            (order(Sort::Ready), order(Sort::In), order(Sort::Name)),
            ("acb".into(), "abc".into(), "abc".into())
        );
        assert_eq!(order(Sort::Oldest), "acb");
        let round = Sort::ALL.iter().fold(0, |index, _| Sort::after(index));
        assert_eq!((Sort::at(round), Sort::at(1), Sort::at(99)), (Sort::Ready, Sort::Leased, Sort::Ready));
    }
}
