//! The framed port: frames that are good, too large, cut off, slow, or come when there is no room; peers that never say
//! who they are.

use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Control, Flags, Frame, Hello, status};
use testkit::frames::{RawSession, echo_frame};
use testkit::{Client, Node};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::wire::{self, within};
use crate::hostile::{SLACK, assert_still_serves, start, wait_for_metric};
use crate::options;

const MIB: usize = 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

async fn hello(node: &Node) -> RawSession {
    RawSession::hello(node.oap, &node.token).await
}

async fn ask(raw: &mut RawSession, corr: u64, payload: &[u8]) -> Frame {
    within(SLACK, "a reply", raw.echo(corr, payload)).await
}

fn problem_of(frame: &Frame) -> serde_json::Value {
    serde_json::from_slice(&frame.payload).expect("a problem is JSON")
}

async fn assert_frames_work(node: &Node) {
    let mut raw = hello(node).await;
    let reply = ask(&mut raw, 1, b"still here").await;
    assert_eq!((reply.code, reply.corr, &reply.payload[..]), (status::OK, 1, &b"still here"[..]));
}

#[tokio::test]
async fn good_frames_come_back_whatever_their_size_and_pace() {
    let node = start("").await;
    let mut raw = hello(&node).await;
    let largest = vec![7; MIB - oap::HEADER_BYTES];
    for (corr, payload) in [(1, b"a frame".to_vec()), (2, Vec::new()), (3, largest)] {
        let reply = ask(&mut raw, corr, &payload).await;
        assert!(reply.payload == payload && reply.corr == corr, "{} bytes do not come back", payload.len());
    }
    for byte in echo_frame(4, b"one byte at a time") {
        raw.write(&[byte]).await;
    }
    let reply = within(SLACK, "a reply", raw.answer()).await.expect("a reply");
    assert_eq!(&reply.payload[..], b"one byte at a time");
    raw.write(&[echo_frame(5, b"first"), echo_frame(6, b"second")].concat()).await;
    for (corr, expected) in [(5, b"first".as_slice()), (6, b"second")] {
        let reply = within(SLACK, "a reply", raw.answer()).await.expect("a reply");
        assert_eq!((reply.corr, &reply.payload[..]), (corr, expected), "two frames in one write");
    }
}

#[tokio::test]
async fn frames_over_the_limit_are_refused_by_their_header() {
    let node = start("").await;
    assert_frames_work(&node).await;
    let before = node.rss_bytes();
    let too_large = (MIB as u32 + 1).to_be_bytes();
    for (what, bytes) in [
        ("one byte over, announced", too_large.to_vec()),
        ("4 GiB announced", vec![0xff; 4]),
        ("4 GiB begun", vec![0xff; 64 * 1024]),
        ("less than a header", vec![0, 0, 0, 5, 0, 1]),
    ] {
        let mut raw = hello(&node).await;
        // The refusal may come before everything is sent.
        let _ = raw.stream.write_all(&bytes).await;
        let code = within(SLACK, what, raw.farewell()).await.unwrap_or_else(|| panic!("{what}: no farewell"));
        assert!(code == status::TOO_LARGE || code == status::BAD_REQUEST, "{what}: {code}");
    }
    assert_eq!(node.metric("frame_reject_total{reason=\"too_large\"}").await, 3.0);
    assert_eq!(node.metric("frame_reject_total{reason=\"malformed\"}").await, 1.0);
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "{grown} bytes more than before");
    assert_frames_work(&node).await;
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn a_stranger_may_not_make_the_node_hold_much() {
    let node = start("").await;
    let mut raw = RawSession::connect(node.oap).await;
    raw.write(&Control::Hello(Hello::new(MIB as u32, 64)).to_frame().to_bytes()).await;
    assert!(raw.frame().await.is_some(), "HELLO is answered without a token");
    // 128 KiB would be read from a client that is known.
    let _ = raw.stream.write_all(&(128 * 1024_u32).to_be_bytes()).await;
    assert_eq!(within(SLACK, "a farewell", raw.farewell()).await, Some(status::TOO_LARGE));
    // With the token in the frame it is known from then on.
    let mut raw = RawSession::connect(node.oap).await;
    raw.write(&Control::Hello(Hello::new(MIB as u32, 64)).to_frame().to_bytes()).await;
    raw.frame().await.expect("a HELLO");
    let introduced = Frame::request(AppId::ECHO, 1, Bytes::from_static(b"me"));
    let introduced = introduced.with_flags(Flags::START | Flags::END).with_cap(node.token.clone());
    // Also in what comes in the same breath.
    raw.write(&[introduced.to_bytes().to_vec(), echo_frame(2, &vec![1; 512 * 1024])].concat()).await;
    for bytes in [2, 512 * 1024] {
        let reply = within(SLACK, "a reply", raw.answer()).await.expect("a reply");
        assert_eq!((reply.code, reply.payload.len()), (status::OK, bytes));
    }
}

