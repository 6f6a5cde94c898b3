//! The idempotency keys of one partition, and the message each stood for, at about 64 bytes each.

use std::hash::BuildHasher as _;

use hashbrown::DefaultHashBuilder;

use crate::by_seq::{BySeq, Numbered};
use crate::clock::Hold;
use crate::record::Memo;
use crate::shard::Key;
use crate::stepped::SteppedTable;
use crate::types::{Millis, Seq};

/// Forgetting waits this long, so that it is done for many keys at once; a key is not honoured meanwhile.
const SWEEP_LAG_MS: Millis = 1000;
/// A remembered key: what is known of it, with room that is not in use, and its entry in a hash table that is between
/// seven eighths and seven sixteenths full.
pub(crate) const KEY_BYTES: u64 = (size_of::<Known>() * 9 / 8 + (size_of::<Seq>() + 1) * 16 / 7) as u64;

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
    hold: Hold,
    known: BySeq<Known>,
    /// Where each key is, by its hash. Hashed once more with a seed of this process, because senders choose keys, and
    /// could choose those that meet in one place.
    by_hash: SteppedTable<Seq>,
    seed: DefaultHashBuilder,
}

impl Keys {
    /// What a jump of the clock keeps from ending.
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// Something is held back because the clock jumped, or no longer.
    pub fn set_hold(&mut self, hold: Hold) {
        if std::mem::replace(&mut self.hold, hold) != hold {
            self.known.forget_ends();
        }
    }

    /// The clock was set, and shows so many milliseconds more or less: each key is remembered for as long as before.
    pub fn follow_clock(&mut self, by_ms: i64) {
        self.known.for_each_mut(|known| known.until_ms = known.until_ms.saturating_add_signed(by_ms));
        self.known.forget_ends();
    }

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

    /// The message a key stands for now.
    pub fn get(&self, now: Millis, hash: u128) -> Option<(Seq, Memo)> {
        let known = self.find(hash).filter(|known| now < end_of(self.hold, known))?;
        Some((known.seq, known.memo()))
    }

    /// What is remembered now for a message.
    pub fn of(&self, now: Millis, seq: Seq) -> Option<Memo> {
        let known = self.known.get(seq).filter(|known| now < end_of(self.hold, known))?;
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
        self.known.insert(known, end_of(self.hold, &known));
        let (seed, all) = (&self.seed, &self.known);
        self.by_hash.insert(seed.hash_one(key.hash), seq, |seq| hash_of(seed, all, *seq));
    }

    /// Forgets keys whose time is over, in order of their ends; does a bounded part of it, the work of forgetting `max`
    /// keys, and says how much it was.
    pub fn sweep(&mut self, now: Millis, max: usize) -> usize {
        let Keys { hold, known, by_hash, seed } = self;
        let before = by_hash.len();
        let gone = |known: &Known| {
            by_hash.remove(seed.hash_one(whole(known.hash)), |seq| *seq == known.seq);
        };
        let work = known.take_ended(now, max, |known| end_of(*hold, known), gone);
        by_hash.shrink(before - by_hash.len(), |seq| hash_of(seed, known, *seq));
        work
    }

    /// When to sweep next.
    pub fn deadline(&self) -> Option<Millis> {
        Some(self.known.first_end()?.saturating_add(SWEEP_LAG_MS))
    }

    /// Every key still honoured, in order of its message.
    pub fn iter(&self, now: Millis) -> impl Iterator<Item = (Seq, Memo)> + '_ {
        self.known.iter().filter(move |known| now < end_of(self.hold, known)).map(|known| (known.seq, known.memo()))
    }

    fn find(&self, hash: u128) -> Option<&Known> {
        let wanted = halves(hash);
        let is_it = |seq: &Seq| self.known.get(*seq).is_some_and(|known| known.hash == wanted);
        self.known.get(*self.by_hash.find(self.seed.hash_one(hash), is_it)?)
    }

    fn remove(&mut self, seq: Seq) {
        let Some(known) = self.known.remove(seq) else { return };
        self.by_hash.remove(self.seed.hash_one(whole(known.hash)), |other| *other == seq);
        let (seed, all) = (&self.seed, &self.known);
        self.by_hash.shrink(1, |seq| hash_of(seed, all, *seq));
    }
}

/// When a key is honoured no longer.
fn end_of(hold: Hold, known: &Known) -> Millis {
    hold.end_of(known.sent_ms, known.until_ms)
}

/// The hash by which a message's key is found.
fn hash_of(seed: &DefaultHashBuilder, all: &BySeq<Known>, seq: Seq) -> u64 {
    all.get(seq).map_or(0, |known| seed.hash_one(whole(known.hash)))
}

impl Numbered for Known {
    fn seq(&self) -> Seq {
        self.seq
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
    fn a_key_is_remembered_for_as_long_whichever_way_the_clock_is_set() {
        let mut keys = Keys::default();
        keys.insert(5, memo(77, 10_000));
        keys.follow_clock(-8_000);
        assert!(keys.get(1_999, 77).is_some() && keys.get(2_000, 77).is_none());
        keys.follow_clock(8_000);
        assert!(keys.get(9_999, 77).is_some() && keys.get(10_000, 77).is_none());
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

    /// A key of a topic whose window was long once does not keep those from ending that came after it.
    #[test]
    fn keys_end_in_order_of_their_ends_and_not_of_their_messages() {
        let mut keys = Keys::default();
        keys.insert(1, memo(1, 1_000_000));
        for seq in 2..=1_001 {
            keys.insert(seq, memo(u128::from(seq), 1_000 + seq));
        }
        assert_eq!(keys.deadline(), Some(1_002 + SWEEP_LAG_MS));
        let mut work = 0;
        while keys.deadline().is_some_and(|at| at <= 2_001 + SWEEP_LAG_MS) {
            let done = keys.sweep(2_001, 64);
            assert!((1..=64 + 8).contains(&done), "{done}");
            work += done;
        }
        assert_eq!((keys.len(), keys.deadline()), (1, Some(1_000_000 + SWEEP_LAG_MS)), "after work of {work}");
        assert!(work < 1_200, "{work}");
    }

    #[test]
    fn a_hold_that_ends_lets_keys_end_that_it_held() {
        let mut keys = Keys::default();
        keys.set_hold(Hold { before_ms: 10, jump_ms: 5_000, until_ms: 100_000 });
        (1..=600).for_each(|seq| keys.insert(seq, memo(u128::from(seq), 50)));
        assert_eq!((keys.sweep(5_000, 10_000), keys.len()), (0, 600));
        keys.set_hold(Hold::NONE);
        while keys.deadline().is_some_and(|at| at <= 5_000) {
            keys.sweep(5_000, 100);
        }
        assert_eq!((keys.len(), keys.deadline()), (0, None));
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
