//! A mailbox client: one connection, one token, the calls of the native surface.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::client::{CallError, Client, Reply};
use crate::node::Node;

/// Message to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// Topic to send to.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// Idempotency key.
    pub idem_key: Option<&'a str>,
    /// Group.
    pub group: Option<&'a str>,
    /// Delay in milliseconds.
    pub delay_ms: Option<u64>,
}

/// Size, lease and wait of a receive.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// Maximum number of messages.
    pub max: u64,
    /// Duration of the lease in milliseconds.
    pub visibility_ms: u64,
    /// Maximum wait for the first message in milliseconds.
    pub wait_ms: u64,
}

/// Answer to a send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Id of the message.
    pub msg_id: String,
    /// Whether the key was known already.
    pub duplicate: bool,
    /// Durability as the node names it.
    pub durability: String,
}

/// Message received.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Id of the message.
    pub msg_id: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Idempotency key.
    pub idem_key: Option<String>,
    /// Group.
    pub group: Option<String>,
    /// Number of this delivery, from 1.
    pub attempt: u64,
    /// Number of the lease.
    pub fence: u64,
    /// Receipt to settle the message with.
    pub receipt: String,
    /// The whole message as it came.
    pub raw: Value,
}

/// Reason why a call has no good answer.
#[derive(Debug)]
pub enum MailboxError {
    /// There is no answer, and nobody knows what was done.
    Call(CallError),
    /// The answer is a refusal.
    Refused(Reply),
}

impl std::fmt::Display for MailboxError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MailboxError::Call(error) => error.fmt(formatter),
            MailboxError::Refused(reply) => write!(formatter, "status {}: {}", reply.status, reply.text()),
        }
    }
}

impl std::error::Error for MailboxError {}

impl MailboxError {
    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            MailboxError::Call(_) => None,
            MailboxError::Refused(reply) => Some(reply.status),
        }
    }
}

/// One connection to a mailbox. It is never replaced by another; that is the caller's business.
pub struct MailboxClient {
    client: Client,
    bearer: String,
}

impl MailboxClient {
    /// Connects with a token.
    pub async fn connect(api: SocketAddr, token: &str) -> anyhow::Result<MailboxClient> {
        Ok(MailboxClient { client: Client::connect(api).await?, bearer: format!("Bearer {token}") })
    }

    /// Connects to a scratch node as its operator.
    pub async fn of(node: &Node) -> anyhow::Result<MailboxClient> {
        MailboxClient::connect(node.api, &node.token).await
    }

    /// Any call with a JSON body; null sends none.
    pub async fn call(&mut self, method: Method, path: &str, body: &Value) -> Result<Value, MailboxError> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let mut headers = vec![("authorization", self.bearer.as_str())];
        if !text.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        let reply = self.client.request(method, path, &headers, text).await.map_err(MailboxError::Call)?;
        if !(200..300).contains(&reply.status) {
            return Err(MailboxError::Refused(reply));
        }
        if reply.body.is_empty() {
            return Ok(Value::Null);
        }
        Ok(reply.json().expect("a good answer is JSON"))
    }

    /// GET.
    pub async fn get(&mut self, path: &str) -> Result<Value, MailboxError> {
        self.call(Method::GET, path, &Value::Null).await
    }

    /// POST.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Value, MailboxError> {
        self.call(Method::POST, path, body).await
    }

    /// Makes a topic.
    pub async fn topic(&mut self, name: &str, settings: &Value) -> Result<Value, MailboxError> {
        self.call(Method::PUT, &format!("/v1/topics/{name}"), settings).await
    }

    /// The total numbers of a topic.
    pub async fn stats(&mut self, topic: &str) -> Result<Value, MailboxError> {
        Ok(self.get(&format!("/v1/topics/{topic}/stats")).await?["total"].clone())
    }

    /// Messages a topic holds in any state.
    pub async fn held(&mut self, topic: &str) -> Result<u64, MailboxError> {
        let total = self.stats(topic).await?;
        Ok(["ready", "delayed", "leased"].iter().map(|state| total[*state].as_u64().expect("a number")).sum())
    }

    /// Sends one message.
    pub async fn send(&mut self, message: Outgoing<'_>) -> Result<Sent, MailboxError> {
        let mut body = json!({ "topic": message.topic, "payload_b64": STANDARD.encode(message.payload) });
        let optional = [("idem_key", message.idem_key.map(Value::from)), ("group", message.group.map(Value::from))];
        for (field, value) in optional.into_iter().chain([("delay_ms", message.delay_ms.map(Value::from))]) {
            if let Some(value) = value {
                body[field] = value;
            }
        }
        let answer = self.post("/v1/send", &body).await?;
        Ok(Sent {
            msg_id: text(&answer["msg_id"]),
            duplicate: answer["duplicate"].as_bool().expect("a truth value"),
            durability: text(&answer["durability"]),
        })
    }

    /// Receives messages.
    pub async fn recv(&mut self, topic: &str, take: Take) -> Result<Vec<Delivered>, MailboxError> {
        let body = json!({
            "topic": topic,
            "max_messages": take.max,
            "visibility_ms": take.visibility_ms,
            "wait_ms": take.wait_ms,
        });
        let answer = self.post("/v1/recv", &body).await?;
        let messages = answer["messages"].as_array().expect("a list");
        Ok(messages.iter().map(Delivered::read).collect())
    }

    /// Acknowledges deliveries; whether each was accepted.
    pub async fn ack(&mut self, receipts: &[&str]) -> Result<Vec<bool>, MailboxError> {
        let results = self.settle("/v1/ack", &json!({ "receipts": receipts })).await?;
        Ok(results.iter().map(|result| result["ok"] == true).collect())
    }

    /// Says that deliveries failed; the result of each.
    pub async fn nack(
        &mut self,
        receipts: &[&str],
        reason: &str,
        delay_ms: Option<u64>,
    ) -> Result<Vec<Value>, MailboxError> {
        let mut body = json!({ "receipts": receipts, "reason": reason });
        if let Some(delay_ms) = delay_ms {
            body["delay_ms"] = delay_ms.into();
        }
        self.settle("/v1/nack", &body).await
    }

    /// Gives leases another end, counted from now; the result of each.
    pub async fn extend(&mut self, receipts: &[&str], visibility_ms: u64) -> Result<Vec<Value>, MailboxError> {
        self.settle("/v1/extend", &json!({ "receipts": receipts, "visibility_ms": visibility_ms })).await
    }

    async fn settle(&mut self, path: &str, body: &Value) -> Result<Vec<Value>, MailboxError> {
        Ok(self.post(path, body).await?["results"].as_array().expect("a list").clone())
    }
}

impl Delivered {
    fn read(raw: &Value) -> Delivered {
        let optional = |field: &str| raw[field].as_str().map(str::to_owned);
        Delivered {
            msg_id: text(&raw["msg_id"]),
            payload: STANDARD.decode(text(&raw["payload_b64"])).expect("base64"),
            idem_key: optional("idem_key"),
            group: optional("group"),
            attempt: raw["attempt"].as_u64().expect("a number"),
            fence: raw["fence"].as_u64().expect("a number"),
            receipt: text(&raw["receipt"]),
            raw: raw.clone(),
        }
    }

    /// The payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
