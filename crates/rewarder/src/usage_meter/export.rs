//! Sealed usage as files in a folder, for readers that need a path. The log has the truth; a file here can be made again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::record::SealedUsage;

/// Ending of a file that is being written; no epoch's file has it.
const UNFINISHED: &str = "part";
const ENDING: &str = "csv";

/// Puts the file of an epoch into the folder, unless it is there with these very bytes.
pub fn put(folder: &Path, sealed: &SealedUsage, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(format!("{}.{ENDING}", sealed.epoch));
    if fs::read(&path).is_ok_and(|found| found == bytes) {
        return Ok(path);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let unfinished = folder.join(format!("{}.{UNFINISHED}", sealed.epoch));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(folder)?.sync_all()?;
    Ok(path)
}

/// Removes files of epochs that are no longer kept, and what was never finished.
pub fn tidy(folder: &Path, is_kept: impl Fn(&str) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let epoch = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_ours = matches!(ending, Some(ENDING | UNFINISHED));
        if is_ours && !(ending == Some(ENDING) && is_kept(epoch)) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
