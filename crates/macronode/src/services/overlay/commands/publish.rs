//! `macronode overlay pub`: one message, and what became of it at each peer.

use std::io::Read as _;
use std::time::Duration;

use ron_types::limits::overlay::PAYLOAD_BYTES_MAX;
use serde::Deserialize;
use serde_json::json;

use super::args::PubArgs;
use super::short;
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::text::{counted, encoded, segment};
use crate::errors::{Code, Failure};

/// Time the node has; nobody waits for a peer, but the largest message takes a while to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Published {
    msg_id: String,
    seq: u64,
    peers: Vec<PeerOutcome>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PeerOutcome {
    node_id: String,
    outcome: String,
    retry_after_ms: Option<u64>,
}

/// Publishes a message.
pub async fn publish(args: &PubArgs) -> Result<Report, Failure> {
    let payload = payload(args)?;
    let path = format!("/overlay/lanes/{}/publish", segment(&args.lane));
    let body = json!({"payload_b64": encoded(&payload)});
    let answer = ApiClient::find(&args.node)?.post_within(&path, &body, PATIENCE).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(show(&answer.read(&path)?)))
}

fn show(published: &Published) -> String {
    let is = |word: &'static str| move |peer: &&PeerOutcome| peer.outcome == word;
    let sent = published.peers.iter().filter(is("sent")).count() as u64;
    let mut text = format!("{}  seq {}, sent to {}\n", published.msg_id, published.seq, counted(sent, "peer"));
    for peer in published.peers.iter().filter(|peer| !is("sent")(peer)) {
        text += &match (peer.outcome.as_str(), peer.retry_after_ms) {
            ("no_peers", _) => {
                "  no peer is connected: those that join get it while the node still holds it\n".to_owned()
            }
            (outcome, Some(wait)) => format!("  {} {outcome}, again after {wait} ms\n", short(&peer.node_id)),
            (outcome, None) => format!("  {} {outcome}\n", short(&peer.node_id)),
        };
    }
    text
}

fn payload(args: &PubArgs) -> Result<Vec<u8>, Failure> {
    // One byte more than allowed is enough for the node to say so.
    let bytes_max = PAYLOAD_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let (read, name) = match (&args.file, args.text.as_deref()) {
        (None, Some(text)) if text != "-" => return Ok(text.as_bytes().to_vec()),
        (Some(path), _) => {
            let read = std::fs::File::open(path).and_then(|file| file.take(bytes_max).read_to_end(&mut bytes));
            (read, path.display().to_string())
        }
        _ => (std::io::stdin().lock().take(bytes_max).read_to_end(&mut bytes), "standard input".to_owned()),
    };
    read.map_err(|error| Failure::new(Code::NodeRefused, format!("cannot read {name}: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_went_wrong_is_listed() {
        let published: Published = serde_json::from_value(json!({
            "msg_id": "ab", "seq": 4, "peers": [
                {"node_id": "0123456789", "outcome": "sent"},
                {"node_id": "1123456789", "outcome": "busy", "retry_after_ms": 20},
                {"node_id": "2123456789", "outcome": "not_ready"},
            ],
        }))
        .expect("the shape of the answer");
        let expected = "ab  seq 4, sent to 1 peer\n  11234567 busy, again after 20 ms\n  21234567 not_ready\n";
        assert_eq!(show(&published), expected);
    }
}
