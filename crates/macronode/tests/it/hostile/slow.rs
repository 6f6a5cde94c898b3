//! Clients that take their time: each is cut off at the limit that is meant for it, and nobody else waits.

use std::time::Duration;

use ron_kernel::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::hostile::wire::{self, within};
use crate::hostile::{SLACK, assert_still_serves, start, wait_for_metric};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
const READ_TIMEOUT: Duration = Duration::from_secs(1);
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
const WRITE_STALL: Duration = Duration::from_secs(2);
const IMPATIENT: &str = "[io]\nread_timeout = \"1s\"\nidle_timeout = \"2s\"\n[connections]\nwrite_stall = \"2s\"\n";

const DRIPPING: &[u8] = b"POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n";

/// Sends a byte every 200 ms until the node closes; returns how long that took.
async fn drip(mut stream: TcpStream, bytes: &[u8]) -> Duration {
    let started = clock::now();
    let (mut reading, mut writing) = stream.split();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let send = async {
        for byte in bytes {
            tick.tick().await;
            if writing.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        _ = wire::read_to_close(&mut reading) => {}
        () = send => {}
    }
    started.elapsed()
}

#[tokio::test]
async fn two_hundred_slow_headers_are_cut_off_and_hold_up_nobody() {
    let node = start("").await;
    let mut attackers = JoinSet::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
        attackers.spawn(async move {
            // Half of them earn trust with a good request first.
            if number % 2 == 0 {
                stream.write_all(&wire::echo("hello")).await.expect("the node reads");
                let answer = wire::read_answer(&mut stream).await.expect("an answer").expect("an answer");
                assert_eq!(answer.status, 200);
            }
            within(HANDSHAKE_TIMEOUT + SLACK, "the end of a dripping connection", drip(stream, DRIPPING)).await
        });
    }
    assert_still_serves(&node).await;
    while let Some(lasted) = attackers.join_next().await {
        let lasted = lasted.expect("no attacker outlives its limit");
        assert!(lasted >= HANDSHAKE_TIMEOUT / 2, "cut off after {lasted:?}: that is not the limit for headers");
    }
    assert_still_serves(&node).await;
    wait_for_metric(&node, "io_timeouts_total{op=\"header\"}", |count| count >= 200.0).await;
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open <= 1.0).await;
}

#[tokio::test]
async fn silence_ends_at_the_limit_of_what_it_interrupts() {
    let node = start(IMPATIENT).await;
    let unsent =
        wire::request("POST", "/v1/echo", &[("content-type", "application/json"), ("content-length", "99")], b"");
    let half = [unsent.as_slice(), b"{\"message\":"].concat();
    for (what, bytes, limit, expected) in [
        ("nothing at all", Vec::new(), HANDSHAKE_TIMEOUT, None),
        ("half a request line", b"POST /v1/ec".to_vec(), HANDSHAKE_TIMEOUT, None),
        ("an announced body", unsent, READ_TIMEOUT, Some(504)),
        ("half a body", half, READ_TIMEOUT, Some(504)),
        ("a rest after an answer", wire::echo("then silence"), IDLE_TIMEOUT, Some(200)),
    ] {
        let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
        stream.write_all(&bytes).await.expect("the node reads");
        let answer = within(limit + SLACK, what, wire::read_answer(&mut stream)).await.ok().flatten();
        match (&answer, expected) {
            (Some(answer), Some(504)) => answer.assert_problem(504, "E_TIMEOUT", what),
            (Some(answer), None) => assert_eq!(answer.status, 408, "{what}"),
            (answer, expected) => assert_eq!(answer.as_ref().map(|answer| answer.status), expected, "{what}"),
        }
        within(limit + SLACK, what, wire::read_to_close(&mut stream)).await;
        assert_still_serves(&node).await;
    }
    assert_eq!(node.metric("io_timeouts_total{op=\"read\"}").await, 2.0);
}

#[tokio::test]
async fn a_body_that_drips_ends_at_the_deadline_of_the_request() {
    let node = start(IMPATIENT).await;
    let mut stream = TcpStream::connect(node.api).await.expect("the node listens");
    let head =
        wire::request("POST", "/v1/echo", &[("content-type", "application/json"), ("content-length", "900")], b"");
    stream.write_all(&head).await.expect("the node reads");
    let (mut reading, mut writing) = stream.split();
    let mut tick = tokio::time::interval(READ_TIMEOUT / 4);
    let send = async {
        while writing.write_all(b"{").await.is_ok() {
            tick.tick().await;
        }
        std::future::pending::<()>().await
    };
    let receive = async {
        let answer = wire::read_answer(&mut reading).await.expect("an answer").expect("an answer");
        wire::read_to_close(&mut reading).await;
        answer
    };
    let answer = tokio::select! {
        answer = within(Duration::from_secs(2) + SLACK, "the deadline of the request", receive) => answer,
        () = send => unreachable!("the sender never ends"),
    };
    answer.assert_problem(504, "E_TIMEOUT", "a dripping body");
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn readers_that_never_read_are_closed() {
    let node = start(IMPATIENT).await;
    let mut streams = Vec::new();
    let request = wire::echo(&"a".repeat(3 * 1024 * 1024));
    for _ in 0..4 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small window");
        let mut stream = socket.connect(node.api).await.expect("the node listens");
        within(SLACK, "sending", stream.write_all(&request)).await.expect("the node reads");
        streams.push(stream);
    }
    assert_still_serves(&node).await;
    let closed = wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 0.0);
    within(WRITE_STALL + SLACK + SLACK, "closing", closed).await;
    assert_eq!(node.metric("io_timeouts_total{op=\"write\"}").await, 4.0);
    let mut rest = Vec::new();
    for stream in &mut streams {
        // What was on the way may still arrive; the end must follow.
        let _ = within(SLACK, "the end", stream.read_to_end(&mut rest)).await;
    }
    assert_still_serves(&node).await;
}
