//! The end of a connection whose last request was refused before its body was read: closing a socket with unread input
//! resets it, and a reset can overtake the answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use ron_kernel::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Time a peer has to read its answer while the rest of its body is thrown away.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum bytes of a body that are thrown away for that.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Whether the body of the last request of a connection was left unread. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// The request with a body that tells whether it was read to its end.
    pub(crate) fn watch(&self, request: Request<Incoming>) -> Request<Body> {
        self.0.store(false, Ordering::Relaxed);
        request.map(|body| match body.is_end_stream() {
            true => Body::new(body),
            false => Body::new(Watched { body, is_over: false, unread: self.clone() }),
        })
    }
}

struct Watched {
    body: Incoming,
    is_over: bool,
    unread: Unread,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.is_over = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            self.unread.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A stream that is closed only once its peer is done, or has had its time, if a body was left unread.
pub(crate) struct Lingering<S> {
    stream: S,
    unread: Unread,
    /// Set once our side is closed: what may still be thrown away, and until when.
    rest: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S, unread: Unread) -> Self {
        Lingering { stream, unread, rest: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Lingering { stream, unread, rest } = self.get_mut();
        if rest.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !unread.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            *rest = Some((BYTES_MAX, Box::pin(tokio::time::sleep_until(clock::now() + PATIENCE))));
        }
        let Some((left, patience)) = rest else { return Poll::Ready(Ok(())) };
        let mut waste = [0; 4096];
        while *left > 0 && patience.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut waste);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => *left = left.saturating_sub(buffer.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
