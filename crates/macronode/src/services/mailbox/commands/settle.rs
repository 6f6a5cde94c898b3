//! `macronode mailbox ack` and `nack`: what becomes of messages that were received.

use http::Method;
use serde_json::{Value, json};

use super::args::{AckArgs, NackArgs};
use super::error_of;
use super::types::counted;
use crate::client::{ApiClient, PATIENCE};
use crate::commands::Report;
use crate::errors::{Code, Exit, Failure};

/// Letters of a message id as a ULID and as a UUID; a receipt is longer.
const MSG_ID_LENS: [usize; 2] = [26, 36];
/// Maximum receipts in one request.
const BATCH_MAX: usize = ron_types::limits::mailbox::BATCH_MAX;

/// Acknowledges messages by their receipts.
pub async fn ack(args: &AckArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let results = settle(&mut client, "/v1/ack", &args.targets, &json!({})).await?;
    Ok(report(&results, "acknowledged", args.node.json))
}

/// Gives messages back by their receipts.
pub async fn nack(args: &NackArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let mut more = json!({});
    if let Some(reason) = &args.reason {
        more["reason"] = reason.as_str().into();
    }
    if let Some(delay) = args.delay {
        more["delay_ms"] = delay.0.into();
    }
    let results = settle(&mut client, "/v1/nack", &args.targets, &more).await?;
    Ok(report(&results, "given back", args.node.json))
}

/// Acknowledges leases that this process took a moment ago.
pub async fn ack_receipts(client: &mut ApiClient, receipts: &[&str]) -> Result<(), Failure> {
    let targets: Vec<String> = receipts.iter().map(|receipt| (*receipt).to_owned()).collect();
    let results = settle(client, "/v1/ack", &targets, &json!({})).await?;
    match results.iter().find(|(_, result)| !is_done(result)) {
        None => Ok(()),
        Some((_, result)) => {
            let (code, detail) = error_of(result);
            Err(Failure::new(Code::NodeRefused, format!("a message was not acknowledged: {code} {detail}")))
        }
    }
}

/// Settles receipts together and message ids one by one; the results come in the order of the targets.
async fn settle(
    client: &mut ApiClient,
    path: &str,
    targets: &[String],
    more: &Value,
) -> Result<Vec<(String, Value)>, Failure> {
    let mut results = Vec::with_capacity(targets.len());
    let receipts: Vec<&String> = targets.iter().filter(|target| !is_message_id(target)).collect();
    for receipts in receipts.chunks(BATCH_MAX) {
        let mut body = more.clone();
        body["receipts"] = json!(receipts);
        let answer: Value = client.post(path, &body).await?.read(path)?;
        let answered = answer["results"].as_array().cloned().unwrap_or_default();
        let answered = answered.into_iter().chain(std::iter::repeat(Value::Null));
        results.extend(receipts.iter().map(|receipt| (*receipt).clone()).zip(answered));
    }
    for id in targets.iter().filter(|target| is_message_id(target)) {
        let path = format!("{path}/{id}");
        let answer = client.ask(Method::POST, &path, Some(more), PATIENCE).await?;
        let result = match answer.status {
            // One message that is no longer leased is no reason to leave out the others.
            404 | 409 => json!({"msg_id": id, "error": answer.read::<Value>(&path)?}),
            _ => client.accepted(&path, answer)?.read(&path)?,
        };
        results.push((id.clone(), result));
    }
    results.sort_by_key(|(target, _)| targets.iter().position(|known| known == target));
    Ok(results)
}

fn is_message_id(target: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    MSG_ID_LENS.contains(&target.len()) && target.bytes().all(is_letter)
}

fn is_done(result: &Value) -> bool {
    !result.is_null() && result["error"].is_null()
}

fn report(results: &[(String, Value)], done: &str, is_json: bool) -> Report {
    let failed = results.iter().filter(|(_, result)| !is_done(result)).count();
    let exit = if failed == 0 { Exit::Clean } else { Exit::Failed };
    if is_json {
        let results: Vec<&Value> = results.iter().map(|(_, result)| result).collect();
        return Report { text: format!("{}\n", json!({"results": results})), exit };
    }
    let mut text = String::new();
    for (target, result) in results.iter().filter(|(_, result)| !is_done(result)) {
        let (code, detail) = error_of(result);
        text += &format!("{target}: {code} {detail}\n");
    }
    let dead = results.iter().filter(|(_, result)| result["dead"] == true).count();
    let dead = if dead > 0 { format!(", {dead} of them now dead") } else { String::new() };
    let count = counted((results.len() - failed) as u64, "message");
    Report { text: text + &format!("{count} {done}{dead}\n"), exit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_told_from_receipts() {
        assert!(is_message_id("01J5ZQ6B8M9X3T7V2K4C1D0EFG"));
        assert!(is_message_id("0191bf73-2d14-4f51-a3e8-9c1b5a0f3d0f"));
        for receipt in ["AAAAAAEAAQAAAAAAAAABAAAAxQ", "AQAAAAAAAQAAAAAAAAABAAAAxQAAAAAA_-", ""] {
            assert_eq!(is_message_id(receipt), MSG_ID_LENS.contains(&receipt.len()), "{receipt}");
        }
    }

    #[test]
    fn failures_are_named_and_fail() {
        let results = [
            ("r1".to_owned(), json!({"receipt": "r1", "ok": true})),
            (
                "r2".to_owned(),
                json!({"receipt": "r2", "error": {"code": "E_NOT_FOUND", "detail": "the lease is over"}}),
            ),
        ];
        let expected = Report {
            text: "r2: E_NOT_FOUND the lease is over\n1 message acknowledged\n".to_owned(),
            exit: Exit::Failed,
        };
        assert_eq!(report(&results, "acknowledged", false), expected);
        assert_eq!(report(&results[..1], "given back", false), Report::clean("1 message given back\n"));
        let dead = [("r1".to_owned(), json!({"receipt": "r1", "ok": true, "dead": true}))];
        assert_eq!(report(&dead, "given back", false), Report::clean("1 message given back, 1 of them now dead\n"));
        assert_eq!(report(&[("r3".to_owned(), Value::Null)], "acknowledged", true).exit, Exit::Failed);
    }
}
