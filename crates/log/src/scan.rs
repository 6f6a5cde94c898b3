//! Walks the bytes of one segment: whole records, gaps between them, and what was known durable.

use crate::error::LogError;
use crate::frame::{self, Found, Frame, FrameAddress, HEADER_LEN, MARK_LEN, SEGMENT_HEADER_LEN};
use crate::model::{Damage, Lsn, Position, Replayed};

/// One whole record, as a scan found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub lsn: u64,
    pub offset: u32,
    pub body_len: u32,
    pub head_len: u16,
    /// Index of the head in the bytes that were scanned.
    pub head_at: u32,
}

impl Entry {
    pub fn len(&self) -> u32 {
        frame::RECORD_OVERHEAD + u32::from(self.head_len) + self.body_len
    }

    pub fn position(&self, segment: u32) -> Position {
        Position { segment, offset: self.offset, len: self.len() }
    }
}

/// A stretch without whole records. Without bytes, it stands for records missing from the segments before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub offset: u32,
    pub end: u32,
    /// The number of the record that should have come.
    pub first: u64,
    /// Records missing, as the numbers around the gap tell.
    pub lost: u64,
    /// Checksum of the record before the gap.
    pub chain: Option<u32>,
    /// Nothing whole follows in this segment.
    pub is_tail: bool,
}

impl Gap {
    pub fn damage(&self, segment: u32) -> Damage {
        let len = self.end - self.offset;
        Damage { segment, offset: self.offset, len, first: Lsn(self.first), records: self.lost }
    }
}

/// State of a walk: what the next frame has to continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the next record; unknown before the first frame of the oldest segment.
    pub next: Option<u64>,
    /// Checksum of the last record.
    pub chain: Option<u32>,
}

/// Findings of a walk through one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub entries: Vec<Entry>,
    pub gaps: Vec<Gap>,
    /// Every record up to here was durable, as the frames themselves say.
    pub synced: u64,
    /// First byte after everything that was written.
    pub end: u32,
    pub cursor: Cursor,
    pub chain_breaks: u64,
    /// Nothing but zeros follows the segment header.
    pub is_blank: bool,
    /// First frame that only another version of this program writes. What follows it cannot be judged.
    pub unknown: Option<UnknownFrame>,
}

/// A frame of a kind that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFrame {
    pub offset: u32,
    /// The kind, and the byte behind it.
    pub kind: [u8; 2],
}

impl Scan {
    /// The first gap that no later frame shows to have been durable: a torn tail starts there.
    /// A gap that cost no record (the mark of a group) is no reason to drop what follows it.
    pub fn torn_gap(&self) -> Option<usize> {
        let torn = |gap: &Gap| gap.end > gap.offset && gap.first > self.synced && (gap.is_tail || gap.lost > 0);
        self.gaps.iter().position(torn)
    }

    /// Forgets everything from that gap on.
    pub fn cut(&mut self, gap_index: usize) -> u32 {
        let gap = self.gaps[gap_index];
        self.gaps.truncate(gap_index);
        self.entries.retain(|entry| entry.offset < gap.offset);
        self.end = gap.offset;
        self.cursor = Cursor { next: Some(gap.first), chain: gap.chain };
        gap.offset
    }

    /// Takes out the gaps that are marks lost in a crash: one mark long, no record missing, and nothing says that
    /// they had been durable. They are no damage, and can be written anew.
    pub fn take_torn_marks(&mut self) -> Vec<Gap> {
        let synced = self.synced;
        let is_torn_mark =
            |gap: &mut Gap| gap.lost == 0 && !gap.is_tail && gap.end - gap.offset == MARK_LEN && gap.first > synced;
        self.gaps.extract_if(.., is_torn_mark).collect()
    }

    /// For a segment that is not the last: an idle mark is not synced, so one at its end may be torn. Nothing was
    /// promised with it, and no record fits into its place.
    pub fn without_torn_idle_mark(mut self) -> Scan {
        let is_torn_mark = |gap: &mut Gap| gap.is_tail && gap.lost == 0 && gap.end - gap.offset <= MARK_LEN;
        if let Some(gap) = self.gaps.pop_if(is_torn_mark) {
            self.end = gap.offset;
        }
        self
    }

    /// Refuses what another version wrote: it is neither torn nor damaged, and nothing may be done to it.
    pub fn known(self, segment: u32) -> Result<Scan, LogError> {
        match self.unknown {
            None => Ok(self),
            Some(UnknownFrame { offset, kind: [kind, flags] }) => {
                let what = format!("the record at byte {offset} of segment {segment} (kind {kind}, flags {flags})");
                Err(LogError::UnknownVersion { what })
            }
        }
    }

    /// First byte that no frame says to be durable: what a failed sync may have left in the memory of the machine only.
    pub fn durable_end(&self) -> u32 {
        let durable = self.entries.iter().rev().find(|entry| entry.lsn <= self.synced);
        durable.map_or(SEGMENT_HEADER_LEN, |entry| entry.offset + entry.len())
    }

    pub fn lost_records(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.lost).sum()
    }

    pub fn lost_bytes(&self) -> u64 {
        self.gaps.iter().map(|gap| u64::from(gap.end - gap.offset)).sum()
    }
}

/// A scan with the bytes its heads lie in: those of the segment or of its sidecar.
#[derive(Debug)]
pub struct Contents {
    pub scan: Scan,
    pub bytes: Vec<u8>,
}

impl Contents {
    pub fn replayed(&self, segment: u32, entry: &Entry) -> Replayed<'_> {
        let head_at = entry.head_at as usize;
        Replayed {
            lsn: Lsn(entry.lsn),
            position: entry.position(segment),
            head: &self.bytes[head_at..head_at + usize::from(entry.head_len)],
            body_len: entry.body_len,
        }
    }
}

