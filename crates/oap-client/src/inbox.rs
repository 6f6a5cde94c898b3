//! The events of one subscription, between the reader of the session and whoever takes them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use oap::Frame;

use crate::error::Error;

/// Bytes of events that may wait; beyond, the session is not read until somebody takes some.
const INBOX_BYTES_MAX: usize = 8 << 20;
/// Bytes that a waiting event costs beside its payload.
const EVENT_OVERHEAD_BYTES: usize = size_of::<Frame>();

/// A bounded queue with one that puts and one that takes.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Default)]
struct State {
    events: VecDeque<Frame>,
    bytes: usize,
    ended: Option<Error>,
    /// Nobody takes any more.
    is_abandoned: bool,
    taker: Option<Waker>,
    putter: Option<Waker>,
}

impl Inbox {
    /// Puts events in as soon as there is room.
    pub(crate) async fn put(&self, events: &mut VecDeque<Frame>) {
        std::future::poll_fn(|context| self.poll_put(context, events)).await;
    }

    fn poll_put(&self, context: &Context<'_>, events: &mut VecDeque<Frame>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_abandoned || state.ended.is_some() {
            events.clear();
            return Poll::Ready(());
        }
        if state.bytes >= INBOX_BYTES_MAX {
            state.putter = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.bytes += events.iter().map(|event| event.payload.len() + EVENT_OVERHEAD_BYTES).sum::<usize>();
        match state.events.is_empty() {
            true => std::mem::swap(&mut state.events, events),
            false => state.events.append(events),
        }
        let taker = state.taker.take();
        drop(state);
        taker.into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }

    /// Takes all there is into an empty queue; the end comes after the last event.
    pub(crate) fn poll_take(&self, context: &Context<'_>, into: &mut VecDeque<Frame>) -> Poll<Result<(), Error>> {
        let mut state = self.lock();
        if state.events.is_empty() {
            if let Some(error) = &state.ended {
                return Poll::Ready(Err(error.clone()));
            }
            state.taker = Some(context.waker().clone());
            return Poll::Pending;
        }
        std::mem::swap(&mut state.events, into);
        state.bytes = 0;
        let putter = state.putter.take();
        drop(state);
        putter.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    /// No more events come.
    pub(crate) fn end(&self, error: Error) {
        let mut state = self.lock();
        state.ended.get_or_insert(error);
        let wakers = [state.taker.take(), state.putter.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Nobody takes events any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.events = VecDeque::new();
        let putter = state.putter.take();
        drop(state);
        putter.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
