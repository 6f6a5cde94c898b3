//! Files in a directory of the machine, with a lock that keeps other processes out.

use super::{Claim, Disk, DiskFile, Durability};
use crate::table::FILES_OPEN_MAX;
use rustix::fs::{FlockOperation, flock, fstatvfs};
use rustix::io::{DupFlags, Errno, ReadWriteFlags, dup3, preadv2};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const LOCK_NAME: &str = "LOCK";

/// Descriptors that a log holds from its start to its end, used or not: its open segments, the one made ahead, the
/// manifest, a sidecar, and a few for readers that hold a file the log has closed.
pub const DESCRIPTORS_RESERVED: usize = FILES_OPEN_MAX + 8;

/// A directory on a file system. Dropping it gives the lock back.
pub struct RealDisk {
    path: PathBuf,
    reserve: Arc<Reserve>,
    /// Held exclusively; the kernel gives it back if the process dies.
    _lock: File,
    claim: Claim,
}

impl RealDisk {
    /// Opens the directory, making it if needed, and locks it. `WouldBlock` if another process (or another opening in
    /// this one) has it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<RealDisk> {
        RealDisk::open_reserving(path, DESCRIPTORS_RESERVED)
    }

    /// As [`RealDisk::open`], for a log that has few files open at once: with this many spare descriptors.
    pub fn open_reserving(path: impl AsRef<Path>, descriptors: usize) -> io::Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        // Even if it was there: the start that made it may have ended before its entry was durable.
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        let lock_path = path.join(LOCK_NAME);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock_path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let reserve = Arc::new(Reserve::new(File::open(&path)?, descriptors)?);
        Ok(RealDisk { path, reserve, _lock: lock, claim: Claim::default() })
    }

    fn open_with(&self, options: &mut OpenOptions, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let options = options.read(true).write(true).mode(0o600);
        let file = self.reserve.open(options, &self.path.join(name))?;
        Ok(Arc::new(RealFile { file: Some(file), reserve: Arc::clone(&self.reserve) }))
    }
}

/// Spare descriptors of a log. A flood of connections may take every descriptor of the process but these: a log that
/// cannot open its next segment has failed for good.
struct Reserve {
    directory: File,
    /// Most spare descriptors.
    size: usize,
    /// Duplicates of the directory, one for each file that could be open and is not.
    spare: Mutex<Vec<OwnedFd>>,
}

impl Reserve {
    fn new(directory: File, size: usize) -> io::Result<Reserve> {
        let spare = (0..size).map(|_| directory.try_clone().map(OwnedFd::from));
        let spare = spare.collect::<io::Result<_>>()?;
        Ok(Reserve { directory, size, spare: Mutex::new(spare) })
    }

    /// Opens a file in place of a spare descriptor. The file is opened first if it can be; only a process without
    /// descriptors gives one up before, and tries again if another thread was faster to take it.
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let opened = options.open(path);
            let lacks_descriptor = opened.as_ref().is_err_and(is_lack_of_descriptors);
            if opened.is_err() && !lacks_descriptor {
                return opened;
            }
            let has_given_up = spare.pop().is_some();
            if opened.is_ok() || !has_given_up {
                return opened;
            }
        }
    }

    /// Closes a file and keeps its descriptor, in one step: nobody can take it in between.
    fn close(&self, file: File) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.size {
            let mut descriptor = OwnedFd::from(file);
            // An error leaves the file itself open, which holds the descriptor just as well until the reserve is used.
            let _ = dup3(&self.directory, &mut descriptor, DupFlags::CLOEXEC);
            spare.push(descriptor);
        }
    }
}

fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

impl Disk for RealDisk {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    fn secret(&self) -> u32 {
        // The standard library seeds its hashers from the system; that is randomness without a dependency.
        (RandomState::new().hash_one(LOCK_NAME) >> 32) as u32
    }

    fn claim(&self) -> bool {
        self.claim.take()
    }

    fn unclaim(&self) {
        self.claim.give_back();
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let filesystem = fstatvfs(&self.reserve.directory)?;
        Ok(filesystem.f_bavail.saturating_mul(filesystem.f_frsize))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(OpenOptions::new().create(true).truncate(true), name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(&mut OpenOptions::new(), name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.reserve.directory.sync_all()
    }
}

struct RealFile {
    /// `None` only while dropping.
    file: Option<File>,
    reserve: Arc<Reserve>,
}

impl RealFile {
    fn file(&self) -> &File {
        self.file.as_ref().expect("open until the drop")
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.reserve.close(file);
        }
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file().read_exact_at(buffer, offset)
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let wanted = buffer.len();
        // What is not in memory, or a file system that cannot tell, is left to a thread that may wait.
        let read = preadv2(self.file(), &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
        Ok(read.is_ok_and(|read| read == wanted))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file().sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares(disk: &RealDisk) -> usize {
        disk.reserve.spare.lock().unwrap().len()
    }

    #[test]
    fn a_file_takes_the_place_of_a_spare_descriptor_and_gives_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        assert_eq!(spares(&disk), DESCRIPTORS_RESERVED);
        let files: Vec<_> = (0..3).map(|number| disk.create(&number.to_string()).unwrap()).collect();
        assert_eq!(spares(&disk), DESCRIPTORS_RESERVED - 3);
        assert!(disk.open("not there").is_err());
        assert_eq!(spares(&disk), DESCRIPTORS_RESERVED - 3, "an error costs nothing");
        drop(files);
        assert_eq!(spares(&disk), DESCRIPTORS_RESERVED);
        let many: Vec<_> = (0..2 * DESCRIPTORS_RESERVED).map(|_| disk.open("0").unwrap()).collect();
        assert_eq!(spares(&disk), 0, "more than the reserve compete with everybody");
        drop(many);
        assert_eq!(spares(&disk), DESCRIPTORS_RESERVED);
        disk.sync_dir().unwrap();
    }
}
