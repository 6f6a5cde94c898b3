//! Checks the log while it is in use: the settled records of one segment against their checksums, piece by piece.

use crate::core::{Core, sidecar_name};
use crate::disk::{DiskFile, read_up_to};
use crate::error::LogError;
use crate::frame::{self, Found, FrameAddress, HEADER_LEN, SegmentHeader};
use crate::log::Log;
use crate::model::{Damage, DamagedRecord, Lsn, Position, SegmentFindings, SegmentSpan, StretchFinding};
use crate::scan::{Contents, Cursor, Gap, Scan, scan};
use crate::sidecar;
use std::io;
use std::sync::Arc;

/// Bytes read in one piece: short enough for a pacer to be fair to others, long enough to be read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Damaged records named for one damaged stretch.
const RECORDS_NAMED_MAX: usize = 16;

/// One segment on its way through a scrub. It holds the bytes read so far, at most one segment of them: a damaged
/// record can only be stepped over by looking at what follows it.
pub struct SegmentScrub {
    core: Arc<Core>,
    span: SegmentSpan,
    first_lsn: u64,
    /// Number of the first record behind the checked bytes.
    next_lsn: u64,
    is_sealed: bool,
    /// None if the file is not there although the log counts on it.
    file: Option<Arc<dyn DiskFile>>,
    bytes: Vec<u8>,
    read_bytes: usize,
    /// Pieces that the disk would not give, as first byte and length.
    unreadable: Vec<(u32, u32)>,
}

impl Log {
    /// Segments that a scrub has to check now, oldest first, with the settled bytes of each. What is appended later is
    /// for the next scrub.
    pub fn settled_segments(&self) -> Vec<SegmentSpan> {
        let gather = self.core.gather();
        let (open, open_bytes) = (gather.durable_segment(), gather.durable_end());
        drop(gather);
        let table = self.core.table();
        let settled = table.iter().take_while(|segment| segment.number <= open);
        let span = |number, segment_bytes| match number == open {
            true => SegmentSpan { segment: number, bytes: u64::from(open_bytes) },
            false => SegmentSpan { segment: number, bytes: u64::from(segment_bytes) },
        };
        settled.map(|segment| span(segment.number, segment.segment_bytes)).collect()
    }

    /// Begins to check a segment; [`LogError::Gone`] if it was given back since.
    pub fn scrub_segment(&self, segment: u32) -> Result<SegmentScrub, LogError> {
        SegmentScrub::begin(&self.core, segment)
    }
}

impl SegmentScrub {
    fn begin(core: &Arc<Core>, segment: u32) -> Result<SegmentScrub, LogError> {
        let (open, open_bytes, durable) = {
            // All three at once: the number must be the one behind the last settled byte.
            let gather = core.gather();
            (gather.durable_segment(), gather.durable_end(), gather.durable())
        };
        let is_sealed = segment < open;
        let (first_lsn, next_lsn) = {
            let table = core.table();
            let known = table.get(segment).filter(|_| segment <= open).ok_or(LogError::Gone { segment })?;
            let next_lsn = if is_sealed { table.get(segment + 1).map(|next| next.first_lsn) } else { None };
            (known.first_lsn, next_lsn.unwrap_or(durable + 1))
        };
        // Only a file that is not there is damage; an error of opening it (no descriptor left, say) is the caller's.
        let file = match core.readable(segment) {
            Err(LogError::Io { kind: io::ErrorKind::NotFound, .. }) => None,
            opened => Some(opened?),
        };
        let file_bytes = file.as_ref().map_or(Ok(0), |file| file.len()).unwrap_or(0);
        let bytes = if is_sealed { file_bytes } else { u64::from(open_bytes) };
        Ok(SegmentScrub {
            core: Arc::clone(core),
            span: SegmentSpan { segment, bytes },
            first_lsn,
            next_lsn,
            is_sealed,
            file,
            // Takes memory only as it is filled.
            bytes: vec![0; usize::try_from(bytes).unwrap_or(0)],
            read_bytes: 0,
            unreadable: Vec::new(),
        })
    }

    /// Reads the next piece and gives its bytes; 0 once there is no more. What the disk will not give is damage, found
    /// at the end.
    pub fn read_piece(&mut self) -> Result<u64, LogError> {
        let Some(file) = &self.file else { return Ok(0) };
        let end = self.bytes.len().min(self.read_bytes + PIECE_BYTES);
        if let Err(error) = file.read_at(self.read_bytes as u64, &mut self.bytes[self.read_bytes..end]) {
            self.still_there()?;
            self.bytes[self.read_bytes..end].fill(0);
            let (offset, len) = (as_u32(self.read_bytes), as_u32(end - self.read_bytes));
            tracing::warn!(segment = self.span.segment, offset, len, %error, "a piece of the log cannot be read");
            self.unreadable.push((offset, len));
        }
        let read = end - self.read_bytes;
        self.read_bytes = end;
        Ok(read as u64)
    }

