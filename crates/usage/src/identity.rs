//! What tells a file from every other, and from itself after a change; and opening one without waiting.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// One file in one state: another file under its name, and the same file after it was written to, are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds of the last change of its bytes.
    modified: (i64, i64),
}

impl FileIdentity {
    /// Identity of the file that this was said of.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Device and inode: the same for all names that one file has.
    pub fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// Opens a file to be read. A pipe in its place is opened as well and not waited for, so that the caller must look.
pub fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}
