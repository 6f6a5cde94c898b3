//! Group commit: what gathered is written and synced, then called durable.

use crate::core::{Core, FailOnPanic, log_name};
use crate::disk::{DiskFile, Durability};
use crate::error::LogError;
use crate::gather::Group;
use crate::model::Lsn;
use crate::upkeep::{make_segment, whole_bytes};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

impl Core {
    /// One group commit: everything appended before the call is durable after it.
    pub fn commit(&self) -> Result<Lsn, LogError> {
        self.commit_holding(&self.lock_committing())
    }

    /// The same for one who holds the lock.
    pub fn commit_holding(&self, _committing: &MutexGuard<'_, ()>) -> Result<Lsn, LogError> {
        let _guard = FailOnPanic::new(self);
        let (taken, segment_before) = {
            let mut gather = self.gather();
            (gather.take()?, gather.durable_segment())
        };
        let Some(group) = taken else { return Ok(self.durable()) };
        let sync_time = timed(|| self.write_group(&group))?;
        let (durable, has_rolled) = {
            let mut gather = self.gather();
            (Lsn(gather.committed(group, sync_time)), gather.durable_segment() != segment_before)
        };
        // After the lock is let go, so that a caller that wakes up here can append at once.
        self.published.send_modify(|published| published.durable = durable);
        if has_rolled {
            self.want_upkeep();
        }
        // A log in memory does not outlive its process: no recovery would read the mark.
        if self.disk.durability() != Durability::Ram {
            self.write_idle_mark(false)?;
        }
        Ok(durable)
    }

    /// Makes the knowledge itself durable that everything is durable: the mark of a clean stop.
    pub fn seal(&self) -> Result<Lsn, LogError> {
        let durable = self.commit()?;
        let _committing = self.lock_committing();
        self.write_idle_mark(true)?;
        // After a clean stop the manifest knows the last record, so that even a lost end is told.
        let mut files = self.lock_files();
        self.must("listing the segments", self.write_manifest(&mut files))?;
        Ok(durable)
    }

    /// Each part is synced before the next is written, so that only the last segment that was touched can be torn.
    fn write_group(&self, group: &Group) -> Result<(), LogError> {
        for part in &group.parts {
            let file = self.writable(part.segment)?;
            self.must("writing records", file.write_at(u64::from(part.offset), &part.bytes))?;
            self.must("syncing records", file.sync())?;
        }
        Ok(())
    }

    /// If nothing waits, says on the disk that the last group was durable: damage to it can then be told from a torn
    /// tail. Not synced unless asked for; the caller holds `committing`.
    fn write_idle_mark(&self, synced: bool) -> Result<(), LogError> {
        let mark = self.gather().idle_mark();
        let Some((segment, offset, bytes)) = mark else { return Ok(()) };
        let file = self.writable(segment)?;
        self.must("writing a mark", file.write_at(u64::from(offset), &bytes))?;
        if synced {
            self.must("syncing a mark", file.sync())?;
        }
        Ok(())
    }

    /// The file of a segment that has records to be written; made here if it was not made ahead.
    fn writable(&self, segment: u32) -> Result<Arc<dyn DiskFile>, LogError> {
        {
            let mut table = self.table();
            table.writing_from = segment;
            if let Some(file) = table.open_file(segment) {
                return Ok(file);
            }
        }
        let mut files = self.lock_files();
        let (prepared, is_made) = {
            let mut table = self.table();
            let is_next = table.prepared.front().is_some_and(|(number, _)| *number == segment);
            let prepared = if is_next { table.prepared.pop_front() } else { None };
            (prepared, table.get(segment).is_some_and(|known| known.is_made))
        };
        let is_new = prepared.is_none() && !is_made;
        let file = match prepared {
            Some((_, file)) => file,
            None if is_made => self.must("opening a segment", self.disk.open(&log_name(segment)))?,
            None => {
                self.must("making a segment", make_segment(self.disk.as_ref(), &self.options, self.seed, segment))?
            }
        };
        {
            let mut table = self.table();
            if let Some(known) = table.get_mut(segment).filter(|known| !known.is_made) {
                known.is_made = true;
                known.whole_bytes = whole_bytes(self.disk.as_ref(), &self.options);
            }
            table.keep_open(segment, Arc::clone(&file));
        }
        // Listed before the first record goes in: whoever loses the file later is told.
        if is_new {
            self.must("listing a segment", self.write_manifest(&mut files))?;
        }
        Ok(file)
    }
}

/// How long it took, on the clock of the disk: paused time makes no disk faster.
#[expect(clippy::disallowed_methods, reason = "a disk is as slow as it is")]
fn timed(work: impl FnOnce() -> Result<(), LogError>) -> Result<Duration, LogError> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}