    /// Checks what was read. [`LogError::Gone`] if the segment was given back meanwhile: nobody misses it then.
    pub fn finish(self) -> Result<SegmentFindings, LogError> {
        let segment = self.span.segment;
        let cursor = Cursor { next: Some(self.first_lsn), chain: None };
        let mut found = scan(self.core.seed, segment, &self.bytes, cursor);
        if self.is_sealed {
            found = found.without_torn_idle_mark();
        }
        self.count_missing_end(&mut found);
        let sidecar = if found.gaps.is_empty() { None } else { self.sidecar() };
        let mut stretches: Vec<_> = found.gaps.iter().map(|gap| self.finding(gap, sidecar.as_ref())).collect();
        stretches.extend(self.unreadable_beside(&found.gaps));
        let header = SegmentHeader::decode(&self.bytes, segment);
        self.still_there()?;
        Ok(SegmentFindings {
            span: self.span,
            records: found.entries.len() as u64,
            header_damaged: header.is_none_or(|(_, both_copies)| !both_copies),
            stretches,
        })
    }

    fn still_there(&self) -> Result<(), LogError> {
        let segment = self.span.segment;
        self.core.table().get(segment).map(drop).ok_or(LogError::Gone { segment })
    }

    /// The records at the end may be missing without a trace, when the file was cut or zeroed: the log knows how many
    /// there should be.
    fn count_missing_end(&self, found: &mut Scan) {
        let first = found.cursor.next.unwrap_or(self.first_lsn);
        let lost = self.next_lsn.saturating_sub(first);
        if lost == 0 {
            return;
        }
        match found.gaps.last_mut().filter(|gap| gap.is_tail) {
            Some(tail) => tail.lost += lost,
            None => {
                let (offset, end) = (found.end, as_u32(self.bytes.len()).max(found.end));
                found.gaps.push(Gap { offset, end, first, lost, chain: None, is_tail: true });
            }
        }
    }

    fn sidecar(&self) -> Option<Contents> {
        let file = self.core.disk.open(&sidecar_name(self.span.segment)).ok()?;
        let bytes = read_up_to(file.as_ref(), u64::from(u32::MAX)).ok()?;
        sidecar::decode(self.core.seed, self.span.segment, bytes)
    }

    /// A damaged stretch with the heads of its records: from the sidecar, which has a checksum of its own, else as they
    /// lie there.
    fn finding(&self, gap: &Gap, sidecar: Option<&Contents>) -> StretchFinding {
        let segment = self.span.segment;
        let known = sidecar.into_iter().flat_map(|contents| {
            let inside = contents.scan.entries.iter().filter(|entry| (gap.offset..gap.end).contains(&entry.offset));
            inside.map(|entry| DamagedRecord {
                position: entry.position(segment),
                head: contents.replayed(segment, entry).head.to_vec(),
            })
        });
        let mut records: Vec<DamagedRecord> = known.take(RECORDS_NAMED_MAX).collect();
        if records.is_empty() {
            records = self.heads_in_place(gap);
        }
        StretchFinding { damage: gap.damage(segment), records }
    }

    /// The heads of records whose frame is whole but for its contents. A flipped bit may be in the head itself, so the
    /// reader must take them as a hint.
    fn heads_in_place(&self, gap: &Gap) -> Vec<DamagedRecord> {
        let mut records = Vec::new();
        let mut at = gap.offset;
        while at < gap.end && records.len() < RECORDS_NAMED_MAX {
            let place = FrameAddress { seed: self.core.seed, segment: self.span.segment, offset: at };
            let rest = self.bytes.get(at as usize..).unwrap_or_default();
            let Found::Broken(frame) = frame::look(place, rest) else { break };
            let head = rest.get(HEADER_LEN as usize..HEADER_LEN as usize + usize::from(frame.head_len));
            let (Some(head), Ok(len)) = (head, u32::try_from(frame.len())) else { break };
            let position = Position { segment: self.span.segment, offset: at, len };
            records.push(DamagedRecord { position, head: head.to_vec() });
            at = at.saturating_add(len);
        }
        records
    }

    /// Unreadable pieces that cost no record: zeros behind the last one, or the header.
    fn unreadable_beside(&self, gaps: &[Gap]) -> impl Iterator<Item = StretchFinding> {
        let touches = |offset: u32, len: u32| gaps.iter().any(|gap| gap.offset < offset + len && offset < gap.end);
        let beside = self.unreadable.iter().filter(move |(offset, len)| !touches(*offset, *len));
        beside.map(|(offset, len)| {
            let damage = Damage { segment: self.span.segment, offset: *offset, len: *len, first: Lsn(0), records: 0 };
            StretchFinding { damage, records: Vec::new() }
        })
    }
}

fn as_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a segment is shorter than 4 GiB")
}

#[cfg(test)]
mod tests;
