//! Verdicts remembered for a short while: a bounded table of tokens, each with a bounded table of resources.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use crate::capabilities::Action;

/// Tables, so that clients with different tokens seldom wait for each other.
const SHARDS: usize = 16;

/// Bytes that remembering a verdict takes beside the name of the resource: its places in two tables.
const VERDICT_BYTES: usize = 192;

/// Bounds of what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum tokens in all.
    pub tokens_max: usize,
    /// Maximum resources of one token.
    pub resources_per_token_max: usize,
    /// Maximum bytes of all tokens with what is remembered of them, shared out evenly among the tables.
    pub bytes_max: usize,
    /// Milliseconds from one verification of a token to the next.
    pub ttl_ms: u64,
}

/// Tokens with what was found out about them, and verdicts by action and resource.
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
    /// Bytes of the token, its value and its verdicts, roughly.
    bytes: usize,
    since_ms: u64,
    verdicts: HashMap<Arc<str>, Verdicts>,
    /// The resources in the order in which they came.
    order: VecDeque<Arc<str>>,
}

/// Verdicts on one resource by action, to be searched from the front: a token is used for few actions on a resource,
/// so that this is faster than a second table. Actions are declared in code, which bounds their number.
#[derive(Default)]
struct Verdicts(Vec<(Action, bool)>);

/// What is remembered about a request.
pub struct Found<T> {
    /// What was found out about the token.
    pub value: Arc<T>,
    /// The verdict, if this was asked before.
    pub verdict: Option<bool>,
}

