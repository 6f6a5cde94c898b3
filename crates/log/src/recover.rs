//! What is believed after a stop: every whole record; a torn tail is cut, damage is set aside, and nothing else is
//! touched.
//!
//! A part of a group is synced before the next segment is written to, so only the last segment that was touched can
//! be torn. In it, a bad place is damage if a later frame says that it had been durable, and otherwise the start of
//! the torn tail.

use crate::core::{Claimed, Core, log_name, parse_name, sidecar_name};
use crate::disk::{Disk, DiskFile, read_segment, read_up_to};
use crate::error::LogError;
use crate::frame::{FrameAddress, MARK_LEN, SEGMENT_HEADER_LEN, SegmentHeader, mark};
use crate::gather::{Gather, Tail};
use crate::model::{LogOptions, Lsn, Recovery, Replayed};
use crate::scan::{Contents, Cursor, scan, trailing_zeros};
use crate::sidecar;
use crate::table::{Added, Live, Segment, Table};
use crate::upkeep::{make_segment, write_sidecar, write_zeros, zero_fills};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

mod evidence;

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
    let Recovered { table, tail, seed } = recovered;
    let sealed = table.iter().filter(|segment| segment.number < tail.segment);
    let sealed_bytes = sealed.map(|segment| u64::from(segment.segment_bytes)).sum();
    let gather = Gather::new(seed, options.clone(), tail, sealed_bytes);
    Ok((Core::new(claimed, options, seed, gather, table), recovery))
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
}

struct OnDisk {
    file: Arc<dyn DiskFile>,
    segment_bytes: u32,
}

struct Recovering<'a> {
    disk: &'a dyn Disk,
    options: &'a LogOptions,
    seed: u32,
    segments: BTreeMap<u32, OnDisk>,
    sidecars: BTreeSet<u32>,
    table: Table,
    cursor: Cursor,
    report: Recovery,
}

impl<'a> Recovering<'a> {
    fn new(disk: &'a dyn Disk, options: &'a LogOptions) -> Result<Self, Trouble> {
        let (numbers, sidecars) = list(disk)?;
        let mut recovering = Recovering {
            disk,
            options,
            seed: 0,
            segments: BTreeMap::new(),
            sidecars,
            table: Table::default(),
            cursor: Cursor::default(),
            report: Recovery::default(),
        };
        if numbers.is_empty() {
            recovering.seed = disk.secret();
            let file = make_segment(disk, options, recovering.seed, 1)?;
            recovering.segments.insert(1, OnDisk { file, segment_bytes: options.segment_bytes });
            recovering.cursor.next = Some(1);
        } else {
            recovering.read_headers(&numbers)?;
        }
        Ok(recovering)
    }

    /// The secret is the same in all headers, so any good one serves for all; bad ones are written anew.
    fn read_headers(&mut self, numbers: &BTreeSet<u32>) -> Result<(), Trouble> {
        let mut found = Vec::new();
        for &segment in numbers {
            let file = self.disk.open(&log_name(segment))?;
            let bytes = read_up_to(file.as_ref(), u64::from(SEGMENT_HEADER_LEN))?;
            found.push((segment, file, SegmentHeader::decode(&bytes, segment)));
        }
        let seeds = found.iter().find_map(|(_, _, header)| header.map(|(header, _)| header.seed));
        let segments = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        self.seed = seeds.ok_or(Trouble::Log(LogError::NoHeader { segments }))?;
        for (segment, file, header) in found {
            let segment_bytes = match header {
                Some((header, _)) => header.segment_bytes,
                None => u32::try_from(file.len()?).unwrap_or(u32::MAX).max(SEGMENT_HEADER_LEN),
            };
            if header.is_none_or(|(_, both)| !both) {
                self.report.headers_damaged += 1;
                file.write_at(0, &SegmentHeader { segment, seed: self.seed, segment_bytes }.encode())?;
                file.sync()?;
            }
            self.segments.insert(segment, OnDisk { file, segment_bytes });
        }
        Ok(())
    }

