//! Request bodies in memory: one budget, of which everybody has a share, and forms that are no bombs.

use http::Method;
use serde_json::json;
use testkit::{Client, MailboxClient, Outgoing, eventually};

use super::{JSON, SLACK, announce, make_topic, read_head, tenant};
use crate::options;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn rule_11_bodies_share_one_budget_and_nobody_has_all_of_it() {
    let node = options().amnesia().config("[http]\nbody_memory = \"16MiB\"\n").start().await.expect("started");
    make_topic(&node, "jobs").await;
    let (greedy, honest) = (tenant(&node, "greedy").await, tenant(&node, "honest").await);
    let headers = format!("{JSON}authorization: Bearer {greedy}\r\nx-request-deadline-ms: 30000\r\n");

    // Four of them would fill the memory; the caller alone can have half of it.
    let mut held = Vec::new();
    for number in 0..2 {
        held.push(announce(&node, "/v1/send", &headers, 4 * MIB).await);
        let wanted = ((number + 1) * 4 * MIB) as f64;
        eventually("a body is reserved when it is announced", async || {
            (node.metric("http_body_bytes").await == wanted).then_some(())
        })
        .await;
    }
    let mut refused = announce(&node, "/v1/send", &headers, 4 * MIB).await;
    let head = tokio::time::timeout(SLACK, read_head(&mut refused)).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("retry-after: "), "{head}");
    assert_eq!(node.metric(r#"busy_rejections_total{endpoint="body_memory"}"#).await, 1.0);

    let mut client = MailboxClient::connect(node.api, &honest).await.expect("connected");
    let payload = vec![7; MIB];
    let message = Outgoing { topic: "jobs", payload: &payload, ..Outgoing::default() };
    client.send(message).await.expect("another caller has its share");

    drop(held);
    eventually("bodies that ended are given back", async || {
        (node.metric("http_body_bytes").await == 0.0).then_some(())
    })
    .await;
    let mut client = MailboxClient::connect(node.api, &greedy).await.expect("connected");
    client.send(message).await.expect("its share is free again");
}

#[tokio::test]
async fn rule_11_bodies_without_a_length_are_counted_as_they_come() {
    use tokio::io::AsyncWriteExt as _;

    let node = options().amnesia().config("[http]\nbody_memory = \"16MiB\"\n").start().await.expect("started");
    let token = tenant(&node, "greedy").await;
    let mut stream = tokio::net::TcpStream::connect(node.api).await.expect("the node listens");
    let head = format!(
        "POST /v1/send HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n{JSON}authorization: Bearer {token}\r\n\
         x-request-deadline-ms: 30000\r\n\r\n",
        node.api
    );
    stream.write_all(head.as_bytes()).await.expect("the node reads");
    let chunk = [format!("{MIB:x}\r\n").into_bytes(), vec![b' '; MIB], b"\r\n".to_vec()].concat();
    for mib in 1..=3 {
        stream.write_all(&chunk).await.expect("the node reads");
        eventually("what has come is counted", async || {
            (node.metric("http_body_bytes").await >= (mib * MIB) as f64).then_some(())
        })
        .await;
    }
    drop(stream);
    eventually("a body that broke off is given back", async || {
        (node.metric("http_body_bytes").await == 0.0).then_some(())
    })
    .await;
}

/// A request with this form, signed wrongly with a key that exists.
async fn forged(client: &mut Client, key: &str, form: String) -> (u16, String) {
    let (day, second) = now();
    let credential = format!("{key}/{day}/us-east-1/sqs/aws4_request");
    let signature = "0".repeat(64);
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature={signature}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("x-amz-date", second.as_str()),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let reply = client.request(Method::POST, "/", &headers, form).await.expect("answered");
    (reply.status, reply.text())
}

/// The day and the second as signatures name them.
fn now() -> (String, String) {
    let output = std::process::Command::new("date").args(["-u", "+%Y%m%d %Y%m%dT%H%M%SZ"]).output().expect("date runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let (day, second) = text.trim().split_once(' ').expect("two words");
    (day.to_owned(), second.to_owned())
}

#[tokio::test]
async fn rule_11_forms_are_looked_into_after_the_signature_and_only_so_far() {
    let node = options().amnesia().start().await.expect("started");
    let mut operator = MailboxClient::of(&node).await.expect("connected");
    let key = operator.post("/v1/sqs/keys", &json!({"note": "test"})).await.expect("made");
    let key = key["access_key_id"].as_str().expect("an id").to_owned();
    let mut client = Client::connect(node.api).await.expect("connected");
    // What the form says is not looked at: neither an action that does not exist nor one too many pairs.
    let pairs = "a=b&".repeat(MIB - 10);
    for form in ["Action=Fly".to_owned(), pairs.clone()] {
        let (status, text) = forged(&mut client, &key, form).await;
        assert!(status == 403 && text.contains("SignatureDoesNotMatch"), "{status} {text}");
    }
    let bearer = format!("Bearer {}", node.token);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let reply = client.request(Method::POST, "/", &headers, pairs).await.expect("answered");
    assert!(reply.status == 400 && reply.text().contains("too many parameters"), "{} {}", reply.status, reply.text());
    // As many as the largest batch has.
    let members: String = (0..3_000).map(|number| format!("&x.{number}=y")).collect();
    let form = format!("Action=ListQueues&Version=2012-11-05{members}");
    let reply = client.request(Method::POST, "/", &headers, form).await.expect("answered");
    assert_eq!(reply.status, 200, "{}", reply.text());
}
