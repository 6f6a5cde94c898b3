//! The hot window: bodies of the newest messages, so that a consumer that keeps up never waits for a read.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::words::Seq;

/// What a body takes beside its bytes.
const OVERHEAD: usize = 64;
/// Places of bodies that left which are not worth tidying.
const STALE_MIN: usize = 1024;

/// Bodies in memory, the oldest leaving first when they are too many bytes.
pub(super) struct Hot {
    bodies: HashMap<Seq, Bytes>,
    order: VecDeque<Seq>,
    bytes: usize,
    bytes_max: usize,
}

impl Hot {
    pub fn new(bytes_max: usize) -> Self {
        Hot { bodies: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Keeps a body.
    pub fn put(&mut self, seq: Seq, body: Bytes) {
        let cost = body.len() + OVERHEAD;
        if cost > self.bytes_max {
            return;
        }
        self.bytes += cost;
        match self.bodies.insert(seq, body) {
            Some(old) => self.bytes -= old.len() + OVERHEAD,
            None => self.order.push_back(seq),
        }
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_body(oldest);
        }
        if self.order.len() > STALE_MIN + 2 * self.bodies.len() {
            self.order.retain(|seq| self.bodies.contains_key(seq));
        }
    }

    /// The body, if it is here; it stays.
    pub fn get(&self, seq: Seq) -> Option<&Bytes> {
        self.bodies.get(&seq)
    }

    /// Takes the body away, if it is here.
    pub fn take(&mut self, seq: Seq) -> Option<Bytes> {
        self.drop_body(seq)
    }

    /// Keeps only the bodies asked for.
    pub fn retain(&mut self, keep: impl Fn(Seq) -> bool) {
        self.bodies.retain(|seq, _| keep(*seq));
        self.order.retain(|seq| self.bodies.contains_key(seq));
        self.bytes = self.bodies.values().map(|body| body.len() + OVERHEAD).sum();
    }

    fn drop_body(&mut self, seq: Seq) -> Option<Bytes> {
        let body = self.bodies.remove(&seq)?;
        self.bytes -= body.len() + OVERHEAD;
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(len: usize) -> Bytes {
        vec![7; len].into()
    }

    #[test]
    fn the_oldest_leave_when_there_is_no_room() {
        let mut hot = Hot::new(3 * (100 + OVERHEAD));
        for seq in 0..5 {
            hot.put(seq, body(100));
        }
        hot.put(9, body(100_000));
        assert_eq!((0..10).filter(|seq| hot.get(*seq).is_some()).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(hot.take(3).is_some() && hot.take(3).is_none());
        hot.put(6, body(100));
        assert!(hot.get(2).is_some());
        hot.put(2, body(50));
        assert_eq!(hot.bytes, 100 + 100 + 50 + 3 * OVERHEAD);
    }

    #[test]
    fn bodies_that_left_leave_no_trace() {
        let mut hot = Hot::new(1 << 20);
        for seq in 0..100_000 {
            hot.put(seq, body(10));
            hot.take(seq);
        }
        assert!(hot.order.len() <= 2 * STALE_MIN && hot.bytes == 0);
    }
}
