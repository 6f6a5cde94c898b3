//! The idempotency keys of one partition, and the message each stood for, at about 64 bytes each.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use ron_types::limits;

mod by_seq;

use crate::clock::Hold;
use crate::record::Memo;
use crate::shard::Key;
use crate::types::{Millis, Seq};
use by_seq::BySeq;

/// Forgetting waits this long, so that it is done for many keys at once; a key is not honoured meanwhile.
const SWEEP_LAG_MS: Millis = 1000;
/// A remembered key: what is known of it, with room that is not in use, and its entry in a hash table that is between
/// seven eighths and seven sixteenths full.
const KEY_BYTES: u64 = (size_of::<Known>() * 9 / 8 + (size_of::<Seq>() + 1) * 16 / 7) as u64;

#[derive(Clone, Copy, Debug)]
struct Known {
    seq: Seq,
    /// The hash of the key, in two halves: as one number it would be aligned to 16 bytes, and waste them.
    hash: [u64; 2],
    payload: u64,
    sent_ms: Millis,
    until_ms: Millis,
}

/// Keys that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub hold: Hold,
    known: BySeq,
    /// Where each key is, by its hash. Hashed once more with a seed of this process, because senders choose keys, and
    /// could choose those that meet in one place.
    by_hash: HashTable<Seq>,
    seed: DefaultHashBuilder,
}

impl Keys {
    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes of memory they take.
    pub fn memory_bytes(&self) -> u64 {
        self.len() as u64 * KEY_BYTES
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        self.by_hash.allocation_size() + self.known.capacity_bytes()
    }

    /// No more keys fit.
    pub fn is_full(&self) -> bool {
        self.len() >= limits::mailbox::KEYS_MAX
    }

    /// The message a key stands for now.
    pub fn get(&self, now: Millis, hash: u128) -> Option<(Seq, Memo)> {
        let known = self.find(hash).filter(|known| now < self.end_of(known))?;
        Some((known.seq, known.memo()))
    }

    /// What is remembered now for a message.
    pub fn of(&self, now: Millis, seq: Seq) -> Option<Memo> {
        let known = self.known.get(seq).filter(|known| now < self.end_of(known))?;
        Some(known.memo())
    }

    /// Remembers a key.
    pub fn insert(&mut self, seq: Seq, memo: Memo) {
        let Memo { key, sent_ms, until_ms } = memo;
        let old = self.find(key.hash).map(|known| known.seq);
        for replaced in old.into_iter().chain([seq]) {
            self.remove(replaced);
        }
        let known = Known { seq, hash: halves(key.hash), payload: key.payload, sent_ms, until_ms };
        self.known.insert(known);
        let (seed, all) = (&self.seed, &self.known);
        self.by_hash.insert_unique(seed.hash_one(key.hash), seq, |seq| {
            all.get(*seq).map_or(0, |known| seed.hash_one(whole(known.hash)))
        });
    }

    /// Forgets up to `max` keys whose time is over; returns their number.
    pub fn sweep(&mut self, now: Millis, max: usize) -> usize {
        let mut swept = 0;
        while swept < max
            && let Some(oldest) = self.known.first()
            && self.end_of(oldest) <= now
        {
            let seq = oldest.seq;
            self.remove(seq);
            swept += 1;
        }
        swept
    }

    /// When to sweep next.
    pub fn deadline(&self) -> Option<Millis> {
        Some(self.end_of(self.known.first()?).saturating_add(SWEEP_LAG_MS))
    }

    /// Every key still honoured, in order of its message.
    pub fn iter(&self, now: Millis) -> impl Iterator<Item = (Seq, Memo)> + '_ {
        self.known.iter().filter(move |known| now < self.end_of(known)).map(|known| (known.seq, known.memo()))
    }

    fn end_of(&self, known: &Known) -> Millis {
        self.hold.end_of(known.sent_ms, known.until_ms)
    }

    fn find(&self, hash: u128) -> Option<&Known> {
        let wanted = halves(hash);
        let is_it = |seq: &Seq| self.known.get(*seq).is_some_and(|known| known.hash == wanted);
        self.known.get(*self.by_hash.find(self.seed.hash_one(hash), is_it)?)
    }

    fn remove(&mut self, seq: Seq) {
        let Some(known) = self.known.remove(seq) else { return };
        let hash = self.seed.hash_one(whole(known.hash));
        if let Ok(entry) = self.by_hash.find_entry(hash, |other| *other == seq) {
            entry.remove();
        }
        // What a burst of keys took is given back, once most of it is gone.
        if self.by_hash.capacity() > 1024 && self.by_hash.len() < self.by_hash.capacity() / 8 {
            let (seed, all) = (&self.seed, &self.known);
            self.by_hash.shrink_to(self.by_hash.len() * 2, |seq| {
                all.get(*seq).map_or(0, |known| seed.hash_one(whole(known.hash)))
            });
        }
    }
}

