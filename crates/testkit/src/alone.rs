//! A turn for tests that measure time: only one of them loads the machine at once, also across processes.

use std::fs::File;
use std::path::Path;

/// The turn; dropping it lets the next one begin.
#[derive(Debug)]
pub struct Alone {
    /// Closing the file gives the lock back.
    _lock: File,
}

/// Waits for the turn. The folder is `env!("CARGO_TARGET_TMPDIR")`, which all tests of a package share.
pub async fn alone(folder: impl AsRef<Path>) -> Alone {
    let path = folder.as_ref().join("alone.lock");
    let locked = tokio::task::spawn_blocking(move || -> std::io::Result<File> {
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    });
    let lock = locked.await.expect("locking does not panic").expect("the folder of the lock can be written");
    Alone { _lock: lock }
}
