//! The segments a log consists of, and how much of each is still needed.

use crate::disk::DiskFile;
use crate::error::LogError;
use crate::model::Position;
use std::collections::VecDeque;
use std::sync::Arc;

/// Segment files kept open; those that were not used for the longest time are closed first. Opening one again costs
/// microseconds, a process without descriptors costs everybody.
pub const FILES_OPEN_MAX: usize = 16;

/// Bookkeeping of one segment.
pub struct Segment {
    pub number: u32,
    /// Bytes the file has, or will have once it is made.
    pub segment_bytes: u32,
    /// Bytes the file has had from the start, so that a shorter one was cut; 0 if it grows.
    pub whole_bytes: u32,
    /// File handle while the segment was used lately; opened anew otherwise.
    pub file: Option<Arc<dyn DiskFile>>,
    /// When the file was last asked for, in turns of the table.
    pub used: u64,
    /// Bytes of records with a body that nobody released. A release may overtake the append it belongs to.
    pub live: i64,
    /// Bytes of all records, released or not.
    pub filled: u64,
    pub records: u64,
    /// Number of the first record.
    pub first_lsn: u64,
    /// Whether the file has its name on the disk.
    pub is_made: bool,
    /// Whether the file is lost: the log counted on it, and it was not there at the start.
    pub is_missing: bool,
    /// Whether the sidecar was written or given up.
    pub sidecar_done: bool,
}

impl Segment {
    pub fn new(number: u32, segment_bytes: u32, first_lsn: u64) -> Self {
        Self {
            number,
            segment_bytes,
            whole_bytes: 0,
            file: None,
            used: 0,
            live: 0,
            filled: 0,
            records: 0,
            first_lsn,
            is_made: false,
            is_missing: false,
            sidecar_done: false,
        }
    }

    /// Counts records that were appended or found.
    pub fn add(&mut self, added: Added) {
        self.live += added.live;
        self.filled += added.filled;
        self.records += added.records;
    }
}

/// Sums over records added to one segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    pub live: i64,
    pub filled: u64,
    pub records: u64,
}

impl Added {
    pub fn count(&mut self, len: u32, has_body: bool) {
        self.live += if has_body { i64::from(len) } else { 0 };
        self.filled += u64::from(len);
        self.records += 1;
    }
}

/// Every segment from the oldest to the active one, without a hole; and the one made ahead.
#[derive(Default)]
pub struct Table {
    segments: VecDeque<Segment>,
    /// Made, zero-filled and named, not yet written to; in the order of their numbers, from the one that is next.
    pub prepared: VecDeque<(u32, Arc<dyn DiskFile>)>,
    /// Files from this segment on belong to the writer and stay open: it must not need a descriptor in mid-commit.
    pub writing_from: u32,
    turn: u64,
    /// Bytes of records without a body that are still needed, as the owner of the log last said.
    pub kept: u64,
}

impl Table {
    pub fn push(&mut self, segment: Segment) {
        debug_assert!(self.segments.back().is_none_or(|last| last.number + 1 == segment.number));
        self.segments.push_back(segment);
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.segments.iter()
    }

    pub fn oldest(&self) -> Option<&Segment> {
        self.segments.front()
    }

    pub fn newest(&self) -> Option<&Segment> {
        self.segments.back()
    }

    pub fn get(&self, number: u32) -> Option<&Segment> {
        self.segments.get(self.index(number)?)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Segment> {
        let index = self.index(number)?;
        self.segments.get_mut(index)
    }

    fn index(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.segments.front()?.number).map(|index| index as usize)
    }

    /// Segments that appends reached come to be here when their first records are counted.
    pub fn add(&mut self, number: u32, segment_bytes: u32, first_lsn: u64, added: Added) {
        if self.newest().is_none_or(|last| last.number < number) {
            self.push(Segment::new(number, segment_bytes, first_lsn));
        }
        if let Some(segment) = self.get_mut(number) {
            segment.add(added);
        }
    }

    pub fn release(&mut self, position: Position) {
        if let Some(segment) = self.get_mut(position.segment) {
            segment.live -= i64::from(position.len);
        }
    }

    /// Takes the oldest out, if it is this one.
    pub fn remove_oldest(&mut self, number: u32) -> Result<Segment, LogError> {
        let is_oldest = self.oldest().is_some_and(|oldest| oldest.number == number);
        let removed = if is_oldest && self.segments.len() > 1 { self.segments.pop_front() } else { None };
        removed.ok_or(LogError::NotOldest { segment: number })
    }

    /// The file of a segment, if it is open.
    pub fn open_file(&mut self, number: u32) -> Option<Arc<dyn DiskFile>> {
        self.turn += 1;
        let turn = self.turn;
        let segment = self.get_mut(number)?;
        segment.used = turn;
        segment.file.clone()
    }

    /// Keeps a file that was opened, closing another if too many are open.
    pub fn keep_open(&mut self, number: u32, file: Arc<dyn DiskFile>) {
        self.turn += 1;
        let (turn, writing_from) = (self.turn, self.writing_from);
        let Some(segment) = self.get_mut(number) else { return };
        (segment.file, segment.used) = (Some(file), turn);
        let open = self.segments.iter_mut().filter(|segment| segment.file.is_some());
        let (mut count, mut longest_unused) = (0, None::<&mut Segment>);
        for segment in open {
            count += 1;
            let is_spare = segment.number != number && segment.number < writing_from;
            if is_spare && longest_unused.as_ref().is_none_or(|other| segment.used < other.used) {
                longest_unused = Some(segment);
            }
        }
        if let Some(unused) = longest_unused.filter(|_| count > FILES_OPEN_MAX) {
            unused.file = None;
        }
    }

    pub fn live_bytes(&self) -> u64 {
        u64::try_from(self.segments.iter().map(|segment| segment.live).sum::<i64>()).unwrap_or(0)
    }

    pub fn filled_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.filled).sum()
    }

    /// Bytes of records that nobody needs: what writing all of the log again would give back.
    pub fn garbage_bytes(&self) -> u64 {
        self.filled_bytes().saturating_sub(self.live_bytes() + self.kept)
    }
}

/// Handed to the visitor of a recovery, so that it can release what it learns to be settled.
pub struct Live<'a> {
    table: &'a mut Table,
}

impl<'a> Live<'a> {
    pub(crate) fn new(table: &'a mut Table) -> Self {
        Self { table }
    }

    /// The body at this position is no longer needed.
    pub fn release(&mut self, position: Position) {
        self.table.release(position);
    }
}
