//! Tokens remembered for a short while, with what was found out about them: a table bounded in bytes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

/// Tables, so that clients with different tokens seldom wait for each other.
const SHARDS: usize = 16;

/// Bounds of what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes of all tokens with what is remembered of them, shared out evenly among the tables.
    pub bytes_max: usize,
    /// Milliseconds from one verification of a token to the next.
    pub ttl_ms: u64,
}

/// Tokens with what was found out about them. What they allow is not remembered: it takes a comparison for each right,
/// which is less than finding a verdict.
pub struct Cache<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    /// Keyed afresh in each process: nobody outside can make two tokens meet.
    hasher: RandomState,
    bounds: Bounds,
}

/// One table. A token costs the same to add and to forget however many there are: with tens of thousands of live ones,
/// a walk through all of them would cost more than the signatures that are spared.
struct Shard<T> {
    entries: HashTable<Entry<T>>,
    /// Hash of each entry by its number: the oldest first.
    by_age: BTreeMap<u64, u64>,
    /// Number of the next entry.
    next: u64,
    /// Bytes of all entries.
    bytes: usize,
}

struct Entry<T> {
    hash: u64,
    /// Rises with each entry that is added.
    number: u64,
    /// The whole token, because a hash alone could name another.
    token: Box<str>,
    value: Arc<T>,
    /// Bytes of the token and its value, with the places they take in the table.
    bytes: usize,
    since_ms: u64,
}

impl<T> Cache<T> {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Cache { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new(), bounds }
    }

    /// What is known of this token now; one past its time is not known.
    pub fn find(&self, token: &str, now_ms: u64) -> Option<Arc<T>> {
        let hash = self.hasher.hash_one(token);
        let shard = self.shard(hash);
        let entry = shard.entries.find(hash, |entry| &*entry.token == token)?;
        self.is_fresh(entry, now_ms).then(|| Arc::clone(&entry.value))
    }

    /// Remembers a token with a value of so many bytes, unless `is_unwelcome` says otherwise by now; the oldest make
    /// room.
    pub fn put(
        &self,
        token: &str,
        (value, value_bytes): (&Arc<T>, usize),
        now_ms: u64,
        is_unwelcome: impl FnOnce() -> bool,
    ) -> bool {
        let hash = self.hasher.hash_one(token);
        let mut shard = self.shard(hash);
        if is_unwelcome() {
            return false;
        }
        shard.remove(hash, |entry| &*entry.token == token);
        while shard.oldest().is_some_and(|oldest| !self.is_fresh(oldest, now_ms)) {
            shard.remove_oldest();
        }
        let bytes = token.len() + value_bytes + entry_bytes::<T>();
        while !shard.entries.is_empty() && shard.bytes + bytes > self.bounds.bytes_max / SHARDS {
            shard.remove_oldest();
        }
        shard.add(hash, |number| Entry {
            hash,
            number,
            token: token.into(),
            value: Arc::clone(value),
            bytes,
            since_ms: now_ms,
        });
        true
    }

    /// Forgets the tokens that are past their time or that `is_wanted` does not want.
    pub fn retain(&self, now_ms: u64, is_wanted: impl Fn(&T) -> bool) {
        for shard in &self.shards {
            lock(shard).retain(|entry| self.is_fresh(entry, now_ms) && is_wanted(&entry.value));
        }
    }

    /// Tokens remembered.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// A clock that was set back makes nothing fresh for longer.
    fn is_fresh(&self, entry: &Entry<T>, now_ms: u64) -> bool {
        now_ms.checked_sub(entry.since_ms).is_some_and(|age_ms| age_ms < self.bounds.ttl_ms)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<T>> {
        // The table uses the highest and the lowest bits itself.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Shard { entries: HashTable::new(), by_age: BTreeMap::new(), next: 0, bytes: 0 }
    }
}

impl<T> Shard<T> {
    fn oldest(&self) -> Option<&Entry<T>> {
        let (number, hash) = self.by_age.first_key_value()?;
        self.entries.find(*hash, |entry| entry.number == *number)
    }

    fn remove_oldest(&mut self) {
        if let Some((number, hash)) = self.by_age.first_key_value().map(|(number, hash)| (*number, *hash)) {
            self.remove(hash, |entry| entry.number == number);
        }
    }

    fn remove(&mut self, hash: u64, is_it: impl FnMut(&Entry<T>) -> bool) {
        if let Ok(found) = self.entries.find_entry(hash, is_it) {
            let (entry, _) = found.remove();
            self.bytes -= entry.bytes;
            self.by_age.remove(&entry.number);
        }
    }

    fn add(&mut self, hash: u64, entry: impl FnOnce(u64) -> Entry<T>) {
        let entry = entry(self.next);
        self.next += 1;
        self.bytes += entry.bytes;
        self.by_age.insert(entry.number, hash);
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
    }

