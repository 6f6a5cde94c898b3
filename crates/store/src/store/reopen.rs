//! A disk that fails, or is full, and what becomes of the database then: it is opened again.
//!
//! After one read or write that fails, the library does nothing more with a file until it is opened anew, not even read
//! what it has. A disk that was full for a minute would end the store for the rest of the process' life.

use std::io;
use std::sync::{Arc, PoisonError};

use redb::Database;

use super::snapshot::Snapshot;
use super::{Store, StoreError, guarded, open};

/// Milliseconds for which nothing is written after a write that failed: on a disk that is full every try costs as much
/// as opening the file, and those who read wait for that.
const PAUSE_MS: u64 = 1_000;

/// What belongs to whoever writes.
pub(super) struct Writer {
    /// None while the file could not be opened again.
    database: Option<Database>,
    /// Unix milliseconds of the last write that failed.
    failed_ms: Option<u64>,
}

impl Writer {
    pub(super) fn of(database: Database) -> Self {
        Writer { database: Some(database), failed_ms: None }
    }

    /// Refuses to write right after a write that failed. A clock that was set ends the pause.
    pub(super) fn may_write(&self, now_ms: u64) -> Result<(), StoreError> {
        match self.failed_ms {
            Some(failed_ms) if now_ms.abs_diff(failed_ms) < PAUSE_MS => {
                Err(io::Error::other("a write failed a moment ago").into())
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// The database; opened again if that was not possible before.
    pub(super) fn database<'a>(&self, writer: &'a mut Writer) -> Result<&'a Database, StoreError> {
        if writer.database.is_none() {
            self.reopen(writer)?;
        }
        writer.database.as_ref().ok_or_else(|| io::Error::other("the file is not open").into())
    }

    /// A write failed: nothing of it counts, and what was there before can be read again as soon as the file is opened.
    pub(super) fn after_failed_write(&self, writer: &mut Writer, now_ms: u64) {
        writer.failed_ms = Some(now_ms);
        // If this fails too, whoever reads or writes next tries it again, and is told why it failed.
        let _ = self.told_if_damaged(self.reopen(writer));
    }

    /// The state to read after a read of `state` failed: a newer one, if there is one by now, or that of the file
    /// opened again.
    pub(super) fn state_after_failure(
        &self,
        state: &Arc<Snapshot>,
        error: io::Error,
    ) -> Result<Arc<Snapshot>, StoreError> {
        if self.inner.path.is_none() {
            return Err(error.into());
        }
        let mut writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&self.inner.snapshot.load(), state) {
            self.told_if_damaged(self.reopen(&mut writer))?;
        }
        Ok(self.inner.snapshot.load_full())
    }

    /// Closes the file and opens it again. What is read from states of before fails from now on.
    fn reopen(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let Some(path) = &self.inner.path else {
            return Err(io::Error::other("memory that fails cannot be opened again").into());
        };
        // First, as the file has one user at a time.
        writer.database = None;
        let (database, snapshot) = guarded(|| {
            let database = open::open_database(path, self.inner.bounds)?;
            open::prepare(&database)?;
            // Nothing is known of which hours a key is in: a write that failed may be in the file all the same.
            let snapshot = Snapshot::take(&database, None)?;
            Ok((database, snapshot))
        })?;
        self.inner.snapshot.store(Arc::new(snapshot));
        writer.database = Some(database);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::backends::FileBackend;
    use redb::{Builder, StorageBackend};

    use super::super::{Applied, Bounds, Change};
    use super::*;
    use crate::{ContentId, Subject};

    /// A file on a disk that can be full.
    #[derive(Debug)]
    struct FullableDisk {
        file: FileBackend,
        is_full: Arc<AtomicBool>,
    }

    impl FullableDisk {
        fn room(&self) -> io::Result<()> {
            let is_full = self.is_full.load(Ordering::Relaxed);
            if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl StorageBackend for FullableDisk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room().and_then(|()| self.file.set_len(len))
        }

        fn sync_data(&self) -> io::Result<()> {
            self.room().and_then(|()| self.file.sync_data())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room().and_then(|()| self.file.write(offset, data))
        }

        fn close(&self) -> io::Result<()> {
            self.file.close()
        }
    }

    fn pin(store: &Store, number: u8, now_ms: u64) -> Result<Applied, StoreError> {
        let subject = Subject::Content(ContentId::of_bytes(&[number]));
        store.apply(&[Change::Pin(subject)], now_ms).map(|applied| applied[0])
    }

    fn pins(store: &Store) -> usize {
        store.pins(None, 100).expect("what was written can be read").len()
    }

    #[test]
    fn a_disk_that_was_full_for_a_while_ends_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index.redb");
        // No page of the file is remembered: what is read is read from the disk.
        let bounds = Bounds { cache_bytes: 0, ..Bounds::default() };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        let is_full = Arc::new(AtomicBool::new(false));
        let disk = FullableDisk { file: FileBackend::new(file).expect("a file"), is_full: is_full.clone() };
        let database = Builder::new().set_cache_size(0).create_with_backend(disk).expect("a database");
        let store = open::store_of(database, Some(path), bounds).expect("a store");
        assert!(matches!(pin(&store, 1, 10_000), Ok(Applied::Stored)));
        is_full.store(true, Ordering::Relaxed);
        let refused = pin(&store, 2, 20_000);
        assert!(matches!(refused, Err(StoreError::File(_))), "{refused:?}");
        assert_eq!(pins(&store), 1, "and nothing of what was refused");
        // The file that was opened again is on a disk with room.
        let refused = pin(&store, 2, 20_000 + PAUSE_MS - 1);
        assert!(matches!(refused, Err(StoreError::File(_))), "it is not tried at once: {refused:?}");
        assert!(matches!(pin(&store, 2, 20_000 + PAUSE_MS), Ok(Applied::Stored)));
        assert!(matches!(pin(&store, 3, 1_000), Ok(Applied::Stored)), "whatever the clock shows");
        assert_eq!(pins(&store), 3);
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_tried_until_it_can() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index.redb");
        // No page of the file is remembered: what is read is read from the disk.
        let bounds = Bounds { cache_bytes: 0, ..Bounds::default() };
        let store = Store::open(&path, bounds).expect("a store").store;
        assert!(matches!(pin(&store, 1, 10_000), Ok(Applied::Stored)));
        let aside = folder.path().join("aside");
        std::fs::rename(&path, &aside).expect("moved");
        std::fs::create_dir(&path).expect("something in its place that is no file");
        let mut writer = store.inner.writer.lock().expect("nobody panicked");
        store.after_failed_write(&mut writer, 20_000);
        assert!(writer.database.is_none());
        drop(writer);
        assert!(store.pins(None, 100).is_err() && pin(&store, 2, 30_000).is_err());
        std::fs::remove_dir(&path).expect("removed");
        std::fs::rename(&aside, &path).expect("moved back");
        assert_eq!(pins(&store), 1);
        assert!(matches!(pin(&store, 2, 40_000), Ok(Applied::Stored)));
        assert_eq!(pins(&store), 2);
    }
}
