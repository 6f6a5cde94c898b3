//! The totals of one partition while rows come in: actors in one piece of memory, found through a table of places.

/// Set in an entry's length if it is the first of its actor; the others share its text.
const FIRST: u16 = 1 << 15;

/// Rows that are looked for at the same time: more than a core can wait for at once.
pub const WARM_ROWS: usize = 32;

/// The total of one actor in one slot. Two halves instead of a `u128`, whose alignment would cost eight bytes more.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    low: u64,
    high: u64,
    start: u32,
    length: u16,
    /// Number of the slot.
    pub slot: u16,
}

/// Entries and the text of their actors.
#[derive(Debug, Default)]
pub struct Store {
    /// All entries.
    pub entries: Vec<Entry>,
    /// Ids of actors, one after the other.
    pub text: Vec<u8>,
}

/// A store with an index.
///
/// Places are found by linear probing. A place holds 32 bits of the key's hash and the entry's number plus one. The
/// first entry of an actor is found by the hash of the actor; its other slots by that hash mixed with the slot, so that
/// an actor with thousands of slots costs no more than one with two.
#[derive(Debug, Default)]
pub struct Table {
    store: Store,
    places: Vec<u64>,
    overflow: Option<Overflow>,
}

/// The least actor of a table with totals that left 128 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The actor's id.
    pub actor: Vec<u8>,
    /// Numbers of the slots.
    pub slots: Vec<u16>,
}

impl Entry {
    /// The total.
    pub fn total(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// Whether it is the first of its actor.
    pub fn is_first(&self) -> bool {
        self.length & FIRST != 0
    }

    fn set(&mut self, total: u128) {
        (self.low, self.high) = (total as u64, (total >> 64) as u64);
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + usize::from(self.length & !FIRST)
    }
}

impl Store {
    /// Id of an entry's actor.
    pub fn actor(&self, entry: &Entry) -> &[u8] {
        &self.text[entry.range()]
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>() + self.text.capacity()) as u64
    }

    /// Adds an entry with a text of its own; false if the store is full.
    #[must_use]
    pub fn push(&mut self, actor: &[u8], slot: u16, total: u128, is_first: bool) -> bool {
        let Ok(start) = u32::try_from(self.text.len()) else { return false };
        grow(&mut self.text, actor.len());
        self.text.extend_from_slice(actor);
        self.push_at(start, actor.len() as u16, slot, total, is_first)
    }

    fn push_at(&mut self, start: u32, length: u16, slot: u16, total: u128, is_first: bool) -> bool {
        if self.entries.len() >= u32::MAX as usize - 1 {
            return false;
        }
        let flag = if is_first { FIRST } else { 0 };
        grow(&mut self.entries, 1);
        self.entries.push(Entry { low: total as u64, high: (total >> 64) as u64, start, length: length | flag, slot });
        true
    }
}

/// Room for more, by half of what there is: doubling would leave a quarter of the memory cap unused on average.
fn grow<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.capacity() / 2).max(256));
    }
}

impl Table {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.store.bytes() + (self.places.capacity() * size_of::<u64>()) as u64
    }

    /// The entries.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Gives up the index.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// The least actor with totals that left 128 bits.
    pub fn overflow(&self) -> Option<&Overflow> {
        self.overflow.as_ref()
    }

    /// Forgets all entries, and remembers only whether one of them left 128 bits.
    pub fn clear(&mut self) {
        *self = Table { overflow: self.overflow.take(), ..Table::default() };
    }

    /// Touches what [`Table::add`] will need for these tags. Each step's loads do not wait for each other, so that the
    /// memory answers them at the same time; one row after the other would wait three times for each.
    pub fn warm(&self, tags: impl Iterator<Item = u32>) {
        if self.places.is_empty() {
            return;
        }
        let mask = self.places.len() - 1;
        let mut numbers = [0_u32; WARM_ROWS];
        let mut starts = [0_u32; WARM_ROWS];
        for (number, tag) in numbers.iter_mut().zip(tags) {
            *number = (self.places[tag as usize & mask] as u32).saturating_sub(1);
        }
        for (start, number) in starts.iter_mut().zip(numbers) {
            *start = self.store.entries.get(number as usize).map_or(0, |entry| entry.start);
        }
        let touched = starts.iter().fold(0, |sum, start| sum ^ self.store.text.get(*start as usize).unwrap_or(&0));
        std::hint::black_box(touched);
    }

    /// Adds a quantity; false if the table is full.
    #[must_use]
    pub fn add(&mut self, tag: u32, actor: &[u8], slot: u16, quantity: u128) -> bool {
        // At most half full, so that a search ends after one or two places.
        if self.store.entries.len() * 2 >= self.places.len() {
            self.grow_places();
        }
        let store = &self.store;
        let is_same = |entry: &Entry| entry.is_first() && store.actor(entry) == actor;
        let first = match find(&self.places, tag, |number| is_same(&store.entries[number])) {
            Ok(number) => number,
            Err(place) => {
                let number = self.store.entries.len();
                self.places[place] = place_of(tag, number);
                return self.store.push(actor, slot, quantity, true);
            }
        };
        if store.entries[first].slot == slot {
            self.increase(first, quantity);
            return true;
        }
        let (start, length) = (store.entries[first].start, actor.len() as u16);
        let is_same = |entry: &Entry| entry.slot == slot && entry.start == start && !entry.is_first();
        let tag = mixed(tag, slot);
        match find(&self.places, tag, |number| is_same(&store.entries[number])) {
            Ok(number) => {
                self.increase(number, quantity);
                true
            }
            Err(place) => {
                let number = self.store.entries.len();
                self.places[place] = place_of(tag, number);
                self.store.push_at(start, length, slot, quantity, false)
            }
        }
    }

    fn increase(&mut self, number: usize, quantity: u128) {
        let entry = &mut self.store.entries[number];
        match entry.total().checked_add(quantity) {
            Some(total) => entry.set(total),
            None => {
                // It stays at the top and work goes on, so that the actor named in the end does not depend on threads.
                entry.set(u128::MAX);
                let (actor, slot) = (&self.store.text[entry.range()], entry.slot);
                match &mut self.overflow {
                    Some(known) if known.actor == actor && known.slots.contains(&slot) => {}
                    Some(known) if known.actor == actor => known.slots.push(slot),
                    Some(known) if known.actor.as_slice() < actor => {}
                    other => *other = Some(Overflow { actor: actor.to_vec(), slots: vec![slot] }),
                }
            }
        }
    }

    fn grow_places(&mut self) {
        let size = (self.places.len() * 2).max(64);
        let old = std::mem::replace(&mut self.places, vec![0; size]);
        for place in old.into_iter().filter(|place| *place != 0) {
            let mut at = (place >> 32) as usize & (size - 1);
            while self.places[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.places[at] = place;
        }
    }
}

