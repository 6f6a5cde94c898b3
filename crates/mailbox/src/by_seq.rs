//! What is known of messages, in order of their numbers and in chunks: new ones come at the end, and mostly the oldest
//! go first. It takes half of what a hash table would, and neighbours lie together.
//!
//! Which chunk has the one that ends first is known apart: keys that were given a long time do not keep others from
//! ending that came after them. What does not end by itself ends at the end of all times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::types::{Millis, Seq};

/// Entries in one chunk.
const CHUNK: usize = 256;
/// Looking through a chunk in vain costs as much as forgetting so many entries.
const LOOK_COST: usize = 8;

/// Something that belongs to a message.
pub(crate) trait Numbered {
    /// Number of the message.
    fn seq(&self) -> Seq;
}

impl<V> Numbered for (Seq, V) {
    fn seq(&self) -> Seq {
        self.0
    }
}

/// Entries in order, one for a message.
#[derive(Debug)]
pub(crate) struct BySeq<T> {
    /// Each chunk, sorted and not empty, by a number that none of its entries is below and all of the chunk before are.
    chunks: BTreeMap<Seq, Chunk<T>>,
    /// Each chunk once more, by the time before which none of its entries ends.
    by_end: BTreeSet<(Millis, Seq)>,
}

#[derive(Debug)]
struct Chunk<T> {
    entries: VecDeque<T>,
    /// None of its entries ends before then.
    ends_ms: Millis,
}

impl<T> Default for BySeq<T> {
    fn default() -> Self {
        BySeq { chunks: BTreeMap::new(), by_end: BTreeSet::new() }
    }
}

impl<V> BySeq<(Seq, V)> {
    /// What is known of this message.
    pub fn value(&self, seq: Seq) -> Option<&V> {
        self.get(seq).map(|(_, value)| value)
    }

    /// The same, to be changed without changing when it ends.
    pub fn value_mut(&mut self, seq: Seq) -> Option<&mut V> {
        let (_, chunk) = self.chunks.range_mut(..=seq).next_back()?;
        let place = chunk.place_of(seq)?;
        chunk.entries.get_mut(place).map(|(_, value)| value)
    }
}

impl<T: Numbered> BySeq<T> {
    /// Entries of all chunks.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// The entry of this message.
    pub fn get(&self, seq: Seq) -> Option<&T> {
        let (_, chunk) = self.chunks.range(..=seq).next_back()?;
        chunk.place_of(seq).map(|place| &chunk.entries[place])
    }

    /// A time before which no entry ends.
    pub fn first_end(&self) -> Option<Millis> {
        self.by_end.first().map(|(ends_ms, _)| *ends_ms).filter(|ends_ms| *ends_ms < Millis::MAX)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.values().flat_map(|chunk| &chunk.entries)
    }

