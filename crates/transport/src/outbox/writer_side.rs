//! What the two halves of a session do with its outbox, for models that drive one without a connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use oap::Frame;

use super::Outbox;
pub use super::Work;
use crate::closed::Closed;
use crate::scheduler::Bounds;

/// An empty outbox.
pub fn outbox(bounds: Bounds, frame_bytes_max: usize) -> Outbox {
    Outbox::new(bounds, frame_bytes_max)
}

/// Waits as the writer does for the next frames, about `bytes` of them.
pub async fn next_work(outbox: &Outbox, bytes: usize, batch: &mut VecDeque<Frame>) -> Work {
    poll_fn(|context| outbox.poll_work(context, bytes, batch)).await
}

/// Waits as a writer does whose socket takes nothing, until it should stop waiting.
pub async fn stopped(outbox: &Outbox) -> Closed {
    poll_fn(|context| outbox.poll_stop(context)).await
}

/// Waits as the reader does for the end of the session.
pub async fn ended(outbox: &Outbox) -> Closed {
    poll_fn(|context| outbox.watch(context).0.map_or(Poll::Pending, Poll::Ready)).await
}

/// Ends the session as the half does that is at its end first.
pub fn end(outbox: &Outbox, how: &Closed) {
    outbox.end(how);
}