fn place_of(tag: u32, number: usize) -> u64 {
    u64::from(tag) << 32 | (number as u64 + 1)
}

/// The hash of an actor's further slots.
fn mixed(tag: u32, slot: u16) -> u32 {
    let product = (u64::from(tag) ^ u64::from(slot) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 32) as u32
}

/// Number of the entry with this tag that is the same, or the free place where it belongs.
fn find(places: &[u64], tag: u32, is_same: impl Fn(usize) -> bool) -> Result<usize, usize> {
    let mask = places.len() - 1;
    let mut at = tag as usize & mask;
    loop {
        let place = places[at];
        if place == 0 {
            return Err(at);
        }
        let number = (place as u32 - 1) as usize;
        if (place >> 32) as u32 == tag && is_same(number) {
            return Ok(number);
        }
        at = (at + 1) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(table: &Table) -> Vec<(String, u16, u128, bool)> {
        let store = table.store();
        let entry = |entry: &Entry| {
            let actor = String::from_utf8_lossy(store.actor(entry)).into_owned();
            (actor, entry.slot, entry.total(), entry.is_first())
        };
        let mut totals: Vec<_> = store.entries.iter().map(entry).collect();
        totals.sort();
        totals
    }

    #[test]
    fn actors_with_one_tag_stay_apart_and_slots_share_the_text() {
        let mut table = Table::default();
        for (actor, slot, quantity) in [("a", 0, 1), ("b", 0, 2), ("a", 1, 4), ("a", 0, 8), ("b", 1, 16), ("a", 1, 32)]
        {
            assert!(table.add(7, actor.as_bytes(), slot, quantity));
        }
        let expected = [("a", 0, 9, true), ("a", 1, 36, false), ("b", 0, 2, true), ("b", 1, 16, false)];
        assert_eq!(totals(&table), expected.map(|(actor, slot, total, first)| (actor.to_owned(), slot, total, first)));
        assert_eq!(table.store().text, b"ab");
    }

    #[test]
    fn an_actor_with_every_slot_is_found_at_once() {
        let mut table = Table::default();
        for round in 0..3_u128 {
            for slot in 0..4096 {
                assert!(table.add(7, b"a", slot, round));
            }
        }
        assert_eq!(table.store().entries.len(), 4096);
        assert!(table.store().entries.iter().all(|entry| entry.total() == 3));
    }

    #[test]
    fn the_least_total_that_leaves_128_bits_is_named() {
        let mut table = Table::default();
        for actor in ["c", "a", "b"] {
            assert!(table.add(7, actor.as_bytes(), 0, u128::MAX));
            assert_eq!(table.overflow(), None);
        }
        for actor in ["b", "a", "c"] {
            assert!(table.add(7, actor.as_bytes(), 0, 1));
        }
        assert_eq!(table.overflow(), Some(&Overflow { actor: b"a".to_vec(), slots: vec![0] }));
        table.clear();
        assert_eq!((table.overflow().is_some(), table.store().entries.len()), (true, 0));
    }
}
