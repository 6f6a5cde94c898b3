//! Streams of events over HTTP: who may listen, what they hear, and how streams begin and end.

use std::time::Duration;

use ron_api::HttpLimits;
use ron_kernel::Deadline;
use serde_json::{Value, json};
use svc_mailbox::types::{TopicName, TopicSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Node, within};

const SUBSCRIBERS: usize = 1000;

/// One frame: its id, its name, its data.
type Frame = (String, String, Value);

/// A reader of one stream.
struct Reader {
    stream: TcpStream,
    text: String,
    taken: usize,
}

impl Reader {
    async fn open(node: &Node, token: &str, query: &str, last_id: Option<&str>) -> Reader {
        let stream = TcpStream::connect(node.address).await.expect("the node listens");
        Reader::over(stream, token, query, last_id).await
    }

    async fn over(mut stream: TcpStream, token: &str, query: &str, last_id: Option<&str>) -> Reader {
        let last_id = last_id.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0 has no chunks, so what comes is the stream itself.
        let head = format!(
            "GET /v1/events{query} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{last_id}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the node reads");
        let mut reader = Reader { stream, text: String::new(), taken: 0 };
        let head = reader.until("\r\n\r\n").await.expect("a head");
        assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{head}");
        reader
    }

    /// What comes before this text; none if the stream ends first.
    async fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.text[self.taken..].find(end) {
                let found = self.text[self.taken..self.taken + at].to_owned();
                self.taken += at + end.len();
                return Some(found);
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).await.expect("the stream goes on or ends");
            if read == 0 {
                return None;
            }
            self.text.push_str(std::str::from_utf8(&bytes[..read]).expect("names of the tests are ASCII"));
        }
    }

    /// The next frame with data; none at the end of the stream.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            let text = within(self.until("\n\n")).await?;
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").to_owned();
            let data = field("data: ");
            if !data.is_empty() {
                return Some((field("id: "), field("event: "), serde_json::from_str(&data).expect("JSON")));
            }
        }
    }

    async fn expect(&mut self, event: &str) -> Frame {
        let frame = self.frame().await.unwrap_or_else(|| panic!("the stream ended before {event}"));
        assert_eq!(frame.1, event, "{frame:?}");
        frame
    }
}