impl Known {
    fn memo(&self) -> Memo {
        let key = Key { hash: whole(self.hash), payload: self.payload };
        Memo { key, sent_ms: self.sent_ms, until_ms: self.until_ms }
    }
}

fn halves(hash: u128) -> [u64; 2] {
    [(hash >> 64) as u64, hash as u64]
}

fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn memo(hash: u128, until_ms: Millis) -> Memo {
        Memo { key: Key { hash, payload: 1 }, sent_ms: 0, until_ms }
    }

    #[test]
    fn a_key_is_honoured_exactly_until_its_time() {
        let mut keys = Keys::default();
        keys.insert(5, memo(77, 100));
        assert_eq!(keys.get(99, 77), Some((5, memo(77, 100))));
        assert_eq!((keys.get(100, 77), keys.of(100, 5)), (None, None));
        assert_eq!((keys.sweep(99, 10), keys.len()), (0, 1));
        assert_eq!((keys.sweep(100, 10), keys.len(), keys.deadline()), (1, 0, None));
    }

    #[test]
    fn a_key_used_again_after_its_time_stands_for_the_later_message() {
        let mut keys = Keys::default();
        keys.insert(5, memo(77, 100));
        keys.insert(6, memo(78, 150));
        keys.insert(9, memo(77, 300));
        assert_eq!(keys.get(200, 77).map(|(seq, _)| seq), Some(9));
        assert_eq!((keys.of(200, 5), keys.len()), (None, 2));
        assert_eq!((keys.sweep(200, 10), keys.deadline()), (1, Some(1300)));
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let mut keys = Keys::default();
        for seq in 0..50_000 {
            keys.insert(seq, memo(u128::from(seq) << 70 | 3, seq));
        }
        assert!(keys.capacity_bytes() as u64 <= keys.memory_bytes(), "{} bytes", keys.capacity_bytes());
        assert_eq!(keys.sweep(50_000, usize::MAX), 50_000);
        assert!(keys.capacity_bytes() < 100_000, "{} bytes for none", keys.capacity_bytes());
    }

    proptest! {
        #[test]
        fn it_remembers_what_two_maps_would(
            ops in prop::collection::vec((0u64..3000, 0u128..900, any::<bool>()), 1..3000),
        ) {
            let mut keys = Keys::default();
            let (mut by_seq, mut by_hash) = (BTreeMap::<Seq, u128>::new(), BTreeMap::<u128, Seq>::new());
            for (seq, hash, is_new) in ops {
                // Mostly numbers rise; what is read back may come in any order.
                let seq = if is_new { 10_000 + by_seq.len() as u64 + seq } else { seq };
                if let Some(old) = by_hash.insert(hash, seq) {
                    by_seq.remove(&old);
                }
                if let Some(old) = by_seq.insert(seq, hash).filter(|old| *old != hash) {
                    by_hash.remove(&old);
                }
                keys.insert(seq, memo(hash, 10));
                prop_assert_eq!(keys.get(0, hash).map(|(seq, _)| seq), Some(seq));
            }
            prop_assert_eq!(keys.len(), by_seq.len());
            for (hash, seq) in &by_hash {
                prop_assert_eq!(keys.get(0, *hash), Some((*seq, memo(*hash, 10))));
                prop_assert_eq!(keys.of(0, *seq), Some(memo(*hash, 10)));
            }
            let told: Vec<_> = keys.iter(0).map(|(seq, memo)| (seq, memo.key.hash)).collect();
            prop_assert_eq!(told, by_seq.into_iter().collect::<Vec<_>>());
        }
    }
}
