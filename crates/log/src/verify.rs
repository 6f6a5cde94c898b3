//! Walks the files of a log that nobody has open and says what is wrong with them. It never changes a byte.

use crate::core::{log_name, parse_name};
use crate::error::LogError;
use crate::frame::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::model::Damage;
use crate::scan::{Cursor, Scan, scan, trailing_zeros};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file that an open log holds locked; made by [`crate::RealDisk`].
const LOCK_NAME: &str = "LOCK";
/// Bytes read between two words of progress.
const STEP_BYTES: usize = 4 << 20;

/// Findings of a walk through a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Every segment in the order of their numbers.
    pub segments: Vec<SegmentReport>,
    /// Numbers without a file between the oldest and the last.
    pub missing: Vec<u32>,
}

/// Findings in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// Number of the segment.
    pub segment: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of it that were ever written; the rest is zeros kept ready.
    pub written_bytes: u64,
    /// Number of whole records.
    pub records: u64,
    /// Number of the first whole record.
    pub first_lsn: Option<u64>,
    /// Number of the last whole record.
    pub last_lsn: Option<u64>,
    /// Stretches that should hold records and do not.
    pub damage: Vec<Damage>,
    /// Neighbouring records that do not continue each other's checksum.
    pub chain_breaks: u64,
    /// Bytes at the end that a crash left unfinished; they were never acknowledged, and the next start cuts them.
    pub torn_bytes: u64,
    /// At least one copy of its header is bad.
    pub header_damaged: bool,
}

impl SegmentReport {
    /// Number of records lost in damaged stretches.
    pub fn lost_records(&self) -> u64 {
        self.damage.iter().map(|damage| damage.records).sum()
    }

    /// Bytes that should be records and are not.
    pub fn damaged_bytes(&self) -> u64 {
        self.damage.iter().map(|damage| u64::from(damage.len)).sum()
    }

    /// Nothing is wrong with it; a torn tail is no damage.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.chain_breaks == 0 && !self.header_damaged
    }
}

impl VerifyReport {
    /// Nothing is wrong with the log; a torn tail is no damage.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.segments.iter().all(SegmentReport::is_clean)
    }
}

/// Checks every record of the log in this directory against its checksum and the one before it. `progress` hears of the
/// bytes done and the bytes in all. [`LogError::InUse`] if a node has the log open.
pub fn verify(directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, LogError> {
    let reading = |error: io::Error| LogError::io("reading the log", &error);
    let _lock = lock(directory)?;
    let files = list(directory).map_err(reading)?;
    let seed = find_seed(&files)?;
    let mut walk = Walk { seed, done: 0, total: files.iter().map(|file| file.bytes).sum(), cursor: Cursor::default() };
    let mut looks = Vec::with_capacity(files.len());
    for file in &files {
        looks.push(walk.look(file, progress).map_err(reading)?);
    }
    // Only the last segment that was written to can be torn; elsewhere the same gap is damage.
    let last = looks.iter().rposition(|look| !look.is_blank);
    let numbers = files.windows(2).flat_map(|pair| pair[0].segment + 1..pair[1].segment);
    let judged = |(index, look): (usize, Look)| if Some(index) == last { look.as_last } else { look.as_sealed };
    let segments = looks.into_iter().enumerate().map(judged);
    Ok(VerifyReport { missing: numbers.collect(), segments: segments.collect() })
}

/// Keeps a node from opening the log meanwhile. A log without the file has never been open.
fn lock(directory: &Path) -> Result<Option<File>, LogError> {
    let file = match File::open(directory.join(LOCK_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("locking the log", &error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LogError::InUse),
        Err(error) => Err(LogError::io("locking the log", &error.into())),
    }
}

struct OnDisk {
    segment: u32,
    path: PathBuf,
    bytes: u64,
}

fn list(directory: &Path) -> io::Result<Vec<OnDisk>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| parse_name(name, ".log"));
        if let Some(segment) = number {
            let path = directory.join(log_name(segment));
            files.push(OnDisk { segment, path, bytes: entry.metadata()?.len() });
        }
    }
    files.sort_by_key(|file| file.segment);
    Ok(files)
}

/// The secret is the same in all headers, so any good one serves for all.
fn find_seed(files: &[OnDisk]) -> Result<u32, LogError> {
    for file in files {
        let mut bytes = Vec::new();
        let opened = File::open(&file.path).map_err(|error| LogError::io("reading a segment header", &error))?;
        let read = opened.take(u64::from(SEGMENT_HEADER_LEN)).read_to_end(&mut bytes);
        read.map_err(|error| LogError::io("reading a segment header", &error))?;
        if let Some((header, _)) = SegmentHeader::decode(&bytes, file.segment) {
            return Ok(header.seed);
        }
    }
    match u32::try_from(files.len()).unwrap_or(u32::MAX) {
        0 => Ok(0),
        segments => Err(LogError::NoHeader { segments }),
    }
}

/// A segment as it was read, before it is known whether it is the last: the rules of recovery differ.
struct Look {
    is_blank: bool,
    as_last: SegmentReport,
    as_sealed: SegmentReport,
}

struct Walk {
    seed: u32,
    done: u64,
    total: u64,
    cursor: Cursor,
}

impl Walk {
    fn look(&mut self, file: &OnDisk, progress: &mut dyn FnMut(u64, u64)) -> io::Result<Look> {
        let bytes = self.read(file, progress)?;
        let both_headers = SegmentHeader::decode(&bytes, file.segment).is_some_and(|(_, both)| both);
        let scan = scan(self.seed, file.segment, &bytes, self.cursor);
        self.cursor = scan.cursor;
        let report = SegmentReport {
            segment: file.segment,
            bytes: bytes.len() as u64,
            written_bytes: (bytes.len() - trailing_zeros(&bytes)) as u64,
            header_damaged: !both_headers,
            ..SegmentReport::default()
        };
        let is_blank = scan.is_blank;
        Ok(Look { is_blank, as_last: report.clone().of_last(scan.clone()), as_sealed: report.of_sealed(scan) })
    }

    fn read(&mut self, file: &OnDisk, progress: &mut dyn FnMut(u64, u64)) -> io::Result<Vec<u8>> {
        let length = usize::try_from(file.bytes).map_err(io::Error::other)?;
        let (mut bytes, mut source) = (vec![0; length], File::open(&file.path)?);
        for step in bytes.chunks_mut(STEP_BYTES) {
            source.read_exact(step)?;
            self.done += step.len() as u64;
            progress(self.done, self.total);
        }
        Ok(bytes)
    }
}

impl SegmentReport {
    /// A crash may have left its end unfinished.
    fn of_last(mut self, mut scan: Scan) -> Self {
        if let Some(torn) = scan.torn_gap() {
            let cut = scan.cut(torn);
            self.torn_bytes = self.written_bytes.saturating_sub(u64::from(cut));
        }
        scan.take_torn_marks();
        self.filled(&scan)
    }

    /// Everything in it was durable before the next segment was begun.
    fn of_sealed(self, scan: Scan) -> Self {
        self.filled(&scan.without_torn_idle_mark())
    }

    fn filled(mut self, scan: &Scan) -> Self {
        self.records = scan.entries.len() as u64;
        self.first_lsn = scan.entries.first().map(|entry| entry.lsn);
        self.last_lsn = scan.entries.last().map(|entry| entry.lsn);
        self.damage = scan.gaps.iter().map(|gap| gap.damage(self.segment)).collect();
        self.chain_breaks = scan.chain_breaks;
        self
    }
}

#[cfg(test)]
pub(crate) mod tests;
