//! Bodies: caps, codings, media types and pauses.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use ron_api::HttpLimits;

use crate::harness::{Node, post};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector grows");
    encoder.finish().expect("a vector grows")
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector grows");
    encoder.finish().expect("a vector grows")
}

/// Text that a compressor can do little with, so that more than a chunk of it remains.
fn noise(bytes: u64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test]
async fn a_declared_length_over_the_cap_is_refused_at_once_and_the_refusal_arrives() {
    let node = Node::start(HttpLimits { body_bytes_max: 1000, ..HttpLimits::default() }).await;
    assert_eq!(node.ask(post("/length", "", [7; 1000])).await.text(), "1000");
    let head = "POST /length HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000\r\n\r\n";
    node.ask(head).await.problem(413, "E_FRAME_TOO_LARGE");
    let mut client = node.connect().await;
    client.send(head).await;
    // Much more than the socket buffers hold follows; it is taken and thrown away, or the answer could be lost.
    client.send(vec![0; 8_000_000]).await;
    let answer = client.answer().await;
    answer.problem(413, "E_FRAME_TOO_LARGE");
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(node.metrics().frame_rejects.at("body").get(), 2);
}

#[tokio::test]
async fn a_streamed_body_is_cut_at_the_cap() {
    let node = Node::start(HttpLimits { body_bytes_max: 1000, ..HttpLimits::default() }).await;
    let chunk = format!("1f4\r\n{}\r\n", "c".repeat(500));
    let head = "POST /length HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let fits = format!("{head}{chunk}{chunk}0\r\n\r\n");
    assert_eq!(node.ask(&fits).await.text(), "1000");
    let mut client = node.connect().await;
    client.send(format!("{head}{chunk}{chunk}{chunk}")).await;
    client.answer().await.problem(413, "E_FRAME_TOO_LARGE");
    assert_eq!(node.metrics().frame_rejects.at("body").get(), 1);
}

#[tokio::test]
async fn compressed_bodies_are_inflated_within_reason() {
    let node = Node::start(HttpLimits::default()).await;
    let large = noise(300_000);
    for (coding, body, length) in [
        ("gzip", gzip(b"hello"), 5),
        ("deflate", zlib(b"hello"), 5),
        ("gzip", gzip(&[b'a'; 60_000]), 60_000),
        ("gzip", gzip(&large), large.len()),
    ] {
        let answer = node.ask(post("/length", &format!("content-encoding: {coding}\r\n"), &body)).await;
        assert_eq!((answer.status, answer.text()), (200, length.to_string().as_str()), "{coding}");
    }
    for bomb in [gzip(&vec![0; 3_000_000]), gzip(&vec![0; 40_000_000])] {
        let answer = node.ask(post("/length", "content-encoding: gzip\r\n", &bomb)).await;
        answer.problem(413, "E_FRAME_TOO_LARGE");
    }
    assert_eq!(node.metrics().frame_rejects.at("inflate").get(), 2);
    node.ask(post("/length", "content-encoding: gzip\r\n", "plain")).await.problem(400, "E_SCHEMA");
    node.ask(post("/length", "content-encoding: br\r\n", "x")).await.problem(415, "E_SCHEMA");
}

#[tokio::test]
async fn json_routes_want_json() {
    let node = Node::start(HttpLimits::default()).await;
    let body = r#"{"message": "a"}"#;
    node.ask(post("/v1/echo", "", body)).await.problem(415, "E_SCHEMA");
    node.ask(post("/v1/echo", "content-type: text/plain\r\n", body)).await.problem(415, "E_SCHEMA");
    let packed = gzip(body.as_bytes());
    let headers = "content-type: application/json; charset=utf-8\r\ncontent-encoding: gzip\r\n";
    assert_eq!(node.ask(post("/v1/echo", headers, packed)).await.status, 200);
}

#[tokio::test]
async fn a_body_that_pauses_is_given_up() {
    let limits = HttpLimits {
        read_timeout: Duration::from_millis(100),
        request_deadline: Duration::from_secs(15),
        ..HttpLimits::default()
    };
    let node = Node::start(limits).await;
    let mut client = node.connect().await;
    client.send("POST /length HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf").await;
    let answer = client.answer().await;
    answer.problem(504, "E_TIMEOUT");
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(client.closed().await, 0);
    assert_eq!(node.metrics().io_timeouts.at("read").get(), 1);
    assert_eq!(node.metrics().io_timeouts.at("request").get(), 0);
}

#[tokio::test]
async fn reading_the_body_counts_into_the_deadline() {
    let node = Node::start(HttpLimits { request_deadline: Duration::from_millis(100), ..HttpLimits::default() }).await;
    let mut client = node.connect().await;
    client.send("POST /length HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf").await;
    client.answer().await.problem(504, "E_TIMEOUT");
    assert_eq!(node.metrics().io_timeouts.at("request").get(), 1);
}
