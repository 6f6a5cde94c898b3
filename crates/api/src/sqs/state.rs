//! What the surface remembers beside the mailbox: in memory, bounded, and gone with the process.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use svc_mailbox::types::{Millis, TopicName};
use svc_mailbox::{Delivery, Receipt};

/// Maximum names remembered; while that many are fresh, a further name is not remembered.
const NAMES_MAX: usize = 100_000;
/// Maximum receives that can be repeated with their attempt id.
const ATTEMPTS_MAX: usize = 10_000;
/// Maximum payload bytes of the remembered receives.
const ATTEMPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Time for which a receive can be repeated with its attempt id.
const ATTEMPT_MS: Millis = 300_000;
/// Time for which a purged queue cannot be purged again.
pub(super) const PURGE_MS: Millis = 60_000;

/// Memory of the surface that no restart keeps.
#[derive(Default)]
pub(crate) struct State {
    /// Queues, with the time of their last purge.
    pub purged: Recent,
    /// Names of queues deleted lately.
    pub deleted: Recent,
    /// Receives that can be asked for again.
    pub attempts: Attempts,
}

/// Names, each with the time it was entered.
#[derive(Default)]
pub(super) struct Recent(Mutex<HashMap<TopicName, Millis>>);

/// Answers to receives that had an attempt id.
#[derive(Default)]
pub(super) struct Attempts {
    table: Mutex<Table>,
    /// Entries of the table: most nodes never have any, and then nobody takes the lock.
    count: AtomicUsize,
}

type AttemptKey = Arc<(TopicName, String)>;

#[derive(Default)]
struct Table {
    by_id: HashMap<AttemptKey, Attempt>,
    by_receipt: HashMap<Receipt, AttemptKey>,
    /// Attempts by age, oldest first; some may be gone from the table already.
    order: VecDeque<(Millis, AttemptKey)>,
    bytes: usize,
}

struct Attempt {
    at_ms: Millis,
    bytes: usize,
    deliveries: Vec<Delivery>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recent {
    /// Enters a name, unless it was entered less than so long ago.
    pub fn enter(&self, name: &TopicName, now: Millis, within_ms: Millis) -> bool {
        let mut names = lock(&self.0);
        if names.get(name).is_some_and(|at| now < at.saturating_add(within_ms)) {
            return false;
        }
        if names.len() >= NAMES_MAX {
            names.retain(|_, at| now < at.saturating_add(within_ms));
        }
        if names.len() < NAMES_MAX {
            names.insert(name.clone(), now);
        }
        true
    }

    /// Whether a name was entered less than so long ago.
    pub fn has(&self, name: &TopicName, now: Millis, within_ms: Millis) -> bool {
        within_ms > 0 && lock(&self.0).get(name).is_some_and(|at| now < at.saturating_add(within_ms))
    }

    pub fn forget(&self, name: &TopicName) {
        lock(&self.0).remove(name);
    }
}

impl Attempts {
    /// Messages answered to this attempt, if nothing happened to any of them since.
    pub fn get(&self, queue: &TopicName, id: &str, now: Millis) -> Option<Vec<Delivery>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let key = (queue.clone(), id.to_owned());
        let table = lock(&self.table);
        let attempt = table.by_id.get(&key).filter(|attempt| now < attempt.at_ms.saturating_add(ATTEMPT_MS))?;
        Some(attempt.deliveries.clone())
    }

    pub fn put(&self, queue: &TopicName, id: String, now: Millis, deliveries: &[Delivery]) {
        let key = Arc::new((queue.clone(), id));
        let bytes = deliveries.iter().map(|delivery| delivery.payload.len()).sum();
        let mut table = lock(&self.table);
        table.remove(&key);
        for delivery in deliveries {
            table.by_receipt.insert(delivery.receipt, Arc::clone(&key));
        }
        table.bytes += bytes;
        table.order.push_back((now, Arc::clone(&key)));
        table.by_id.insert(key, Attempt { at_ms: now, bytes, deliveries: deliveries.to_vec() });
        table.trim(now);
        self.count.store(table.by_id.len(), Ordering::Release);
    }

    /// Something happened to a message: the receive it was part of cannot be asked for again.
    pub fn touch(&self, receipt: &Receipt) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut table = lock(&self.table);
        if let Some(key) = table.by_receipt.get(receipt).cloned() {
            table.remove(&key);
        }
        self.count.store(table.by_id.len(), Ordering::Release);
    }
}

impl Table {
    fn remove(&mut self, key: &AttemptKey) {
        let Some(attempt) = self.by_id.remove(key) else { return };
        self.bytes -= attempt.bytes;
        for delivery in attempt.deliveries {
            self.by_receipt.remove(&delivery.receipt);
        }
    }

