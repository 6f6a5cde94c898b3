//! A number that only grows: drain phase, configuration version, high-water mark, last turn of a loop.

use crate::sync::{AtomicU64, Ordering};

/// A shared number that only grows. A reader that has seen a value sees everything written before it was raised.
#[derive(Debug)]
pub struct Monotone(AtomicU64);

impl Monotone {
    /// Starts at `value`.
    pub fn new(value: u64) -> Self {
        Monotone(AtomicU64::new(value))
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the value to at least `to`; true if this call raised it.
    #[inline]
    pub fn raise(&self, to: u64) -> bool {
        // Most calls change nothing: a load spares the cache line the write of fetch_max.
        self.get() < to && self.0.fetch_max(to, Ordering::AcqRel) < to
    }

    /// Raises the value by one and returns the new value, which no other call gets.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}
