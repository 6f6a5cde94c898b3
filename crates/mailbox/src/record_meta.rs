//! What can be said of a record without applying it: whether it takes room or frees it, the newest message number and
//! the time it tells.

use ron_log::Class;

use crate::record::Record;
use crate::types::{Millis, Seq, TopicId};

impl Record<'_> {
    /// Whether the record takes room or frees it: what of the log's reserve it may use.
    ///
    /// The one place that decides it, kind by kind. What a caller can write again and again without anything going
    /// away is `Data` or may go unwritten; `Settle` needs something that goes away by it, which was paid for as data.
    pub(crate) fn class(&self) -> Class {
        match self {
            // They add something, or say something new about what stays. Settings are data, too.
            Record::Topic { .. }
            | Record::Send(..)
            | Record::Edit(..)
            | Record::Reschedule { .. }
            | Record::Moves { .. }
            | Record::Move { reason: None, .. } => Class::Data,
            // Without them a crash only means that a message is handed out once more.
            Record::Lease { .. }
            | Record::Nack { .. }
            | Record::Extend { .. }
            | Record::Unlease { .. }
            | Record::Returned { .. } => Class::Step,
            // A death: deliveries would wait for ever behind a message that cannot die.
            Record::Move { reason: Some(_), .. } => Class::Move,
            // Each message and each topic goes away once.
            Record::Ack { .. }
            | Record::Cancel { .. }
            | Record::Expired { .. }
            | Record::Purge { .. }
            | Record::TopicGone { .. } => Class::Settle,
            // Only reclaiming writes them, and the operator's word on the clock.
            Record::Relocated(..)
            | Record::Remember { .. }
            | Record::Mark { .. }
            | Record::TopicNumbers { .. }
            | Record::Held { .. } => Class::Copy,
        }
    }

    /// The highest message number it says is given out.
    pub(crate) fn seq_max(&self) -> Seq {
        match self {
            Record::Mark { seq, .. } => *seq,
            _ => self.keeps().map_or(0, |(_, seq)| seq),
        }
    }

    /// The highest number of a topic that it names, topics that are gone included: dead letters still say where they
    /// came from.
    pub(crate) fn topic_max(&self) -> TopicId {
        let named = match self {
            Record::Topic { id, .. } | Record::TopicGone { id } | Record::Moves { id, .. } => [Some(*id), None],
            Record::TopicNumbers { taken } => [Some(*taken), None],
            Record::Move { from, to, .. } => [Some(from.topic), Some(to.topic)],
            Record::Edit(whole) | Record::Relocated(whole) => {
                [Some(whole.part.topic), whole.dead.map(|dead| dead.source.topic)]
            }
            other => [other.part().map(|part| part.topic), None],
        };
        TopicId(named.into_iter().flatten().map(TopicId::home).max().unwrap_or(0))
    }

    /// When it was written, where it says so.
    pub(crate) fn time(&self) -> Option<Millis> {
        match self {
            Record::Send(taken) => Some(taken.sent_ms),
            Record::Edit(whole) | Record::Relocated(whole) => Some(whole.now_ms),
            Record::Lease { now_ms, .. }
            | Record::Nack { now_ms, .. }
            | Record::Extend { now_ms, .. }
            | Record::Move { now_ms, .. }
            | Record::Reschedule { now_ms, .. }
            | Record::Moves { now_ms, .. }
            | Record::Mark { now_ms, .. }
            | Record::Held { now_ms, .. } => Some(*now_ms),
            _ => None,
        }
    }
}
