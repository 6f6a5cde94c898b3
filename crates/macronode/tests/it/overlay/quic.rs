//! Nodes that are joined over QUIC, which is off unless a node is told to listen.

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::rss_bytes;

use crate::member::Member;
use crate::overlay::stopped::cost_max;
use crate::overlay::subscriber::Subscriber;
use testkit::eventually;

/// Small bounds, as where a peer over TCP is stopped.
const SETTINGS: &str = "[overlay]\nquic = \"on\"\nring_bytes = \"8 MiB\"\npeer_egress_bytes = \"2 MiB\"\n";
const PAYLOAD_BYTES: usize = 256 * 1024;

/// The address of a node over QUIC, without its id.
fn quic_address(member: &Member) -> String {
    format!("quic:{}", member.oap)
}

/// Nodes that are not started yet: the others dial the first one over QUIC.
fn star(count: usize) -> Vec<Member> {
    let mut members: Vec<Member> = (0..count).map(|_| Member::new()).collect();
    let hub = format!("{}@{}", members[0].id, quic_address(&members[0]));
    members.iter_mut().for_each(|member| member.configure(SETTINGS));
    members[1..].iter_mut().for_each(|member| member.knows(&hub));
    members
}

async fn started(count: usize) -> Vec<Member> {
    let mut members = star(count);
    for member in &mut members {
        member.start().await;
    }
    for member in &members[1..] {
        let peer = member.wait_connected(&members[0].id).await;
        assert_eq!((&peer["addr"], &peer["direction"]), (&json!(quic_address(&members[0])), &json!("out")), "{peer}");
        assert_eq!(peer["tls_group"], "X25519MLKEM768", "{peer}");
        assert_eq!(members[0].wait_connected(&member.id).await["direction"], "in");
    }
    members
}

/// What one node publishes arrives at another whole and in order: small messages, and one in chunks.
async fn carries(from: &Member, to: &mut Subscriber, first_seq: u64) {
    let large: Vec<u8> = (0..1_500_000_u32).map(|at| (at % 251) as u8).collect();
    let payloads = [b"one".to_vec(), large, b"three".to_vec()];
    for payload in &payloads {
        from.publish("chat", payload.clone()).await;
    }
    let mut heard = Vec::new();
    while heard.len() < payloads.len() {
        // A node that has just come back may first be given what the other's ring still holds.
        heard.extend(to.messages(1).await.into_iter().filter(|message| message.seq() >= first_seq));
    }
    for (place, (message, payload)) in heard.iter().zip(&payloads).enumerate() {
        let expected = (from.id.as_str(), first_seq + place as u64, payload.len());
        assert_eq!((message.origin(), message.seq(), message.payload().len()), expected);
        assert!(message.payload() == *payload, "message {place} arrived changed");
    }
}

/// Reads until the first message of a node's new life, which a word of its new epoch precedes.
async fn heard_anew(subscriber: &mut Subscriber, origin: &str) -> Vec<u8> {
    loop {
        let event = subscriber.next().await;
        match event.kind.as_str() {
            "message" if event.origin() == origin => return event.payload(),
            "epoch" => {}
            other => panic!("{other}: {event:?}"),
        }
    }
}

