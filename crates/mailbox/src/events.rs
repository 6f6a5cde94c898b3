//! What happens to messages, told to whoever watches. Loss-tolerant: the log is the truth, this is the news.
//!
//! Every event has a number, and the node remembers the last of them: a watcher that was away goes on where it stopped,
//! or is told how much it missed.

mod reader;
mod ring;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use ron_kernel::bus::Broadcast;
use ron_kernel::clock;
use ron_types::{Error, Kind};
use serde::{Serialize, Serializer};

use crate::engine::{Engine, lock};
use crate::types::{DeadReason, MessageId, Millis, TopicId, TopicName};

pub use reader::{EventItem, EventReader, EventsFrom, Missed};
use ring::Ring;

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A message went to the dead letters.
    Died {
        /// The topic it was for.
        topic: TopicName,
        /// Id of the message.
        #[serde(serialize_with = "as_text")]
        msg_id: MessageId,
        /// Why it is dead.
        reason: DeadReason,
    },
    /// A message was damaged on the disk and is gone.
    Lost {
        /// The topic that held it.
        topic: TopicName,
        /// Id of the message.
        #[serde(serialize_with = "as_text")]
        msg_id: MessageId,
    },
    /// Messages were moved to another topic, by an order or a move task.
    Moved {
        /// The topic that held them; none where the watcher may not know it.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<TopicName>,
        /// The topic that holds them now; none where the watcher may not know it.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<TopicName>,
        /// Messages moved.
        count: u64,
    },
    /// Too many deliveries fail: a partition's breaker opened, for the first time or again.
    BreakerOpened {
        /// Topic whose deliveries fail.
        topic: TopicName,
        /// Number of the partition.
        partition: u16,
        /// Deliveries that failed, of those that decided it.
        failing: u64,
        /// Deliveries that decided it.
        deliveries: u64,
        /// Nothing is delivered until then.
        until_ms: Millis,
    },
    /// A message was acknowledged after a pause: a partition's breaker closed.
    BreakerClosed {
        /// Topic whose deliveries go on.
        topic: TopicName,
        /// Number of the partition.
        partition: u16,
    },
    /// A topic was made.
    TopicMade {
        /// Name of the new topic.
        topic: TopicName,
    },
    /// A topic is gone.
    TopicGone {
        /// Name the topic had.
        topic: TopicName,
    },
    /// Partitions have moved to another number of shards.
    Rebalanced {
        /// Shards that own partitions now.
        shards: usize,
    },
    /// The start found records or files of the log lost or damaged; the rest is served.
    LogDamaged {
        /// Records that were durable once and are lost.
        records: u64,
        /// Files of the log that are not there.
        segments_missing: u32,
        /// Files of the log that are too short.
        segments_cut: u32,
    },
    /// The wall clock was hours ahead of the newest record at the start: what it would make too old is kept.
    ClockHeld {
        /// Milliseconds that the clock jumped ahead.
        jump_ms: u64,
        /// Time at which the jump is believed.
        until_ms: Millis,
    },
    /// An operator has confirmed that the clock is right.
    ClockConfirmed,
    /// The log has failed; the node is leaving.
    LogFailed {
        /// The error in words.
        detail: String,
    },
}

/// An event with its number and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumberedEvent {
    /// 1 for the first event of this run of the node, rising by 1.
    #[serde(skip)]
    pub number: u64,
    /// Wall-clock milliseconds since 1970.
    pub at_ms: Millis,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Names one event for a watcher that wants to go on behind it: `<run>-<number>`. Numbers start anew with every run of
/// the node, because they are kept in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// A random number of the run.
    pub run: u64,
    /// The event's number; 0 stands before the first one.
    pub number: u64,
}

/// Tells the events and remembers the last of them.
pub(crate) struct Events {
    run: u64,
    broadcast: Broadcast<Arc<NumberedEvent>>,
    ring: Mutex<Ring>,
}

impl Events {
    pub fn new(broadcast: Broadcast<Arc<NumberedEvent>>) -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        // The standard library seeds its hashers from the system; that is randomness enough to tell runs apart.
        Events { run: RandomState::new().hash_one("run"), broadcast, ring: Mutex::default() }
    }

    /// Tells everybody and remembers it. Costs one short lock; nothing is written as text before somebody reads it.
    pub fn publish(&self, event: Event) {
        let at_ms = clock::unix_millis();
        // Numbered and sent under one lock, so that every watcher hears events in the order of their numbers.
        let mut ring = lock(&self.ring);
        let event = ring.push(at_ms, event);
        self.broadcast.publish(event);
    }
}

impl Event {
    /// The topics it speaks of: one, two for a move, none for what concerns the whole node.
    pub fn topics(&self) -> impl Iterator<Item = &TopicName> {
        let (one, other) = match self {
            Event::Died { topic, .. }
            | Event::Lost { topic, .. }
            | Event::BreakerOpened { topic, .. }
            | Event::BreakerClosed { topic, .. }
            | Event::TopicMade { topic }
            | Event::TopicGone { topic } => (Some(topic), None),
            Event::Moved { from, to, .. } => (from.as_ref(), to.as_ref()),
            Event::Rebalanced { .. }
            | Event::LogDamaged { .. }
            | Event::ClockHeld { .. }
            | Event::ClockConfirmed
            | Event::LogFailed { .. } => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// Its kind, as it is written.
    pub const fn kind(&self) -> &'static str {
        match self {
            Event::Died { .. } => "died",
            Event::Lost { .. } => "lost",
            Event::Moved { .. } => "moved",
            Event::BreakerOpened { .. } => "breaker_opened",
            Event::BreakerClosed { .. } => "breaker_closed",
            Event::TopicMade { .. } => "topic_made",
            Event::TopicGone { .. } => "topic_gone",
            Event::Rebalanced { .. } => "rebalanced",
            Event::LogDamaged { .. } => "log_damaged",
            Event::ClockHeld { .. } => "clock_held",
            Event::ClockConfirmed => "clock_confirmed",
            Event::LogFailed { .. } => "log_failed",
        }
    }
}

/// Messages of one topic that were moved on one turn, by where they went: one event for each, not one for each message.
#[derive(Debug, Default)]
pub(crate) struct MovedTally(BTreeMap<TopicId, u64>);

impl MovedTally {
    /// A message went to this topic.
    pub fn count(&mut self, to: TopicId) {
        *self.0.entry(to).or_default() += 1;
    }
}

impl Engine {
    /// Tells of messages that left a topic on one turn.
    pub fn tell_of_moves(&self, from: TopicId, tally: MovedTally) {
        let name = |id| self.topics.by_id(id).map(|topic| topic.name.clone());
        for (to, count) in tally.0 {
            self.events.publish(Event::Moved { from: name(from), to: name(to), count });
        }
    }
}

fn as_text<S: Serializer>(id: &MessageId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{}", self.run, self.number)
    }
}

impl FromStr for EventId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = |(run, number): (&str, &str)| {
            let plain = run.len() == 16 && number.bytes().all(|byte| byte.is_ascii_digit());
            let id = EventId { run: u64::from_str_radix(run, 16).ok()?, number: number.parse().ok()? };
            plain.then_some(id)
        };
        let unknown = || Error::new(Kind::Schema, "the id of an event is written <run>-<number>, as the node gave it");
        text.split_once('-').and_then(read).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;
