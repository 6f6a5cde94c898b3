//! One session of a client: requests to the workers, streams to their surfaces, replies back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use oap::{AppId, Frame, FrameError, Step, Streams};
use ron_api::frames::{Answer, Caller, FrameSurface, Reply, Stream};
use ron_kernel::connection_limiter::Slot;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, Metrics, TaskContext};
use ron_transport::{Closed, GoAway, Heard, Outbox, Reader, Session, SessionFacts};
use ron_types::{Error, Kind};

use super::Ingress;

/// Time a session has to send what is queued when the client or the node leaves; and time after which nothing more is
/// expected of a client that has said farewell.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Largest frame of a client that has shown no token yet: nobody makes the node hold more for a stranger.
const STRANGER_FRAME_BYTES_MAX: usize = 64 * 1024;

/// Bytes that wait for one client; what peers have is not for clients.
const EGRESS_BYTES_MAX: usize = 4 << 20;
/// Frames that wait for one client.
const EGRESS_FRAMES_MAX: usize = 4096;

/// Serves the session until either side ends it.
pub(super) async fn serve(context: TaskContext, ingress: Ingress, metrics: Arc<Metrics>, session: Session, slot: Slot) {
    let Session { facts, mut reader, writer, outbox } = session;
    // A task of its own, so that replies are written while requests are read.
    let mut writing = Children::new("oap_writer", 1, &metrics);
    writing.spawn(async move {
        let _ = writer.run().await;
    });
    outbox.set_bytes_max(EGRESS_BYTES_MAX);
    outbox.set_frames_max(EGRESS_FRAMES_MAX);
    let streams = Streams::new(facts.agreed.max_inflight);
    let token = facts.their_hello.cap.as_deref();
    let is_stranger = ingress.authority.identify(token, false).is_err();
    if is_stranger {
        reader.set_frame_bytes_max(STRANGER_FRAME_BYTES_MAX);
    }
    let caller = Caller::new(facts.remote, facts.address.ip(), token, Arc::clone(&ingress.shares));
    let (answering, ending) = (FuturesUnordered::new(), FuturesUnordered::new());
    let (asked, waiting, open, touched) = (Vec::new(), HashMap::new(), HashMap::new(), Vec::new());
    let mut client = Client {
        ingress,
        facts,
        caller,
        is_stranger,
        outbox,
        streams,
        asked,
        answering,
        waiting,
        ending,
        open,
        lives: 0,
        touched,
        leave_by: None,
    };
    let farewell = client.converse(&context, &metrics, &mut reader).await;
    // Where the node leaves, what waits ends by itself, with an answer. Otherwise nobody is left to wait for it.
    if !context.is_stopping() {
        client.waiting.values().for_each(AbortHandle::abort);
    }
    client.finish(farewell, context.stop_deadline()).await;
    writing.finish(Deadline::after(DRAIN_TIME)).await;
    drop(slot);
}

struct Client {
    ingress: Ingress,
    facts: Arc<SessionFacts>,
    caller: Caller,
    /// Whether no token of this node has been seen yet.
    is_stranger: bool,
    outbox: Outbox,
    streams: Streams,
    /// Whole requests of this read, in order.
    asked: Vec<(Arc<dyn FrameSurface>, Frame)>,
    answering: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Those of them that may be cancelled, by number; no more than are in flight.
    waiting: HashMap<u64, AbortHandle>,
    /// Streams that their services may end.
    ending: FuturesUnordered<BoxFuture<'static, EndedStream>>,
    open: HashMap<u64, OpenStream>,
    /// Streams opened so far.
    lives: u64,
    /// Streams that took frames of this read.
    touched: Vec<u64>,
    /// Set when the client has said farewell: until then it may go on with what it had to say.
    leave_by: Option<Deadline>,
}

struct OpenStream {
    app: AppId,
    /// Tells it from others that had its number before.
    life: u64,
    stream: Stream,
}

/// A request that has its reply.
struct Answered {
    app: AppId,
    corr: u64,
    reply: Reply,
}

/// A stream that its service ended, with its last word; with none where the stream was dropped before.
struct EndedStream {
    corr: u64,
    life: u64,
    reply: Option<Reply>,
}