    /// Puts in an entry whose message has none, and which ends then.
    pub fn insert(&mut self, entry: T, end_ms: Millis) {
        let Some((first, chunk)) = self.chunks.range_mut(..=entry.seq()).next_back() else {
            return self.insert_before_all(entry, end_ms);
        };
        let first = *first;
        let is_last = chunk.entries.back().is_some_and(|last| last.seq() < entry.seq());
        let place = match is_last {
            true => chunk.entries.len(),
            false => chunk.entries.partition_point(|other| other.seq() < entry.seq()),
        };
        match (chunk.entries.len() < CHUNK, place == chunk.entries.len()) {
            (true, _) => {
                chunk.entries.insert(place, entry);
                if end_ms < chunk.ends_ms {
                    let old = std::mem::replace(&mut chunk.ends_ms, end_ms);
                    self.by_end.remove(&(old, first));
                    self.by_end.insert((end_ms, first));
                }
            }
            // Behind a full chunk a new one begins: numbers rise, so the full one stays full.
            (false, true) => self.begin(entry, end_ms),
            (false, false) => {
                self.split(first);
                self.insert(entry, end_ms);
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, seq: Seq) -> Option<T> {
        let (first, chunk) = self.chunks.range_mut(..=seq).next_back()?;
        let place = chunk.place_of(seq)?;
        let (first, entry) = (*first, chunk.entries.remove(place)?);
        self.tidy(first);
        Some(entry)
    }

    /// Takes out entries that have ended, in order of their chunks' ends; does work for `max` of them, and says how
    /// much.
    pub fn take_ended(
        &mut self,
        now: Millis,
        max: usize,
        end_of: impl Fn(&T) -> Millis,
        mut gone: impl FnMut(&T),
    ) -> usize {
        let mut work = 0;
        while work < max
            && let Some((ends_ms, first)) = self.first_ended(now)
        {
            let Some(chunk) = self.chunks.get_mut(&first) else { break };
            let before = work;
            while work < max
                && let Some(entry) = chunk.entries.pop_front_if(|entry| end_of(entry) <= now)
            {
                gone(&entry);
                work += 1;
            }
            if work == max {
                // Whether there are more is for the next time to find out.
                self.tidy(first);
                break;
            }
            // Seldom more: entries that began behind one that lasts longer.
            let mut next_ms = Millis::MAX;
            chunk.entries.retain(|entry| {
                let end_ms = end_of(entry);
                let stays = end_ms > now || work >= max;
                if stays {
                    next_ms = next_ms.min(end_ms);
                } else {
                    gone(entry);
                    work += 1;
                }
                stays
            });
            if work == before {
                work += LOOK_COST;
            }
            self.set_end((ends_ms, first), next_ms);
            self.tidy(first);
        }
        work
    }

    /// Shows entries that have ended, in order of their chunks' ends, without taking them out: those are not looked for
    /// again. Does work for about `max` entries, whole chunks always, and says how much.
    pub fn show_ended(
        &mut self,
        now: Millis,
        max: usize,
        end_of: impl Fn(&T) -> Millis,
        mut show: impl FnMut(&T),
    ) -> usize {
        let mut work = 0;
        while work < max
            && let Some((ends_ms, first)) = self.first_ended(now)
        {
            let Some(chunk) = self.chunks.get(&first) else { break };
            let mut next_ms = Millis::MAX;
            for entry in &chunk.entries {
                match end_of(entry) {
                    end_ms if end_ms > now => next_ms = next_ms.min(end_ms),
                    _ => {
                        show(entry);
                        work += 1;
                    }
                }
            }
            work += LOOK_COST;
            self.set_end((ends_ms, first), next_ms);
        }
        work
    }

    /// An entry that ends then was shown, and will not be for as long as its chunk is not looked at for another.
    pub fn was_shown(&self, seq: Seq, end_ms: Millis) -> bool {
        self.chunks.range(..=seq).next_back().is_some_and(|(_, chunk)| end_ms < chunk.ends_ms)
    }

    /// Changes every entry; their messages stay.
    pub fn for_each_mut(&mut self, change: impl FnMut(&mut T)) {
        self.chunks.values_mut().flat_map(|chunk| &mut chunk.entries).for_each(change);
    }

    /// Entries may end at any time, by other rules than before.
    pub fn forget_ends(&mut self) {
        self.by_end = self.chunks.keys().map(|first| (0, *first)).collect();
        self.chunks.values_mut().for_each(|chunk| chunk.ends_ms = 0);
    }

    /// The chunk of which something may have ended, and since when.
    fn first_ended(&self, now: Millis) -> Option<(Millis, Seq)> {
        self.by_end.first().copied().filter(|(ends_ms, _)| *ends_ms <= now)
    }

    /// Nothing of a chunk ends before then.
    fn set_end(&mut self, (before_ms, first): (Millis, Seq), ends_ms: Millis) {
        if let Some(chunk) = self.chunks.get_mut(&first) {
            chunk.ends_ms = ends_ms;
            self.by_end.remove(&(before_ms, first));
            self.by_end.insert((ends_ms, first));
        }
    }

    /// Gives back the room of what is gone from a chunk.
    fn tidy(&mut self, first: Seq) {
        let Some(chunk) = self.chunks.get_mut(&first) else { return };
        let entries = &mut chunk.entries;
        if entries.is_empty() {
            self.by_end.remove(&(chunk.ends_ms, first));
            self.chunks.remove(&first);
        } else if entries.capacity() > 16 && entries.len() < entries.capacity() / 4 {
            entries.shrink_to(entries.len() * 2);
        }
    }

    fn insert_before_all(&mut self, entry: T, end_ms: Millis) {
        match self.chunks.pop_first() {
            Some((first, mut chunk)) if chunk.entries.len() < CHUNK => {
                self.by_end.remove(&(chunk.ends_ms, first));
                let first = entry.seq();
                chunk.entries.push_front(entry);
                chunk.ends_ms = chunk.ends_ms.min(end_ms);
                self.put(first, chunk);
            }
            full => {
                self.chunks.extend(full);
                self.begin(entry, end_ms);
            }
        }
    }

    fn begin(&mut self, entry: T, end_ms: Millis) {
        // The first chunk grows as it fills: a node may have very many partitions with a few entries.
        let mut entries = VecDeque::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK });
        let first = entry.seq();
        entries.push_back(entry);
        self.put(first, Chunk { entries, ends_ms: end_ms });
    }

    fn split(&mut self, first: Seq) {
        let Some(chunk) = self.chunks.get_mut(&first) else { return };
        let (ends_ms, entries) = (chunk.ends_ms, chunk.entries.split_off(chunk.entries.len() / 2));
        if let Some(start) = entries.front().map(T::seq) {
            self.put(start, Chunk { entries, ends_ms });
        }
    }

    fn put(&mut self, first: Seq, chunk: Chunk<T>) {
        self.by_end.insert((chunk.ends_ms, first));
        self.chunks.insert(first, chunk);
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let chunks: usize = self.chunks.values().map(|chunk| chunk.entries.capacity() * size_of::<T>()).sum();
        chunks + self.chunks.len() * 2 * size_of::<(Seq, Chunk<T>, Millis, Seq)>()
    }
}

impl<T: Numbered> Chunk<T> {
    fn place_of(&self, seq: Seq) -> Option<usize> {
        // Numbers mostly follow each other without gaps, and then the place is known.
        let guess = usize::try_from(seq.checked_sub(self.entries.front()?.seq())?).ok()?;
        match self.entries.get(guess) {
            Some(entry) if entry.seq() == seq => Some(guess),
            _ => self.entries.binary_search_by_key(&seq, T::seq).ok(),
        }
    }
}
