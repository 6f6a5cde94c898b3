//! The reading half of a session: batches of frames, as many as one read brought.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use oap::{AppId, Control, ControlError, Decoder, Flags, Frame, FrameError, compress};
use ron_kernel::{Deadline, clock};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::closed::{Closed, GoAway};
use crate::limits::SessionLimits;
use crate::outbox::Outbox;
use crate::records::Records;
use crate::timer::Timer;

/// Bytes read at once. Twice what a peer writes at once: a reader that fell behind catches up in few calls.
const READ_BYTES: usize = 128 * 1024;
/// Room before them for the unfinished record of the read before.
const HEADROOM_BYTES: usize = 17 * 1024;
/// Time for telling the other side why it is refused.
const FAREWELL: Duration = Duration::from_secs(1);

thread_local! {
    /// What is read is decrypted here, and what is plain copied out at once; so a session that waits has no buffer, and
    /// 10,000 of them cost what a thread costs.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; HEADROOM_BYTES + READ_BYTES].into_boxed_slice());
}

/// What the other side said. PING and PONG are dealt with by the session itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A frame of an application, inflated if it came compressed.
    Frame(Frame),
    /// So many more bytes of payload may be sent.
    Credit {
        /// Flow it holds for.
        flow: u64,
        /// Bytes on top of those allowed before.
        bytes: u64,
    },
    /// The other side takes no new requests.
    GoAway(GoAway),
}

/// The reading half of a session.
pub struct Reader {
    input: Input,
    outbox: Outbox,
    limits: Arc<SessionLimits>,
    /// Whether frames may come compressed.
    inflates: bool,
    /// Whether frames are held to less than was agreed on, until their sender shows who it is.
    is_held_short: bool,
    timer: Timer,
    ended: Option<Closed>,
}

/// What carries the frames here, chosen when the session begins.
pub(crate) enum Input {
    /// One TCP connection with TLS.
    Tls(Source),
    /// The streams of a QUIC connection.
    Quic(crate::quic::Input),
}

/// Where plain bytes come from: the connection, the record layer, and the decoder they end up in.
pub(crate) struct Source {
    io: Box<dyn AsyncRead + Send + Unpin>,
    records: Arc<Records>,
    pub(crate) decoder: Decoder,
    /// When bytes last came.
    last_bytes: Instant,
    /// When the frame that is not whole yet began; judged from the end of the last batch on.
    frame_began: Option<Instant>,
}

/// Why a source has no more bytes.
pub(crate) enum Dry {
    /// The other side is done.
    End,
    Tls(rustls::Error),
    Io(io::Error),
    /// The other side did what was not agreed on.
    NotAgreed(&'static str),
}

impl Source {
    pub(crate) fn new(io: Box<dyn AsyncRead + Send + Unpin>, records: Arc<Records>, frame_bytes_max: usize) -> Self {
        let decoder = Decoder::new(frame_bytes_max);
        Source { io, records, decoder, last_bytes: clock::now(), frame_began: None }
    }

