//! Which certificates are believed: those that carry an Ed25519 key, on the dialling side exactly one key.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerIncompatible, SignatureScheme,
};

use crate::identity::{NODE_ID_BYTES, NodeId};

/// What stands before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410); the whole is always this
/// long.
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Another node answered than the one that was dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {got} answered instead of {expected}")]
pub(crate) struct WrongPin {
    pub(crate) expected: NodeId,
    pub(crate) got: NodeId,
}

/// The dialling side: the server has to be this node.
pub(crate) struct OneNode {
    expected: NodeId,
    /// Who was refused; errors of QUIC do not carry it.
    refused: OnceLock<WrongPin>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The accepting side: a certificate has to carry a node key; which nodes are welcome is for others to say.
pub(super) struct AnyNode {
    algorithms: WebPkiSupportedAlgorithms,
}

/// The node id that a chain of certificates carries. The holder of the key signs the handshake, so the certificate
/// needs no signature of anybody, no name and no dates; a chain of more than one says something we do not understand.
pub(crate) fn node_of(certificate: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<NodeId, Error> {
    let unfit = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
    if !rest.is_empty() {
        return Err(unfit);
    }
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    let key = key.strip_prefix(&ED25519_PREFIX).ok_or_else(|| unfit.clone())?;
    <[u8; NODE_ID_BYTES]>::try_from(key).map(NodeId::from_bytes).map_err(|_| unfit)
}

impl OneNode {
    pub(super) fn new(expected: NodeId, provider: &CryptoProvider) -> Self {
        OneNode { expected, refused: OnceLock::new(), algorithms: provider.signature_verification_algorithms }
    }

    /// The node that answered instead of the expected one, if another did.
    pub(crate) fn refused(&self) -> Option<WrongPin> {
        self.refused.get().copied()
    }
}

impl AnyNode {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        AnyNode { algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for OneNode {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let got = node_of(end_entity, intermediates)?;
        if got != self.expected {
            let wrong = *self.refused.get_or_init(|| WrongPin { expected: self.expected, got });
            return Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for AnyNode {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        node_of(end_entity, intermediates).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl fmt::Debug for OneNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneNode({})", self.expected)
    }
}

impl fmt::Debug for AnyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyNode")
    }
}