impl<T> Cache<T> {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Cache { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new(), bounds }
    }

    /// What is known of this token and this request now; a token past its time is not known.
    pub fn find(&self, token: &str, action: Action, resource: &str, now_ms: u64) -> Option<Found<T>> {
        self.with_fresh(token, now_ms, |entry| {
            let verdict = entry.verdicts.get(resource).and_then(|verdicts| verdicts.of(action));
            Found { value: Arc::clone(&entry.value), verdict }
        })
    }

    /// What is known of this token now.
    pub fn find_token(&self, token: &str, now_ms: u64) -> Option<Arc<T>> {
        self.with_fresh(token, now_ms, |entry| Arc::clone(&entry.value))
    }

    fn with_fresh<R>(&self, token: &str, now_ms: u64, read: impl FnOnce(&Entry<T>) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(token);
        let shard = self.shard(hash);
        let entry = shard.find(hash, |entry| &*entry.token == token)?;
        self.is_fresh(entry, now_ms).then(|| read(entry))
    }

    /// Remembers a token with a value of so many bytes, unless `is_unwelcome` says otherwise by now; the oldest make
    /// room.
    pub fn put_token(
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
        let (verdicts, order) = (HashMap::new(), VecDeque::new());
        let (token, value) = (token.into(), Arc::clone(value));
        let entry = Entry { hash, token, value, bytes, since_ms: now_ms, verdicts, order };
        shard.insert_unique(hash, entry, |entry| entry.hash);
        true
    }

    /// Remembers a verdict, if what it is based on is still what is remembered of the token.
    pub fn put_verdict(&self, token: &str, basis: &Arc<T>, action: Action, resource: &str, verdict: bool) {
        let hash = self.hasher.hash_one(token);
        let mut shard = self.shard(hash);
        let bytes = resource.len() + VERDICT_BYTES;
        let is_full = held(&shard) + bytes > self.shard_bytes_max();
        let Some(entry) = shard.find_mut(hash, |entry| Arc::ptr_eq(&entry.value, basis)) else { return };
        if let Some(verdicts) = entry.verdicts.get_mut(resource) {
            verdicts.put(action, verdict);
            return;
        }
        // Only what is known of the same token makes room, so that one token cannot push out another.
        if is_full || entry.order.len() >= self.bounds.resources_per_token_max {
            let Some(oldest) = entry.order.pop_front() else { return };
            entry.verdicts.remove(&oldest);
            entry.bytes -= oldest.len() + VERDICT_BYTES;
        }
        entry.bytes += bytes;
        let resource: Arc<str> = resource.into();
        entry.order.push_back(Arc::clone(&resource));
        entry.verdicts.entry(resource).or_default().put(action, verdict);
    }

    /// Forgets the tokens that are past their time or that `is_wanted` does not want.
    pub fn retain(&self, now_ms: u64, is_wanted: impl Fn(&T) -> bool) {
        for shard in &self.shards {
            lock(shard).retain(|entry| self.is_fresh(entry, now_ms) && is_wanted(&entry.value));
        }
    }

    /// Verdicts remembered.
    pub fn len(&self) -> usize {
        let verdicts = |entry: &Entry<T>| entry.verdicts.values().map(|verdicts| verdicts.0.len()).sum::<usize>();
        self.shards.iter().map(|shard| lock(shard).iter().map(verdicts).sum::<usize>()).sum()
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

impl Verdicts {
    fn of(&self, action: Action) -> Option<bool> {
        self.0.iter().find(|(known, _)| *known == action).map(|(_, verdict)| *verdict)
    }

    fn put(&mut self, action: Action, verdict: bool) {
        match self.0.iter_mut().find(|(known, _)| *known == action) {
            Some(known) => known.1 = verdict,
            None => self.0.push((action, verdict)),
        }
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
    use crate::testing::{GET, PUT, READ};

    const BOUNDS: Bounds =
        Bounds { tokens_max: SHARDS * 2, resources_per_token_max: 3, bytes_max: SHARDS * 4096, ttl_ms: 100 };

    fn cache_with(token: &str) -> (Cache<u32>, Arc<u32>) {
        let (cache, value) = (Cache::new(BOUNDS), Arc::new(7));
        assert!(cache.put_token(token, (&value, 8), 1000, || false));
        (cache, value)
    }

    #[test]
    fn a_verdict_is_found_for_its_token_action_and_resource_alone() {
        let (cache, value) = cache_with("a");
        cache.put_verdict("a", &value, PUT, "t", true);
        cache.put_verdict("a", &value, GET, "t", true);
        cache.put_verdict("a", &value, GET, "t", false);
        let verdict = |token, action, resource| cache.find(token, action, resource, 1000).map(|found| found.verdict);
        assert_eq!(verdict("a", PUT, "t"), Some(Some(true)));
        assert_eq!(verdict("a", GET, "t"), Some(Some(false)), "the last holds");
        assert_eq!(verdict("a", READ, "t"), Some(None), "a resource of the same name in another service");
        assert_eq!(verdict("a", PUT, "u"), Some(None));
        assert_eq!(verdict("b", PUT, "t"), None);
        assert_eq!((cache.len(), cache.find_token("a", 1000)), (2, Some(value)));
    }

    #[test]
    fn nothing_is_known_past_its_time_or_when_the_clock_goes_back() {
        let (cache, _value) = cache_with("a");
        for (now_ms, expected) in [(999, false), (1000, true), (1099, true), (1100, false)] {
            assert_eq!(cache.find("a", PUT, "t", now_ms).is_some(), expected, "{now_ms}");
        }
    }

    #[test]
    fn a_token_keeps_its_newest_resources() {
        let (cache, value) = cache_with("a");
        for resource in ["1", "2", "3", "4"] {
            cache.put_verdict("a", &value, PUT, resource, true);
        }
        let known: Vec<bool> = ["1", "2", "3", "4"]
            .map(|resource| cache.find("a", PUT, resource, 1000).expect("there").verdict.is_some())
            .into();
        assert_eq!(known, [false, true, true, true]);
    }

    #[test]
    fn each_table_keeps_its_newest_tokens() {
        let cache = Cache::new(BOUNDS);
        for number in 0..1000_u64 {
            let value = Arc::new(0);
            assert!(cache.put_token(&number.to_string(), (&value, 8), 1000 + number / 100, || false));
            cache.put_verdict(&number.to_string(), &value, PUT, "t", true);
            assert!(cache.find(&number.to_string(), PUT, "t", 1010).is_some(), "the newest is kept");
        }
        assert_eq!(cache.len(), BOUNDS.tokens_max);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let cache = Cache::new(Bounds { tokens_max: 100_000, resources_per_token_max: 1000, ..BOUNDS });
        let held_in_all = || cache.shards.iter().map(|shard| held(&lock(shard))).sum::<usize>();
        for number in 0..200_u32 {
            let (token, value) = (number.to_string(), Arc::new(number));
            assert!(cache.put_token(&token, (&value, 1000), 1000, || false));
            for resource in 0..30 {
                cache.put_verdict(&token, &value, PUT, &format!("{resource:0200}"), true);
            }
            assert!(held_in_all() <= BOUNDS.bytes_max, "{}", held_in_all());
            assert!(cache.find_token(&token, 1000).is_some(), "the newest is kept");
        }
        assert!(held_in_all() > BOUNDS.bytes_max / 2, "and the room is used: {}", held_in_all());
    }

    #[test]
    fn an_unwelcome_token_and_a_verdict_on_other_grounds_are_not_kept() {
        let (cache, old) = cache_with("a");
        assert!(!cache.put_token("b", (&old, 8), 1000, || true));
        assert!(cache.find("b", PUT, "t", 1000).is_none());
        assert!(cache.put_token("a", (&Arc::new(8), 8), 1000, || false));
        cache.put_verdict("a", &old, PUT, "t", true);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn what_is_not_wanted_is_forgotten() {
        let (cache, value) = cache_with("a");
        assert!(cache.put_token("b", (&Arc::new(8), 8), 1050, || false));
        cache.put_verdict("a", &value, PUT, "t", true);
        cache.retain(1050, |value| *value != 8);
        assert!(cache.find("a", PUT, "t", 1050).is_some() && cache.find("b", PUT, "t", 1050).is_none());
        cache.retain(1100, |_| true);
        assert_eq!(cache.len(), 0);
    }
}
