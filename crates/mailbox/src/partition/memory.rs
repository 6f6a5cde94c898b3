//! Memory that a partition's messages take, reckoned by what there is of each sort.
//!
//! The sum is kept beside the numbers it follows from, so that asking costs nothing. It is meant to be no less than
//! what the allocator gives: a test holds it against the capacities of the collections.

use super::Partition;
use super::past::{Moved, Past, Try};
use crate::holders::MessageHolders;
use crate::index::Entry;
use crate::types::{Dead, Millis, PartKey, Seq};

/// A waiting message: its entry, its place in the queue of its group, and room of both that is not in use.
const MESSAGE_BYTES: u64 = (size_of::<Entry>() + size_of::<Seq>()) as u64 * 9 / 8;
/// A time at which something is due: nodes of a B-tree that is filled in order are half empty.
const TIMER_BYTES: u64 = (size_of::<(Millis, Seq)>() * 9 / 4) as u64;
/// An entry of a hash table beside its content: tables are between seven eighths and seven sixteenths full.
const fn table_bytes(content: usize) -> u64 {
    (content as u64 + 1) * 16 / 7
}
/// A message that was delivered, without its deliveries.
const PAST_BYTES: u64 = table_bytes(size_of::<(Seq, Past)>());
/// One delivery without its texts, which are allocations of their own.
const TRY_BYTES: u64 = size_of::<Try>() as u64 + 32;
/// A message that came from elsewhere: how it came, and where it is. Chunks that did not fill in order are half empty.
const MOVED_BYTES: u64 = (size_of::<(Seq, Moved)>() + size_of::<(Seq, PartKey)>()) as u64 * 3 / 2;
/// Why a message is dead, without what the consumer said, which is an allocation of its own.
const DEAD_BYTES: u64 = size_of::<Dead>() as u64 + 16;

/// Who has a message, where that is counted.
const HOLDER_BYTES: u64 = table_bytes(MessageHolders::CONTENT_BYTES);

impl Partition {
    /// Bytes of memory its messages, groups and keys take; bodies are bounded elsewhere.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let waiting = self.delayed + self.leased;
        self.index.len() as u64 * MESSAGE_BYTES
            + waiting * TIMER_BYTES
            + self.moved_bytes
            + self.holders.len() as u64 * HOLDER_BYTES
            + self.keys.memory_bytes()
            + self.lines.memory_bytes()
            + self.pasts.memory_bytes()
    }
}

impl Moved {
    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let dead = self.dead.as_ref().map_or(0, |dead| DEAD_BYTES + dead.last_error.len() as u64);
        MOVED_BYTES + dead + self.past.as_ref().map_or(0, |past| past.bytes_at_rest())
    }
}

impl Past {
    /// Bytes of memory it takes with a message that came from elsewhere.
    pub(crate) fn bytes_at_rest(&self) -> u64 {
        self.memory_bytes() - PAST_BYTES + size_of::<Past>() as u64 + 16
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        PAST_BYTES + self.tries.len() as u64 * TRY_BYTES + self.text_bytes() as u64
    }
}
