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

/// Asks for a message and reads nothing of the answer.
async fn receive_without_reading(node: &Node) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small window");
    let mut stream = socket.connect(node.address).await.expect("the node listens");
    let body = json!({"topic": "jobs", "max_bytes": 4_194_304}).to_string();
    let head = format!(
        "POST /v1/recv HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        node.token,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("the node reads");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_nobody_reads_fill_the_share_of_their_caller_and_cost_no_delivery() {
    // One answer takes a quarter at most. Two fit in, and another large one does not.
    let capacity = 4 << 20;
    let node = Node::with(HttpLimits { answer_memory_bytes_max: capacity, ..HttpLimits::default() }).await;
    let send = async |bytes: usize| {
        let payload = "A".repeat(bytes / 3 * 4);
        node.ok("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": payload})).await;
    };
    let held = &node.metrics.http_answer_bytes;
    let until_held = async |bytes: std::ops::RangeInclusive<i64>| {
        within(async {
            while !bytes.contains(&held.get()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    send(1 << 20).await;
    let largest = receive_without_reading(&node).await;
    until_held(capacity as i64 / 4..=capacity as i64 / 4).await;
    send(512 << 10).await;
    let large = receive_without_reading(&node).await;
    until_held(1_700_000..=1_800_000).await;

    send(1 << 20).await;
    let (status, refusal) = node.ask("POST", "/v1/recv", json!({"topic": "jobs", "max_bytes": 4_194_304})).await;
    assert_eq!((status, &refusal["code"]), (429, &json!("E_SATURATED")), "{refusal}");
    assert_eq!(node.metrics.busy_rejections.at("answer_memory").get(), 1);
    let stats = node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await;
    assert_eq!((&stats["total"]["leased"], &stats["total"]["ready"]), (&json!(2), &json!(1)), "{stats}");

    drop((largest, large));
    until_held(0..=0).await;
    let received = node.ok("POST", "/v1/recv", json!({"topic": "jobs"})).await;
    assert_eq!(received["messages"][0]["attempt"], 1, "what was refused was no delivery");
}
