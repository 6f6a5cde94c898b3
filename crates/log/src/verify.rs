//! Walks the files of a log that nobody has open and says what is wrong with them. It never changes a byte.

use crate::core::{log_name, parse_name};
use crate::error::LogError;
use crate::frame::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::manifest::{self, Manifest};
use crate::model::Damage;
use crate::scan::{Cursor, Scan, scan, trailing_zeros};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
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
    /// Segments whose files are lost: listed in the manifest, or between the oldest and the last.
    pub missing: Vec<u32>,
    /// There should be a manifest and there is no whole one, so that lost files at the ends cannot be told.
    pub manifest_lost: bool,
    /// Records that the manifest knows to have been durable and that left no trace at the end of the log.
    pub lost_at_end: u64,
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
    /// Bytes by which the file is shorter than it was made.
    pub cut_bytes: u64,
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
        self.damage.is_empty() && self.chain_breaks == 0 && !self.header_damaged && self.cut_bytes == 0
    }
}

impl VerifyReport {
    /// Nothing is wrong with the log; a torn tail is no damage.
    pub fn is_clean(&self) -> bool {
        let is_complete = self.missing.is_empty() && !self.manifest_lost && self.lost_at_end == 0;
        is_complete && self.segments.iter().all(SegmentReport::is_clean)
    }
}

/// Sizes of a log, from the names and lengths of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Files of segments.
    pub segments: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Segments whose files are lost.
    pub missing: Vec<u32>,
    /// Segments whose files are shorter than they were made.
    pub cut: Vec<u32>,
}

/// Looks at the files of a log without reading their records; a node may have it open. [`LogError::UnknownVersion`] if
/// its manifest is of another version.
pub fn survey(directory: &Path) -> Result<Survey, LogError> {
    let reading = |error: io::Error| LogError::io("reading the log", &error);
    let look = || -> Result<Survey, LogError> {
        let files = list(directory).map_err(reading)?;
        let listed = manifest::newest(read_manifests(directory).map_err(reading)?)?.unzip().1.unwrap_or_default();
        let whole_bytes = |file: &OnDisk| listed.get(file.segment).map_or(0, |listed| u64::from(listed.whole_bytes));
        let cut = files.iter().filter(|file| file.bytes < whole_bytes(file)).map(|file| file.segment);
        Ok(Survey {
            segments: files.len() as u64,
            bytes: files.iter().map(|file| file.bytes).sum(),
            missing: missing(&files, &listed),
            cut: cut.collect(),
        })
    };
    let first = look()?;
    // Between the list and the manifest a running node may have made or given back a segment: looked at again.
    if first.missing.is_empty() { Ok(first) } else { look() }
}

