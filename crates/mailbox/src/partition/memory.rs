//! Memory that a partition's messages take, reckoned by what there is of each sort.
//!
//! The sum is kept beside the numbers it follows from, so that asking costs nothing. It is meant to be no less than
//! what the allocator gives: a test holds it against the capacities of the collections.

use super::Partition;
use super::past::{Moved, Past, Try};
use crate::index::Entry;
use crate::types::{Millis, PartKey, Seq};

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
/// A message that came from elsewhere: how it came, where it is, and until when it is kept.
const MOVED_BYTES: u64 =
    table_bytes(size_of::<(Seq, Moved)>()) + table_bytes(size_of::<(Seq, PartKey)>()) + TIMER_BYTES;

impl Partition {
    /// Bytes of memory its messages, groups and keys take; bodies are bounded elsewhere.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let waiting = self.delayed + self.leased;
        self.index.len() as u64 * MESSAGE_BYTES
            + waiting * TIMER_BYTES
            + self.moved_bytes
            + self.keys.memory_bytes()
            + self.lines.memory_bytes()
            + self.pasts.memory_bytes()
    }
}

impl Moved {
    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        MOVED_BYTES + self.dead.as_ref().map_or(0, |dead| dead.last_error.len() as u64)
    }
}

impl Past {
    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let texts = |one: &Try| (one.consumer.len() + one.outcome.len()) as u64;
        PAST_BYTES + self.tries.iter().map(|one| TRY_BYTES + texts(one)).sum::<u64>()
    }
}
