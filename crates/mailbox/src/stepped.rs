//! Hash tables that grow in steps: many small tables, of which one is made into two when they are full.
//!
//! One large table would have to move all that is in it at once to grow, and everybody who wants something of the shard
//! would wait meanwhile: more than a second where there are millions. Here an insertion moves a few hundred entries.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Entries that a table has on average, when one more is made.
const FULL: usize = 128;
/// Entries that a table has on average, when one fewer will do.
const SPARSE: usize = FULL / 4;

/// Entries by hashes that the owner knows.
#[derive(Debug)]
pub(crate) struct SteppedTable<T> {
    tables: Vec<HashTable<T>>,
    len: usize,
}

impl<T> Default for SteppedTable<T> {
    fn default() -> Self {
        SteppedTable { tables: Vec::new(), len: 0 }
    }
}

impl<T> SteppedTable<T> {
    /// Entries in all tables.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry of this hash for which `is_it` holds.
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.tables.get(self.table_of(hash))?.find(hash, is_it)
    }

    /// The same, to be changed without changing its hash.
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let place = self.table_of(hash);
        self.tables.get_mut(place)?.find_mut(hash, is_it)
    }

    /// Puts an entry in that is not there.
    pub fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) -> &mut T {
        if self.len >= self.tables.len() * FULL {
            self.split(&hash_of);
        }
        self.len += 1;
        let place = self.table_of(hash);
        self.tables[place].insert_unique(hash, entry, hash_of).into_mut()
    }

    /// Takes an entry out. What it took is given back by [`Self::shrink`].
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let place = self.table_of(hash);
        let entry = self.tables.get_mut(place)?.find_entry(hash, is_it).ok()?;
        self.len -= 1;
        Some(entry.remove().0)
    }

    /// Gives back what entries took that are gone: up to a table for each of them.
    pub fn shrink(&mut self, gone: usize, hash_of: impl Fn(&T) -> u64) {
        for _ in 0..gone {
            // The last one stays: most owners hold a few entries again and again.
            if self.tables.len() <= 1 {
                return self.shrink_last(&hash_of);
            }
            if self.len >= self.tables.len() * SPARSE {
                return;
            }
            let last = self.tables.pop().unwrap_or_default();
            let place = half_of(self.tables.len());
            let other = std::mem::take(&mut self.tables[place]);
            let joined = &mut self.tables[place];
            joined.reserve(last.len() + other.len(), &hash_of);
            for entry in last.into_iter().chain(other) {
                joined.insert_unique(hash_of(&entry), entry, &hash_of);
            }
            if self.tables.capacity() > 8 && self.tables.len() < self.tables.capacity() / 4 {
                self.tables.shrink_to(self.tables.len() * 2);
            }
        }
    }

    /// Entries that there is room for, about.
    pub fn room(&self) -> usize {
        // A single table is not much larger than what is in it.
        if self.tables.len() > 1 { self.tables.len() * FULL } else { self.len }
    }

    /// A single table gives back most of the room that it does not need.
    fn shrink_last(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let is_sparse = |last: &&mut HashTable<T>| last.capacity() > SPARSE && last.len() < last.capacity() / 8;
        if let Some(last) = self.tables.first_mut().filter(is_sparse) {
            last.shrink_to(self.len * 2, hash_of);
        }
    }

    /// All entries, in no order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.tables.iter().flatten()
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn allocation_size(&self) -> usize {
        let tables: usize = self.tables.iter().map(HashTable::allocation_size).sum();
        tables + self.tables.capacity() * size_of::<HashTable<T>>()
    }

    /// Entries of the fullest table: no more are moved at once.
    #[cfg(test)]
    pub fn fullest(&self) -> usize {
        self.tables.iter().map(HashTable::len).max().unwrap_or(0)
    }

    /// One table more, with its part of the entries of another.
    fn split(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let new = self.tables.len();
        self.tables.push(HashTable::new());
        if new == 0 {
            return;
        }
        for entry in std::mem::take(&mut self.tables[half_of(new)]) {
            let hash = hash_of(&entry);
            let place = self.table_of(hash);
            self.tables[place].insert_unique(hash, entry, hash_of);
        }
    }

    /// The table of a hash: as many of its bits as there are tables. They are of the upper half, because within a table
    /// the lower ones decide.
    fn table_of(&self, hash: u64) -> usize {
        let wide = self.tables.len().next_power_of_two();
        let place = (hash >> 32) as usize & (wide - 1);
        if place < self.tables.len() || place == 0 { place } else { half_of(place) }
    }
}

