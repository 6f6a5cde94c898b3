//! Work beside the commits: segments made ahead, sidecars of sealed segments.

use crate::core::{Core, log_name, sidecar_name, temporary_name};
use crate::disk::{Disk, DiskFile, Durability, read_up_to, remove_if_there};
use crate::error::LogError;
use crate::frame::SegmentHeader;
use crate::gather::RESERVE_SEGMENTS;
use crate::manifest::ManifestFiles;
use crate::model::LogOptions;
use crate::scan::{Contents, Cursor, scan};
use crate::sidecar;
use std::io;
use std::sync::Arc;

/// Zeros are written and synced in steps, so that commits of others need not wait for a whole segment.
const ZERO_STEP_BYTES: usize = 1 << 20;
/// With less free than this many segments, the reserve of a full device is made while there is room for it.
const TIGHT_SEGMENTS: u64 = RESERVE_SEGMENTS + 2;

impl Core {
    /// Does whatever is due. Running out of space here costs nothing that was promised, so it is no failure.
    pub fn do_upkeep(&self) -> Result<(), LogError> {
        if let Some(error) = self.gather().failed() {
            return Err(error.clone());
        }
        self.make_ahead()?;
        while self.write_next_sidecar()? {}
        Ok(())
    }

    /// Makes the next segment, so that the writer finds it ready; and where the device has not room for many more, the
    /// reserve of what frees room. Data may go on only while what it takes of that can be made again.
    fn make_ahead(&self) -> Result<(), LogError> {
        if !zero_fills(self.disk.as_ref(), &self.options) {
            return Ok(());
        }
        let mut files = self.lock_files();
        loop {
            let free = self.must("asking for free space", self.disk.free_bytes())?;
            let (next, ahead) = {
                let table = self.table();
                let made = table.iter().rev().find(|segment| segment.is_made).map_or(0, |segment| segment.number);
                (table.prepared.back().map_or(made, |(number, _)| *number) + 1, table.prepared.len() as u64)
            };
            let is_tight = free < TIGHT_SEGMENTS * u64::from(self.options.segment_bytes);
            let more = segments_in(free, &self.options);
            if more == 0 || ahead >= if is_tight { RESERVE_SEGMENTS } else { 1 } {
                self.gather().set_room(next - 1, more);
                return Ok(());
            }
            if !self.make_one_ahead(&mut files, next)? {
                self.gather().set_room(next - 1, 0);
                return Ok(());
            }
        }
    }

    /// Makes a segment ahead; false if the device turns out to have no room for it.
    fn make_one_ahead(&self, files: &mut Option<ManifestFiles>, next: u32) -> Result<bool, LogError> {
        let made = make_segment(self.disk.as_ref(), &self.options, self.seed, next).and_then(|file| {
            self.table().prepared.push_back((next, file));
            self.write_manifest(files)
        });
        match made {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                // The segment itself may have been made, and only its entry in the manifest found no room.
                let is_made = {
                    let mut table = self.table();
                    let is_made = table.prepared.back().is_some_and(|(number, _)| *number == next);
                    drop(if is_made { table.prepared.pop_back() } else { None });
                    is_made
                };
                let name = if is_made { log_name(next) } else { temporary_name(next, "log") };
                self.must("removing an unfinished segment", remove_if_there(self.disk.as_ref(), &name))?;
                Ok(false)
            }
            Err(error) => self.must("making a segment ahead", Err(error)),
        }
    }

    /// Writes one sidecar that is missing; false if none is.
    fn write_next_sidecar(&self) -> Result<bool, LogError> {
        if !self.options.sidecars || self.disk.durability() == Durability::Ram {
            return Ok(false);
        }
        let _files = self.lock_files();
        let sealed_before = self.gather().durable_segment();
        let due = {
            let table = self.table();
            let mut sealed = table.iter().take_while(|segment| segment.number < sealed_before);
            let due = sealed.find(|segment| segment.is_made && !segment.sidecar_done);
            due.map(|segment| (segment.number, segment.first_lsn))
        };
        let Some((segment, first_lsn)) = due else { return Ok(false) };
        // A segment that cannot be read is no reason to stop writing; a restart will look at it again.
        match self.read_segment(segment, first_lsn) {
            Ok(contents) => {
                let written = write_sidecar(self.disk.as_ref(), self.seed, segment, &contents);
                self.must("writing a sidecar", written)?;
            }
            Err(error) => tracing::warn!(segment, %error, "no sidecar: the segment cannot be read"),
        }
        if let Some(known) = self.table().get_mut(segment) {
            known.sidecar_done = true;
        }
        Ok(true)
    }

    /// Reads and scans a whole segment.
    pub fn read_segment(&self, segment: u32, first_lsn: u64) -> Result<Contents, LogError> {
        let file = self.readable(segment)?;
        let bytes = read_up_to(file.as_ref(), u64::from(u32::MAX));
        let bytes = bytes.map_err(|error| LogError::io("reading a segment", &error))?;
        let scan =
            scan(self.seed, segment, &bytes, Cursor { next: Some(first_lsn), chain: None }).without_torn_idle_mark();
        let scan = scan.known(segment)?;
        Ok(Contents { scan, bytes })
    }
}

