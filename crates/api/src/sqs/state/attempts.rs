//! Receives that can be asked for again with their attempt id: all the bytes they hold count, by queue and in all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use svc_mailbox::types::{Attempt as EndedDelivery, Millis, TopicName};
use svc_mailbox::{Delivery, Receipt};

use super::{is_recent, lock};

/// Time for which a receive can be repeated with its attempt id.
const AGE_MS_MAX: Millis = 300_000;
/// Maximum receives remembered.
const COUNT_MAX: usize = 10_000;
/// Maximum receives remembered of one queue, so that one busy queue leaves room for the others.
const COUNT_PER_QUEUE_MAX: usize = 2_500;
/// Maximum bytes held by all remembered receives.
const BYTES_MAX: usize = 32 << 20;
/// Maximum bytes held by the remembered receives of one queue.
const BYTES_PER_QUEUE_MAX: usize = 8 << 20;
/// Bytes of the tables for one receive beside its id, and for one delivery beside itself: nodes and spare places of the
/// maps, rounded up.
const TABLE_BYTES: usize = 512;
const TABLE_BYTES_PER_DELIVERY: usize = 128;

/// Answers to receives that had an attempt id.
#[derive(Default)]
pub(in crate::sqs) struct Attempts {
    table: Mutex<Table>,
    /// Entries of the table: most nodes never have any, and then nobody takes the lock.
    count: AtomicUsize,
}

type AttemptKey = Arc<(TopicName, String)>;

#[derive(Default)]
struct Table {
    by_id: HashMap<AttemptKey, Attempt>,
    by_receipt: HashMap<Receipt, AttemptKey>,
    /// Attempts by their number, oldest first.
    by_age: BTreeMap<u64, AttemptKey>,
    of_queue: HashMap<TopicName, QueueAttempts>,
    bytes: usize,
    last_number: u64,
}

/// Part of one queue in the table.
#[derive(Default)]
struct QueueAttempts {
    numbers: BTreeSet<u64>,
    bytes: usize,
}

struct Attempt {
    number: u64,
    at_ms: Millis,
    bytes: usize,
    deliveries: Vec<Delivery>,
}

impl Attempts {
    /// Messages answered to this attempt, if nothing happened to any of them since.
    pub fn get(&self, queue: &TopicName, id: &str, now: Millis) -> Option<Vec<Delivery>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let key = (queue.clone(), id.to_owned());
        let mut table = lock(&self.table);
        table.drop_old(now);
        self.count.store(table.by_id.len(), Ordering::Release);
        table.by_id.get(&key).map(|attempt| attempt.deliveries.clone())
    }

    /// Remembers an answer; one that alone is over the bound of its queue is not remembered, and a retry of it receives
    /// anew.
    pub fn put(&self, queue: &TopicName, id: String, now: Millis, deliveries: &[Delivery]) {
        let key = Arc::new((queue.clone(), id));
        let bytes = TABLE_BYTES + key.1.len() + deliveries.iter().map(held_bytes).sum::<usize>();
        let mut table = lock(&self.table);
        table.remove(&key);
        if bytes <= BYTES_PER_QUEUE_MAX {
            table.insert(key, now, bytes, deliveries.iter().map(own).collect());
        }
        table.drop_old(now);
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
    fn insert(&mut self, key: AttemptKey, at_ms: Millis, bytes: usize, deliveries: Vec<Delivery>) {
        self.last_number += 1;
        let number = self.last_number;
        for delivery in &deliveries {
            self.by_receipt.insert(delivery.receipt, Arc::clone(&key));
        }
        self.by_age.insert(number, Arc::clone(&key));
        self.bytes += bytes;
        let queue = self.of_queue.entry(key.0.clone()).or_default();
        queue.bytes += bytes;
        queue.numbers.insert(number);
        let name = key.0.clone();
        self.by_id.insert(key, Attempt { number, at_ms, bytes, deliveries });
        self.make_room(&name);
    }

    fn remove(&mut self, key: &AttemptKey) {
        let Some(attempt) = self.by_id.remove(key) else { return };
        self.bytes -= attempt.bytes;
        self.by_age.remove(&attempt.number);
        if let Some(queue) = self.of_queue.get_mut(&key.0) {
            queue.bytes -= attempt.bytes;
            queue.numbers.remove(&attempt.number);
            if queue.numbers.is_empty() {
                self.of_queue.remove(&key.0);
            }
        }
        for delivery in attempt.deliveries {
            self.by_receipt.remove(&delivery.receipt);
        }
    }

    /// Forgets the oldest of this queue while it is over its bounds, then the oldest of all.
    fn make_room(&mut self, queue: &TopicName) {
        while let Some(part) = self.of_queue.get(queue)
            && (part.bytes > BYTES_PER_QUEUE_MAX || part.numbers.len() > COUNT_PER_QUEUE_MAX)
            && let Some(oldest) = part.numbers.first().copied()
        {
            self.remove_number(oldest);
        }
        while (self.bytes > BYTES_MAX || self.by_id.len() > COUNT_MAX)
            && let Some((&oldest, _)) = self.by_age.first_key_value()
        {
            self.remove_number(oldest);
        }
    }

    fn drop_old(&mut self, now: Millis) {
        while let Some((&oldest, key)) = self.by_age.first_key_value()
            && self.by_id.get(key).is_none_or(|attempt| !is_recent(attempt.at_ms, now, AGE_MS_MAX))
        {
            self.remove_number(oldest);
        }
    }

    /// Removes an attempt from every table; its number goes even if nothing else is left of it, so that loops over the
    /// numbers end.
    fn remove_number(&mut self, number: u64) {
        if let Some(key) = self.by_age.remove(&number) {
            self.remove(&key);
        }
    }
}

