//! A count that one side adds to and the other takes.

use crate::sync::{AtomicU64, Ordering};

/// Adds up amounts until somebody takes the sum; what is added meanwhile is in this sum or in the next, never in both.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Nothing added yet.
    pub fn new() -> Self {
        Tally(AtomicU64::new(0))
    }

    /// Adds an amount. Sums between two takes stay below 2^64: bytes and messages of seconds, not of years.
    #[inline]
    pub fn add(&self, amount: u64) {
        // Only the sum itself is shared, so nothing else has to be ordered by it.
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum since the last take. Reading and clearing is one step: an addition in between two would be lost.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// The sum since the last take, which goes on.
    pub fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
