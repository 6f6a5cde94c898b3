//! A peer whose process stops (SIGSTOP) while its sessions stand: nobody waits for it, and it costs bounded memory.

use std::time::{Duration, Instant};

use ron_types::Size;
use rustix::process::Signal;
use svc_overlay::config::{FrameLimits, Options};
use svc_overlay::memory::{self, Use};
use testkit::{BoundResult, bound, rss_bytes};

use crate::member::{network, network_with};
use crate::overlay::subscriber::Subscriber;
use testkit::eventually;

const MIB: u64 = 1 << 20;
/// Bytes of one message, so that few of them fill a queue.
const PAYLOAD_BYTES: usize = 256 * 1024;
/// Most messages it takes until the way to a stopped peer is full: its socket buffers, the queue and the credit of a
/// lane.
const MESSAGES_MAX: u64 = 400;
/// Messages after that: more than the formula allows to be held.
const MESSAGES_BEYOND: usize = 600;
/// Small bounds, so that what is not bounded shows.
const SETTINGS: &str = "[overlay]\nring_bytes = \"8 MiB\"\npeer_egress_bytes = \"2 MiB\"\n";

/// Nodes around the hub, the first of which is stopped.
const LEAVES: usize = 3;

/// Memory that one lane among so many peers may cost, some of them over QUIC, by the node's own formula.
pub fn cost_max(peers: usize, quic_peers: usize) -> u64 {
    let options = Options { ring_bytes: Size(8 << 20), peer_egress_bytes: Size(2 << 20), ..Options::default() };
    let (read_timeout, write_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    let live = options.live(FrameLimits { frame_bytes_max: 1 << 20, read_timeout, write_timeout });
    memory::bytes_max(&live, Use { engines: 1, peers, quic_peers, subscriptions: 0 }) as u64
}

fn outcome_for<'a>(answer: &'a serde_json::Value, id: &str) -> Option<&'a str> {
    let peers = answer["peers"].as_array().expect("a list");
    peers.iter().find(|peer| peer["node_id"] == id).and_then(|peer| peer["outcome"].as_str())
}

/// Subscribers at nodes that run: each hears every message, in its order.
struct Healthy {
    subscribers: Vec<Subscriber>,
    heard: u64,
}

impl Healthy {
    async fn hear_the_next(&mut self) {
        self.heard += 1;
        for subscriber in &mut self.subscribers {
            assert_eq!(subscriber.messages(1).await[0].seq(), self.heard);
        }
    }
}

/// Reads until this number; each one before it must have come, or be told as lost.
async fn comes_or_is_told(subscriber: &mut Subscriber, from: u64, until: u64) {
    let mut next = from;
    while next <= until {
        let event = subscriber.next().await;
        let number = |name: &str| event.data[name].as_u64().expect("a number");
        match event.kind.as_str() {
            "message" => {
                assert_eq!(event.seq(), next, "a hole that nobody told of");
                next += 1;
            }
            "gap" => {
                assert_eq!(number("from"), next, "{event:?}");
                next = number("to") + 1;
            }
            "lagged" => next += number("dropped"),
            other => panic!("{other}: {event:?}"),
        }
    }
}

#[tokio::test]
async fn others_do_not_wait_for_a_stopped_peer_and_it_is_told_as_busy() {
    let links: Vec<(usize, usize)> = (1..=LEAVES).map(|leaf| (leaf, 0)).collect();
    let mut star = network_with(LEAVES + 1, &links, SETTINGS).await;
    let mut at_stopped = Subscriber::open(&star[1], "chat", "").await;
    let mut healthy = Healthy { subscribers: Vec::new(), heard: 0 };
    for member in &star[2..] {
        healthy.subscribers.push(Subscriber::open(member, "chat", "").await);
    }
    let payload = vec![7; PAYLOAD_BYTES];
    star[0].publish("chat", payload.clone()).await;
    healthy.hear_the_next().await;
    at_stopped.messages(1).await;
    let before = rss_bytes(star[0].process().id());
    star[1].process().signal(Signal::STOP);

    let stopped = star[1].id.clone();
    let mut slowest = Duration::ZERO;
    loop {
        assert!(healthy.heard < MESSAGES_MAX, "a stopped peer is never busy");
        let asked = Instant::now();
        let answer = star[0].publish("chat", payload.clone()).await;
        slowest = slowest.max(asked.elapsed());
        // What the others get does not depend on it.
        healthy.hear_the_next().await;
        if outcome_for(&answer, &stopped) == Some("busy") {
            break;
        }
    }
    let peer = star[0].peer(&stopped).await.expect("it is still a peer");
    assert!(peer["busy_total"].as_u64() > Some(0), "{peer}");
    let refused = star[0].process().metric(r#"busy_rejections_total{endpoint="gossip_egress_tx"}"#).await;
    assert!(refused > 0.0, "counted under the name that its queue has everywhere");
    // Nobody measures the machine here, but a publisher that waited for the peer would wait for its whole patience.
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    for _ in 0..MESSAGES_BEYOND {
        star[0].publish("chat", payload.clone()).await;
        healthy.hear_the_next().await;
    }
    let grown = rss_bytes(star[0].process().id()).saturating_sub(before);
    assert!((MESSAGES_BEYOND * PAYLOAD_BYTES) as u64 > cost_max(LEAVES, 0), "a leak would show");
    assert!(
        grown < cost_max(LEAVES, 0),
        "{} MiB of {} for a peer that reads nothing",
        grown / MIB,
        cost_max(LEAVES, 0) / MIB
    );

    star[1].process().signal(Signal::CONT);
    star[0].wait_connected(&stopped).await;
    let last = eventually("the peer takes messages again", async || {
        let answer = star[0].publish("chat", "again").await;
        (outcome_for(&answer, &stopped) == Some("sent")).then(|| answer["seq"].as_u64().expect("a number"))
    })
    .await;
    comes_or_is_told(&mut at_stopped, 2, last).await;
    while healthy.heard < last {
        healthy.hear_the_next().await;
    }
}

#[tokio::test]
async fn a_drain_ends_in_time_with_a_stopped_peer() {
    crate::alone().await.measure("drain", drain_with_a_stopped_peer).await;
}

async fn drain_with_a_stopped_peer() -> BoundResult {
    let mut pair = network(2, &[(1, 0)]).await;
    pair[1].process().signal(Signal::STOP);
    for _ in 0..60 {
        pair[0].publish("chat", vec![7; PAYLOAD_BYTES]).await;
    }
    let asked = Instant::now();
    let status = pair[0].end(Signal::TERM).await;
    let took = asked.elapsed();
    assert!(matches!(status.code(), Some(0 | 75)), "{status}");
    pair[1].process().signal(Signal::CONT);
    // The drain deadline is 3 s; a debug build on a busy machine takes a little longer to leave.
    bound(took < Duration::from_secs(6), || format!("{took:?}"))
}