impl Client {
    /// Reads and answers; gives the last word to the client.
    async fn converse(&mut self, context: &TaskContext, metrics: &Metrics, reader: &mut Reader) -> GoAway {
        let mut heard = Vec::new();
        loop {
            let leave_by = self.leave_by;
            tokio::select! {
                biased;
                () = context.stopping() => return GoAway::new(oap::status::UNAVAILABLE, 0, "the node leaves"),
                Some(answered) = self.answering.next(), if !self.answering.is_empty() => self.reply(answered).await,
                Some(ended) = self.ending.next(), if !self.ending.is_empty() => self.note_end(ended).await,
                read = next_batch(reader, &mut heard, leave_by) => {
                    if let Err(closed) = read {
                        count(&closed, metrics);
                        return GoAway::normal();
                    }
                    self.leave_by = leave_by.map(|_| Deadline::after(DRAIN_TIME));
                    if self.is_stranger && heard.iter().any(|one| self.is_introduction(one)) {
                        self.is_stranger = false;
                        reader.set_frame_bytes_max(self.facts.agreed.max_frame);
                    }
                    for one in heard.drain(..) {
                        if let Err(farewell) = self.hear(one).await {
                            metrics.frame_rejects.at("malformed").inc();
                            return farewell;
                        }
                    }
                    self.begin().await;
                    // A service that has no room for a stream must not hold up the end.
                    tokio::select! {
                        biased;
                        () = self.flush() => {}
                        () = context.stopping() => {}
                    }
                }
            }
        }
    }

    /// What was begun is brought to its end, as far as there is time.
    async fn finish(&mut self, farewell: GoAway, by: Deadline) {
        self.open.clear();
        while !self.answering.is_empty() && !self.outbox.is_closed() {
            match by.run("replies", self.answering.next()).await {
                Ok(Some(answered)) => self.reply(answered).await,
                _ => break,
            }
        }
        self.outbox.close(&farewell, Deadline::after(DRAIN_TIME));
    }

    fn is_introduction(&self, heard: &Heard) -> bool {
        let Heard::Frame(frame) = heard else { return false };
        !frame.cap.is_empty() && self.caller.identify(&self.ingress.authority, frame).is_ok()
    }

    async fn hear(&mut self, heard: Heard) -> Result<(), GoAway> {
        let frame = match heard {
            Heard::Frame(frame) => frame,
            // Replies are bounded by what is in flight, and events by the outbox.
            Heard::Credit { .. } => return Ok(()),
            // It goes ahead of what its client has queued, so that is still to come, and is done.
            Heard::GoAway(_) => {
                self.leave_by = Some(Deadline::after(DRAIN_TIME));
                return Ok(());
            }
        };
        let step = match self.streams.accept(&frame) {
            Ok(step) => step,
            Err(error) if error.closes() => return Err(GoAway::new(error.code(), 0, error.to_string())),
            Err(error) => {
                let refusal = Reply::from(Error::new(Kind::Busy, error.to_string()));
                self.send(frame.app, frame.corr, refusal).await;
                return Ok(());
            }
        };
        match step {
            Step::Whole => self.request(frame).await,
            Step::Opens => self.open(frame).await,
            Step::Continues => self.take(frame).await,
            Step::Closes => self.close(frame).await,
            Step::Event if frame.is_cancel() => self.cancel(&frame).await,
            Step::Ignored | Step::Event => {}
        }
        Ok(())
    }

    /// Nobody waits for this answer any more. A request that was not begun is not begun, and one that waits for
    /// something to happen waits no longer; what is under way goes on, and is answered. So is one that has its answer.
    async fn cancel(&mut self, Frame { app, corr, .. }: &Frame) {
        let place = self.asked.iter().position(|(_, asked)| asked.app == *app && asked.corr == *corr);
        if let Some(place) = place {
            // The others keep their order.
            drop(self.asked.remove(place));
            return self.reply(Answered { app: *app, corr: *corr, reply: Reply::cancelled() }).await;
        }
        if let Some(waiting) = self.waiting.get(corr) {
            waiting.abort();
        }
    }

    fn surface(&self, app: AppId) -> Result<Arc<dyn FrameSurface>, Reply> {
        let found = self.ingress.surfaces.iter().find(|served| served.surface.app() == app);
        let nobody = || Error::new(Kind::NotFound, format!("nobody on this node speaks application {}", app.0));
        let served = found.ok_or_else(|| Reply::from(nobody()))?;
        self.ingress.kernel.outages().get().value.check(served.service)?;
        Ok(Arc::clone(&served.surface))
    }

    async fn request(&mut self, frame: Frame) {
        match self.surface(frame.app) {
            Ok(surface) => self.asked.push((surface, frame)),
            Err(reply) => self.reply(Answered { app: frame.app, corr: frame.corr, reply }).await,
        }
    }

    /// A worker begins the requests of this read, in their order: they may depend on one another. Whatever they then
    /// wait for is waited for here, in any order.
    async fn begin(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let requests = std::mem::take(&mut self.asked);
        let ids: Vec<(AppId, u64)> = requests.iter().map(|(_, frame)| (frame.app, frame.corr)).collect();
        let bytes = requests.iter().map(|(_, frame)| frame.encoded_len()).sum();
        self.outbox.note_begun(ids.iter().map(|(_, corr)| *corr).max().unwrap_or(0));
        let caller = self.caller.clone();
        let begin = move || requests.into_iter().map(|(surface, frame)| surface.answer(&caller, frame)).collect();
        let answers = match self.ingress.work.begin(Box::new(begin), bytes).await {
            Ok(answers) => answers,
            Err(error) => ids.iter().map(|_| Answer::Now(Reply::from(error.clone()))).collect(),
        };
        for ((app, corr), answer) in ids.into_iter().zip(answers) {
            match answer {
                Answer::Now(reply) => self.reply(Answered { app, corr, reply }).await,
                Answer::Later(rest) => {
                    self.answering.push(Box::pin(async move { Answered { app, corr, reply: rest.await } }));
                }
                Answer::Waiting(rest) => {
                    let (rest, handle) = abortable(rest);
                    self.waiting.insert(corr, handle);
                    self.answering.push(Box::pin(async move {
                        let reply = rest.await.unwrap_or_else(|_| Reply::cancelled());
                        Answered { app, corr, reply }
                    }));
                }
            }
        }
    }

