//! The writing side of a connection: control frames on one stream, flows on streams of their own.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hashbrown::HashMap;
use oap::Frame;
use quinn::{Connection, SendStream, StoppedError, VarInt};
use ron_kernel::{Deadline, clock};
use tokio::time::Instant;

use super::config::LANES_MAX;
use crate::closed::Closed;
use crate::outbox::Work;
use crate::writer::{LARGE_PAYLOAD_BYTES, Pace, TURN_BYTES};

/// Code of the end of a connection that did not end in order.
pub(super) const ABANDONED: VarInt = VarInt::from_u32(1);

type Acknowledged = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send>>;

/// The streams of this side.
pub(crate) struct Output {
    connection: Connection,
    control: Lane,
    lanes: Vec<Lane>,
    /// The lane that is written to first.
    first_lane: usize,
    /// Which of the lanes a flow has; a flow keeps it, since it would be overtaken by itself on another. Those that
    /// come when all lanes are given share them by their number.
    lane_of: HashMap<u64, usize>,
    batch: Vec<(Option<u64>, Frame)>,
    phase: Phase,
}

/// One stream, and what it has not taken yet: what was given to it in one turn at most.
struct Lane {
    stream: SendStream,
    /// Small frames of this turn, copied together.
    gathered: Vec<u8>,
    owed: VecDeque<Bytes>,
    /// When it last took something, while it owes us.
    stalled_since: Option<Instant>,
}

enum Phase {
    Open,
    /// The lanes are ended; what was written has not arrived yet.
    Arriving(Vec<Acknowledged>),
    /// The control stream is ended too.
    Ending(Acknowledged),
}

impl Output {
    pub(super) fn new(connection: Connection, control: SendStream) -> Self {
        Output {
            connection,
            control: Lane::new(control),
            lanes: Vec::new(),
            first_lane: 0,
            lane_of: HashMap::new(),
            batch: Vec::new(),
            phase: Phase::Open,
        }
    }

    /// Without this the library would end the streams in order when they are dropped.
    pub(crate) fn abandon(&self) {
        self.connection.close(ABANDONED, b"");
    }

