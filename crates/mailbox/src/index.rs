//! The messages of one partition in order of their numbers, at 48 bytes each.

use std::collections::VecDeque;

use ron_log::Position;
use ron_types::limits::mailbox as limits;

use crate::types::{Millis, Seq, State};

/// Messages in one piece of the index.
const CHUNK: usize = 1024;
/// A chunk shorter than this is not worth tidying.
const TIDY_MIN: usize = 16;
/// Room that the last chunk of an emptied index may keep.
const SPARE_MAX: usize = 128;

const STATE: u32 = 0b11;
const GONE: u32 = 0b11;
const FRESH: u32 = 1 << 2;
const MOVED: u32 = 1 << 3;
const FREED: u32 = 1 << 4;
const FLAG_BITS: u32 = 8;
const LEN_MAX: u32 = (1 << (32 - FLAG_BITS)) - 1;
const SENT_BITS: u32 = 48;

/// What is kept of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Number of the message.
    pub seq: Seq,
    /// The end of its lease or delay; 0 while it is ready.
    pub at: Millis,
    /// Time it was sent (48 bits) below its deliveries (16 bits).
    sent_and_attempts: u64,
    /// Where its body is.
    pub position: Position,
    /// Number of the group queue it waits in.
    pub group: u32,
    /// The number of its last lease.
    pub fence: u32,
    /// State and flags (8 bits) below the body's length (24 bits).
    flags_and_len: u32,
}

const _: () = assert!(std::mem::size_of::<Entry>() == 48);
const _: () = assert!(limits::PAYLOAD_BYTES_MAX + limits::ENVELOPE_ATTRIBUTE_BYTES_MAX + 64 * 1024 < LEN_MAX as usize);

impl Entry {
    /// A message that was never delivered; its state is still to be set.
    pub fn new(seq: Seq, sent_ms: Millis, position: Position, body_len: u32, group: u32) -> Self {
        let sent_and_attempts = sent_ms & ((1 << SENT_BITS) - 1);
        let flags_and_len = body_len.min(LEN_MAX) << FLAG_BITS;
        Entry { seq, at: 0, sent_and_attempts, position, group, fence: 0, flags_and_len }
    }

    /// When it was sent.
    pub fn sent_ms(&self) -> Millis {
        self.sent_and_attempts & ((1 << SENT_BITS) - 1)
    }

    /// Deliveries so far.
    pub fn attempts(&self) -> u32 {
        (self.sent_and_attempts >> SENT_BITS) as u32
    }

    /// Sets the deliveries so far; more than fit stay at the largest number.
    pub fn set_attempts(&mut self, attempts: u32) {
        let attempts = u64::from(attempts.min(u32::from(u16::MAX)));
        self.sent_and_attempts = self.sent_ms() | attempts << SENT_BITS;
    }

    /// Bytes of its body: payload, attributes and what else of the message lies in the log.
    pub fn body_len(&self) -> u32 {
        self.flags_and_len >> FLAG_BITS
    }

    /// Sets the bytes of its body.
    pub fn set_body_len(&mut self, body_len: u32) {
        self.flags_and_len = self.flags_and_len & ((1 << FLAG_BITS) - 1) | body_len.min(LEN_MAX) << FLAG_BITS;
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.flags_and_len & STATE {
            0 => State::Ready,
            1 => State::Delayed,
            _ => State::Leased,
        }
    }

    /// Sets where it stands.
    pub fn set_state(&mut self, state: State) {
        let bits = match state {
            State::Ready => 0,
            State::Delayed => 1,
            State::Leased => 2,
        };
        self.flags_and_len = self.flags_and_len & !STATE | bits;
    }

    /// It stands in its line's queue of those that never came back.
    pub fn is_fresh(&self) -> bool {
        self.flags_and_len & FRESH != 0
    }

    /// Sets [`Entry::is_fresh`].
    pub fn set_fresh(&mut self, on: bool) {
        self.set_flag(FRESH, on);
    }