#[tokio::test]
async fn many_peers_that_announce_much_and_send_little_cost_little() {
    // None of them is to be given up for its slowness before the last one has begun.
    let settings = "[connections]\nper_ip_max = 2048\n[io]\nread_timeout = \"600s\"\n";
    let node = options().dev().config(settings).start().await.expect("the node starts");
    assert_frames_work(&node).await;
    let before = node.rss_bytes();
    let mut peers = Vec::new();
    for _ in 0..1024 {
        let mut raw = hello(&node).await;
        raw.write(&(MIB as u32).to_be_bytes()).await;
        peers.push(raw);
    }
    assert_frames_work(&node).await;
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB as u64, "{grown} bytes for frames that were only announced");
    assert_eq!(node.metric("io_timeouts_total{op=\"read\"}").await, 0.0, "all of them are still there");
}

#[tokio::test]
async fn silence_on_the_framed_port_ends() {
    let node = start("[io]\nread_timeout = \"1s\"\n[overlay]\nidle_timeout = \"2s\"\n").await;
    let mut attackers = JoinSet::new();
    for (what, bytes) in [("nothing at all", Vec::new()), ("half a record", vec![22, 3, 1])] {
        let mut stream = TcpStream::connect(node.oap).await.expect("the node listens");
        attackers.spawn(async move {
            stream.write_all(&bytes).await.expect("the node reads");
            within(HANDSHAKE_TIMEOUT + SLACK, what, wire::read_to_close(&mut stream)).await;
        });
    }
    let mut without_hello = RawSession::connect(node.oap).await;
    attackers.spawn(async move {
        within(HANDSHAKE_TIMEOUT + SLACK, "no HELLO", async { while without_hello.frame().await.is_some() {} }).await;
    });
    for (what, bytes) in [("half a header", vec![0, 0]), ("half a frame", echo_frame(1, b"half")[..40].to_vec())] {
        let mut raw = hello(&node).await;
        attackers.spawn(async move {
            raw.write(&bytes).await;
            within(HANDSHAKE_TIMEOUT + SLACK, what, async { while raw.frame().await.is_some() {} }).await;
        });
    }
    assert_frames_work(&node).await;
    while let Some(ended) = attackers.join_next().await {
        ended.expect("no silent peer is kept");
    }
    assert_frames_work(&node).await;
    assert!(node.metric("handshake_timeouts_total").await >= 3.0);
    assert!(node.metric("io_timeouts_total{op=\"read\"}").await >= 2.0);
}

#[tokio::test]
async fn dripping_frames_end_at_the_read_timeout() {
    let node = start("[io]\nread_timeout = \"1s\"\n").await;
    let mut raw = hello(&node).await;
    let frame = echo_frame(1, &[b'x'; 100]);
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let dripping = async {
        for byte in frame {
            tick.tick().await;
            if raw.stream.write_all(&[byte]).await.is_err() || raw.stream.flush().await.is_err() {
                return;
            }
        }
        panic!("a frame that took 27 seconds was read");
    };
    within(Duration::from_secs(2) + SLACK, "the end", dripping).await;
    assert_frames_work(&node).await;
}

#[tokio::test]
async fn applications_that_nobody_speaks_are_refused_and_the_session_goes_on() {
    let node = options().start().await.expect("the node starts");
    let mut raw = hello(&node).await;
    for corr in [1, 2] {
        let reply = ask(&mut raw, corr, b"anyone?").await;
        assert_eq!((reply.code, &problem_of(&reply)["code"]), (status::NOT_FOUND, &"E_NOT_FOUND".into()));
    }
}

#[tokio::test]
async fn a_full_work_queue_is_said_at_once() {
    let few = options().dev().env("MACRO_WORKERS", "1").env("MACRO_QUEUES__WORK", "1");
    let node = few.start().await.expect("the node starts");
    let mut raw = hello(&node).await;
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
    let reply = within(SLACK, "Busy", raw.echo(1, b"no room")).await;
    let problem = problem_of(&reply);
    assert_eq!((reply.code, &problem["code"]), (status::BUSY, &"E_SATURATED".into()));
    assert!(problem["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{problem}");
    while let Some(status) = slow.join_next().await {
        assert_eq!(status.expect("a client ends"), 200, "what was accepted is done");
    }
    assert_frames_work(&node).await;
}
