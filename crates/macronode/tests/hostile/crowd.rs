//! Ten thousand connections from one address: it gets its share, everybody else is served.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ron_kernel::Deadline;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::wire::{self, Answer, within};
use crate::{SLACK, assert_still_serves, start, wait_for_metric};

const ATTEMPTS: usize = 10_000;
/// Few enough that neither the listener's backlog nor our own files run out.
const BATCH: usize = 100;
const PER_IP_MAX: usize = 256;
/// Nobody is cut off for silence while the attack lasts, so that what is admitted stays.
const PATIENT: &str = "[tls]\nhandshake_timeout = \"60s\"\n";
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

async fn echo_from(source: Ipv4Addr, address: SocketAddr) -> Option<Answer> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("every address of 127/8 is ours");
    let stream = socket.connect(address).await.expect("the node listens");
    wire::exchange(stream, &wire::echo("from next door")).await
}

#[tokio::test]
async fn ten_thousand_connections_from_one_address_cost_only_that_address() {
    let node = start(PATIENT).await;
    assert_still_serves(&node).await;
    let before = node.rss_bytes();
    let mut held = Vec::new();
    for _ in 0..ATTEMPTS / BATCH {
        let mut attempts = JoinSet::new();
        for _ in 0..BATCH {
            attempts.spawn(attempt(node.api));
        }
        while let Some(outcome) = attempts.join_next().await {
            if let Outcome::Held(stream) = outcome.expect("an attempt ends") {
                held.push(stream);
            }
        }
        assert!(held.len() <= PER_IP_MAX, "{} connections held", held.len());
    }
    assert!(held.len() > PER_IP_MAX / 2, "only {} held: the attack did not reach the limit", held.len());
    assert!(node.metric("connections_open{listener=\"http\"}").await <= PER_IP_MAX as f64);
    let refused = node.metric("connections_refused_total{reason=\"per_ip\"}").await
        + node.metric("connections_refused_total{reason=\"rate\"}").await;
    assert_eq!(refused, (ATTEMPTS - held.len()) as f64);

    let neighbour = within(SLACK, "the neighbour's echo", echo_from(Ipv4Addr::new(127, 0, 0, 2), node.api)).await;
    assert_eq!(neighbour.expect("an answer").status, 200);
    let grown = node.rss_bytes().saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes more than before");

    drop(held);
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 0.0).await;
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn connections_in_all_are_bounded_too() {
    let node = start("[connections]\nmax = 20\nper_ip_max = 15\n").await;
    let connect = async |source: u8| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, source), 0).into()).expect("ours");
        socket.connect(node.api).await.expect("the node listens")
    };
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(connect(3 + number % 2).await);
    }
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 20.0).await;
    let refused = within(SLACK, "a refusal", echo_from(Ipv4Addr::new(127, 0, 0, 2), node.api)).await;
    assert_eq!(refused.map(|answer| answer.status), Some(429));
    assert_eq!(node.metric("connections_refused_total{reason=\"total\"}").await, 1.0);
    drop(held);
    wait_for_metric(&node, "connections_open{listener=\"http\"}", |open| open == 0.0).await;
    assert_still_serves(&node).await;
}
