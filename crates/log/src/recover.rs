//! What is believed after a stop: every whole record; a torn tail is cut, damage is set aside, and nothing else is
//! touched.
//!
//! A part of a group is synced before the next segment is written to, so only the last segment that was touched can
//! be torn. In it, a bad place is damage if a later frame, or the manifest, says that it had been durable, and
//! otherwise the start of the torn tail.
//!
//! Segments are opened one after another and closed again: a log may have more of them than the process descriptors.

use crate::core::{Claimed, Core, log_name, sidecar_name};
use crate::disk::{Disk, DiskFile, Durability, read_segment, read_up_to};
use crate::error::LogError;
use crate::frame::{FrameAddress, MARK_LEN, SEGMENT_HEADER_LEN, SegmentHeader, mark};
use crate::gather::{Gather, Tail};
use crate::manifest::{Manifest, ManifestFiles};
use crate::model::{LogOptions, Lsn, Recovery, Replayed};
use crate::scan::{Contents, Cursor, Scan, scan, trailing_zeros};
use crate::sidecar;
use crate::table::{Added, Live, Segment, Table};
use crate::upkeep::{is_full, make_segment, segments_in, whole_bytes, write_sidecar, write_zeros, zero_fills};
use inventory::{Inventory, OnDisk};
use std::io;
use std::sync::Arc;

mod evidence;
mod inventory;

const SEGMENT_BYTES_MIN: u32 = 1024;
const SEGMENT_BYTES_MAX: u32 = 1 << 30;

type Visit<'a> = &'a mut dyn FnMut(Replayed<'_>, &mut Live);

/// Recovers what the disk holds, or starts a log on an empty disk.
pub fn open(disk: &Arc<dyn Disk>, options: LogOptions, visit: Visit) -> Result<(Core, Recovery), LogError> {
    check(&options)?;
    let claimed = Claimed::take(disk)?;
    let (recovered, recovery) = Recovering::new(disk.as_ref(), &options)
        .and_then(|recovering| recovering.run(visit))
        .map_err(|error| error.into_log_error())?;
    let Recovered { table, tail, seed, manifest } = recovered;
    let sealed = table.iter().filter(|segment| segment.number < tail.segment);
    let sealed_bytes = sealed.map(|segment| u64::from(segment.segment_bytes)).sum();
    let mut gather = Gather::new(seed, options.clone(), tail, sealed_bytes);
    // Before the first append: a start must not spend what an earlier life kept.
    if zero_fills(disk.as_ref(), &options) {
        let free = disk.free_bytes().map_err(|error| LogError::io("asking for free space", &error))?;
        let last_made = table.prepared.back().map_or(tail.segment, |(number, _)| *number);
        gather.set_room(last_made, segments_in(free, &options));
    }
    Ok((Core::new(claimed, options, seed, gather, table, manifest), recovery))
}

fn check(options: &LogOptions) -> Result<(), LogError> {
    let segment_range = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
    if !segment_range.contains(&options.segment_bytes) {
        return Err(LogError::Options("segment_bytes must be from 1 KiB to 1 GiB"));
    }
    if options.reserve_bytes >= options.quota_bytes {
        return Err(LogError::Options("reserve_bytes must be less than quota_bytes"));
    }
    if options.gather_bytes_max < SEGMENT_BYTES_MIN as usize {
        return Err(LogError::Options("gather_bytes_max must be at least 1 KiB"));
    }
    Ok(())
}

/// Errors of the disk while opening, and the one that is not.
enum Trouble {
    Disk(io::Error),
    Log(LogError),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Disk(error)
    }
}

impl From<LogError> for Trouble {
    fn from(error: LogError) -> Self {
        Trouble::Log(error)
    }
}

impl Trouble {
    fn into_log_error(self) -> LogError {
        match self {
            Trouble::Disk(error) => LogError::io("recovering the log", &error),
            Trouble::Log(error) => error,
        }
    }
}

