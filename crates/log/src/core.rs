//! What every handle of a log shares, and the order of its locks: committing, files, gather, table.

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::gather::Gather;
use crate::manifest::ManifestFiles;
use crate::model::{LogOptions, Lsn};
use crate::table::Table;
use crate::watch::Published;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::watch;

/// Gives the disk back when the log goes.
pub struct Claimed(Arc<dyn Disk>);

impl Claimed {
    pub fn take(disk: &Arc<dyn Disk>) -> Result<Claimed, LogError> {
        if disk.claim() { Ok(Claimed(Arc::clone(disk))) } else { Err(LogError::InUse) }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.unclaim();
    }
}

/// State of the background work: whether there is some, and who does it.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// Threads do it; otherwise `flush` does.
    pub has_threads: bool,
    pub is_wanted: bool,
    pub is_stopping: bool,
}

/// State that all handles and threads of one log share.
pub struct Core {
    pub disk: Arc<dyn Disk>,
    pub options: LogOptions,
    pub seed: u32,
    /// Held for the length of one group commit.
    pub committing: Mutex<()>,
    /// Held while segment files and sidecars are made or removed; the manifest says which there are, except of a log
    /// in memory.
    pub files: Mutex<Option<ManifestFiles>>,
    pub gather: Mutex<Gather>,
    /// The writer sleeps on it, with `gather`.
    pub work: Condvar,
    pub table: Mutex<Table>,
    pub upkeep: Mutex<Upkeep>,
    /// The helper sleeps on it, with `upkeep`.
    pub upkeep_work: Condvar,
    pub published: watch::Sender<Published>,
    /// The failure in `published` once more, so that those who wait for nothing else sleep through commits.
    pub failure: watch::Sender<Option<LogError>>,
    /// Dropped last: the disk is free once nothing of the log is left.
    _claimed: Claimed,
}

impl Core {
    pub fn new(
        claimed: Claimed,
        options: LogOptions,
        seed: u32,
        gather: Gather,
        table: Table,
        manifest: Option<ManifestFiles>,
    ) -> Core {
        let durable = Lsn(gather.tail().lsn);
        Core {
            disk: Arc::clone(&claimed.0),
            options,
            seed,
            committing: Mutex::new(()),
            files: Mutex::new(manifest),
            gather: Mutex::new(gather),
            work: Condvar::new(),
            table: Mutex::new(table),
            upkeep: Mutex::new(Upkeep { is_wanted: true, ..Upkeep::default() }),
            upkeep_work: Condvar::new(),
            published: watch::Sender::new(Published { durable, failed: None }),
            failure: watch::Sender::new(None),
            _claimed: claimed,
        }
    }

    /// The commit path. If a thread panicked in the middle of a change of it, what is gathered cannot be trusted; one
    /// that only held it has done no harm.
    pub fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock().unwrap_or_else(|poisoned| {
            let mut gather = poisoned.into_inner();
            if gather.is_mid_change() {
                self.fail_holding(&mut gather, panicked());
            } else {
                self.gather.clear_poison();
            }
            gather
        })
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn upkeep(&self) -> MutexGuard<'_, Upkeep> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock_committing(&self) -> MutexGuard<'_, ()> {
        self.committing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock_files(&self) -> MutexGuard<'_, Option<ManifestFiles>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn durable(&self) -> Lsn {
        self.published.borrow().durable
    }

    /// Ends the log as a place to write: the first error stays, and everybody is told.
    pub fn fail(&self, error: LogError) -> LogError {
        self.fail_holding(&mut self.gather(), error)
    }

    /// The same for one who holds the commit path.
    pub fn fail_holding(&self, gather: &mut Gather, error: LogError) -> LogError {
        let error = gather.fail(error);
        self.published.send_if_modified(|published| {
            let is_news = published.failed.is_none();
            if is_news {
                tracing::error!(%error, durable = published.durable.0, "the log stops acknowledging");
                published.failed = Some(error.clone());
            }
            is_news
        });
        self.failure.send_if_modified(|failed| failed.is_none() && failed.replace(error.clone()).is_none());
        self.work.notify_all();
        error
    }

    /// Fails the log if the write path met an error.
    pub fn must<T>(&self, doing: &'static str, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|error| self.fail(LogError::failed(doing, &error)))
    }

    /// Asks for background work, of the helper thread or else of the next flush.
    pub fn want_upkeep(&self) {
        self.upkeep().is_wanted = true;
        self.upkeep_work.notify_one();
    }

    /// The file of a segment, for reading. It is opened outside the lock, so that nobody waits for the disk here.
    pub fn readable(&self, segment: u32) -> Result<Arc<dyn DiskFile>, LogError> {
        {
            let mut table = self.table();
            table.get(segment).filter(|known| known.is_made).ok_or(LogError::Gone { segment })?;
            if let Some(file) = table.open_file(segment) {
                return Ok(file);
            }
        }
        let opened = self.disk.open(&log_name(segment));
        let mut table = self.table();
        // Given back while it was being opened.
        table.get(segment).ok_or(LogError::Gone { segment })?;
        let file = opened.map_err(|error| LogError::io("opening a segment", &error))?;
        table.keep_open(segment, Arc::clone(&file));
        Ok(file)
    }
}

/// Reason of a log whose commit path was left in the middle.
pub fn panicked() -> LogError {
    LogError::failed("appending", &io::Error::other("a thread panicked while it held the log"))
}

/// Fails the log if a thread panics while it commits or keeps the log up, so that no caller waits for what is dead.
pub struct FailOnPanic<'a> {
    core: &'a Core,
    /// The thread was unwinding already: its panic is none of ours.
    was_panicking: bool,
}

impl<'a> FailOnPanic<'a> {
    pub fn new(core: &'a Core) -> Self {
        FailOnPanic { core, was_panicking: thread::panicking() }
    }
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.core.fail(LogError::failed("committing", &io::Error::other("a thread of the log panicked")));
        }
    }
}

/// Name of the file of a segment.
pub fn log_name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// Name of the sidecar of a segment.
pub fn sidecar_name(segment: u32) -> String {
    format!("{segment:08}.idx")
}

/// Name of a file of a segment that is not finished.
pub fn temporary_name(segment: u32, of: &str) -> String {
    format!("{segment:08}.{of}.tmp")
}

/// The segment a name belongs to, if it ends this way.
pub fn parse_name(name: &str, ending: &str) -> Option<u32> {
    let digits = name.strip_suffix(ending)?;
    let is_number = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}
