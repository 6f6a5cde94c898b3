//! Changes by operators and senders: kill, cancel, reschedule, edit, redrive, purge.

use bytes::Bytes;
use ron_log::Position;
use ron_types::limits::mailbox::REASON_BYTES_MAX;
use ron_types::{Error, Kind};

use super::context::ShardContext;
use super::{Journal, Shard, cut, no_message};
use crate::index::Entry;
use crate::partition::Partition;
use crate::partition::apply::waiting;
use crate::record::{Record, Whole};
use crate::types::{DeadReason, Millis, PartKey, Seq, State, Summary};

impl Shard {
    /// Moves a message to the dead letters, whatever its state.
    pub fn kill(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        reason: DeadReason,
        error: &str,
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        part.index.get(seq).ok_or_else(no_message)?;
        if part.dlq.is_none() {
            return Err(Error::new(Kind::Conflict, "the topic has no dead letter topic to move the message to"));
        }
        part.die(context, journal, now, seq, reason, cut(error, REASON_BYTES_MAX))?;
        context.finish(part);
        Ok(())
    }

    /// A message that is not what was sent is delivered no more: it goes to the dead letters of its topic, or else to
    /// the topic's own. What is a dead letter already has nowhere to go: it waits where it is until it is kept no
    /// longer, and can be looked at meanwhile.
    pub fn set_aside(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        error: &str,
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        let (entry, error) = (*part.index.get(seq).ok_or_else(no_message)?, cut(error, REASON_BYTES_MAX));
        let own = || part.key.topic.own_dead_letters().map(|topic| PartKey { topic, partition: 0 });
        if let Some(to) = part.dlq.or_else(own) {
            part.die_to(to, context, journal, now, seq, DeadReason::Integrity, error)?;
        } else {
            let due_ms = part.kept_until(&entry);
            context.write(journal, &Record::Nack { part: part.key, seq, due_ms, now_ms: now, reason: error })?;
            part.apply_nack(seq, (due_ms, now), error, now);
        }
        context.finish(part);
        Ok(())
    }

    /// Takes a message back that nobody has seen yet.
    pub fn cancel(&mut self, _now: Millis, journal: &mut dyn Journal, part: PartKey, seq: Seq) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        part.unseen(seq)?;
        context.write(journal, &Record::Cancel { part: part.key, seq })?;
        part.drop_message(context, journal, seq);
        context.finish(part);
        Ok(())
    }

    /// A message that nobody has seen yet, and the place of its body, which no other version of it has.
    pub(crate) fn unseen(&self, part: PartKey, seq: Seq) -> Result<(Summary, Position), Error> {
        let part = self.parts.get(&part).ok_or_else(no_message)?;
        let entry = part.unseen(seq)?;
        Ok((self.summary(part, &entry), entry.position))
    }

    /// Gives a message that nobody has seen yet another body, another time or both, in one record. None if its body is
    /// not the one at `read_at` any more, from which the change was made.
    pub(crate) fn change(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        (key, seq): (PartKey, Seq),
        read_at: Position,
        body: Option<Bytes>,
        due_ms: Option<Millis>,
    ) -> Result<Option<Summary>, Error> {
        let (part, context) = self.known_part(key)?;
        if part.unseen(seq)?.position != read_at {
            return Ok(None);
        }
        part.change(context, journal, now, seq, body, due_ms)?;
        context.finish(part);
        Ok(self.summary_of(key, seq))
    }

    /// Gives a message that nobody has seen yet another time.
    pub fn reschedule(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        due_ms: Millis,
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        part.change(context, journal, now, seq, None, Some(due_ms))?;
        context.finish(part);
        Ok(())
    }

    /// Gives a message that nobody has seen yet another body.
    pub fn edit(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        body: Bytes,
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        part.change(context, journal, now, seq, Some(body), None)?;
        context.finish(part);
        Ok(())
    }

    /// Gives a message another chance in another partition: one record, its deliveries start anew. The record names the
    /// move, so that its progress can be counted from the records alone.
    pub fn redrive(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        from: PartKey,
        seq: Seq,
        to: PartKey,
        moved_by: u64,
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(from)?;
        let entry = part.index.get(seq).ok_or_else(no_message)?;
        if from == to {
            return Err(Error::new(Kind::Conflict, "the message is already where it should go"));
        }
        if entry.state() == State::Leased && entry.at > now {
            return Err(Error::new(Kind::Conflict, "the message is with a consumer"));
        }
        let (attempts, moved_by) = (entry.attempts(), moved_by.to_string());
        let record = Record::Move { from, to, seq, reason: None, now_ms: now, attempts, error: &moved_by };
        context.write(journal, &record)?;
        if let Some(in_transit) = part.apply_move(seq, None, now, attempts, "") {
            context.hand_over(to, seq, in_transit);
        }
        context.finish(part);
        Ok(())
    }

    /// Throws away everything in a partition, leased messages and remembered keys too; how many messages.
    pub fn purge(&mut self, _now: Millis, journal: &mut dyn Journal, part: PartKey) -> Result<u64, Error> {
        let Ok((part, context)) = self.known_part(part) else { return Ok(0) };
        // A purge of nothing frees nothing, so it must not take room; what groups have left is in memory only.
        if part.index.len() > 0 || part.keys.len() > 0 {
            let upto = part.index.last().map_or(0, |last| last.seq);
            context.write(journal, &Record::Purge { part: part.key, upto })?;
        }
        let count = part.index.len() as u64;
        let remains = part.empty(context);
        self.put_remains(journal, remains);
        Ok(count)
    }
}

