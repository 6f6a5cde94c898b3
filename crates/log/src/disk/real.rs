//! Files in a directory of the machine, with a lock that keeps other processes out.

use super::{Claim, Disk, DiskFile, Durability};
use rustix::fs::{FlockOperation, flock, fstatvfs};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK_NAME: &str = "LOCK";

/// A directory on a file system. Dropping it gives the lock back.
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    /// Held exclusively; the kernel gives it back if the process dies.
    _lock: File,
    claim: Claim,
}

impl RealDisk {
    /// Opens the directory, making it if needed, and locks it. `WouldBlock` if another process (or another opening in
    /// this one) has it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        if !path.exists() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let lock_path = path.join(LOCK_NAME);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock_path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let directory = File::open(&path)?;
        Ok(RealDisk { path, directory, _lock: lock, claim: Claim::default() })
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options
    }
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
        let filesystem = fstatvfs(&self.directory)?;
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
        let file = Self::options().create(true).truncate(true).open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(Self::options().open(self.path.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let wanted = buffer.len();
        // What is not in memory, or a file system that cannot tell, is left to a thread that may wait.
        let read = preadv2(&self.0, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
        Ok(read.is_ok_and(|read| read == wanted))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
