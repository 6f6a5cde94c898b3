//! `macronode mailbox events`: what happens to messages and topics, one line each.

use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::EventsArgs;
use super::types::{counted, one_line, segment, time_of_day};
use crate::client::ApiClient;
use crate::client::sse::{Frame, FrameReader};
use crate::commands::{Report, print};
use crate::errors::{Code, Failure};

/// Time before a lost stream is opened again.
const COME_BACK: Duration = Duration::from_secs(1);

/// Reason why a stream of events ended.
enum Ended {
    /// The node has told everything that was asked for.
    Complete,
    /// Nobody reads any more, or Ctrl-C was pressed.
    Unread,
    /// The node left, or the connection broke: there is more to come.
    Lost(String),
}

/// Shows what the node remembers, and with `--follow` what happens until Ctrl-C.
pub async fn events(args: &EventsArgs) -> Result<Report, Failure> {
    let failure = |error| Failure::new(Code::CannotStart, format!("Ctrl-C cannot be heard: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
    let mut watcher = Watcher { args, path: path_of(args), last_id: None };
    loop {
        match watcher.watch(&mut interrupt).await {
            Ok(Ended::Complete | Ended::Unread) => return Ok(Report::clean("")),
            Ok(Ended::Lost(cause)) if args.follow => watcher.note(&cause),
            Ok(Ended::Lost(cause)) => return Err(Failure::new(Code::NoNode, cause)),
            // A node that was there before comes back; a token it refuses does not get better.
            Err(failure) if watcher.last_id.is_some() && failure.code != Code::TokenUnusable => {}
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            _ = interrupt.recv() => return Ok(Report::clean("")),
            () = tokio::time::sleep(COME_BACK) => {}
        }
    }
}

fn path_of(args: &EventsArgs) -> String {
    let topics: String = args.topics.iter().map(|topic| format!("&topic={}", segment(topic))).collect();
    format!("/v1/events?replay=true&follow={}{topics}", args.follow)
}

/// A reader of streams, one after the other.
struct Watcher<'a> {
    args: &'a EventsArgs,
    path: String,
    /// The id behind which the next stream goes on; none before the first one was opened.
    last_id: Option<String>,
}

impl Watcher<'_> {
    /// Reads one stream to its end. The node is looked for anew each time: it may have come back at another address.
    async fn watch(&mut self, interrupt: &mut Signal) -> Result<Ended, Failure> {
        let client = ApiClient::find(&self.args.node)?;
        let mut answer = client.open_stream(&self.path, self.last_id.as_deref()).await?;
        let mut reader = FrameReader::default();
        loop {
            let bytes = tokio::select! {
                _ = interrupt.recv() => return Ok(Ended::Unread),
                bytes = answer.next() => bytes,
            };
            let bytes = match bytes {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => return Ok(Ended::Lost(format!("the stream broke: {error}"))),
                None => return Ok(Ended::Lost("the stream ended".to_owned())),
            };
            let foreign = || Failure::new(Code::NodeRefused, "the answer is not a stream of events");
            for frame in reader.read(&bytes).ok_or_else(foreign)? {
                if let Some(ended) = self.take(&frame)? {
                    return Ok(ended);
                }
            }
        }
    }

    fn take(&mut self, frame: &Frame) -> Result<Option<Ended>, Failure> {
        if !frame.id.is_empty() {
            self.last_id = Some(frame.id.clone());
        }
        let data: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        match frame.event.as_str() {
            "" | "opened" => return Ok(None),
            "end" => {
                return match data["reason"].as_str().unwrap_or_default() {
                    "complete" => Ok(Some(Ended::Complete)),
                    "revoked" => Err(Failure::new(Code::TokenUnusable, "the token ran out or was revoked")),
                    reason => Ok(Some(Ended::Lost(format!("the node ended the stream ({})", one_line(reason))))),
                };
            }
            _ => {}
        }
        let text = if self.args.node.json { json_line(frame, data) } else { line(&data) };
        Ok(print(&text).is_err().then_some(Ended::Unread))
    }

    /// Says on standard error that the stream was lost; standard output has only events.
    fn note(&self, cause: &str) {
        eprintln!("{cause}; looking for the node again");
    }
}

