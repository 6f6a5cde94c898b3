//! One look at the mailbox as plain text, for pipes and files.

use super::view::{LogRow, MailboxView, TopicRow};
use crate::commands::table::{row, table};
use crate::commands::top::{QueueRow, age, count, rate};
use crate::services::mailbox::commands::stats::full;
use crate::services::mailbox::commands::types::{bytes, counted};

/// Maximum topics that are listed.
const TOPICS_MAX: usize = 50;

/// The first line: what the log takes and does.
pub fn log_line(log: Option<&LogRow>) -> String {
    let Some(log) = log else { return "log is being read".to_owned() };
    if let Some(failed) = &log.failed {
        return format!("LOG FAILED: {failed}");
    }
    format!(
        "log {} of {}{}, {}, {} syncs/s, {} records/s",
        bytes(log.bytes_total),
        bytes(log.quota_bytes),
        full(log.full.as_deref()),
        counted(log.segments.into(), "segment"),
        rate(log.syncs_per_second),
        rate(log.records_per_second)
    )
}

/// Deliveries of a topic in a second, or the reason that holds them back.
pub fn outward(topic: &TopicRow) -> String {
    topic.held().map_or_else(|| rate(topic.out_per_second), str::to_owned)
}

/// The log, the shards and the topics.
pub fn show(view: &MailboxView) -> String {
    let mut shards = vec![row(["shard", "ready", "delayed", "leased", "waiters", "queue"])];
    shards.extend(view.shards.iter().map(|shard| {
        let numbers = [shard.ready, shard.delayed, shard.leased, shard.waiters].map(count);
        let [ready, delayed, leased, waiters] = numbers.each_ref().map(String::as_str);
        let queue = shard.queue.as_ref().map_or_else(|| "-".to_owned(), QueueRow::fraction);
        row([&shard.shard.to_string(), ready, delayed, leased, waiters, &queue])
    }));
    let mut topics = vec![row(["topic", "ready", "leased", "delayed", "in/s", "out/s", "ack/s", "dead", "oldest"])];
    topics.extend(view.topics.iter().take(TOPICS_MAX).map(|topic| {
        let [ready, leased, delayed, dead] = [topic.ready, topic.leased, topic.delayed, topic.dead].map(count);
        let [inward, acked] = [topic.in_per_second, topic.acked_per_second].map(rate);
        let outward = outward(topic);
        let oldest = age(topic.oldest_age_ms);
        row([&topic.name, &ready, &leased, &delayed, &inward, &outward, &acked, &dead, &oldest])
    }));
    format!("{}\n\n{}\n{}", log_line(view.log.as_ref()), table(0, &shards), table(0, &topics))
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;

    #[test]
    fn a_look_shows_everything_once() {
        let expected = "\
log 64.0 MiB of 16.0 GiB, 1 segment, 100 syncs/s, 1000 records/s

shard  ready  delayed  leased  waiters  queue
0      40     3        2       1        50/100
1      0      0        0       0        -

topic  ready  leased  delayed  in/s  out/s  ack/s  dead  oldest
a      40     0       0        200   100    50     4     90s
c      40     0       0        -     -      -      4     90s
b      0      0       0        -     -      -      0     -
";
        assert_eq!(show(&view()), expected);
    }

    #[test]
    fn a_breaker_takes_the_place_of_what_it_holds_back() {
        for (breaker, shown) in [("", "70"), ("closed", "70"), ("half_open", "probe"), ("open", "held")] {
            let topic = TopicRow { breaker: breaker.to_owned(), out_per_second: Some(70.0), ..TopicRow::default() };
            assert_eq!(outward(&topic), shown, "{breaker}");
        }
    }

    #[test]
    fn a_failed_log_is_shouted() {
        let failed = LogRow { failed: Some("no space".to_owned()), ..LogRow::default() };
        assert_eq!(log_line(Some(&failed)), "LOG FAILED: no space");
        assert_eq!(log_line(None), "log is being read");
    }
}
