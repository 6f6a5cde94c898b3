//! The words of the log: numbers, positions, options and reports.

use bytes::Bytes;

/// The number of a record: 1, 2, 3 and so on; 0 is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Address of a record. Final from the moment it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the segment.
    pub segment: u32,
    /// First byte of the record in its segment.
    pub offset: u32,
    /// Bytes of the whole record on disk.
    pub len: u32,
}

/// Purpose of a record, which decides how much of quota and buffer it may use.
///
/// A log wedges if what frees room needs room that is gone. So what takes room stops first, what can be left out next,
/// and what frees room last; copies, without which no segment goes, are not held to the quota at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Data and settings: they take room. Refused first, a whole reserve before the end of the quota.
    Data,
    /// Steps of deliveries, which may go unwritten: the first quarter of the reserve.
    Step,
    /// Something stays and is elsewhere: half of the reserve, and more only where reclaiming has nothing to gain.
    Move,
    /// Something is gone, so its room will be: the whole reserve, and more only where reclaiming has nothing to gain.
    Settle,
    /// Written again so that the oldest segment can go. It takes what it frees, so the quota is passed by little: by
    /// the segment in hand, by the ends of segments that are too short for the next record, and by what a record
    /// gains when it is written again. A bound at twice the quota, or at a quota more than the log had when it was
    /// opened, keeps a defect from eating the device.
    Copy,
}

/// How a log is laid out and bounded.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of one segment file.
    pub segment_bytes: u32,
    /// Bytes of log that may be used. The files take up to three segments and the sidecars more than this.
    pub quota_bytes: u64,
    /// The part of the quota that [`Class::Data`] may not use; see [`Class`] for the others.
    pub reserve_bytes: u64,
    /// Bytes that may wait in memory for the disk; every class but [`Class::Data`] may use twice as much.
    pub gather_bytes_max: usize,
    /// Whether segments are written full of zeros before use, so that a commit flushes data only.
    pub zero_ahead: bool,
    /// Whether sealed segments get a sidecar, so that a restart need not read them.
    pub sidecars: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            quota_bytes: 16 << 30,
            reserve_bytes: 256 << 20,
            gather_bytes_max: 32 << 20,
            zero_ahead: true,
            sidecars: true,
        }
    }
}

/// One record as a replay shows it: everything but the body.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// Number of the record.
    pub lsn: Lsn,
    /// Position of the record.
    pub position: Position,
    /// The small part, as it was appended.
    pub head: &'a [u8],
    /// Bytes of the body, which is read with [`crate::Log::read`].
    pub body_len: u32,
}

/// One record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Small part of the record, which a recovery replays.
    pub head: Bytes,
    /// Large part of the record, which a recovery leaves on the disk.
    pub body: Bytes,
}

/// Findings of the recovery that opening a log made, counted exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments that hold or may hold records.
    pub segments: u32,
    /// Whole records replayed.
    pub records: u64,
    /// Bytes of the torn tail that were cut (and saved to a file beside the log).
    pub torn_bytes: u64,
    /// Records that were durable once and are damaged now, in all the log.
    pub quarantined_records: u64,
    /// Bytes that should have been records and are not, in all the log; copies are kept in files beside it.
    pub quarantined_bytes: u64,
    /// Segments whose sidecar was missing or bad, so that the segment itself was read (the last one always is).
    pub segments_read_whole: u32,
    /// Marks of the last group that were torn although its records are whole; written anew.
    pub marks_mended: u32,
    /// Segments whose files are lost.
    pub segments_missing: u32,
    /// Segments whose files are shorter than they were made.
    pub segments_cut: u32,
    /// The manifest that says which segments there are is itself lost or damaged; it was made again.
    pub manifest_lost: bool,
    /// Segment headers of which at least one copy was damaged.
    pub headers_damaged: u32,
    /// Neighbouring records that do not continue each other's checksum.
    pub chain_breaks: u64,
    /// Whether every replayed record was known durable before the stop.
    pub sealed: bool,
    /// Number of the last record.
    pub last: Lsn,
}

impl Recovery {
    /// Records or whole files that were there once are lost.
    pub fn has_losses(&self) -> bool {
        self.quarantined_records > 0 || self.segments_missing > 0 || self.segments_cut > 0 || self.manifest_lost
    }
}

/// A stretch of a segment that should hold records and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u32,
    /// First damaged byte.
    pub offset: u32,
    /// Damaged bytes.
    pub len: u32,
    /// Number of the first record lost here.
    pub first: Lsn,
    /// Records lost here.
    pub records: u64,
}

/// A segment and how many of its bytes are settled: written, synced and never changed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Number of the segment.
    pub segment: u32,
    /// Settled bytes from the start of the segment.
    pub bytes: u64,
}

/// Findings of a scrub in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentFindings {
    /// The segment and the bytes that were checked.
    pub span: SegmentSpan,
    /// Whole records.
    pub records: u64,
    /// At least one copy of the segment's header is bad.
    pub header_damaged: bool,
    /// Damaged stretches, in the order of their offsets.
    pub stretches: Vec<StretchFinding>,
}

/// A damaged stretch with what is still known of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StretchFinding {
    /// Segment, offset, length and records lost.
    pub damage: Damage,
    /// First damaged records of the stretch, as far as their heads are known.
    pub records: Vec<DamagedRecord>,
}

/// A damaged record whose head can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// Position of the record.
    pub position: Position,
    /// Small part of the record.
    pub head: Vec<u8>,
}

/// Reason why a log has no room for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shortage {
    /// The quota is used up: consuming helps.
    Quota,
    /// The device has no room for another segment: freeing space on it helps, and consuming may.
    Device,
}

impl Shortage {
    /// As it is written in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Shortage::Quota => "quota",
            Shortage::Device => "device",
        }
    }
}

/// Sizes and counters of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that count against the quota.
    pub bytes_total: u64,
    /// Bytes of records whose body is still needed.
    pub bytes_live: u64,
    /// Maximum of `bytes_total`.
    pub quota_bytes: u64,
    /// Maximum of `bytes_total` at which data is taken; the rest of the quota is kept for what frees room.
    pub data_bytes_max: u64,
    /// Reason why data is refused, or would be very soon.
    pub shortage: Option<Shortage>,
    /// Segments in use.
    pub segments: u32,
    /// Bytes in memory that wait for the disk.
    pub gathered_bytes: u64,
    /// Group commits since the log was opened.
    pub syncs: u64,
    /// Those among them that a caller made, because it was alone.
    pub caller_syncs: u64,
    /// Records the log holds.
    pub records: u64,
    /// Records appended since the log was opened.
    pub appended: u64,
}
