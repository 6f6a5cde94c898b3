//! The queue in front of the writer: everybody who has something for the other side puts it here.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use oap::{Control, Flags, Frame, FrameError};
use ron_kernel::Deadline;
use tokio::time::Instant;

use crate::closed::{Closed, GoAway};
use crate::scheduler::{Bounds, Scheduler};
use crate::sync::{Arc, Mutex, MutexGuard, lock};

mod place;
#[cfg(feature = "shuttle")]
pub mod writer_side;

pub use place::Place;

/// Tasks that may wait for room at once; a further one asks again each time it is its turn to run.
const WAITING_FOR_ROOM_MAX: usize = 1024;

/// Reason why a frame was not queued. The caller never waits: what to do about it is its own decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The other side, or the way to it, is slower than what is sent to it.
    #[error("{queued_frames} frames with {queued_bytes} bytes wait to be written")]
    Full {
        /// Bytes that wait.
        queued_bytes: usize,
        /// Frames that wait.
        queued_frames: usize,
    },
    /// The session ends.
    #[error("the session is closed")]
    Closed,
    /// The frame breaks the protocol or is larger than agreed; sent, it would cost the session.
    #[error("not a frame of this session: {0}")]
    Unfit(#[from] FrameError),
}

/// A handle to the queue of one session. Cheap to clone; its calls take one short lock and never wait.
#[derive(Clone)]
pub struct Outbox(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    frame_bytes_max: usize,
}

struct State {
    scheduler: Scheduler,
    /// Set when the session is closed: GOAWAY is queued, nothing is taken any more, and by then all must be out.
    drain_by: Option<Deadline>,
    /// How the session ended; set once, by whichever half ends first.
    ended: Option<Closed>,
    /// Highest number among the other side's requests that were begun.
    begun: u64,
    /// The PING that is not answered yet.
    ping: Option<(u64, Instant)>,
    rtt: Option<Duration>,
    /// The writer, while it waits for something to write.
    writer: Option<Waker>,
    /// The reader, while it waits for bytes: it ends when the writer does.
    reader: Option<Waker>,
    room: Vec<Waker>,
}

/// Whom a change concerns.
#[derive(Default)]
struct Wakes {
    writer: Option<Waker>,
    reader: Option<Waker>,
    room: Vec<Waker>,
}

/// What the writer is to do next.
pub enum Work {
    /// Frames are in the batch.
    Write,
    /// Everything is out: say goodbye.
    Finish,
    /// The time for draining is over, or the other half has ended.
    Stop(Closed),
}

impl Outbox {
    pub(crate) fn new(bounds: Bounds, frame_bytes_max: usize) -> Self {
        let state = State {
            scheduler: Scheduler::new(bounds),
            drain_by: None,
            ended: None,
            begun: 0,
            ping: None,
            rtt: None,
            writer: None,
            reader: None,
            room: Vec::new(),
        };
        Outbox(Arc::new(Shared { state: Mutex::new(state), frame_bytes_max }))
    }

    /// Queues a frame of a flow. Frames of one flow go out in this order; flows share the way by bytes.
    pub fn push(&self, flow: u64, frame: Frame) -> Result<(), PushError> {
        frame.check(self.0.frame_bytes_max)?;
        self.with(|state, wakes| {
            state.push(flow, frame)?;
            wakes.writer = state.writer.take();
            Ok(())
        })
    }

    /// Queues frames of one flow until one is refused, with one lock and one wake-up; returns how many were taken, and
    /// why the next one was not. An event in parts, from its START to its END, is taken whole or not at all, and counts
    /// as one.
    pub fn push_all(&self, flow: u64, frames: impl IntoIterator<Item = Frame>) -> (usize, Result<(), PushError>) {
        self.with(|state, wakes| {
            let (mut taken, mut frames) = (0, frames.into_iter());
            let outcome = loop {
                let Some(first) = frames.next() else { break Ok(()) };
                let frame_bytes_max = self.0.frame_bytes_max;
                let pushed = match begins_parts(&first) {
                    true => state.push_whole(flow, parts_from(first, &mut frames), frame_bytes_max),
                    false => {
                        first.check(frame_bytes_max).map_err(PushError::from).and_then(|()| state.push(flow, first))
                    }
                };
                match pushed {
                    Ok(()) => taken += 1,
                    Err(refused) => break Err(refused),
                }
            };
            if taken > 0 {
                wakes.writer = state.writer.take();
            }
            (taken, outcome)
        })
    }