/// Checks every record of the log in this directory against its checksum and the one before it. `progress` hears of the
/// bytes done and the bytes in all. [`LogError::InUse`] if a node has the log open.
pub fn verify(directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, LogError> {
    let reading = |error: io::Error| LogError::io("reading the log", &error);
    let _lock = lock(directory)?;
    let mut files = list(directory).map_err(reading)?;
    let (_, manifest) = manifest::newest(read_manifests(directory).map_err(reading)?)?.unzip();
    let oldest = manifest.as_ref().and_then(Manifest::oldest).unwrap_or(0);
    // What an unfinished removal left behind is not of the log any more.
    files.retain(|file| file.segment >= oldest);
    let headers = read_headers(&files)?;
    let seed = find_seed(&headers, manifest.as_ref())?;
    let is_listed = headers.iter().any(|header| header.is_some_and(|header| header.is_listed));
    let total = files.iter().map(|file| file.bytes).sum();
    let listed = manifest.clone().unwrap_or_default();
    let mut walk = Walk { seed, done: 0, total, cursor: Cursor::default(), listed: &listed };
    let mut looks = Vec::with_capacity(files.len());
    for file in &files {
        looks.push(walk.look(file, progress).map_err(reading)??);
    }
    // Only the last segment that was written to can be torn; elsewhere the same gap is damage.
    let last = looks.iter().rposition(|look| !look.is_blank);
    let next = looks.get(last.unwrap_or(0)).map_or(1, |look| look.next_lsn);
    let judged = |(index, look): (usize, Look)| if Some(index) == last { look.as_last } else { look.as_sealed };
    let segments = looks.into_iter().enumerate().map(judged);
    Ok(VerifyReport {
        missing: missing(&files, &listed),
        segments: segments.collect(),
        manifest_lost: manifest.is_none() && is_listed,
        lost_at_end: (listed.durable + 1).saturating_sub(next),
    })
}

/// Numbers that are listed, or lie between the oldest and the last, and have no file.
fn missing(files: &[OnDisk], listed: &Manifest) -> Vec<u32> {
    let holes = files.windows(2).flat_map(|pair| pair[0].segment + 1..pair[1].segment);
    let is_there = |number: &u32| files.binary_search_by_key(number, |file| file.segment).is_ok();
    let listed = listed.segments.iter().map(|listed| listed.number).filter(|number| !is_there(number));
    holes.chain(listed).collect::<BTreeSet<u32>>().into_iter().collect()
}

pub(crate) fn read_manifests(directory: &Path) -> io::Result<[Option<Vec<u8>>; 2]> {
    let read_one = |name: &str| match File::open(directory.join(name)) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(manifest::BYTES_MAX).read_to_end(&mut bytes).map(|_| Some(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    Ok([read_one(manifest::NAMES[0])?, read_one(manifest::NAMES[1])?])
}

/// Keeps a node from opening the log meanwhile. A log without the file has never been open.
pub(crate) fn lock(directory: &Path) -> Result<Option<File>, LogError> {
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

/// File of a segment.
pub(crate) struct OnDisk {
    pub segment: u32,
    pub path: PathBuf,
    bytes: u64,
}

pub(crate) fn list(directory: &Path) -> io::Result<Vec<OnDisk>> {
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

/// The header of each segment; `None` for one of which both copies are damaged.
pub(crate) fn read_headers(files: &[OnDisk]) -> Result<Vec<Option<SegmentHeader>>, LogError> {
    let reading = |error: io::Error| LogError::io("reading a segment header", &error);
    let mut headers = Vec::with_capacity(files.len());
    for file in files {
        let mut bytes = Vec::new();
        let opened = File::open(&file.path).map_err(reading)?;
        opened.take(u64::from(SEGMENT_HEADER_LEN)).read_to_end(&mut bytes).map_err(reading)?;
        if let Some(version) = SegmentHeader::unknown_version(&bytes) {
            return Err(LogError::UnknownVersion { what: format!("{} (version {version})", log_name(file.segment)) });
        }
        headers.push(SegmentHeader::decode(&bytes, file.segment).map(|(header, _)| header));
    }
    Ok(headers)
}

/// The secret is the same in all headers and in the manifest, so any good one serves for all.
pub(crate) fn find_seed(headers: &[Option<SegmentHeader>], manifest: Option<&Manifest>) -> Result<u32, LogError> {
    let in_headers = headers.iter().flatten().map(|header| header.seed).next();
    match (in_headers, manifest.map(|manifest| manifest.seed)) {
        (Some(header), Some(listed)) if header != listed => Err(LogError::ForeignManifest),
        (Some(seed), _) | (None, Some(seed)) => Ok(seed),
        (None, None) => match u32::try_from(headers.len()).unwrap_or(u32::MAX) {
            0 => Ok(0),
            segments => Err(LogError::NoHeader { segments }),
        },
    }
}

/// A segment as it was read, before it is known whether it is the last: the rules of recovery differ.
struct Look {
    is_blank: bool,
    /// Number of the record that would come behind it.
    next_lsn: u64,
    as_last: SegmentReport,
    as_sealed: SegmentReport,
}

struct Walk<'a> {
    seed: u32,
    done: u64,
    total: u64,
    cursor: Cursor,
    listed: &'a Manifest,
}

impl Walk<'_> {
    fn look(&mut self, file: &OnDisk, progress: &mut dyn FnMut(u64, u64)) -> io::Result<Result<Look, LogError>> {
        let bytes = self.read(file, progress)?;
        let both_headers = SegmentHeader::decode(&bytes, file.segment).is_some_and(|(_, both)| both);
        let mut scan = match scan(self.seed, file.segment, &bytes, self.cursor).known(file.segment) {
            Ok(scan) => scan,
            Err(error) => return Ok(Err(error)),
        };
        scan.synced = scan.synced.max(self.listed.durable);
        self.cursor = scan.cursor;
        let whole_bytes = self.listed.get(file.segment).map_or(0, |listed| listed.whole_bytes);
        let report = SegmentReport {
            segment: file.segment,
            bytes: bytes.len() as u64,
            written_bytes: (bytes.len() - trailing_zeros(&bytes)) as u64,
            header_damaged: !both_headers,
            cut_bytes: u64::from(whole_bytes).saturating_sub(bytes.len() as u64),
            ..SegmentReport::default()
        };
        let (is_blank, next_lsn) = (scan.is_blank, scan.cursor.next.unwrap_or(1));
        Ok(Ok(Look {
            is_blank,
            next_lsn,
            as_last: report.clone().of_last(scan.clone()),
            as_sealed: report.of_sealed(scan),
        }))
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
