//! Calls that wait for a connection, in lines of what can share a request; whichever connection is free takes a line.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ron_types::limits::mailbox::BATCH_MAX;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::batch::{Batch, Item, Line};

/// A request grows no longer than this by adding items; one item may be longer.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Calls that wait for a free connection.
#[derive(Default)]
pub struct Gather {
    pending: Mutex<Pending>,
    /// Wakes one idle connection.
    work: Notify,
}

#[derive(Default)]
struct Pending {
    lines: HashMap<Line, VecDeque<Numbered>>,
    /// Lines with something in them, the next one first.
    order: VecDeque<Line>,
    /// Connections with nothing to do that have not been called.
    idle: usize,
    /// One was called and has not come yet. It takes what has come by then, so that nobody else need be called.
    is_called: bool,
    /// Number of the next call.
    next: u64,
}

/// A call by its number, which rises within each line.
struct Numbered(u64, Item);

impl Gather {
    /// Adds a call to those that wait; its number is for [`Gather::withdraw`].
    pub fn push(&self, line: &Line, item: Item) -> u64 {
        let (number, calls) = {
            let mut pending = self.lock();
            (pending.push(line, item), pending.calls())
        };
        if calls {
            self.work.notify_one();
        }
        number
    }

    /// Takes a call back; false if it has left, so that it may be done.
    pub fn withdraw(&self, line: &Line, number: u64) -> bool {
        self.lock().withdraw(line, number)
    }

    /// The next batch to send. Waits until there is one.
    pub async fn next(&self) -> Batch {
        let mut was_called = false;
        loop {
            // Those who were just set free come first: what they bring travels along.
            tokio::task::yield_now().await;
            let (batch, calls) = {
                let mut pending = self.lock();
                pending.is_called &= !was_called;
                let batch = pending.take(now());
                pending.idle += usize::from(batch.is_none());
                (batch, pending.calls())
            };
            if calls {
                self.work.notify_one();
            }
            if let Some(batch) = batch {
                return batch;
            }
            self.work.notified().await;
            was_called = true;
        }
    }

    /// Calls that wait for a batch.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.lock().lines.values().map(VecDeque::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Whether an idle connection has to be woken.
    fn calls(&mut self) -> bool {
        let calls = !self.order.is_empty() && self.idle > 0 && !self.is_called;
        if calls {
            self.idle -= 1;
            self.is_called = true;
        }
        calls
    }

    fn push(&mut self, line: &Line, item: Item) -> u64 {
        let number = self.next;
        self.next += 1;
        let item = Numbered(number, item);
        match self.lines.get_mut(line) {
            Some(items) => items.push_back(item),
            None => {
                self.order.push_back(line.clone());
                self.lines.insert(line.clone(), VecDeque::from([item]));
            }
        }
        number
    }

    fn withdraw(&mut self, line: &Line, number: u64) -> bool {
        let Some(items) = self.lines.get_mut(line) else { return false };
        let place = items.binary_search_by_key(&number, |Numbered(number, _)| *number);
        place.is_ok_and(|place| items.remove(place).is_some())
    }

    /// The first line's items, as many as a request holds; those who have gone or have no time left are left out.
    fn take(&mut self, now: Instant) -> Option<Batch> {
        while let Some(line) = self.order.pop_front() {
            let mut waiting = self.lines.remove(&line).unwrap_or_default();
            let (mut items, mut bytes) = (Vec::with_capacity(waiting.len().min(BATCH_MAX)), 0);
            while items.len() < BATCH_MAX && waiting.front().is_some_and(|next| fits(bytes, &next.1)) {
                let Some(Numbered(_, item)) = waiting.pop_front() else { break };
                if item.is_wanted(now) {
                    bytes += item.text.len();
                    items.push(item);
                }
            }
            if !waiting.is_empty() {
                self.lines.insert(line.clone(), waiting);
                self.order.push_back(line.clone());
            }
            if !items.is_empty() {
                return Some(Batch { line, items });
            }
        }
        None
    }
}

fn fits(bytes: usize, item: &Item) -> bool {
    bytes == 0 || bytes + item.text.len() <= REQUEST_BYTES_MAX
}

#[expect(clippy::disallowed_methods, reason = "whoever uses a client has no kernel clock; this one can be paused, too")]
pub fn now() -> Instant {
    Instant::now()
}

/// The end of a time that begins now; of one without a sensible end, a year from now.
pub fn after(time: Duration) -> Instant {
    now() + time.min(Duration::from_secs(365 * 24 * 3600))
}

#[cfg(test)]
mod tests;
