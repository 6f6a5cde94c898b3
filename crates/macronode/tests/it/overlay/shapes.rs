//! Five nodes over TLS in every shape: publish anywhere, everyone receives once and in the origin's order.

use std::collections::BTreeMap;

use crate::member::network;
use crate::overlay::subscriber::Subscriber;

const NODES: usize = 5;
/// Small messages that each node publishes.
const SMALL: usize = 8;
const LARGE_BYTES: usize = 2_500 * 1024;

/// What the message with this number of this node says; each node's last one is large at the first node.
fn payload(node: usize, number: usize) -> Vec<u8> {
    match (node, number) {
        (0, SMALL) => (0..LARGE_BYTES).map(|at| (at * 31 + at / 65_536) as u8).collect(),
        _ => format!("{number} of {node}").into_bytes(),
    }
}

async fn everyone_receives(links: &[(usize, usize)]) {
    let members = network(NODES, links).await;
    let mut subscribers = Vec::new();
    for member in &members {
        subscribers.push(Subscriber::open(member, "chat", "").await);
    }
    let mut expected: BTreeMap<String, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
    for number in 0..=SMALL {
        for (node, member) in members.iter().enumerate() {
            let (payload, seq) = (payload(node, number), number as u64 + 1);
            let published = member.publish("chat", payload.clone()).await;
            assert_eq!((&published["seq"], &published["origin"]), (&seq.into(), &member.id.as_str().into()));
            expected.entry(member.id.clone()).or_default().push((seq, payload));
        }
    }
    for (node, subscriber) in subscribers.iter_mut().enumerate() {
        let mut received: BTreeMap<String, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
        for message in subscriber.messages(NODES * (SMALL + 1)).await {
            let is_own = message.origin() == members[node].id;
            assert_eq!(message.data["hops"] == 0, is_own, "only what was published here has no link behind it");
            let (origin, seq) = (message.origin().to_owned(), message.seq());
            received.entry(origin).or_default().push((seq, message.payload()));
        }
        for (origin, messages) in &expected {
            let numbers = |all: &[(u64, Vec<u8>)]| all.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
            let got = received.get(origin).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(numbers(got), numbers(messages), "at node {node} from {origin}: once, and in order");
            assert!(got == messages, "at node {node} from {origin}: other contents");
        }
    }
    // Nothing comes twice: the next message of each subscriber is the next that is published.
    let last = members[NODES - 1].publish("chat", "last").await;
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.messages(1).await[0].data["msg_id"], last["msg_id"]);
    }
}

#[tokio::test]
async fn a_line_delivers_to_everyone_once_and_in_order() {
    everyone_receives(&[(1, 0), (2, 1), (3, 2), (4, 3)]).await;
}

#[tokio::test]
async fn a_ring_delivers_to_everyone_once_and_in_order() {
    everyone_receives(&[(1, 0), (2, 1), (3, 2), (4, 3), (4, 0)]).await;
}

#[tokio::test]
async fn a_star_delivers_to_everyone_once_and_in_order() {
    everyone_receives(&[(1, 0), (2, 0), (3, 0), (4, 0)]).await;
}

#[tokio::test]
async fn a_full_mesh_delivers_to_everyone_once_and_in_order() {
    let links: Vec<(usize, usize)> = (0..NODES).flat_map(|from| (0..from).map(move |to| (from, to))).collect();
    everyone_receives(&links).await;
}
