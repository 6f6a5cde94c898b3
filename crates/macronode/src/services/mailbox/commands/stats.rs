//! `macronode mailbox stats`: what the mailbox, or one topic, holds and did.

use serde::Deserialize;

use super::args::StatsArgs;
use super::types::{bytes, counted, relative, segment};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::Failure;

/// The numbers of the mailbox as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStats {
    /// Numbers of each shard that owns partitions.
    pub shards: Vec<Shard>,
    /// The log; none while it is being read.
    pub log: Option<LogNumbers>,
    /// Number of topics.
    pub topics: u64,
    /// Durability of an acknowledged send, in one word.
    pub durability: String,
}

/// Numbers of one shard.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Shard {
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
}

/// Numbers of the log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LogNumbers {
    /// Bytes in use on the disk.
    pub bytes_total: u64,
    /// Maximum bytes on the disk.
    pub quota_bytes: u64,
    /// What is used up, as in "quota", if sends are refused for it.
    pub full: Option<String>,
    /// Number of segment files.
    pub segments: u32,
    /// Commits since the start.
    pub syncs: u64,
    /// Records written since the start.
    pub appended: u64,
    /// Error that ended the log as a place to write.
    pub failed: Option<String>,
}

/// The numbers of a topic or of one of its partitions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// Messages that may be delivered now.
    pub ready: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages leased to consumers.
    pub leased: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Number of groups that have messages.
    pub groups: u64,
    /// Number of idempotency keys remembered.
    pub keys: u64,
    /// Time of the oldest message's send, in milliseconds since 1970; 0 for none.
    pub oldest_ts: u64,
    /// Messages taken in since the start.
    pub sent: u64,
    /// Deliveries since the start.
    pub delivered: u64,
    /// Messages acknowledged since the start.
    pub acked: u64,
    /// Deliveries that failed since the start.
    pub failed: u64,
    /// Messages that died since the start.
    pub died: u64,
    /// Messages dropped by retention since the start.
    pub expired: u64,
    /// Whether the breaker lets messages out: `closed`, `half_open` or `open`.
    pub breaker: String,
    /// Time until which the breaker holds messages back, in milliseconds since 1970.
    pub breaker_until_ts: Option<u64>,
}

/// The answer for one topic.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopicStats {
    /// Name of the topic.
    pub topic: String,
    /// Sums over all partitions.
    pub total: Numbers,
    /// Numbers of each partition.
    pub partitions: Vec<Partition>,
}

/// Numbers of one partition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Partition {
    /// Index of the partition, from 0.
    pub partition: u16,
    /// Index of the shard that owns it.
    pub shard: u16,
    /// Counts of messages and deliveries.
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// Path of the numbers of a topic on the public plane.
pub fn path_of(topic: &str) -> String {
    format!("/v1/topics/{}/stats", segment(topic))
}

/// Asks for the numbers and shows them.
pub async fn stats(args: &StatsArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let path = args.topic.as_deref().map_or_else(|| "/v1/stats".to_owned(), path_of);
    let answer = client.get(&path).await?;
    Ok(Report::clean(match (args.node.json, &args.topic) {
        (true, _) => answer.text() + "\n",
        (false, Some(_)) => show_topic(&answer.read(&path)?),
        (false, None) => show_node(&answer.read(&path)?),
    }))
}

fn show_node(stats: &NodeStats) -> String {
    let mut rows = vec![row(["shard", "ready", "delayed", "leased", "waiters"])];
    rows.extend(stats.shards.iter().map(|shard| {
        let numbers = [shard.shard as u64, shard.ready, shard.delayed, shard.leased, shard.waiters];
        numbers.iter().map(u64::to_string).collect()
    }));
    let head = format!("{}, {}", counted(stats.topics, "topic"), stats.durability);
    format!(
        "{head}\n{}\n\n{}",
        stats.log.as_ref().map_or_else(|| "the log is being read".to_owned(), log),
        table(0, &rows)
    )
}

/// Words for a log without room.
pub fn full(full: Option<&str>) -> String {
    full.map_or_else(String::new, |what| format!(" (FULL: {what})"))
}

fn log(log: &LogNumbers) -> String {
    match &log.failed {
        Some(failed) => format!("LOG FAILED: {failed}"),
        None => format!(
            "log: {} of {}{} in {}, {} and {} since the start",
            bytes(log.bytes_total),
            bytes(log.quota_bytes),
            full(log.full.as_deref()),
            counted(u64::from(log.segments), "segment"),
            counted(log.appended, "record"),
            counted(log.syncs, "sync")
        ),
    }
}