    pub(crate) fn poll_run(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            if let Err(error) = self.write_owed(context) {
                // Who ended the connection on this side has said why.
                return Poll::Ready(pace.outbox.ended().unwrap_or_else(|| Closed::broken(error)));
            }
            let step = match &mut self.phase {
                Phase::Open => self.poll_turn(pace, context),
                Phase::Arriving(acknowledged) => match poll_all(acknowledged, context) {
                    Poll::Ready(Ok(())) => {
                        self.end_control();
                        Poll::Ready(Ok(()))
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(Closed::broken(error))),
                    Poll::Pending => Poll::Pending,
                },
                // Whether the other side hears this last of all is its own affair.
                Phase::Ending(acknowledged) => acknowledged.as_mut().poll(context).map(|_| Err(Closed::Done)),
            };
            match step {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(closed)) => return Poll::Ready(closed),
                Poll::Pending => {
                    if let Some(closed) = ready!(self.poll_waiting(pace, context)) {
                        return Poll::Ready(closed);
                    }
                }
            }
        }
    }

    /// Takes what there is to write for the streams that have taken all they were given before.
    fn poll_turn(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if pace.ping_if_due() {
            self.batch = Vec::new();
        }
        let is_free = |flow: Option<u64>| match flow.map(|flow| lane_of(&self.lane_of, self.lanes.len(), flow)) {
            None => self.control.is_free(),
            Some(Some(lane)) => self.lanes[lane].is_free(),
            Some(None) => true,
        };
        match pace.outbox.poll_free_work(context, TURN_BYTES, is_free, &mut self.batch) {
            Poll::Ready(Work::Write) => {
                pace.was_busy = true;
                Poll::Ready(self.hand_out(context))
            }
            Poll::Ready(Work::Finish) if self.control.is_free() && self.lanes.iter().all(Lane::is_free) => {
                self.end_lanes();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Work::Stop(closed)) => Poll::Ready(Err(closed)),
            Poll::Ready(Work::Finish) | Poll::Pending => Poll::Pending,
        }
    }

    /// Gives each frame of the batch to the stream of its flow.
    fn hand_out(&mut self, context: &mut Context<'_>) -> Result<(), Closed> {
        let mut batch = std::mem::take(&mut self.batch);
        for (flow, frame) in batch.drain(..) {
            let lane = match flow {
                Some(flow) => self.lane_for(flow, context)?,
                None => &mut self.control,
            };
            lane.gather(frame);
        }
        self.batch = batch;
        self.control.close_gathered();
        self.lanes.iter_mut().for_each(Lane::close_gathered);
        Ok(())
    }

    /// The stream of a flow; a new one for a new flow, while there may be more.
    fn lane_for(&mut self, flow: u64, context: &mut Context<'_>) -> Result<&mut Lane, Closed> {
        if let Some(lane) = lane_of(&self.lane_of, self.lanes.len(), flow) {
            return Ok(&mut self.lanes[lane]);
        }
        // How many the other side takes is known since the handshake, so there is nothing to wait for.
        let stream = match pin!(self.connection.open_uni()).poll(context) {
            Poll::Ready(opened) => opened.map_err(|lost| Closed::broken(lost.into()))?,
            Poll::Pending => return Err(Closed::broken(io::Error::other("the other side takes too few streams"))),
        };
        self.lane_of.insert(flow, self.lanes.len());
        Ok(self.lanes.push_mut(Lane::new(stream)))
    }

    /// Writes what the streams have not taken yet, as far as they go. One that takes nothing holds up no other.
    fn write_owed(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.control.write_owed(context)?;
        // They share the window of the connection: each is first in turn.
        let lanes = self.lanes.len();
        self.first_lane = (self.first_lane + 1) % lanes.max(1);
        for index in 0..lanes {
            self.lanes[(self.first_lane + index) % lanes].write_owed(context)?;
        }
        Ok(())
    }

    fn end_lanes(&mut self) {
        let end = |lane: &mut Lane| {
            // Fails only for a stream that has ended.
            let _ = lane.stream.finish();
            Box::pin(lane.stream.stopped()) as Acknowledged
        };
        self.phase = Phase::Arriving(self.lanes.iter_mut().map(end).collect());
    }

    /// The last of all: with it the other side knows that there is nothing more to come on any stream.
    fn end_control(&mut self) {
        let _ = self.control.stream.finish();
        self.phase = Phase::Ending(Box::pin(self.control.stream.stopped()));
    }

    /// No stream takes anything, or there is nothing to write: the time runs. Ready with how the session ended, or with
    /// nothing when there is something to do again.
    fn poll_waiting(&mut self, pace: &mut Pace, context: &mut Context<'_>) -> Poll<Option<Closed>> {
        if let Poll::Ready(closed) = pace.outbox.poll_stop(context) {
            return Poll::Ready(Some(closed));
        }
        let stalled_since = self.lanes.iter().chain([&self.control]).filter_map(|lane| lane.stalled_since).min();
        let stall = stalled_since.map(|since| Deadline::at(since + pace.limits.write_stall));
        let ping = matches!(self.phase, Phase::Open).then_some(Deadline::at(pace.next_ping));
        let deadlines = [stall, ping, pace.outbox.drain_by()];
        let Some(soonest) = deadlines.into_iter().flatten().reduce(Deadline::sooner) else { return Poll::Pending };
        ready!(pace.timer.poll(context, soonest));
        Poll::Ready(stall.is_some_and(Deadline::has_passed).then_some(Closed::Timeout("write")))
    }
}

impl Lane {
    fn new(stream: SendStream) -> Self {
        Lane { stream, gathered: Vec::new(), owed: VecDeque::new(), stalled_since: None }
    }

    fn is_free(&self) -> bool {
        self.owed.is_empty()
    }

    /// Small frames are copied together; large payloads go as they are.
    fn gather(&mut self, frame: Frame) {
        if frame.last_piece().len() < LARGE_PAYLOAD_BYTES {
            frame.encode(&mut self.gathered);
        } else {
            frame.put_head(&mut self.gathered);
            self.close_gathered();
            self.owed.push_back(frame.last_piece().clone());
        }
    }

    fn close_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.owed.push_back(Bytes::from(std::mem::take(&mut self.gathered)));
        }
    }

    fn write_owed(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.owed.is_empty() {
            let written = match pin!(self.stream.write_chunks(self.owed.make_contiguous())).poll(context) {
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.stalled_since.get_or_insert_with(clock::now);
                    return Ok(());
                }
            };
            self.stalled_since = None;
            self.owed.drain(..written.chunks);
        }
        if self.owed.capacity() > 0 {
            self.owed = VecDeque::new();
        }
        Ok(())
    }
}

/// The lane that a flow has, or will share; none if it gets a new one.
fn lane_of(given: &HashMap<u64, usize>, lanes: usize, flow: u64) -> Option<usize> {
    let shared = || {
        // Spreads numbers that follow one another, and those that are hashes already.
        let spread = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        spread as usize % LANES_MAX
    };
    given.get(&flow).copied().or_else(|| (lanes == LANES_MAX).then(shared))
}

fn poll_all(acknowledged: &mut Vec<Acknowledged>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    while let Some(next) = acknowledged.last_mut() {
        match ready!(next.as_mut().poll(context))? {
            None => drop(acknowledged.pop()),
            Some(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
    Poll::Ready(Ok(()))
}
