//! One shard's messages: what happens to them, decided at once in memory and written to the journal; no clock, no I/O.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use ron_log::{Class, Position};
use ron_types::limits::mailbox::PARTITIONS_MAX;
use ron_types::{Error, Kind};

use crate::clock::{ClockReading, Hold};
use crate::partition::apply::MessageInTransit;
use crate::partition::{Held, Partition};
use crate::types::{BreakerTurn, Dead, Dedup, Millis, PartKey, Seq, TopicId, TopicSettings};

mod change;
mod context;
mod due;
mod hot;
mod inspect;
mod lease;
mod relocate;
mod remains;
mod replay;
mod send;

use context::ShardContext;
pub(crate) use relocate::LostMessage;
use remains::Remains;

/// What the core needs of the log.
pub trait Journal {
    /// Adds a record; where it will be is known at once. `Busy` when there is no room, `Degraded` when the log failed.
    fn append(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, Error>;

    /// The body there is no longer needed.
    fn release(&mut self, position: Position);

    /// Whether a short record of this class would find room now; always, in a journal without bounds.
    fn takes(&self, _class: Class) -> bool {
        true
    }
}

/// An idempotency key and what it stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Hash of the key as the sender gave it.
    pub hash: u128,
    /// Hash of what was sent with it.
    pub payload: u64,
}

/// A message to take in.
#[derive(Clone, Debug)]
pub struct Send<'a> {
    /// Where it goes.
    pub part: PartKey,
    /// Group the sender gave the message.
    pub group: Option<&'a str>,
    /// Its idempotency key.
    pub key: Option<Key>,
    /// What makes another message with the key the same; the key's hash already tells groups apart.
    pub dedup: Dedup,
    /// How long it waits; none means as the topic says.
    pub delay_ms: Option<u64>,
    /// When it was sent.
    pub sent_ms: Millis,
    /// The number it gets unless it is a duplicate.
    pub seq: Seq,
    /// Its bytes: an encoded envelope.
    pub body: Bytes,
}

/// A message that was taken in, now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number: the first one's, for a duplicate.
    pub seq: Seq,
    /// When it was sent: when the first was, for a duplicate.
    pub sent_ms: Millis,
    /// The key was known, so nothing new was taken in.
    pub duplicate: bool,
}

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Recv<'a> {
    /// Messages at most.
    pub max_messages: usize,
    /// Bytes of messages as they lie in the log, at most; the first message is given whatever its size.
    pub max_bytes: usize,
    /// How long the lease lasts; none means as the topic says.
    pub visibility_ms: Option<u64>,
    /// Who asks.
    pub consumer: &'a str,
}

/// Leases of a message whose receipts settle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// The newest lease only: whoever lost the message to somebody else cannot end it for them.
    Newest,
    /// Every lease this partition gave, ended or not, while the message is here. Groups in strict order know no such
    /// leniency: there it means the newest lease.
    Any,
}

/// How a delivery failed.
#[derive(Clone, Copy, Debug)]
pub struct Nack<'a> {
    /// What the consumer says.
    pub reason: &'a str,
    /// When to try again; none means after the topic's backoff.
    pub delay_ms: Option<u64>,
    /// Never try again: it goes to the dead letters.
    pub reject: bool,
}

/// What became of a message whose delivery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nacked {
    /// It will be delivered again.
    Requeued {
        /// Not before then.
        due_ms: Millis,
    },
    /// It went to the dead letters.
    Died,
}

/// A message on its way to another partition; its journal record is already written.
#[derive(Clone, Debug)]
pub struct Handover {
    /// Where it goes.
    pub to: PartKey,
    /// Number of the message.
    pub seq: Seq,
    in_transit: MessageInTransit,
    hot: Option<Bytes>,
}

impl Handover {
    /// Why the message is dead, if that is why it goes.
    pub fn dead(&self) -> Option<&Dead> {
        self.in_transit.dead()
    }

    /// When the message was sent.
    pub fn sent_ms(&self) -> Millis {
        self.in_transit.sent_ms()
    }

    /// Where its body is.
    pub fn position(&self) -> Position {
        self.in_transit.position()
    }
}

/// The partitions one worker owns.
pub struct Shard {
    parts: HashMap<PartKey, Box<Partition>>,
    topics: HashMap<TopicId, (Arc<TopicSettings>, Option<PartKey>)>,
    context: ShardContext,
    remains: Remains,
    hold: Hold,
    /// How the clock was set when its times were last made to agree with it; none before they were first.
    anchor_ms: Option<Millis>,
}

impl Shard {
    /// No partitions yet; this many bytes of payload may stay in memory for deliveries to come.
    pub fn new(hot_bytes_max: usize) -> Self {
        let context = ShardContext::new(hot_bytes_max);
        let (parts, topics, remains) = (HashMap::new(), HashMap::new(), Remains::default());
        Shard { parts, topics, context, remains, hold: Hold::NONE, anchor_ms: None }
    }

