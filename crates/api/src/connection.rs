//! One connection from its first byte to its last: HTTP/1.1 or HTTP/2, watched for silence, ended by a drain.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ron_kernel::scope::Children;
use ron_kernel::{Metrics, clock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admission::AnswerShare;
use crate::connection_state::{ConnectionPhase, ConnectionState, InFlight, Paced, Piece};
use crate::debts::Judgement;
use crate::limits::HttpLimits;
use crate::route::Api;
use crate::upgrade;

/// The HTTP library's own bound on a head; the guard's is lower and answers with a problem body.
const HEAD_BUFFER_BYTES: usize = 64 * 1024;

/// Streams one HTTP/2 connection may have open.
const STREAMS_MAX: u32 = 256;

/// Time a connection that is to end may still take while none of its requests is being answered.
const CLOSING_PATIENCE: Duration = Duration::from_millis(500);

/// A resting connection stays open this long after a drain began: a request already on its way is told where things
/// stand, where a close would cut it off.
const CLOSING_PAUSE: Duration = Duration::from_millis(50);

/// Time a peer has to read a refusal while the rest of its body is thrown away.
const LINGER_PATIENCE: Duration = Duration::from_secs(1);

/// Minimum pause between two looks for answers that wait for the peer, however little patience is configured: resting
/// connections are many.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Serves one connection until the peer leaves, falls silent, stops reading, or `draining` turns true and its requests
/// are answered. The pace is that of the [`WriteStallGuard`](crate::write_stall::WriteStallGuard) beneath.
pub(crate) async fn serve_connection<S>(
    stream: S,
    pace: Arc<ConnectionState>,
    api: Api,
    limits: &HttpLimits,
    mut draining: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Paced::new(stream, Arc::clone(&pace)));
    let builder = builder(&api.shared.metrics);
    let metrics = Arc::clone(&api.shared.metrics);
    let service = {
        let pace = Arc::clone(&pace);
        service_fn(move |request: Request<Incoming>| answer(&api, &pace, request))
    };
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    let mut watchdog = pin!(Watchdog::new(&pace, limits));
    let told = draining.clone();
    let mut listens = false;
    let mut drained = pin!(async {
        let _ = draining.wait_for(|draining| *draining).await;
        tokio::time::sleep(CLOSING_PAUSE).await;
    });
    let mut closing = false;
    let silent = poll_fn(|cx| {
        loop {
            // How a connection ends is the peer's affair: errors here are resets, garbage and half requests.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            // The first poll makes it listen; later ones are of use once the word has changed, which it has if it was
            // given before this connection came.
            let hears = !std::mem::replace(&mut listens, true) || told.has_changed().unwrap_or(true);
            let verdict = if !closing && hears && drained.as_mut().poll(cx).is_ready() {
                ConnectionPhase::Quiet
            } else {
                ready!(watchdog.as_mut().poll_silence(cx))
            };
            if closing || verdict != ConnectionPhase::Quiet {
                return Poll::Ready(Some(verdict));
            }
            closing = true;
            watchdog.as_mut().hurry();
            connection.as_mut().graceful_shutdown();
        }
    })
    .await;
    let silent = match silent {
        None => go_on(&pace, watchdog).await,
        verdict => verdict,
    };
    let op = match silent {
        Some(ConnectionPhase::Head) => "header",
        Some(ConnectionPhase::Blocked) => "write",
        _ => return,
    };
    metrics.io_timeouts.at(op).inc();
}

/// Runs what took the connection over, if something did, in the task and under the watchdog of the connection: its slot
/// stays taken, a peer that reads nothing is given up, and a drain finds it.
async fn go_on(pace: &Arc<ConnectionState>, mut watchdog: Pin<&mut Watchdog<'_>>) -> Option<ConnectionPhase> {
    let mut takeover = pace.taken_over()?;
    let _busy = pace.begin();
    poll_fn(|cx| {
        if takeover.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        watchdog.as_mut().poll_silence(cx).map(Some)
    })
    .await
}

fn builder(metrics: &Arc<Metrics>) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams::new(Arc::clone(metrics)));
    // The library's own header timeout would also end connections that merely rest; the watchdog tells them apart.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BUFFER_BYTES);
    // No PING of its own: it would wait behind the bytes of answers, and a peer that reads them slowly is not gone. One
    // that is gone is found out by its socket.
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BUFFER_BYTES as u32)
        .max_concurrent_streams(STREAMS_MAX);
    builder
}

fn answer(
    api: &Api,
    pace: &Arc<ConnectionState>,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Tracked>, Infallible>> + Send + use<> {
    let in_flight = pace.begin();
    upgrade::offer(&mut request, pace);
    let response = api.answer(request.map(|body| match body.is_end_stream() {
        true => Body::new(body),
        false => Body::new(WatchedBody { body, is_over: false, pace: Arc::clone(pace) }),
    }));
    async move {
        let mut response = response.await;
        let share = response.extensions_mut().remove::<AnswerShare>();
        Ok(response.map(|body| Tracked { body, share, in_flight }))
    }
}

/// A request's body, which tells its connection if nobody reads it to its end: the rest is then thrown away before the
/// connection closes, so that its sender gets to read the answer.
struct WatchedBody {
    body: Incoming,
    is_over: bool,
    pace: Arc<ConnectionState>,
}

impl http_body::Body for WatchedBody {
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

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            self.pace.leaves_body_unread();
        }
    }
}