    /// Forgets what is too old, and the oldest if there is too much.
    fn trim(&mut self, now: Millis) {
        while let Some((at_ms, key)) = self.order.front() {
            let is_old = now >= at_ms.saturating_add(ATTEMPT_MS);
            let is_gone = self.by_id.get(key).is_none_or(|attempt| attempt.at_ms != *at_ms);
            let is_full = self.order.len() > ATTEMPTS_MAX || (self.bytes > ATTEMPT_BYTES_MAX && self.by_id.len() > 1);
            if !(is_old || is_gone || is_full) {
                return;
            }
            let key = Arc::clone(key);
            if !is_gone {
                self.remove(&key);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use svc_mailbox::Secret;
    use svc_mailbox::types::{MessageId, PartKey, TopicId};

    use super::*;

    fn name(text: &str) -> TopicName {
        text.parse().expect("a name")
    }

    fn delivery(seq: u64, bytes: usize) -> Delivery {
        let part = PartKey { topic: TopicId(1), partition: 0 };
        Delivery {
            msg_id: MessageId { sent_ms: 0, seq, tag: 0 },
            topic: name("q.fifo"),
            sent_ms: 0,
            idem_key: None,
            payload: Bytes::from(vec![0; bytes]),
            payload_hash: [0; 32],
            attrs: Vec::new(),
            corr_id: String::new(),
            group: None,
            shard: 0,
            attempt: 1,
            hash_chain: [0; 32],
            receipt: Secret::new([1; 32]).receipt(part, seq, 1, 0),
            fence: 1,
            first_received_ms: 0,
            until_ms: 0,
            history: Vec::new(),
            dead: None,
        }
    }

    #[test]
    fn a_name_is_remembered_for_its_time() {
        let recent = Recent::default();
        assert!(recent.enter(&name("a"), 100, 50));
        assert!(!recent.enter(&name("a"), 149, 50) && recent.has(&name("a"), 149, 50));
        assert!(recent.enter(&name("b"), 149, 50) && !recent.has(&name("a"), 150, 50));
        assert!(recent.enter(&name("a"), 150, 50));
        recent.forget(&name("a"));
        assert!(recent.enter(&name("a"), 151, 50) && !recent.has(&name("a"), 151, 0));
    }

    #[test]
    fn an_attempt_is_answered_again_until_something_happens_to_its_messages() {
        let attempts = Attempts::default();
        let queue = name("q.fifo");
        attempts.put(&queue, "one".to_owned(), 0, &[delivery(1, 1), delivery(2, 1)]);
        attempts.put(&queue, "two".to_owned(), 10, &[delivery(3, 1)]);
        let found = |id: &str, now| attempts.get(&queue, id, now).map(|deliveries| deliveries.len());
        assert_eq!((found("one", 299_999), found("one", 300_000), found("other", 1)), (Some(2), None, None));
        assert_eq!(attempts.get(&name("p.fifo"), "one", 1).map(|deliveries| deliveries.len()), None);
        attempts.touch(&delivery(2, 1).receipt);
        assert_eq!((found("one", 20), found("two", 20)), (None, Some(1)));
        attempts.touch(&delivery(3, 1).receipt);
        assert_eq!(attempts.count.load(Ordering::Acquire), 0);
    }

    #[test]
    fn attempts_are_bounded_in_number_bytes_and_age() {
        let attempts = Attempts::default();
        let queue = name("q.fifo");
        for index in 0..ATTEMPTS_MAX as u64 + 5 {
            attempts.put(&queue, index.to_string(), index, &[delivery(index, 1)]);
        }
        assert_eq!(attempts.count.load(Ordering::Acquire), ATTEMPTS_MAX);
        let half = ATTEMPT_BYTES_MAX / 2 + 1;
        attempts.put(&queue, "big".to_owned(), 20_000, &[delivery(1_000_001, half)]);
        attempts.put(&queue, "bigger".to_owned(), 20_001, &[delivery(1_000_002, half)]);
        assert_eq!(attempts.count.load(Ordering::Acquire), 1);
        assert!(attempts.get(&queue, "bigger", 20_002).is_some() && attempts.get(&queue, "big", 20_002).is_none());
        attempts.put(&queue, "late".to_owned(), 400_000, &[delivery(9, 1)]);
        let table = lock(&attempts.table);
        assert_eq!((table.by_id.len(), table.by_receipt.len(), table.order.len(), table.bytes), (1, 1, 1, 1));
    }
}
