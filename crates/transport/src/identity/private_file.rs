//! The file of a node key: made whole, read only while nobody but its owner can use it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::KeyError;

/// A key file is a few hundred bytes; something much larger is not one.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// The content of a key file, or nothing if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
    let at = |source| KeyError::File { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(error)),
    };
    // Of the open file, not of the path: what is looked at is what is read.
    let mode = file.metadata().map_err(at)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    let mut content = Zeroizing::new(Vec::with_capacity(1024));
    file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut content).map_err(at)?;
    Ok(Some(content))
}

/// Makes a key file with mode 0600 unless there is one by now; it is never seen half written.
pub(super) fn create(path: &Path, content: &[u8]) -> Result<(), KeyError> {
    create_beside(path, content).map_err(|source| KeyError::File { path: path.to_owned(), source })
}

fn create_beside(path: &Path, content: &[u8]) -> io::Result<()> {
    let (unfinished, mut file) = unfinished_file(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    // A link, unlike a rename, does not replace what another process has put there meanwhile.
    let linked = written.and_then(|()| fs::hard_link(&unfinished, path));
    fs::remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(folder_of(path))?.sync_all(),
    }
}

fn unfinished_file(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let unfinished = path.with_extension(format!("{}-{number}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished) {
            Ok(file) => return Ok((unfinished, file)),
            // What a crash left behind is passed over.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
