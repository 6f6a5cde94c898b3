//! The framed port: frames that are good, too large, cut off, slow, or come when there is no room.

use std::net::SocketAddr;
use std::time::Duration;

use testkit::{Client, Node};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::wire::{self, within};
use crate::{SLACK, assert_still_serves, options, start, wait_for_metric};

const MIB: usize = 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
const REPLY_OK: u8 = 0;
const REPLY_PROBLEM: u8 = 1;

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short enough for the header");
    [length.to_be_bytes().as_slice(), payload].concat()
}

/// The first byte of a reply and the rest of it; none if the stream ends instead.
async fn read_reply(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let length = stream.read_u32().await.ok()?;
    let mut reply = vec![0; length as usize];
    stream.read_exact(&mut reply).await.ok()?;
    let payload = reply.split_off(1);
    Some((reply[0], payload))
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("the node listens")
}

async fn ask(stream: &mut TcpStream, payload: &[u8]) -> (u8, Vec<u8>) {
    let bytes = frame(payload);
    let exchange = async {
        stream.write_all(&bytes).await.expect("the node reads");
        read_reply(stream).await.expect("a reply")
    };
    within(SLACK, "a reply", exchange).await
}

fn code_of(reply: &(u8, Vec<u8>)) -> String {
    assert_eq!(reply.0, REPLY_PROBLEM, "a problem was expected");
    let problem: serde_json::Value = serde_json::from_slice(&reply.1).expect("a problem is JSON");
    problem["code"].as_str().expect("every problem has a code").to_owned()
}

async fn assert_frames_work(node: &Node) {
    let mut stream = connect(node.oap).await;
    assert_eq!(ask(&mut stream, b"still here").await, (REPLY_OK, b"still here".to_vec()));
}

#[tokio::test]
async fn good_frames_come_back_whatever_their_size_and_pace() {
    let node = start("").await;
    let mut stream = connect(node.oap).await;
    for payload in [b"a frame".to_vec(), Vec::new(), vec![7; MIB]] {
        let reply = ask(&mut stream, &payload).await;
        assert!(reply == (REPLY_OK, payload.clone()), "{} bytes do not come back", payload.len());
    }
    stream.set_nodelay(true).expect("a socket");
    for byte in frame(b"one byte at a time") {
        stream.write_all(&[byte]).await.expect("the node reads");
        stream.flush().await.expect("the node reads");
        tokio::task::yield_now().await;
    }
    let reply = within(SLACK, "a reply", read_reply(&mut stream)).await.expect("a reply");
    assert_eq!(reply, (REPLY_OK, b"one byte at a time".to_vec()));

    let both = [frame(b"first"), frame(b"second")].concat();
    stream.write_all(&both).await.expect("the node reads");
    for expected in [b"first".as_slice(), b"second"] {
        let reply = within(SLACK, "a reply", read_reply(&mut stream)).await.expect("a reply");
        assert_eq!(reply, (REPLY_OK, expected.to_vec()), "two frames in one write");
    }
}

#[tokio::test]
async fn frames_over_the_limit_are_refused_by_their_header() {
    let node = start("").await;
    assert_frames_work(&node).await;
    let before = node.rss_bytes();
    let too_large = (MIB as u32 + 1).to_be_bytes();
    for (what, bytes, rejected) in [
        ("one byte over, announced", too_large.to_vec(), 1.0),
        ("one byte over, sent", [too_large.as_slice(), &vec![0; MIB + 1]].concat(), 2.0),
        ("4 GiB announced", vec![0xff; 4], 3.0),
        ("4 GiB begun", vec![0xff; 64 * 1024], 4.0),
    ] {
        let mut stream = connect(node.oap).await;
        // The refusal may come before everything is sent.
        let _ = stream.write_all(&bytes).await;
        let reply = within(SLACK, what, read_reply(&mut stream)).await.unwrap_or_else(|| panic!("{what}: no reply"));
        assert_eq!(code_of(&reply), "E_FRAME_TOO_LARGE", "{what}");
        assert!(within(SLACK, what, wire::read_to_close(&mut stream)).await.is_empty(), "{what}: then it closes");
        assert_eq!(node.metric("frame_reject_total{reason=\"too_large\"}").await, rejected, "{what}");
    }
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "{grown} bytes more than before");
    assert_frames_work(&node).await;
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn many_peers_that_announce_much_and_send_little_cost_little() {
    let node = start("").await;
    assert_frames_work(&node).await;
    let before = node.rss_bytes();
    let mut peers = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(node.oap).await;
        let announced = [(MIB as u32).to_be_bytes().as_slice(), &[0; 100]].concat();
        stream.write_all(&announced).await.expect("the node reads");
        peers.push(stream);
    }
    assert_frames_work(&node).await;
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 48 * MIB as u64, "{grown} bytes for 200 frames that were only announced");
}

