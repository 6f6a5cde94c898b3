//! The way to a ledger behind HTTP: its address, its certificate, our token, and one connection.

use super::lock;
use crate::tls;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// What the token stands behind in its header.
const SCHEME: &[u8] = b"Bearer ";

/// Where the ledger is, and how long it may take.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address that the paths of the contract follow: `https://ledger.example/v1`. Without TLS only on this machine.
    pub base: String,
    /// File that holds the token sent as `Authorization: Bearer`; read again when the ledger does not take it.
    pub token_file: Option<PathBuf>,
    /// File of root certificates in PEM; without it those of the system count.
    pub ca_file: Option<PathBuf>,
    /// Time for an answer.
    pub timeout: Duration,
}

impl HttpOptions {
    /// A ledger at this address, with the usual time.
    pub fn at(base: impl Into<String>) -> HttpOptions {
        HttpOptions { base: base.into(), token_file: None, ca_file: None, timeout: Duration::from_secs(5) }
    }
}

/// Why there was no answer.
#[derive(Debug)]
pub(super) struct LinkError(pub String);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Options that were read and understood.
pub(super) struct Place {
    /// Path of the base, without a slash at its end.
    path: String,
    authority: HeaderValue,
    /// Host and port to connect to.
    address: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token_file: Option<PathBuf>,
    token: Mutex<Option<HeaderValue>>,
}

impl Place {
    pub fn new(options: &HttpOptions) -> Result<Place, String> {
        let strange = || format!("{} is no address of a ledger", options.base);
        let uri: Uri = options.base.parse().map_err(|_| strange())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(strange)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (tls, port) = match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| strange())?;
                let config = tls::client_config(options.ca_file.as_deref())?;
                (Some((TlsConnector::from(Arc::new(config)), name)), 443)
            }
            Some("http") if is_here => (None, 80),
            Some("http") => return Err(format!("{}: only https leaves this machine", options.base)),
            _ => return Err(strange()),
        };
        if uri.query().is_some() {
            return Err(strange());
        }
        let port = authority.port_u16().unwrap_or(port);
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let place = Place {
            path: uri.path().trim_end_matches('/').to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| strange())?,
            address,
            tls,
            token_file: options.token_file.clone(),
            token: Mutex::new(None),
        };
        *lock(&place.token) = place.read_token()?;
        Ok(place)
    }

    pub fn base(&self) -> &str {
        &self.path
    }

    pub fn authority(&self) -> HeaderValue {
        self.authority.clone()
    }

    pub fn token(&self) -> Option<HeaderValue> {
        lock(&self.token).clone()
    }

    /// The token as it stands in its file.
    pub fn secret(&self) -> Option<Vec<u8>> {
        let token = self.token()?;
        token.as_bytes().strip_prefix(SCHEME).map(<[u8]>::to_vec)
    }

    fn read_token(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let bytes = tls::read_small(path)?;
        let token = [SCHEME, bytes.trim_ascii()].concat();
        let token = HeaderValue::from_bytes(&token).map_err(|_| format!("{}: no token in it", path.display()));
        token.map(|mut token| {
            token.set_sensitive(true);
            Some(token)
        })
    }

    /// The token may have been changed in its file; one that cannot be read leaves the old one.
    pub fn read_token_again(&self) {
        match self.read_token() {
            Ok(token) => *lock(&self.token) = token,
            Err(error) => tracing::warn!(%error, "the token of the ledger cannot be read"),
        }
    }

    pub async fn connect(&self) -> Result<Link, LinkError> {
        let lost = |error: std::io::Error| LinkError(format!("{}: {error}", self.address));
        let stream = TcpStream::connect(&self.address).await.map_err(lost)?;
        // Requests are written whole; waiting for more to write would only make them late.
        stream.set_nodelay(true).map_err(lost)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await.map_err(lost)?),
            None => Box::new(stream),
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| LinkError(error.to_string()))?;
        let connection = Box::pin(async {
            // What went wrong is told to whoever waits for the answer.
            let _ = connection.await;
        });
        Ok(Link { sender, connection: Some(connection) })
    }
}

/// An open connection; its bytes move only while somebody uses it.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    connection: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Link {
    pub fn is_open(&self) -> bool {
        self.connection.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and reads its answer, of which no more than so many bytes are taken.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, LinkError> {
        let Link { sender, connection } = self;
        let mut work = pin!(async {
            let answered = sender.send_request(request).await;
            let (head, body) = answered.map_err(|error| LinkError(error.to_string()))?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|error| LinkError(format!("the answer: {error}")))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        });
        if let Some(moving) = connection {
            tokio::select! {
                biased;
                done = &mut work => return done,
                // The connection may be over before its last bytes have been taken.
                () = moving => {}
            }
        }
        *connection = None;
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(base: &str) -> Result<(String, String), String> {
        let place = Place::new(&HttpOptions::at(base))?;
        Ok((place.address, place.path))
    }

    #[test]
    fn addresses_are_read_as_written() {
        for (base, address, path) in [
            ("http://127.0.0.1:8080/", "127.0.0.1:8080", ""),
            ("http://localhost/v1/", "localhost:80", "/v1"),
            ("http://[::1]:9/a/b", "[::1]:9", "/a/b"),
        ] {
            assert_eq!(place(base), Ok((address.to_owned(), path.to_owned())));
        }
        for wrong in ["", "ledger", "ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1/?a=b", "/v1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
        assert!(place("http://ledger.example/").unwrap_err().contains("only https"));
        assert!(place("http://10.0.0.1/").unwrap_err().contains("only https"));
    }

    #[test]
    fn a_token_comes_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let options = HttpOptions { token_file: Some(file.clone()), ..HttpOptions::at("http://localhost") };
        assert!(Place::new(&options).map(drop).unwrap_err().contains("token"));
        std::fs::write(&file, "first\n").unwrap();
        let place = Place::new(&options).unwrap();
        assert_eq!(place.token().unwrap(), "Bearer first");
        std::fs::write(&file, "second").unwrap();
        place.read_token_again();
        assert_eq!(place.token().unwrap(), "Bearer second");
        std::fs::remove_file(&file).unwrap();
        place.read_token_again();
        assert_eq!(place.token().unwrap(), "Bearer second", "the old one is better than none");
    }
}
