//! The commit path without I/O: gather records, take a group, call it committed. One mutex guards it; a model can
//! drive it.

use crate::error::LogError;
use crate::fault;
use crate::frame::{self, FrameAddress, MARK_LEN, RECORD_OVERHEAD, SEGMENT_HEADER_LEN};
use crate::lone::RecentGroups;
use crate::model::{Class, LogOptions, Position, Shortage};
use std::sync::Arc;
use std::time::Duration;

/// Bytes by which a copy may be longer than the data it copies.
pub const COPY_GROWTH_MAX: u32 = 256;
/// Buffers that grew past this are given back to the allocator after a burst.
const SPARE_BUFFER_BYTES_MAX: usize = 8 << 20;
const SPARE_BUFFERS_MAX: usize = 4;
/// Segments that are made ahead before a device is full, for what frees room: one for what settles, and two for copies,
/// of which those of one segment may take more than it did.
pub const RESERVE_SEGMENTS: u64 = 3;
/// What settles leaves this many of them to copies: without copies no segment comes back.
pub const COPY_SEGMENTS: u64 = 2;

/// Room for copies on a device that has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRoom {
    pub bytes: u64,
    /// Segments of it that are still to be begun.
    pub segments: u64,
}

/// Position and chain that the next record continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    pub segment: u32,
    pub offset: u32,
    /// Bytes the file of this segment has.
    pub segment_bytes: u32,
    /// Number of the last appended record.
    pub lsn: u64,
    /// Checksum of the last appended record.
    pub chain: u32,
}

/// Bytes that one group writes into one segment: a mark, then records.
#[derive(Debug)]
pub struct SegmentWrite {
    pub segment: u32,
    pub offset: u32,
    pub bytes: Vec<u8>,
    first_lsn: u64,
    prev: u32,
    last_lsn: u64,
}

impl SegmentWrite {
    /// The bytes of a record, if it is in this part.
    fn record(&self, position: Position) -> Option<&[u8]> {
        if position.segment != self.segment {
            return None;
        }
        let start = position.offset.checked_sub(self.offset)? as usize;
        self.bytes.get(start..start.checked_add(position.len as usize)?)
    }
}

/// Records that one commit writes and syncs, by segment.
#[derive(Debug)]
pub struct Group {
    pub parts: Vec<SegmentWrite>,
    pub last_lsn: u64,
    bytes: usize,
}

/// State of the commit path: records gathered, the group in flight, and what is durable.
#[derive(Debug)]
pub struct Gather {
    seed: u32,
    options: LogOptions,
    tail: Tail,
    durable: u64,
    durable_segment: u32,
    /// First byte behind the last durable record, in its segment.
    durable_end: u32,
    parts: Vec<SegmentWrite>,
    bytes: usize,
    /// Taken and not yet committed: still readable here.
    in_flight: Option<Arc<Group>>,
    spare: Vec<Vec<u8>>,
    /// Bytes of the sealed segments, for the quota.
    sealed_bytes: u64,
    /// Bytes the log may have with copies: a quota more than it was opened with, or a lower quota than before would
    /// refuse the copies without which it never shrinks.
    copy_bytes_max: u64,
    appended: u64,
    commits: u64,
    /// Segments that may still be begun: those made ahead, and those that the device had room for when upkeep looked.
    /// The last of them are the reserve of a full device. Counted down here, because one group may begin many.
    available: u64,
    /// Whether the writer thread sleeps; an appender that sees it set wakes the writer.
    pub writer_sleeps: bool,
    pub stopping: bool,
    /// Whether the next record may be left to its caller.
    pub recent: RecentGroups,
    failed: Option<LogError>,
    /// A change has begun and not ended: if its thread panics, what is gathered cannot be trusted.
    is_changing: bool,
}

