//! A value read often and replaced whole: one Arc swap, one version, one notice.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

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
pub struct Snapshot<T> {
    current: Arc<ArcSwap<Versioned<T>>>,
    changed: watch::Sender<u64>,
    /// Brings what was derived from this value up to date.
    followers: Arc<Mutex<Vec<Follower<T>>>>,
}

type Follower<T> = Box<dyn Fn(&T) + Send + Sync>;

impl<T> Snapshot<T> {
    /// A snapshot holding version 1.
    pub fn new(value: T) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(Versioned { version: 1, value }));
        Snapshot { current, changed: watch::Sender::new(1), followers: Arc::default() }
    }

    /// A part of this value that follows it: computed anew with each publication, published only when it differs.
    pub fn derive<U>(&self, part: impl Fn(&T) -> U + Send + Sync + 'static) -> Snapshot<U>
    where
        U: PartialEq + Send + Sync + 'static,
    {
        // The lock is held from the look to the entry, so that no publication falls between them.
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let derived = Snapshot::new(part(&self.get().value));
        let follower = derived.clone();
        followers.push(Box::new(move |value| {
            let now = part(value);
            if follower.get().value != now {
                follower.publish(now);
            }
        }));
        derived
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
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        // The parts first: a reader of the new whole never meets an old part.
        followers.iter().for_each(|follow| follow(&value));
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
        Snapshot {
            current: Arc::clone(&self.current),
            changed: self.changed.clone(),
            followers: Arc::clone(&self.followers),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.get()).finish()
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

    #[test]
    fn a_derived_part_follows_and_is_published_only_when_it_differs() {
        let whole = Snapshot::new((1, "a"));
        let part = whole.derive(|(number, _)| *number);
        let of_part = part.derive(|number| number * 10);
        whole.publish((1, "b"));
        assert_eq!((part.get().version, part.get().value), (1, 1), "nothing changed for it");
        whole.clone().publish((2, "b"));
        assert_eq!((part.get().version, part.get().value, of_part.get().value), (2, 2, 20));
    }
}
