//! TLS as this plane speaks it: version 1.3 only, hybrid post-quantum key exchange first, HTTP/2 before HTTP/1.1.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reason why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file is not PEM.
    #[error("the certificate chain is not PEM: {0}")]
    Certificates(pem::Error),
    /// There is no certificate in it.
    #[error("the certificate chain is empty")]
    NoCertificate,
    /// The key file holds no private key in PEM.
    #[error("the private key is not PEM: {0}")]
    Key(pem::Error),
    /// The two do not fit together, or are of a kind that is not supported.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The server side of TLS from a certificate chain and its private key, both in PEM.
pub fn tls_config(cert_pem: &[u8], key_pem: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert_pem).collect();
    let chain = chain.map_err(TlsError::Certificates)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(certificate: &str, key: &str) -> String {
        tls_config(certificate.as_bytes(), key.as_bytes()).expect_err("unusable").to_string()
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said() {
        let mine = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let (certificate, key) = (mine.cert.pem(), mine.signing_key.serialize_pem());
        assert!(tls_config(certificate.as_bytes(), key.as_bytes()).is_ok());
        assert!(outcome("", &key).contains("empty"));
        assert!(outcome(&certificate, "").contains("private key"));
        assert!(outcome(&certificate, &other.signing_key.serialize_pem()).contains("cannot be used"));
    }
}
