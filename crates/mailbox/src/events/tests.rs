//! Ids, and what is remembered.

use super::ring::EVENTS_MAX;
use super::*;

fn made(name: &str) -> Event {
    Event::TopicMade { topic: name.parse().expect("a name") }
}

#[test]
fn ids_are_read_as_they_are_written() {
    for id in [EventId { run: 0xabc, number: 17 }, EventId { run: u64::MAX, number: u64::MAX }] {
        assert_eq!(id.to_string().parse::<EventId>().map_err(|error| error.kind), Ok(id));
    }
    for wrong in
        ["", "-", "abc-1", "0000000000000abc", "0000000000000abc-", "0000000000000abc-x", "+000000000000abc-+1"]
    {
        assert!(wrong.parse::<EventId>().is_err(), "{wrong:?}");
    }
}

#[test]
fn the_last_events_are_remembered_with_their_numbers() {
    let mut ring = Ring::default();
    assert_eq!((ring.oldest(), ring.last(), ring.after(0, 9).count()), (1, 0, 0));
    for _ in 0..EVENTS_MAX + 10 {
        ring.push(5, made("t"));
    }
    assert_eq!((ring.oldest(), ring.last()), (11, EVENTS_MAX as u64 + 10));
    let numbers = |after, limit| ring.after(after, limit).map(|event| event.number).collect::<Vec<_>>();
    assert_eq!(numbers(0, 2), [11, 12], "what is forgotten is skipped");
    assert_eq!(numbers(11, 2), [12, 13]);
    assert_eq!(numbers(ring.last() - 1, 9), [ring.last()]);
    assert!(numbers(ring.last(), 9).is_empty());
}

#[test]
fn the_memory_is_bounded_in_bytes_too() {
    let mut ring = Ring::default();
    for _ in 0..100 {
        ring.push(5, Event::LogFailed { detail: "x".repeat(1 << 20) });
    }
    assert!(ring.after(0, 100).count() <= 2);
    assert_eq!(ring.last(), 100);
}

#[test]
fn events_are_written_flat_and_without_what_a_watcher_may_not_know() {
    let event = Event::Moved { from: "a".parse().ok(), to: None, count: 1 };
    let text = serde_json::to_value(NumberedEvent { number: 7, at_ms: 9, event: event.clone() }).expect("written");
    assert_eq!(text, serde_json::json!({"at_ms": 9, "event": "moved", "from": "a", "count": 1}));
    assert_eq!(text["event"], event.kind());
    assert_eq!(event.topics().map(TopicName::as_str).collect::<Vec<_>>(), ["a"]);
}