    /// Queues a frame as soon as there is room for it. For callers that may wait, which a relay never may.
    pub async fn send(&self, flow: u64, frame: Frame) -> Result<(), PushError> {
        frame.check(self.0.frame_bytes_max)?;
        let mut frame = Some(frame);
        std::future::poll_fn(|context| {
            self.with(|state, wakes| {
                let Some(next) =
                    frame.take_if(|frame| state.is_closed() || state.scheduler.has_room_for(frame.encoded_len()))
                else {
                    return state.wait_for_room(context);
                };
                wakes.writer = state.writer.take();
                Poll::Ready(state.push(flow, next))
            })
        })
        .await
    }

    /// Waits until a frame of this size would fit, or the session is closed. Nothing is reserved: the next push may
    /// find the queue full again when others push too.
    pub async fn room_for(&self, frame_bytes: usize) {
        std::future::poll_fn(|context| {
            self.with(|state, _| match state.is_closed() || state.scheduler.has_room_for(frame_bytes) {
                true => Poll::Ready(()),
                false => state.wait_for_room(context),
            })
        })
        .await;
    }

    /// Ready when so many frames of so many bytes would leave half of the queue to others, or nothing waits at all; the
    /// task is woken when that may have changed. Pending for good on a session that is closed.
    pub fn poll_half_free(&self, context: &Context<'_>, frames: usize, bytes: usize) -> Poll<()> {
        self.with(|state, _| {
            if state.is_closed() {
                return Poll::Pending;
            }
            match state.scheduler.frames() == 0 || state.scheduler.is_half_free_after(frames, bytes) {
                true => Poll::Ready(()),
                false => state.wait_for_room(context),
            }
        })
    }

    /// Queues frames of one flow as room comes up, in as few locks as it takes; what is queued is taken off the front.
    pub async fn send_all(&self, flow: u64, frames: &mut VecDeque<Frame>) -> Result<(), PushError> {
        for frame in frames.iter() {
            frame.check(self.0.frame_bytes_max)?;
        }
        std::future::poll_fn(|context| self.poll_send_all(context, flow, frames)).await
    }

    fn poll_send_all(
        &self,
        context: &Context<'_>,
        flow: u64,
        frames: &mut VecDeque<Frame>,
    ) -> Poll<Result<(), PushError>> {
        self.with(|state, wakes| {
            if state.is_closed() {
                return Poll::Ready(Err(PushError::Closed));
            }
            while frames.front().is_some_and(|frame| state.scheduler.has_room_for(frame.encoded_len())) {
                let frame = frames.pop_front().expect("it was just looked at");
                state.push(flow, frame)?;
                wakes.writer = wakes.writer.take().or_else(|| state.writer.take());
            }
            if frames.is_empty() { Poll::Ready(Ok(())) } else { state.wait_for_room(context) }
        })
    }

    /// Queues a control frame, ahead of all data; false if the reserve for control frames is used up.
    #[must_use]
    pub fn control(&self, control: &Control) -> bool {
        let frame = control.to_frame();
        self.with(|state, wakes| {
            let is_queued = state.ended.is_none() && state.scheduler.push_control(frame).is_ok();
            if is_queued {
                wakes.writer = state.writer.take();
            }
            is_queued
        })
    }

    /// Drops the oldest waiting frames of a flow until at least `bytes` are free; returns how many frames were dropped,
    /// and their bytes.
    pub fn shed_oldest(&self, flow: u64, bytes: usize) -> (usize, usize) {
        self.with(|state, wakes| {
            wakes.room = std::mem::take(&mut state.room);
            state.scheduler.shed_oldest(flow, bytes)
        })
    }

    /// Requests of the other side were begun, this the highest number among them. Whatever ends the session, GOAWAY
    /// names the highest so far: what is above it may be sent elsewhere without being done twice.
    pub fn note_begun(&self, corr: u64) {
        let mut state = self.lock();
        state.begun = state.begun.max(corr);
    }

    /// Ends the session in order: GOAWAY goes out now, then what is queued, then the end of TLS; at `drain_by` the
    /// writer stops, whatever is left. A second call can only make that sooner.
    pub fn close(&self, farewell: &GoAway, drain_by: Deadline) {
        self.begin_closing(farewell, drain_by, false);
    }

    /// The same, but what is queued is dropped: the other side broke the rules, or is not there.
    pub fn close_at_once(&self, farewell: &GoAway, drain_by: Deadline) {
        self.begin_closing(farewell, drain_by, true);
    }