impl Gather {
    pub fn new(seed: u32, options: LogOptions, tail: Tail, sealed_bytes: u64) -> Self {
        let found_bytes = sealed_bytes + u64::from(tail.offset);
        let copy_bytes_max = options.quota_bytes.max(found_bytes).saturating_add(options.quota_bytes);
        Self {
            seed,
            copy_bytes_max: copy_bytes_max.saturating_add(2 * u64::from(options.segment_bytes)),
            options,
            tail,
            durable: tail.lsn,
            durable_segment: tail.segment,
            durable_end: tail.offset,
            parts: Vec::new(),
            bytes: 0,
            in_flight: None,
            spare: Vec::new(),
            sealed_bytes,
            appended: 0,
            commits: 0,
            available: u64::MAX,
            writer_sleeps: false,
            stopping: false,
            recent: RecentGroups::default(),
            failed: None,
            is_changing: false,
        }
    }

    /// Whether a thread died in the middle of a change.
    pub fn is_mid_change(&self) -> bool {
        self.is_changing
    }

    /// Does a change as a whole: a panic in it is told from one of a thread that only held the lock.
    fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        self.is_changing = true;
        fault::point();
        let result = change(self);
        fault::point();
        self.is_changing = false;
        result
    }

    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The segment of the last durable record; those before it are sealed.
    pub fn durable_segment(&self) -> u32 {
        self.durable_segment
    }

    /// First byte behind the last durable record, in the segment of that record.
    pub fn durable_end(&self) -> u32 {
        self.durable_end
    }

    /// Number of the last durable record.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn failed(&self) -> Option<&LogError> {
        self.failed.as_ref()
    }

    pub fn appended(&self) -> u64 {
        self.appended
    }

    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Bytes in memory that wait for the disk.
    pub fn gathered_bytes(&self) -> usize {
        self.bytes + self.in_flight.as_ref().map_or(0, |group| group.bytes)
    }

    /// Bytes that count against the quota.
    pub fn used_bytes(&self) -> u64 {
        self.sealed_bytes + u64::from(self.tail.offset)
    }

    /// Nothing is taken or committed from here on. The first error stays.
    pub fn fail(&mut self, error: LogError) -> LogError {
        self.failed.get_or_insert(error).clone()
    }

    /// Takes a removed segment out of the quota. Whether the device has room again is for upkeep to say: the reserve is
    /// made again first.
    pub fn retired(&mut self, segment_bytes: u32) {
        self.sealed_bytes = self.sealed_bytes.saturating_sub(u64::from(segment_bytes));
    }

    /// What upkeep found: the last segment that is made, ahead or in use, and how many more the device has room for.
    pub fn set_room(&mut self, last_made: u32, more: u64) {
        let (ahead, unmade) =
            (last_made.saturating_sub(self.tail.segment), self.tail.segment.saturating_sub(last_made));
        self.available = more.saturating_add(u64::from(ahead)).saturating_sub(u64::from(unmade));
    }

    /// The device has no room for more than the reserve.
    pub fn has_no_room(&self) -> bool {
        self.available <= RESERVE_SEGMENTS
    }

    /// Room that copies may take on a device without more.
    pub fn copy_room(&self) -> CopyRoom {
        let segment = u64::from(self.options.segment_bytes - SEGMENT_HEADER_LEN - MARK_LEN);
        let tail_left = u64::from(self.tail.segment_bytes - self.tail.offset);
        CopyRoom { bytes: self.available.saturating_mul(segment).saturating_add(tail_left), segments: self.available }
    }

    /// Adds a record; its number and position are final.
    pub fn append(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, LogError> {
        self.change(|gather| gather.add(class, head, body))
    }

    fn add(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, LogError> {
        let len = self.admit(class, head.len(), body.len())?;
        fault::point();
        if self.parts.is_empty() {
            self.begin_part();
        }
        let part = self.parts.last_mut().expect("a part was begun");
        let place = FrameAddress { seed: self.seed, segment: self.tail.segment, offset: self.tail.offset };
        let lsn = self.tail.lsn + 1;
        self.tail.chain = frame::put_record(&mut part.bytes, place, lsn, self.tail.chain, self.durable, head, body);
        fault::point();
        part.last_lsn = lsn;
        self.tail.lsn = lsn;
        self.tail.offset += len;
        self.bytes += len as usize;
        self.appended += 1;
        Ok(Position { segment: place.segment, offset: place.offset, len })
    }

    /// Checks every limit, rolls to the next segment if needed; returns the bytes the record will take.
    fn admit(&mut self, class: Class, head_len: usize, body_len: usize) -> Result<u32, LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let len_max = self.len_max(class);
        let len = u64::from(RECORD_OVERHEAD) + head_len as u64 + body_len as u64;
        if head_len > usize::from(u16::MAX) || len > len_max {
            return Err(LogError::TooLarge { len, len_max });
        }
        let len = u32::try_from(len).expect("a record is shorter than its segment");
        // New data stops at the limit, the rest at twice that: a burst of sends must not keep consumers from settling.
        let share = if class == Class::Data { 1 } else { 2 };
        if self.gathered_bytes() + len as usize > self.options.gather_bytes_max * share {
            return Err(LogError::Busy);
        }
        if let Some(shortage) = self.shortage(class, len) {
            return Err(LogError::Full { shortage });
        }
        if self.rolls(len) {
            self.roll();
        }
        Ok(len)
    }

    /// Whether a record of this length would begin another segment.
    fn rolls(&self, len: u32) -> bool {
        u64::from(self.tail.offset) + self.needed(len) > u64::from(self.tail.segment_bytes)
    }

    /// Reason why there is no room for a record of this class and length, if there is none.
    pub fn shortage(&self, class: Class, len: u32) -> Option<Shortage> {
        let rolls = self.rolls(len);
        if self.has_no_room() && self.is_reserved(class, len) {
            return Some(Shortage::Device);
        }
        let used = if rolls {
            self.sealed_bytes + u64::from(self.tail.segment_bytes) + u64::from(SEGMENT_HEADER_LEN + MARK_LEN + len)
        } else {
            self.used_bytes() + self.needed(len)
        };
        (used > self.bytes_max(class)).then_some(Shortage::Quota)
    }

    /// Whether the room that a record would take is kept for others, on a device that has no more.
    fn is_reserved(&self, class: Class, len: u32) -> bool {
        let rolls = self.rolls(len);
        // Where the reserve is not whole, this segment may be part of it.
        let is_in_reserve = self.available < RESERVE_SEGMENTS;
        match class {
            Class::Data => rolls || is_in_reserve || self.is_last_quarter(len),
            Class::Step | Class::Move => rolls || is_in_reserve,
            Class::Settle => rolls && self.available <= COPY_SEGMENTS,
            Class::Copy => rolls && self.available == 0,
        }
    }

    /// Bytes the log may have after a record of this class.
    fn bytes_max(&self, class: Class) -> u64 {
        let LogOptions { quota_bytes, reserve_bytes, .. } = self.options;
        match class {
            Class::Data => quota_bytes - reserve_bytes,
            Class::Step => quota_bytes - reserve_bytes / 4 * 3,
            Class::Move => quota_bytes - reserve_bytes / 2,
            Class::Settle => quota_bytes,
            Class::Copy => self.copy_bytes_max,
        }
    }

    /// Without room for another segment, the last quarter of this one is for what settles as well.
    fn is_last_quarter(&self, len: u32) -> bool {
        let segment_bytes = u64::from(self.tail.segment_bytes);
        u64::from(self.tail.offset) + self.needed(len) > segment_bytes - segment_bytes / 4
    }

    /// The longest record: it fits into an empty segment and into an empty buffer. Data leaves room for what it gains
    /// when it is written again, or its segment could never go.
    fn len_max(&self, class: Class) -> u64 {
        let segment = u64::from(self.options.segment_bytes - SEGMENT_HEADER_LEN - MARK_LEN);
        let len_max = segment.min(self.options.gather_bytes_max.saturating_sub(2 * MARK_LEN as usize) as u64);
        if class == Class::Data { len_max.saturating_sub(u64::from(COPY_GROWTH_MAX)) } else { len_max }
    }

    /// Bytes for a record here, with the mark if it is the first of its part.
    fn needed(&self, len: u32) -> u64 {
        u64::from(len) + if self.parts.is_empty() { u64::from(MARK_LEN) } else { 0 }
    }

    fn roll(&mut self) {
        self.sealed_bytes += u64::from(self.tail.segment_bytes);
        self.tail.segment += 1;
        self.available = self.available.saturating_sub(1);
        self.tail.offset = SEGMENT_HEADER_LEN;
        self.tail.segment_bytes = self.options.segment_bytes;
        self.begin_part();
    }

    /// Leaves room for the mark, which is filled in when the group is taken.
    fn begin_part(&mut self) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(MARK_LEN as usize, 0);
        let Tail { segment, offset, lsn, chain, .. } = self.tail;
        self.parts.push(SegmentWrite { segment, offset, bytes, first_lsn: lsn + 1, prev: chain, last_lsn: lsn });
        self.tail.offset += MARK_LEN;
        self.bytes += MARK_LEN as usize;
    }

    /// Notes that an appender which added records lets the log go.
    pub fn note_appender(&mut self) {
        self.recent.note_appender(self.in_flight.is_some());
    }

    /// Whether what is gathered is one caller's alone and quickly committed: the writer sleeps, and the segment that
    /// the records go to is in use, so that none has to be made.
    pub fn is_lone(&self) -> bool {
        let is_free = self.writer_sleeps && !self.stopping && self.in_flight.is_none() && self.failed.is_none();
        let is_in_use = self.parts.len() == 1 && self.tail.segment == self.durable_segment;
        is_free && is_in_use && self.recent.is_lone(self.bytes)
    }

    /// Everything gathered, to be written part after part: each synced before the next is written. `None` if there is
    /// nothing, or a group is still in flight.
    pub fn take(&mut self) -> Result<Option<Arc<Group>>, LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.parts.is_empty() || self.in_flight.is_some() {
            return Ok(None);
        }
        Ok(Some(self.change(Gather::take_parts)))
    }

    fn take_parts(&mut self) -> Arc<Group> {
        let mut parts = std::mem::take(&mut self.parts);
        fault::point();
        let mut synced = self.durable;
        for part in &mut parts {
            let place = FrameAddress { seed: self.seed, segment: part.segment, offset: part.offset };
            let mark = frame::mark(place, part.first_lsn, part.prev, synced);
            part.bytes[..MARK_LEN as usize].copy_from_slice(&mark);
            synced = part.last_lsn;
        }
        let group = Arc::new(Group { parts, last_lsn: synced, bytes: self.bytes });
        self.bytes = 0;
        self.recent.note_taken();
        self.in_flight = Some(Arc::clone(&group));
        group
    }

    /// Notes that the whole group is durable, after this time. Its buffers are used again unless a reader still holds
    /// them.
    pub fn committed(&mut self, group: Arc<Group>, sync_time: Duration) -> u64 {
        self.change(|gather| gather.note_committed(group, sync_time))
    }

    fn note_committed(&mut self, group: Arc<Group>, sync_time: Duration) -> u64 {
        self.in_flight = None;
        fault::point();
        self.recent.note_synced(sync_time);
        self.commits += 1;
        self.durable = group.last_lsn;
        if let Some(last) = group.parts.last() {
            self.durable_segment = last.segment;
            self.durable_end = last.offset + u32::try_from(last.bytes.len()).expect("a part fits its segment");
        }
        if let Ok(group) = Arc::try_unwrap(group) {
            for mut part in group.parts {
                part.bytes.clear();
                part.bytes.shrink_to(SPARE_BUFFER_BYTES_MAX);
                if self.spare.len() < SPARE_BUFFERS_MAX {
                    self.spare.push(part.bytes);
                }
            }
        }
        self.durable
    }

    /// The mark that says that everything is durable, while nothing is gathered. The next group starts with the same
    /// bytes at the same place, so writing it early can never hurt.
    pub fn idle_mark(&self) -> Option<(u32, u32, [u8; MARK_LEN as usize])> {
        let Tail { segment, offset, segment_bytes, lsn, chain } = self.tail;
        let idle = self.parts.is_empty() && self.in_flight.is_none() && self.failed.is_none();
        if !idle || segment_bytes - offset < MARK_LEN {
            return None;
        }
        let place = FrameAddress { seed: self.seed, segment, offset };
        Some((segment, offset, frame::mark(place, lsn + 1, chain, self.durable)))
    }

    /// A record that is not yet on the disk.
    pub fn find(&self, position: Position) -> Option<Vec<u8>> {
        let in_flight = self.in_flight.iter().flat_map(|group| &group.parts);
        in_flight.chain(&self.parts).find_map(|part| part.record(position)).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests;