    async fn open(&mut self, frame: Frame) {
        let (app, corr) = (frame.app, frame.corr);
        self.outbox.note_begun(corr);
        let opened = match self.surface(app) {
            Ok(surface) => surface.open(&self.caller, frame, self.outbox.clone()).await,
            Err(refusal) => Err(refusal),
        };
        match opened {
            Ok(stream) => self.keep(app, corr, stream),
            Err(reply) => self.reply(Answered { app, corr, reply }).await,
        }
    }

    fn keep(&mut self, app: AppId, corr: u64, mut stream: Stream) {
        self.lives += 1;
        let life = self.lives;
        if let Some(ended) = stream.ended() {
            self.ending.push(Box::pin(async move { EndedStream { corr, life, reply: ended.await } }));
        }
        self.open.insert(corr, OpenStream { app, life, stream });
    }

    async fn note_end(&mut self, EndedStream { corr, life, reply }: EndedStream) {
        let app = self.open.get(&corr).filter(|open| open.life == life).map(|open| open.app);
        if let (Some(app), Some(reply)) = (app, reply) {
            self.end(app, corr, reply).await;
        }
    }

    async fn take(&mut self, frame: Frame) {
        let (app, corr) = (frame.app, frame.corr);
        let Some(open) = self.open.get_mut(&corr) else { return };
        match open.stream.take(frame) {
            Ok(()) if self.touched.last() == Some(&corr) => {}
            Ok(()) => self.touched.push(corr),
            Err(reply) => self.end(app, corr, reply).await,
        }
    }

    /// The last frame of a stream; one without payload only ends it.
    async fn close(&mut self, frame: Frame) {
        let (app, corr) = (frame.app, frame.corr);
        if !frame.payload.is_empty() {
            self.take(frame).await;
        }
        let Some(open) = self.open.get_mut(&corr) else { return };
        let reply = open.stream.finish().await.err().unwrap_or_else(|| Reply::ok(Vec::new()));
        self.end(app, corr, reply).await;
    }

    async fn end(&mut self, app: AppId, corr: u64, reply: Reply) {
        self.open.remove(&corr);
        self.reply(Answered { app, corr, reply }).await;
    }

    /// Hands on what streams took of this read.
    async fn flush(&mut self) {
        for corr in std::mem::take(&mut self.touched) {
            let Some(OpenStream { app, stream, .. }) = self.open.get_mut(&corr) else { continue };
            let app = *app;
            if let Err(reply) = stream.flush().await {
                self.end(app, corr, reply).await;
            }
        }
    }

    async fn reply(&mut self, Answered { app, corr, reply }: Answered) {
        self.streams.finished(corr);
        self.waiting.remove(&corr);
        self.send(app, corr, reply).await;
    }

    /// Waits for room: a client that does not read its replies is not read either.
    async fn send(&mut self, app: AppId, corr: u64, reply: Reply) {
        let mut frames: VecDeque<Frame> = reply.into_frames(app, corr, self.outbox.frame_bytes_max()).collect();
        if let Err(error) = self.outbox.send_all(corr, &mut frames).await {
            tracing::debug!(address = %self.facts.address, %error, "a reply was not sent");
        }
    }
}

/// Waits for what the client says next. One that has said farewell, and then nothing more by this time, is done.
async fn next_batch(reader: &mut Reader, heard: &mut Vec<Heard>, leave_by: Option<Deadline>) -> Result<(), Closed> {
    match leave_by {
        Some(leave_by) => leave_by.run("farewell", reader.next_batch(heard)).await.unwrap_or(Err(Closed::Done)),
        None => reader.next_batch(heard).await,
    }
}

fn count(closed: &Closed, metrics: &Metrics) {
    match closed {
        Closed::Timeout(op) => drop(metrics.io_timeouts.at(op).inc()),
        Closed::Broken(_) | Closed::Tls(_) => drop(metrics.io_errors.at("read").inc()),
        Closed::Done => {}
        Closed::Refused(FrameError::TooLarge { .. }) => drop(metrics.frame_rejects.at("too_large").inc()),
        _ => drop(metrics.frame_rejects.at("malformed").inc()),
    }
}