fn json_line(frame: &Frame, mut data: Value) -> String {
    if let Some(fields) = data.as_object_mut() {
        fields.insert("id".to_owned(), frame.id.clone().into());
    }
    format!("{data}\n")
}

/// One event as a line for people.
fn line(data: &Value) -> String {
    let text = |name: &str| one_line(data[name].as_str().unwrap_or("?"));
    let number = |name: &str| data[name].as_u64().unwrap_or(0);
    let event = data["event"].as_str().unwrap_or_default();
    let told = match event {
        "died" => format!("{} message {} ({})", text("topic"), text("msg_id"), text("reason")),
        "lost" => format!("{} message {} was damaged on the disk", text("topic"), text("msg_id")),
        "moved" => format!("{} from {} to {}", counted(number("count"), "message"), text("from"), text("to")),
        "breaker_opened" => format!(
            "{} partition {}: {} of {} deliveries failed, paused until {}",
            text("topic"),
            number("partition"),
            number("failing"),
            number("deliveries"),
            time_of_day(number("until_ms"))
        ),
        "breaker_closed" => format!("{} partition {}", text("topic"), number("partition")),
        "topic_made" | "topic_gone" => text("topic"),
        "rebalanced" => counted(number("shards"), "shard"),
        "missed" => return missed_line(data["count"].as_u64()),
        _ => one_line(&data.to_string()),
    };
    format!("{} {:14} {told}\n", time_of_day(number("at_ms")), one_line(event))
}

fn missed_line(count: Option<u64>) -> String {
    match count {
        Some(count) => format!("-------- {} missed: the node remembers only the last ones\n", counted(count, "event")),
        None => "-------- the node was started anew: what happened before that was missed\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_event_is_one_line() {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for (data, expected) in [
            (
                json!({"event": "died", "at_ms": 3_723_000, "topic": "t", "msg_id": id, "reason": "max_attempts"}),
                format!("01:02:03 died           t message {id} (max_attempts)\n"),
            ),
            (
                json!({"event": "moved", "at_ms": 0, "from": "t.dlq", "to": "t", "count": 1}),
                "00:00:00 moved          1 message from t.dlq to t\n".to_owned(),
            ),
            (
                json!({"event": "moved", "at_ms": 0, "to": "t", "count": 100}),
                "00:00:00 moved          100 messages from ? to t\n".to_owned(),
            ),
            (json!({"event": "topic_made", "at_ms": 0, "topic": "a\nb"}), "00:00:00 topic_made     a\\nb\n".to_owned()),
            (
                json!({"event": "missed", "count": 2}),
                "-------- 2 events missed: the node remembers only the last ones\n".to_owned(),
            ),
            (
                json!({"event": "missed", "count": null}),
                "-------- the node was started anew: what happened before that was missed\n".to_owned(),
            ),
        ] {
            assert_eq!(line(&data), expected);
        }
    }

    #[test]
    fn topics_are_asked_for_one_by_one() {
        let topics = vec!["a".to_owned(), "b.*".to_owned()];
        let args = EventsArgs { topics, follow: true, node: Default::default() };
        assert_eq!(path_of(&args), "/v1/events?replay=true&follow=true&topic=a&topic=b.%2A");
    }

    #[test]
    fn a_stream_goes_on_behind_what_was_seen_and_its_end_is_understood() {
        let args = EventsArgs { topics: Vec::new(), follow: true, node: Default::default() };
        let mut watcher = Watcher { args: &args, path: String::new(), last_id: None };
        let frame = |id: &str, event: &str, data: &str| Frame {
            id: id.to_owned(),
            event: event.to_owned(),
            data: data.to_owned(),
        };
        assert!(matches!(watcher.take(&frame("r-0", "opened", "{}")), Ok(None)));
        assert!(matches!(watcher.take(&frame("r-5", "", "")), Ok(None)));
        assert_eq!(watcher.last_id.as_deref(), Some("r-5"));
        let mut end = |reason: &str| watcher.take(&frame("r-5", "end", &json!({"reason": reason}).to_string()));
        assert!(matches!(end("complete"), Ok(Some(Ended::Complete))));
        assert!(matches!(end("draining"), Ok(Some(Ended::Lost(_)))));
        assert_eq!(end("revoked").map(drop).map_err(|failure| failure.code), Err(Code::TokenUnusable));
    }
}
