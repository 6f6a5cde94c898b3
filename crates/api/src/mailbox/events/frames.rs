//! The text of server-sent events. Every frame carries the id behind which the next stream goes on.

use bytes::Bytes;
use serde_json::json;
use svc_mailbox::{EventId, Missed, NumberedEvent};

use super::EventsEnd;

/// Time a reader is told to wait before it comes back, in milliseconds.
const RETRY_MS: u32 = 1000;

/// The first frame: also a reader that sees no event knows where to go on.
pub(super) fn opened(position: EventId) -> Bytes {
    let data = json!({"event": "opened", "run": format!("{:016x}", position.run)});
    Bytes::from(format!("retry: {RETRY_MS}\nid: {position}\nevent: opened\ndata: {data}\n\n"))
}

/// A comment; its id moves the reader past events that it did not ask for.
pub(super) fn beat(position: EventId) -> Bytes {
    Bytes::from(format!(": beat\nid: {position}\n\n"))
}

/// Appends one event as a frame of the stream.
pub(super) fn event(text: &mut String, position: EventId, event: &NumberedEvent) {
    let id = EventId { number: event.number, ..position };
    let data = serde_json::to_string(event).expect("events are texts and numbers");
    text.push_str(&format!("id: {id}\nevent: {}\ndata: {data}\n\n", event.event.kind()));
}

/// Events the reader cannot have any more.
pub(super) fn missed(text: &mut String, position: EventId, missed: Missed) {
    let data = json!({"event": "missed", "count": missed.count});
    text.push_str(&format!("id: {position}\nevent: missed\ndata: {data}\n\n"));
}

/// The last frame of a stream, with the reason of its end.
pub(super) fn end(position: EventId, end: EventsEnd) -> Bytes {
    let data = json!({"event": "end", "reason": end});
    Bytes::from(format!("id: {position}\nevent: end\ndata: {data}\n\n"))
}
