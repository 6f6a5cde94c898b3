//! Keys in order of their messages, in chunks: new ones come at the end, and the oldest go first.

use std::collections::{BTreeMap, VecDeque};

use super::Known;
use crate::types::Seq;

/// Keys in one chunk.
const CHUNK: usize = 256;

/// Keys in order.
#[derive(Debug, Default)]
pub(super) struct BySeq {
    /// Each chunk, sorted and not empty, by a number that none of its keys is below and all of the chunk before are.
    chunks: BTreeMap<Seq, VecDeque<Known>>,
}

impl BySeq {
    /// The key of this message.
    pub fn get(&self, seq: Seq) -> Option<&Known> {
        let (_, chunk) = self.chunks.range(..=seq).next_back()?;
        chunk.binary_search_by_key(&seq, |known| known.seq).ok().map(|place| &chunk[place])
    }

    /// The key of the oldest message.
    pub fn first(&self) -> Option<&Known> {
        self.chunks.first_key_value()?.1.front()
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &Known> {
        self.chunks.values().flatten()
    }

    /// Puts in a key whose message has none.
    pub fn insert(&mut self, known: Known) {
        let Some((first, chunk)) = self.chunks.range_mut(..=known.seq).next_back() else {
            return self.insert_before_all(known);
        };
        let place = chunk.partition_point(|other| other.seq < known.seq);
        match (chunk.len() < CHUNK, place == chunk.len()) {
            (true, _) => chunk.insert(place, known),
            // Behind a full chunk a new one begins: numbers rise, so the full one stays full.
            (false, true) => self.begin(known),
            (false, false) => {
                let first = *first;
                self.split(first);
                self.insert(known);
            }
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, seq: Seq) -> Option<Known> {
        let (first, chunk) = self.chunks.range_mut(..=seq).next_back()?;
        let place = chunk.binary_search_by_key(&seq, |known| known.seq).ok()?;
        let known = chunk.remove(place)?;
        if chunk.is_empty() {
            let first = *first;
            self.chunks.remove(&first);
        } else if chunk.capacity() > 16 && chunk.len() < chunk.capacity() / 4 {
            chunk.shrink_to(chunk.len() * 2);
        }
        Some(known)
    }

    fn insert_before_all(&mut self, known: Known) {
        match self.chunks.pop_first() {
            Some((_, mut chunk)) if chunk.len() < CHUNK => {
                chunk.push_front(known);
                self.chunks.insert(known.seq, chunk);
            }
            full => {
                self.chunks.extend(full);
                self.begin(known);
            }
        }
    }

    fn begin(&mut self, known: Known) {
        // The first chunk grows as it fills: a node may have very many partitions with a few keys.
        let mut chunk = VecDeque::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK });
        chunk.push_back(known);
        self.chunks.insert(known.seq, chunk);
    }

    fn split(&mut self, first: Seq) {
        let Some(chunk) = self.chunks.get_mut(&first) else { return };
        let later = chunk.split_off(chunk.len() / 2);
        if let Some(start) = later.front().map(|known| known.seq) {
            self.chunks.insert(start, later);
        }
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let chunks: usize = self.chunks.values().map(|chunk| chunk.capacity() * size_of::<Known>()).sum();
        chunks + self.chunks.len() * 2 * size_of::<(Seq, VecDeque<Known>)>()
    }
}