    fn run(mut self, visit: Visit) -> Result<(Recovered, Recovery), Trouble> {
        let (last, last_bytes) = self.find_last()?;
        let oldest = *self.segments.keys().next().unwrap_or(&last);
        for segment in oldest..last {
            self.recover_sealed(segment, visit)?;
        }
        let tail = self.recover_last(last, last_bytes, visit)?;
        self.report.last = Lsn(tail.lsn);
        self.report.segments = u32::try_from(self.table.iter().len()).unwrap_or(u32::MAX);
        self.warn();
        Ok((Recovered { table: self.table, tail, seed: self.seed }, self.report))
    }

    fn warn(&self) {
        let Recovery { torn_bytes, quarantined_records, quarantined_bytes, headers_damaged, .. } = self.report;
        if torn_bytes > 0 {
            tracing::warn!(torn_bytes, "cut the torn tail of the log; its bytes are kept in a torn-*.bin file");
        }
        if quarantined_bytes > 0 || quarantined_records > 0 || headers_damaged > 0 || self.report.segments_missing > 0 {
            tracing::error!(report = ?self.report, "the log is damaged; what is whole is served");
        }
    }

    /// The last segment that was ever written to, with its bytes. Blank ones after it were made ahead: the next is kept
    /// as such, others go.
    fn find_last(&mut self) -> Result<(u32, Vec<u8>), Trouble> {
        let oldest = *self.segments.keys().next().expect("a log has a segment");
        let mut blank = Vec::new();
        loop {
            let (&number, segment) = self.segments.last_key_value().expect("the oldest is never taken out");
            let bytes = read_segment(segment.file.as_ref(), u64::from(segment.segment_bytes))?;
            let written = bytes.len() - trailing_zeros(&bytes);
            if written > SEGMENT_HEADER_LEN as usize || number == oldest {
                self.keep_made_ahead(number + 1, blank)?;
                return Ok((number, bytes));
            }
            blank.extend(self.segments.pop_last());
        }
    }

    fn keep_made_ahead(&mut self, next: u32, blank: Vec<(u32, OnDisk)>) -> Result<(), Trouble> {
        for (number, segment) in blank {
            if number == next
                && segment.segment_bytes == self.options.segment_bytes
                && zero_fills(self.disk, self.options)
            {
                self.table.prepared = Some((number, segment.file));
            } else {
                self.disk.remove(&log_name(number))?;
                self.disk.sync_dir()?;
            }
        }
        Ok(())
    }

    fn recover_sealed(&mut self, number: u32, visit: Visit) -> Result<(), Trouble> {
        let Some(OnDisk { file, segment_bytes }) = self.segments.remove(&number) else {
            self.report.segments_missing += 1;
            let first_lsn = self.cursor.next.unwrap_or(1);
            self.table.push(Segment { is_made: true, ..Segment::new(number, self.options.segment_bytes, first_lsn) });
            return Ok(());
        };
        let mut sidecar_done = true;
        let contents = match self.read_sidecar(number) {
            Some(contents) => self.check_sidecar(contents),
            None => {
                self.report.segments_read_whole += 1;
                let bytes = read_segment(file.as_ref(), u64::from(segment_bytes))?;
                let scan = scan(self.seed, number, &bytes, self.cursor).without_torn_idle_mark();
                let contents = Contents { scan, bytes };
                evidence::save_damage(self.disk, number, &contents)?;
                sidecar_done = self.options.sidecars;
                if sidecar_done {
                    write_sidecar(self.disk, self.seed, number, &contents)?;
                }
                contents
            }
        };
        self.take_in(number, segment_bytes, &contents, visit);
        if let Some(segment) = self.table.get_mut(number) {
            segment.sidecar_done = sidecar_done;
        }
        Ok(())
    }

    fn read_sidecar(&self, number: u32) -> Option<Contents> {
        if !self.sidecars.contains(&number) {
            return None;
        }
        let file = self.disk.open(&sidecar_name(number)).ok()?;
        let bytes = read_up_to(file.as_ref(), u64::from(u32::MAX)).ok()?;
        sidecar::decode(self.seed, number, bytes)
    }

    /// Records may be missing between the segment before and what the sidecar starts with.
    fn check_sidecar(&mut self, contents: Contents) -> Contents {
        let scan = &contents.scan;
        let first_entry = scan.entries.first().map(|entry| entry.lsn);
        let first_gap = scan.gaps.first().map(|gap| gap.first);
        let first = first_entry.into_iter().chain(first_gap).chain(scan.cursor.next).min();
        if let (Some(first), Some(expected)) = (first, self.cursor.next) {
            self.report.quarantined_records += first.saturating_sub(expected);
        }
        contents
    }

