//! A value read often and replaced whole: one Arc swap, one version, one notice.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

/// A value with the version it was published under.
#[derive(Debug)]
pub struct Versioned<T> {
    /// Grows by one with each publication.
    pub version: u64,
    /// The configuration or other value of this version.
    pub value: T,
}

/// A shared, replaceable value. Clones share it.
#[derive(Debug)]
pub struct Snapshot<T> {
    current: Arc<ArcSwap<Versioned<T>>>,
    changed: watch::Sender<u64>,
}

impl<T> Snapshot<T> {
    /// A snapshot holding version 1.
    pub fn new(value: T) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(Versioned { version: 1, value }));
        Snapshot { current, changed: watch::Sender::new(1) }
    }

    /// The current value, for a look: threads that look at once do not write to the same memory.
    pub fn get(&self) -> Guard<Arc<Versioned<T>>> {
        self.current.load()
    }

    /// The current value, to be kept.
    pub fn keep(&self) -> Arc<Versioned<T>> {
        self.current.load_full()
    }

    /// Replaces the value and returns its version. One writer at a time: the owner of the value.
    pub fn publish(&self, value: T) -> u64 {
        let mut version = 0;
        // The watch lock makes swap and notice one step, so versions are seen in order.
        self.changed.send_modify(|current| {
            version = *current + 1;
            self.current.store(Arc::new(Versioned { version, value }));
            *current = version;
        });
        version
    }

    /// Resolves when a newer version than the last one seen by this watcher is there.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Snapshot { current: Arc::clone(&self.current), changed: self.changed.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watcher_sees_the_value_of_the_version_it_was_told() {
        let snapshot = Snapshot::new("a");
        let mut watcher = snapshot.watch();
        assert_eq!(snapshot.publish("b"), 2);
        watcher.changed().await.expect("the snapshot lives");
        assert_eq!(*watcher.borrow_and_update(), 2);
        assert_eq!((snapshot.get().version, snapshot.get().value), (2, "b"));
    }
}