/// Bytes of memory that a remembered delivery holds.
fn held_bytes(delivery: &Delivery) -> usize {
    let attrs = delivery.attrs.iter().map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len());
    let texts = delivery.idem_key.as_ref().map_or(0, String::len)
        + delivery.corr_id.len()
        + delivery.group.as_ref().map_or(0, |group| group.len());
    let of_ended = |ended: &EndedDelivery| size_of::<EndedDelivery>() + ended.consumer.len() + ended.outcome.len();
    let history = delivery.history.iter().map(of_ended).sum::<usize>()
        + delivery.dead.as_ref().map_or(0, |dead| dead.last_error.len());
    size_of::<Delivery>() + TABLE_BYTES_PER_DELIVERY + delivery.payload.len() + attrs.sum::<usize>() + texts + history
}

/// A copy that shares no buffer: a slice of a large read would hold all of it, and only the slice is counted.
fn own(delivery: &Delivery) -> Delivery {
    Delivery { payload: Bytes::copy_from_slice(&delivery.payload), ..delivery.clone() }
}

#[cfg(test)]
mod tests {
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

    fn count(attempts: &Attempts) -> usize {
        attempts.count.load(Ordering::Acquire)
    }

    #[test]
    fn an_attempt_is_answered_again_until_something_happens_to_its_messages() {
        let attempts = Attempts::default();
        let queue = name("q.fifo");
        attempts.put(&queue, "one".to_owned(), 0, &[delivery(1, 1), delivery(2, 1)]);
        attempts.put(&queue, "two".to_owned(), 10, &[delivery(3, 1)]);
        let found = |id: &str, now| attempts.get(&queue, id, now).map(|deliveries| deliveries.len());
        assert_eq!((found("one", 299_999), found("other", 1)), (Some(2), None));
        assert_eq!(attempts.get(&name("p.fifo"), "one", 1).map(|deliveries| deliveries.len()), None);
        attempts.touch(&delivery(2, 1).receipt);
        assert_eq!((found("one", 20), found("two", 20)), (None, Some(1)));
        assert_eq!((found("two", 300_009), found("two", 300_010), count(&attempts)), (Some(1), None, 0));
        attempts.put(&queue, "three".to_owned(), 10, &[delivery(4, 1)]);
        attempts.touch(&delivery(4, 1).receipt);
        assert_eq!(count(&attempts), 0);
    }

    #[test]
    fn attempts_are_bounded_in_number_for_each_queue_and_in_all() {
        let attempts = Attempts::default();
        for queue in 0..5 {
            let queue = name(&format!("q{queue}.fifo"));
            for index in 0..COUNT_PER_QUEUE_MAX as u64 + 5 {
                attempts.put(&queue, index.to_string(), 0, &[delivery(index, 1)]);
            }
        }
        let table = lock(&attempts.table);
        assert_eq!((table.by_id.len(), table.by_age.len()), (COUNT_MAX, COUNT_MAX));
        assert!(table.of_queue.values().all(|part| part.numbers.len() <= COUNT_PER_QUEUE_MAX));
    }

    #[test]
    fn attempts_are_bounded_by_all_the_bytes_they_hold() {
        let attempts = Attempts::default();
        let (queue, other) = (name("q.fifo"), name("p.fifo"));
        attempts.put(&other, "first".to_owned(), 0, &[delivery(1, 1)]);
        let attributes = |seq: u64, bytes: usize| {
            let attrs = (0..10).map(|index| (format!("name-{index}"), "v".repeat(bytes / 10))).collect();
            Delivery { attrs, ..delivery(seq, 1) }
        };
        // Each holds a quarter of what a queue may hold, nearly all of it in attributes.
        for index in 0..20 {
            attempts.put(&queue, index.to_string(), 1, &[attributes(100 + index, BYTES_PER_QUEUE_MAX / 4)]);
            assert!(lock(&attempts.table).of_queue[&queue].bytes <= BYTES_PER_QUEUE_MAX);
        }
        let found = |queue: &TopicName, id: &str| attempts.get(queue, id, 2).is_some();
        assert!(found(&queue, "19") && found(&queue, "17") && !found(&queue, "16"));
        assert!(found(&other, "first"), "another queue keeps what it has");
        attempts.put(&other, "large".to_owned(), 2, &[delivery(2, BYTES_PER_QUEUE_MAX)]);
        assert!(!found(&other, "large") && found(&other, "first"), "what is over the bound alone displaces nothing");
        for index in 0..8 {
            let queue = name(&format!("r{index}.fifo"));
            attempts.put(&queue, "one".to_owned(), 3, &[delivery(200 + index, BYTES_PER_QUEUE_MAX * 3 / 4)]);
            assert!(lock(&attempts.table).bytes <= BYTES_MAX);
        }
        assert!(!found(&other, "first") && found(&name("r7.fifo"), "one"), "the oldest of all make room");
    }

    #[test]
    fn nothing_is_left_of_what_is_forgotten() {
        let attempts = Attempts::default();
        let queue = name("q.fifo");
        for index in 0..20 {
            attempts.put(&queue, (index % 7).to_string(), index, &[delivery(index, 100)]);
        }
        attempts.put(&name("p.fifo"), "late".to_owned(), 400_000, &[delivery(9, 1)]);
        attempts.touch(&delivery(9, 1).receipt);
        let table = lock(&attempts.table);
        let left = (table.by_id.len(), table.by_receipt.len(), table.by_age.len(), table.of_queue.len(), table.bytes);
        assert_eq!(left, (0, 0, 0, 0, 0));
    }
}
