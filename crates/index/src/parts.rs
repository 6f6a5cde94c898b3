//! Records that a target hands on before the end of its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ron_store::Record;

/// What has come of an answer that is still coming. Whoever reads the answer hands records on, and the lookup takes
/// them. Bounded by the bytes that are read of an answer.
#[derive(Clone, Default)]
pub struct Parts(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    records: Vec<Record>,
    /// Wakes the lookup, which waits for more.
    waiting: Option<Waker>,
}

impl Parts {
    /// Hands records on.
    pub fn hand_on(&self, records: Vec<Record>) {
        let waiting = {
            let mut state = self.lock();
            state.records.extend(records);
            if state.records.is_empty() { None } else { state.waiting.take() }
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Takes what was handed on since the last time.
    pub fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Vec<Record>> {
        let mut state = self.lock();
        if state.records.is_empty() {
            state.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut state.records))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
