//! Reading the log through, and giving back its oldest segment.

use crate::core::{Core, log_name, sidecar_name};
use crate::disk::{read_up_to, remove_if_there};
use crate::error::LogError;
use crate::gather::{COPY_SEGMENTS, CopyRoom};
use crate::log::Log;
use crate::model::{Class, Replayed, Shortage};
use crate::scan::{Contents, Scan};
use crate::sidecar;
use crate::table::Table;

impl Log {
    /// Flushes, then shows everything appended before the call, in the order of the numbers.
    pub fn replay(&self, visit: &mut dyn FnMut(Replayed<'_>)) -> Result<(), LogError> {
        let limit = self.flush()?.0;
        let segments: Vec<u32> = self.core.table().iter().map(|segment| segment.number).collect();
        for segment in segments {
            self.core.records_of(segment, limit, visit)?;
        }
        Ok(())
    }

    /// Shows the records of one segment; flushes first if it is the active one.
    pub fn records_of(&self, segment: u32, visit: &mut dyn FnMut(Replayed<'_>)) -> Result<(), LogError> {
        let is_sealed = segment < self.core.gather().durable_segment();
        let limit = if is_sealed { u64::MAX } else { self.flush()?.0 };
        self.core.records_of(segment, limit, visit)
    }

    /// The oldest segment, if it is worth copying the rest of it forward: next to nothing in it is needed, or less than
    /// half of the whole log is (three quarters where data has little room left, so that what takes time begins before
    /// data is refused), or there is no room for data and reclaiming would give some back. Only the oldest, because an
    /// ack may be dropped only when the record it speaks of is gone.
    ///
    /// Each reason names garbage, and copying makes none: once all segments have had their turn there is none left, so
    /// that this ends. A log without room is gone through for a quarter of its reserve, not for less: the smaller the
    /// gain, the more is copied for it.
    pub fn reclaimable(&self) -> Option<u32> {
        let (active, is_tight, is_short, on_device) = {
            let gather = self.core.gather();
            let data_bytes_max = self.core.options.quota_bytes - self.core.options.reserve_bytes;
            let is_tight = gather.used_bytes() >= data_bytes_max / 4 * 3;
            let is_short = gather.shortage(Class::Data, self.core.options.segment_bytes / 2).is_some();
            (gather.durable_segment(), is_tight, is_short, gather.has_no_room().then(|| gather.copy_room()))
        };
        let table = self.core.table();
        let oldest = table.oldest().filter(|oldest| oldest.number < active)?;
        let kept_here = table.kept.min(oldest.filled);
        let is_empty = oldest.live <= 0 && kept_here * 2 <= oldest.filled;
        let is_worth = match on_device {
            Some(room) => is_empty || self.core.gains_on_device(&table, room),
            None => {
                let garbage = table.garbage_bytes();
                let is_much = garbage * if is_tight { 4 } else { 2 } > table.filled_bytes();
                is_empty || is_much || is_short && self.core.gains(garbage)
            }
        };
        is_worth.then_some(oldest.number)
    }

    /// Number of the oldest segment, the one that may be retired next.
    pub fn oldest_segment(&self) -> Option<u32> {
        self.core.table().oldest().map(|oldest| oldest.number)
    }

    /// Whether nobody needs the body of a record in this segment, which is sealed: to give it back, only what has no
    /// body may have to be written again.
    pub fn is_dead(&self, segment: u32) -> bool {
        let is_sealed = segment < self.core.gather().durable_segment();
        is_sealed && self.core.table().get(segment).is_some_and(|known| known.live <= 0)
    }

    /// Nothing in a segment is needed, says the owner of the log, who has asked everybody; the bytes that were held to
    /// be needed. A thread that panicked may have taken releases with it, which would keep the segment for ever.
    pub fn release_segment(&self, segment: u32) -> u64 {
        let mut table = self.core.table();
        let live = table.get_mut(segment).map_or(0, |known| std::mem::take(&mut known.live));
        live.unsigned_abs()
    }

    /// Says how many bytes of records without a body are still needed, because only the owner of the log knows.
    pub fn set_kept_bytes(&self, bytes: u64) {
        self.core.table().kept = bytes;
    }

    /// Looks again whether a full device has room: nobody else does while nothing is appended.
    pub fn look_for_room(&self) {
        if self.core.gather().has_no_room() {
            self.core.want_upkeep();
        }
    }

    /// Gives the oldest segment back. Everything appended before the call is durable first, so that copies of what was
    /// still needed cannot be lost with it.
    pub fn retire(&self, segment: u32) -> Result<(), LogError> {
        self.flush()?;
        let core = &self.core;
        let mut files = core.lock_files();
        if segment >= core.gather().durable_segment() {
            return Err(LogError::NotOldest { segment });
        }
        // Something may have come to be needed here since the caller looked.
        if let Some(oldest) = core.table().oldest().filter(|oldest| oldest.number == segment && oldest.live > 0) {
            return Err(LogError::StillNeeded { segment, bytes: oldest.live.unsigned_abs() });
        }
        let retired = core.table().remove_oldest(segment)?;
        // Off the list first: a segment that is listed and not there is told as lost.
        core.must("taking a segment off the manifest", core.write_manifest(&mut files))?;
        core.must("removing a sidecar", remove_if_there(core.disk.as_ref(), &sidecar_name(segment)))?;
        core.must("removing a segment", remove_if_there(core.disk.as_ref(), &log_name(segment)))?;
        core.must("syncing the directory", core.disk.sync_dir())?;
        if files.is_none() {
            // A full device had no room for the list; what was removed may have made some.
            core.must("listing the segments", core.write_manifest(&mut files))?;
        }
        core.gather().retired(retired.segment_bytes);
        core.want_upkeep();
        Ok(())
    }
}

impl Core {
    /// Whether reclaiming would give back enough to wait for it.
    pub fn has_garbage(&self, shortage: Shortage, room: CopyRoom) -> bool {
        let table = self.table();
        match shortage {
            Shortage::Quota => self.gains(table.garbage_bytes()),
            Shortage::Device => self.gains_on_device(&table, room),
        }
    }

    /// Whether going through the log gives room back on a device that has no more. It may be much smaller than the
    /// quota and its reserve, so that the measure is a segment, and a part of the log for what records gain when they
    /// are copied. The copies must fit: half of them would free nothing. With little of the reserve left, only a
    /// segment is copied that gives back more than it takes by itself.
    fn gains_on_device(&self, table: &Table, CopyRoom { bytes, segments }: CopyRoom) -> bool {
        let Some(oldest) = table.oldest() else { return false };
        let (segment, filled) = (u64::from(self.options.segment_bytes), table.filled_bytes());
        // What is kept may be anywhere: the part of this segment is as much as its part of the log.
        let kept = (table.kept.saturating_mul(oldest.filled) / filled.max(1)).min(oldest.filled);
        let needed = kept + u64::try_from(oldest.live).unwrap_or(0);
        let is_worth = table.garbage_bytes() >= segment.max(filled / 16);
        let is_safe = segments >= COPY_SEGMENTS || needed + segment / 4 <= oldest.filled;
        needed <= bytes && is_worth && is_safe
    }

    fn gains(&self, garbage: u64) -> bool {
        garbage * 4 >= self.options.reserve_bytes
    }

    fn records_of(&self, segment: u32, limit: u64, visit: &mut dyn FnMut(Replayed<'_>)) -> Result<(), LogError> {
        let contents = self.contents_of(segment)?;
        let wanted = contents.scan.entries.iter().take_while(|entry| entry.lsn <= limit);
        wanted.for_each(|entry| visit(contents.replayed(segment, entry)));
        Ok(())
    }

    /// From the sidecar if there is a good one, else from the segment.
    fn contents_of(&self, segment: u32) -> Result<Contents, LogError> {
        let (first_lsn, may_have_sidecar, is_missing) = {
            let table = self.table();
            let known = table.get(segment).ok_or(LogError::Gone { segment })?;
            (known.first_lsn, known.sidecar_done, known.is_missing)
        };
        let sidecar = may_have_sidecar.then(|| self.disk.open(&sidecar_name(segment)).ok()).flatten();
        let bytes = sidecar.and_then(|file| read_up_to(file.as_ref(), u64::from(u32::MAX)).ok());
        match bytes.and_then(|bytes| sidecar::decode(self.seed, segment, bytes)) {
            Some(contents) => Ok(contents),
            // Nothing is left of it; it was told at the start, and must not keep the rest from being reclaimed.
            None if is_missing => Ok(Contents { scan: Scan::default(), bytes: Vec::new() }),
            None => self.read_segment(segment, first_lsn),
        }
    }
}
