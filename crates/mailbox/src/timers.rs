//! Times at which something is due, in order; every change is exact, so nothing stale is ever kept.

use std::collections::BTreeSet;

use crate::types::Millis;

/// Things with the times they are due.
#[derive(Debug)]
pub(crate) struct Deadlines<T> {
    set: BTreeSet<(Millis, T)>,
}

impl<T: Copy + Ord> Deadlines<T> {
    /// Nothing is due.
    pub fn new() -> Self {
        Deadlines { set: BTreeSet::new() }
    }

    /// It is due then.
    pub fn set(&mut self, at: Millis, what: T) {
        self.set.insert((at, what));
    }

    /// It is not due then any more.
    pub fn clear(&mut self, at: Millis, what: T) {
        if !self.set.is_empty() {
            self.set.remove(&(at, what));
        }
    }

    /// Everything is due by so many milliseconds later, or earlier.
    pub fn shift(&mut self, by_ms: i64) {
        // In order as before, so that the tree is built and not filled.
        let all = std::mem::take(&mut self.set).into_iter();
        self.set = all.map(|(at, what)| (at.saturating_add_signed(by_ms), what)).collect();
    }

    /// Nothing is due at any time.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// When the first is due.
    pub fn first(&self) -> Option<Millis> {
        self.set.first().map(|(at, _)| *at)
    }

    /// What is due by now, the earliest first; it stays until cleared.
    pub fn due(&self, now: Millis) -> impl Iterator<Item = (Millis, T)> + '_ {
        self.set.iter().copied().take_while(move |(at, _)| *at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_and_stays_until_cleared() {
        let mut deadlines = Deadlines::new();
        for (at, what) in [(30, 'c'), (10, 'a'), (20, 'b'), (20, 'a')] {
            deadlines.set(at, what);
        }
        assert_eq!(deadlines.first(), Some(10));
        assert_eq!(deadlines.due(20).collect::<Vec<_>>(), [(10, 'a'), (20, 'a'), (20, 'b')]);
        deadlines.clear(10, 'a');
        deadlines.clear(99, 'z');
        assert_eq!(deadlines.due(20).map(|(_, what)| what).collect::<String>(), "ab");
        assert_eq!(deadlines.due(9).count(), 0);
    }
}
