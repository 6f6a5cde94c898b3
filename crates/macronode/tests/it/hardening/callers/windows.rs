//! An HTTP/2 peer that never opens its window: closed like one that does not read its socket.

use std::time::Duration;

use testkit::{Node, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::SLACK;
use crate::options;

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection that asks for the description of the plane and lets this many bytes of each answer out.
async fn ask_with_window(node: &Node, window: u32) -> TcpStream {
    let settings = [&[0, 4], window.to_be_bytes().as_slice()].concat();
    let fields = b"\x82\x86\x04\x0d/openapi.json\x01\x09localhost";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let asked = [preface, frame(4, 0, 0, &settings), frame(1, 5, 1, fields)].concat();
    let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
    stream.write_all(&asked).await.expect("the node reads");
    stream
}

/// Reads everything and answers each ping, as a peer does that is there; returns the bytes of answers.
async fn live_until_closed(mut stream: TcpStream) -> usize {
    let mut data = 0;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return data;
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).await.is_err() {
            return data;
        }
        let answer = match (head[3], head[4] & 1) {
            (0, _) => {
                data += length;
                continue;
            }
            (4, 0) => frame(4, 1, 0, &[]),
            (6, 0) => frame(6, 1, 0, &payload),
            _ => continue,
        };
        if stream.write_all(&answer).await.is_err() {
            return data;
        }
    }
}

#[tokio::test]
async fn rule_13_a_peer_that_never_opens_its_window_is_closed() {
    // An idle connection would last a minute: only the stall can end it in time.
    let node = options().amnesia().config("[connections]\nwrite_stall = \"1s\"\n").start().await.expect("started");
    for (number, window) in [0, 1, 5_000].into_iter().enumerate() {
        let stream = ask_with_window(&node, window).await;
        let closed = tokio::time::timeout(Duration::from_secs(1) + SLACK, live_until_closed(stream)).await;
        assert_eq!(closed.expect("the connection is closed"), window as usize, "all that fits is sent");
        let stalls = (number + 1) as f64;
        eventually("the stall is counted", async || {
            (node.metric(r#"io_timeouts_total{op="write"}"#).await == stalls).then_some(())
        })
        .await;
    }
    eventually("the connections are gone", async || {
        (node.metric(r#"connections_open{listener="http"}"#).await == 0.0).then_some(())
    })
    .await;
}
