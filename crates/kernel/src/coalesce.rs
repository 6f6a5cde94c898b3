//! A bounded queue in which a newer item is absorbed by a waiting one of the same key.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use ron_types::Error;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::queue::QueueProbe;
use crate::spec::QueueSpec;

/// An item that can absorb a newer one of the same key.
pub trait Coalesce: Send + 'static {
    /// Items with equal keys become one.
    type Key: PartialEq;
    /// Key under which a newer item replaces an older one.
    fn key(&self) -> Self::Key;
    /// Takes in the newer item; the newer value wins.
    fn absorb(&mut self, newer: Self);
}

/// Both halves: clones share the queue, and any clone may send or receive.
pub struct Coalescing<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: &'static str,
    capacity: usize,
    waiting: Mutex<VecDeque<T>>,
    arrived: Notify,
    absorbed: Counter,
    busy: Counter,
}

pub(crate) fn coalescing<T: Coalesce>(
    spec: &'static QueueSpec,
    capacity: usize,
    metrics: &Metrics,
    absorbed: Counter,
) -> (Coalescing<T>, QueueProbe) {
    let shared = Arc::new(Shared {
        name: spec.name,
        capacity,
        waiting: Mutex::new(VecDeque::with_capacity(capacity)),
        arrived: Notify::new(),
        absorbed,
        busy: metrics.busy_rejections.at(spec.name),
    });
    let probed = Arc::clone(&shared);
    let probe = QueueProbe::of(spec, capacity, metrics, move || probed.waiting().len());
    (Coalescing { shared }, probe)
}

impl<T: Coalesce> Coalescing<T> {
    /// Puts the item in, or lets the waiting one of its key absorb it; Busy if neither is possible.
    pub fn offer(&self, item: T) -> Result<(), Error> {
        {
            let mut waiting = self.shared.waiting();
            let key = item.key();
            if let Some(older) = waiting.iter_mut().find(|older| older.key() == key) {
                older.absorb(item);
                self.shared.absorbed.inc();
                return Ok(());
            }
            if waiting.len() >= self.shared.capacity {
                self.shared.busy.inc();
                return Err(Error::busy(format_args!("queue {}", self.shared.name)));
            }
            waiting.push_back(item);
        }
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Waits for the oldest item. Cancel-safe.
    pub async fn recv(&self) -> T {
        loop {
            // One notification may stand for several items, so look before waiting.
            if let Some(item) = self.try_recv() {
                return item;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// An item that is already waiting.
    pub fn try_recv(&self) -> Option<T> {
        self.shared.waiting().pop_front()
    }
}

impl<T> Shared<T> {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Coalescing<T> {
    fn clone(&self) -> Self {
        Coalescing { shared: Arc::clone(&self.shared) }
    }
}
