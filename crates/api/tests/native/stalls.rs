//! A reader of a stream that stops reading.

use std::time::Duration;

use ron_api::HttpLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Node, within};

const MESSAGES: usize = 24;
const PAYLOAD_BYTES: usize = 256 * 1024;

/// Opens a stream and reads no more than where it begins; its id, and the connection.
async fn open_stream(node: &Node) -> (String, TcpStream) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small window");
    let mut stream = socket.connect(node.address).await.expect("the node listens");
    let body = json!({"topic": "jobs", "credit": 1000, "visibility_ms": 1000}).to_string();
    let head = format!(
        "POST /v1/recv/stream HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        node.token,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("the node reads");
    let mut begin = String::new();
    while !begin.contains("\r\n\r\n") {
        begin.push(char::from(stream.read_u8().await.expect("an answer")));
    }
    let id = begin.lines().find_map(|line| line.strip_prefix("x-stream-id: ")).expect("an id");
    (id.to_owned(), stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_nobody_reads_ends_and_its_messages_come_back() {
    let node = Node::with(HttpLimits { write_stall: Duration::from_millis(300), ..HttpLimits::default() }).await;
    let payload = "A".repeat(PAYLOAD_BYTES / 3 * 4);
    for _ in 0..MESSAGES {
        node.ok("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": payload})).await;
    }
    let (id, _connection) = within(open_stream(&node)).await;
    let stalls = node.metrics.io_timeouts.at("write");
    within(async {
        while stalls.get() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(async {
        // The connection's end and the stream's are one, but the count comes first.
        let credit = format!("/v1/recv/stream/{id}/credit");
        while node.ask("POST", &credit, json!({"credit": 1})).await.0 != 404 {}
        while node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await["total"]["leased"] != 0 {}
    })
    .await;
    let stats = node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await;
    let total = &stats["total"];
    assert!(total["delivered"].as_u64().is_some_and(|delivered| delivered > 0), "{stats}");
    let held = total["ready"].as_u64().unwrap_or(0) + total["delayed"].as_u64().unwrap_or(0);
    assert_eq!(held, MESSAGES as u64, "{stats}");
    assert_eq!(stalls.get(), 1);
}
