//! `macronode mailbox browse`: messages looked at, not received.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::BrowseArgs;
use super::types::{counted, decoded, one_line, payload_line, relative, segment, span};
use crate::client::{ApiClient, NodeAnswer};
use crate::commands::Report;
use crate::commands::table::{row, shortened, table};
use crate::errors::Failure;

/// Characters of a payload in the table.
const PAYLOAD_WIDTH: usize = 60;

/// A message as the node shows it to those who browse.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Message id.
    pub msg_id: String,
    /// Topic that holds the message.
    pub topic: String,
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
    /// Deliveries so far.
    pub attempts: u32,
    /// State in one word: ready, delayed or leased.
    pub state: String,
    /// Time at which the state changes by itself, in milliseconds since 1970.
    pub due_ts: Option<u64>,
    /// Circumstances of its death, if it is a dead letter.
    pub dead: Option<Dead>,
    /// Whether the stored bytes differ from what was sent.
    pub damaged: bool,
}

/// Circumstances of a message's death.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Dead {
    /// Reason in one word.
    pub reason: String,
    /// Topic the message was sent to.
    pub source: String,
    /// Number of deliveries before it died.
    pub attempts: u32,
    /// Time of death, in milliseconds since 1970.
    pub since_ts: u64,
    /// Error text of the last consumer.
    pub last_error: String,
}

/// A page of messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Page {
    /// Messages that match the filter.
    pub messages: Vec<Seen>,
    /// Cursor of the next page; none on the last page.
    pub next: Option<String>,
    /// Number of messages looked at, matching or not.
    pub looked_at: u64,
}

/// Asks for one page and shows it.
pub async fn browse(args: &BrowseArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let mut body = json!({"filter": filter(args), "limit": args.limit});
    if let Some(cursor) = &args.cursor {
        body["cursor"] = cursor.as_str().into();
    }
    let (answer, page) = ask(&mut client, &args.topic, &body).await?;
    Ok(Report::clean(if args.node.json { answer.text() + "\n" } else { show(&page) }))
}

/// One page, as the node gave it and as it is read.
pub async fn ask(client: &mut ApiClient, topic: &str, body: &Value) -> Result<(NodeAnswer, Page), Failure> {
    let path = format!("/v1/topics/{}/browse", segment(topic));
    let answer = client.post(&path, body).await?;
    let page = answer.read(&path)?;
    Ok((answer, page))
}

fn filter(args: &BrowseArgs) -> Value {
    let mut filter = json!({});
    if let Some(state) = args.state {
        filter["state"] = json!(state);
    }
    if let Some(group) = &args.group {
        filter["group"] = group.as_str().into();
    }
    if let Some(text) = &args.contains {
        filter["payload_contains"] = text.as_str().into();
    }
    if !args.attrs.is_empty() {
        let attrs: Map<String, Value> = args.attrs.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        filter["attrs"] = attrs.into();
    }
    filter
}

fn show(page: &Page) -> String {
    let mut rows = vec![row(["message", "sent", "state", "deliveries", "group", "payload"])];
    rows.extend(page.messages.iter().map(|seen| {
        let group = shortened(&one_line(seen.group.as_deref().unwrap_or("-")), 24);
        row([&seen.msg_id, &relative(seen.ts), &standing(seen), &seen.attempts.to_string(), &group, &payload(seen)])
    }));
    let mut text = if page.messages.is_empty() { "nothing found\n".to_owned() } else { table(0, &rows) };
    if let Some(next) = &page.next {
        text += &format!("{} looked at; there is more: --cursor {next}\n", counted(page.looked_at, "message"));
    }
    text
}

fn standing(seen: &Seen) -> String {
    match (&seen.dead, seen.due_ts) {
        (Some(dead), _) if seen.state == "ready" => format!("dead: {}", dead.reason),
        (_, Some(due)) => {
            let left = due.saturating_sub(ron_kernel::clock::unix_millis());
            format!("{}, {} left", seen.state, span(left))
        }
        _ => seen.state.clone(),
    }
}

fn payload(seen: &Seen) -> String {
    if seen.damaged {
        return "DAMAGED: not what was sent".to_owned();
    }
    let payload = payload_line(&decoded(&seen.payload_b64), PAYLOAD_WIDTH);
    match &seen.dead {
        Some(dead) if !dead.last_error.is_empty() => {
            format!("{payload}  ({})", shortened(&one_line(&dead.last_error), PAYLOAD_WIDTH))
        }
        _ => payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::mailbox::commands::args::StateName;

    #[test]
    fn a_page_shows_where_messages_stand() {
        let now = ron_kernel::clock::unix_millis();
        let page: Page = serde_json::from_value(json!({
            "messages": [
                {"msg_id": "01", "ts": now, "state": "ready", "attempts": 0, "payload_b64": "aGk="},
                {"msg_id": "02", "ts": now, "state": "leased", "due_ts": now + 90_500, "attempts": 1, "group": "g",
                 "payload_b64": "YQpi"},
                {"msg_id": "03", "ts": now, "state": "ready", "attempts": 5, "payload_b64": "/w==",
                 "dead": {"reason": "max_attempts", "source": "o", "attempts": 5, "last_error": "bo\nom"}},
                {"msg_id": "04", "ts": now, "state": "ready", "damaged": true},
            ],
            "next": "05", "looked_at": 900,
        }))
        .expect("the shape of a page");
        let text = show(&page);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("message  sent"), "{text}");
        assert!(lines[1].contains("ready") && lines[1].ends_with("-      hi"), "{text}");
        assert!(lines[2].contains("leased, 1 min left") && lines[2].ends_with("g      a\\nb"), "{text}");
        assert!(lines[3].contains("dead: max_attempts") && lines[3].ends_with("/w==  (bo\\nom)"), "{text}");
        assert!(lines[4].ends_with("DAMAGED: not what was sent"), "{text}");
        assert_eq!(lines[5], "900 messages looked at; there is more: --cursor 05");
        assert_eq!(show(&Page::default()), "nothing found\n");
    }

    #[test]
    fn a_filter_says_only_what_was_asked() {
        let mut args = BrowseArgs {
            topic: "t".to_owned(),
            limit: 20,
            state: None,
            group: None,
            contains: None,
            attrs: Vec::new(),
            cursor: None,
            node: crate::cli::ApiArgs::default(),
        };
        assert_eq!(filter(&args), json!({}));
        args.state = Some(StateName::Delayed);
        args.contains = Some("x".to_owned());
        args.attrs = vec![("a".to_owned(), "b".to_owned())];
        assert_eq!(filter(&args), json!({"state": "delayed", "payload_contains": "x", "attrs": {"a": "b"}}));
    }
}
