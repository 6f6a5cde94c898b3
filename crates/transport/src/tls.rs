//! TLS as nodes speak it: version 1.3 only, a certificate is only the carrier of a node key, and peers are pinned.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, NamedGroup, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::identity::{KeyError, NodeId, NodeKey};

pub(crate) mod pin;

/// Whether the key exchange withstands somebody who records now and has a quantum computer later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PostQuantum {
    /// X25519MLKEM768 where the other side can, X25519 where it cannot.
    #[default]
    Hybrid,
    /// X25519MLKEM768, or no connection.
    Required,
    /// X25519 only.
    Off,
}

/// Reason why there is no TLS for a node.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The node's key is of no use.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// The certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The library refused the settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(#[from] rustls::Error),
}

/// Both sides of TLS for one node. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    server: Arc<ServerConfig>,
    client: ClientTls,
    node_id: NodeId,
    reset_key: Arc<::aws_lc_rs::hmac::Key>,
}

/// The dialling side: with the certificate of a node, or with none.
#[derive(Clone)]
pub(crate) struct ClientTls {
    provider: Arc<CryptoProvider>,
    post_quantum: PostQuantum,
    identity: Option<Arc<(CertificateDer<'static>, PrivateKeyDer<'static>)>>,
}

impl Tls {
    /// TLS with the key of a node: its certificate is self-signed, and made here.
    ///
    /// As a server it asks for a certificate and does not demand one: a client without is a [`crate::Remote::Client`].
    pub fn new(key: &NodeKey, post_quantum: PostQuantum) -> Result<Self, TlsError> {
        let certificate = self_signed(key)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8()?.to_vec()));
        let provider = Arc::new(provider(post_quantum));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(pin::AnyNode::new(&provider)))
            .with_single_cert(vec![certificate.clone()], private.clone_key())?;
        server.alpn_protocols = vec![oap::ALPN.to_vec()];
        // A resumed handshake costs the server about as much as a full one with these keys, and a ticket is a secret
        // that outlives its session.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let identity = Some(Arc::new((certificate, private)));
        let client = ClientTls { provider, post_quantum, identity };
        Ok(Tls { server: Arc::new(server), client, node_id: key.node_id(), reset_key: Arc::new(reset_key(key)?) })
    }

    /// Key of the words with which a node that has forgotten a QUIC connection tells the other side so.
    pub(crate) fn reset_key(&self) -> Arc<::aws_lc_rs::hmac::Key> {
        Arc::clone(&self.reset_key)
    }

    /// The node whose key it has.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// Its policy for the key exchange.
    pub fn post_quantum(&self) -> PostQuantum {
        self.client.post_quantum
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    pub(crate) fn client(&self) -> &ClientTls {
        &self.client
    }
}

impl ClientTls {
    /// A dialling side that shows no certificate.
    pub(crate) fn anonymous(post_quantum: PostQuantum) -> Self {
        ClientTls { provider: Arc::new(provider(post_quantum)), post_quantum, identity: None }
    }

    pub(crate) fn post_quantum(&self) -> PostQuantum {
        self.post_quantum
    }

    #[cfg(test)]
    pub(crate) fn identity(&self) -> Option<&(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        self.identity.as_deref()
    }

    /// Settings that accept exactly one node. They are made for each dial, because the pin is part of them.
    pub(crate) fn pinned_to(&self, node_id: NodeId) -> Result<Arc<ClientConfig>, rustls::Error> {
        self.believing(self.pin_of(node_id))
    }

    pub(crate) fn pin_of(&self, node_id: NodeId) -> Arc<pin::OneNode> {
        Arc::new(pin::OneNode::new(node_id, &self.provider))
    }

    /// [`ClientTls::pinned_to`] with a pin that somebody wants to ask afterwards.
    pub(crate) fn believing(&self, pin: Arc<pin::OneNode>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pin);
        let mut config = match &self.identity {
            Some(identity) => builder.with_client_auth_cert(vec![identity.0.clone()], identity.1.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![oap::ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        // The name would say nothing that the pin does not, and would say it in the clear.
        config.enable_sni = false;
        Ok(Arc::new(config))
    }
}

fn provider(post_quantum: PostQuantum) -> CryptoProvider {
    let groups: &[&'static dyn SupportedKxGroup] = match post_quantum {
        PostQuantum::Hybrid => &[aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519],
        PostQuantum::Required => &[aws_lc_rs::kx_group::X25519MLKEM768],
        PostQuantum::Off => &[aws_lc_rs::kx_group::X25519],
    };
    CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() }
}

/// Follows from the node's key, so that a node still has it after a crash, which is when it is needed.
fn reset_key(key: &NodeKey) -> Result<::aws_lc_rs::hmac::Key, KeyError> {
    use ::aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
    let secret = sign(&Key::new(HMAC_SHA256, &key.to_pkcs8()?), b"macronode: resets of QUIC connections");
    Ok(Key::new(HMAC_SHA256, secret.as_ref()))
}

/// The certificate only carries the key; nothing else in it is ever looked at.
fn self_signed(key: &NodeKey) -> Result<CertificateDer<'static>, TlsError> {
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new())?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, key.node_id().to_string());
    Ok(parameters.self_signed(&key.signing_pair()?)?.der().clone())
}

/// The name of a key exchange group, for people and labels of metrics.
pub(crate) fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::X25519 => "X25519",
        _ => "other",
    }
}
