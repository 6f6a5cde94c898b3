//! Reading the journal back: each record does again what it did when it was written.

use ron_log::{Class, Position};
use ron_types::{Error, Kind};

use super::{Journal, Shard};
use crate::record::Record;
use crate::types::{Millis, PartKey, Seq, TopicId};

impl Shard {
    /// Does again what a record of a partition of this shard says. What a `Move` takes out is in the outbox afterwards
    /// and must be adopted before the next record is read. Records of messages that are gone do nothing.
    pub fn replay(&mut self, now: Millis, record: &Record<'_>, position: Position, body_len: u32) {
        match record {
            Record::Topic { .. }
            | Record::Moves { .. }
            | Record::Mark { .. }
            | Record::TopicNumbers { .. }
            | Record::Held { .. } => {}
            Record::TopicGone { id } => self.replay_gone(*id),
            Record::Send(taken) => {
                self.replace(taken.part, taken.seq);
                self.part_mut(taken.part).0.apply_send(taken, (position, body_len), now);
            }
            Record::Edit(whole) | Record::Relocated(whole) => {
                self.replace(whole.part, whole.seq);
                self.part_mut(whole.part).0.apply_whole(whole, (position, body_len), now);
                if whole.moved_ms.is_some() {
                    self.context.homes.insert(whole.seq, whole.part);
                }
            }
            // Whether its time is over is not known before the last record: a hold may keep it.
            Record::Remember { part, seq, memo } => self.part_mut(*part).0.apply_memo(*seq, *memo, now),
            Record::Ack { part, seqs } | Record::Expired { part, seqs } => {
                seqs.iter().for_each(|seq| self.replace(*part, *seq));
            }
            Record::Cancel { part, seq } => self.replace(*part, *seq),
            Record::Purge { part, .. } => {
                if let Some(part) = self.parts.get_mut(part) {
                    let remains = part.empty(&mut self.context);
                    self.replayed_without(|shard, journal| shard.put_remains(journal, remains));
                }
            }
            other => self.replay_step(now, other),
        }
        self.replay_finish(record.part());
    }

    /// Positions that replaying found to be no longer needed: the log is to be told.
    pub fn take_released(&mut self, out: &mut Vec<Position>) {
        out.append(&mut self.context.released);
    }

    /// Steps of messages that stay, or leave for another partition.
    fn replay_step(&mut self, now: Millis, record: &Record<'_>) {
        let Some(part) = record.part().and_then(|key| self.parts.get_mut(&key)) else { return };
        match record {
            Record::Lease { until_ms, now_ms, consumer, items, .. } => {
                items.iter().for_each(|item| part.apply_lease(*item, (*until_ms, *now_ms), consumer, now));
            }
            Record::Nack { seq, due_ms, now_ms, reason, .. } => {
                part.apply_nack(*seq, (*due_ms, *now_ms), reason, now);
            }
            Record::Extend { seq, until_ms, now_ms, .. } => part.apply_extend(*seq, (*until_ms, *now_ms), now),
            Record::Unlease { seq, .. } => part.apply_unlease(*seq),
            Record::Returned { seqs, .. } => seqs.iter().for_each(|seq| part.apply_returned(*seq)),
            Record::Reschedule { seq, due_ms, now_ms, .. } => part.apply_reschedule(*seq, (*due_ms, *now_ms), now),
            Record::Move { to, seq, reason, now_ms, attempts, error, .. } => {
                // Without a reason it is the number of a move, which is no matter of the message.
                let error = if reason.is_some() { error } else { "" };
                if let Some(in_transit) = part.apply_move(*seq, *reason, *now_ms, *attempts, error) {
                    self.context.hand_over(*to, *seq, in_transit);
                }
            }
            _ => {}
        }
    }

    /// Forgets a topic and its own dead letters while reading back.
    pub(crate) fn replay_gone(&mut self, topic: TopicId) {
        self.replayed_without(|shard, journal| shard.forget_topic(topic, journal));
    }

    /// Something that was held is gone; nobody waits, so all of it is let go at once.
    fn replayed_without(&mut self, change: impl FnOnce(&mut Shard, &mut Released)) {
        let mut released = Released(std::mem::take(&mut self.context.released));
        change(self, &mut released);
        self.let_all_go(&mut released);
        self.context.released = released.0;
    }

    /// Takes a message out if it is there.
    fn replace(&mut self, part: PartKey, seq: Seq) {
        if let Some(leaving) = self.parts.get_mut(&part).and_then(|part| part.remove(seq)) {
            let position = self.context.forget(&leaving.entry);
            self.context.released.push(position);
        }
    }

    fn replay_finish(&mut self, part: Option<PartKey>) {
        if let Some(part) = part.and_then(|key| self.parts.get_mut(&key)) {
            self.context.finish(part);
        }
    }
}

/// A journal that is only told what is no longer needed.
struct Released(Vec<Position>);

impl Journal for Released {
    fn append(&mut self, _: Class, _: &[u8], _: &[u8]) -> Result<Position, Error> {
        Err(Error::new(Kind::Degraded, "nothing is written while the log is read back"))
    }

    fn release(&mut self, position: Position) {
        self.0.push(position);
    }

    fn takes(&self, _: Class) -> bool {
        false
    }
}