    fn recover_last(&mut self, number: u32, bytes: Vec<u8>, visit: Visit) -> Result<Tail, Trouble> {
        let OnDisk { file, segment_bytes } = self.segments.remove(&number).expect("the last segment was found");
        if self.sidecars.contains(&number) {
            // It would be stale as soon as a record is appended.
            self.disk.remove(&sidecar_name(number))?;
            self.disk.sync_dir()?;
        }
        self.report.segments_read_whole += 1;
        let written = bytes.len() - trailing_zeros(&bytes);
        let mut contents = Contents { scan: scan(self.seed, number, &bytes, self.cursor), bytes };
        self.report.sealed = contents.scan.cursor.next.unwrap_or(1) == contents.scan.synced + 1;
        if let Some(torn) = contents.scan.torn_gap() {
            let cut = contents.scan.cut(torn);
            self.report.torn_bytes += written.saturating_sub(cut as usize) as u64;
            self.report.sealed = false;
            // Durable before the tail is overwritten, so that a second crash cannot destroy the evidence.
            evidence::save_torn(self.disk, number, cut, &contents.bytes[cut as usize..written])?;
            write_zeros(file.as_ref(), u64::from(cut), written as u64)?;
        }
        for gap in contents.scan.take_torn_marks() {
            // A group is written when all before it is durable, so this is what its mark said.
            let place = FrameAddress { seed: self.seed, segment: number, offset: gap.offset };
            let bytes = mark(place, gap.first, gap.chain.unwrap_or(0), gap.first - 1);
            file.write_at(u64::from(gap.offset), &bytes)?;
            self.report.marks_mended += 1;
        }
        evidence::save_damage(self.disk, number, &contents)?;
        self.take_in(number, segment_bytes, &contents, visit);
        let tail = Tail {
            segment: number,
            offset: contents.scan.end,
            segment_bytes,
            lsn: self.cursor.next.unwrap_or(1) - 1,
            chain: self.cursor.chain.unwrap_or(0),
        };
        self.make_durable(file.as_ref(), tail)?;
        if let Some(segment) = self.table.get_mut(number) {
            segment.file = Some(file);
        }
        Ok(tail)
    }

    /// What was read may not have been synced before the stop. The mark keeps the numbering even if nothing else is
    /// left.
    fn make_durable(&self, file: &dyn DiskFile, tail: Tail) -> io::Result<()> {
        if tail.segment_bytes - tail.offset >= MARK_LEN {
            let place = FrameAddress { seed: self.seed, segment: tail.segment, offset: tail.offset };
            file.write_at(u64::from(tail.offset), &mark(place, tail.lsn + 1, tail.chain, tail.lsn))?;
        }
        file.sync()
    }

    /// Counts and replays what a segment holds.
    fn take_in(&mut self, number: u32, segment_bytes: u32, contents: &Contents, visit: Visit) {
        let scan = &contents.scan;
        let first_entry = scan.entries.first().map(|entry| entry.lsn);
        let first_lsn = self.cursor.next.or(first_entry).or(scan.cursor.next).unwrap_or(1);
        self.table.push(Segment { is_made: true, ..Segment::new(number, segment_bytes, first_lsn) });
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

/// Segments and sidecars; what was not finished, or belongs to a segment that is gone, is removed.
fn list(disk: &dyn Disk) -> io::Result<(BTreeSet<u32>, BTreeSet<u32>)> {
    let names = disk.list()?;
    let segments: BTreeSet<u32> = names.iter().filter_map(|name| parse_name(name, ".log")).collect();
    let mut sidecars: BTreeSet<u32> = names.iter().filter_map(|name| parse_name(name, ".idx")).collect();
    for name in names.iter().filter(|name| name.ends_with(".tmp")) {
        disk.remove(name)?;
    }
    let orphans: Vec<u32> = sidecars.difference(&segments).copied().collect();
    for orphan in orphans {
        sidecars.remove(&orphan);
        disk.remove(&sidecar_name(orphan))?;
    }
    Ok((segments, sidecars))
}
