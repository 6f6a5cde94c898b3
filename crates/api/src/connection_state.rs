//! What a connection is doing, so that its silence is judged rightly: between requests it may rest, inside a header
//! block it may not, while a request is worked on the request's own deadline counts, and while bytes wait to be sent
//! the peer has to read.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use ron_kernel::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::admission::HeldAnswer;
use crate::debts::{Debts, Judgement};
use crate::limits::HttpLimits;
use crate::upgrade::Takeover;

/// The first bytes of every HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum bytes of a refused body that are thrown away while its refusal is on the way.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Phase of a connection, which decides how long it may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// A header block has begun, or the first one is awaited.
    Head,
    /// At least one request is being answered.
    Busy,
    /// No request is in flight.
    Quiet,
    /// No request is in flight, and bytes of answers still wait for the peer of an HTTP/2 connection. It reads, or its
    /// debts would be judged: this is no rest, however long it takes.
    Owed,
    /// Our side is closed; what the peer still sends is thrown away, so that it gets to read the last answer.
    Linger,
    /// Bytes wait to be written and the socket takes none, whatever else goes on.
    Blocked,
}

/// The shared state of one connection: its socket, its service and its watchdog.
pub(crate) struct ConnectionState(Mutex<State>);

struct State {
    phase: ConnectionPhase,
    /// Tells a phase from its next return.
    changes: u64,
    in_flight: usize,
    blocked: bool,
    /// Tells a halt of the socket from the next one, and from the changes of a phase it hides.
    blocks: u64,
    /// Moment since which the socket takes nothing.
    blocked_at: Instant,
    /// Time the socket took nothing before that, since the peer last took as much as it must in one span.
    halted: Duration,
    /// Bytes the socket took in that time.
    taken: u64,
    /// Minimum bytes a peer must take in one span if more wait for it.
    span_bytes: u64,
    multiplexed: bool,
    unread_body: bool,
    /// Number of the last request.
    requests: u64,
    /// Answers of an HTTP/2 connection with bytes that the peer has not taken.
    debts: Debts,
    /// What the connection does after its last answer, if that answer ends HTTP on it.
    takeover: Option<Takeover>,
}

/// One request in flight; ended by dropping it.
pub(crate) struct InFlight {
    pace: Arc<ConnectionState>,
    request: u64,
}

/// A piece of an answer's body on its way; what becomes of it is told to the connection's pace.
pub(crate) struct Piece {
    bytes: Bytes,
    /// The connection and the request; none where the socket alone tells whether the peer reads.
    owed: Option<(Arc<ConnectionState>, u64)>,
    /// Share of the memory for answers, held until the last byte has left.
    _held: Option<Arc<HeldAnswer>>,
}

impl ConnectionState {
    pub(crate) fn new(limits: &HttpLimits) -> Arc<Self> {
        let (now, span_bytes) = (clock::now(), limits.stall_bytes());
        let state = State {
            phase: ConnectionPhase::Head,
            changes: 0,
            in_flight: 0,
            blocked: false,
            blocks: 0,
            blocked_at: now,
            halted: Duration::ZERO,
            taken: 0,
            span_bytes,
            multiplexed: false,
            unread_body: false,
            requests: 0,
            debts: Debts::new(span_bytes, now),
            takeover: None,
        };
        Arc::new(ConnectionState(Mutex::new(state)))
    }

    /// The phase, and a number that differs each time it is entered.
    pub(crate) fn look(&self) -> (ConnectionPhase, u64) {
        let state = self.state();
        match state.phase {
            _ if state.blocked => (ConnectionPhase::Blocked, state.blocks),
            // The library takes an answer as a whole, however small the window: its request ended with that.
            ConnectionPhase::Quiet if !state.debts.is_empty() => (ConnectionPhase::Owed, state.changes),
            phase => (phase, state.changes),
        }
    }

    /// True while a request is worked on, even if nothing of its answer can be written.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().phase == ConnectionPhase::Busy
    }

    /// The socket takes no more bytes, or takes them again.
    pub(crate) fn blocked(&self, blocked: bool) {
        let mut state = self.state();
        state.blocked = blocked;
        if blocked {
            state.blocks += 1;
            state.blocked_at = clock::now();
        } else {
            let halt = clock::now() - state.blocked_at;
            state.halted += halt;
            // What it does was not to be judged by its silence until now.
            state.changes += 1;
        }
    }

    /// The socket took bytes after it had halted. False once the peer has taken as much as it must in one span: what
    /// follows is judged anew.
    pub(crate) fn took_after_halt(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.taken += bytes as u64;
        let is_slow = state.taken < state.span_bytes;
        if !is_slow {
            (state.taken, state.halted) = (0, Duration::ZERO);
        }
        is_slow
    }

    /// Time the socket took nothing before its present halt, since the peer last took enough.
    pub(crate) fn halted(&self) -> Duration {
        self.state().halted
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.state();
        state.in_flight += 1;
        state.unread_body = false;
        state.requests += 1;
        state.enter(ConnectionPhase::Busy);
        InFlight { pace: Arc::clone(self), request: state.requests }
    }

    /// The answer does not wait for the rest of the body.
    pub(crate) fn leaves_body_unread(&self) {
        self.state().unread_body = true;
    }

    /// The connection goes on with this once the answer that ends HTTP is out.
    pub(crate) fn hand_over(&self, takeover: Takeover) {
        self.state().takeover = Some(takeover);
    }

    /// What the connection goes on with now that HTTP has ended on it.
    pub(crate) fn taken_over(&self) -> Option<Takeover> {
        self.state().takeover.take()
    }

    /// Whether the peer takes the answers that wait for it, over spans of this length.
    pub(crate) fn judge_debts(&self, span: Duration, now: Instant) -> Judgement {
        self.state().debts.judge(span, now)
    }

    /// The time at which the peer last took something, if all that is in flight are answers that wait for it.
    pub(crate) fn only_owes_since(&self) -> Option<Instant> {
        let state = self.state();
        state.debts.open_since(state.in_flight)
    }

    /// The time at which the peer last took something of what waits for it.
    pub(crate) fn owes_since(&self) -> Option<Instant> {
        self.state().debts.progress()
    }

    /// The connection is to end. One that rests has read the whole of its last request, or it would be closed already.
    pub(crate) fn hurry(&self) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Quiet {
            state.unread_body = false;
        }
    }

    fn received(&self) {
        let mut state = self.state();
        // Streams share the bytes of an HTTP/2 connection: there, bytes are not the beginning of a header block.
        if state.phase == ConnectionPhase::Quiet && !state.multiplexed {
            state.enter(ConnectionPhase::Head);
        }
    }

    fn multiplexed(&self) {
        let mut state = self.state();
        state.multiplexed = true;
        state.enter(ConnectionPhase::Quiet);
    }

    fn lingers(&self) -> bool {
        let mut state = self.state();
        if state.unread_body {
            state.enter(ConnectionPhase::Linger);
        }
        state.unread_body
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, phase: ConnectionPhase) {
        if self.phase != phase {
            self.phase = phase;
            self.changes += 1;
        }
    }
}

