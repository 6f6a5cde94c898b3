//! Places in the queue that are kept free for frames that are still to be made.

use std::future::poll_fn;
use std::task::Poll;

use oap::Frame;

use super::{Outbox, PushError};

/// Room for one frame of a session, kept until the frame is pushed or the place is dropped.
///
/// For answers that somebody makes who cannot wait for room, and that must not be lost: whoever asks for one takes its
/// place first, and is the one who waits.
#[derive(Debug)]
pub struct Place {
    outbox: Outbox,
    /// Bytes that are kept; none once they are given back.
    bytes: Option<usize>,
}

impl Outbox {
    /// Keeps room for a frame of about so many bytes, if that leaves half of the queue to others.
    pub fn try_place(&self, bytes: usize) -> Result<Place, PushError> {
        self.with(|state, _| state.keep(bytes))?;
        Ok(Place { outbox: self.clone(), bytes: Some(bytes) })
    }

    /// The same as soon as there is that much room.
    pub async fn place(&self, bytes: usize) -> Result<Place, PushError> {
        let kept = poll_fn(|context| {
            self.with(|state, _| match state.keep(bytes) {
                Err(PushError::Full { .. }) => state.wait_for_room(context),
                kept => Poll::Ready(kept),
            })
        });
        kept.await?;
        Ok(Place { outbox: self.clone(), bytes: Some(bytes) })
    }
}

impl Place {
    /// Queues the frame. It finds room, also if it is somewhat larger than was thought.
    pub fn push(mut self, flow: u64, frame: Frame) -> Result<(), PushError> {
        frame.check(self.outbox.frame_bytes_max())?;
        let bytes = self.bytes.take().unwrap_or(0);
        self.outbox.with(|state, wakes| {
            state.scheduler.give_back(bytes);
            if state.is_closed() {
                return Err(PushError::Closed);
            }
            state.scheduler.push_beyond(flow, frame);
            wakes.writer = state.writer.take();
            Ok(())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.outbox.with(|state, wakes| {
                state.scheduler.give_back(bytes);
                wakes.room = std::mem::take(&mut state.room);
            });
        }
    }
}