    /// It came from another partition, so it is kept from when it came.
    pub fn is_moved(&self) -> bool {
        self.flags_and_len & MOVED != 0
    }

    /// Sets [`Entry::is_moved`].
    pub fn set_moved(&mut self, on: bool) {
        self.set_flag(MOVED, on);
    }

    /// Its consumer gave it back by ending the lease: the rest of its group does not hold it up.
    pub fn is_freed(&self) -> bool {
        self.flags_and_len & FREED != 0
    }

    /// Sets [`Entry::is_freed`].
    pub fn set_freed(&mut self, on: bool) {
        self.set_flag(FREED, on);
    }

    /// It waits after a failed delivery, which holds up its group.
    pub fn is_backing_off(&self) -> bool {
        self.state() == State::Delayed && self.attempts() > 0
    }

    /// It is with a consumer or waits after a failed delivery: those after it in a strict order wait for it.
    pub fn is_out(&self) -> bool {
        self.state() == State::Leased || self.is_backing_off()
    }

    fn is_gone(&self) -> bool {
        self.flags_and_len & STATE == GONE
    }

    fn set_flag(&mut self, flag: u32, on: bool) {
        self.flags_and_len = if on { self.flags_and_len | flag } else { self.flags_and_len & !flag };
    }
}

/// A run of messages in order of their numbers, with holes where one was removed.
#[derive(Debug)]
struct Chunk {
    /// No message in it has a smaller number, and all of the chunk before have.
    first: Seq,
    /// Messages that are not holes.
    live: u32,
    /// Holes at the start.
    skip: u32,
    entries: Vec<Entry>,
}

/// The messages of one partition, sorted.
#[derive(Debug, Default)]
pub(crate) struct Index {
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl Index {
    /// Messages in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let entries: usize = self.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        entries * std::mem::size_of::<Entry>() + self.chunks.capacity() * std::mem::size_of::<Chunk>()
    }

    /// The message with this number.
    pub fn get(&self, seq: Seq) -> Option<&Entry> {
        let (chunk, slot) = self.locate(seq)?;
        Some(&self.chunks[chunk].entries[slot])
    }

    /// The message with this number, to be changed; its number stays.
    pub fn get_mut(&mut self, seq: Seq) -> Option<&mut Entry> {
        let (chunk, slot) = self.locate(seq)?;
        Some(&mut self.chunks[chunk].entries[slot])
    }

