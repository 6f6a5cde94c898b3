//! Numbers given out once each.

use crate::sync::{AtomicU64, Ordering};

/// Gives out rising numbers, each to one asker.
#[derive(Debug)]
pub struct Sequence(AtomicU64);

impl Sequence {
    /// The first number given out will be `first`.
    pub fn new(first: u64) -> Self {
        Sequence(AtomicU64::new(first))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        // Only the number itself is shared, so nothing else has to be ordered by it.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes sure that no number up to `seen` is given out.
    pub fn skip_past(&self, seen: u64) {
        self.0.fetch_max(seen.saturating_add(1), Ordering::Relaxed);
    }
}