async fn make(node: &Node, topic: &str) {
    node.ok("PUT", &format!("/v1/topics/{topic}"), json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_tells_what_happens_and_goes_on_where_it_stopped() {
    let node = Node::start().await;
    let mut reader = Reader::open(&node, &node.token, "", None).await;
    let (opened, ..) = reader.expect("opened").await;
    make(&node, "a").await;
    let (first, _, data) = reader.expect("topic_made").await;
    assert_eq!((&data["event"], &data["topic"]), (&"topic_made".into(), &"a".into()), "{data}");
    assert!(data["at_ms"].as_u64().is_some_and(|at| at > 0), "{data}");
    make(&node, "b").await;
    assert_eq!(reader.expect("topic_made").await.2["topic"], "b");
    drop(reader);

    node.ok("DELETE", "/v1/topics/b", Value::Null).await;
    let mut again = Reader::open(&node, &node.token, "", Some(&first)).await;
    again.expect("opened").await;
    assert_eq!(again.expect("topic_made").await.2["topic"], "b");
    let (last, _, gone) = again.expect("topic_gone").await;
    assert_eq!(gone["topic"], "b");

    let mut past = Reader::open(&node, &node.token, "?replay=true&follow=false", Some(&opened)).await;
    for event in ["opened", "topic_made", "topic_made", "topic_gone"] {
        past.expect(event).await;
    }
    let (id, _, end) = past.expect("end").await;
    assert_eq!((&end["reason"], &id), (&"complete".into(), &last));
    assert_eq!(past.frame().await, None);

    let mut other_run = Reader::open(&node, &node.token, "?follow=false", Some("00000000000000ff-7")).await;
    other_run.expect("opened").await;
    assert_eq!(other_run.expect("missed").await.2["count"], Value::Null);
    assert_eq!(other_run.expect("topic_made").await.2["topic"], "a", "all of this run is news");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_told_to_those_who_may_look_after_the_topic() {
    let node = Node::start().await;
    for (scope, query, expected) in [
        ("jobs*", "", 403),
        ("jobs*", "?topic=other", 403),
        ("jobs*", "?topic=jobs.a&topic=other", 403),
        ("jobs*", "?topic=job*", 403),
        ("jobs*", "?topic=*", 403),
        ("jobs", "?topic=jobs*", 403),
        ("*", "?topic=a%20b", 400),
        ("*", "?topics=a", 400),
        ("*", "?follow=maybe", 400),
    ] {
        let token = node.admin_of(scope);
        let (status, answer) = node.ask_with(&token, "GET", &format!("/v1/events{query}"), Value::Null).await;
        assert_eq!(status, expected, "{scope} {query}: {answer}");
    }
    assert_eq!(node.ask_with("nonsense", "GET", "/v1/events", Value::Null).await.0, 401);

    let token = node.admin_of("jobs*");
    let mut some = Reader::open(&node, &token, "?topic=jobs.*&topic=jobs", None).await;
    some.expect("opened").await;
    for topic in ["other", "jobs", "job"] {
        make(&node, topic).await;
    }
    node.ok("PUT", "/v1/topics/jobs.a", json!({"max_attempts": 1})).await;
    assert_eq!(some.expect("topic_made").await.2["topic"], "jobs");
    assert_eq!(some.expect("topic_made").await.2["topic"], "jobs.a", "and nothing of the others");

    node.ok("POST", "/v1/send", json!({"topic": "jobs.a", "payload_b64": "aGk="})).await;
    let received = node.ok("POST", "/v1/recv", json!({"topic": "jobs.a"})).await;
    let message = &received["messages"][0];
    node.ok("POST", "/v1/nack", json!({"receipts": [message["receipt"]]})).await;
    let (.., died) = some.expect("died").await;
    assert_eq!((&died["topic"], &died["msg_id"]), (&"jobs.a".into(), &message["msg_id"]), "{died}");
    make(&node, "elsewhere").await;
    node.ok("POST", "/v1/dlq/jobs.a/reprocess", json!({"to": "elsewhere"})).await;
    let (.., moved) = some.expect("moved").await;
    assert_eq!((&moved["count"], moved.get("to")), (&1.into(), None), "it may not know where to: {moved}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hear_the_same() {
    let limits =
        HttpLimits { connections_per_ip_max: 2000, accepts_per_ip_per_second: 100_000, ..HttpLimits::default() };
    let node = Node::with(limits).await;
    let mut readers = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let mut reader = within(Reader::open(&node, &node.token, "?topic=told.*", None)).await;
        reader.expect("opened").await;
        readers.push(reader);
    }
    let topics: Vec<String> = (0..20).map(|number| format!("told.{number}")).collect();
    for topic in &topics {
        make(&node, topic).await;
        make(&node, &format!("other.{topic}")).await;
    }
    for reader in &mut readers {
        for topic in &topics {
            assert_eq!(reader.expect("topic_made").await.2["topic"], topic.as_str());
        }
    }
    // The node answers others meanwhile.
    node.ok("GET", "/v1/stats", Value::Null).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_read_is_told_what_it_missed() {
    let limits = HttpLimits { write_stall: Duration::from_secs(60), ..HttpLimits::default() };
    let node = Node::with(limits).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small window");
    let stream = socket.connect(node.address).await.expect("the node listens");
    let mut slow = Reader::over(stream, &node.token, "", None).await;
    slow.expect("opened").await;
    let topic: TopicName = "t".repeat(80).parse().expect("a name");
    let (mut last, mut seen) = (0, 0);
    // The buffers of the operating system take some megabytes before the node has to wait for the reader.
    for _ in 0..16_000 {
        let deadline = Deadline::after(Duration::from_secs(10));
        node.mailbox.create_topic(&topic, TopicSettings::default(), deadline).await.expect("made");
        node.mailbox.delete_topic(&topic, deadline).await.expect("removed");
        last += 2;
    }
    let missed = loop {
        let (_, event, data) = slow.frame().await.expect("the stream goes on");
        if event == "missed" {
            break data["count"].as_u64().expect("the number is known");
        }
        seen += 1;
    };
    let mut rest = 0;
    while seen + missed + rest < last {
        let (_, event, _) = slow.frame().await.expect("the stream goes on");
        assert_ne!(event, "end");
        rest += 1;
    }
    assert_eq!(seen + missed + rest, last, "every event was told or counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_streams_at_once_with_a_last_event() {
    let node = Node::start().await;
    let mut reader = Reader::open(&node, &node.token, "", None).await;
    reader.expect("opened").await;
    node.drain().await;
    assert_eq!(reader.expect("end").await.2["reason"], "draining");
    assert_eq!(reader.frame().await, None);
}
