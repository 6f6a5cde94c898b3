//! Who the other side is: pins, stolen certificates, and the key exchange both can do.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

use super::harness::*;
use crate::connect::{Beginning, client_side};
use crate::records::Side;
use crate::{ConnectError, Direction, PostQuantum, Remote, SessionLimits, Tls, accept_on, dial_as_client};

#[tokio::test]
async fn both_sides_know_each_other() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_tcp(&dialler, &node, &node).await;
    let (dialled, accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    assert_eq!((dialled.facts.remote, dialled.facts.direction), (Remote::Node(node.node_id()), Direction::Out));
    assert_eq!((accepted.facts.remote, accepted.facts.direction), (Remote::Node(dialler.node_id()), Direction::In));
    assert_eq!(accepted.facts.their_hello.node_id, Some(dialler.node_id().to_string()));
    assert_eq!(dialled.facts.agreed, accepted.facts.agreed);
}

#[tokio::test]
async fn a_client_without_certificate_is_a_client() {
    let node = tls(PostQuantum::Hybrid);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = crate::PeerAddress::new(node.node_id(), &listener.local_addr().expect("bound").to_string());
    let (address, limits) = (address.expect("an address"), SessionLimits::default());
    let accepting = async {
        let (tcp, _) = listener.accept().await.expect("accepted");
        crate::accept(tcp, &node, hello(), &limits).await.expect("a session")
    };
    let dialling = dial_as_client(&address, PostQuantum::Hybrid, hello(), &limits);
    let (dialled, accepted) = both(dialling, accepting).await;
    assert_eq!(dialled.expect("a session").facts.remote, Remote::Node(node.node_id()));
    assert_eq!(accepted.facts.remote, Remote::Client);
    assert_eq!(accepted.facts.their_hello.node_id, None);
}

#[tokio::test]
async fn another_node_at_the_address_gets_no_session() {
    let [dialler, node, expected] = [(); 3].map(|()| tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_tcp(&dialler, &node, &expected).await;
    let error = dialled.err().expect("refused");
    let ConnectError::WrongPin { expected: dialled, got } = error else { panic!("{error}") };
    assert_eq!((dialled, got), (expected.node_id(), node.node_id()));
    assert!(matches!(accepted, Err(ConnectError::Tls(_))), "the other side is told by an alert");
}

/// Shows the certificate of one node and signs with the key of another.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesClientCert for Thief {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_is_worth_nothing() {
    let [victim, thief, node] = [(); 3].map(|()| tls(PostQuantum::Hybrid));
    let stolen = victim.client().identity().expect("a node's").0.clone();
    let own_key = thief.client().identity().expect("a node's").1.clone_key();
    let own_key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&own_key).expect("a key");
    let mut config = Arc::unwrap_or_clone(thief.client().pinned_to(node.node_id()).expect("settings"));
    config.client_auth_cert_resolver = Arc::new(Thief(Arc::new(CertifiedKey::new(vec![stolen], own_key))));
    let name = rustls::pki_types::ServerName::try_from("oap.invalid").expect("a name");
    let side = rustls::client::UnbufferedClientConnection::new(Arc::new(config), name).expect("a side");
    let error = outcome_of(Side::Client(Box::new(side)), &node).await;
    let is_signature = matches!(&error, ConnectError::Tls(rustls::Error::InvalidCertificate(why))
        if *why == rustls::CertificateError::BadSignature);
    assert!(is_signature, "{error}");
}

#[test]
fn only_one_certificate_with_a_node_key_names_a_node() {
    use crate::tls::pin::node_of;
    let node = tls(PostQuantum::Hybrid);
    let own = node.client().identity().expect("a node's").0.clone();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate with a P-256 key");
    assert_eq!(node_of(&own, &[]), Ok(node.node_id()));
    assert!(node_of(other.cert.der(), &[]).is_err(), "another kind of key");
    assert!(node_of(&own, &[other.cert.der().clone()]).is_err(), "a chain");
    assert!(node_of(&own[1..].to_vec().into(), &[]).is_err(), "no certificate");
}

async fn outcome_of(side: Side, node: &Tls) -> ConnectError {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let limits = SessionLimits::default();
    let (read, write) = tokio::io::split(a);
    let mut dialler = Beginning::new(read, write, side, PostQuantum::Hybrid, &limits);
    let (read, write) = tokio::io::split(b);
    let accepting = accept_on(read, write, ADDRESS, node, hello(), &limits);
    let (_, accepted) = both(dialler.handshake(), accepting).await;
    accepted.err().expect("refused")
}

async fn groups(dialler: PostQuantum, node: PostQuantum) -> Result<&'static str, (ConnectError, ConnectError)> {
    let (dialler, node) = (tls(dialler), tls(node));
    match over_tcp(&dialler, &node, &node).await {
        (Ok(dialled), Ok(accepted)) => {
            assert_eq!(dialled.facts.tls_group, accepted.facts.tls_group);
            Ok(dialled.facts.tls_group)
        }
        (Err(dialled), Err(accepted)) => Err((dialled, accepted)),
        _ => panic!("the two sides do not agree"),
    }
}

#[tokio::test]
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

#[tokio::test]
async fn a_side_that_means_another_protocol_is_refused() {
    let node = tls(PostQuantum::Hybrid);
    let mut config = Arc::unwrap_or_clone(node.client().pinned_to(node.node_id()).expect("settings"));
    config.alpn_protocols = Vec::new();
    let name = rustls::pki_types::ServerName::try_from("oap.invalid").expect("a name");
    let side = rustls::client::UnbufferedClientConnection::new(Arc::new(config), name).expect("a side");
    let error = outcome_of(Side::Client(Box::new(side)), &node).await;
    assert!(matches!(error, ConnectError::Tls(rustls::Error::NoApplicationProtocol)), "{error}");
    assert!(client_side(node.client(), node.node_id()).is_ok());
}
