//! What callers without a credential, slow peers and web pages can take from others: nothing.

mod bodies;
mod crowds;
mod frames;
mod pages;
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

/// A connection from another address of this machine.
async fn connect_from(source: [u8; 4], node: &Node) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("every address of 127/8 is ours");
    socket.connect(node.api).await.expect("the node listens")
}

/// Sends a request without a body and reads the head of its answer, for as long as it takes.
async fn status_of(mut stream: TcpStream, request_line: &str, headers: &str) -> String {
    let request = format!("{request_line} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("the node reads");
    read_head(&mut stream).await.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn rule_09_an_address_without_a_name_has_half_of_a_route_and_no_more() {
    let node = options().amnesia().dev().config("[http]\nroute_concurrency = 8\n").start().await.expect("started");
    let mut greedy = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let stream = connect_from([127, 0, 0, 3], &node).await;
        greedy.spawn(status_of(stream, "GET /v1/work?ms=60000", "x-request-deadline-ms: 30000\r\n"));
    }
    for _ in 0..8 {
        let refused = tokio::time::timeout(SLACK, greedy.join_next()).await.expect("refused at once");
        assert_eq!(refused.expect("one of them").expect("no panic"), "429");
    }
    for neighbour in 4..8 {
        let stream = connect_from([127, 0, 0, neighbour], &node).await;
        assert_eq!(status_of(stream, "GET /v1/work?ms=1", "").await, "200");
    }
    assert!(greedy.try_join_next().is_none(), "half of the route's permits are held to the end");
}

/// Every way to wait, each as a request of this bearer that is answered only when something happens.
fn waits(token: &str) -> [(&'static str, String, &'static str); 4] {
    let bearer = format!("authorization: Bearer {token}\r\nx-request-deadline-ms: 30000\r\n");
    let json = format!("{JSON}{bearer}");
    let sqs = format!("content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.ReceiveMessage\r\n{bearer}");
    [
        ("POST /v1/recv", json.clone(), r#"{"topic":"idle","wait_ms":20000}"#),
        ("POST /v1/recv/stream", json, r#"{"topic":"idle","credit":1}"#),
        ("GET /v1/events", bearer, ""),
        ("POST /", sqs, r#"{"QueueUrl":"/000000000000/idle","WaitTimeSeconds":20}"#),
    ]
}

/// Begins to wait; the connection is kept, because closing it ends the wait.
async fn begin_wait(node: &Node, (request_line, headers, body): &(&str, String, &str)) -> TcpStream {
    let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
    let length = body.len();
    let request =
        format!("{request_line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("the node reads");
    stream
}

#[tokio::test]
async fn rule_09_everything_that_waits_has_shares() {
    let node = options().amnesia().config("[http]\nwaiting_max = 8\n").start().await.expect("started");
    make_topic(&node, "idle").await;
    let (greedy, honest) = (waits(&tenant(&node, "greedy").await), waits(&tenant(&node, "honest").await));
    let mut held = Vec::new();
    for (number, wait) in greedy.iter().enumerate() {
        held.push(begin_wait(&node, wait).await);
        let wanted = (number + 1) as f64;
        testkit::eventually("it waits", async || (node.metric("http_waiting").await == wanted).then_some(())).await;
    }
    for wait in &greedy {
        let mut refused = begin_wait(&node, wait).await;
        let head = tokio::time::timeout(SLACK, read_head(&mut refused)).await.expect("refused at once");
        assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("retry-after: "), "{wait:?}: {head}");
    }
    held.push(begin_wait(&node, &honest[0]).await);
    testkit::eventually("another waits", async || (node.metric("http_waiting").await == 5.0).then_some(())).await;
    drop(held);
    testkit::eventually("nobody waits", async || (node.metric("http_waiting").await == 0.0).then_some(())).await;
}