impl Partition {
    /// A message that was never delivered.
    fn unseen(&self, seq: Seq) -> Result<Entry, Error> {
        let entry = self.index.get(seq).ok_or_else(no_message)?;
        if entry.attempts() > 0 {
            return Err(Error::new(Kind::Conflict, "the message was already delivered"));
        }
        Ok(*entry)
    }

    /// Another body, another time or both, of a message that was never delivered: one record tells all of it, so that
    /// a crash leaves no half of the change.
    fn change(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        body: Option<Bytes>,
        due_ms: Option<Millis>,
    ) -> Result<(), Error> {
        let mut entry = self.unseen(seq)?;
        if due_ms.is_some_and(|due_ms| due_ms > self.kept_until(&entry)) {
            return Err(Error::schema("due_ms: it is later than the topic keeps the message"));
        }
        if let Some(body) = body {
            let body_len = body.len() as u32;
            self.admit_bytes(u64::from(body_len.saturating_sub(entry.body_len())))?;
            entry.set_body_len(body_len);
            let group = self.group_of(seq);
            let whole = self.whole(&entry, group.as_deref(), now);
            let stand = due_ms.map_or(whole.stand, |due_ms| waiting(due_ms, now));
            let record = Record::Edit(Box::new(Whole { stand, ..whole }));
            let position = context.write_with(journal, &record, &body)?;
            self.resize(seq, body_len);
            journal.release(self.set_position(seq, position).expect("it was just looked at"));
            context.hot.put(seq, body);
        } else if let Some(due_ms) = due_ms {
            context.write(journal, &Record::Reschedule { part: self.key, seq, due_ms, now_ms: now })?;
        }
        if let Some(due_ms) = due_ms {
            self.apply_reschedule(seq, (due_ms, now), now);
        }
        Ok(())
    }

    pub(super) fn drop_message(&mut self, context: &mut ShardContext, journal: &mut dyn Journal, seq: Seq) {
        if let Some(leaving) = self.remove(seq) {
            journal.release(context.forget(&leaving.entry));
        }
    }

    /// The body of a message is elsewhere now; where it was.
    pub(super) fn set_position(&mut self, seq: Seq, position: Position) -> Option<Position> {
        let entry = self.index.get_mut(seq)?;
        Some(std::mem::replace(&mut entry.position, position))
    }
}
