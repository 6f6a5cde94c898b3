//! Who the other side is: pins, and the key exchange both can do.

use super::harness::*;
use crate::{ConnectError, Direction, PostQuantum, Remote, SessionLimits};

#[tokio::test(start_paused = true)]
async fn both_sides_know_each_other() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (dialled, accepted) = outcomes(&dialler, &node, &node).await;
    let (dialled, accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    assert_eq!((dialled.facts.remote, dialled.facts.direction), (Remote::Node(node.node_id()), Direction::Out));
    assert_eq!((accepted.facts.remote, accepted.facts.direction), (Remote::Node(dialler.node_id()), Direction::In));
    assert_eq!(accepted.facts.their_hello.node_id, Some(dialler.node_id().to_string()));
    assert_eq!(dialled.facts.agreed, accepted.facts.agreed);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_certificate_is_a_client() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let (dialled, accepted) = both(sides.dial_as_client(&node, &limits), sides.accept(&limits)).await;
    assert_eq!(dialled.expect("a session").facts.remote, Remote::Node(node.node_id()));
    let accepted = accepted.expect("a session");
    assert_eq!((accepted.facts.remote, &accepted.facts.their_hello.node_id), (Remote::Client, &None));
}

#[tokio::test(start_paused = true)]
async fn another_node_at_the_address_gets_no_session() {
    let [dialler, node, expected] = [(); 3].map(|()| tls(PostQuantum::Hybrid));
    let (dialled, accepted) = outcomes(&dialler, &node, &expected).await;
    let error = dialled.err().expect("refused");
    let ConnectError::WrongPin { expected: dialled, got } = error else { panic!("{error}") };
    assert_eq!((dialled, got), (expected.node_id(), node.node_id()));
    assert!(matches!(accepted, Err(ConnectError::Tls(_))), "the other side is told by an alert");
}

async fn groups(dialler: PostQuantum, node: PostQuantum) -> Result<&'static str, (ConnectError, ConnectError)> {
    let (dialler, node) = (tls(dialler), tls(node));
    match outcomes(&dialler, &node, &node).await {
        (Ok(dialled), Ok(accepted)) => {
            assert_eq!(dialled.facts.tls_group, accepted.facts.tls_group);
            Ok(dialled.facts.tls_group)
        }
        (Err(dialled), Err(accepted)) => Err((dialled, accepted)),
        _ => panic!("the two sides do not agree"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_exchange_is_what_both_policies_allow() {
    use PostQuantum::{Hybrid, Off, Required};
    for (dialler, node) in [(Hybrid, Hybrid), (Required, Hybrid), (Hybrid, Required), (Required, Required)] {
        assert_eq!(groups(dialler, node).await.ok(), Some("X25519MLKEM768"), "{dialler:?} {node:?}");
    }
    for (dialler, node) in [(Off, Hybrid), (Hybrid, Off), (Off, Off)] {
        assert_eq!(groups(dialler, node).await.ok(), Some("X25519"), "{dialler:?} {node:?}");
    }
    for (dialler, node) in [(Required, Off), (Off, Required)] {
        let (dialled, accepted) = groups(dialler, node).await.expect_err("nothing in common");
        assert!(matches!(dialled, ConnectError::NotPostQuantum), "{dialled}");
        assert!(matches!(accepted, ConnectError::NotPostQuantum), "{accepted}");
    }
}
