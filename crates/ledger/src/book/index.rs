//! Tables that are looked into by what comes from outside: keys of transfers, names of accounts.
//!
//! Both compare in full, and both hash with a secret of the process: nobody can choose keys or names that collide.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Key of a transfer with the fingerprint of its content.
#[derive(Clone, Copy)]
struct Slot {
    key: [u8; 32],
    fingerprint: u64,
}

/// Every key that was ever booked.
pub(super) struct KeyIndex {
    slots: HashTable<Slot>,
    hasher: RandomState,
}

impl KeyIndex {
    pub fn new() -> KeyIndex {
        KeyIndex { slots: HashTable::new(), hasher: RandomState::new() }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Fingerprint of the content that this key was booked with.
    pub fn get(&self, key: &[u8; 32]) -> Option<u64> {
        let found = self.slots.find(self.hasher.hash_one(key), |slot| slot.key == *key);
        found.map(|slot| slot.fingerprint)
    }

    /// Adds a key; false, and nothing changed, if it is there.
    pub fn insert(&mut self, key: [u8; 32], fingerprint: u64) -> bool {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(key);
        let rehash = |slot: &Slot| hasher.hash_one(slot.key);
        match self.slots.entry(hash, |slot| slot.key == key, rehash) {
            hashbrown::hash_table::Entry::Occupied(_) => false,
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(Slot { key, fingerprint });
                true
            }
        }
    }
}

/// Names in the order in which they first came, each with its number.
pub(super) struct Names {
    names: Vec<Box<str>>,
    by_name: HashTable<u32>,
    hasher: RandomState,
}

impl Names {
    pub fn new() -> Names {
        Names { names: Vec::new(), by_name: HashTable::new(), hasher: RandomState::new() }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn get(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    pub fn find(&self, name: &str) -> Option<u32> {
        let is_it = |number: &u32| *self.names[*number as usize] == *name;
        self.by_name.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// The number of a name, which is added if it is new; says whether it was.
    pub fn intern(&mut self, name: &str) -> (u32, bool) {
        let Names { names, by_name, hasher } = self;
        let is_it = |number: &u32| *names[*number as usize] == *name;
        let rehash = |number: &u32| hasher.hash_one(&*names[*number as usize]);
        match by_name.entry(hasher.hash_one(name), is_it, rehash) {
            hashbrown::hash_table::Entry::Occupied(found) => (*found.get(), false),
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                let number = u32::try_from(names.len()).expect("accounts are bounded by the transfers");
                vacant.insert(number);
                names.push(name.into());
                (number, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_once() {
        let mut index = KeyIndex::new();
        assert!(index.insert([1; 32], 5) && index.insert([2; 32], 6));
        assert!(!index.insert([1; 32], 7), "it is there");
        assert_eq!((index.get(&[1; 32]), index.get(&[3; 32]), index.len()), (Some(5), None, 2));
    }

    #[test]
    fn names_keep_their_numbers() {
        let mut names = Names::new();
        for round in 0..2 {
            for number in 0..1000_u32 {
                assert_eq!(names.intern(&format!("account {number}")), (number, round == 0));
            }
        }
        assert_eq!((names.len(), names.get(7), names.find("account 9")), (1000, "account 7", Some(9)));
        assert_eq!(names.find("Account 9"), None, "bytes are compared, nothing else");
    }
}
