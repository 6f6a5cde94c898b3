//! The journal's records: what each says, and its bytes.
//!
//! A message's state is what the record that holds its body says (`Send`, `Edit`, `Relocated`: each tells the whole
//! state), changed by the records after it. So the log may forget its oldest records once their bodies live elsewhere.

use std::borrow::Cow;

use ron_kernel::clock::BootTime;
use ron_types::Error;

use crate::clock::Hold;
use crate::shard::Key;
use crate::types::{DeadReason, Millis, PartKey, Seq, TopicId};

mod codec;

/// Longest list a record may hold, so that its head stays below the 64 KiB the log allows.
pub const ITEMS_MAX: usize = 4_000;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A topic was made or its settings changed.
    Topic {
        /// Number of the topic.
        id: TopicId,
        /// Name of the topic.
        name: &'a str,
        /// Settings of the topic as JSON.
        settings: &'a str,
    },
    /// A topic and all in it is gone.
    TopicGone {
        /// Number of the topic.
        id: TopicId,
    },
    /// A message was taken in; the body is the message.
    Send(Taken<'a>),
    /// Messages were handed to a consumer.
    Lease {
        /// Partition of the messages.
        part: PartKey,
        /// End of the leases.
        until_ms: Millis,
        /// When the leases were given.
        now_ms: Millis,
        /// Name of the consumer.
        consumer: &'a str,
        /// Each message with the number of its lease.
        items: Cow<'a, [(Seq, u32)]>,
    },
    /// Messages were acknowledged.
    Ack {
        /// Partition of the messages.
        part: PartKey,
        /// Numbers of the messages.
        seqs: Cow<'a, [Seq]>,
    },
    /// A delivery failed and will be tried again.
    Nack {
        /// Partition of the message.
        part: PartKey,
        /// Number of the message.
        seq: Seq,
        /// Earliest time of the next delivery.
        due_ms: Millis,
        /// When it failed.
        now_ms: Millis,
        /// What the consumer said.
        reason: &'a str,
    },
    /// A lease got another end; one that is not after `now_ms` gave the message back.
    Extend {
        /// Partition of the message.
        part: PartKey,
        /// Number of the message.
        seq: Seq,
        /// The new end.
        until_ms: Millis,
        /// When the lease was changed.
        now_ms: Millis,
    },
    /// A delivery never left, so it did not happen.
    Unlease {
        /// Partition of the message.
        part: PartKey,
        /// Number of the message.
        seq: Seq,
    },
    /// Leases ran out.
    Returned {
        /// Partition of the messages.
        part: PartKey,
        /// Numbers of the messages.
        seqs: Cow<'a, [Seq]>,
    },
    /// A message left one partition for another.
    Move {
        /// From where.
        from: PartKey,
        /// To where.
        to: PartKey,
        /// Number of the message.
        seq: Seq,
        /// Why it is dead; none for one that gets another chance.
        reason: Option<DeadReason>,
        /// When the message left.
        now_ms: Millis,
        /// Deliveries it had.
        attempts: u32,
        /// What the last consumer said; of a message that gets another chance, the number of the move that took it,
        /// which older logs do not have.
        error: &'a str,
    },
    /// A message was taken back before anybody saw it.
    Cancel {
        /// Partition of the message.
        part: PartKey,
        /// Number of the message.
        seq: Seq,
    },
    /// A message got another body, which is the body.
    Edit(Box<Whole<'a>>),
    /// A message got another time.
    Reschedule {
        /// Partition of the message.
        part: PartKey,
        /// Number of the message.
        seq: Seq,
        /// The new time.
        due_ms: Millis,
        /// When that was said.
        now_ms: Millis,
    },
    /// A message was written again so that old records can go; the body is the message.
    Relocated(Box<Whole<'a>>),
    /// An idempotency key whose message may be gone.
    Remember {
        /// Partition that remembers the key.
        part: PartKey,
        /// The message it stood for.
        seq: Seq,
        /// What is remembered.
        memo: Memo,
    },
    /// Everything in a partition was thrown away.
    Purge {
        /// Partition that was emptied.
        part: PartKey,
        /// Messages up to this number.
        upto: Seq,
    },
    /// Messages were kept long enough and dropped.
    Expired {
        /// Partition of the messages.
        part: PartKey,
        /// Numbers of the messages.
        seqs: Cow<'a, [Seq]>,
    },
    /// What is being moved out of a topic, and what was.
    Moves {
        /// The topic's number.
        id: TopicId,
        /// When this was written.
        now_ms: Millis,
        /// The tasks as JSON.
        tasks: &'a str,
    },
    /// The clock, the number of shards and the numbers given out at some time.
    Mark {
        /// Time of the steady clock.
        now_ms: Millis,
        /// Shards in use.
        shards: u32,
        /// No later message has this number or a smaller one.
        seq: Seq,
        /// What the machine's own clock showed; not in older logs, nor where the machine does not say.
        boot: Option<BootTime>,
    },
    /// Numbers of topics that were given out, because the records of some that are gone may go.
    TopicNumbers {
        /// No later topic has this number or a smaller one.
        taken: TopicId,
    },
    /// What a jump of the clock holds back from here on.
    Held {
        /// Time of the steady clock.
        now_ms: Millis,
        /// What is held; nothing, once an operator has confirmed the clock.
        hold: Hold,
    },
}

/// A message as it was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    /// Partition of the message.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// When the message was sent.
    pub sent_ms: Millis,
    /// Not to be delivered before then.
    pub due_ms: Millis,
    /// Bytes of its body. Older nodes wrote those of its payload, so a reader asks the log instead.
    pub body_len: u32,
    /// Group the sender gave the message.
    pub group: Option<&'a str>,
    /// Its idempotency key and until when that is remembered.
    pub key: Option<(Key, Millis)>,
}

/// What is remembered of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memo {
    /// The key, and the payload it came with, as hashes.
    pub key: Key,
    /// When its message was sent.
    pub sent_ms: Millis,
    /// Time until which the key is remembered.
    pub until_ms: Millis,
}