struct Recovered {
    table: Table,
    tail: Tail,
    seed: u32,
    manifest: Option<ManifestFiles>,
}

struct Recovering<'a> {
    disk: &'a dyn Disk,
    options: &'a LogOptions,
    found: Inventory,
    table: Table,
    cursor: Cursor,
    /// Open from the start of a new log, and otherwise from the end of the recovery.
    manifest: Option<ManifestFiles>,
    /// First record of the log as the manifest knows it, while no segment has shown it.
    first_lsn: Option<u64>,
    /// Files to be removed once the manifest no longer lists them.
    discarded: Vec<String>,
    report: Recovery,
}

impl<'a> Recovering<'a> {
    /// Looks at everything before it changes anything: what another version wrote is refused untouched.
    fn new(disk: &'a dyn Disk, options: &'a LogOptions) -> Result<Self, Trouble> {
        let found = Inventory::take(disk, options)?;
        let mut recovering = Recovering {
            disk,
            options,
            found,
            table: Table::default(),
            cursor: Cursor::default(),
            manifest: None,
            first_lsn: None,
            discarded: Vec::new(),
            report: Recovery::default(),
        };
        recovering.tell_damaged_files();
        recovering.found.remove_unfinished(disk)?;
        if recovering.found.segments.is_empty() {
            recovering.start_new()?;
        }
        recovering.mend_headers()?;
        Ok(recovering)
    }

    /// The manifest comes first: a segment without one would look like a log that has lost it.
    fn start_new(&mut self) -> Result<(), Trouble> {
        if self.disk.durability() == Durability::Fsynced {
            let mut manifest = ManifestFiles::open(self.disk, self.found.manifest.as_ref())?;
            manifest.write(&Manifest { seed: self.found.seed, ..Manifest::default() })?;
            self.manifest = Some(manifest);
        }
        make_segment(self.disk, self.options, self.found.seed, 1)?;
        let whole_bytes = whole_bytes(self.disk, self.options);
        let segment_bytes = self.options.segment_bytes;
        let bytes = u64::from(whole_bytes.max(SEGMENT_HEADER_LEN));
        self.found.segments.insert(1, OnDisk { segment_bytes, whole_bytes, bytes, is_header_bad: false });
        self.found.is_listed = true;
        self.cursor.next = Some(1);
        Ok(())
    }

    /// The secret is the same in all headers, so a bad one is written anew.
    fn mend_headers(&mut self) -> Result<(), Trouble> {
        for (&segment, on_disk) in self.found.segments.iter().filter(|(_, on_disk)| on_disk.is_header_bad) {
            self.report.headers_damaged += 1;
            // The other copy serves as well until there is room.
            unless_full(
                "the header of a segment",
                self.write_header(segment, on_disk.segment_bytes, self.found.is_listed),
            )?;
        }
        Ok(())
    }

    fn write_header(&self, segment: u32, segment_bytes: u32, is_listed: bool) -> io::Result<()> {
        let file = self.disk.open(&log_name(segment))?;
        file.write_at(0, &SegmentHeader { segment, seed: self.found.seed, segment_bytes, is_listed }.encode())?;
        file.sync()
    }

    fn run(mut self, visit: Visit) -> Result<(Recovered, Recovery), Trouble> {
        let (last, last_bytes) = self.find_last()?;
        self.tell_lost_files(last);
        let oldest = self.found.oldest().unwrap_or(last);
        for segment in oldest..last {
            self.recover_sealed(segment, visit)?;
        }
        let tail = self.recover_last(last, last_bytes, visit)?;
        let manifest = self.list_segments(tail)?;
        self.report.last = Lsn(tail.lsn);
        self.report.segments = u32::try_from(self.table.iter().len()).unwrap_or(u32::MAX);
        self.warn();
        Ok((Recovered { table: self.table, tail, seed: self.found.seed, manifest }, self.report))
    }

