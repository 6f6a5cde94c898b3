//! Writing again what old records say and is still true, so that they can go.

use ron_log::{Class, Position};
use ron_types::Error;

use super::context::ShardContext;
use super::{Journal, Shard};
use crate::index::Entry;
use crate::partition::Partition;
use crate::record::Record;
use crate::types::{Millis, PartKey, Seq};

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
        let home = self.context.homes.get(&seq).copied().unwrap_or(part);
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
        let record = Record::Relocated(Box::new(self.whole(&entry, group.as_deref(), now)));
        let position = context.write_with(journal, Class::Settle, &record, body)?;
        self.set_position(seq, position);
        journal.release(old);
        Ok(())
    }
}
