//! WebSockets (RFC 6455): the handshake on a request, and a socket whose memory is bounded like a request body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::admission::Admission;
use crate::call::Call;
use crate::problem::Problem;
use crate::upgrade::UpgradeOffer;

/// The text that a server appends to the key of a client, from the standard.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The one version of the protocol that there is.
const VERSION: &str = "13";
/// Bytes read at once. Most sockets only listen, so that what each of them keeps is small.
const READ_BYTES: usize = 4 * 1024;

/// A WebSocket of a caller.
pub(crate) type Socket = WebSocketStream<MeteredIo<TokioIo<Upgraded>>>;

/// A request that opens a WebSocket, its handshake checked.
pub(crate) struct WebSocketRequest {
    upgrade: OnUpgrade,
    offer: UpgradeOffer,
    accept: HeaderValue,
}

impl WebSocketRequest {
    /// The handshake in this head; none if the request asks for an answer over HTTP.
    pub(crate) fn of(head: &mut Parts) -> Result<Option<Self>, Problem> {
        if !has_word(&head.headers, header::UPGRADE, "websocket") {
            return Ok(None);
        }
        let version = head.headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
        if version != Some(VERSION.as_bytes()) {
            return Err(Problem::schema(StatusCode::UPGRADE_REQUIRED, "Sec-WebSocket-Version must be 13"));
        }
        let key = head.headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
        if STANDARD.decode(key).map(|key| key.len()) != Ok(16) {
            return Err(refused("Sec-WebSocket-Key must be 16 bytes in base64"));
        }
        let accept = HeaderValue::from_str(&accept_key(key)).map_err(|_| refused("Sec-WebSocket-Key is not a key"))?;
        // Left out by HTTP/1.0, by HTTP/2, and by requests without `Connection: upgrade`.
        let (upgrade, offer) = (head.extensions.remove(), head.extensions.remove());
        let (Some(upgrade), Some(offer)) = (upgrade, offer) else {
            return Err(refused("a WebSocket begins as HTTP/1.1 with Connection: Upgrade"));
        };
        Ok(Some(WebSocketRequest { upgrade, offer, accept }))
    }

    /// The answer that opens the socket; `run` then has it until it ends. Messages over `message_bytes_max` end it.
    pub(crate) fn open<F>(
        self,
        call: &Call,
        message_bytes_max: usize,
        run: impl FnOnce(Socket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send,
    {
        let (upgrade, admission) = (self.upgrade, call.admission.clone());
        self.offer.accept(Box::pin(async move {
            // Fails only if the peer left before it had the answer.
            let Ok(upgraded) = upgrade.await else { return };
            let io = MeteredIo { io: TokioIo::new(upgraded), admission, unread_bytes: 0 };
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BYTES)
                .write_buffer_size(0)
                .max_message_size(Some(message_bytes_max))
                .max_frame_size(Some(message_bytes_max));
            run(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await).await;
        }));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        response
    }
}

fn refused(detail: &'static str) -> Problem {
    Problem::schema(StatusCode::BAD_REQUEST, detail)
}

/// Whether a header that lists words with commas between has this one.
fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut words = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|one| one.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

fn accept_key(key: &[u8]) -> String {
    // The standard asks for SHA-1 as proof that the server speaks WebSocket; nothing rests on its strength.
    let mut digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(KEY_SUFFIX);
    STANDARD.encode(digest.finish())
}

/// The bytes of a WebSocket. What has been read of a message that is not whole yet is held in memory, and counts
/// against the share of the caller like the body of a request.
pub(crate) struct MeteredIo<S> {
    io: S,
    admission: Admission,
    /// Bytes read since the last message.
    unread_bytes: usize,
}

impl<S> MeteredIo<S> {
    /// The message that was read is used up.
    pub(crate) fn message_done(&mut self) {
        self.unread_bytes = 0;
        self.admission.drop_body();
    }
}

impl<S: AsyncRead + Unpin> MeteredIo<S> {
    /// Reads until the peer has ended, and keeps nothing of it.
    pub(crate) async fn throw_away(&mut self) {
        let mut waste = vec![0; READ_BYTES];
        loop {
            self.message_done();
            if !matches!(self.io.read(&mut waste).await, Ok(1..)) {
                return;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.unread_bytes += buffer.filled().len() - before;
        // Once as it came and once decoded.
        match self.admission.hold_body(2 * self.unread_bytes) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(_) => Poll::Ready(Err(io::ErrorKind::OutOfMemory.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn handshake(headers: &[(&'static str, &'static str)]) -> Result<bool, StatusCode> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).expect("a request").into_parts();
        WebSocketRequest::of(&mut head).map(|request| request.is_some()).map_err(|problem| problem.status)
    }

    #[test]
    fn the_key_is_answered_as_the_standard_says() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_handshake_is_recognized_and_its_mistakes_are_told() {
        let (upgrade, version) = (("upgrade", "WebSocket"), ("sec-websocket-version", "13"));
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(handshake(&[]), Ok(false), "an ordinary request");
        assert_eq!(handshake(&[("upgrade", "h2c"), version, key]), Ok(false), "another protocol");
        assert_eq!(handshake(&[upgrade, key]), Err(StatusCode::UPGRADE_REQUIRED));
        assert_eq!(handshake(&[upgrade, ("sec-websocket-version", "8"), key]), Err(StatusCode::UPGRADE_REQUIRED));
        for key in ["", "abc", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZTEyMzQ="] {
            assert_eq!(
                handshake(&[upgrade, version, ("sec-websocket-key", key)]),
                Err(StatusCode::BAD_REQUEST),
                "{key}"
            );
        }
        assert_eq!(handshake(&[upgrade, version, key]), Err(StatusCode::BAD_REQUEST), "no connection to take over");
    }

    #[tokio::test]
    async fn a_message_that_is_not_whole_counts_against_the_share_of_its_caller() {
        let call = Call::alone();
        let mut io = MeteredIo { io: tokio::io::repeat(0), admission: call.admission.clone(), unread_bytes: 0 };
        let mut piece = vec![0; 1 << 20];
        let mut read = 0;
        let error = loop {
            match io.read_exact(&mut piece).await {
                Ok(_) => read += piece.len(),
                Err(error) => break error,
            }
            assert!(read <= ron_types::limits::BODY_MEMORY_BYTES_MAX, "nobody stopped it");
        };
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        io.message_done();
        assert!(io.read_exact(&mut piece).await.is_ok(), "what is used up is given back");
    }
}
