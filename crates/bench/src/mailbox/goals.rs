//! What the mailbox should reach, held against what was measured.

use super::cell::{MAIN_SEND, SINGLE_SEND};
use super::results::Results;
use super::target::Id;
use crate::report::{Row, Target};

/// Maximum time beyond one sync that a single client may wait, in milliseconds.
const BEYOND_SYNC_MS: f64 = 0.5;

/// Goals for a durable send at 64 in flight: peer, its name, and the ratio to its rate.
const AGAINST_PEERS: [(Id, &str, f64); 8] = [
    (Id::NatsAlways, "JetStream synced", 20.0),
    (Id::NatsDefault, "JetStream default", 1.0),
    (Id::NatsShared, "JetStream default, shared connections", 1.0),
    (Id::RabbitQuorum, "RabbitMQ quorum", 2.0),
    (Id::RedisAlways, "Redis synced", 2.0),
    (Id::RedisShared, "Redis synced, shared connections", 2.0),
    (Id::BeanstalkAlways, "beanstalkd synced", 2.0),
    (Id::PostgresOn, "PostgreSQL", 2.0),
];

/// The two ways to send over HTTP. Clients of JetStream, Redis and RabbitMQ carry many requests on a connection; ours
/// carries many messages in a request, which is what HTTP/1.1 has for that.
const WAYS: [(Id, &str, &str); 2] = [
    (
        Id::Native,
        "Rust client",
        "Messages of 256 B a second by 64 tasks, each waiting for its own answer, which comes when the message is as safe \
         as the setting says. The client puts what waits at the same time into one request over HTTP/JSON.",
    ),
    (
        Id::Durable,
        "one request a message",
        "The same by 64 connections, each message a request of its own over HTTP/JSON.",
    ),
];

/// A row for every target about speed; one whose system did not run is missed, not left out.
pub fn rows(results: &Results, with_peers: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    if with_peers {
        for (ours, way, meaning) in WAYS {
            rows.extend(AGAINST_PEERS.map(|(peer, words, least)| {
                let name = format!("durable send, {way}, against {words}, 64 in flight");
                ratio_row(results, &name, ours, peer, least, meaning)
            }));
        }
    }
    rows.push(ratio_row(
        results,
        "durable against amnesia, 64 in flight",
        Id::Durable,
        Id::Amnesia,
        0.7,
        "What the disk costs: the same node over HTTP, syncing before it answers, against keeping nothing.",
    ));
    rows.push(ratio_row(
        results,
        "engine against a bare group commit, 64 in flight",
        Id::Engine,
        Id::GroupCommit,
        0.6,
        "The embedded engine without HTTP, against as many tasks that append the same bytes and wait for one thread that \
         writes and syncs what has gathered: what the queue costs beside its commits.",
    ));
    rows.push(ratio_row(
        results,
        "engine against a bare loop, 64 in flight",
        Id::Engine,
        Id::RawLog,
        0.6,
        "The same against a loop that nobody waits for, with all 64 in each sync. Nobody who waits gets there while a \
         sync is as short as waking 64 tasks: see the bare group commit.",
    ));
    rows.push(single_row(results));
    rows.push(ratio_row(
        results,
        "amnesia against bare axum, 64 in flight",
        Id::Amnesia,
        Id::BareHttp,
        0.7,
        "What the node adds to HTTP and JSON: against a handler that only parses the same body and answers.",
    ));
    rows
}

fn ratio_row(results: &Results, name: &str, ours: Id, peer: Id, least: f64, meaning: &str) -> Row {
    let rate = |id| results.rate(id, MAIN_SEND).map(|rate| format!("{:.0}/s", rate.median));
    let other = results.label(peer).map_or_else(|| "not measured".to_owned(), super::target::Label::full);
    Row {
        name: name.to_owned(),
        ours: rate(ours).unwrap_or_else(|| "not measured".to_owned()),
        value: None,
        peer: rate(peer).map_or_else(|| "not measured".to_owned(), |rate| format!("{rate} ({other})")),
        ratio: results.ratio(ours, peer, MAIN_SEND),
        target: Target::RatioAtLeast(least),
        meaning: meaning.to_owned(),
    }
}

/// One client against one sync of the same bytes.
fn single_row(results: &Results) -> Row {
    let p50_ms = |id| Some(results.micros(id, SINGLE_SEND)?.value_at_quantile(0.5) as f64 / 1e3);
    let (ours, sync) = (p50_ms(Id::Durable), p50_ms(Id::RawLog));
    let shown = |ms: Option<f64>| ms.map_or_else(|| "not measured".to_owned(), |ms| format!("p50 {ms:.2} ms"));
    Row {
        name: "durable send over HTTP, one client".to_owned(),
        ours: shown(ours),
        value: ours.filter(|_| sync.is_some()),
        peer: format!("{} (one write and fdatasync)", shown(sync)),
        ratio: None,
        target: Target::Below(sync.unwrap_or_default() + BEYOND_SYNC_MS, "ms"),
        meaning: format!(
            "One sync of one record into a file already written, and at most {BEYOND_SYNC_MS} ms for the rest."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{label, sample};
    use super::*;

    #[test]
    fn what_did_not_run_is_missed() {
        let rows = rows(&Results::default(), true);
        assert_eq!(rows.len(), WAYS.len() * AGAINST_PEERS.len() + 5);
        assert!(rows.iter().all(|row| row.is_met() == Some(false)), "{rows:?}");
        assert!(rows.iter().all(|row| row.ours == "not measured"), "{rows:?}");
        assert_eq!(super::rows(&Results::default(), false).len(), 5, "peers nobody asked for are not missed");
    }

    #[test]
    fn ratios_and_times_are_held_against_their_targets() {
        let mut results = Results::default();
        for (id, operations) in
            [(Id::Native, 2_000), (Id::Durable, 500), (Id::NatsAlways, 100), (Id::NatsDefault, 2_001)]
        {
            results.announce(&label(id, "queue"));
            results.record(id, MAIN_SEND, 0, sample(operations));
        }
        for id in [Id::Durable, Id::RawLog] {
            results.record(id, SINGLE_SEND, 0, sample(10));
        }
        let rows = rows(&results, true);
        assert_eq!(rows[0].is_met(), Some(true), "{:?}", rows[0]);
        assert_eq!(rows[1].is_met(), Some(false), "{:?}", rows[1]);
        assert_eq!(rows[0].peer, "100/s (queue, as it is)");
        let single = rows.iter().find(|row| row.name.contains("one client")).expect("a row");
        assert_eq!(single.is_met(), Some(true), "{single:?}");
    }
}
