//! Tokens remembered for a short while, with what was found out about them: a bounded table.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

/// Tables, so that clients with different tokens seldom wait for each other.
const SHARDS: usize = 16;

/// Bounds of what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum tokens in all.
    pub tokens_max: usize,
    /// Maximum bytes of all tokens with what is remembered of them, shared out evenly among the tables.
    pub bytes_max: usize,
    /// Milliseconds from one verification of a token to the next.
    pub ttl_ms: u64,
}

/// Tokens with what was found out about them. What they allow is not remembered: it takes a comparison for each right,
/// which is less than finding a verdict.
pub struct Cache<T> {
    shards: [Mutex<HashTable<Entry<T>>>; SHARDS],
    /// Keyed afresh in each process: nobody outside can make two tokens meet.
    hasher: RandomState,
    bounds: Bounds,
}

struct Entry<T> {
    hash: u64,
    /// The whole token, because a hash alone could name another.
    token: Box<str>,
    value: Arc<T>,
    /// Bytes of the token and its value, roughly.
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
        let entry = shard.find(hash, |entry| &*entry.token == token)?;
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
        shard.retain(|entry| self.is_fresh(entry, now_ms) && &*entry.token != token);
        let bytes = token.len() + value_bytes;
        let is_full = |shard: &HashTable<Entry<T>>| {
            shard.len() >= (self.bounds.tokens_max / SHARDS).max(1) || held(shard) + bytes > self.shard_bytes_max()
        };
        while !shard.is_empty() && is_full(&shard) {
            evict_oldest(&mut shard);
        }
        let entry = Entry { hash, token: token.into(), value: Arc::clone(value), bytes, since_ms: now_ms };
        shard.insert_unique(hash, entry, |entry| entry.hash);
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
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// A clock that was set back makes nothing fresh for longer.
    fn is_fresh(&self, entry: &Entry<T>, now_ms: u64) -> bool {
        now_ms.checked_sub(entry.since_ms).is_some_and(|age_ms| age_ms < self.bounds.ttl_ms)
    }

    fn shard_bytes_max(&self) -> usize {
        self.bounds.bytes_max / SHARDS
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Entry<T>>> {
        // The table uses the highest and the lowest bits itself.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

/// Bytes of what a table remembers; counted anew, because a table has few entries and is seldom added to.
fn held<T>(shard: &HashTable<Entry<T>>) -> usize {
    shard.iter().map(|entry| entry.bytes).sum()
}

fn evict_oldest<T>(shard: &mut HashTable<Entry<T>>) {
    let oldest = shard.iter().min_by_key(|entry| entry.since_ms).map(|entry| (entry.hash, Arc::clone(&entry.value)));
    if let Some((hash, value)) = oldest
        && let Ok(found) = shard.find_entry(hash, |entry| Arc::ptr_eq(&entry.value, &value))
    {
        found.remove();
    }
}

/// Nothing that runs under these locks panics, so that a poisoned one is whole.
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { tokens_max: SHARDS * 2, bytes_max: SHARDS * 4096, ttl_ms: 100 };

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

    #[test]
    fn each_table_keeps_its_newest_tokens() {
        let cache = Cache::new(BOUNDS);
        for number in 0..1000_u64 {
            assert!(cache.put(&number.to_string(), (&Arc::new(0), 8), 1000 + number / 100, || false));
            assert!(cache.find(&number.to_string(), 1010).is_some(), "the newest is kept");
        }
        assert_eq!(cache.len(), BOUNDS.tokens_max);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let cache = Cache::new(Bounds { tokens_max: 100_000, ..BOUNDS });
        let held_in_all = || cache.shards.iter().map(|shard| held(&lock(shard))).sum::<usize>();
        for number in 0..1000_u32 {
            let (token, value) = (number.to_string(), Arc::new(number));
            assert!(cache.put(&token, (&value, 1000), 1000, || false));
            assert!(held_in_all() <= BOUNDS.bytes_max, "{}", held_in_all());
            assert!(cache.find(&token, 1000).is_some(), "the newest is kept");
        }
        assert!(held_in_all() > BOUNDS.bytes_max / 2, "and the room is used: {}", held_in_all());
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