impl InFlight {
    /// A piece of the answer that is handed over now, with the share of memory it holds.
    pub(crate) fn piece(&self, bytes: Bytes, held: Option<Arc<HeldAnswer>>) -> Piece {
        let mut state = self.pace.state();
        if !state.multiplexed || bytes.is_empty() {
            return Piece { bytes, owed: None, _held: held };
        }
        state.debts.add(self.request, bytes.len() as u64, clock::now());
        Piece { bytes, owed: Some((Arc::clone(&self.pace), self.request)), _held: held }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some((pace, request)) = &self.owed {
            pace.state().debts.take(*request, count as u64, clock::now());
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let Some((pace, request)) = self.owed.take() else { return };
        pace.state().debts.remove(request, self.bytes.remaining() as u64);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        state.debts.close(self.request);
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.enter(ConnectionPhase::Quiet);
        }
    }
}

/// A stream that tells its connection's pace what arrives, and closes without cutting off its own last words.
pub(crate) struct Paced<S> {
    stream: S,
    pace: Arc<ConnectionState>,
    /// Bytes of the HTTP/2 preface seen so far; none once it is known whether this is HTTP/2.
    preface_seen: Option<usize>,
    peer_finished: bool,
    /// Bytes that may still be thrown away, once our side is closed.
    linger_bytes: Option<usize>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, pace: Arc<ConnectionState>) -> Self {
        Paced { stream, pace, preface_seen: Some(0), peer_finished: false, linger_bytes: None }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        if let Some(seen) = self.preface_seen {
            let rest = &HTTP2_PREFACE[seen..];
            let length = rest.len().min(bytes.len());
            let still_preface = rest[..length] == bytes[..length];
            let complete = still_preface && length == rest.len();
            self.preface_seen = (still_preface && !complete).then_some(seen + length);
            if complete {
                self.pace.multiplexed();
            }
        }
        self.pace.received();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let arrived = &buffer.filled()[before..];
        if arrived.is_empty() {
            self.peer_finished = true;
        } else {
            self.arrived(arrived);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger_bytes.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if self.peer_finished || !self.pace.lingers() {
                return Poll::Ready(Ok(()));
            }
            self.linger_bytes = Some(LINGER_BYTES_MAX);
        }
        // Closing a socket with unread input resets it, and a reset can overtake the answer.
        let mut waste = [0; 4096];
        while self.linger_bytes.is_some_and(|left| left > 0) {
            let mut buffer = ReadBuf::new(&mut waste);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.linger_bytes = self.linger_bytes.map(|left| left.saturating_sub(buffer.filled().len()));
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_a_rest_begin_a_header_block_unless_streams_share_the_connection() {
        let pace = ConnectionState::new(&HttpLimits::default());
        let mut stream = Paced::new((), Arc::clone(&pace));
        stream.arrived(b"GET / HT");
        assert_eq!(pace.look().0, ConnectionPhase::Head);
        drop(pace.begin());
        assert_eq!(pace.look().0, ConnectionPhase::Quiet);
        stream.arrived(b"G");
        assert_eq!(pace.look().0, ConnectionPhase::Head);

        let pace = ConnectionState::new(&HttpLimits::default());
        let mut stream = Paced::new((), Arc::clone(&pace));
        let (begin, end) = HTTP2_PREFACE.split_at(10);
        stream.arrived(begin);
        assert_eq!(pace.look().0, ConnectionPhase::Head, "an unfinished preface is an unfinished head");
        stream.arrived(&[end, b"more"].concat());
        stream.arrived(b"a ping");
        assert_eq!(pace.look().0, ConnectionPhase::Quiet);
    }

    #[test]
    fn a_connection_rests_only_when_its_last_request_has_ended() {
        let pace = ConnectionState::new(&HttpLimits::default());
        let (first, second) = (pace.begin(), pace.begin());
        drop(first);
        assert_eq!(pace.look().0, ConnectionPhase::Busy);
        drop(second);
        assert_eq!(pace.look().0, ConnectionPhase::Quiet);
        let before = pace.look();
        drop(pace.begin());
        assert_ne!(pace.look(), before, "the same phase, entered anew");
    }
}