/// Segments that a device has room for, beside a quarter of one for sidecars and lists.
pub fn segments_in(free: u64, options: &LogOptions) -> u64 {
    let segment_bytes = u64::from(options.segment_bytes);
    free.saturating_sub(segment_bytes / 4) / segment_bytes
}

/// Whether segments are zero-filled before use; in memory there is nothing to gain.
pub fn zero_fills(disk: &dyn Disk, options: &LogOptions) -> bool {
    options.zero_ahead && disk.durability() == Durability::Fsynced
}

/// Bytes a new segment has from the start; 0 if it grows.
pub fn whole_bytes(disk: &dyn Disk, options: &LogOptions) -> u32 {
    if zero_fills(disk, options) { options.segment_bytes } else { 0 }
}

/// Makes a segment: header and zeros durable, then its name. It is never seen unfinished.
pub fn make_segment(disk: &dyn Disk, options: &LogOptions, seed: u32, segment: u32) -> io::Result<Arc<dyn DiskFile>> {
    let temporary = temporary_name(segment, "log");
    let file = disk.create(&temporary)?;
    let is_listed = disk.durability() == Durability::Fsynced;
    let header = SegmentHeader { segment, seed, segment_bytes: options.segment_bytes, is_listed }.encode();
    file.write_at(0, &header)?;
    if zero_fills(disk, options) {
        write_zeros(file.as_ref(), header.len() as u64, u64::from(options.segment_bytes))?;
    }
    file.sync()?;
    disk.rename(&temporary, &log_name(segment))?;
    disk.sync_dir()?;
    Ok(file)
}

/// Writes zeros from `start` to `end` and syncs them step by step.
pub fn write_zeros(file: &dyn DiskFile, start: u64, end: u64) -> io::Result<()> {
    let length = end.saturating_sub(start).min(ZERO_STEP_BYTES as u64);
    let zeros = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut at = start;
    while at < end {
        let step = usize::try_from(end - at).map_or(zeros.len(), |left| left.min(zeros.len()));
        file.write_at(at, &zeros[..step])?;
        file.sync()?;
        at += step as u64;
    }
    Ok(())
}

/// Writes a sidecar. It is not synced: it has a checksum and can be made again. A full disk just leaves it out.
pub fn write_sidecar(disk: &dyn Disk, seed: u32, segment: u32, contents: &Contents) -> io::Result<()> {
    let temporary = temporary_name(segment, "idx");
    let written = disk.create(&temporary).and_then(|file| {
        file.write_at(0, &sidecar::encode(seed, segment, contents))?;
        disk.rename(&temporary, &sidecar_name(segment))
    });
    match written {
        Err(error) if is_full(&error) => remove_if_there(disk, &temporary),
        written => written,
    }
}

/// Whether the device has no room, or its owner may not use what is left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
