//! The judge of a queue: what clients saw, in the order they saw it, and every promise it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// A message: its sender and the sender's count. A sender sends one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub sender: u32,
    pub number: u64,
}

/// Something a client did or saw.
#[derive(Clone, Debug)]
pub enum Event {
    /// A send is on its way.
    Sending(Key),
    /// The send was answered with success.
    Sent(Key, String),
    /// A message was received.
    Delivered(Delivery),
    /// An acknowledgement is on its way.
    Acking(Key),
    /// It was answered: done.
    Acked(Key, u64),
    /// It was answered: refused, so the message is still there.
    AckRefused(Key),
}

/// A message received.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub key: Key,
    pub msg_id: String,
    pub fence: u64,
    /// The line it stands in, where order is promised.
    pub group: Option<String>,
    /// Events there were when the receiver asked.
    pub asked_at: usize,
}

/// Everything that was seen, in one order.
#[derive(Debug, Default)]
pub struct History {
    events: Mutex<Vec<Event>>,
}

impl History {
    /// Notes something; how many events there are now.
    pub fn note(&self, event: Event) -> usize {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        events.len()
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The verdict on everything so far. Only meant for a history at whose end everything was taken out.
    pub fn judge(&self) -> Verdict {
        judge(&self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a history says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sends answered with success.
    pub sent: usize,
    /// Deliveries.
    pub delivered: usize,
    /// Deliveries of a message after its first: allowed.
    pub duplicated: usize,
    /// Messages whose last acknowledgement has no answer: they may be gone or not.
    pub unsure: usize,
    /// The most later messages of a sender that were received before an earlier one was for the first time.
    pub passed_by_max: usize,
    /// Broken promises.
    pub broken: Broken,
}

/// Promises that were broken, and by which messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// Acknowledged to the sender and never received.
    pub never_received: Vec<Key>,
    /// Received, not acknowledged by anybody, and gone.
    pub lost_after_receipt: Vec<Key>,
    /// Lost although a later message of the same sender was received.
    pub lost_in_the_middle: Vec<Key>,
    /// Delivered again after their acknowledgement was accepted.
    pub returned_after_ack: Vec<Key>,
    /// Delivered for the first time after a later one of their line.
    pub reordered: Vec<Key>,
    /// One idempotency key, several messages.
    pub doubled: Vec<Key>,
    /// Received and never sent.
    pub invented: Vec<Key>,
}

/// What is known of one message.
#[derive(Default)]
struct Known {
    is_sending: bool,
    is_sent: bool,
    ids: BTreeSet<String>,
    deliveries: usize,
    acks_open: usize,
    /// Where in the history it was acknowledged, and under which lease.
    acked: Option<(usize, u64)>,
}

pub fn judge(events: &[Event]) -> Verdict {
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    let mut broken = Broken::default();
    let mut lines: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    let mut received: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let (mut delivered, mut passed_by_max) = (0, 0);
    for (place, event) in events.iter().enumerate() {
        match event {
            Event::Sending(key) => known.entry(*key).or_default().is_sending = true,
            Event::Sent(key, msg_id) => {
                let message = known.entry(*key).or_default();
                message.is_sent = true;
                message.ids.insert(msg_id.clone());
            }
            Event::Acking(key) => known.entry(*key).or_default().acks_open += 1,
            Event::Acked(key, fence) => {
                let message = known.entry(*key).or_default();
                message.acks_open -= 1;
                message.acked.get_or_insert((place, *fence));
            }
            Event::AckRefused(key) => known.entry(*key).or_default().acks_open -= 1,
            Event::Delivered(delivery) => {
                delivered += 1;
                let message = known.entry(delivery.key).or_default();
                message.receive(delivery, &mut broken);
                if message.deliveries == 1 {
                    let of_sender = received.entry(delivery.key.sender).or_default();
                    passed_by_max = passed_by_max.max(of_sender.range(delivery.key.number..).count());
                    of_sender.insert(delivery.key.number);
                }
                if let (Some(group), 1) = (&delivery.group, message.deliveries) {
                    let last = lines.entry((delivery.key.sender, group)).or_insert(0);
                    if delivery.key.number < *last {
                        broken.reordered.push(delivery.key);
                    }
                    *last = delivery.key.number.max(*last);
                }
            }
        }
    }
    find_lost(&known, &mut broken);
    broken.doubled.extend(known.iter().filter(|(_, message)| message.ids.len() > 1).map(|(key, _)| *key));
    Verdict {
        sent: known.values().filter(|message| message.is_sent).count(),
        delivered,
        duplicated: known.values().map(|message| message.deliveries.saturating_sub(1)).sum(),
        unsure: known.values().filter(|message| message.acked.is_none() && message.acks_open > 0).count(),
        passed_by_max,
        broken,
    }
}

impl Known {
    fn receive(&mut self, delivery: &Delivery, broken: &mut Broken) {
        self.deliveries += 1;
        self.ids.insert(delivery.msg_id.clone());
        if !self.is_sending {
            broken.invented.push(delivery.key);
        }
        // Whoever asked earlier may see the answer later; a newer lease than the one that was accepted may never be.
        let returned = |(place, fence): (usize, u64)| delivery.asked_at > place || delivery.fence > fence;
        if self.acked.is_some_and(returned) {
            broken.returned_after_ack.push(delivery.key);
        }
    }

    fn is_lost(&self) -> bool {
        self.is_sent && self.acked.is_none() && self.acks_open == 0
    }
}

fn find_lost(known: &BTreeMap<Key, Known>, broken: &mut Broken) {
    let mut last_received: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, _) in known.iter().filter(|(_, message)| message.deliveries > 0) {
        last_received.insert(key.sender, key.number);
    }
    for (key, message) in known.iter().filter(|(_, message)| message.is_lost()) {
        match message.deliveries {
            0 => broken.never_received.push(*key),
            _ => broken.lost_after_receipt.push(*key),
        }
        if last_received.get(&key.sender).is_some_and(|last| *last > key.number) {
            broken.lost_in_the_middle.push(*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key { sender: 1, number }
    }

    fn sent(number: u64) -> [Event; 2] {
        [Event::Sending(key(number)), Event::Sent(key(number), format!("id{number}"))]
    }

    fn delivered(number: u64, fence: u64, asked_at: usize) -> Event {
        let group = Some("g".to_owned());
        Event::Delivered(Delivery { key: key(number), msg_id: format!("id{number}"), fence, group, asked_at })
    }

    fn acked(number: u64, fence: u64) -> [Event; 2] {
        [Event::Acking(key(number)), Event::Acked(key(number), fence)]
    }

    /// Sent, received and acknowledged.
    fn whole(number: u64) -> Vec<Event> {
        let mut events = sent(number).to_vec();
        events.push(delivered(number, 1, 0));
        events.extend(acked(number, 1));
        events
    }

    #[test]
    fn a_good_history_is_called_good() {
        let mut events = whole(1);
        events.extend(sent(2));
        // Delivered twice, and the answer to the last acknowledgement never came.
        events.extend([delivered(2, 1, 3), Event::Acking(key(2)), Event::AckRefused(key(2)), delivered(2, 2, 4)]);
        events.push(Event::Acking(key(2)));
        // No answer to this send, and it was not taken in.
        events.push(Event::Sending(key(3)));
        // No answer to this send, but it was taken in.
        events.push(Event::Sending(key(4)));
        events.push(delivered(4, 1, 5));
        events.extend(acked(4, 1));
        let verdict = judge(&events);
        assert_eq!(verdict.broken, Broken::default());
        assert_eq!((verdict.sent, verdict.delivered, verdict.duplicated, verdict.unsure), (2, 4, 1, 1));
        assert_eq!(verdict.passed_by_max, 0);
        let late = [delivered(2, 1, 0), delivered(4, 1, 0), delivered(3, 1, 0), delivered(1, 1, 0)];
        assert_eq!(judge(&late).passed_by_max, 3);
    }

    #[test]
    fn every_broken_promise_is_seen() {
        let one = vec![key(1)];
        let broken = Broken::default;
        let concat = |parts: &[&[Event]]| parts.concat();
        let lost = concat(&[&sent(1), &sent(2)]);
        let cases = [
            ("never received", lost, Broken { never_received: vec![key(1), key(2)], ..broken() }),
            (
                "lost in the middle",
                concat(&[&sent(1), &whole(2)]),
                Broken { never_received: one.clone(), lost_in_the_middle: one.clone(), ..broken() },
            ),
            (
                "gone after a receipt nobody acknowledged",
                concat(&[&sent(1), &[delivered(1, 1, 0)]]),
                Broken { lost_after_receipt: one.clone(), ..broken() },
            ),
            (
                "gone although the acknowledgement was refused",
                concat(&[&sent(1), &[delivered(1, 1, 0), Event::Acking(key(1)), Event::AckRefused(key(1))]]),
                Broken { lost_after_receipt: one.clone(), ..broken() },
            ),
            (
                "asked for after the acknowledgement",
                concat(&[&whole(1), &[delivered(1, 1, 5)]]),
                Broken { returned_after_ack: one.clone(), ..broken() },
            ),
            (
                "under a newer lease than the acknowledged one",
                concat(&[&whole(1), &[delivered(1, 2, 0)]]),
                Broken { returned_after_ack: one.clone(), ..broken() },
            ),
            ("out of order", concat(&[&whole(2), &whole(1)]), Broken { reordered: one.clone(), ..broken() }),
            (
                "two messages for one key",
                concat(&[&[Event::Sent(key(1), "other".to_owned())], &whole(1)]),
                Broken { doubled: one.clone(), ..broken() },
            ),
            ("out of nowhere", concat(&[&[delivered(1, 1, 0)], &acked(1, 1)]), Broken { invented: one, ..broken() }),
        ];
        for (name, events, expected) in cases {
            assert_eq!(judge(&events).broken, expected, "{name}");
        }
        // An older answer that is seen late is no return.
        assert_eq!(judge(&concat(&[&whole(1), &[delivered(1, 1, 2)]])).broken, broken());
    }
}