    /// Reads once and decrypts what came; ready also if that made no plain byte.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Dry>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut room = ReadBuf::new(&mut scratch[HEADROOM_BYTES..]);
            ready!(Pin::new(&mut self.io).poll_read(context, &mut room)).map_err(Dry::Io)?;
            let count = room.filled().len();
            if count == 0 {
                return Poll::Ready(Err(self.end()));
            }
            // Room for what has arrived and nothing else: whatever a header promises, only bytes that are here cost.
            let plain = self.decoder.buffer_for(count);
            self.last_bytes = clock::now();
            let opened = self.records.open(&mut scratch[..HEADROOM_BYTES + count], HEADROOM_BYTES, plain);
            Poll::Ready(opened.map_err(Dry::Tls))
        })
    }

    /// No more comes. Without the end of TLS, or inside a frame, that is no end in order: somebody may have cut it off.
    fn end(&self) -> Dry {
        let is_in_order = self.records.is_peer_done() && !self.decoder.is_inside_frame();
        if is_in_order { Dry::End } else { Dry::Io(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn is_inside_frame(&self) -> bool {
        self.decoder.is_inside_frame() || self.records.is_inside_record()
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let frame = self.decoder.next()?;
        let is_inside_frame = || self.decoder.is_inside_frame() || self.records.is_inside_record();
        note_frame(&mut self.frame_began, frame.is_some(), is_inside_frame, self.last_bytes);
        Ok(frame)
    }
}

/// Keeps the time of the frame that is not whole yet: it runs from the frame's first byte, which came no earlier than
/// the last whole frame.
pub(crate) fn note_frame(
    began: &mut Option<Instant>,
    is_whole: bool,
    is_inside_frame: impl FnOnce() -> bool,
    last_bytes: Instant,
) {
    if is_whole || !is_inside_frame() {
        *began = None;
    } else {
        began.get_or_insert(last_bytes);
    }
}

impl Input {
    /// The next whole frame; none if more must be read first.
    fn next_frame(&mut self) -> Result<Option<Frame>, Closed> {
        match self {
            Input::Tls(source) => Ok(source.next_frame()?),
            Input::Quic(input) => input.next_frame(),
        }
    }

    /// Reads once; ready also if that made no plain byte.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Dry>> {
        match self {
            Input::Tls(source) => source.poll_fill(context),
            Input::Quic(input) => input.poll_fill(context),
        }
    }

    /// Why there is no more, if that is known without reading.
    fn known_end(&self) -> Option<Dry> {
        match self {
            // Without waiting for the end of the connection: a side that is done need not hurry with that.
            Input::Tls(source) => source.records.is_peer_done().then(|| source.end()),
            Input::Quic(_) => None,
        }
    }

    fn last_bytes(&self) -> Instant {
        match self {
            Input::Tls(source) => source.last_bytes,
            Input::Quic(input) => input.last_bytes(),
        }
    }

    fn frame_began(&self) -> Option<Instant> {
        match self {
            Input::Tls(source) => source.frame_began,
            Input::Quic(input) => input.frame_began(),
        }
    }

    fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        match self {
            Input::Tls(source) => source.decoder.set_frame_bytes_max(frame_bytes_max),
            Input::Quic(input) => input.set_frame_bytes_max(frame_bytes_max),
        }
    }

    fn shrink(&mut self) {
        match self {
            Input::Tls(source) => source.decoder.shrink(),
            Input::Quic(input) => input.shrink(),
        }
    }

    fn buffered_bytes(&self) -> usize {
        match self {
            Input::Tls(source) => source.decoder.capacity() + source.records.leftover_bytes(),
            Input::Quic(input) => input.buffered_bytes(),
        }
    }
}

impl From<Source> for Input {
    fn from(mut source: Source) -> Self {
        // HELLO is over: the times of a session begin.
        source.last_bytes = clock::now();
        source.frame_began = source.is_inside_frame().then_some(source.last_bytes);
        Input::Tls(source)
    }
}

impl Reader {
    pub(crate) fn new(input: Input, outbox: Outbox, limits: Arc<SessionLimits>, inflates: bool) -> Self {
        Reader { input, outbox, limits, inflates, is_held_short: false, timer: Timer::default(), ended: None }
    }

