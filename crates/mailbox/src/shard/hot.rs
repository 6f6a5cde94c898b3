//! The hot window: bodies of the newest messages, so that a consumer that keeps up never waits for a read.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::types::Seq;

/// What a body takes beside its bytes.
const OVERHEAD: usize = 64;
/// Places of bodies that left which are not worth tidying.
const STALE_MIN: usize = 1024;

/// Bodies in memory, the oldest leaving first when they are too many bytes.
///
/// Messages come in the order of their numbers and mostly leave in it, so both ends of a deque do nearly all the work.
pub(super) struct Hot {
    /// In the order of their numbers; none where a body has left.
    bodies: VecDeque<(Seq, Option<Bytes>)>,
    /// Bodies that are here.
    count: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Hot {
    pub fn new(bytes_max: usize) -> Self {
        Hot { bodies: VecDeque::new(), count: 0, bytes: 0, bytes_max }
    }

    /// Keeps a body, if it is of a newer message than all others or replaces one that is here.
    pub fn put(&mut self, seq: Seq, body: Bytes) {
        let cost = body.len() + OVERHEAD;
        if cost > self.bytes_max {
            self.take(seq);
            return;
        }
        match self.place_of(seq) {
            Ok(place) => {
                let old = self.bodies[place].1.replace(body);
                self.forget(old.as_ref());
            }
            Err(place) if place == self.bodies.len() => self.bodies.push_back((seq, Some(body))),
            Err(_) => return,
        }
        self.bytes += cost;
        self.count += 1;
        while self.bytes > self.bytes_max
            && let Some((_, oldest)) = self.bodies.pop_front()
        {
            self.forget(oldest.as_ref());
        }
        if self.bodies.len() > STALE_MIN + 2 * self.count {
            self.bodies.retain(|(_, body)| body.is_some());
        }
    }

    /// The body, if it is here; it stays.
    pub fn get(&self, seq: Seq) -> Option<&Bytes> {
        self.bodies[self.place_of(seq).ok()?].1.as_ref()
    }

    /// Takes the body away, if it is here.
    pub fn take(&mut self, seq: Seq) -> Option<Bytes> {
        let place = self.place_of(seq).ok()?;
        let body = self.bodies[place].1.take();
        self.forget(body.as_ref());
        while self.bodies.front().is_some_and(|(_, body)| body.is_none()) {
            self.bodies.pop_front();
        }
        body
    }

    /// A number that none of the bodies is below.
    pub fn first(&self) -> Option<Seq> {
        self.bodies.front().map(|(seq, _)| *seq)
    }

    /// Where a message is, or would be: nearly always at one of the ends.
    fn place_of(&self, seq: Seq) -> Result<usize, usize> {
        match (self.bodies.front(), self.bodies.back()) {
            (Some((first, _)), _) if *first == seq => Ok(0),
            (_, Some((last, _))) if *last < seq => Err(self.bodies.len()),
            _ => self.bodies.binary_search_by_key(&seq, |(seq, _)| *seq),
        }
    }

    fn forget(&mut self, body: Option<&Bytes>) {
        if let Some(body) = body {
            self.bytes -= body.len() + OVERHEAD;
            self.count -= 1;
        }
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
        assert_eq!((hot.bytes, hot.count), (100 + 100 + 50 + 3 * OVERHEAD, 3));
        hot.put(4, body(100_000));
        assert!(hot.get(4).is_none(), "what it was is not what it is");
        hot.put(5, body(10));
        assert!(hot.get(5).is_none(), "an old message that was not here is read from the log");
        assert!(hot.first() == Some(2) && hot.take(2).is_some());
        assert_eq!((hot.bytes, hot.count), (100 + OVERHEAD, 1));
        assert_eq!((hot.get(2), hot.get(6)), (None, Some(&body(100))));
    }

    #[test]
    fn bodies_that_left_leave_no_trace() {
        let mut hot = Hot::new(1 << 20);
        for seq in 0..100_000 {
            hot.put(seq, body(10));
            hot.take(seq);
        }
        assert!(hot.bodies.is_empty() && hot.bytes == 0);
        hot.put(100_000, body(10));
        for seq in 100_001..200_000 {
            hot.put(seq, body(10));
            hot.take(seq);
        }
        assert!(hot.bodies.len() <= 2 * STALE_MIN && hot.count == 1, "one that stays keeps few places behind it");
    }
}
