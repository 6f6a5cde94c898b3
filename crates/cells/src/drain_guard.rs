//! Admission that can be closed: counts who is inside, lets nobody in once closed, and knows when the last has left.

use crate::sync::{Arc, AtomicUsize, Ordering};

/// The closed mark and the count live in one word, so that "closed" and "one more" cannot cross each other.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A counted entrance. Clones are the same entrance.
#[derive(Clone, Debug)]
pub struct DrainGuard(Arc<AtomicUsize>);

/// Proof of having been let in; leaving is dropping it.
#[derive(Debug)]
pub struct Pass(Arc<AtomicUsize>);

impl Default for DrainGuard {
    fn default() -> Self {
        DrainGuard(Arc::new(AtomicUsize::new(0)))
    }
}

impl DrainGuard {
    /// Admits one more caller, unless closed.
    pub fn enter(&self) -> Option<Pass> {
        // Adding first and looking after keeps the open path to one instruction; the closed path takes it back.
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let pass = Pass(Arc::clone(&self.0));
        (before & CLOSED == 0).then_some(pass)
    }

    /// Lets nobody in from here on.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Opens again, for a service that is restarted.
    pub fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Whether no more callers are admitted.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Number of callers inside.
    pub fn inside(&self) -> usize {
        self.0.load(Ordering::Acquire) & !CLOSED
    }

    /// True if closed and empty. A refused entrant may delay this for the instant it needs to turn around.
    pub fn is_drained(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_once_closed_and_the_last_to_leave_drains_it() {
        let entrance = DrainGuard::default();
        let pass = entrance.enter().expect("open");
        entrance.close();
        assert!(entrance.enter().is_none());
        assert_eq!(entrance.inside(), 1);
        assert!(!entrance.is_drained());
        drop(pass);
        assert!(entrance.is_drained());
        entrance.open();
        assert!(entrance.enter().is_some());
    }
}
