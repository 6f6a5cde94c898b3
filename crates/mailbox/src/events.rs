//! What happens to messages, told to whoever watches. Loss-tolerant: the log is the truth, this is the news.

use ron_kernel::bus::Broadcast;
use serde::Serialize;

use crate::types::{DeadReason, Millis, TopicName};

/// Tells the events.
pub type Events = Broadcast<Event>;

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A message went to the dead letters.
    Died {
        /// The topic it was for.
        topic: TopicName,
        /// The message.
        msg_id: String,
        /// Why.
        reason: DeadReason,
    },
    /// Too many deliveries fail: a partition's breaker opened, for the first time or again.
    BreakerOpened {
        /// The topic.
        topic: TopicName,
        /// Which of its partitions.
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
        /// The topic.
        topic: TopicName,
        /// Which of its partitions.
        partition: u16,
    },
    /// A topic was made.
    TopicMade {
        /// Which.
        topic: TopicName,
    },
    /// A topic is gone.
    TopicGone {
        /// Which.
        topic: TopicName,
    },
    /// Partitions have moved to another number of shards.
    Rebalanced {
        /// Shards that own partitions now.
        shards: usize,
    },
    /// The log has failed; the node is leaving.
    LogFailed {
        /// Why.
        detail: String,
    },
}