/// Where a message stands, with the time that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// May be delivered.
    Ready,
    /// May be delivered although others of its group are with consumers: its own gave it back.
    Freed,
    /// Waits until then.
    Delayed(Millis),
    /// Is with a consumer until then.
    Leased(Millis),
}

/// Everything known of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    /// Where it is.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// When it was sent.
    pub sent_ms: Millis,
    /// When this was written.
    pub now_ms: Millis,
    /// Bytes of its body. Older nodes wrote those of its payload, so a reader asks the log instead.
    pub body_len: u32,
    /// Group the sender gave the message.
    pub group: Option<&'a str>,
    /// Deliveries so far.
    pub attempts: u32,
    /// The number of its last lease.
    pub fence: u32,
    /// Where it stands.
    pub stand: Stand,
    /// When it came from another partition.
    pub moved_ms: Option<Millis>,
    /// Why it is dead.
    pub dead: Option<Death<'a>>,
    /// When it was first delivered.
    pub first_leased_ms: Millis,
    /// Deliveries remembered, the newest last.
    pub tries: Vec<Tried<'a>>,
    /// Its idempotency key, if that is remembered here.
    pub memo: Option<Memo>,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death<'a> {
    /// What the message died of.
    pub reason: DeadReason,
    /// Where it was.
    pub source: PartKey,
    /// Deliveries it had.
    pub attempts: u32,
    /// When it died.
    pub since_ms: Millis,
    /// What the last consumer said.
    pub last_error: &'a str,
}

/// One delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried<'a> {
    /// Which it was, from 1.
    pub number: u32,
    /// Who took it.
    pub consumer: &'a str,
    /// When the message was handed out.
    pub leased_ms: Millis,
    /// What came of it: empty while it runs.
    pub outcome: &'a str,
}

impl Record<'_> {
    /// The partition it concerns; for a message that moves, the one it leaves.
    pub fn part(&self) -> Option<PartKey> {
        match self {
            Record::Topic { .. }
            | Record::TopicGone { .. }
            | Record::Moves { .. }
            | Record::Mark { .. }
            | Record::TopicNumbers { .. }
            | Record::Held { .. } => None,
            Record::Send(taken) => Some(taken.part),
            Record::Edit(whole) | Record::Relocated(whole) => Some(whole.part),
            Record::Move { from, .. } => Some(*from),
            Record::Lease { part, .. }
            | Record::Ack { part, .. }
            | Record::Nack { part, .. }
            | Record::Extend { part, .. }
            | Record::Unlease { part, .. }
            | Record::Returned { part, .. }
            | Record::Cancel { part, .. }
            | Record::Reschedule { part, .. }
            | Record::Remember { part, .. }
            | Record::Purge { part, .. }
            | Record::Expired { part, .. } => Some(*part),
        }
    }

    /// The message that compaction must ask [`crate::shard::Shard::relocate`] about before the record may go.
    pub fn keeps(&self) -> Option<(PartKey, Seq)> {
        match self {
            Record::Send(taken) => Some((taken.part, taken.seq)),
            Record::Edit(whole) | Record::Relocated(whole) => Some((whole.part, whole.seq)),
            Record::Remember { part, seq, .. } => Some((*part, *seq)),
            _ => None,
        }
    }

    /// Whether it tells an idempotency key, which may be remembered when the message is gone.
    pub fn tells_key(&self) -> bool {
        match self {
            Record::Send(taken) => taken.key.is_some(),
            Record::Edit(whole) | Record::Relocated(whole) => whole.memo.is_some(),
            Record::Remember { .. } => true,
            _ => false,
        }
    }

    /// Adds the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::encode(self, out);
    }
}

impl<'a> Record<'a> {
    /// Reads a record back; any bytes give a record or an error.
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Error> {
        codec::decode(bytes)
    }
}

#[cfg(test)]
mod tests;
