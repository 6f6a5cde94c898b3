//! The disk as the log sees it: named files in one flat directory.

use crate::scan::trailing_zeros;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod ram;
mod real;

pub use ram::RamDisk;
pub use real::{DESCRIPTORS_RESERVED, RealDisk};

/// Strength of a sync on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Synced to the medium, with its directory entry.
    Fsynced,
    /// In memory only: gone with the process.
    Ram,
}

/// A directory of files that belongs to one log.
pub trait Disk: Send + Sync {
    /// Strength of a successful sync on this disk.
    fn durability(&self) -> Durability;
    /// A number nobody outside can guess; asked once in the life of a log.
    fn secret(&self) -> u32;
    /// Takes the disk for one log; false if it is taken.
    fn claim(&self) -> bool;
    /// Ends the claim, so that another log may open on this disk.
    fn unclaim(&self);
    /// Bytes that may still be written; a hint, checked before a segment is made.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Names of all files in the directory, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes an empty file, in place of one of this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, in place of one of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills the buffer from that offset; an error if the file is too short.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Fills the buffer only if that takes no waiting for a device; false if it would.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buffer).map(|()| true)
    }
    /// Writes all the bytes there, growing the file if needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the written bytes durable.
    fn sync(&self) -> io::Result<()>;
}

/// Flag of a disk that is set while a log is open on it.
#[derive(Debug, Default)]
pub(crate) struct Claim(AtomicBool);

impl Claim {
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    pub fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Bytes looked at in one step on the way back from the end of a segment.
const LOOK_BACK_BYTES: usize = 256 << 10;

/// The whole of a segment, most of which may be zeros nobody has written to yet: these are not read a second time, and
/// take no memory because nothing touches them.
pub(crate) fn read_segment(file: &dyn DiskFile, len_max: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?.min(len_max)).map_err(io::Error::other)?;
    let mut piece = vec![0; len.min(LOOK_BACK_BYTES)];
    let mut written = len;
    while written > 0 {
        let start = written.saturating_sub(LOOK_BACK_BYTES);
        let looked_at = &mut piece[..written - start];
        file.read_at(start as u64, looked_at)?;
        let zeros = trailing_zeros(looked_at);
        written -= zeros;
        if written > start {
            break;
        }
    }
    drop(piece);
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes[..written])?;
    Ok(bytes)
}

/// The whole of a file, or its first bytes.
pub(crate) fn read_up_to(file: &dyn DiskFile, len_max: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?.min(len_max)).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
