//! `macronode mailbox explain`: why a message is not being delivered, or who has it.

use serde::Deserialize;

use super::args::ExplainArgs;
use super::browse::Seen;
use super::types::{attributes, decoded, missing_dlq, one_line, payload_line, relative, segment};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::Failure;

const PAYLOAD_WIDTH: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Explained {
    message: Seen,
    verdict: String,
    blocked_by: Option<String>,
    lease: Option<Lease>,
    ahead: u64,
    noisy_share: Option<u8>,
    paused: bool,
    dlq_missing: Option<String>,
    history: Vec<Past>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    consumer: String,
    number: u32,
    leased_ts: u64,
    until_ts: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Past {
    number: u32,
    consumer: String,
    leased_ts: u64,
    outcome: String,
}

/// Asks what became of a message and shows the answer.
pub async fn explain(args: &ExplainArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let path = format!("/v1/messages/{}", segment(&args.msg_id));
    let answer = client.get(&path).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(show(&answer.read(&path)?)))
}

fn show(explained: &Explained) -> String {
    let text = format!("{}\n\n{}", one_line(&explained.verdict), table(2, &rows(explained)));
    if explained.history.is_empty() {
        return text;
    }
    let mut history = vec![row(["delivery", "taken", "by", "outcome"])];
    history.extend(explained.history.iter().map(|past| {
        let outcome = if past.outcome.is_empty() { "still running".to_owned() } else { one_line(&past.outcome) };
        row([&past.number.to_string(), &relative(past.leased_ts), &one_line(&past.consumer), &outcome])
    }));
    format!("{text}\n{}", table(2, &history))
}

fn rows(explained: &Explained) -> Vec<Vec<String>> {
    let seen = &explained.message;
    let mut rows = vec![
        row(["message", &seen.msg_id]),
        row(["topic", &format!("{}{}", seen.topic, if explained.paused { ", PAUSED" } else { "" })]),
        row(["state", &format!("{}, {} deliveries so far", seen.state, seen.attempts)]),
        row(["sent", &relative(seen.ts)]),
    ];
    rows.extend(explained.lease.as_ref().map(|lease| {
        let (consumer, since, until) = (one_line(&lease.consumer), relative(lease.leased_ts), relative(lease.until_ts));
        row(["lease", &format!("delivery {} to {consumer}, taken {since}, ends {until}", lease.number)])
    }));
    if let (Some(due), "delayed") = (seen.due_ts, seen.state.as_str()) {
        rows.push(row(["delay", &format!("over {}", relative(due))]));
    }
    if let Some(group) = &seen.group {
        let noisy = explained.noisy_share.map(|share| format!(", noisy: it holds {share} % of all leases"));
        rows.push(row(["group", &format!("{}{}", one_line(group), noisy.unwrap_or_default())]));
    }
    rows.extend(explained.blocked_by.as_ref().map(|blocker| row(["waits for", blocker])));
    if seen.state == "ready" {
        rows.push(row(["before it", &explained.ahead.to_string()]));
    }
    if let Some(dead) = &seen.dead {
        let why = format!("{} after {} deliveries, {}", dead.reason, dead.attempts, relative(dead.since_ts));
        rows.push(row(["dead", &why]));
        rows.push(row(["was for", &dead.source]));
        rows.push(row(["last error", &one_line(&dead.last_error)]));
    }
    rows.extend(explained.dlq_missing.as_ref().map(|dlq| row(["dlq missing", &missing_dlq(dlq)])));
    rows.extend(seen.idem_key.as_ref().map(|key| row(["key", &one_line(key)])));
    if !seen.attrs.is_empty() {
        rows.push(row(["attrs", &attributes(&seen.attrs)]));
    }
    let payload =
        if seen.damaged { "DAMAGED".into() } else { payload_line(&decoded(&seen.payload_b64), PAYLOAD_WIDTH) };
    rows.push(row(["payload", &payload]));
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_verdict_comes_first_and_the_rest_as_far_as_there_is_some() {
        let now = ron_kernel::clock::unix_millis();
        let explained = serde_json::from_value(json!({
            "message": {"msg_id": "01", "topic": "orders", "ts": now, "payload_b64": "aGk=", "group": "g",
                        "attempts": 2, "state": "leased", "due_ts": now + 20_500},
            "verdict": "ann has it, delivery 2, for another 20500 ms",
            "lease": {"consumer": "ann", "number": 2, "leased_ts": now, "until_ts": now + 20_500},
            "ahead": 0, "noisy_share": 40, "paused": false, "dlq_missing": "grave",
            "history": [{"number": 1, "consumer": "bob", "leased_ts": now, "outcome": "boom"},
                        {"number": 2, "consumer": "ann", "leased_ts": now, "outcome": ""}],
        }));
        let text = show(&explained.expect("the shape of an explanation"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ann has it, delivery 2, for another 20500 ms");
        for part in [
            "  state        leased, 2 deliveries so far",
            "  lease        delivery 2 to ann, taken ",
            "ends in 20 s",
            "  group        g, noisy: it holds 40 % of all leases",
            "  dlq missing  grave is gone: ",
            "  payload      hi",
            "bob  boom",
            "ann  still running",
        ] {
            assert!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
        for absent in ["delay", "waits for", "dead", "before it"] {
            assert!(!text.contains(&format!("\n  {absent}")), "{absent:?} is out of place in:\n{text}");
        }
    }
}