#[tokio::test]
async fn silence_on_the_framed_port_ends() {
    let node = start("[io]\nread_timeout = \"1s\"\nidle_timeout = \"2s\"\n").await;
    let mut attackers = JoinSet::new();
    for (what, bytes) in [
        ("nothing at all", Vec::new()),
        ("half a header", vec![0, 0]),
        ("half a frame", [9_u32.to_be_bytes().as_slice(), b"half"].concat()),
        ("a rest after a frame", frame(b"then silence")),
    ] {
        let mut stream = connect(node.oap).await;
        attackers.spawn(async move {
            stream.write_all(&bytes).await.expect("the node reads");
            within(HANDSHAKE_TIMEOUT + SLACK, what, wire::read_to_close(&mut stream)).await;
        });
    }
    assert_frames_work(&node).await;
    while let Some(ended) = attackers.join_next().await {
        ended.expect("no silent peer is kept");
    }
    assert_frames_work(&node).await;
    assert!(node.metric("io_timeouts_total{op=\"read\"}").await >= 4.0);
}

#[tokio::test]
async fn dripping_frames_end_at_the_read_timeout() {
    let node = start("[io]\nread_timeout = \"1s\"\n").await;
    let mut stream = connect(node.oap).await;
    stream.write_all(&100_u32.to_be_bytes()).await.expect("the node reads");
    let (mut reading, mut writing) = stream.split();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let drip = async {
        while writing.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        _ = within(Duration::from_secs(1) + SLACK, "the end", wire::read_to_close(&mut reading)) => {}
        () = drip => unreachable!("the sender never ends"),
    }
    assert_frames_work(&node).await;
}

#[tokio::test]
async fn without_dev_nobody_speaks_frames() {
    let node = options().start().await.expect("the node starts");
    let mut stream = connect(node.oap).await;
    assert_eq!(code_of(&ask(&mut stream, b"anyone?").await), "E_NOT_FOUND");
    assert_eq!(code_of(&ask(&mut stream, b"really?").await), "E_NOT_FOUND", "the connection goes on");
}

#[tokio::test]
async fn a_full_work_queue_is_said_at_once() {
    let few = options().dev().env("MACRO_WORKERS", "1").env("MACRO_QUEUES__WORK", "1");
    let node = few.start().await.expect("the node starts");
    let mut stream = connect(node.oap).await;
    let mut slow = JoinSet::new();
    let mut begin = async || {
        let mut client = Client::connect(node.api).await.expect("the node listens");
        slow.spawn(async move {
            let patient = [("x-request-deadline-ms", "20000")];
            client.request(http::Method::GET, "/v1/work?ms=3000", &patient, "").await.expect("an answer").status
        });
    };
    begin().await;
    wait_for_metric(&node, "queue_high_water{queue=\"work\"}", |most| most >= 1.0).await;
    wait_for_metric(&node, "queue_depth{queue=\"work\"}", |waiting| waiting == 0.0).await;
    begin().await;
    wait_for_metric(&node, "queue_depth{queue=\"work\"}", |waiting| waiting == 1.0).await;
    let reply = within(Duration::from_secs(2), "Busy", async {
        stream.write_all(&frame(b"no room")).await.expect("the node reads");
        read_reply(&mut stream).await.expect("a reply")
    });
    let reply = reply.await;
    assert_eq!(code_of(&reply), "E_SATURATED");
    let problem: serde_json::Value = serde_json::from_slice(&reply.1).expect("JSON");
    assert!(problem["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{problem}");
    while let Some(status) = slow.join_next().await {
        assert_eq!(status.expect("a client ends"), 200, "what was accepted is done");
    }
    assert_frames_work(&node).await;
}