    /// The rules of a topic and where its dead messages go: told before its first message, and at every change.
    pub fn settings(&mut self, topic: TopicId, settings: Arc<TopicSettings>, dlq: Option<PartKey>) {
        for partition in 0..PARTITIONS_MAX {
            if let Some(part) = self.parts.get_mut(&PartKey { topic, partition }) {
                part.set_settings(settings.clone(), dlq);
                self.context.finish(part);
            }
        }
        self.topics.insert(topic, (settings, dlq));
    }

    /// When [`Shard::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Millis> {
        let hold_ends = (self.hold != Hold::NONE).then_some(self.hold.until_ms);
        self.context.agenda.first().into_iter().chain(hold_ends).min()
    }

    /// Keeps what would be too old only because the clock jumped, until the hold ends or another is given.
    pub fn hold_back(&mut self, hold: Hold) {
        if std::mem::replace(&mut self.hold, hold) == hold {
            return;
        }
        for part in self.parts.values_mut() {
            part.set_hold(hold);
            self.context.arm(part);
        }
    }

    /// Makes its times agree with the clock, if that was set since they last did; whether it was.
    pub(crate) fn follow_clock(&mut self, clock: ClockReading) -> bool {
        let before_ms = self.anchor_ms.replace(clock.anchor_ms);
        let Some(before_ms) = before_ms.filter(|before_ms| *before_ms != clock.anchor_ms) else { return false };
        let by_ms = clock.anchor_ms.cast_signed().saturating_sub(before_ms.cast_signed());
        for part in self.parts.values_mut() {
            part.follow_clock(by_ms);
            self.context.arm(part);
        }
        true
    }

    /// The partitions where something became deliverable since this was last asked.
    pub fn take_ready(&mut self, out: &mut Vec<PartKey>) {
        for key in self.context.woken.drain(..) {
            if let Some(part) = self.parts.get_mut(&key) {
                part.woken = false;
                out.push(key);
            }
        }
    }

    /// Breakers that have opened or closed since this was last asked.
    pub fn take_breaker_turns(&mut self) -> Vec<BreakerTurn> {
        std::mem::take(&mut self.context.turns)
    }

    /// Messages that left a partition: each is to be given to [`Shard::adopt`] of the shard that owns `to`.
    pub fn take_outbox(&mut self) -> Vec<Handover> {
        std::mem::take(&mut self.context.outbox)
    }

    /// The same for one who has room for them.
    pub(crate) fn move_outbox(&mut self, out: &mut Vec<Handover>) {
        out.append(&mut self.context.outbox);
    }

    /// A message that left another partition arrives; its record is already written.
    pub fn adopt(&mut self, _now: Millis, handover: Handover) {
        let Handover { to, seq, in_transit, hot } = handover;
        let (part, context) = self.part_mut(to);
        part.remove(seq);
        part.apply_arrival(seq, in_transit);
        context.homes.insert(seq, to);
        if let Some(body) = hot {
            context.hot.put(seq, body);
        }
        context.finish(part);
    }

    /// Takes a whole partition away, for another shard.
    pub fn take_part(&mut self, key: PartKey) -> Option<Box<Partition>> {
        let mut part = self.parts.remove(&key)?;
        self.context.disarm(&mut part);
        self.context.count(&mut part, Held::default());
        // All that is hot is newer than the first of it, so that most of what waits is not looked at.
        if let Some(first) = self.context.hot.first() {
            part.index.from(first).for_each(|entry| drop(self.context.hot.take(entry.seq)));
        }
        for (seq, _) in part.moved.iter() {
            self.context.homes.remove(*seq);
        }
        part.woken = false;
        Some(part)
    }

    /// Takes over a whole partition.
    pub fn put_part(&mut self, mut part: Box<Partition>) {
        if let Some((settings, dlq)) = self.topics.get(&part.key.topic) {
            part.set_settings(settings.clone(), *dlq);
        }
        part.set_hold(self.hold);
        for (seq, _) in part.moved.iter() {
            self.context.homes.insert(*seq, part.key);
        }
        part.stirred = true;
        self.context.finish(&mut part);
        self.parts.insert(part.key, part);
    }

    /// The partition, made if it is new, and the rest of the shard.
    fn part_mut(&mut self, key: PartKey) -> (&mut Partition, &mut ShardContext) {
        let part = self.parts.entry(key).or_insert_with(|| {
            let (settings, dlq) = self.topics.get(&key.topic).cloned().unwrap_or_default();
            let mut part = Box::new(Partition::new(key, settings, dlq));
            part.set_hold(self.hold);
            part
        });
        (part, &mut self.context)
    }

    /// The partition if it has ever had a message, and the rest of the shard.
    fn known_part(&mut self, key: PartKey) -> Result<(&mut Partition, &mut ShardContext), Error> {
        let part = self.parts.get_mut(&key).ok_or_else(no_message)?;
        Ok((part, &mut self.context))
    }
}

fn no_message() -> Error {
    Error::new(Kind::NotFound, "there is no such message in this partition")
}

fn lease_ended() -> Error {
    Error::new(Kind::NotFound, "the lease has ended")
}

/// The start of a text that fits, cut between characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests;