/// Walks `bytes`, which are the start of a segment or all of it.
pub fn scan(seed: u32, segment: u32, bytes: &[u8], cursor: Cursor) -> Scan {
    Walk { seed, segment, bytes, open_gap: None, scan: Scan { cursor, ..Scan::default() } }.run()
}

struct Walk<'a> {
    seed: u32,
    segment: u32,
    bytes: &'a [u8],
    open_gap: Option<Gap>,
    scan: Scan,
}

impl Walk<'_> {
    fn run(mut self) -> Scan {
        let written = self.bytes.len() - trailing_zeros(self.bytes);
        let start = SEGMENT_HEADER_LEN as usize;
        self.scan.is_blank = written <= start;
        let mut at = start;
        let mut end = start;
        // A whole frame may end in zeros, so that `written` lies within it; none starts there.
        while at < written {
            match self.look(at) {
                Found::Whole(frame, crc) => {
                    self.accept(at, frame, crc);
                    at += as_usize(frame.len());
                    end = at;
                }
                Found::Broken(frame) => {
                    self.skip_broken(at, frame);
                    at += as_usize(frame.len());
                }
                Found::Unknown(kind) => {
                    let found = UnknownFrame { offset: as_u32(at), kind };
                    self.scan.unknown = self.scan.unknown.or(Some(found));
                    self.gap_at(at);
                    at = self.resync(at + 1, written);
                }
                Found::Nothing => {
                    self.gap_at(at);
                    at = self.resync(at + 1, written);
                }
            }
        }
        if let Some(mut gap) = self.open_gap.take() {
            gap.end = as_u32(at.max(written));
            gap.is_tail = true;
            end = gap.end as usize;
            self.scan.gaps.push(gap);
        }
        self.scan.end = as_u32(end);
        self.scan
    }

    /// What stands at `at`, if it may stand there: it fits, and its number does not go back.
    fn look(&self, at: usize) -> Found {
        let place = FrameAddress { seed: self.seed, segment: self.segment, offset: as_u32(at) };
        let found = frame::look(place, &self.bytes[at..]);
        let (Found::Whole(frame, _) | Found::Broken(frame)) = found else { return found };
        let fits = frame.len() <= (self.bytes.len() - at) as u64;
        if fits && frame.lsn >= self.scan.cursor.next.unwrap_or(1) { found } else { Found::Nothing }
    }

    fn accept(&mut self, at: usize, frame: Frame, crc: u32) {
        let next = self.scan.cursor.next.unwrap_or(frame.lsn);
        let lost = frame.lsn - next;
        if let Some(mut gap) = self.open_gap.take() {
            gap.end = as_u32(at);
            gap.lost += lost;
            if self.scan.cursor.next.is_none() {
                gap.first = frame.lsn;
            }
            if gap.lost == 0 {
                gap.chain = gap.chain.or(Some(frame.prev));
            }
            self.scan.gaps.push(gap);
        } else if lost > 0 {
            let chain = self.scan.cursor.chain;
            let (offset, end) = (as_u32(at), as_u32(at));
            self.scan.gaps.push(Gap { offset, end, first: next, lost, chain, is_tail: false });
        }
        if lost == 0 && self.scan.cursor.chain.is_some_and(|chain| chain != frame.prev) {
            self.scan.chain_breaks += 1;
        }
        self.scan.synced = self.scan.synced.max(frame.synced);
        if frame.is_mark {
            self.scan.cursor = Cursor { next: Some(frame.lsn), chain: Some(frame.prev) };
            return;
        }
        self.scan.cursor = Cursor { next: Some(frame.lsn + 1), chain: Some(crc) };
        self.scan.entries.push(Entry {
            lsn: frame.lsn,
            offset: as_u32(at),
            body_len: frame.body_len,
            head_len: frame.head_len,
            head_at: as_u32(at) + HEADER_LEN,
        });
    }

    /// The header is good, so number and extent are known: only this record is lost.
    fn skip_broken(&mut self, at: usize, frame: Frame) {
        let next = self.scan.cursor.next.unwrap_or(frame.lsn);
        let gap = self.gap_at(at);
        gap.lost += frame.lsn + 1 - next;
        self.scan.synced = self.scan.synced.max(frame.synced);
        self.scan.cursor = Cursor { next: Some(frame.lsn + 1), chain: None };
    }

    fn gap_at(&mut self, at: usize) -> &mut Gap {
        let Cursor { next, chain } = self.scan.cursor;
        let (offset, first) = (as_u32(at), next.unwrap_or(1));
        self.open_gap.get_or_insert(Gap { offset, end: offset, first, lost: 0, chain, is_tail: false })
    }

    /// The next place at which something of the log stands.
    fn resync(&self, from: usize, written: usize) -> usize {
        (from..written).find(|&at| self.bytes[at] == b'r' && self.look(at) != Found::Nothing).unwrap_or(written)
    }
}

/// Number of zero bytes at the end of `bytes`.
pub fn trailing_zeros(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let mut end = bytes.len();
    while end >= BLOCK && bytes[end - BLOCK..end] == ZEROS {
        end -= BLOCK;
    }
    let rest = bytes[..end].iter().rev().take_while(|byte| **byte == 0).count();
    bytes.len() - end + rest
}

fn as_u32(offset: usize) -> u32 {
    u32::try_from(offset).expect("a segment is shorter than 4 GiB")
}

fn as_usize(len: u64) -> usize {
    usize::try_from(len).expect("a frame that fits its segment fits memory")
}

#[cfg(test)]
mod tests;
