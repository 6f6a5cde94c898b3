//! Where a node is, and how to get there.

use std::fmt::Display;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::LinkError;

/// A plane of a node: its address, and whom to trust there.
pub struct Endpoint {
    address: String,
    host: ServerName<'static>,
    tls: Option<TlsConnector>,
}

/// A connection, with TLS or without.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Endpoint {
    /// At `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`; the last one needs the root certificates to trust, in PEM.
    pub fn new(url: &str, root_pem: Option<&[u8]>) -> Result<Endpoint, LinkError> {
        Endpoint::with(url, || connector(root_pem))
    }

    /// As [`Endpoint::new`], where whom to trust was decided before.
    pub fn trusting(url: &str, tls: &Arc<rustls::ClientConfig>) -> Result<Endpoint, LinkError> {
        Endpoint::with(url, || Ok(TlsConnector::from(Arc::clone(tls))))
    }

    fn with(url: &str, connector: impl FnOnce() -> Result<TlsConnector, LinkError>) -> Result<Endpoint, LinkError> {
        let misspelled = || LinkError::Address(url.to_owned());
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let address = rest.trim_end_matches('/').to_owned();
        let (host, port) = address.rsplit_once(':').ok_or_else(misspelled)?;
        port.parse::<u16>().map_err(|_| misspelled())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = ServerName::try_from(host).map_err(|_| misspelled())?;
        let tls = match scheme {
            "http" => None,
            "https" => Some(connector()?),
            _ => return Err(misspelled()),
        };
        Ok(Endpoint { address, host, tls })
    }

    /// `HOST:PORT` of the endpoint.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// As an address of the web.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    pub(crate) async fn connect(&self) -> Result<Box<dyn Stream>, LinkError> {
        let stream = TcpStream::connect(&self.address).await.map_err(LinkError::Connect)?;
        // Requests are written whole; waiting for more to write would only make them late.
        stream.set_nodelay(true).map_err(LinkError::Connect)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let stream = tls.connect(self.host.clone(), stream).await.map_err(LinkError::Tls)?;
        Ok(Box::new(stream))
    }
}

fn connector(root_pem: Option<&[u8]>) -> Result<TlsConnector, LinkError> {
    let unusable = |cause: &dyn Display| LinkError::Root(cause.to_string());
    let pem = root_pem.ok_or_else(|| unusable(&"https needs the root to trust"))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_written() {
        let endpoint = |url: &str| Endpoint::new(url, None).map(|endpoint| (endpoint.url(), endpoint.address));
        for (url, address) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://node.example:80", "node.example:80"),
            ("[::1]:9600", "[::1]:9600"),
        ] {
            assert_eq!(endpoint(url).expect("an address"), (format!("http://{address}"), address.to_owned()));
        }
        for wrong in ["127.0.0.1", "http://node", "ftp://x:1", ":80", "http://:80", "x:99999", ""] {
            assert!(matches!(endpoint(wrong), Err(LinkError::Address(_))), "{wrong}");
        }
    }

    #[test]
    fn https_needs_a_root() {
        let refused = |root| Endpoint::new("https://127.0.0.1:1", root).map(|_| ()).expect_err("refused").to_string();
        assert_eq!(refused(None), "https needs the root to trust");
        assert_eq!(refused(Some(b"")), "no certificate in it");
    }
}