/// An answer's body; its request is in flight until the last byte of it is handed over.
struct Tracked {
    body: Body,
    /// Its part of the memory for answers, which its pieces keep until they have left.
    share: Option<AnswerShare>,
    in_flight: InFlight,
}

impl Tracked {
    fn piece(&self, bytes: Bytes) -> Result<Piece, axum::Error> {
        let held = self.share.as_ref().map(|share| share.of_piece(bytes.len())).transpose();
        Ok(self.in_flight.piece(bytes, held.map_err(axum::Error::new)?.flatten()))
    }
}

impl http_body::Body for Tracked {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(match frame.into_data() {
            Ok(bytes) => self.piece(bytes).map(Frame::data),
            Err(rest) => Ok(rest.map_data(|bytes| self.in_flight.piece(bytes, None))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Measures the silence of one connection with one timer, which is moved only when it would ring too late.
struct Watchdog<'a> {
    pace: &'a ConnectionState,
    limits: &'a HttpLimits,
    timer: Pin<Box<tokio::time::Sleep>>,
    /// The timer will wake the connection's task.
    is_armed: bool,
    seen: (ConnectionPhase, u64),
    since: Instant,
    /// Moment before which no answer can have waited too long for the peer. Debts are looked for only then, so that
    /// requests do not pay for it.
    next_look: Instant,
    hurried: bool,
}

impl<'a> Watchdog<'a> {
    fn new(pace: &'a ConnectionState, limits: &'a HttpLimits) -> Self {
        let timer = Box::pin(tokio::time::sleep(limits.handshake_timeout));
        let (seen, now) = (pace.look(), clock::now());
        let next_look = now + limits.write_stall;
        Watchdog { pace, limits, timer, is_armed: false, seen, since: now, next_look, hurried: false }
    }

    /// From here on the connection is to end.
    fn hurry(mut self: Pin<&mut Self>) {
        self.pace.hurry();
        self.hurried = true;
        self.since = clock::now();
    }

    /// Ready with the phase that lasted too long.
    fn poll_silence(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionPhase> {
        let looked = self.pace.look();
        if looked != self.seen {
            self.seen = looked;
            self.since = clock::now();
        }
        loop {
            let due = self.due();
            let wake = due.map_or(self.next_look, |due| due.min(self.next_look));
            if wake < self.timer.deadline() {
                self.timer.as_mut().reset(wake);
                self.is_armed = false;
            }
            if !self.is_armed || self.timer.is_elapsed() {
                self.is_armed = self.timer.as_mut().poll(cx).is_pending();
            }
            if self.is_armed {
                return Poll::Pending;
            }
            let now = clock::now();
            if due.is_some_and(|due| due <= now) {
                return Poll::Ready(self.seen.0);
            }
            let write_stall = self.limits.write_stall;
            self.next_look = match self.pace.judge_debts(write_stall, now) {
                Judgement::Stalled => return Poll::Ready(ConnectionPhase::Blocked),
                Judgement::GoodUntil(end) => end,
                Judgement::Clear => now + write_stall.max(LOOK_PAUSE),
            };
            let wake = due.map_or(self.next_look, |due| due.min(self.next_look));
            self.timer.as_mut().reset(wake);
        }
    }

    /// The moment at which the phase has lasted too long.
    fn due(&self) -> Option<Instant> {
        let patience = match self.seen.0 {
            // A peer that takes nothing does not hold up a drain; a request that is worked on has its time.
            ConnectionPhase::Busy if self.hurried => {
                return self.pace.only_owes_since().map(|progress| progress.max(self.since) + CLOSING_PATIENCE);
            }
            ConnectionPhase::Busy => return None,
            ConnectionPhase::Owed if self.hurried => {
                return self.pace.owes_since().map(|progress| progress.max(self.since) + CLOSING_PATIENCE);
            }
            // Judged by what the peer takes.
            ConnectionPhase::Owed => return None,
            ConnectionPhase::Blocked if self.pace.is_busy() => self.patience_with_socket(),
            _ if self.hurried => CLOSING_PATIENCE,
            ConnectionPhase::Head => self.limits.handshake_timeout,
            ConnectionPhase::Quiet => self.limits.idle_timeout,
            ConnectionPhase::Linger => LINGER_PATIENCE,
            ConnectionPhase::Blocked => self.patience_with_socket(),
        };
        Some(self.since + patience)
    }

    /// Halts of the socket count together until the peer has taken enough, so that a byte now and then is no progress.
    fn patience_with_socket(&self) -> Duration {
        self.limits.write_stall.saturating_sub(self.pace.halted())
    }
}

/// Runs the streams of an HTTP/2 connection as its children: they end with it.
#[derive(Clone)]
struct Streams {
    metrics: Arc<Metrics>,
    /// Made with the first stream, because most connections have none.
    children: Arc<Mutex<Option<Children>>>,
}

impl Streams {
    fn new(metrics: Arc<Metrics>) -> Self {
        Streams { metrics, children: Arc::default() }
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended streams are reaped a little later than the peer may open the next ones.
        let limit = 2 * STREAMS_MAX as usize;
        children.get_or_insert_with(|| Children::new("http_stream", limit, &self.metrics)).spawn(stream);
    }
}

#[cfg(test)]
mod tests;
