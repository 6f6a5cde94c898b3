//! The idempotency keys of one partition, and the message each stood for.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ron_types::limits;

use crate::record::Memo;
use crate::shard::Key;
use crate::types::{Millis, Seq};

/// Forgetting waits this long, so that it is done for many keys at once; a key is not honoured meanwhile.
const SWEEP_LAG_MS: Millis = 1000;

#[derive(Clone, Copy, Debug)]
struct Known {
    seq: Seq,
    payload: u64,
    sent_ms: Millis,
    until_ms: Millis,
}

/// Keys that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    by_hash: HashMap<u128, Known>,
    by_seq: BTreeMap<Seq, u128>,
}

impl Keys {
    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// No more keys fit.
    pub fn is_full(&self) -> bool {
        self.len() >= limits::mailbox::KEYS_MAX
    }

    /// The message a key stands for now.
    pub fn get(&self, now: Millis, hash: u128) -> Option<(Seq, Memo)> {
        let known = self.by_hash.get(&hash).filter(|known| now < known.until_ms)?;
        Some((known.seq, known.memo(hash)))
    }

    /// What is remembered now for a message.
    pub fn of(&self, now: Millis, seq: Seq) -> Option<Memo> {
        let (known, memo) = self.get(now, *self.by_seq.get(&seq)?)?;
        (known == seq).then_some(memo)
    }

    /// Remembers a key.
    pub fn insert(&mut self, seq: Seq, memo: Memo) {
        let Memo { key, sent_ms, until_ms } = memo;
        let known = Known { seq, payload: key.payload, sent_ms, until_ms };
        if let Some(old) = self.by_hash.insert(key.hash, known)
            && old.seq != seq
        {
            self.by_seq.remove(&old.seq);
        }
        self.by_seq.insert(seq, key.hash);
    }

    /// Forgets up to `max` keys whose time is over; returns their number.
    pub fn sweep(&mut self, now: Millis, max: usize) -> usize {
        let mut swept = 0;
        while swept < max
            && let Some(oldest) = self.by_seq.first_entry()
            && self.by_hash.get(oldest.get()).is_none_or(|known| known.until_ms <= now)
        {
            self.by_hash.remove(&oldest.remove());
            swept += 1;
        }
        swept
    }

    /// When to sweep next.
    pub fn deadline(&self) -> Option<Millis> {
        let (_, hash) = self.by_seq.first_key_value()?;
        Some(self.by_hash.get(hash)?.until_ms.saturating_add(SWEEP_LAG_MS))
    }

    /// Every key still honoured, in order of its message.
    pub fn iter(&self, now: Millis) -> impl Iterator<Item = (Seq, Memo)> + '_ {
        self.by_seq.keys().filter_map(move |seq| Some((*seq, self.of(now, *seq)?)))
    }
}

impl Known {
    fn memo(self, hash: u128) -> Memo {
        Memo { key: Key { hash, payload: self.payload }, sent_ms: self.sent_ms, until_ms: self.until_ms }
    }
}

#[cfg(test)]
mod tests {
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
}