    /// Names every file that was cut, before any of them is mended, and a lost manifest, before it is made again.
    fn tell_damaged_files(&mut self) {
        self.report.manifest_lost = self.found.is_manifest_lost();
        if self.report.manifest_lost {
            tracing::error!("the manifest of the log is lost or damaged; it is made again from the segments found");
        }
        for (segment, OnDisk { whole_bytes, bytes, .. }) in self.found.cut() {
            self.report.segments_cut += 1;
            tracing::error!(segment, bytes, whole_bytes, "a segment of the log was cut: its file is too short");
        }
    }

    /// Names every file that is lost: what it held is missed further on, but not all of it has a number.
    fn tell_lost_files(&mut self, last: u32) {
        for listed in self.found.missing() {
            self.report.segments_missing += 1;
            let (segment, first_lsn) = (listed.number, listed.first_lsn);
            tracing::error!(segment, first_lsn, "a segment of the log is lost: its file is not there");
        }
        for segment in self.found.holes(last) {
            self.report.segments_missing += 1;
            tracing::error!(segment, "a segment of the log is lost: its file is not there");
        }
    }

    fn warn(&self) {
        let Recovery { torn_bytes, quarantined_bytes, headers_damaged, .. } = self.report;
        if torn_bytes > 0 {
            tracing::warn!(torn_bytes, "cut the torn tail of the log; its bytes are kept in a torn-*.bin file");
        }
        if quarantined_bytes > 0 || headers_damaged > 0 || self.report.has_losses() {
            tracing::error!(report = ?self.report, "the log is damaged; what is whole is served");
        }
    }

    /// Says which segments there are from now on, durable before anything is appended; then removes what is not listed.
    fn list_segments(&mut self, tail: Tail) -> Result<Option<ManifestFiles>, Trouble> {
        let mut files = None;
        if self.disk.durability() == Durability::Fsynced {
            files = unless_full("the manifest of the log", self.write_manifest(tail))?;
            // What an older manifest lists must not go before a newer one does not.
            if files.is_none() {
                return Ok(None);
            }
            // A log of before there were manifests: from now on it is known to have one.
            if !self.found.is_listed {
                let written = self.write_header(tail.segment, tail.segment_bytes, true);
                unless_full("the header of a segment", written)?;
            }
        }
        for name in self.discarded.drain(..).chain(self.found.remains.drain(..)) {
            self.disk.remove(&name)?;
        }
        // Always: names that were seen may not be durable yet, if the sync before the stop failed.
        self.disk.sync_dir()?;
        Ok(files)
    }

    fn write_manifest(&mut self, tail: Tail) -> io::Result<ManifestFiles> {
        let mut manifest = match self.manifest.take() {
            Some(manifest) => manifest,
            None => ManifestFiles::open(self.disk, self.found.manifest.as_ref())?,
        };
        let ahead_bytes = self.options.segment_bytes;
        manifest.begin(&Manifest::of(self.found.seed, &self.table, ahead_bytes, tail.lsn, tail.segment))?;
        Ok(manifest)
    }

    /// The last segment that was ever written to, with its bytes. Blank ones after it were made ahead: those that
    /// follow it without a gap are kept as such, others go.
    fn find_last(&mut self) -> Result<(u32, Vec<u8>), Trouble> {
        let oldest = *self.found.segments.keys().next().expect("a log has a segment");
        let mut blank = Vec::new();
        loop {
            let (&number, segment) = self.found.segments.last_key_value().expect("the oldest is never taken out");
            let file = self.disk.open(&log_name(number))?;
            let bytes = read_segment(file.as_ref(), u64::from(segment.segment_bytes))?;
            let written = bytes.len() - trailing_zeros(&bytes);
            if written > SEGMENT_HEADER_LEN as usize || number == oldest {
                self.keep_made_ahead(number + 1, blank)?;
                return Ok((number, bytes));
            }
            blank.extend(self.found.segments.pop_last());
        }
    }