    fn retain(&mut self, is_kept: impl Fn(&Entry<T>) -> bool) {
        let Shard { entries, by_age, bytes, .. } = self;
        entries.retain(|entry| {
            let keeps = is_kept(entry);
            if !keeps {
                *bytes -= entry.bytes;
                by_age.remove(&entry.number);
            }
            keeps
        });
    }
}

/// Bytes that an entry takes beside its token and value: its own, at most twice because a table is at times half empty,
/// and about as much for its place among the others by age and for what each piece of memory costs.
const fn entry_bytes<T>() -> usize {
    2 * size_of::<Entry<T>>() + 64
}

/// Nothing that runs under these locks panics, so that a poisoned one is whole.
fn lock<T>(shard: &Mutex<Shard<T>>) -> MutexGuard<'_, Shard<T>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { bytes_max: SHARDS * 4096, ttl_ms: 100 };

    fn cache_with(token: &str) -> (Cache<u32>, Arc<u32>) {
        let (cache, value) = (Cache::new(BOUNDS), Arc::new(7));
        assert!(cache.put(token, (&value, 8), 1000, || false));
        (cache, value)
    }

    #[test]
    fn nothing_is_known_past_its_time_or_when_the_clock_goes_back() {
        let (cache, value) = cache_with("a");
        for (now_ms, expected) in [(999, false), (1000, true), (1099, true), (1100, false)] {
            assert_eq!(cache.find("a", now_ms).is_some(), expected, "{now_ms}");
        }
        assert_eq!((cache.find("a", 1000), cache.find("b", 1000)), (Some(value), None));
    }

    /// Bytes that the tables say they hold, and those of their entries.
    fn held<T>(cache: &Cache<T>) -> (usize, usize) {
        let of = |shard: &Mutex<Shard<T>>| {
            let shard = lock(shard);
            assert_eq!(shard.by_age.len(), shard.entries.len(), "each entry has its age");
            (shard.bytes, shard.entries.iter().map(|entry| entry.bytes).sum::<usize>())
        };
        cache.shards.iter().map(of).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    #[test]
    fn each_table_keeps_its_newest_tokens() {
        let cache = Cache::new(BOUNDS);
        for number in 0..1000_u64 {
            let (token, now_ms) = (number.to_string(), 1000 + number / 100);
            assert!(cache.put(&token, (&Arc::new(0), 1500), now_ms, || false));
            assert!(cache.find(&token, 1010).is_some(), "the newest is kept");
        }
        let kept = |range: std::ops::Range<u64>| {
            range.filter(|number| cache.find(&number.to_string(), 1010).is_some()).count()
        };
        assert_eq!((kept(0..500), kept(0..1000)), (0, cache.len()), "the oldest make room");
        assert_eq!(cache.len(), SHARDS * 2, "as many as fit");
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes_and_not_in_number() {
        let bounds = Bounds { bytes_max: 32 << 20, ..BOUNDS };
        let cache = Cache::new(bounds);
        for number in 0..100_000_u32 {
            let (token, value) = (number.to_string(), Arc::new(number));
            assert!(cache.put(&token, (&value, 600), 1000, || false));
            assert!(cache.find(&token, 1000).is_some(), "the newest is kept");
        }
        let (said, true_bytes) = held(&cache);
        assert_eq!(said, true_bytes);
        assert!((bounds.bytes_max / 10 * 9..=bounds.bytes_max).contains(&said), "the room is used: {said}");
        assert!(cache.len() > 30_000, "{}", cache.len());
        cache.retain(1000, |number| number % 2 == 0);
        let (said, true_bytes) = held(&cache);
        assert!(said == true_bytes && said < bounds.bytes_max * 6 / 10, "{said}");
    }

    #[test]
    fn what_is_past_its_time_makes_room_for_what_comes() {
        let cache = Cache::new(Bounds { bytes_max: 32 << 20, ..BOUNDS });
        let put = |round: u32, now_ms: u64| {
            (0..1000).for_each(|number| {
                assert!(cache.put(&format!("{round} {number}"), (&Arc::new(0), 8), now_ms, || false));
            });
        };
        put(0, 1000);
        put(1, 1050);
        assert_eq!(cache.len(), 2000);
        put(2, 1100);
        assert_eq!(cache.len(), 2000, "those of the first round had their time");
        put(2, 1140);
        assert_eq!((cache.len(), held(&cache).0), (2000, held(&cache).1), "each is remembered once");
        assert!(cache.find("2 0", 1239).is_some(), "from the last time on");
    }

    #[test]
    fn an_unwelcome_token_is_not_kept() {
        let (cache, old) = cache_with("a");
        assert!(!cache.put("b", (&old, 8), 1000, || true));
        assert!(cache.find("b", 1000).is_none());
    }

    #[test]
    fn what_is_not_wanted_is_forgotten() {
        let (cache, _value) = cache_with("a");
        assert!(cache.put("b", (&Arc::new(8), 8), 1050, || false));
        cache.retain(1050, |value| *value != 8);
        assert!(cache.find("a", 1050).is_some() && cache.find("b", 1050).is_none());
        cache.retain(1100, |_| true);
        assert_eq!(cache.len(), 0);
    }
}
