//! Requests that are too large, in every way a request can be: the refusal comes early and memory stays flat.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::wire::{self, Answer, within};
use crate::hostile::{SLACK, assert_still_serves, start};

const MIB: usize = 1024 * 1024;
const JSON: (&str, &str) = ("content-type", "application/json");

async fn answer_to(node: &testkit::Node, bytes: &[u8]) -> Answer {
    within(Duration::from_secs(5) + SLACK, "an answer", wire::send(node.api, bytes)).await.expect("an answer")
}

#[tokio::test]
async fn heads_over_the_limit_are_431() {
    let node = start("").await;
    let line = "a".repeat(1024);
    let headers = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), line.as_str())).collect();
        wire::request("GET", "/v1/work?ms=1", &pairs, b"")
    };
    assert_eq!(answer_to(&node, &headers(15)).await.status, 200);
    answer_to(&node, &headers(20)).await.assert_problem(431, "E_FRAME_TOO_LARGE", "20 KiB of headers");
    assert_eq!(node.metric("frame_reject_total{reason=\"header\"}").await, 1.0);
    // The larger ones never reach a route, and are answered by the HTTP library itself.
    assert_eq!(answer_to(&node, &headers(200)).await.status, 431, "200 KiB of headers");
    let long = wire::request("GET", &format!("/{}", "a".repeat(60 * 1024)), &[], b"");
    assert!([414, 431].contains(&answer_to(&node, &long).await.status), "a path of 60 KiB");
    let many: Vec<String> = (0..5_000).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(answer_to(&node, &wire::request("GET", "/v1/work?ms=1", &many, b"")).await.status, 431);
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn bodies_over_the_limit_are_413() {
    let node = start("").await;
    let announced = wire::request("POST", "/v1/echo", &[JSON, ("content-length", "5242880")], b"");
    let mut waiting = TcpStream::connect(node.api).await.expect("the node listens");
    waiting.write_all(&announced).await.expect("the node reads");
    let answer = within(SLACK, "a refusal at once", wire::read_answer(&mut waiting)).await.expect("an answer");
    answer.expect("an answer").assert_problem(413, "E_FRAME_TOO_LARGE", "5 MiB announced, none sent");

    let whole = [announced, vec![b'a'; 5 * MIB]].concat();
    answer_to(&node, &whole).await.assert_problem(413, "E_FRAME_TOO_LARGE", "5 MiB sent");

    let mut chunked = wire::request("POST", "/v1/echo", &[JSON, ("transfer-encoding", "chunked")], b"");
    for _ in 0..80 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.extend_from_slice(&[b'a'; 64 * 1024]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    answer_to(&node, &chunked).await.assert_problem(413, "E_FRAME_TOO_LARGE", "5 MiB in chunks");
    assert_eq!(node.metric("frame_reject_total{reason=\"body\"}").await, 3.0);
    assert_still_serves(&node).await;

    let fits = wire::echo(&"a".repeat(4 * MIB - 1024));
    assert_eq!(answer_to(&node, &fits).await.status, 200, "just under the limit");
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector grows");
    encoder.finish().expect("a vector grows")
}

fn gzip_bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; MIB];
    for _ in 0..100 {
        encoder.write_all(&zeros).expect("a vector grows");
    }
    encoder.finish().expect("a vector grows")
}

fn packed(coding: &str, body: &[u8]) -> Vec<u8> {
    wire::request("POST", "/v1/echo", &[JSON, ("content-encoding", coding)], body)
}

#[tokio::test]
async fn bombs_do_not_go_off_in_memory() {
    let node = start("").await;
    assert_still_serves(&node).await;
    let before = node.rss_bytes();
    let bomb = gzip_bomb();
    assert!(bomb.len() < 200 * 1024, "100 MiB in {} bytes", bomb.len());
    let mut attackers = JoinSet::new();
    for _ in 0..16 {
        let (address, request) = (node.api, packed("gzip", &bomb));
        attackers.spawn(async move {
            let answer = within(Duration::from_secs(5) + SLACK, "a refusal", wire::send(address, &request)).await;
            answer.expect("an answer").assert_problem(413, "E_FRAME_TOO_LARGE", "a bomb");
        });
    }
    while let Some(ended) = attackers.join_next().await {
        ended.expect("every bomb is refused");
    }
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB as u64, "{grown} bytes more than before");
    assert_eq!(node.metric("frame_reject_total{reason=\"inflate\"}").await, 16.0);
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn codings_are_known_whole_or_refused() {
    let node = start("").await;
    let message = br#"{"message":"packed"}"#;
    let good = answer_to(&node, &packed("gzip", &gzip(message))).await;
    assert_eq!((good.status, &good.json()["message"]), (200, &"packed".into()));
    let whole = gzip(message);
    for (what, request, status) in [
        ("truncated gzip", packed("gzip", &whole[..whole.len() - 6]), 400),
        ("text that says it is gzip", packed("gzip", message), 400),
        ("an unknown coding", packed("br", message), 415),
        ("two codings", packed("gzip, gzip", &gzip(&whole)), 415),
    ] {
        answer_to(&node, &request).await.assert_problem(status, "E_SCHEMA", what);
    }
    assert_still_serves(&node).await;
}
