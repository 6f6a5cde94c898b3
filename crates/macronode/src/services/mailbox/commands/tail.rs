//! `macronode mailbox tail`: the messages of a topic as they come, one line each, until Ctrl-C.

use std::collections::BTreeMap;
use std::time::Duration;

use ron_kernel::clock;
use ron_types::limits::mailbox::LONG_POLL_MAX;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::TailArgs;
use super::types::{decoded, one_line, payload_line, segment, time_of_day};
use super::{browse, recv, settle};
use crate::client::ApiClient;
use crate::commands::{Report, print};
use crate::config::TimeSpan;
use crate::errors::{Code, Failure};

/// Messages of one receive, or of one page.
const PAGE: u16 = 100;
/// Time between two looks at a topic with nothing new.
const LOOK: Duration = Duration::from_millis(500);
/// Messages are looked for this far back from the newest that was seen: shards do not answer in the order of time.
const OVERLAP_MS: u64 = 10_000;
/// Characters of a payload in its line.
const PAYLOAD_WIDTH: usize = 1_000;

/// Nobody reads any more, or something went wrong.
enum End {
    Unread,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Failed(failure)
    }
}

/// Shows messages of a topic as they come.
pub async fn tail(args: &TailArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let interrupt = interrupt()?;
    let ended = match args.ack {
        true => receive(args, &mut client, interrupt).await,
        false => look(args, &mut client, interrupt).await,
    };
    match ended {
        Ok(()) | Err(End::Unread) => Ok(Report::clean("")),
        Err(End::Failed(failure)) => Err(failure),
    }
}

/// Hears Ctrl-C from now on, also while nobody listens.
fn interrupt() -> Result<Signal, Failure> {
    let failure = |error| Failure::new(Code::CannotStart, format!("Ctrl-C cannot be heard: {error}"));
    signal(SignalKind::interrupt()).map_err(failure)
}

/// Receives, prints and acknowledges. What was printed is acknowledged before the command ends.
async fn receive(args: &TailArgs, client: &mut ApiClient, mut interrupt: Signal) -> Result<(), End> {
    let wait = TimeSpan::from_duration(LONG_POLL_MAX);
    loop {
        let asked = tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            asked = recv::ask(client, &args.topic, PAGE, wait, None) => asked,
        };
        let (text, messages) = asked?;
        if messages.is_empty() {
            continue;
        }
        let lines: String = match args.node.json {
            true => json_lines(&serde_json::from_str(&text).unwrap_or_default()),
            false => messages.iter().map(|m| line(m.ts, &m.msg_id, m.group.as_deref(), &m.payload_b64)).collect(),
        };
        print(&lines).map_err(|_| End::Unread)?;
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        settle::ack_receipts(client, &receipts).await?;
    }
}

/// Looks again and again for messages that were not there before.
async fn look(args: &TailArgs, client: &mut ApiClient, mut interrupt: Signal) -> Result<(), End> {
    let path = format!("/v1/topics/{}", segment(&args.topic));
    let topic: Value = client.get(&path).await?.read(&path)?;
    let mut place = TailCursor::new(clock::unix_millis(), topic["settings"]["partitions"] == 1);
    loop {
        let request = place.request();
        let asked = tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            asked = browse::ask(client, &args.topic, &request) => asked,
        };
        let (answer, page) = asked?;
        let mut raw: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let mut lines = String::new();
        for (index, seen) in page.messages.iter().enumerate() {
            if !place.is_new(&seen.msg_id, seen.ts) {
                continue;
            }
            lines += &match args.node.json {
                true => format!("{}\n", raw["messages"][index].take()),
                false => line(seen.ts, &seen.msg_id, seen.group.as_deref(), &seen.payload_b64),
            };
        }
        print(&lines).map_err(|_| End::Unread)?;
        if place.advance(page.next) {
            continue;
        }
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Position of a reader in a topic.
struct TailCursor {
    /// Messages sent before this are not wanted.
    since_ms: u64,
    /// Cursor at which the next look begins.
    cursor: Option<String>,
    /// Whether the topic has one partition, in which nothing new comes before a position once passed.
    is_one_line: bool,
    /// Ids of messages already shown, with their time in milliseconds since 1970.
    shown: BTreeMap<String, u64>,
}

impl TailCursor {
    fn new(since_ms: u64, is_one_line: bool) -> Self {
        TailCursor { since_ms, cursor: None, is_one_line, shown: BTreeMap::new() }
    }

    fn request(&self) -> Value {
        let mut body = json!({"filter": {"sent_after_ms": self.since_ms}, "limit": PAGE});
        if let Some(cursor) = &self.cursor {
            body["cursor"] = cursor.as_str().into();
        }
        body
    }

    fn is_new(&mut self, id: &str, sent_ms: u64) -> bool {
        self.shown.insert(id.to_owned(), sent_ms).is_none()
    }

    /// Takes up the place a page ended at; true if there is more to look at now.
    fn advance(&mut self, next: Option<String>) -> bool {
        let has_more = next.is_some();
        if has_more || !self.is_one_line {
            self.cursor = next;
        }
        if !has_more {
            let newest = self.shown.values().max().copied().unwrap_or(0);
            self.since_ms = self.since_ms.max(newest.saturating_sub(OVERLAP_MS));
            self.shown.retain(|_, sent_ms| *sent_ms >= self.since_ms);
        }
        has_more
    }
}

fn line(sent_ms: u64, id: &str, group: Option<&str>, payload_b64: &str) -> String {
    let group = group.map(|group| format!(" [{}]", one_line(group))).unwrap_or_default();
    format!("{} {id}{group} {}\n", time_of_day(sent_ms), payload_line(&decoded(payload_b64), PAYLOAD_WIDTH))
}

fn json_lines(answer: &Value) -> String {
    answer["messages"].as_array().into_iter().flatten().map(|message| format!("{message}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(line(3_723_000, "01", Some("g"), "YQpi"), "01:02:03 01 [g] a\\nb\n");
        assert_eq!(line(0, "02", None, "aGk="), "00:00:00 02 hi\n");
        assert_eq!(json_lines(&json!({"messages": [{"a": 1}, {"b": 2}]})), "{\"a\":1}\n{\"b\":2}\n");
    }

    #[test]
    fn each_message_is_shown_once_however_often_it_is_seen() {
        let mut place = TailCursor::new(100_000, true);
        assert!(place.is_new("01", 100_000) && !place.is_new("01", 100_000));
        assert!(place.advance(Some("c".to_owned())), "a page that was cut has a next one");
        assert!(!place.advance(None));
        assert_eq!(place.request()["cursor"], "c", "the next look goes on there");
        assert!(place.is_new("02", 150_000));
        place.advance(None);
        assert_eq!(place.request()["filter"]["sent_after_ms"], 140_000);
        assert_eq!(place.shown.len(), 1, "what cannot come again is forgotten");
        assert!(!place.is_new("02", 150_000));
    }

    #[test]
    fn several_partitions_are_looked_through_from_the_start() {
        let mut place = TailCursor::new(0, false);
        place.advance(Some("c".to_owned()));
        assert_eq!(place.request()["cursor"], "c");
        place.advance(None);
        assert_eq!(place.request()["cursor"], Value::Null);
    }
}
