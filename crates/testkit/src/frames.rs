//! The framed port as bytes: a TLS connection and whatever a test writes into it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use oap::{AppId, Control, Decoder, Frame, Hello};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::trusting;

/// Largest frame that is spoken of.
const FRAME_BYTES_MAX: usize = oap::FRAME_BYTES_MAX;

/// A session as bytes: TLS, and whatever a test writes into it.
pub struct RawSession {
    /// The connection after TLS.
    pub stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl RawSession {
    /// TLS alone.
    pub async fn connect(address: SocketAddr) -> RawSession {
        RawSession::over(TcpStream::connect(address).await.expect("the node listens")).await
    }

    /// TLS alone, on a connection that is there.
    pub async fn over(stream: TcpStream) -> RawSession {
        stream.set_nodelay(true).expect("a socket");
        let config = trusting::anything(&[oap::ALPN]);
        let name = "node".try_into().expect("a name");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.expect("the node speaks TLS");
        RawSession { stream, decoder: Decoder::new(FRAME_BYTES_MAX) }
    }

    /// TLS and HELLO with a token.
    pub async fn hello(address: SocketAddr, token: &str) -> RawSession {
        RawSession::connect(address).await.greeted(token).await
    }

    /// The same after HELLO with a token.
    pub async fn greeted(self, token: &str) -> RawSession {
        let mut raw = self;
        let hello = Hello { cap: Some(token.to_owned()), ..Hello::new(FRAME_BYTES_MAX as u32, 64) };
        raw.write(&Control::Hello(hello).to_frame().to_bytes()).await;
        let answer = raw.frame().await.expect("a HELLO");
        assert!(matches!(Control::parse(&answer), Ok(Control::Hello(_))), "{answer:?}");
        raw
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the node reads");
        self.stream.flush().await.expect("the node reads");
    }

    /// The next frame; none at the end.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next().expect("the node writes frames") {
                return Some(frame);
            }
            match self.stream.read_buf(self.decoder.buffer()).await {
                Ok(read) if read > 0 => {}
                _ => return None,
            }
        }
    }

    /// The next frame that is no PING.
    pub async fn answer(&mut self) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if !matches!(Control::parse(&frame), Ok(Control::Ping { .. })) {
                return Some(frame);
            }
        }
    }

    /// Asks the echo of a development node.
    pub async fn echo(&mut self, corr: u64, payload: &[u8]) -> Frame {
        self.write(&echo_frame(corr, payload)).await;
        self.answer().await.expect("a reply")
    }

    /// The code of the farewell that comes before the end, if one does.
    pub async fn farewell(&mut self) -> Option<u16> {
        self.farewell_after().await.map(|(code, _)| code)
    }

    /// The same, with the highest request that it says was begun.
    pub async fn farewell_after(&mut self) -> Option<(u16, u64)> {
        while let Some(frame) = self.frame().await {
            if let Ok(Control::GoAway { code, last_corr, .. }) = Control::parse(&frame) {
                return Some((code, last_corr));
            }
        }
        None
    }
}

/// A request to the echo of a development node.
pub fn echo_frame(corr: u64, payload: &[u8]) -> Vec<u8> {
    Frame::request(AppId::ECHO, corr, Bytes::copy_from_slice(payload)).to_bytes().to_vec()
}