/// The table that one is split from: without the highest bit of its number, which is not 0.
fn half_of(place: usize) -> usize {
    place ^ (1 << place.ilog2())
}

/// Values by keys, hashed with a seed of this process.
#[derive(Debug)]
pub(crate) struct SteppedMap<K, V> {
    entries: SteppedTable<(K, V)>,
    seed: DefaultHashBuilder,
}

impl<K, V> Default for SteppedMap<K, V> {
    fn default() -> Self {
        SteppedMap { entries: SteppedTable::default(), seed: DefaultHashBuilder::default() }
    }
}

impl<K: Hash + Eq, V> SteppedMap<K, V> {
    /// Keys in the map.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.find(self.seed.hash_one(key), |(known, _)| known.borrow() == key).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let found = self.entries.find_mut(self.seed.hash_one(key), |(known, _)| known.borrow() == key);
        found.map(|(_, value)| value)
    }

    /// Puts a value in; the one that gives way to it.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        let seed = &self.seed;
        self.entries.insert(seed.hash_one(&key), (key, value), |(key, _)| seed.hash_one(key));
        None
    }

    /// The value of a key, after `known` has seen it, or a new one.
    pub fn get_or_insert(&mut self, key: K, known: impl FnOnce(&V)) -> &mut V
    where
        V: Default,
    {
        let (hash, seed) = (self.seed.hash_one(&key), &self.seed);
        // Looked for twice where it is there, because what is found cannot be given and something else put in.
        if let Some((_, value)) = self.entries.find(hash, |(other, _)| *other == key) {
            known(value);
            return self.get_mut(&key).expect("it was just found");
        }
        let (_, value) = self.entries.insert(hash, (key, V::default()), |(key, _)| seed.hash_one(key));
        value
    }

    /// Takes a key out.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let seed = &self.seed;
        let (_, value) = self.entries.remove(seed.hash_one(key), |(known, _)| known.borrow() == key)?;
        self.entries.shrink(1, |(key, _)| seed.hash_one(key));
        Some(value)
    }

    /// Keys that there is room for, about.
    pub fn room(&self) -> usize {
        self.entries.room()
    }

    /// Every key with its value, in no order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn allocation_size(&self) -> usize {
        self.entries.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_insertion_moves_more_than_a_few_hundred_entries() {
        let mut map = SteppedMap::default();
        for key in 0..100_000_u64 {
            map.insert(key, key);
            if key % 1_000 == 0 {
                assert!(map.entries.fullest() <= 4 * FULL, "{} of {key} in one table", map.entries.fullest());
            }
        }
        assert!((0..100_000).all(|key| map.get(&key) == Some(&key)));
        let full = map.allocation_size();
        for key in 0..100_000_u64 {
            assert_eq!(map.remove(&key), Some(key));
            assert!(key % 1_000 != 0 || map.entries.fullest() <= 4 * FULL);
        }
        assert!(map.len() == 0 && map.allocation_size() < full / 200, "{} bytes for none", map.allocation_size());
    }

    proptest! {
        #[test]
        fn it_knows_what_another_map_knows(ops in prop::collection::vec((0u16..700, any::<bool>()), 1..4000)) {
            let (mut map, mut other) = (SteppedMap::default(), BTreeMap::new());
            for (nth, (key, stays)) in ops.into_iter().enumerate() {
                if stays {
                    prop_assert_eq!(map.insert(key, nth), other.insert(key, nth));
                } else {
                    prop_assert_eq!(map.remove(&key), other.remove(&key));
                }
                prop_assert_eq!(map.len(), other.len());
            }
            prop_assert!((0..700).all(|key| map.get(&key) == other.get(&key)));
            let mut all: Vec<_> = map.iter().map(|(key, nth)| (*key, *nth)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, other.into_iter().collect::<Vec<_>>());
        }
    }
}
