//! Where the records of a key lie: for every key a few bits of memory that say in which hours to look.
//!
//! Provider records lie in a table for each hour in which they are over, so a key can have records in fifty tables, and
//! to look into all of them for a key that has one would cost fifty times as much. Keys are hashed to slots of 64 bits,
//! one bit for each hour modulo 64. A bit that is not set says that no key of the slot has a record in that hour; one
//! that is set costs a look at most. The bits of an hour that is dropped are cleared in one go.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Key;

const SLOTS_MIN: usize = 1 << 14;
const SLOTS_MAX: usize = 1 << 25;

/// Bits that say in which hours to look for a key.
pub(super) struct Masks {
    slots: Box<[AtomicU64]>,
    /// Hours modulo 64 of which every record is in the slots. Those of a file that was just opened are not yet.
    known: AtomicU64,
}

impl Masks {
    /// Masks for so many records, of which none is in the slots yet: all hours in `unlearned` must be looked at.
    pub(super) fn new(records: usize, unlearned: impl Iterator<Item = u32>) -> Self {
        let known = unlearned.fold(u64::MAX, |known, hour| known & !bit(hour));
        let slots = (0..slots_for(records)).map(|_| AtomicU64::new(0)).collect();
        Masks { slots, known: AtomicU64::new(known) }
    }

    /// Masks with the same bits and at least a slot for each record; none if there are enough. A slot's bits go to all
    /// slots that it falls apart into, where most of them are not needed: they are gone with their hours. So that few
    /// pile up, there are four times as many slots after each growth, and they are made before records come, not after.
    pub(super) fn grown(&self, records: usize) -> Option<Self> {
        let count = slots_for(records);
        if count <= self.slots.len() {
            return None;
        }
        let count = count.max(4 * self.slots.len()).min(SLOTS_MAX);
        let old = |at: usize| self.slots[at & (self.slots.len() - 1)].load(Relaxed);
        let slots = (0..count).map(|at| AtomicU64::new(old(at))).collect();
        Some(Masks { slots, known: AtomicU64::new(self.known.load(Relaxed)) })
    }

    /// Whether a key may have records in an hour.
    pub(super) fn may_have(&self, key: &Key, hour: u32) -> bool {
        let bits = self.slot(key).load(Relaxed) | !self.known.load(Relaxed);
        bits & bit(hour) != 0
    }

    /// Notes that a key has a record in an hour.
    pub(super) fn note(&self, key: &Key, hour: u32) {
        let slot = self.slot(key);
        if slot.load(Relaxed) & bit(hour) == 0 {
            slot.fetch_or(bit(hour), Relaxed);
        }
    }

    pub(super) fn is_known(&self, hour: u32) -> bool {
        self.known.load(Relaxed) & bit(hour) != 0
    }

    /// Every record of an hour has been noted.
    pub(super) fn set_known(&self, hour: u32) {
        self.known.fetch_or(bit(hour), Relaxed);
    }

    /// No record is left in an hour, nor in one that shares its bit.
    pub(super) fn clear(&self, hour: u32) {
        self.slots.iter().for_each(|slot| {
            slot.fetch_and(!bit(hour), Relaxed);
        });
        self.set_known(hour);
    }

    fn slot(&self, key: &Key) -> &AtomicU64 {
        let (head, _) = key.0.split_first_chunk().expect("a key has more than eight bytes");
        &self.slots[u64::from_le_bytes(*head) as usize & (self.slots.len() - 1)]
    }
}

/// Bit of an hour. Hours that share one are 64 apart, and a record lasts 48.
pub(super) fn bit(hour: u32) -> u64 {
    1 << (hour % 64)
}

/// A power of two, about one slot for each record.
fn slots_for(records: usize) -> usize {
    records.next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(head: u64) -> Key {
        let mut key = Key([0; 32]);
        key.0[..8].copy_from_slice(&head.to_le_bytes());
        key
    }

    #[test]
    fn what_was_noted_is_found_after_growth_and_until_its_hour_is_cleared() {
        let masks = Masks::new(10, std::iter::empty());
        for head in 0..5_000 {
            masks.note(&key(head * 977), (head % 50) as u32 + 1_000);
        }
        let masks = masks.grown(20_000).expect("there are more records than slots");
        assert!(masks.grown(60_000).is_none());
        for head in 0..5_000 {
            assert!(masks.may_have(&key(head * 977), (head % 50) as u32 + 1_000));
        }
        masks.clear(1_007);
        assert!((0..100_000).all(|head| !masks.may_have(&key(head), 1_007)));
        assert!(masks.may_have(&key(8 * 977), 1_008));
    }

    #[test]
    fn an_hour_that_is_not_learned_is_looked_at() {
        let masks = Masks::new(0, [7].into_iter());
        assert!(masks.may_have(&key(1), 7) && !masks.may_have(&key(1), 8));
        masks.set_known(7);
        assert!(!masks.may_have(&key(1), 7));
    }
}
