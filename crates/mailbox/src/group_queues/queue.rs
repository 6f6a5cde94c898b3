//! Numbers in rising order, put in at the end and taken from the start, without ever copying a long queue to grow it.

use std::collections::VecDeque;

use crate::types::Seq;

const BLOCK: usize = 512;

/// A queue of rising numbers.
#[derive(Debug, Default)]
pub(super) struct SeqQueue {
    /// The first block.
    head: VecDeque<Seq>,
    /// Full blocks behind it, and one being filled; none for a short queue, because there may be very many of those.
    #[expect(clippy::box_collection, reason = "24 bytes less in every line of a backlog with very many groups")]
    tail: Option<Box<VecDeque<VecDeque<Seq>>>>,
    len: usize,
}

impl SeqQueue {
    /// Numbers in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first number.
    pub fn first(&self) -> Option<Seq> {
        self.head.front().copied()
    }

    /// The last number.
    pub fn last(&self) -> Option<Seq> {
        let newest = self.tail.as_ref().and_then(|tail| tail.back());
        newest.unwrap_or(&self.head).back().copied()
    }

    /// Adds a number, which must be larger than all in it.
    pub fn push(&mut self, seq: Seq) {
        self.len += 1;
        if self.tail.is_none() && self.head.len() < BLOCK {
            self.head.push_back(seq);
            return;
        }
        let tail = self.tail.get_or_insert_default();
        if tail.back().is_none_or(|block| block.len() == BLOCK) {
            tail.push_back(VecDeque::with_capacity(BLOCK));
        }
        tail.back_mut().expect("a block was just added").push_back(seq);
    }

    /// Takes the first number.
    pub fn pop(&mut self) -> Option<Seq> {
        let seq = self.head.pop_front()?;
        self.len -= 1;
        if self.head.is_empty()
            && let Some(tail) = &mut self.tail
        {
            self.head = tail.pop_front().unwrap_or_default();
            if tail.is_empty() {
                self.tail = None;
            }
        }
        Some(seq)
    }

    /// Numbers smaller than this one.
    pub fn before(&self, seq: Seq) -> usize {
        self.blocks().map(|block| block.partition_point(|other| *other < seq)).sum()
    }

    /// Keeps only the numbers asked for.
    pub fn retain(&mut self, keep: impl Fn(Seq) -> bool) {
        let old = std::mem::take(self);
        for seq in old.blocks().flatten().copied().filter(|seq| keep(*seq)) {
            self.push(seq);
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &VecDeque<Seq>> {
        std::iter::once(&self.head).chain(self.tail.iter().flat_map(|tail| tail.iter()))
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let blocks: usize = self.blocks().map(|block| block.capacity() * size_of::<Seq>()).sum();
        blocks + self.tail.as_ref().map_or(0, |tail| tail.capacity() * size_of::<VecDeque<Seq>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_in_the_order_they_came() {
        let mut queue = SeqQueue::default();
        for round in 0..3u64 {
            for seq in 0..2000 {
                queue.push(round * 10_000 + seq);
            }
            assert_eq!(
                (queue.len(), queue.first(), queue.last()),
                (2000, Some(round * 10_000), Some(round * 10_000 + 1999))
            );
            assert_eq!((queue.before(round * 10_000 + 1500), queue.before(u64::MAX)), (1500, 2000));
            for seq in 0..2000 {
                assert_eq!(queue.pop(), Some(round * 10_000 + seq));
            }
            assert_eq!((queue.pop(), queue.last(), queue.len()), (None, None, 0));
        }
    }

    #[test]
    fn what_is_not_kept_is_gone() {
        let mut queue = SeqQueue::default();
        (0..3000).for_each(|seq| queue.push(seq));
        queue.retain(|seq| seq % 1000 == 1);
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1, 1001, 2001]);
    }
}
