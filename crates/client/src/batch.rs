//! Items that share one request, and the answers each of them gets.

use std::borrow::Cow;

use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Refusal};
use crate::gather::now;
use crate::link::Link;
use crate::node::Node;
use crate::types::{Durability, Sent};

/// Kind of calls that can share a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// Sends to one topic.
    Send(String),
    /// Acknowledgements, of any topic.
    Ack,
}

/// One call, as it stands in a request.
pub struct Item {
    pub text: Vec<u8>,
    pub until: Instant,
    pub reply: oneshot::Sender<Result<Done, Error>>,
}

/// Result of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Sent(Sent),
    Acked,
}

/// Items of one line that travel together.
pub struct Batch {
    pub line: Line,
    pub items: Vec<Item>,
}

#[derive(Deserialize)]
struct BatchAnswer<'a> {
    #[serde(borrow)]
    results: Vec<Outcome<'a>>,
}

/// One result in the node's answer to a batch.
#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow, default)]
    msg_id: Option<Cow<'a, str>>,
    #[serde(default)]
    duplicate: bool,
    durability: Option<Durability>,
    error: Option<Refusal>,
}

impl Item {
    /// Whether somebody still waits for it who has time left.
    pub fn is_wanted(&self, now: Instant) -> bool {
        !self.reply.is_closed() && self.until > now
    }
}

impl Batch {
    /// Carries it to the node and gives each item its answer.
    pub async fn deliver(self, node: &Node, link: &mut Link) {
        // The last of them to give up: those who do so before hear no more of it.
        let until = self.items.iter().map(|item| item.until).max().unwrap_or_else(now);
        let answer = node.post(link, self.path(), self.body(), until).await;
        match answer.and_then(|body| self.read(&body)) {
            Ok(outcomes) => self.answer(outcomes),
            // What the node finds wrong with one must not be told to the others.
            Err(Error::Refused { status: 400 | 403 | 409 | 413 | 422, .. }) if self.items.len() > 1 => {
                let Batch { line, items } = self;
                for item in items.into_iter().filter(|item| item.is_wanted(now())) {
                    let alone = Batch { line: line.clone(), items: vec![item] };
                    Box::pin(alone.deliver(node, link)).await;
                }
            }
            Err(error) => {
                let outcomes = self.items.iter().map(|_| Err(error.clone())).collect();
                self.answer(outcomes);
            }
        }
    }

    fn path(&self) -> &'static str {
        match self.line {
            Line::Send(_) => "/v1/send:batch",
            Line::Ack => "/v1/ack",
        }
    }

    fn body(&self) -> Vec<u8> {
        let bytes: usize = self.items.iter().map(|item| item.text.len() + 1).sum();
        let mut body = Vec::with_capacity(bytes + 128);
        match &self.line {
            Line::Send(topic) => {
                body.extend_from_slice(br#"{"topic":"#);
                serde_json::to_writer(&mut body, topic).expect("a text can be written");
                body.extend_from_slice(br#","messages":["#);
            }
            Line::Ack => body.extend_from_slice(br#"{"receipts":["#),
        }
        for (number, item) in self.items.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&item.text);
        }
        body.extend_from_slice(b"]}");
        body
    }

    fn read(&self, body: &[u8]) -> Result<Vec<Result<Done, Error>>, Error> {
        let BatchAnswer { results } = serde_json::from_slice(body).map_err(Error::senseless)?;
        if results.len() != self.items.len() {
            return Err(Error::senseless(format_args!("{} results for {} items", results.len(), self.items.len())));
        }
        Ok(results.into_iter().map(|outcome| outcome.of(&self.line)).collect())
    }

    fn answer(self, outcomes: Vec<Result<Done, Error>>) {
        for (item, outcome) in self.items.into_iter().zip(outcomes) {
            // Whoever has gone does not want to know.
            let _ = item.reply.send(outcome);
        }
    }
}

impl Outcome<'_> {
    fn of(self, line: &Line) -> Result<Done, Error> {
        if let Some(refusal) = self.error {
            return Err(refusal.into());
        }
        match (line, self.msg_id, self.durability) {
            (Line::Ack, ..) => Ok(Done::Acked),
            (Line::Send(_), Some(msg_id), Some(durability)) => {
                Ok(Done::Sent(Sent { msg_id: msg_id.into_owned(), duplicate: self.duplicate, durability }))
            }
            (Line::Send(_), ..) => Err(Error::senseless("a send without an id or without its durability")),
        }
    }
}
