//! `macronode mailbox send`: one message, or a line of standard input each.

use std::io::{BufRead, Read as _, Write as _};
use std::time::Duration;

use http::Method;
use ron_kernel::clock;
use ron_types::limits::mailbox::{BATCH_MAX, PAYLOAD_BYTES_MAX};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::SendArgs;
use super::types::{counted, encoded};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::errors::{Code, Exit, Failure};

/// Time the node has for a batch.
const PATIENCE: Duration = Duration::from_secs(20);
/// Payload bytes of a batch, so that its body stays under what a node takes.
const BATCH_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX;
/// A batch refused this often in a row is given up, and with it the lines that follow.
const BUSY_MAX: usize = 60;
/// A batch refused this often in a row is waited for so long that a person should read why.
const BUSY_UNTOLD_MAX: usize = 2;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Receipted {
    msg_id: String,
    duplicate: bool,
    durability: String,
}

/// Counts of a run of many sends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: u64,
    duplicates: u64,
    refused: u64,
    /// Error of the first message that was refused.
    reason: Option<String>,
    /// Why the node had no room for what was last asked again.
    busy: Option<String>,
    /// Whether a batch was given up.
    has_given_up: bool,
}

/// Sends one message, or one for each line.
pub async fn send(args: &SendArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    if args.lines {
        return send_lines(args, &mut client, &mut std::io::stdin().lock()).await;
    }
    let mut body = message(args, &payload(args)?);
    body["topic"] = args.topic.as_str().into();
    let answer = client.post("/v1/send", &body).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let receipted: Receipted = answer.read("/v1/send")?;
    let note = if receipted.duplicate { "  duplicate: this key was sent before" } else { "" };
    Ok(Report::clean(format!("{}  {}{note}\n", receipted.msg_id, receipted.durability)))
}

/// JSON fields of one message.
fn message(args: &SendArgs, payload: &[u8]) -> Value {
    let mut fields = Map::new();
    fields.insert("payload_b64".to_owned(), encoded(payload).into());
    fields.extend(args.key.as_ref().map(|key| ("idem_key".to_owned(), key.as_str().into())));
    fields.extend(args.group.as_ref().map(|group| ("group".to_owned(), group.as_str().into())));
    fields.extend(args.delay.map(|delay| ("delay_ms".to_owned(), delay.0.into())));
    if !args.attrs.is_empty() {
        let attrs: Map<String, Value> = args.attrs.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        fields.insert("attrs".to_owned(), attrs.into());
    }
    fields.into()
}

