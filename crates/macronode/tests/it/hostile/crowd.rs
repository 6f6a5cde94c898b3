//! Ten thousand connections from one address: it gets its share, everybody else is served.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ron_kernel::{Deadline, clock};
use testkit::frames::RawSession;
use testkit::{Node, PATIENCE_MAX, Plane, metric_in};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::hostile::wire::{self, Answer, within};
use crate::hostile::{SLACK, assert_still_serves, start, wait_for_metric};

const ATTEMPTS: usize = 10_000;
/// Few enough that neither the listener's backlog nor our own files run out.
const BATCH: usize = 100;
const PER_IP_MAX: usize = 256;
/// Nobody is cut off for silence while the attack lasts, so that what is admitted stays.
const PATIENT: &str = "[tls]\nhandshake_timeout = \"60s\"\n[overlay]\nhandshake_timeout = \"60s\"\n";
const MIB: u64 = 1024 * 1024;

enum Outcome {
    Held(TcpStream),
    Refused,
}

/// Connects and waits whether the node says anything; a connection it says nothing on is held.
async fn attempt(address: SocketAddr) -> Outcome {
    let mut stream = match TcpStream::connect(address).await {
        Ok(stream) => stream,
        Err(_) => return Outcome::Refused,
    };
    let answer = Deadline::after(Duration::from_millis(500)).run("refusal", wire::read_answer(&mut stream)).await;
    match answer {
        Err(_) => Outcome::Held(stream),
        Ok(Ok(Some(answer))) => {
            assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
            assert_eq!((&answer.json()["code"], &answer.json()["status"]), (&"E_SATURATED".into(), &429.into()));
            Outcome::Refused
        }
        Ok(Ok(None) | Err(_)) => Outcome::Refused,
    }
}

async fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("every address of 127/8 is ours");
    socket.connect(address).await.expect("the node listens")
}

async fn echo_from(source: Ipv4Addr, address: SocketAddr) -> Option<Answer> {
    wire::exchange(connect_from(source, address).await, &wire::echo("from next door")).await
}

/// So many attempts in batches; returns the connections that are held once everything is decided.
async fn crowd(node: &Node, address: SocketAddr, attempts: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..attempts / BATCH {
        let mut batch = JoinSet::new();
        for _ in 0..BATCH {
            batch.spawn(attempt(address));
        }
        while let Some(outcome) = batch.join_next().await {
            if let Outcome::Held(stream) = outcome.expect("an attempt ends") {
                held.push(stream);
            }
        }
    }
    // On a busy machine a refusal may have come after its connection was taken for held.
    let decided = async {
        while held.len() > PER_IP_MAX || refused(node).await != (attempts - held.len()) as f64 {
            held.retain(|stream| stream.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE_MAX, "at most the share of one address", decided).await;
    held
}

async fn refused(node: &Node) -> f64 {
    let scrape = node.get(Plane::Admin, "/metrics").await.expect("the admin plane answers").text();
    let reasons = ["per_ip", "rate"].map(|reason| format!("connections_refused_total{{reason=\"{reason}\"}}"));
    reasons.iter().map(|series| metric_in(&scrape, series)).sum()
}

#[tokio::test]
async fn ten_thousand_connections_from_one_address_cost_only_that_address() {
    let node = start(PATIENT).await;
    assert_still_serves(&node).await;
    let before = node.rss_bytes();
    let held = crowd(&node, node.api, ATTEMPTS).await;
    assert!(held.len() > PER_IP_MAX / 2, "only {} held: the attack did not reach the limit", held.len());
    assert!(node.metric("connections_open{listener=\"http\"}").await <= PER_IP_MAX as f64);
    assert_eq!(refused(&node).await, (ATTEMPTS - held.len()) as f64);

    let neighbour = within(SLACK, "the neighbour's echo", echo_from(Ipv4Addr::new(127, 0, 0, 2), node.api)).await;
    assert_eq!(neighbour.expect("an answer").status, 200);
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes more than before");

    drop(held);
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 0.0).await;
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn the_framed_port_bounds_each_address_too() {
    let node = start(PATIENT).await;
    let held = crowd(&node, node.oap, 600).await;
    assert_eq!(held.len(), PER_IP_MAX);
    assert_eq!(node.metric("connections_open{listener=\"oap\"}").await, PER_IP_MAX as f64);
    assert_eq!(refused(&node).await, (600 - PER_IP_MAX) as f64);
    let neighbour = connect_from(Ipv4Addr::new(127, 0, 0, 2), node.oap).await;
    let neighbour = async { RawSession::over(neighbour).await.greeted(&node.token).await.echo(1, b"x").await };
    let reply = within(SLACK, "the neighbour's frame", neighbour).await;
    assert_eq!(&reply.payload[..], b"x");
    drop(held);
    wait_for_metric(&node, "connections_open{listener=\"oap\"}", |open| open == 0.0).await;
}

/// Connects and hangs up, again and again, from many addresses.
async fn knock(address: SocketAddr, number: u8, end: Deadline) {
    let mut neighbour = 0_u8;
    while !end.has_passed() {
        neighbour = neighbour.wrapping_add(1);
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 1, number, neighbour.max(1)), 0).into()).expect("ours");
        if let Ok(stream) = socket.connect(address).await {
            // A reset leaves no socket behind that would use up our ports.
            let _ = stream.set_zero_linger();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_longer_than_a_heartbeat_is_no_freeze() {
    const FLOOD: Duration = Duration::from_secs(8);
    let node = start("").await;
    let started = clock::now();
    let mut flood = JoinSet::new();
    for number in 0..32 {
        let address = if number % 2 == 0 { node.api } else { node.oap };
        flood.spawn(knock(address, number, Deadline::after(FLOOD)));
    }
    while started.elapsed() < FLOOD {
        assert_still_serves(&node).await;
        // Slower than the rate of connections that one address is allowed.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while let Some(ended) = flood.join_next().await {
        ended.expect("the flood ends");
    }
    for service in ["http", "oap", "workers", "observe", "config"] {
        let restarts = node.metric(&format!("service_restarts_total{{service=\"{service}\"}}")).await;
        assert_eq!(restarts, 0.0, "{service} was restarted:\n{}", node.stderr());
    }
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn connections_in_all_are_bounded_too() {
    let node = start("[connections]\nmax = 20\nper_ip_max = 15\n").await;
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(connect_from(Ipv4Addr::new(127, 0, 0, 3 + number % 2), node.api).await);
    }
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 20.0).await;
    let refused = within(SLACK, "a refusal", echo_from(Ipv4Addr::new(127, 0, 0, 2), node.api)).await;
    assert_eq!(refused.map(|answer| answer.status), Some(429));
    assert_eq!(node.metric("connections_refused_total{reason=\"total\"}").await, 1.0);
    drop(held);
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 0.0).await;
    assert_still_serves(&node).await;
}
