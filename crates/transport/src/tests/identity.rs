//! Who the other side is: pins, stolen certificates, and the key exchange both can do.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

use super::harness::*;
use crate::{
    Carrier, ConnectError, Direction, PostQuantum, Remote, SessionLimits, Tls, dial_as_client, quic::tests::harness,
};

for_each_carrier! {
    #[tokio::test] {
        both_sides_know_each_other,
        a_client_without_certificate_is_a_client,
        another_node_at_the_address_gets_no_session,
        a_certificate_without_its_key_is_worth_nothing,
        the_key_exchange_is_what_both_policies_allow,
        a_side_that_means_another_protocol_is_refused,
    }
}

async fn both_sides_know_each_other(carrier: Carrier) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_sockets(carrier, &dialler, &node, &node).await;
    let (dialled, accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    assert_eq!((dialled.facts.remote, dialled.facts.direction), (Remote::Node(node.node_id()), Direction::Out));
    assert_eq!((accepted.facts.remote, accepted.facts.direction), (Remote::Node(dialler.node_id()), Direction::In));
    assert_eq!(accepted.facts.their_hello.node_id, Some(dialler.node_id().to_string()));
    assert_eq!(dialled.facts.agreed, accepted.facts.agreed);
}

async fn a_client_without_certificate_is_a_client(carrier: Carrier) {
    let node = tls(PostQuantum::Hybrid);
    let (socket, limits) = (Socket::bind(carrier, &node).await, SessionLimits::default());
    let address = socket.address(&node);
    let dialling = dial_as_client(&address, PostQuantum::Hybrid, hello(), &limits);
    let (dialled, accepted) = both(dialling, socket.accept(&node, &limits)).await;
    assert_eq!(dialled.expect("a session").facts.remote, Remote::Node(node.node_id()));
    let accepted = accepted.expect("a session");
    assert_eq!((accepted.facts.remote, &accepted.facts.their_hello.node_id), (Remote::Client, &None));
}

async fn another_node_at_the_address_gets_no_session(carrier: Carrier) {
    let [dialler, node, expected] = [(); 3].map(|()| tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_sockets(carrier, &dialler, &node, &expected).await;
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

/// The settings with which a node is dialled, to be changed.
fn settings(dialler: &Tls, node: &Tls) -> ClientConfig {
    Arc::unwrap_or_clone(dialler.client().pinned_to(node.node_id()).expect("settings"))
}

/// What a node makes of a dialling side with these settings.
async fn refusal_of(carrier: Carrier, config: ClientConfig, node: &Tls) -> ConnectError {
    match carrier {
        Carrier::Tcp => pipe::refusal_of(config, node).await,
        Carrier::Quic => harness::refusal_of(config, node).await,
    }
}

async fn a_certificate_without_its_key_is_worth_nothing(carrier: Carrier) {
    let [victim, thief, node] = [(); 3].map(|()| tls(PostQuantum::Hybrid));
    let stolen = victim.client().identity().expect("a node's").0.clone();
    let own_key = thief.client().identity().expect("a node's").1.clone_key();
    let own_key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&own_key).expect("a key");
    let mut config = settings(&thief, &node);
    config.client_auth_cert_resolver = Arc::new(Thief(Arc::new(CertifiedKey::new(vec![stolen], own_key))));
    let error = refusal_of(carrier, config, &node).await;
    let bad_signature = rustls::Error::InvalidCertificate(rustls::CertificateError::BadSignature);
    let is_signature = match &error {
        // QUIC keeps the text of an error and not the error.
        ConnectError::Tls(rustls::Error::General(text)) => *text == bad_signature.to_string(),
        ConnectError::Tls(error) => *error == bad_signature,
        _ => false,
    };
    assert!(is_signature, "{error:?}");
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

async fn groups(
    carrier: Carrier,
    dialler: PostQuantum,
    node: PostQuantum,
) -> Result<&'static str, (ConnectError, ConnectError)> {
    let (dialler, node) = (tls(dialler), tls(node));
    match over_sockets(carrier, &dialler, &node, &node).await {
        (Ok(dialled), Ok(accepted)) => {
            assert_eq!(dialled.facts.tls_group, accepted.facts.tls_group);
            Ok(dialled.facts.tls_group)
        }
        (Err(dialled), Err(accepted)) => Err((dialled, accepted)),
        _ => panic!("the two sides do not agree"),
    }
}

async fn the_key_exchange_is_what_both_policies_allow(carrier: Carrier) {
    use PostQuantum::{Hybrid, Off, Required};
    for (dialler, node) in [(Hybrid, Hybrid), (Required, Hybrid), (Hybrid, Required), (Required, Required)] {
        assert_eq!(groups(carrier, dialler, node).await.ok(), Some("X25519MLKEM768"), "{dialler:?} {node:?}");
    }
    for (dialler, node) in [(Off, Hybrid), (Hybrid, Off), (Off, Off)] {
        assert_eq!(groups(carrier, dialler, node).await.ok(), Some("X25519"), "{dialler:?} {node:?}");
    }
    for (dialler, node) in [(Required, Off), (Off, Required)] {
        let (dialled, accepted) = groups(carrier, dialler, node).await.expect_err("nothing in common");
        assert!(matches!(dialled, ConnectError::NotPostQuantum), "{dialled}");
        assert!(matches!(accepted, ConnectError::NotPostQuantum), "{accepted}");
    }
}

async fn a_side_that_means_another_protocol_is_refused(carrier: Carrier) {
    let node = tls(PostQuantum::Hybrid);
    let mut config = settings(&node, &node);
    config.alpn_protocols = Vec::new();
    let error = refusal_of(carrier, config, &node).await;
    assert!(matches!(error, ConnectError::Tls(rustls::Error::NoApplicationProtocol)), "{error}");
}
