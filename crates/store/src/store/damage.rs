//! Damage that was found in the file: known while the process lives, and noted beside the file for the next start.
//!
//! The note names the file it means. A file that stands in its place by then, restored or begun anew, has nothing to do
//! with it.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const HEAD: &str = "damaged file:";
/// Bytes of a note that are read: its reason is for people, and short.
const NOTE_BYTES_MAX: usize = 64 * 1024;

/// What tells a file from another one that stands in its place later: where it lies, and when it was begun, since the
/// places of removed files are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    /// Nanoseconds since 1970; zero where the file system does not say.
    begun_ns: u128,
}

impl FileIdentity {
    /// Identity of the file that has this name now; none if there is none.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|facts| FileIdentity::from_facts(&facts))
    }

    fn from_facts(facts: &Metadata) -> Self {
        let begun = facts.created().ok().and_then(|begun| begun.duration_since(UNIX_EPOCH).ok());
        let begun_ns = begun.map_or(0, |begun| begun.as_nanos());
        FileIdentity { device: facts.dev(), inode: facts.ino(), begun_ns }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let identity = FileIdentity {
            device: words.next()?.parse().ok()?,
            inode: words.next()?.parse().ok()?,
            begun_ns: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(identity)
    }
}

/// Makes a note that this file is damaged, and why.
pub(super) fn mark(path: &Path, identity: Option<FileIdentity>, why: &str) -> io::Result<()> {
    let mut text = String::new();
    if let Some(FileIdentity { device, inode, begun_ns }) = identity {
        text = format!("{HEAD} {device} {inode} {begun_ns}\n");
    }
    text += why;
    let mut note = File::create(mark_of(path))?;
    note.write_all(text.as_bytes())?;
    note.sync_all()
}

/// Why the file is damaged, if the note is about the file that has this name now. A note about another one is removed.
/// One without an identity, from a release before it was written down, is about whatever is there: what can be read of
/// it is kept in any case.
pub(super) fn marked(path: &Path) -> io::Result<Option<String>> {
    let bytes = match std::fs::read(mark_of(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(NOTE_BYTES_MAX)]).into_owned();
    let (meant, why) = match text.strip_prefix(HEAD).and_then(|rest| rest.split_once('\n')) {
        Some((identity, why)) => (FileIdentity::read(identity), why.to_owned()),
        None => (None, text),
    };
    let there = FileIdentity::of(path);
    if meant.is_none_or(|meant| there == Some(meant)) && there.is_some() {
        return Ok(Some(why));
    }
    unmark(path)?;
    Ok(None)
}

/// Removes the note.
pub(super) fn unmark(path: &Path) -> io::Result<()> {
    remove_if_there(&mark_of(path))
}

/// Whether there is a note about the file that has this name now. Changes nothing.
pub(super) fn is_marked(path: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(mark_of(path)) else { return false };
    let meant = text.strip_prefix(HEAD).and_then(|rest| FileIdentity::read(rest.lines().next()?));
    let there = FileIdentity::of(path);
    there.is_some() && meant.is_none_or(|meant| there == Some(meant))
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn mark_of(path: &Path) -> PathBuf {
    with_suffix(path, ".is-damaged")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
