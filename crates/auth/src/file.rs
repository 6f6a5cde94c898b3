//! Files of the data directory that must be whole and private.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The text of a file, or nothing if there is none.
pub fn read_private(path: &Path) -> io::Result<Option<Zeroizing<String>>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others can read this key; its mode should be 0600");
    }
    Ok(Some(text))
}

/// Makes a file that only its owner can read, unless it exists by now; it is never seen half written.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = write_unfinished(path, content)?;
    // A link, unlike a rename, does not replace what another has put there meanwhile.
    let linked = fs::hard_link(&unfinished, path);
    fs::remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder_of(path),
    }
}

/// Replaces a file; whoever reads it meanwhile sees the old text or the new.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = write_unfinished(path, content)?;
    if let Err(error) = fs::rename(&unfinished, path) {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    sync_folder_of(path)
}

/// Locks a file that is replaced whole against other processes, until dropped. The lock is a file beside it: the file
/// itself is another one after each change, and a running node holds the lock of the folder.
pub fn lock_beside(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(beside(path))?;
    lock.lock()?;
    Ok(lock)
}

/// The file that is locked for another.
pub(crate) fn beside(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

fn write_unfinished(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let (unfinished, mut file) = create_unfinished(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    Ok(unfinished)
}

/// A new file beside the other; one that a crash left behind is passed over.
fn create_unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let unfinished = path.with_extension(format!("{}-{number}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished) {
            Ok(file) => return Ok((unfinished, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
