//! A bounded sum of shares: the byte bound of a queue.

use crate::sync::{Arc, AtomicUsize, Ordering};

/// A sum that never passes its limit. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub struct Share {
    used: Arc<AtomicUsize>,
    amount: usize,
}

impl Budget {
    /// Nothing used, at most `limit` to be taken.
    pub fn new(limit: usize) -> Self {
        Budget { used: Arc::new(AtomicUsize::new(0)), limit }
    }

    /// Takes `amount` if it fits.
    pub fn try_take(&self, amount: usize) -> Option<Share> {
        let limit = self.limit;
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(amount).filter(|sum| *sum <= limit)
            })
            .ok()?;
        Some(Share { used: Arc::clone(&self.used), amount })
    }

    /// What is taken now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// What can be taken in all.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.amount, Ordering::AcqRel);
    }
}
