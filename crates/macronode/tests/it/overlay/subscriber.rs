//! A subscriber over HTTP, as a program would be one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::PATIENCE_MAX;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::member::Member;

/// An open stream of server-sent events.
pub struct Subscriber {
    body: Incoming,
    waiting: Vec<u8>,
    /// Bytes of `waiting` in which no event ends, so that a large one is looked through once.
    searched: usize,
    /// Comments heard so far.
    pub comments: usize,
    _sender: SendRequest<Empty<Bytes>>,
    _driver: JoinSet<()>,
}

/// One event: its kind and its data. Comments have no kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub kind: String,
    pub data: Value,
}

impl Event {
    /// Content of a message.
    pub fn payload(&self) -> Vec<u8> {
        STANDARD.decode(self.data["payload_b64"].as_str().expect("a payload")).expect("base64")
    }

    pub fn seq(&self) -> u64 {
        self.data["seq"].as_u64().expect("a number")
    }

    pub fn origin(&self) -> &str {
        self.data["origin"].as_str().expect("an origin")
    }
}

impl Subscriber {
    /// Opens a stream as the operator and waits until it hears.
    pub async fn open(member: &Member, lane: &str, query: &str) -> Subscriber {
        let mut subscriber = Subscriber::open_as(member, &member.bearer(), lane, query).await.expect("allowed");
        let ready = subscriber.next().await;
        assert_eq!((ready.kind.as_str(), &ready.data["lane"]), ("ready", &lane.into()), "{ready:?}");
        assert_eq!(ready.data["node_id"], member.id.as_str());
        subscriber
    }

    /// Opens a stream; the status of the answer if it is a refusal.
    pub async fn open_as(member: &Member, bearer: &str, lane: &str, query: &str) -> Result<Subscriber, u16> {
        let stream = TcpStream::connect(member.api()).await.expect("the node listens");
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("a connection");
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The reader is told of the same error.
            let _ = connection.await;
        });
        let request = Request::builder()
            .uri(format!("/overlay/lanes/{lane}/subscribe{query}"))
            .header("host", member.api().to_string())
            .header("authorization", bearer)
            .body(Empty::new())
            .expect("a request");
        let response = sender.send_request(request).await.expect("the node answers");
        if !response.status().is_success() {
            return Err(response.status().as_u16());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Subscriber {
            body: response.into_body(),
            waiting: Vec::new(),
            searched: 0,
            comments: 0,
            _sender: sender,
            _driver: driver,
        })
    }

    /// The next event; fails if none comes.
    pub async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(PATIENCE_MAX, self.next_or_end()).await;
        next.expect("an event in time").expect("the stream goes on")
    }

    /// The next event; none at the end of the stream. Comments are skipped.
    pub async fn next_or_end(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.waiting[self.searched..].windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.waiting.split_off(self.searched + end + 2);
                self.searched = 0;
                let text = String::from_utf8(std::mem::replace(&mut self.waiting, rest)).expect("text");
                let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                if let Some(kind) = field("event") {
                    let data = serde_json::from_str(field("data").expect("data")).expect("JSON");
                    return Some(Event { kind: kind.to_owned(), data });
                }
                self.comments += usize::from(text.starts_with(':'));
            }
            self.searched = self.waiting.len().saturating_sub(1);
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                self.waiting.extend_from_slice(&bytes);
            }
        }
    }

    /// The next messages, as many as asked for; any other event fails the test.
    pub async fn messages(&mut self, count: usize) -> Vec<Event> {
        let mut messages = Vec::new();
        while messages.len() < count {
            let event = self.next().await;
            assert_eq!(event.kind, "message", "{event:?}");
            messages.push(event);
        }
        messages
    }
}
