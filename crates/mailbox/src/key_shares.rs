//! Room for messages with idempotency keys; and the keys by who sent them, so that one sender cannot have all of it.
//!
//! What a key takes is counted from when it was remembered to the end of its replay window, rounded up: who sent it
//! is not kept with it, and would be as large as the key. So keys that go earlier, with a topic that is purged, count
//! on to their end, and those from before a restart count for nobody; both only matter where memory for keys is scarce.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use ron_auth::Subject;
use ron_types::{Error, Kind};

use crate::engine::{Engine, lock};
use crate::partition::keys::KEY_BYTES;
use crate::types::Millis;

/// Parts of a replay window that are told apart.
const STEPS: u64 = 16;
/// Shortest part of a window that is told apart, in milliseconds.
const STEP_MS_MIN: u64 = 1024;
/// Ends that are told apart for one sender: three windows of different lengths, or more with their nearest ends as one.
const ENDS_MAX: usize = 3 * STEPS as usize;
/// Senders that are told apart at once.
const SENDERS_MAX: usize = 10_000;
/// Milliseconds between two looks for senders without keys, which cost a walk over all of them.
const SWEEP_EVERY_MS: u64 = 1000;

/// Keys of all senders.
#[derive(Debug, Default)]
pub(crate) struct KeyShares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    senders: HashMap<Arc<str>, Remembered>,
    swept_ms: Millis,
}

/// Keys of one sender.
#[derive(Debug, Default)]
struct Remembered {
    keys: u64,
    /// How many are forgotten when, the next first.
    ends: VecDeque<(Millis, u64)>,
}

/// Room there was for new messages and keys when a send began, or why there was none: bytes of memory.
#[derive(Clone)]
pub(crate) struct SendRoom {
    pub memory: Result<u64, Error>,
    /// None where no message has a key.
    pub keys: Option<Result<u64, Error>>,
}

impl Engine {
    /// Room for new messages and their keys. A message with a key is refused only on its shard's turn, once it is known
    /// that the key is new: one that was sent before takes no room, and its sender has to hear so.
    pub fn room_for_sends(&self, by: &Subject, has_keys: bool) -> Result<SendRoom, Error> {
        match has_keys {
            true => Ok(SendRoom { memory: self.admit_memory(), keys: Some(self.admit_keys(by)) }),
            false => Ok(SendRoom { memory: Ok(self.admit_memory()?), keys: None }),
        }
    }

    /// Refuses new idempotency keys where those there are take all the memory they may, or those of this sender as much
    /// as is free while it is scarce, so that whoever comes next finds as much as each has; gives the bytes that are
    /// free. The operator's load is his own affair.
    fn admit_keys(&self, by: &Subject) -> Result<u64, Error> {
        let used: u64 = self.shards.iter().map(|handle| lock(&handle.shared.numbers).key_bytes).sum();
        let max = self.live.get().value.key_bytes_max;
        let refused = |whose: &str| {
            let detail = format!(
                "the memory for idempotency keys is used up{whose} ({used} of {max} bytes, `mailbox.key_bytes_max`); \
                 keys are forgotten when their replay windows end"
            );
            Err(Error::new(Kind::Busy, detail))
        };
        if used >= max {
            return refused("");
        }
        if used >= max / 2 && !by.is_operator {
            let keys = self.key_shares.keys_of(&by.name, self.opened()?.clock.now());
            if keys * KEY_BYTES >= max - used {
                return refused(&format!(", as far as it is for {}", by.name));
            }
        }
        Ok(max - used)
    }
}

impl KeyShares {
    /// A key of a sender is remembered from now on.
    pub fn add(&self, sender: &Arc<str>, now: Millis, window_ms: u64) {
        let step_ms = (window_ms / STEPS).max(STEP_MS_MIN).next_power_of_two();
        let end_ms = now.saturating_add(window_ms).checked_next_multiple_of(step_ms).unwrap_or(Millis::MAX);
        let mut table = lock(&self.0);
        if let Some(remembered) = table.senders.get_mut(sender) {
            return remembered.add(now, end_ms);
        }
        if table.has_room(now) {
            table.senders.entry(Arc::clone(sender)).or_default().add(now, end_ms);
        }
    }

    /// Keys count for nobody from now on, until they are remembered anew.
    pub fn forget_all(&self) {
        *lock(&self.0) = Table::default();
    }

    /// Keys of a sender that are remembered now.
    pub fn keys_of(&self, sender: &str, now: Millis) -> u64 {
        lock(&self.0).senders.get_mut(sender).map_or(0, |remembered| {
            remembered.forget(now);
            remembered.keys
        })
    }
}

impl Table {
    /// Whether one more sender can be told apart. The keys of one that cannot count only among those of all.
    fn has_room(&mut self, now: Millis) -> bool {
        if self.senders.len() >= SENDERS_MAX && now >= self.swept_ms.saturating_add(SWEEP_EVERY_MS) {
            self.swept_ms = now;
            self.senders.retain(|_, remembered| {
                remembered.forget(now);
                remembered.keys > 0
            });
        }
        self.senders.len() < SENDERS_MAX
    }
}

impl Remembered {
    fn add(&mut self, now: Millis, end_ms: Millis) {
        self.forget(now);
        self.keys += 1;
        match self.ends.binary_search_by_key(&end_ms, |(end_ms, _)| *end_ms) {
            Ok(place) => self.ends[place].1 += 1,
            Err(place) => self.ends.insert(place, (end_ms, 1)),
        }
        if self.ends.len() > ENDS_MAX
            && let Some((_, keys)) = self.ends.pop_front()
        {
            self.ends[0].1 += keys;
        }
    }

    fn forget(&mut self, now: Millis) {
        while let Some((_, keys)) = self.ends.pop_front_if(|(end_ms, _)| *end_ms <= now) {
            self.keys -= keys;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_for_their_sender_until_their_windows_end() {
        let shares = KeyShares::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        for now in 0..1000 {
            shares.add(&one, now, 60_000);
        }
        shares.add(&other, 500, 1_200_000);
        assert_eq!((shares.keys_of("one", 1000), shares.keys_of("other", 1000)), (1000, 1));
        assert_eq!(shares.keys_of("one", 59_999), 1000, "none is forgotten too early");
        assert_eq!(shares.keys_of("one", 60_999 + 2 * 4096), 0, "nor much too late");
        assert_eq!((shares.keys_of("other", 1_199_999), shares.keys_of("nobody", 0)), (1, 0));
    }

    #[test]
    fn what_is_kept_of_a_sender_is_bounded() {
        let shares = KeyShares::default();
        let sender: Arc<str> = "s".into();
        for window_ms in 1..=10_000 {
            shares.add(&sender, 0, window_ms * 1_000_000);
        }
        assert!(lock(&shares.0).senders["s"].ends.len() <= ENDS_MAX);
        assert_eq!(shares.keys_of("s", 1), 10_000);
        shares.add(&sender, u64::MAX, u64::MAX);
        assert_eq!(shares.keys_of("s", u64::MAX - 1), 1);
    }
}
