//! What the socket takes: tells its connection's pace when bytes wait for a peer that does not read, and how many it
//! takes of them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection_state::ConnectionState;

/// A socket under everything else, TLS included: above it, bytes taken into a buffer look like bytes sent.
pub(crate) struct WriteStallGuard<S> {
    stream: S,
    pace: Arc<ConnectionState>,
    /// State last told to the connection; it is told only of changes, so that a write that goes through costs nothing.
    blocked: Option<Step>,
    /// The socket has halted since the peer last took as much as it must; only then are its bytes counted.
    is_slow: bool,
}

/// Operation that the socket blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Flush,
    Shutdown,
}

impl<S> WriteStallGuard<S> {
    pub(crate) fn new(stream: S, pace: Arc<ConnectionState>) -> Self {
        WriteStallGuard { stream, pace, blocked: None, is_slow: false }
    }

    fn note<T>(&mut self, step: Step, outcome: Poll<T>) -> Poll<T> {
        match (self.blocked, &outcome) {
            (None, Poll::Pending) => {
                self.blocked = Some(step);
                self.is_slow = true;
                self.pace.blocked(true);
            }
            // A socket has nothing to flush, so a flush that is ready says nothing of a write that waits.
            (Some(waits), Poll::Ready(_)) if waits == step || step != Step::Flush => {
                self.blocked = None;
                self.pace.blocked(false);
            }
            _ => {}
        }
        outcome
    }

    fn note_write(&mut self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let outcome = self.note(Step::Write, outcome);
        if let (true, Poll::Ready(Ok(bytes))) = (self.is_slow, &outcome) {
            self.is_slow = self.pace.took_after_halt(*bytes);
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteStallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteStallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_write(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(Step::Flush, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.note(Step::Shutdown, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
