//! The handle of a log.

use crate::append::Appender;
use crate::core::Core;
use crate::disk::{Disk, DiskFile, Durability};
use crate::error::LogError;
use crate::frame::{self, Found, FrameAddress, HEADER_LEN};
use crate::model::{Class, LogOptions, Lsn, Position, Record, Recovery, Replayed, Usage};
use crate::recover;
use crate::table::Live;
use crate::watch::Watch;
use crate::writer::WriterThread;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Bytes gathered in memory before they are moved to their segment.
const MEMORY_GROUP_BYTES: usize = 64 << 10;

/// A durable append log. Clones are the same log; the disk is free again when the last one is gone.
#[derive(Clone)]
pub struct Log {
    pub(crate) core: Arc<Core>,
}

impl Log {
    /// Recovers, calling `replay` for every whole record in the order of their numbers. A record with a body counts as
    /// live until it is released; the visitor may release through the [`Live`] it is handed.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        replay: &mut dyn FnMut(Replayed<'_>, &mut Live),
    ) -> Result<(Log, Recovery), LogError> {
        let (core, recovery) = recover::open(&disk, options, replay)?;
        Ok((Log { core: Arc::new(core) }, recovery))
    }

    /// Takes the log for appending; see [`Appender`].
    pub fn appender(&self) -> Appender<'_> {
        Appender::new(&self.core)
    }

    /// Every record up to here is synced, with the directory entry of its segment.
    pub fn durable(&self) -> Lsn {
        self.core.durable()
    }

    /// A receiver that follows the number of the last durable record.
    pub fn watch(&self) -> Watch {
        Watch::new(self.core.published.subscribe())
    }

    /// Resolves when the log has failed, with the reason. Unlike a [`Watch`], nothing wakes it before.
    pub async fn failure(&self) -> LogError {
        let mut failure = self.core.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await;
        failed.ok().and_then(|error| error.clone()).unwrap_or(LogError::Closed)
    }

    /// Error that ended the log as a place to write. It stays: nothing is appended or acknowledged, reads go on.
    pub fn failed(&self) -> Option<LogError> {
        self.core.published.borrow().failed.clone()
    }

    /// Strength of a durable record on this disk.
    pub fn durability(&self) -> Durability {
        self.core.disk.durability()
    }

    /// One group commit on this thread; everything appended before is durable after it. Without a writer thread it also
    /// does the background work, so that a simulation needs no threads.
    pub fn flush(&self) -> Result<Lsn, LogError> {
        let durable = self.core.commit()?;
        let is_mine = {
            let mut upkeep = self.core.upkeep();
            let is_mine = upkeep.is_wanted && !upkeep.has_threads;
            upkeep.is_wanted &= !is_mine;
            is_mine
        };
        if is_mine {
            self.core.do_upkeep()?;
        }
        Ok(durable)
    }

    /// In memory nothing is gained by a commit but room to gather in, so one is made when much has gathered; says up to
    /// where records are as safe as they get.
    pub fn settle_in_memory(&self) -> Result<Lsn, LogError> {
        let (gathered, last) = {
            let gather = self.core.gather();
            (gather.gathered_bytes(), gather.tail().lsn)
        };
        if gathered >= MEMORY_GROUP_BYTES { self.flush() } else { self.failed().map_or(Ok(Lsn(last)), Err) }
    }

    /// Flushes and marks a clean stop: a later recovery knows that the last group was durable.
    pub fn seal(&self) -> Result<Lsn, LogError> {
        self.flush()?;
        self.core.seal()
    }

    /// Starts the one writer thread (and its helper). `AlreadyExists` if it runs.
    pub fn start_writer(&self) -> io::Result<WriterThread> {
        WriterThread::start(Arc::clone(&self.core))
    }

    /// Lets callers commit a record that is alone ([`Appender::finish`]). Only where their threads may wait for the
    /// disk: a runtime needs another thread meanwhile.
    pub fn let_callers_commit(&self, is_allowed: bool) {
        self.core.gather().recent.is_allowed = is_allowed;
    }

    /// Reads a record, durable or not, and checks it.
    pub fn read(&self, position: Position) -> Result<Record, LogError> {
        let bytes = self.bytes_of(position, |file, buffer| file.read_at(u64::from(position.offset), buffer))?;
        self.record_of(position, bytes)
    }

    /// Reads a record if that takes no waiting for the disk; `None` if it would.
    pub fn read_now(&self, position: Position) -> Option<Result<Record, LogError>> {
        let mut has_come = true;
        let bytes = self.bytes_of(position, |file, buffer| {
            has_come = file.read_now(u64::from(position.offset), buffer)?;
            Ok(())
        });
        has_come.then(|| self.record_of(position, bytes?))
    }

    fn record_of(&self, position: Position, bytes: Vec<u8>) -> Result<Record, LogError> {
        let place = FrameAddress { seed: self.core.seed, segment: position.segment, offset: position.offset };
        let Found::Whole(frame, _) = frame::look(place, &bytes) else { return Err(LogError::Corrupt { position }) };
        if frame.is_mark || frame.len() != u64::from(position.len) {
            return Err(LogError::Corrupt { position });
        }
        let bytes = Bytes::from(bytes);
        let head_end = HEADER_LEN as usize + usize::from(frame.head_len);
        let body_end = head_end + frame.body_len as usize;
        Ok(Record { head: bytes.slice(HEADER_LEN as usize..head_end), body: bytes.slice(head_end..body_end) })
    }

    fn bytes_of(
        &self,
        position: Position,
        read: impl FnOnce(&dyn DiskFile, &mut [u8]) -> io::Result<()>,
    ) -> Result<Vec<u8>, LogError> {
        if let Some(gathered) = self.core.gather().find(position) {
            return Ok(gathered);
        }
        let known = self.core.table().get(position.segment).map(|segment| (segment.segment_bytes, segment.is_missing));
        let (segment_bytes, is_missing) = known.ok_or(LogError::Gone { segment: position.segment })?;
        // A lost file is as final as a damaged record; waiting for it would help nobody.
        if is_missing || u64::from(position.offset) + u64::from(position.len) > u64::from(segment_bytes) {
            return Err(LogError::Corrupt { position });
        }
        let file = self.core.readable(position.segment)?;
        let mut bytes = vec![0; position.len as usize];
        match read(file.as_ref(), &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(LogError::Corrupt { position }),
            Err(error) => Err(LogError::io("reading a record", &error)),
        }
    }

    /// The body at this position is no longer needed.
    pub fn release(&self, position: Position) {
        self.core.table().release(position);
    }

    /// The bodies at these positions are no longer needed.
    pub fn release_all(&self, positions: impl ExactSizeIterator<Item = Position>) {
        if positions.len() > 0 {
            let mut table = self.core.table();
            positions.for_each(|position| table.release(position));
        }
    }

    /// Sizes and counters of the log at this moment.
    pub fn usage(&self) -> Usage {
        let gather = self.core.gather();
        let table = self.core.table();
        Usage {
            bytes_total: gather.used_bytes(),
            bytes_live: table.live_bytes(),
            quota_bytes: self.core.options.quota_bytes,
            data_bytes_max: self.core.options.quota_bytes - self.core.options.reserve_bytes,
            // An eighth of a segment ahead, so that it is said before the first large message is refused.
            shortage: gather.shortage(Class::Data, self.core.options.segment_bytes / 8),
            segments: u32::try_from(table.iter().len()).unwrap_or(u32::MAX),
            gathered_bytes: gather.gathered_bytes() as u64,
            syncs: gather.commits(),
            caller_syncs: gather.recent.caller_commits,
            records: table.iter().map(|segment| segment.records).sum(),
            appended: gather.appended(),
        }
    }
}