    /// The oldest message.
    pub fn first(&self) -> Option<&Entry> {
        let chunk = self.chunks.front()?;
        chunk.entries.get(chunk.skip as usize)
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Entry> {
        self.chunks.back()?.entries.iter().rev().find(|entry| !entry.is_gone())
    }

    /// The messages from this number on, in order.
    pub fn from(&self, seq: Seq) -> impl Iterator<Item = &Entry> {
        let start = self.chunks.partition_point(|chunk| chunk.first <= seq).saturating_sub(1);
        let slot = self
            .chunks
            .get(start)
            .map_or(0, |chunk| chunk.entries.partition_point(|entry| entry.seq < seq).max(chunk.skip as usize));
        self.chunks
            .range(start..)
            .enumerate()
            .flat_map(move |(nth, chunk)| &chunk.entries[if nth == 0 { slot } else { chunk.skip as usize }..])
            .filter(|entry| !entry.is_gone())
    }

    /// Changes every message; their numbers stay.
    pub fn for_each_mut(&mut self, change: impl FnMut(&mut Entry)) {
        self.chunks
            .iter_mut()
            .flat_map(|chunk| &mut chunk.entries[chunk.skip as usize..])
            .filter(|entry| !entry.is_gone())
            .for_each(change);
    }

    /// Puts a message in; one with the same number gives way.
    pub fn insert(&mut self, entry: Entry) {
        if self.chunks.back().is_none_or(|chunk| chunk.entries.last().is_none_or(|last| last.seq < entry.seq)) {
            self.append(entry);
            return;
        }
        let at = self.chunks.partition_point(|chunk| chunk.first <= entry.seq).saturating_sub(1);
        if self.chunks[at].entries.len() == CHUNK {
            self.split(at);
            return self.insert(entry);
        }
        let chunk = &mut self.chunks[at];
        chunk.first = chunk.first.min(entry.seq);
        match chunk.entries.binary_search_by_key(&entry.seq, |entry| entry.seq) {
            Ok(slot) => {
                let was_gone = std::mem::replace(&mut chunk.entries[slot], entry).is_gone();
                chunk.skip = chunk.skip.min(slot as u32);
                chunk.live += u32::from(was_gone);
                self.len += usize::from(was_gone);
            }
            Err(slot) => {
                chunk.entries.insert(slot, entry);
                chunk.skip = chunk.skip.min(slot as u32);
                chunk.live += 1;
                self.len += 1;
            }
        }
    }

    /// Takes a message out.
    pub fn remove(&mut self, seq: Seq) -> Option<Entry> {
        let (at, slot) = self.locate(seq)?;
        let chunk = &mut self.chunks[at];
        let entry = chunk.entries[slot];
        chunk.entries[slot].flags_and_len |= GONE;
        chunk.live -= 1;
        self.len -= 1;
        if chunk.live == 0 {
            self.empty(at);
            return Some(entry);
        }
        while chunk.entries[chunk.skip as usize].is_gone() {
            chunk.skip += 1;
        }
        if chunk.entries.len() >= TIDY_MIN && (chunk.live as usize) < chunk.entries.len() / 4 {
            chunk.entries.retain(|entry| !entry.is_gone());
            chunk.entries.shrink_to(TIDY_MIN.max(chunk.entries.len() * 2));
            chunk.skip = 0;
        }
        Some(entry)
    }

    fn append(&mut self, entry: Entry) {
        self.len += 1;
        let whole = !self.chunks.is_empty();
        match self.chunks.back_mut() {
            Some(chunk) if chunk.entries.len() < CHUNK => {
                if chunk.entries.is_empty() {
                    chunk.first = entry.seq;
                }
                chunk.live += 1;
                chunk.entries.push(entry);
            }
            _ => {
                // The first chunk grows as it fills: a node may have very many partitions of a few messages.
                let mut entries = Vec::with_capacity(if whole { CHUNK } else { 4 });
                entries.push(entry);
                self.chunks.push_back(Chunk { first: entry.seq, live: 1, skip: 0, entries });
            }
        }
    }

    /// A chunk without messages goes away, except that the only one stays if it is small.
    fn empty(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        if self.len == 0 && chunk.entries.capacity() <= SPARE_MAX {
            chunk.entries.clear();
            chunk.skip = 0;
            return;
        }
        self.chunks.remove(at);
        if self.len == 0 {
            self.chunks = VecDeque::new();
        }
    }

    fn split(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        let mut entries = Vec::with_capacity(CHUNK);
        entries.extend(chunk.entries.drain(CHUNK / 2..));
        let later = Chunk::of(entries);
        let earlier = Chunk::of(std::mem::take(&mut chunk.entries));
        let whole = [earlier, later].into_iter().filter(|chunk| chunk.live > 0);
        self.chunks.remove(at);
        for (nth, chunk) in whole.enumerate() {
            self.chunks.insert(at + nth, chunk);
        }
    }

    fn locate(&self, seq: Seq) -> Option<(usize, usize)> {
        let newest = self.chunks.len().checked_sub(1)?;
        let at = if self.chunks[newest].first <= seq {
            newest
        } else if self.chunks.get(1).is_some_and(|chunk| seq < chunk.first) {
            0
        } else {
            self.chunks.partition_point(|chunk| chunk.first <= seq).checked_sub(1)?
        };
        let chunk = &self.chunks[at];
        // Numbers mostly follow each other without gaps, and then the place is known.
        let guess = seq.checked_sub(chunk.first)? as usize;
        let slot = match chunk.entries.get(guess) {
            Some(entry) if entry.seq == seq => guess,
            _ => chunk.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?,
        };
        (!chunk.entries[slot].is_gone()).then_some((at, slot))
    }
}

impl Chunk {
    fn of(entries: Vec<Entry>) -> Self {
        let live = entries.iter().filter(|entry| !entry.is_gone()).count() as u32;
        let skip = entries.iter().take_while(|entry| entry.is_gone()).count() as u32;
        Chunk { first: entries.first().map_or(0, |entry| entry.seq), live, skip, entries }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(seq: Seq) -> Entry {
        Entry::new(seq, seq * 10, Position { segment: 1, offset: 0, len: 8 }, 5, 0)
    }

    fn seqs(index: &Index, from: Seq) -> Vec<Seq> {
        index.from(from).map(|entry| entry.seq).collect()
    }

    #[test]
    fn an_entry_keeps_its_packed_fields_apart() {
        let mut entry = Entry::new(7, (1 << 48) - 1, Position { segment: 1, offset: 2, len: 3 }, u32::MAX, 9);
        entry.set_attempts(100_000);
        entry.set_state(State::Leased);
        entry.set_fresh(true);
        entry.set_moved(true);
        entry.set_fresh(false);
        assert_eq!((entry.sent_ms(), entry.attempts(), entry.body_len()), ((1 << 48) - 1, 65_535, LEN_MAX));
        assert_eq!((entry.state(), entry.is_fresh(), entry.is_moved()), (State::Leased, false, true));
        entry.set_body_len(17);
        assert_eq!((entry.body_len(), entry.state(), entry.is_moved()), (17, State::Leased, true));
    }

    #[test]
    fn an_emptied_index_takes_hardly_any_room() {
        let mut index = Index::default();
        for seq in 0..5000 {
            index.insert(entry(seq));
        }
        for seq in 0..5000 {
            assert!(index.remove(seq).is_some());
        }
        assert!(index.remove(3).is_none());
        assert_eq!(index.len(), 0);
        assert!(index.capacity_bytes() <= SPARE_MAX * 48 + 1024, "{}", index.capacity_bytes());
        assert!(index.first().is_none() && index.last().is_none());
    }

    #[test]
    fn stragglers_do_not_hold_whole_chunks() {
        let mut index = Index::default();
        for seq in 0..100_000 {
            index.insert(entry(seq));
        }
        for seq in (0..100_000).filter(|seq| seq % 100 != 0) {
            index.remove(seq);
        }
        assert_eq!(index.len(), 1000);
        assert!(index.capacity_bytes() < 1000 * 48 * 8, "{}", index.capacity_bytes());
    }

    proptest! {
        #[test]
        fn it_holds_what_a_sorted_set_would(
            ops in prop::collection::vec((any::<bool>(), 0u64..6000), 1..4000),
            start in 0u64..6000,
        ) {
            let (mut index, mut set) = (Index::default(), BTreeSet::new());
            for seq in 2000..4500 {
                index.insert(entry(seq));
                set.insert(seq);
            }
            for (put, seq) in ops {
                if put {
                    if set.insert(seq) {
                        index.insert(entry(seq));
                    }
                } else {
                    prop_assert_eq!(index.remove(seq).map(|entry| entry.seq), set.take(&seq));
                }
                prop_assert_eq!(index.get(seq).is_some(), set.contains(&seq));
                prop_assert_eq!(index.first().map(|entry| entry.seq), set.first().copied());
            }
            prop_assert_eq!(index.last().map(|entry| entry.seq), set.last().copied());
            prop_assert_eq!(index.len(), set.len());
            prop_assert_eq!(seqs(&index, 0), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(seqs(&index, start), set.range(start..).copied().collect::<Vec<_>>());
        }
    }
}
