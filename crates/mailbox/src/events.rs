//! What happens to messages, told to whoever watches. Loss-tolerant: the log is the truth, this is the news.

use ron_kernel::bus::Broadcast;
use serde::Serialize;

use crate::words::{DeadReason, TopicName};

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
