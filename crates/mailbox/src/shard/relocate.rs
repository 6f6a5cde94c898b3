//! Writing again what old records say and is still true, so that they can go.

use ron_log::{Class, Position};
use ron_types::Error;

use super::desk::Desk;
use super::{Journal, Shard};
use crate::index::Entry;
use crate::part::Part;
use crate::record::Record;
use crate::words::{Millis, PartKey, Seq};

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
        let home = self.desk.homes.get(&seq).copied().unwrap_or(part);
        let desk = &mut self.desk;
        if let Some(holder) = self.parts.get_mut(&home) {
            holder.relocate(desk, journal, now, seq, old, body)?;
        }
        // A message that never left carries its key with its body.
        if let Some(origin) = self.parts.get(&part)
            && origin.index.get(seq).is_none_or(Entry::is_moved)
            && let Some(memo) = origin.keys.of(now, seq)
        {
            desk.write(journal, &Record::Remember { part, seq, memo })?;
        }
        Ok(())
    }
}

impl Part {
    fn relocate(
        &mut self,
        desk: &mut Desk,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        old: Position,
        body: &[u8],
    ) -> Result<(), Error> {
        let Some(entry) = self.index.get(seq).filter(|entry| entry.position == old).copied() else { return Ok(()) };
        let group = self.group_of(seq);
        let record = Record::Relocated(Box::new(self.whole(&entry, group.as_deref(), now)));
        let position = desk.write_with(journal, Class::Settle, &record, body)?;
        self.set_position(seq, position);
        journal.release(old);
        Ok(())
    }
}
