//! The folder on a real disk in which every system of a run keeps its data.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58F6;

/// Removed with everything in it when dropped.
pub struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// Makes one beside the build this binary came from, and refuses a file system that lives in memory.
    pub fn new() -> anyhow::Result<Scratch> {
        let base = target_folder()?.join("bench");
        fs::create_dir_all(&base)?;
        let folder = tempfile::Builder::new().prefix("mailbox-").tempdir_in(&base)?;
        // A server that runs as another user has to get through.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        anyhow::ensure!(!is_in_memory(folder.path())?, "{} is in memory: nothing is durable there", base.display());
        Ok(Scratch { folder })
    }

    /// Makes a new folder in it.
    pub fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Free bytes of the file system.
    pub fn free_bytes(&self) -> anyhow::Result<u64> {
        let found = rustix::fs::statvfs(self.folder.path())?;
        Ok(found.f_bavail * found.f_frsize)
    }
}

/// The folder of this build: `target` of `target/release/macronode-bench`.
pub fn target_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let above = own.ancestors().find(|path| path.join("CACHEDIR.TAG").is_file());
    Ok(above.or_else(|| own.parent()).context("this binary lies in a folder")?.to_owned())
}

fn is_in_memory(path: &Path) -> anyhow::Result<bool> {
    let kind = rustix::fs::statfs(path)?.f_type as u64;
    Ok(kind == TMPFS || kind == RAMFS)
}

/// Makes the disk take everything that waits, so that one system does not pay for the one before.
pub fn settle_disk() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_disk() {
        let scratch = Scratch::new().expect("the build folder is on a disk");
        let inner = scratch.folder("data").expect("a folder");
        assert!(inner.is_dir() && scratch.free_bytes().expect("a number") > 0);
        if Path::new("/dev/shm").is_dir() {
            assert!(is_in_memory(Path::new("/dev/shm")).expect("it exists"));
        }
        drop(scratch);
        assert!(!inner.exists());
    }
}
