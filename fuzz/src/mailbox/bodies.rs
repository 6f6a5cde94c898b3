//! Bodies of requests to the mailbox, one of each kind.

use serde_json::{Value, json};

use super::stored;
use crate::Seed;

/// JSON bodies of the HTTP surface, and payloads of frames.
pub fn seeds() -> Vec<Seed> {
    let receipt = stored::receipt().to_string();
    let message = json!({ "payload_b64": "aGVsbG8=", "idem_key": "k-1", "attrs": { "kind": "test" }, "delay_ms": 5 });
    let settings = json!({ "visibility_ms": 30_000, "max_attempts": 5, "groups": "fifo", "dlq": "orders.dead" });
    let browse = json!({ "filter": { "group": "g", "attrs": { "kind": "test" } }, "limit": 20 });
    let token = json!({ "subject": "worker-1", "rights": ["mailbox:recv:orders"], "limits": {} });
    let json_bodies = [
        ("batch.seed", json!({ "topic": "orders", "messages": [message, message] })),
        ("receive.seed", json!({ "topic": "orders", "visibility_ms": 1000, "max_messages": 10, "wait_ms": 50 })),
        ("stream.seed", json!({ "topic": "orders", "credit": 100 })),
        ("nack.seed", json!({ "receipts": [receipt], "reason": "later", "delay_ms": 100, "reject": false })),
        ("extend.seed", json!({ "receipts": [receipt], "visibility_ms": 60_000 })),
        ("settings.seed", settings),
        ("browse.seed", browse),
        ("token.seed", token),
    ];
    let send_head = json!({ "topic": "orders", "messages": [{ "len": 5 }, { "len": 3, "idem_key": "k-2" }] });
    let frames = [
        ("frame-send.seed", frame(1, &send_head, b"helloabc")),
        ("frame-receive.seed", frame(2, &json!({ "topic": "orders", "max_messages": 8 }), b"")),
        ("frame-ack.seed", frame(3, &json!({ "receipts": [receipt] }), b"")),
    ];
    let texts = json_bodies.map(|(name, body)| (name, body.to_string().into_bytes()));
    texts.into_iter().chain(frames).collect()
}

/// An operation, the length of its head, the head, and what follows it.
fn frame(op: u8, head: &Value, bodies: &[u8]) -> Vec<u8> {
    let head = head.to_string().into_bytes();
    [&[op], (head.len() as u32).to_be_bytes().as_slice(), &head, bodies].concat()
}
