//! `macronode mailbox recv`: messages under a lease, printed before they are acknowledged.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::RecvArgs;
use super::settle;
use super::types::{attributes, decoded, one_line, payload_text, relative};
use crate::client::{ApiClient, PATIENCE};
use crate::commands::table::{row, table};
use crate::commands::{Report, print};
use crate::config::TimeSpan;
use crate::errors::{Exit, Failure};

/// A message as it is received or looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message {
    /// Message id.
    pub msg_id: String,
    /// Time of the send, in milliseconds since 1970.
    pub ts: u64,
    /// The sender's idempotency key.
    pub idem_key: Option<String>,
    /// Payload, as base64.
    pub payload_b64: String,
    /// Attributes by name.
    pub attrs: Map<String, Value>,
    /// Group the message belongs to, if any.
    pub group: Option<String>,
    /// Number of this delivery, from 1.
    pub attempt: u32,
    /// Receipt that proves the lease.
    pub receipt: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Received {
    messages: Vec<Message>,
}

/// Receives once and shows the messages.
pub async fn recv(args: &RecvArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let (text, messages) = ask(&mut client, &args.topic, args.max, args.wait, args.visibility).await?;
    let is_terminal = std::io::stdout().is_terminal();
    let shown = match args.node.json {
        true => text + "\n",
        false => messages.iter().map(|message| show(message, is_terminal, args.ack)).collect(),
    };
    if messages.is_empty() {
        return Ok(Report::clean(if args.node.json { shown } else { "nothing to receive\n".to_owned() }));
    }
    // What could not be printed is not acknowledged: it comes back when its lease ends.
    if !args.ack {
        return Ok(Report::clean(shown));
    }
    if print(&shown).is_err() {
        return Ok(Report { text: String::new(), exit: Exit::Failed });
    }
    let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
    settle::ack_receipts(&mut client, &receipts).await?;
    Ok(Report::clean(""))
}

/// Leases messages; returns the answer as the node gave it, and the messages in it.
pub async fn ask(
    client: &mut ApiClient,
    topic: &str,
    max: u16,
    wait: TimeSpan,
    visibility: Option<TimeSpan>,
) -> Result<(String, Vec<Message>), Failure> {
    const PATH: &str = "/v1/recv";
    let mut body = json!({"topic": topic, "max_messages": max, "wait_ms": wait.0});
    if let Some(visibility) = visibility {
        body["visibility_ms"] = visibility.0.into();
    }
    let patience = PATIENCE + Duration::from_millis(wait.0);
    let answer = client.post_within(PATH, &body, patience).await?;
    let received: Received = answer.read(PATH)?;
    Ok((answer.text(), received.messages))
}

fn show(message: &Message, is_terminal: bool, is_acked: bool) -> String {
    let mut text = format!("{}  delivery {}, sent {}\n", message.msg_id, message.attempt, relative(message.ts));
    let mut rows = Vec::new();
    rows.extend(message.group.as_ref().map(|group| row(["group", &one_line(group)])));
    rows.extend(message.idem_key.as_ref().map(|key| row(["key", &one_line(key)])));
    if !message.attrs.is_empty() {
        rows.push(row(["attrs", &attributes(&message.attrs)]));
    }
    if !is_acked {
        rows.push(row(["receipt", &message.receipt]));
    }
    text += &table(2, &rows);
    let payload = payload_text(&decoded(&message.payload_b64), is_terminal);
    let _ = writeln!(text, "{}", payload.trim_end_matches('\n'));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_with_what_it_has() {
        let message: Message = serde_json::from_value(json!({
            "msg_id": "01K", "topic": "orders", "ts": ron_kernel::clock::unix_millis(), "idem_key": "k1",
            "payload_b64": "aGkKdGhlcmUK", "attrs": {"a": "b", "c": "\u{1b}"}, "group": "g", "attempt": 2,
            "receipt": "r-1", "fence": 2,
        }))
        .expect("the shape of a received message");
        let shown = show(&message, true, false);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("01K  delivery 2, sent "), "{shown}");
        let expected = ["  group    g", "  key      k1", "  attrs    a=b c=\\u{1b}", "  receipt  r-1", "hi", "there"];
        assert_eq!(lines[1..], expected);
        assert!(!show(&message, true, true).contains("r-1"), "a receipt that is used up is of no use");
    }
}