    fn keep_made_ahead(&mut self, next: u32, blank: Vec<(u32, OnDisk)>) -> Result<(), Trouble> {
        for (number, segment) in blank.into_iter().rev() {
            let next = next + self.table.prepared.len() as u32;
            let is_usable = segment.segment_bytes == self.options.segment_bytes
                && segment.bytes == u64::from(segment.segment_bytes)
                && zero_fills(self.disk, self.options);
            if number == next && is_usable {
                self.table.prepared.push_back((number, self.disk.open(&log_name(number))?));
            } else {
                self.discarded.push(log_name(number));
            }
            self.found.blank.insert(number);
        }
        Ok(())
    }

    fn recover_sealed(&mut self, number: u32, visit: Visit) -> Result<(), Trouble> {
        let Some(on_disk) = self.found.segments.remove(&number) else { return self.recover_missing(number, visit) };
        let mut sidecar_done = true;
        let contents = match self.read_sidecar(number)? {
            Some(contents) => self.check_sidecar(contents),
            None => {
                self.report.segments_read_whole += 1;
                let file = self.disk.open(&log_name(number))?;
                let bytes = read_segment(file.as_ref(), u64::from(on_disk.segment_bytes))?;
                let scan = scan(self.found.seed, number, &bytes, self.cursor).known(number)?.without_torn_idle_mark();
                let contents = Contents { scan, bytes };
                evidence::save_damage(self.disk, number, &contents)?;
                sidecar_done = self.options.sidecars;
                if sidecar_done {
                    write_sidecar(self.disk, self.found.seed, number, &contents)?;
                }
                contents
            }
        };
        self.take_in(number, &on_disk, &contents, visit);
        if let Some(segment) = self.table.get_mut(number) {
            segment.sidecar_done = sidecar_done;
        }
        Ok(())
    }

    /// A segment whose file is lost. Its sidecar still tells what was acknowledged in it, and which bodies are gone.
    fn recover_missing(&mut self, number: u32, visit: Visit) -> Result<(), Trouble> {
        let listed = self.found.listed(number).copied();
        let whole_bytes = listed.map_or(0, |listed| listed.whole_bytes);
        let segment_bytes = if whole_bytes > 0 { whole_bytes } else { self.options.segment_bytes };
        match self.read_sidecar(number)? {
            Some(contents) => {
                let contents = self.check_sidecar(contents);
                let bodies = contents.scan.entries.iter().filter(|entry| entry.body_len > 0).count();
                self.report.quarantined_records += bodies as u64;
                let on_disk = OnDisk { segment_bytes, whole_bytes, bytes: 0, is_header_bad: false };
                self.take_in(number, &on_disk, &contents, visit);
            }
            None => {
                let known = listed.map(|listed| listed.first_lsn).filter(|first| *first > 0);
                if self.cursor.next.is_none() {
                    self.first_lsn = self.first_lsn.or(known);
                }
                let first_lsn = self.cursor.next.or(known).unwrap_or(1);
                self.table.push(Segment { is_made: true, ..Segment::new(number, segment_bytes, first_lsn) });
            }
        }
        if let Some(segment) = self.table.get_mut(number) {
            (segment.is_missing, segment.sidecar_done, segment.whole_bytes) = (true, true, whole_bytes);
        }
        Ok(())
    }

    fn read_sidecar(&self, number: u32) -> Result<Option<Contents>, Trouble> {
        if !self.found.sidecars.contains(&number) {
            return Ok(None);
        }
        let Ok(file) = self.disk.open(&sidecar_name(number)) else { return Ok(None) };
        let Ok(bytes) = read_up_to(file.as_ref(), u64::from(u32::MAX)) else { return Ok(None) };
        if let Some(version) = sidecar::unknown_version(&bytes) {
            let what = format!("{} (version {version})", sidecar_name(number));
            return Err(LogError::UnknownVersion { what }.into());
        }
        Ok(sidecar::decode(self.found.seed, number, bytes))
    }