    /// Changes the bound on frames that are read, from the next header on; for a side that has yet to show who it is.
    /// Never more than was agreed on. While it is less, a batch ends with each frame that has a capability: the next
    /// one may be larger if that is known.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        let agreed = self.outbox.frame_bytes_max();
        self.is_held_short = frame_bytes_max < agreed;
        self.input.set_frame_bytes_max(frame_bytes_max.min(agreed));
    }

    /// Waits for frames and appends all that one read brought to `heard`, at least one. Cancel safe.
    ///
    /// After an error the session is over: the other side is told why, if it can still be told, by the writer, which
    /// then ends too. After this side closed the session, frames still come until the other side is done or the time
    /// for draining is over; reading them keeps the kernel from cutting off what was written last.
    pub async fn next_batch(&mut self, heard: &mut Vec<Heard>) -> Result<(), Closed> {
        std::future::poll_fn(|context| self.poll_batch(context, heard)).await
    }

    /// [`Reader::next_batch`] for those who poll.
    pub fn poll_batch(&mut self, context: &mut Context<'_>, heard: &mut Vec<Heard>) -> Poll<Result<(), Closed>> {
        let had = heard.len();
        loop {
            if let Some(ended) = &self.ended {
                return Poll::Ready(Err(ended.clone()));
            }
            if let Err(closed) = self.take_frames(heard) {
                self.end(closed);
            }
            if heard.len() > had {
                return Poll::Ready(Ok(()));
            }
            if let Some(dry) = self.input.known_end()
                && self.ended.is_none()
            {
                self.end(Closed::from(dry));
                continue;
            }
            match self.input.poll_fill(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(dry)) => {
                    // The half that ended first knows why.
                    let closed = self.outbox.ended().unwrap_or_else(|| Closed::from(dry));
                    self.end(closed);
                }
                Poll::Pending => return self.poll_waiting(context),
            }
        }
    }

    /// There is nothing to read: the time runs, and memory is given back.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        self.input.shrink();
        let (ended, drain_by) = self.outbox.watch(context);
        if let Some(ended) = ended {
            self.ended = Some(ended.clone());
            return Poll::Ready(Err(ended));
        }
        let (deadline, what) = self.deadline();
        let deadline_or_drain = drain_by.map_or(deadline, |drain_by| drain_by.sooner(deadline));
        ready!(self.timer.poll(context, deadline_or_drain));
        let closed = if deadline.has_passed() { Closed::Timeout(what) } else { Closed::Done };
        self.end(closed.clone());
        Poll::Ready(Err(closed))
    }

    fn deadline(&self) -> (Deadline, &'static str) {
        match self.input.frame_began() {
            Some(began) => (Deadline::at(began + self.limits.read_timeout), "read"),
            None => (Deadline::at(self.input.last_bytes() + self.limits.idle_timeout), "idle"),
        }
    }

    fn take_frames(&mut self, heard: &mut Vec<Heard>) -> Result<(), Closed> {
        while let Some(frame) = self.input.next_frame()? {
            let may_introduce = self.is_held_short && !frame.cap.is_empty();
            if frame.app == AppId::CONTROL {
                self.take_control(&frame, heard)?;
            } else if frame.has(Flags::COMP) {
                heard.push(Heard::Frame(self.inflated(frame)?));
            } else {
                heard.push(Heard::Frame(frame));
            }
            if may_introduce {
                break;
            }
        }
        Ok(())
    }

    fn take_control(&self, frame: &Frame, heard: &mut Vec<Heard>) -> Result<(), Closed> {
        match Control::parse(frame)? {
            // One that finds no room is lost: a flood of PING gets as many answers as fit, and costs nothing more.
            Control::Ping { nonce } => drop(self.outbox.control(&Control::Pong { nonce })),
            Control::Pong { nonce } => self.outbox.pong(nonce, self.input.last_bytes()),
            Control::Credit { flow, bytes } => heard.push(Heard::Credit { flow, bytes }),
            Control::GoAway { code, last_corr, reason } => {
                heard.push(Heard::GoAway(GoAway { code, last_corr, reason }));
            }
            Control::Hello(_) => return Err(Closed::RefusedControl(ControlError::Shape)),
        }
        Ok(())
    }

    /// Here, so that nobody who gets frames can forget the bounds of inflating.
    fn inflated(&self, frame: Frame) -> Result<Frame, Closed> {
        if !self.inflates {
            return Err(Closed::NotAgreed("compressed frames"));
        }
        let payload = compress::inflate(&frame.payload, self.outbox.frame_bytes_max()).map_err(Closed::Inflate)?;
        Ok(Frame { flags: frame.flags.without(Flags::COMP), payload, ..frame })
    }

    fn end(&mut self, closed: Closed) {
        match &closed {
            Closed::Broken(_) => self.outbox.end(&closed),
            _ => self.outbox.close_at_once(&closed.farewell(), Deadline::after(FAREWELL)),
        }
        self.ended = Some(closed);
    }

    /// Bytes of buffers that this half holds now.
    pub fn buffered_bytes(&self) -> usize {
        self.input.buffered_bytes()
    }
}

impl From<Dry> for Closed {
    fn from(dry: Dry) -> Self {
        match dry {
            Dry::End => Closed::Done,
            Dry::Tls(error) => Closed::Tls(Arc::new(error)),
            Dry::Io(error) => Closed::broken(error),
            Dry::NotAgreed(what) => Closed::NotAgreed(what),
        }
    }
}
