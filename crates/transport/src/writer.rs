//! The writing half of a session: the only one that writes, in as few calls as it takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use oap::Frame;
use ron_kernel::{Deadline, clock};
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use crate::closed::Closed;
use crate::limits::SessionLimits;
use crate::outbox::{Outbox, Work};
use crate::records::{Outgoing, Records};
use crate::timer::Timer;

/// Bytes of frames taken from the outbox at once; a control frame that comes meanwhile waits for no more than this.
pub(crate) const TURN_BYTES: usize = 128 * 1024;
/// Frames are copied together up to about this many bytes and then encrypted.
const GATHER_BYTES: usize = 64 * 1024;
/// A payload from this size on is encrypted from where it is: the copy would cost more than the record it shares.
pub(crate) const LARGE_PAYLOAD_BYTES: usize = 16 * 1024;
/// Bytes of a page. Where rustls copies bytes to a place a few bytes further in its page, some processors take thirty
/// times as long (ADR 18); so what it copies begins in the middle of one.
const PAGE_BYTES: usize = 4096;
/// Memory that a thread keeps for the next turn at most; more was for a frame of unusual size.
const SCRATCH_BYTES_KEPT: usize = 512 * 1024;
/// Time after which the first PING goes out.
const FIRST_PING: Duration = Duration::from_secs(1);
/// PING goes out so many times within the idle time.
const PINGS_PER_IDLE: u32 = 3;

thread_local! {
    /// A turn is gathered and encrypted here; only what the socket does not take at once is copied for the session.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    /// Behind half a page that is not sent.
    plain: Vec<u8>,
    sealed: Outgoing,
}

/// The writing half of a session.
pub struct Writer {
    output: Output,
    pace: Pace,
    /// Whether it has said how the session ended.
    is_over: bool,
}

/// What carries the frames to the other side, chosen when the session begins.
pub(crate) enum Output {
    /// One TCP connection with TLS.
    Tls(TlsOutput),
    /// The streams of a QUIC connection.
    Quic(crate::quic::Output),
}

/// What a writer goes by, whatever carries its frames: the queue, the deadlines, and when the next PING is due.
pub(crate) struct Pace {
    pub(crate) outbox: Outbox,
    pub(crate) limits: Arc<SessionLimits>,
    pub(crate) next_ping: Instant,
    ping_number: u64,
    /// Whether something was written since the last PING.
    pub(crate) was_busy: bool,
    pub(crate) timer: Timer,
}

/// TLS over one connection.
pub(crate) struct TlsOutput {
    io: Box<dyn AsyncWrite + Send + Unpin>,
    records: Arc<Records>,
    batch: VecDeque<Frame>,
    /// Encrypted bytes that the socket has not taken, and how many of them it has taken since.
    blocked: Vec<u8>,
    written: usize,
    /// When the socket last took something, while it owes us.
    stalled_since: Option<Instant>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Everything is out but the end of TLS.
    Ending,
    /// Only the end of the connection is left.
    ShuttingDown,
}

impl Writer {
    pub(crate) fn new(output: Output, outbox: Outbox, limits: Arc<SessionLimits>) -> Self {
        Writer { output, pace: Pace::new(outbox, limits), is_over: false }
    }

    /// Writes until the session is over, and says how it ended. Dropping it before that ends the session at once.
    pub async fn run(mut self) -> Closed {
        let closed = std::future::poll_fn(|context| self.output.poll_run(&mut self.pace, context)).await;
        self.is_over = true;
        // After an end in order the reader goes on until the other side is done too.
        if !matches!(closed, Closed::Done) {
            self.pace.outbox.end(&closed);
            self.output.abandon();
        }
        closed
    }
}

impl Pace {
    fn new(outbox: Outbox, limits: Arc<SessionLimits>) -> Self {
        // Soon, so that the time to the other side is known from the beginning.
        let next_ping = clock::now() + FIRST_PING.min(ping_every(&limits));
        Pace { outbox, limits, next_ping, ping_number: 0, was_busy: false, timer: Timer::default() }
    }

    /// Queues a PING if one is due; true if the session has gone quiet, and may give its memory back.
    pub(crate) fn ping_if_due(&mut self) -> bool {
        let now = clock::now();
        if now < self.next_ping {
            return false;
        }
        self.next_ping = now + ping_every(&self.limits);
        self.ping_number += 1;
        self.outbox.ping(self.ping_number, now);
        // A session that wrote nothing but PING since the last one is quiet.
        let is_quiet = !std::mem::take(&mut self.was_busy);
        if is_quiet {
            self.outbox.shrink();
        }
        is_quiet
    }
}

impl Output {
    pub(crate) fn tls(io: Box<dyn AsyncWrite + Send + Unpin>, records: Arc<Records>) -> Self {
        Output::Tls(TlsOutput {
            io,
            records,
            batch: VecDeque::new(),
            blocked: Vec::new(),
            written: 0,
            stalled_since: None,
            phase: Phase::Open,
        })
    }