    /// Records may be missing between the segment before and what the sidecar starts with.
    fn check_sidecar(&mut self, contents: Contents) -> Contents {
        if let (Some(first), Some(expected)) = (first_number(&contents.scan), self.cursor.next) {
            self.report.quarantined_records += first.saturating_sub(expected);
        }
        contents
    }

    fn recover_last(&mut self, number: u32, bytes: Vec<u8>, visit: Visit) -> Result<Tail, Trouble> {
        let on_disk = self.found.segments.remove(&number).expect("the last segment was found");
        let durable = self.found.manifest.as_ref().map_or(0, |(_, manifest)| manifest.durable);
        let written = bytes.len() - trailing_zeros(&bytes);
        let mut scan = scan(self.found.seed, number, &bytes, self.cursor).known(number)?;
        scan.synced = scan.synced.max(durable);
        let mut contents = Contents { scan, bytes };
        if self.found.sidecars.contains(&number) {
            // It would be stale as soon as a record is appended.
            self.disk.remove(&sidecar_name(number))?;
            self.disk.sync_dir()?;
        }
        self.report.segments_read_whole += 1;
        self.report.sealed = contents.scan.cursor.next.unwrap_or(1) == contents.scan.synced + 1;
        let file = self.disk.open(&log_name(number))?;
        self.judge_tail(number, &mut contents, written)?;
        evidence::save_damage(self.disk, number, &contents)?;
        self.take_in(number, &on_disk, &contents, visit);
        self.miss_end(durable);
        let mut tail = Tail {
            segment: number,
            offset: contents.scan.end,
            segment_bytes: on_disk.segment_bytes,
            lsn: self.cursor.next.unwrap_or(1) - 1,
            chain: self.cursor.chain.unwrap_or(0),
        };
        tail.segment_bytes = self.make_durable(file.as_ref(), &contents, &on_disk, tail)?;
        if let Some(segment) = self.table.get_mut(number) {
            (segment.file, segment.segment_bytes) = (Some(file), tail.segment_bytes);
        }
        self.table.writing_from = number;
        Ok(tail)
    }

    /// Cuts a torn tail, with its bytes kept, and mends marks that a crash took; both on the disk only later.
    fn judge_tail(&mut self, number: u32, contents: &mut Contents, written: usize) -> Result<(), Trouble> {
        if let Some(torn) = contents.scan.torn_gap() {
            let cut = contents.scan.cut(torn);
            self.report.torn_bytes += written.saturating_sub(cut as usize) as u64;
            self.report.sealed = false;
            // Durable before the tail is overwritten, so that a second crash cannot destroy the evidence.
            evidence::save_torn(self.disk, number, cut, &contents.bytes[cut as usize..written])?;
        }
        for gap in contents.scan.take_torn_marks() {
            // A group is written when all before it is durable, so this is what its mark said.
            let place = FrameAddress { seed: self.found.seed, segment: number, offset: gap.offset };
            let mended = mark(place, gap.first, gap.chain.unwrap_or(0), gap.first - 1);
            contents.bytes[gap.offset as usize..(gap.offset + MARK_LEN) as usize].copy_from_slice(&mended);
            self.report.marks_mended += 1;
        }
        Ok(())
    }

    /// Records that the manifest knows to have been durable and that left no trace: counted, and never numbered anew.
    fn miss_end(&mut self, durable: u64) {
        let next = self.cursor.next.unwrap_or(1);
        if durable >= next {
            self.report.quarantined_records += durable + 1 - next;
            self.report.sealed = false;
            self.cursor.next = Some(durable + 1);
        }
    }

