//! A log driven by a script, and a memory of what it promised.

use ron_log::{Class, Disk, Log, LogError, LogOptions, Lsn, Position, Recovery, SimDisk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small segments, so that a short script rolls through many.
pub fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 4096,
        quota_bytes: 1 << 20,
        reserve_bytes: 64 << 10,
        gather_bytes_max: 64 << 10,
        zero_ahead: true,
        sidecars: true,
    }
}

/// One record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub position: Position,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// What was appended, what was promised, and what may be gone on purpose.
#[derive(Clone, Debug)]
pub struct Memory {
    pub options: LogOptions,
    pub written: BTreeMap<u64, Written>,
    pub durable: u64,
    /// Segments up to this one may be gone.
    pub retired: u32,
    counter: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { options: options(), written: BTreeMap::new(), durable: 0, retired: 0, counter: 0 }
    }
}

impl Memory {
    /// Of a log without zero-filling and sidecars.
    pub fn plain() -> Memory {
        let options = LogOptions { zero_ahead: false, sidecars: false, ..options() };
        Memory { options, ..Memory::default() }
    }

    /// Bytes that differ from record to record and from run to run, ending in zeros now and then.
    fn content(&mut self, len: usize) -> Vec<u8> {
        self.counter += 1;
        let mut bytes: Vec<u8> = (0..len as u64).map(|at| (at * 7 + self.counter * 31) as u8).collect();
        if self.counter.is_multiple_of(5) {
            let start = len - len / 3;
            bytes[start..].fill(0);
        }
        bytes
    }

    pub fn append(&mut self, log: &Log, head_len: usize, body_len: usize) -> Result<Position, LogError> {
        let (head, body) = (self.content(head_len), self.content(body_len));
        let mut appender = log.appender();
        let position = appender.append(Class::Data, &head, &body)?;
        let lsn = appender.lsn().0;
        drop(appender);
        self.written.insert(lsn, Written { position, head, body });
        Ok(position)
    }

    pub fn flush(&mut self, log: &Log) -> Result<Lsn, LogError> {
        let flushed = log.flush();
        self.durable = log.durable().0;
        if let Ok(lsn) = flushed {
            assert_eq!(lsn, log.durable());
        }
        flushed
    }

    pub fn retire_oldest(&mut self, log: &Log) -> Result<(), LogError> {
        for written in self.written.values() {
            log.release(written.position);
        }
        let Some(segment) = log.reclaimable() else { return Ok(()) };
        self.retired = segment;
        let retired = log.retire(segment);
        self.durable = log.durable().0;
        retired
    }

    /// Records that must be there whatever happened.
    fn owed(&self) -> impl Iterator<Item = (&u64, &Written)> {
        self.written.range(..=self.durable).filter(|(_, written)| written.position.segment > self.retired)
    }

    /// Opens the disk and holds it to every promise. What is there becomes what was written.
    pub fn reopen(&mut self, disk: &SimDisk, what: &str) -> (Log, Recovery) {
        let opened = open_with(disk, &self.options);
        let (log, recovery, found) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let first = found.keys().next().copied().unwrap_or(1);
        for (expected, (lsn, (position, head))) in (first..).zip(&found) {
            assert_eq!(*lsn, expected, "{what}: no number is missing or comes twice");
            let written = self.written.get(lsn).unwrap_or_else(|| panic!("{what}: {lsn} was never appended"));
            let record = log.read(*position).unwrap_or_else(|error| panic!("{what}: {lsn}: {error}"));
            let seen = Written { position: *position, head: record.head.to_vec(), body: record.body.to_vec() };
            assert_eq!(&seen, written, "{what}: record {lsn}");
            assert_eq!(head, &written.head, "{what}: head of {lsn}");
        }
        for (lsn, _) in self.owed() {
            assert!(found.contains_key(lsn), "{what}: acknowledged record {lsn} is lost; {recovery:?}");
        }
        assert_eq!(recovery.quarantined_records, 0, "{what}: {recovery:?}");
        assert_eq!(recovery.quarantined_bytes, 0, "{what}: {recovery:?}");
        assert_eq!(recovery.chain_breaks, 0, "{what}: {recovery:?}");
        assert!(!recovery.has_losses(), "{what}: a false alarm; {recovery:?}");
        assert_eq!(recovery.records, found.len() as u64, "{what}");
        assert!(recovery.last.0 >= self.durable, "{what}: numbers never go back past what was promised");
        self.written.retain(|lsn, _| found.contains_key(lsn));
        self.durable = log.durable().0;
        assert_eq!(log.durable(), recovery.last, "{what}: what was replayed is durable");
        (log, recovery)
    }
}

/// Position and head of every record by number.
pub type Heads = BTreeMap<u64, (Position, Vec<u8>)>;

pub fn open(disk: &SimDisk) -> Result<(Log, Recovery, Heads), LogError> {
    open_with(disk, &options())
}

pub fn open_with(disk: &SimDisk, options: &LogOptions) -> Result<(Log, Recovery, Heads), LogError> {
    let mut found = Heads::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, recovery) = Log::open(disk, options.clone(), &mut |replayed, _live| {
        found.insert(replayed.lsn.0, (replayed.position, replayed.head.to_vec()));
    })?;
    Ok((log, recovery, found))
}

/// The script: sizes small and large, groups of one and many, rolls inside a group, retirement, a clean stop in the
/// middle and one at the end. Stops at the first error.
pub fn run(disk: &SimDisk, memory: &mut Memory) -> Result<(), LogError> {
    let (log, ..) = open_with(disk, &memory.options)?;
    first_life(&log, memory)?;
    drop(log);
    let (log, ..) = open_with(disk, &memory.options)?;
    second_life(&log, memory)?;
    Ok(())
}

fn first_life(log: &Log, memory: &mut Memory) -> Result<(), LogError> {
    memory.append(log, 10, 0)?;
    memory.flush(log)?;
    for body_len in [100, 0, 700, 33] {
        memory.append(log, 20, body_len)?;
    }
    memory.flush(log)?;
    for _ in 0..8 {
        memory.append(log, 30, 900)?;
    }
    memory.flush(log)?;
    memory.append(log, 0, 3500)?;
    memory.append(log, 5, 1)?;
    memory.flush(log)?;
    memory.retire_oldest(log)?;
    memory.append(log, 5, 600)?;
    log.seal()?;
    memory.durable = log.durable().0;
    Ok(())
}

fn second_life(log: &Log, memory: &mut Memory) -> Result<(), LogError> {
    for body_len in [500, 2000, 1500] {
        memory.append(log, 8, body_len)?;
        memory.flush(log)?;
    }
    memory.retire_oldest(log)?;
    memory.retire_oldest(log)?;
    for _ in 0..12 {
        memory.append(log, 16, 300)?;
    }
    memory.flush(log)?;
    memory.append(log, 1, 1)?;
    log.seal()?;
    memory.durable = log.durable().0;
    Ok(())
}