    fn poll_run(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Closed> {
        match self {
            Output::Tls(output) => output.poll_run(pace, context),
            Output::Quic(output) => output.poll_run(pace, context),
        }
    }

    /// The session did not end in order, and must not look as if it had.
    fn abandon(&mut self) {
        match self {
            // The end of TLS was not said.
            Output::Tls(_) => {}
            Output::Quic(output) => output.abandon(),
        }
    }
}

impl TlsOutput {
    fn poll_run(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            match self.poll_blocked(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Closed::broken(error)),
                Poll::Pending => return self.poll_stalled(pace, context),
            }
            let step = match self.phase {
                Phase::Open => ready!(self.poll_turn(pace, context)),
                Phase::Ending => self.say_end(context),
                Phase::ShuttingDown => match Pin::new(&mut self.io).poll_shutdown(context) {
                    // Whether the other side hears the end of the connection is its own affair.
                    Poll::Ready(_) => return Poll::Ready(Closed::Done),
                    Poll::Pending => return self.poll_stalled(pace, context),
                },
            };
            if let Err(closed) = step {
                return Poll::Ready(closed);
            }
        }
    }

    /// Takes what there is to write and writes it, as far as the socket goes.
    fn poll_turn(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if pace.ping_if_due() {
            self.batch = VecDeque::new();
        }
        match pace.outbox.poll_work(context, TURN_BYTES, &mut self.batch) {
            Poll::Ready(Work::Write) => {
                pace.was_busy = true;
                Poll::Ready(self.write_batch(context))
            }
            Poll::Ready(Work::Finish) => {
                self.phase = Phase::Ending;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Work::Stop(closed)) => Poll::Ready(Err(closed)),
            Poll::Pending => pace.timer.poll(context, Deadline::at(pace.next_ping)).map(Ok),
        }
    }

    fn write_batch(&mut self, context: &mut Context<'_>) -> Result<(), Closed> {
        SCRATCH.with_borrow_mut(|Scratch { plain, sealed }| {
            plain.clear();
            plain.resize(PAGE_BYTES / 2, 0);
            sealed.clear();
            let outcome = seal_all(&self.records, self.batch.drain(..), plain, sealed);
            // Also after an error: an alert that tells the other side may be there.
            self.write_now(context, sealed.filled()).map_err(Closed::broken)?;
            if sealed.capacity() > SCRATCH_BYTES_KEPT {
                *sealed = Outgoing::default();
            }
            outcome.map_err(|error| Closed::Tls(Arc::new(error)))
        })
    }

    fn say_end(&mut self, context: &mut Context<'_>) -> Result<(), Closed> {
        self.phase = Phase::ShuttingDown;
        let mut sealed = Outgoing::default();
        // It fails only where TLS is broken already; then there is nothing left to say.
        let _ = self.records.seal_end(&mut sealed);
        self.write_now(context, sealed.filled()).map_err(Closed::broken)
    }

    /// Writes as far as the socket goes and keeps the rest.
    fn write_now(&mut self, context: &mut Context<'_>, mut bytes: &[u8]) -> io::Result<()> {
        debug_assert!(self.blocked.is_empty(), "bytes are written in the order they were encrypted");
        while !bytes.is_empty() {
            match Pin::new(&mut self.io).poll_write(context, bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => bytes = &bytes[count..],
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.blocked.extend_from_slice(bytes);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes what the socket did not take before.
    fn poll_blocked(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.blocked.len() {
            let count = ready!(Pin::new(&mut self.io).poll_write(context, &self.blocked[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.stalled_since = None;
        }
        if !self.blocked.is_empty() {
            self.blocked = Vec::new();
            self.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// The socket takes nothing: the time runs.
    fn poll_stalled(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Closed> {
        let since = *self.stalled_since.get_or_insert_with(clock::now);
        if let Poll::Ready(closed) = pace.outbox.poll_stop(context) {
            return Poll::Ready(closed);
        }
        let deadline = Deadline::at(since + pace.limits.write_stall);
        let deadline_or_drain = pace.outbox.drain_by().map_or(deadline, |drain_by| drain_by.sooner(deadline));
        ready!(pace.timer.poll(context, deadline_or_drain));
        Poll::Ready(Closed::Timeout(if deadline.has_passed() { "write" } else { "drain" }))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_over {
            self.pace.outbox.end(&Closed::broken(io::ErrorKind::ConnectionAborted.into()));
            self.output.abandon();
        }
    }
}

fn ping_every(limits: &SessionLimits) -> Duration {
    (limits.idle_timeout / PINGS_PER_IDLE).max(Duration::from_millis(1))
}

/// Encrypts frames: small ones are gathered, so that one record carries many; large payloads are not copied first.
fn seal_all(
    records: &Records,
    frames: impl Iterator<Item = Frame>,
    plain: &mut Vec<u8>,
    sealed: &mut Outgoing,
) -> Result<(), rustls::Error> {
    for frame in frames {
        let last = frame.last_piece();
        if last.len() >= LARGE_PAYLOAD_BYTES {
            let (first, rest) = last.split_at(bytes_to_half_page(last));
            frame.put_head(plain);
            oap::put_in_steps(plain, first);
            seal_gathered(records, plain, sealed)?;
            records.seal(rest, sealed)?;
        } else {
            frame.encode(plain);
            if plain.len() >= GATHER_BYTES {
                seal_gathered(records, plain, sealed)?;
            }
        }
    }
    seal_gathered(records, plain, sealed)
}

fn seal_gathered(records: &Records, plain: &mut Vec<u8>, sealed: &mut Outgoing) -> Result<(), rustls::Error> {
    let gathered = &plain[PAGE_BYTES / 2..];
    if !gathered.is_empty() {
        records.seal(gathered, sealed)?;
        plain.truncate(PAGE_BYTES / 2);
    }
    Ok(())
}

/// Bytes up to the next middle of a page in memory.
fn bytes_to_half_page(bytes: &[u8]) -> usize {
    (PAGE_BYTES / 2).wrapping_sub(bytes.as_ptr().addr()) % PAGE_BYTES
}
