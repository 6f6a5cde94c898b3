//! The reading side of a connection: frames out of all streams, each with its own time.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use oap::{AppId, Decoder, Frame};
use quinn::{Connection, ConnectionError, RecvStream};
use ron_kernel::clock;
use tokio::time::Instant;

use super::config::LANES_MAX;
use crate::closed::{BadHello, Closed, ConnectError};
use crate::connect::FIRST_FRAME_BYTES_MAX;
use crate::reader::{Dry, note_frame};

/// Bytes read from one stream before the next has its turn.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Largest frames' worth of bytes in frames that are not whole yet; beyond that only the oldest of them is read on.
const UNFINISHED_FRAMES_MAX: usize = 2;
/// What the buffers of those frames come to: up to that bound, and then the one that is read on, whose buffer grows by
/// doubling; one more for what the last read of each stream brought.
pub(super) const UNFINISHED_FRAMES_MOST: usize = UNFINISHED_FRAMES_MAX + 2 + 1;

type Accepting = Pin<Box<dyn Future<Output = Result<RecvStream, ConnectionError>> + Send>>;

thread_local! {
    /// What is read goes here and is copied out at once, so that a session that waits has no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// The streams of the other side.
pub(crate) struct Input {
    connection: Connection,
    accepting: Accepting,
    /// In the order in which the other side opened them: the first one is for control frames.
    streams: Vec<Stream>,
    frame_bytes_max: usize,
    last_bytes: Instant,
    /// Whether HELLO is over; until then only the control stream is read.
    is_open: bool,
}

struct Stream {
    stream: RecvStream,
    decoder: Decoder,
    /// When the frame that is not whole yet began.
    frame_began: Option<Instant>,
    is_ended: bool,
    /// The error is told once by the library, and perhaps while other streams still have something to read.
    failed: Option<io::Error>,
}

impl Input {
    pub(super) fn new(connection: &Connection) -> Self {
        Input {
            connection: connection.clone(),
            accepting: accepting(connection),
            streams: Vec::new(),
            frame_bytes_max: FIRST_FRAME_BYTES_MAX,
            last_bytes: clock::now(),
            is_open: false,
        }
    }

    /// The first frame of the control stream.
    pub(super) async fn first_frame(&mut self) -> Result<Result<Frame, BadHello>, ConnectError> {
        loop {
            match self.streams.first_mut().map(|control| control.decoder.next()) {
                Some(Ok(Some(frame))) => return Ok(Ok(frame)),
                Some(Err(error)) => return Ok(Err(error.into())),
                Some(Ok(None)) | None => {}
            }
            let filled = std::future::poll_fn(|context| self.poll_fill(context)).await;
            filled.map_err(|dry| match dry {
                Dry::End => io::ErrorKind::UnexpectedEof.into(),
                Dry::Io(error) => error,
                Dry::Tls(error) => io::Error::other(error),
                Dry::NotAgreed(what) => io::Error::new(io::ErrorKind::InvalidData, what),
            })?;
        }
    }

    /// HELLO is over: frames of this size may come, and the times of a session begin.
    pub(super) fn open(&mut self, frame_bytes_max: usize) {
        self.is_open = true;
        self.last_bytes = clock::now();
        self.set_frame_bytes_max(frame_bytes_max);
    }

    /// Reads each stream once. Ready if bytes came; else the task is woken when some do, or a stream is opened.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Dry>> {
        // The control stream goes first: the other side ends it when all others have arrived whole, so whoever sees
        // its end finds everything else there.
        let first_unread = self.streams.len().min(1);
        let mut has_bytes = self.look(context, 0);
        if self.is_open || self.streams.is_empty() {
            match self.poll_accept(context) {
                Some(dry @ Dry::NotAgreed(_)) => return Poll::Ready(Err(dry)),
                Some(dry) if self.streams.is_empty() => return Poll::Ready(Err(dry)),
                // A connection that is over: the streams say the same once everything in them is read.
                Some(_) | None => {}
            }
        }
        let readable = if self.is_open { self.streams.len() } else { self.streams.len().min(1) };
        for index in first_unread..readable {
            has_bytes |= self.look(context, index);
        }
        if has_bytes {
            self.last_bytes = clock::now();
            return Poll::Ready(Ok(()));
        }
        self.end().map_or(Poll::Pending, |dry| Poll::Ready(Err(dry)))
    }

    /// Takes the streams that the other side has opened; says what is wrong with that.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Option<Dry> {
        while let Poll::Ready(accepted) = self.accepting.as_mut().poll(context) {
            let stream = match accepted {
                Ok(stream) => stream,
                Err(lost) => {
                    // A future that is done must not be polled again.
                    self.accepting = Box::pin(std::future::pending());
                    return Some(Dry::Io(lost.into()));
                }
            };
            // The library refuses more of them at once; this is about ending some and opening others, for ever.
            if self.streams.len() > LANES_MAX {
                return Some(Dry::NotAgreed("more streams"));
            }
            let is_control = self.streams.is_empty();
            let decoder = Decoder::new(if is_control { FIRST_FRAME_BYTES_MAX } else { self.frame_bytes_max });
            self.streams.push(Stream { stream, decoder, frame_began: None, is_ended: false, failed: None });
            self.accepting = accepting(&self.connection);
        }
        None
    }

    /// Reads a stream once; true if bytes came.
    fn look(&mut self, context: &mut Context<'_>, index: usize) -> bool {
        let has_room = self.buffered_bytes() <= UNFINISHED_FRAMES_MAX * self.frame_bytes_max;
        // Of frames without end one is read on, so that its end, or its time, comes. Control frames are small.
        let may_read = has_room || index == 0 || self.oldest() == Some(index);
        may_read && self.streams.get_mut(index).is_some_and(|stream| stream.look(context))
    }

    /// The stream whose frame has been waiting for its end for the longest time.
    fn oldest(&self) -> Option<usize> {
        let began = |(index, stream): (usize, &Stream)| stream.frame_began.map(|began| (began, index));
        self.streams.iter().enumerate().skip(1).filter_map(began).min().map(|(_, index)| index)
    }

    /// Why no more comes, if no more does.
    fn end(&mut self) -> Option<Dry> {
        let is_over = self.streams.first().is_some_and(|control| control.is_ended);
        if is_over {
            let is_in_order = |stream: &Stream| stream.is_ended && !stream.decoder.is_inside_frame();
            let is_cut_off = !self.streams.iter().all(is_in_order);
            return Some(if is_cut_off { Dry::Io(io::ErrorKind::UnexpectedEof.into()) } else { Dry::End });
        }
        self.streams.iter_mut().find_map(|stream| stream.failed.take()).map(Dry::Io)
    }

    /// The next whole frame of any stream; control frames come on the control stream and nowhere else.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, Closed> {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let frame = stream.decoder.next()?;
            let decoder = &stream.decoder;
            note_frame(&mut stream.frame_began, frame.is_some(), || decoder.is_inside_frame(), self.last_bytes);
            match frame {
                Some(frame) if (frame.app == AppId::CONTROL) == (index == 0) => return Ok(Some(frame)),
                Some(_) if index == 0 => return Err(Closed::NotAgreed("frames of applications on the control stream")),
                Some(_) => return Err(Closed::NotAgreed("control frames on another than the control stream")),
                None => {}
            }
        }
        Ok(None)
    }

    pub(crate) fn last_bytes(&self) -> Instant {
        self.last_bytes
    }

    /// When the oldest of the frames began that are not whole yet.
    pub(crate) fn frame_began(&self) -> Option<Instant> {
        self.streams.iter().filter_map(|stream| stream.frame_began).min()
    }

    pub(crate) fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
        // Not on the control stream: HELLO is the largest that comes there.
        self.streams.iter_mut().skip(1).for_each(|stream| stream.decoder.set_frame_bytes_max(frame_bytes_max));
    }

    pub(crate) fn shrink(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.decoder.shrink());
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.decoder.capacity()).sum()
    }
}

impl Stream {
    /// Reads once; true if bytes came.
    fn look(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_ended || self.failed.is_some() {
            return false;
        }
        SCRATCH.with_borrow_mut(|scratch| match self.stream.poll_read(context, scratch) {
            Poll::Ready(Ok(0)) => {
                self.is_ended = true;
                if self.decoder.is_inside_frame() {
                    self.failed = Some(io::ErrorKind::UnexpectedEof.into());
                }
                false
            }
            Poll::Ready(Ok(count)) => {
                // Room for what has arrived and nothing else, as over TCP.
                self.decoder.buffer().extend_from_slice(&scratch[..count]);
                true
            }
            Poll::Ready(Err(error)) => {
                self.failed = Some(error.into());
                false
            }
            Poll::Pending => false,
        })
    }
}

fn accepting(connection: &Connection) -> Accepting {
    let connection = connection.clone();
    Box::pin(async move { connection.accept_uni().await })
}
