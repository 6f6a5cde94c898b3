//! Where a node is, what opens it, and how to get there.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// How to reach a node.
#[derive(Clone)]
pub struct Options {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// The capability: what `macronode token mint` gave, or what is in `operator.token`.
    pub token: String,
    /// The root certificates to trust, in PEM; https needs them.
    pub root_pem: Option<Vec<u8>>,
    /// Connections that carry sends and acknowledgements.
    pub connections: usize,
    /// How long a call may take in all, and how long the node may take for a request.
    pub patience: Duration,
    /// Calls that may wait for a connection; more of them wait to be let in.
    pub pending_max: usize,
}

/// A node's address, checked.
pub struct Door {
    pub address: String,
    pub bearer: HeaderValue,
    host: ServerName<'static>,
    tls: Option<TlsConnector>,
}

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Options {
    /// A node and the token that opens it.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            token: token.into(),
            root_pem: None,
            connections: 2,
            patience: Duration::from_secs(10),
            pending_max: 10_000,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        formatter.debug_struct("Options").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Door {
    pub fn new(options: &Options) -> Result<Door, Error> {
        let misspelled = || Error::Options(format!("`{}` is not http://HOST:PORT or https://HOST:PORT", options.url));
        let (scheme, rest) = options.url.split_once("://").ok_or_else(misspelled)?;
        let address = rest.trim_end_matches('/').to_owned();
        let (host, port) = address.rsplit_once(':').ok_or_else(misspelled)?;
        port.parse::<u16>().map_err(|_| misspelled())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = ServerName::try_from(host).map_err(|_| misspelled())?;
        let tls = match scheme {
            "http" => None,
            "https" => Some(connector(options.root_pem.as_deref())?),
            _ => return Err(misspelled()),
        };
        let bearer = HeaderValue::from_str(&format!("Bearer {}", options.token.trim()));
        let mut bearer = bearer.map_err(|_| Error::Options("this is not a token".to_owned()))?;
        bearer.set_sensitive(true);
        Ok(Door { address, bearer, host, tls })
    }

    pub async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| self.unreachable(&error))?;
        // Requests are written whole; waiting for more to write would only make them late.
        stream.set_nodelay(true).map_err(|error| self.unreachable(&error))?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let stream = tls.connect(self.host.clone(), stream).await.map_err(|error| self.unreachable(&error))?;
        Ok(Box::new(stream))
    }

    pub fn unreachable(&self, cause: &dyn std::fmt::Display) -> Error {
        Error::Unreachable { address: self.address.clone(), cause: cause.to_string() }
    }
}

fn connector(root_pem: Option<&[u8]>) -> Result<TlsConnector, Error> {
    let unusable = |cause: &dyn std::fmt::Display| Error::Options(format!("root_pem: {cause}"));
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
        let door = |url: &str| Door::new(&Options::new(url, "abc")).map(|door| door.address);
        assert_eq!(door("http://127.0.0.1:8080/").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(door("http://[::1]:80").as_deref(), Ok("[::1]:80"));
        assert_eq!(door("http://node.example:80").as_deref(), Ok("node.example:80"));
        for wrong in ["127.0.0.1:80", "http://node", "ftp://x:1", "http://:80", "http://x:99999", ""] {
            assert!(matches!(door(wrong), Err(Error::Options(_))), "{wrong}");
        }
    }

    #[test]
    fn https_needs_a_root_and_a_token_is_one_line() {
        let refused = |options: Options| Door::new(&options).map(|_| ()).expect_err("refused").to_string();
        let https = Options::new("https://127.0.0.1:1", "abc");
        assert_eq!(refused(https.clone()), "root_pem: https needs the root to trust");
        assert_eq!(refused(Options { root_pem: Some(Vec::new()), ..https }), "root_pem: no certificate in it");
        assert_eq!(refused(Options::new("http://127.0.0.1:1", "a\nb")), "this is not a token");
    }

    #[test]
    fn the_token_is_never_shown() {
        assert!(!format!("{:?}", Options::new("http://127.0.0.1:1", "secret")).contains("secret"));
    }
}
