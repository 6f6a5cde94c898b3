//! What callers without a credential, slow peers and web pages can take from others: nothing.

#[path = "callers_bodies.rs"]
mod bodies;
#[path = "callers_crowds.rs"]
mod crowds;
#[path = "callers_pages.rs"]
mod pages;
#[path = "callers_windows.rs"]
mod windows;

use std::time::Duration;

use http::Method;
use serde_json::json;
use testkit::{Node, Plane};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::options;

/// What a loaded machine may take for something that should come at once.
const SLACK: Duration = Duration::from_secs(10);

/// A token of this subject that may do everything to every topic.
async fn tenant(node: &Node, subject: &str) -> String {
    let body = json!({"subject": subject, "rights": ["mailbox:*:*"]}).to_string();
    let bearer = format!("Bearer {}", node.token);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let minted = node.post(Plane::Api, "/v1/tokens", body, &headers).await.expect("answered");
    minted.json().expect("minted")["token"].as_str().expect("a token").to_owned()
}

/// Makes a topic as the operator.
async fn make_topic(node: &Node, name: &str) {
    let mut operator = testkit::MailboxClient::of(node).await.expect("connected");
    operator.call(Method::PUT, &format!("/v1/topics/{name}"), &json!({})).await.expect("made");
}

/// The first bytes of an answer up to the end of its head.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Sends the head of a request whose body never comes.
async fn announce(node: &Node, target: &str, headers: &str, body_bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
    let host = node.api;
    let head = format!("POST {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {body_bytes}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("the node reads");
    stream
}

const JSON: &str = "content-type: application/json\r\n";
const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

/// Heads whose credential is missing, malformed or of nobody, with the status that refuses them.
fn strangers() -> Vec<(&'static str, String, u16)> {
    let scope = "20260101/us-east-1/sqs/aws4_request";
    let signed = format!(
        "{FORM}authorization: AWS4-HMAC-SHA256 Credential=AKIDNOBODY/{scope}, SignedHeaders=host;x-amz-date, \
         Signature={}\r\nx-amz-date: 20260101T000000Z\r\n",
        "0".repeat(64)
    );
    vec![
        ("/v1/send", JSON.to_owned(), 401),
        ("/v1/send", format!("{JSON}authorization: Bearer nonsense\r\n"), 401),
        ("/v1/recv", format!("{JSON}authorization: Basic nonsense\r\n"), 401),
        ("/v1/ack/01ARZ3NDEKTSV4RRFFQ69G5FAV", format!("{JSON}authorization: Bearer {}\r\n", "0".repeat(64)), 401),
        ("/v1/tokens", format!("{JSON}authorization: Bearer {}\r\n", "f".repeat(64)), 401),
        ("/", FORM.to_owned(), 403),
        ("/000000000000/jobs", format!("{FORM}authorization: Bearer nonsense\r\n"), 403),
        ("/", signed, 403),
        ("/", "x-amz-target: AmazonSQS.SendMessage\r\nauthorization: AWS4-HMAC-SHA256 x\r\n".to_owned(), 400),
    ]
}

#[tokio::test]
async fn rule_09_nothing_is_read_for_a_caller_without_a_credential() {
    let node = options().amnesia().start().await.expect("started");
    for (target, headers, status) in strangers() {
        // Whoever is told to go on has had its body asked for.
        let mut stream = announce(&node, target, &format!("{headers}expect: 100-continue\r\n"), 100_000).await;
        let head = tokio::time::timeout(SLACK, read_head(&mut stream)).await.expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {headers}: {head}");
    }
    assert_eq!(node.metric(r#"io_timeouts_total{op="read"}"#).await, 0.0, "nobody waited for a body");
    assert_eq!(node.metric("http_body_bytes").await, 0.0);
}

#[tokio::test]
async fn rule_09_strangers_take_no_permits() {
    let node = options().amnesia().config("[http]\nroute_concurrency = 2\n").start().await.expect("started");
    make_topic(&node, "jobs").await;
    let mut held = Vec::new();
    for (target, headers, _) in strangers().into_iter().cycle().take(64) {
        held.push(announce(&node, target, &headers, 100_000).await);
    }
    let token = tenant(&node, "honest").await;
    let mut honest = testkit::MailboxClient::connect(node.api, &token).await.expect("connected");
    for _ in 0..20 {
        let message = testkit::Outgoing { topic: "jobs", payload: b"x", ..testkit::Outgoing::default() };
        honest.send(message).await.expect("there is a permit");
    }
    assert_eq!(node.metric(r#"busy_rejections_total{endpoint="/v1/send"}"#).await, 0.0);
}