    /// Writes again what no frame says to be durable. It was read, but after a failed sync the machine calls pages
    /// clean that the medium never got: only writing them again makes the next sync mean something. The same goes for
    /// the zeros behind a torn tail that was cut. The mark that vouches for all of it comes after their sync; it keeps
    /// the numbering even if nothing else is left. Gives the bytes that records may use: fewer where a full device
    /// cannot give a file that was cut its room back.
    fn make_durable(&self, file: &dyn DiskFile, contents: &Contents, on_disk: &OnDisk, tail: Tail) -> io::Result<u32> {
        let (start, end) = (contents.scan.durable_end(), tail.offset.min(contents.bytes.len() as u32));
        if start < end {
            file.write_at(u64::from(start), &contents.bytes[start as usize..end as usize])?;
        }
        file.sync()?;
        // Also where a full device kept no copy of what was cut.
        let has_cut = self.report.torn_bytes > 0;
        let written = if has_cut { contents.bytes.len() - trailing_zeros(&contents.bytes) } else { 0 };
        let cut_end = evidence::torn_end(self.disk, tail.segment)?.max(written as u64);
        write_zeros(file, u64::from(tail.offset), cut_end.min(on_disk.bytes))?;
        // A file that was cut gets its room back; what was in it is told.
        let grown = write_zeros(file, on_disk.bytes.max(u64::from(tail.offset)), u64::from(on_disk.whole_bytes));
        let segment_bytes = match unless_full("the end of a segment that was cut", grown)? {
            Some(()) => tail.segment_bytes,
            None => u32::try_from(file.len()?).unwrap_or(u32::MAX).clamp(tail.offset, tail.segment_bytes),
        };
        if segment_bytes - tail.offset >= MARK_LEN {
            let place = FrameAddress { seed: self.found.seed, segment: tail.segment, offset: tail.offset };
            file.write_at(u64::from(tail.offset), &mark(place, tail.lsn + 1, tail.chain, tail.lsn))?;
        }
        file.sync()?;
        Ok(segment_bytes)
    }

    /// Counts and replays what a segment holds.
    fn take_in(&mut self, number: u32, on_disk: &OnDisk, contents: &Contents, visit: Visit) {
        let scan = &contents.scan;
        if let (None, Some(expected), Some(first)) = (self.cursor.next, self.first_lsn.take(), first_number(scan)) {
            self.report.quarantined_records += first.saturating_sub(expected);
        }
        let first_entry = scan.entries.first().map(|entry| entry.lsn);
        let first_lsn = self.cursor.next.or(first_entry).or(scan.cursor.next).unwrap_or(1);
        let (segment_bytes, whole_bytes) = (on_disk.segment_bytes, on_disk.whole_bytes);
        let segment = Segment::new(number, segment_bytes, first_lsn);
        self.table.push(Segment { is_made: true, whole_bytes, ..segment });
        for entry in &scan.entries {
            let mut added = Added::default();
            added.count(entry.len(), entry.body_len > 0);
            self.table.add(number, segment_bytes, entry.lsn, added);
            visit(contents.replayed(number, entry), &mut Live::new(&mut self.table));
        }
        self.report.records += scan.entries.len() as u64;
        self.report.quarantined_records += scan.lost_records();
        self.report.quarantined_bytes += scan.lost_bytes();
        self.report.chain_breaks += scan.chain_breaks;
        self.cursor = scan.cursor;
    }
}

/// What a full device has no room for is left out: a node that could not start would help nobody to make room.
fn unless_full<T>(what: &'static str, written: io::Result<T>) -> io::Result<Option<T>> {
    match written {
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "the device is full: {what} was not written");
            Ok(None)
        }
        written => written.map(Some),
    }
}

/// The first number that a segment speaks of.
fn first_number(scan: &Scan) -> Option<u64> {
    let first_entry = scan.entries.first().map(|entry| entry.lsn);
    let first_gap = scan.gaps.first().map(|gap| gap.first);
    first_entry.into_iter().chain(first_gap).chain(scan.cursor.next).min()
}

#[cfg(test)]
mod tests;
