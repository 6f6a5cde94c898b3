//! Opening a book: replays the log, and decides whether the book may go on booking.

use super::record::{Record, Unreadable};
use super::state::State;
use super::verify::Recounts;
use super::{Book, BookError, Commits, Inner};
use ron_log::{Disk, Durability, Log, LogError, LogOptions, Position, Recovery, Replayed};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// File beside the log that says what was lost; while it is there, the book books nothing.
pub(super) const DAMAGE_NAME: &str = "DAMAGED";
const DAMAGE_BYTES_MAX: usize = 16 << 10;

/// How a book is bounded.
#[derive(Clone, Debug)]
pub struct BookOptions {
    /// The log that the book is kept in. Nothing in it ever goes, so its quota is the size of the book.
    pub log: LogOptions,
    /// Transfers the book takes in its life. Each one takes about 70 bytes of memory, and 60 and its account on disk.
    pub transfers_max: u32,
    /// Whether the log has its writer thread; without it each caller commits, as a simulation needs it.
    pub has_threads: bool,
}

impl Default for BookOptions {
    fn default() -> Self {
        // A book has nothing that frees room, so it keeps no more in reserve than the log insists on.
        // A segment holds the largest batch, whose accounts have the longest names; it is written ahead, so that every
        // byte of it is paid for at the first start.
        let log = LogOptions {
            segment_bytes: 32 << 20,
            quota_bytes: 64 << 30,
            reserve_bytes: 1 << 20,
            ..LogOptions::default()
        };
        BookOptions { log, transfers_max: 200_000_000, has_threads: true }
    }
}

/// Findings of opening a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Batches in the book.
    pub batches: u64,
    /// Transfers in the book.
    pub transfers: u64,
    /// Accounts in the book.
    pub accounts: u64,
    /// What the log found.
    pub recovery: Recovery,
    /// What is lost; the book then tells what it knows and books nothing.
    pub damage: Option<String>,
}

/// A state made from records, with what was wrong with them.
pub(super) struct Replay {
    pub state: State,
    /// Records that cannot be read.
    pub unreadable: u64,
    /// Records that do not continue the one before them.
    pub breaks: u64,
    pub version: Option<u8>,
}

impl Replay {
    pub fn new() -> Replay {
        Replay { state: State::new(), unreadable: 0, breaks: 0, version: None }
    }

    /// Takes in the next record of the log.
    pub fn take(&mut self, position: Position, head: &[u8], body: &[u8]) {
        match Record::decode(head, body) {
            Ok(record) => {
                if record.previous != self.state.chain {
                    self.breaks += 1;
                }
                self.state.apply(position, &record.head, record.chain, record.rows());
            }
            Err(Unreadable::Version(version)) => self.version = Some(version),
            Err(Unreadable::Malformed | Unreadable::Changed) => self.unreadable += 1,
        }
    }

    /// What the records themselves show to be wrong, in words.
    pub fn damage(&self) -> Vec<String> {
        let found = [
            (self.unreadable, "unreadable batches"),
            (self.breaks, "batches that do not continue the one before"),
            (self.state.contradictions, "transfers that contradict others"),
        ];
        found.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

impl Book {
    /// Opens the book in a directory, or begins one. Reads all of it: about half a second for a million transfers.
    pub fn open(disk: Arc<dyn Disk>, options: BookOptions) -> Result<(Book, Opened), BookError> {
        let mut positions = Vec::new();
        let mut gather = |replayed: Replayed<'_>, _live: &mut ron_log::Live<'_>| positions.push(replayed.position);
        let (log, recovery) = Log::open(Arc::clone(&disk), options.log.clone(), &mut gather)?;
        let mut replay = Replay::new();
        for position in positions {
            match log.read(position) {
                Ok(record) => replay.take(position, &record.head, &record.body),
                Err(LogError::Corrupt { .. }) => replay.unreadable += 1,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(version) = replay.version {
            return Err(BookError::UnknownVersion(version));
        }
        let damage = damage_of(disk.as_ref(), &recovery, &replay)?;
        let opened = Opened {
            batches: replay.state.batches().len() as u64,
            transfers: replay.state.transfers() as u64,
            accounts: replay.state.account_names().len() as u64,
            recovery,
            damage: damage.clone(),
        };
        let is_threaded = options.has_threads && disk.durability() == Durability::Fsynced;
        let writer = if options.has_threads { Some(log.start_writer().map_err(unstarted)?) } else { None };
        let book = Book {
            inner: Arc::new(Inner {
                log,
                state: Mutex::new(replay.state),
                transfers_max: options.transfers_max.min(u32::MAX - 1),
                commits: if is_threaded { Commits::Thread } else { Commits::Caller },
                damage: Mutex::new(damage),
                disk,
                recounts: Recounts::default(),
                writer: Mutex::new(writer),
            }),
        };
        Ok((book, opened))
    }
}

fn unstarted(error: io::Error) -> BookError {
    BookError::Unavailable(format!("the thread of the log does not start: {error}"))
}

/// What is lost, from the log, the records, and what an earlier start wrote down: the log mends some of its own
/// damage, so that a later start would not see it any more.
fn damage_of(disk: &dyn Disk, recovery: &Recovery, replay: &Replay) -> Result<Option<String>, BookError> {
    let reading = |error: io::Error| BookError::Unavailable(format!("{DAMAGE_NAME} beside the book: {error}"));
    if let Some(known) = read_damage(disk).map_err(reading)? {
        return Ok(Some(known));
    }
    let mut words = replay.damage();
    if recovery.has_losses() {
        let Recovery { quarantined_records, segments_missing, segments_cut, manifest_lost, .. } = recovery;
        words.push(format!(
            "{quarantined_records} records damaged, {segments_missing} segments missing, {segments_cut} segments cut"
        ));
        if *manifest_lost {
            words.push("the list of segments was lost".to_owned());
        }
    }
    if words.is_empty() {
        return Ok(None);
    }
    let words = words.join("; ");
    tracing::error!(damage = %words, "the book has lost records: it tells what it knows and books nothing");
    write_damage(disk, &words).map_err(reading)?;
    Ok(Some(words))
}

/// What the book in this directory has lost, as its last start wrote it down; a node may have it open.
pub fn marked_damage(directory: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(directory.join(DAMAGE_NAME)) {
        Ok(file) => file.take(DAMAGE_BYTES_MAX as u64).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(damage_words(&bytes)))
}

/// A mark that was made and not filled before a power cut says that something was lost, and no more.
fn damage_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).trim().to_owned();
    if text.is_empty() { "records were lost".to_owned() } else { text }
}

fn read_damage(disk: &dyn Disk) -> io::Result<Option<String>> {
    let file = match disk.open(DAMAGE_NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX).min(DAMAGE_BYTES_MAX)];
    file.read_at(0, &mut bytes)?;
    Ok(Some(damage_words(&bytes)))
}

pub(super) fn write_damage(disk: &dyn Disk, words: &str) -> io::Result<()> {
    let file = disk.create(DAMAGE_NAME)?;
    file.write_at(0, format!("{words}\n").as_bytes())?;
    file.sync()?;
    disk.sync_dir()
}
