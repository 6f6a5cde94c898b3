//! Writing again what old records say and is still true, so that they can go.

use std::borrow::Cow;

use ron_log::{Class, Position};
use ron_types::{Error, Kind};

use super::context::ShardContext;
use super::{Journal, Shard, cut};
use crate::index::Entry;
use crate::partition::Partition;
use crate::record::{Death, Record, Whole};
use crate::types::{DeadReason, Millis, PartKey, Seq};

/// Bytes kept of what the last consumer said, when a dead message is written again without room.
const SHORT_ERROR_BYTES_MAX: usize = 64;

/// A message that is dropped because its body is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostMessage {
    /// Partition that held it.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// When it was sent.
    pub sent_ms: Millis,
    /// The damage was found before, by a consumer, and told then.
    pub was_told: bool,
}

impl Shard {
    /// Asked for every record that [`Record::keeps`] something, in every shard, before the record's segment may go.
    ///
    /// A message whose body is at `old` is written again with everything known of it, also if it is in another
    /// partition by now; a key that `part` still remembers and no newer record tells is written by itself.
    pub fn relocate(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        old: Position,
        body: &[u8],
    ) -> Result<(), Error> {
        let home = self.context.homes.get(seq).unwrap_or(part);
        let context = &mut self.context;
        if let Some(holder) = self.parts.get_mut(&home) {
            holder.relocate(context, journal, now, seq, old, body)?;
        }
        // A message that never left carries its key with its body.
        if let Some(origin) = self.parts.get(&part)
            && origin.index.get(seq).is_none_or(Entry::is_moved)
            && let Some(memo) = origin.keys.of(now, seq)
        {
            context.write(journal, &Record::Remember { part, seq, memo })?;
        }
        Ok(())
    }

    /// Drops a message whose body at `old` is damaged: it cannot be written again, and must not keep its segment.
    pub(crate) fn lose(
        &mut self,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        old: Position,
    ) -> Result<Option<LostMessage>, Error> {
        let home = self.context.homes.get(seq).unwrap_or(part);
        let context = &mut self.context;
        let Some(holder) = self.parts.get_mut(&home) else { return Ok(None) };
        let Some(entry) = holder.index.get(seq).filter(|entry| entry.position == old).copied() else { return Ok(None) };
        let dead = holder.moved.value(seq).and_then(|moved| moved.dead.as_ref());
        let was_told = dead.is_some_and(|dead| dead.reason == DeadReason::Integrity);
        // Written down, so that a restart before its segment has gone neither brings it back nor counts it again.
        let record = Record::Expired { part: home, seqs: Cow::Borrowed(&[seq]) };
        context.write_as(journal, Class::Copy, &record, &[])?;
        holder.drop_message(context, journal, seq);
        context.finish(holder);
        Ok(Some(LostMessage { part: home, seq, sent_ms: entry.sent_ms(), was_told }))
    }

    /// Messages whose bodies are in a segment. Goes through all of them, so it is asked only where the segment itself
    /// does not tell.
    pub(crate) fn messages_in(&self, segment: u32) -> Vec<(PartKey, Seq, Position)> {
        let all = self.parts.values().flat_map(|part| part.index.from(0).map(|entry| (part.key, entry)));
        let here = all.filter(|(_, entry)| entry.position.segment == segment);
        here.map(|(part, entry)| (part, entry.seq, entry.position)).collect()
    }

    /// Idempotency keys that are remembered.
    pub(crate) fn keys(&self) -> u64 {
        self.context.held[4]
    }
}

/// Without what is known of earlier deliveries, which came with records of its own elsewhere. Where there is no room,
/// or the message fills its segment, a copy must take no more than the record it replaces, or it could not be made.
fn shortened(whole: Whole<'_>) -> Whole<'_> {
    let dead = whole.dead.map(|dead| Death { last_error: cut(dead.last_error, SHORT_ERROR_BYTES_MAX), ..dead });
    Whole { tries: Vec::new(), dead, ..whole }
}

impl Partition {
    fn relocate(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        old: Position,
        body: &[u8],
    ) -> Result<(), Error> {
        let Some(entry) = self.index.get(seq).filter(|entry| entry.position == old).copied() else { return Ok(()) };
        let group = self.group_of(seq);
        let whole = self.whole(&entry, group.as_deref(), now);
        let in_full = journal.takes(Class::Data).then(|| Record::Relocated(Box::new(whole.clone())));
        let written = match in_full.map(|record| context.write_with(journal, &record, body)) {
            Some(Err(error)) if error.kind == Kind::FrameTooLarge => None,
            written => written,
        };
        let position = match written {
            Some(written) => written?,
            None => context.write_with(journal, &Record::Relocated(Box::new(shortened(whole))), body)?,
        };
        self.set_position(seq, position);
        journal.release(old);
        Ok(())
    }
}
