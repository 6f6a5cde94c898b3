//! One keep-alive HTTP/1.1 connection, and what can go wrong on it told apart.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// No single request of a test waits longer than this.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Complete HTTP answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("status {}: {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// One header as text; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Reason why there is no complete answer.
#[derive(Debug)]
pub enum CallError {
    /// The connection had ended before the request was written.
    NotSent,
    /// The connection ended after the request was written and before an answer began.
    Unanswered(hyper::Error),
    /// The answer began and was cut off.
    Truncated(hyper::Error),
    /// No byte came for [`PATIENCE`].
    TimedOut,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::NotSent => formatter.write_str("the connection was closed before the request was sent"),
            CallError::Unanswered(error) => write!(formatter, "no answer: {error}"),
            CallError::Truncated(error) => write!(formatter, "the answer was cut off: {error}"),
            CallError::TimedOut => write!(formatter, "no answer within {PATIENCE:?}"),
        }
    }
}

impl std::error::Error for CallError {}

/// One connection. It is never replaced by another; that is the caller's business.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Moves the bytes; dropping it closes the connection.
    driver: JoinSet<()>,
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await.context("connect")??;
        Client::over(stream, address).await
    }

    /// Connects from one address of this machine; every address of 127/8 is one.
    pub async fn connect_from(source: Ipv4Addr, address: SocketAddr) -> anyhow::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = tokio::time::timeout(PATIENCE, socket.connect(address)).await.context("connect")??;
        Client::over(stream, address).await
    }

    async fn over(stream: TcpStream, address: SocketAddr) -> anyhow::Result<Client> {
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Whoever sent the request is told of the same error.
            let _ = connection.await;
        });
        Ok(Client { sender, host: address.to_string(), driver })
    }

    /// Sends one request and reads the whole answer.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply, CallError> {
        let mut builder = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(Full::new(body.into())).expect("tests write valid methods, paths and headers");
        tokio::time::timeout(PATIENCE, self.exchange(request)).await.unwrap_or(Err(CallError::TimedOut))
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, CallError> {
        self.sender.ready().await.map_err(|_| CallError::NotSent)?;
        let response = self.sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(_unsent) => CallError::NotSent,
            None => CallError::Unanswered(error.into_error()),
        })?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(CallError::Truncated)?.to_bytes();
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Whether the connection is known to have ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.driver.is_empty()
    }
}
