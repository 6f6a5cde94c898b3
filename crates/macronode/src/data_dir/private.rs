//! A directory of one user and one node: its mode, its durable entry, its lock.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::ADDRESSES_FILE;

/// Only the owner may list, read and write.
const MODE: u32 = 0o700;
/// Set on directories that many users share, such as /tmp.
const STICKY: u32 = 0o1000;

/// A directory that no other node can take. The system gives the lock back if the process dies.
#[derive(Debug)]
pub struct Locked(#[expect(dead_code, reason = "held, never read")] File);

/// Makes the directory and those above it, with entries that survive a loss of power.
pub fn make(path: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(path)?;
    let mut entries: Vec<&Path> = absolute.ancestors().take_while(|folder| !folder.exists()).collect();
    DirBuilder::new().recursive(true).mode(MODE).create(path)?;
    // Its own entry always: a start before this one may have made it and ended before the sync.
    if entries.is_empty() {
        entries.push(&absolute);
    }
    entries.into_iter().try_for_each(sync_entry)?;
    tighten(path)
}

/// Makes the name of a directory durable, which is the business of the directory above it.
fn sync_entry(folder: &Path) -> io::Result<()> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    match File::open(parent).and_then(|parent| parent.sync_all()) {
        // A parent that may be passed but not read belongs to somebody who made the entry, and synced it or not.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Takes the rights of others away. A directory that many share, or that another user owns, is not ours to change.
fn tighten(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let (place, mode_text) = (path.display(), format!("{mode:04o}"));
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && mode & STICKY == 0;
    let tightened = is_ours.then(|| fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700)));
    match tightened {
        Some(Ok(())) => tracing::warn!(%place, mode = mode_text, "others could look into the data directory; now 0700"),
        _ => tracing::warn!(%place, mode = mode_text, "others can look into the data directory; it should be 0700"),
    }
    Ok(())
}

/// Locks the directory itself.
pub fn lock(path: &Path) -> io::Result<Locked> {
    let directory = File::open(path)?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked(directory)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::new(io::ErrorKind::WouldBlock, in_use(path))),
        Err(error) => Err(error.into()),
    }
}

fn in_use(path: &Path) -> String {
    let text = fs::read_to_string(path.join(ADDRESSES_FILE)).unwrap_or_default();
    let addresses: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let holder = addresses["pid"].as_u64().map_or_else(String::new, |pid| format!(" (pid {pid})"));
    format!("another node{holder} has it; stop that one first (`macronode drain`), or choose another with --data-dir")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_private_and_an_open_one_becomes_so() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let made = folder.path().join("a/b");
        make(&made).expect("made");
        assert_eq!((mode(&made), mode(&folder.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("opened");
        make(&made).expect("there");
        assert_eq!(mode(&made), 0o700);
    }

    #[test]
    fn a_directory_that_many_share_is_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("opened");
        make(folder.path()).expect("there");
        assert_eq!(mode(folder.path()), 0o1777);
    }

    #[test]
    fn a_directory_has_one_node() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        fs::write(folder.path().join(ADDRESSES_FILE), "{\"pid\": 77}").expect("written");
        let held = lock(folder.path()).expect("free");
        let refused = lock(folder.path()).expect_err("held").to_string();
        assert!(refused.starts_with("another node (pid 77) has it; stop that one first"), "{refused}");
        drop(held);
        lock(folder.path()).expect("free again");
    }
}