fn payload(args: &SendArgs) -> Result<Vec<u8>, Failure> {
    // One byte more than allowed is enough for the node to say so.
    let bytes_max = PAYLOAD_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let (read, name) = match (&args.file, args.payload.as_deref()) {
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

async fn send_lines(args: &SendArgs, client: &mut ApiClient, input: &mut dyn BufRead) -> Result<Report, Failure> {
    let started = clock::now();
    let mut tally = Tally::default();
    while let Some(batch) = next_batch(input)? {
        let messages = batch.iter().map(|line| message(args, line)).collect();
        send_batch(&args.topic, client, messages, &mut tally).await?;
        if tally.has_given_up {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let exit = if tally.refused == 0 { Exit::Clean } else { Exit::Failed };
    let text = if args.node.json { tally.json(seconds) } else { tally.in_words(seconds) };
    Ok(Report { text, exit })
}

/// The next lines without their ends; none at the end of the input.
fn next_batch(input: &mut dyn BufRead) -> Result<Option<Vec<Vec<u8>>>, Failure> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line);
        let read = read.map_err(|error| Failure::new(Code::NodeRefused, format!("cannot read a line: {error}")))?;
        if read == 0 {
            break;
        }
        let end = line.len() - usize::from(line.ends_with(b"\n"));
        line.truncate(end - usize::from(line[..end].ends_with(b"\r")));
        bytes += line.len();
        batch.push(line);
    }
    Ok((!batch.is_empty()).then_some(batch))
}

/// Sends until the node has said yes or no to every message; one that is only busy is asked again.
async fn send_batch(
    topic: &str,
    client: &mut ApiClient,
    mut messages: Vec<Value>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    const PATH: &str = "/v1/send:batch";
    let mut told = None;
    for turn in 1.. {
        let body = json!({"topic": topic, "messages": messages});
        let answer = client.ask(Method::POST, PATH, Some(&body), PATIENCE).await?;
        let is_last = turn == BUSY_MAX;
        let wait = match answer.retry_after() {
            Some(wait) if !is_last => {
                tally.busy = Some(answer.reason());
                wait
            }
            _ => {
                let answer: Value = client.accepted(PATH, answer)?.read(PATH)?;
                let results = answer["results"].as_array().cloned().unwrap_or_default();
                messages = tally.count(messages, &results, is_last);
                Duration::from_millis(100)
            }
        };
        if messages.is_empty() {
            break;
        }
        if turn > BUSY_UNTOLD_MAX && tally.busy != told {
            told.clone_from(&tally.busy);
            let _ = writeln!(std::io::stderr().lock(), "{}", tally.waiting());
        }
        tokio::time::sleep(wait).await;
    }
    Ok(())
}

impl Tally {
    /// Counts the results and returns the messages that the node was too busy for.
    fn count(&mut self, messages: Vec<Value>, results: &[Value], is_last: bool) -> Vec<Value> {
        let mut again = Vec::new();
        for (index, message) in messages.into_iter().enumerate() {
            let result = results.get(index).unwrap_or(&Value::Null);
            if result["msg_id"].is_string() {
                self.sent += 1;
                self.duplicates += u64::from(result["duplicate"] == true);
                continue;
            }
            let (code, detail) = super::error_of(result);
            if code == "E_SATURATED" && !is_last {
                self.busy = Some(detail.to_owned());
                again.push(message);
            } else {
                self.has_given_up |= code == "E_SATURATED";
                self.refused += 1;
                self.reason.get_or_insert_with(|| format!("{code} {detail}"));
            }
        }
        again
    }

    /// What a person should read while nothing goes on.
    fn waiting(&self) -> String {
        let reason = self.busy.as_deref().unwrap_or_default();
        format!("{} sent; the node refuses more: {reason}; trying again", counted(self.sent, "message"))
    }

    fn in_words(&self, seconds: f64) -> String {
        let mut text = format!("{} sent in {seconds:.1} s", counted(self.sent, "message"));
        if seconds > 0.0 {
            text += &format!(", {:.0} a second", self.sent as f64 / seconds);
        }
        if self.duplicates > 0 {
            text += &format!("; {}", counted(self.duplicates, "duplicate"));
        }
        if let Some(reason) = &self.reason {
            text += &format!("; {} refused, the first: {reason}", self.refused);
        }
        if self.has_given_up {
            text += "; given up: the lines after them were not sent";
        }
        text + "\n"
    }

    fn json(&self, seconds: f64) -> String {
        let Tally { sent, duplicates, refused, reason, .. } = self;
        let body = json!({
            "sent": sent, "duplicates": duplicates, "refused": refused, "first_error": reason, "seconds": seconds,
        });
        format!("{body}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_gathered_into_batches_without_their_ends() {
        let mut text: Vec<u8> = b"one\ntwo\r\n\nlast".to_vec();
        let batch = next_batch(&mut text.as_slice()).expect("readable").expect("lines");
        assert_eq!(batch, [b"one".to_vec(), b"two".to_vec(), b"".to_vec(), b"last".to_vec()]);
        assert_eq!(next_batch(&mut [].as_slice()).expect("readable"), None);
        text = b"x\n".repeat(BATCH_MAX + 1);
        let mut rest = text.as_slice();
        assert_eq!(next_batch(&mut rest).expect("readable").map(|batch| batch.len()), Some(BATCH_MAX));
        assert_eq!(next_batch(&mut rest).expect("readable").map(|batch| batch.len()), Some(1));
        text = [vec![b'x'; PAYLOAD_BYTES_MAX], vec![b'\n']].concat().repeat(3);
        assert_eq!(next_batch(&mut text.as_slice()).expect("readable").map(|batch| batch.len()), Some(2));
    }

    #[test]
    fn results_are_counted_and_busy_ones_are_asked_again() {
        let messages: Vec<Value> = (0..4).map(|number| json!({"payload_b64": number})).collect();
        let results = [
            json!({"msg_id": "01", "duplicate": false}),
            json!({"msg_id": "02", "duplicate": true}),
            json!({"error": {"code": "E_SATURATED", "detail": "full"}}),
            json!({"error": {"code": "E_SCHEMA", "detail": "group: too long"}}),
        ];
        let mut tally = Tally::default();
        assert_eq!(tally.count(messages.clone(), &results, false), [messages[2].clone()]);
        let expected =
            "2 messages sent in 2.0 s, 1 a second; 1 duplicate; 1 refused, the first: E_SCHEMA group: too long\n";
        assert_eq!(tally.in_words(2.0), expected);
        assert_eq!(tally.count(vec![messages[2].clone()], &results[2..3], true), Vec::<Value>::new());
        assert_eq!((tally.sent, tally.refused), (2, 2));
        assert!(tally.has_given_up && tally.in_words(0.0).ends_with("were not sent\n"), "{tally:?}");
        assert_eq!(tally.waiting(), "2 messages sent; the node refuses more: full; trying again");
    }
}
