//! The mailbox: a durable at-least-once queue with leases, idempotency, groups and dead letters.
//!
//! The stages, in order of flow: the handle ([`Mailbox`]) parses, admits and queues; a shard worker, the only owner of
//! its partitions, applies the operation to the pure core ([`shard::Shard`]) and appends its record to the log; the
//! answer travels back once the log has made everything it depends on durable.

// The reference queue of the crash tests is the one of the model tests, which see this crate from outside.
#[cfg(test)]
extern crate self as svc_mailbox;

// the words, and the pure core
pub mod bounds;
pub mod envelope;
mod group_queues;
pub mod holders;
mod index;
mod partition;
pub mod receiving;
pub mod record;
mod record_meta;
pub mod shard;
mod stepped;
mod timers;
pub mod types;

// what the shell is made of
mod breaker_events;
mod by_seq;
pub mod capabilities;
mod clock;
mod config;
mod engine;
mod events;
mod fault;
mod job;
mod key_shares;
mod metrics;
mod moves;
mod newest_records;
mod notes;
mod options;
mod origins;
mod random;
mod receipt;
mod topics;

// the tasks and the handle
mod keeper;
pub mod mailbox;
mod rebalancer;
mod recovery;
mod reprocessor;
mod scanner;
mod scrub;
mod slot;
pub mod specs;
mod wall;
mod worker;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod running;
#[cfg(test)]
mod stage;

pub use clock::Hold;
pub use config::Options;
pub use engine::ShardNumbers;
pub use events::{Event, EventId, EventItem, EventReader, EventsFrom, Missed, NumberedEvent};
pub use mailbox::browse::{Filter, Page};
pub use mailbox::change::MessageChange;
pub use mailbox::clock::ClockView;
pub use mailbox::inspect::{Explained, Seen};
pub use mailbox::receive::{DeadInfo, Delivery, Receive};
pub use mailbox::send::{Outgoing, Receipted};
pub use mailbox::topics::TopicStats;
pub use mailbox::{Durability, LogView, Mailbox, NodeStats, ShardView, install};
pub use metrics::METRICS;
pub use moves::{IfBusy, MoveControl, MoveFailure, MoveOrder, MoveState, MoveTask, MoveView, OnFailure};
pub use options::{LiveOptions, LogLocation, MailboxOptions};
pub use receipt::{Receipt, Secret};
pub use scrub::{DamagedMessage, ScrubFinding, ScrubPass, ScrubView};
pub use shard::{Fencing, Nacked as NackOutcome};
pub use topics::TopicView;
pub use types::Dedup;