fn show_topic(stats: &TopicStats) -> String {
    let Numbers { ready, delayed, leased, groups, keys, sent, delivered, acked, failed, died, expired, .. } =
        stats.total;
    let oldest = if stats.total.oldest_ts == 0 { "none".to_owned() } else { relative(stats.total.oldest_ts) };
    let numbers = [("ready", ready), ("delayed", delayed), ("leased", leased), ("groups", groups), ("keys", keys)];
    let since = [
        ("sent", sent),
        ("delivered", delivered),
        ("acknowledged", acked),
        ("failed deliveries", failed),
        ("died", died),
        ("expired", expired),
    ];
    let rows = |pairs: &[(&str, u64)]| -> Vec<Vec<String>> {
        pairs.iter().map(|(name, number)| row([name, &number.to_string()])).collect()
    };
    let mut now = rows(&numbers);
    now.push(row(["bytes", &bytes(stats.total.bytes)]));
    now.push(row(["oldest", &oldest]));
    now.extend(breaker(&stats.total).map(|breaker| row(["breaker", &breaker])));
    let mut text = format!("{}\n{}since the start\n{}", stats.topic, table(2, &now), table(2, &rows(&since)));
    if stats.partitions.len() > 1 {
        let mut parts = vec![row(["partition", "shard", "ready", "delayed", "leased", "sent", "acked"])];
        parts.extend(stats.partitions.iter().map(|part| {
            let of = &part.numbers;
            let numbers =
                [part.partition.into(), part.shard.into(), of.ready, of.delayed, of.leased, of.sent, of.acked];
            numbers.iter().map(u64::to_string).collect()
        }));
        text += &table(0, &parts);
    }
    text
}

/// State of the breaker in words; none while it is closed.
fn breaker(numbers: &Numbers) -> Option<String> {
    match (numbers.breaker.as_str(), numbers.breaker_until_ts) {
        ("open", Some(until)) => Some(format!("OPEN, tries again {}", relative(until))),
        ("open", None) => Some("OPEN".to_owned()),
        ("half_open", _) => Some("HALF OPEN, one message at a time".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topic_with_partitions_shows_each() {
        let part = |partition: u16, ready: u64| json!({"partition": partition, "shard": 1, "ready": ready, "sent": 9});
        let stats: TopicStats = serde_json::from_value(json!({
            "topic": "orders", "total": {"ready": 3, "bytes": 2048, "oldest_ts": 0, "sent": 18, "died": 1},
            "partitions": [part(0, 1), part(1, 2)],
        }))
        .expect("the shape of the numbers");
        let expected = "\
orders
  ready    3
  delayed  0
  leased   0
  groups   0
  keys     0
  bytes    2.0 KiB
  oldest   none
since the start
  sent               18
  delivered          0
  acknowledged       0
  failed deliveries  0
  died               1
  expired            0
partition  shard  ready  delayed  leased  sent  acked
0          1      1      0        0       9     0
1          1      2      0        0       9     0
";
        assert_eq!(show_topic(&stats), expected);
    }

    #[test]
    fn a_breaker_shows_unless_it_is_closed() {
        for (state, shown) in
            [("closed", None), ("half_open", Some("HALF OPEN")), ("open", Some("OPEN, tries again in"))]
        {
            let until = ron_kernel::clock::unix_millis() + 60_000;
            let numbers = Numbers { breaker: state.to_owned(), breaker_until_ts: Some(until), ..Numbers::default() };
            let text = show_topic(&TopicStats { total: numbers, ..TopicStats::default() });
            let line = text.lines().find_map(|line| line.trim().strip_prefix("breaker")).map(str::trim);
            assert_eq!(line.is_some(), shown.is_some(), "{text}");
            assert!(line.unwrap_or_default().starts_with(shown.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn the_node_shows_log_and_shards() {
        let stats: NodeStats = serde_json::from_value(json!({
            "shards": [{"shard": 0, "ready": 4, "delayed": 1, "leased": 2, "waiters": 3}],
            "log": {"bytes_total": 1024, "quota_bytes": 4096, "segments": 1, "appended": 12, "syncs": 1},
            "topics": 1, "durability": "fsynced",
        }))
        .expect("the shape of the numbers");
        let expected = "\
1 topic, fsynced
log: 1.0 KiB of 4.0 KiB in 1 segment, 12 records and 1 sync since the start

shard  ready  delayed  leased  waiters
0      4      1        2       3
";
        assert_eq!(show_node(&stats), expected);
    }
}