#[tokio::test]
async fn nodes_joined_over_quic_hear_each_other_and_find_each_other_again() {
    let mut pair = started(2).await;
    let mut at_hub = Subscriber::open(&pair[0], "chat", "?own=false").await;
    let mut at_dialler = Subscriber::open(&pair[1], "chat", "?own=false").await;
    carries(&pair[0], &mut at_dialler, 1).await;
    carries(&pair[1], &mut at_hub, 1).await;

    // The one that dials comes back although the other has not noticed that it was gone.
    pair[1].end(Signal::KILL).await;
    pair[1].start().await;
    pair[1].wait_connected(&pair[0].id).await;
    let mut at_dialler = Subscriber::open(&pair[1], "chat", "?own=false").await;
    pair[1].publish("chat", "second life").await;
    assert_eq!(heard_anew(&mut at_hub, &pair[1].id).await, b"second life");
    carries(&pair[0], &mut at_dialler, 4).await;

    // The one that is dialled leaves in order and comes back; the other dials until it is there.
    let status = pair[0].end(Signal::TERM).await;
    assert_eq!(status.code(), Some(0), "{status}");
    let (hub, dialler) = (pair[0].id.clone(), pair[1].id.clone());
    eventually("the loss of the session", async || {
        let peer = pair[1].peer(&hub).await?;
        (peer["state"] != "connected").then_some(())
    })
    .await;
    pair[0].start().await;
    pair[1].wait_connected(&hub).await;
    pair[0].wait_connected(&dialler).await;
    pair[0].publish("chat", "third life").await;
    assert_eq!(heard_anew(&mut at_dialler, &hub).await, b"third life");

    // It is killed and comes back: nobody said goodbye, and it tells the other that it has forgotten the connection.
    pair[0].end(Signal::KILL).await;
    pair[0].start().await;
    pair[1].publish("chat", "are you there").await;
    pair[0].wait_connected(&dialler).await;
    pair[0].publish("chat", "fourth life").await;
    assert_eq!(heard_anew(&mut at_dialler, &hub).await, b"fourth life");
}

#[tokio::test]
async fn over_quic_too_a_node_with_another_key_is_never_connected() {
    let (mut liar, mut caller, expected) = (Member::new(), Member::new(), Member::new());
    liar.configure(SETTINGS);
    liar.start().await;
    caller.knows(&format!("{}@{}", expected.id, quic_address(&liar)));
    caller.start().await;
    eventually("a try that failed", async || {
        let peer = caller.peer(&expected.id).await.expect("it stays configured");
        assert_ne!(peer["state"], "connected", "{peer}");
        (peer["state"] == "backoff").then_some(())
    })
    .await;
    assert!(caller.peer(&liar.id).await.is_none(), "nobody is trusted by address");
    assert_eq!(liar.peers().await, Vec::<Value>::new());
    let wanted = json!({"node_id": liar.id, "addr": quic_address(&liar)});
    assert_eq!(caller.ask(Method::POST, "/overlay/peers", &wanted).await.status, 202);
    caller.wait_connected(&liar.id).await;
}

#[tokio::test]
async fn a_node_that_does_not_listen_over_quic_is_not_reached_over_tcp_instead() {
    let (mut silent, mut caller) = (Member::new(), Member::new());
    silent.start().await;
    caller.knows(&format!("{}@{}", silent.id, quic_address(&silent)));
    caller.start().await;
    eventually("a try that failed", async || {
        let peer = caller.peer(&silent.id).await.expect("it stays configured");
        assert_ne!(peer["state"], "connected", "{peer}");
        (peer["state"] == "backoff").then_some(())
    })
    .await;
    assert_eq!(silent.peers().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_stopped_peer_over_quic_costs_what_the_formula_says_at_most() {
    let mut members = started(3).await;
    let mut healthy = Subscriber::open(&members[2], "chat", "").await;
    let payload = vec![7; PAYLOAD_BYTES];
    members[0].publish("chat", payload.clone()).await;
    healthy.messages(1).await;
    let before = rss_bytes(members[0].process().id());
    members[1].process().signal(Signal::STOP);
    let bound = cost_max(2, 2);
    let messages = bound as usize / PAYLOAD_BYTES + 100;
    for _ in 0..messages {
        members[0].publish("chat", payload.clone()).await;
        healthy.messages(1).await;
    }
    let grown = rss_bytes(members[0].process().id()).saturating_sub(before);
    assert!(grown < bound, "{} MiB of {} for a peer that reads nothing", grown >> 20, bound >> 20);
    members[1].process().signal(Signal::CONT);
}