    fn begin_closing(&self, farewell: &GoAway, drain_by: Deadline, drop_queued: bool) {
        self.with(|state, wakes| {
            if drop_queued {
                state.scheduler.clear_flows();
            }
            match &mut state.drain_by {
                Some(earlier) => *earlier = earlier.sooner(drain_by),
                None => {
                    state.drain_by = Some(drain_by);
                    state.scheduler.push_control_beyond(farewell.to_control(state.begun).to_frame());
                }
            }
            wakes.writer = state.writer.take();
            wakes.reader = state.reader.take();
            wakes.room = std::mem::take(&mut state.room);
        });
    }

    /// Changes how many bytes may wait, at least those of a frame; what waits already is kept.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        let bytes_max = bytes_max.max(self.0.frame_bytes_max);
        self.with(|state, wakes| {
            state.scheduler.set_bytes_max(bytes_max);
            wakes.room = std::mem::take(&mut state.room);
        });
    }

    /// Changes how many frames may wait, at least one.
    pub fn set_frames_max(&self, frames_max: usize) {
        self.with(|state, wakes| {
            state.scheduler.set_frames_max(frames_max.max(1));
            wakes.room = std::mem::take(&mut state.room);
        });
    }

    /// Bytes that may wait at most.
    pub fn bytes_max(&self) -> usize {
        self.lock().scheduler.bytes_max()
    }

    /// Bytes that wait, control frames not counted.
    pub fn queued_bytes(&self) -> usize {
        self.lock().scheduler.bytes()
    }

    /// Frames that wait, control frames not counted.
    pub fn queued_frames(&self) -> usize {
        self.lock().scheduler.frames()
    }

    /// Bytes of one flow that wait.
    pub fn queued_bytes_of(&self, flow: u64) -> usize {
        self.lock().scheduler.bytes_of(flow)
    }

    /// Bytes of control frames that wait.
    pub fn queued_control_bytes(&self) -> usize {
        self.lock().scheduler.control_bytes()
    }

    /// Maximum bytes of one frame on this session.
    pub fn frame_bytes_max(&self) -> usize {
        self.0.frame_bytes_max
    }

    /// Time from the last answered PING to its PONG; nothing before the first.
    pub fn rtt(&self) -> Option<Duration> {
        self.lock().rtt
    }

    /// Whether frames are no longer taken.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    /// The next frames for the writer, about `bytes` of them; while there is nothing to do the writer's waker is kept.
    pub(crate) fn poll_work(&self, context: &Context<'_>, bytes: usize, batch: &mut VecDeque<Frame>) -> Poll<Work> {
        self.with(|state, wakes| {
            if let Some(stop) = state.stop() {
                return Poll::Ready(Work::Stop(stop));
            }
            if !state.scheduler.is_empty() {
                state.scheduler.take(bytes, batch);
                wakes.room = std::mem::take(&mut state.room);
                return Poll::Ready(Work::Write);
            }
            if state.drain_by.is_some() {
                return Poll::Ready(Work::Finish);
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
    }

    /// [`Outbox::poll_work`] for a writer with a way for each flow: of those that are free.
    pub(crate) fn poll_free_work(
        &self,
        context: &Context<'_>,
        bytes: usize,
        is_free: impl FnMut(Option<u64>) -> bool,
        batch: &mut Vec<(Option<u64>, Frame)>,
    ) -> Poll<Work> {
        self.with(|state, wakes| {
            if let Some(stop) = state.stop() {
                return Poll::Ready(Work::Stop(stop));
            }
            state.scheduler.take_free(bytes, is_free, batch);
            if !batch.is_empty() {
                wakes.room = std::mem::take(&mut state.room);
                return Poll::Ready(Work::Write);
            }
            if state.drain_by.is_some() && state.scheduler.is_empty() {
                return Poll::Ready(Work::Finish);
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
    }

    /// How the session ended, once it has.
    pub(crate) fn ended(&self) -> Option<Closed> {
        self.lock().ended.clone()
    }

    /// While the writer waits for the socket: whether it should stop waiting. It is woken when that changes.
    pub(crate) fn poll_stop(&self, context: &Context<'_>) -> Poll<Closed> {
        let mut state = self.lock();
        state.writer = Some(context.waker().clone());
        state.stop().map_or(Poll::Pending, Poll::Ready)
    }

    /// When draining has to be over, once the session is closed.
    pub(crate) fn drain_by(&self) -> Option<Deadline> {
        self.lock().drain_by
    }

    /// While the reader waits for bytes: how the session ended, once it has, and when draining has to be over, once it
    /// is closed. The reader is woken when either changes.
    pub(crate) fn watch(&self, context: &Context<'_>) -> (Option<Closed>, Option<Deadline>) {
        let mut state = self.lock();
        state.reader = Some(context.waker().clone());
        (state.ended.clone(), state.drain_by)
    }

    /// One half is at its end and with it the session: nothing more is taken, and the other half ends too.
    pub(crate) fn end(&self, how: &Closed) {
        self.with(|state, wakes| {
            state.ended.get_or_insert_with(|| how.clone());
            state.scheduler.clear_flows();
            wakes.writer = state.writer.take();
            wakes.reader = state.reader.take();
            wakes.room = std::mem::take(&mut state.room);
        });
    }

    /// A PING goes out now, unless the last one is still on its way: that one measures the same link.
    pub(crate) fn ping(&self, nonce: u64, now: Instant) {
        let mut state = self.lock();
        if state.scheduler.push_control(Control::Ping { nonce }.to_frame()).is_ok() && state.ping.is_none() {
            state.ping = Some((nonce, now));
        }
    }

    /// A PONG came; one that answers no PING of ours is not believed.
    pub(crate) fn pong(&self, nonce: u64, now: Instant) {
        let mut state = self.lock();
        if let Some((sent, at)) = state.ping
            && sent == nonce
        {
            state.ping = None;
            state.rtt = Some(now.saturating_duration_since(at));
        }
    }

    /// Gives memory back; for a session that has gone quiet.
    pub(crate) fn shrink(&self) {
        self.lock().scheduler.shrink();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Changes the state, and wakes whom that concerns after the lock is free again: who is woken wants the lock first.
    fn with<T>(&self, change: impl FnOnce(&mut State, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let outcome = change(&mut self.lock(), &mut wakes);
        wakes.wake();
        outcome
    }
}

impl State {
    fn is_closed(&self) -> bool {
        self.drain_by.is_some() || self.ended.is_some()
    }

    fn push(&mut self, flow: u64, frame: Frame) -> Result<(), PushError> {
        if self.is_closed() {
            return Err(PushError::Closed);
        }
        let (queued_bytes, queued_frames) = (self.scheduler.bytes(), self.scheduler.frames());
        self.scheduler.push(flow, frame).map_err(|_| PushError::Full { queued_bytes, queued_frames })
    }

    fn push_whole(&mut self, flow: u64, parts: Vec<Frame>, frame_bytes_max: usize) -> Result<(), PushError> {
        parts.iter().try_for_each(|part| part.check(frame_bytes_max))?;
        if self.is_closed() {
            return Err(PushError::Closed);
        }
        let (queued_bytes, queued_frames) = (self.scheduler.bytes(), self.scheduler.frames());
        self.scheduler.push_whole(flow, parts).map_err(|_| PushError::Full { queued_bytes, queued_frames })
    }

    fn keep(&mut self, bytes: usize) -> Result<(), PushError> {
        if self.is_closed() {
            return Err(PushError::Closed);
        }
        let (queued_bytes, queued_frames) = (self.scheduler.bytes(), self.scheduler.frames());
        self.scheduler.keep(bytes).map_err(|_| PushError::Full { queued_bytes, queued_frames })
    }

    fn wait_for_room<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        if self.room.len() >= WAITING_FOR_ROOM_MAX {
            context.waker().wake_by_ref();
        } else if !self.room.iter().any(|waker| waker.will_wake(context.waker())) {
            self.room.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn stop(&self) -> Option<Closed> {
        let is_late = self.drain_by.is_some_and(Deadline::has_passed);
        self.ended.clone().or_else(|| is_late.then_some(Closed::Timeout("drain")))
    }
}

fn begins_parts(frame: &Frame) -> bool {
    frame.has(Flags::EVENT | Flags::START) && !frame.has(Flags::END)
}

/// The frames of an event in parts.
fn parts_from(first: Frame, rest: &mut impl Iterator<Item = Frame>) -> Vec<Frame> {
    let mut parts = vec![first];
    for part in rest.by_ref() {
        let is_last = part.has(Flags::END);
        parts.push(part);
        if is_last {
            break;
        }
    }
    parts
}

impl Wakes {
    fn wake(self) {
        self.writer.into_iter().chain(self.reader).chain(self.room).for_each(Waker::wake);
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let (bytes, frames) = (state.scheduler.bytes(), state.scheduler.frames());
        write!(f, "Outbox({frames} frames, {bytes} bytes, closed: {})", state.is_closed())
    }
}
