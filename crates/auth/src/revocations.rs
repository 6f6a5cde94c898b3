//! The list of revoked tokens: a text file with one revocation id in each line, shared by the node and the tools.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::file;
use crate::types::AuthError;

/// Bytes of the shortest and the longest id: signatures of the kinds a token may carry.
const ID_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

const ID_RULE: &str = "32 to 256 hex digits, an even number of them";
/// Age in milliseconds from which on a file is believed not to have changed by its times: far more than the coarsest
/// times of a file system, two seconds, and the second that is left out of them here.
const SETTLED_AFTER_MS: u64 = 4000;
/// Reason why a list that is missing is not taken for an empty one.
const GONE: &str = "the list of revoked tokens is gone, and there were ids in it: restore it from a backup, or make an \
    empty file in its place if none of them is to be revoked any more";
/// Content of the file beside a list that holds ids, or held some.
const TRACE: &str = "# There is a list of revoked tokens beside this file. Where it is gone, it was lost.\n";
const HEADER: &str = "# Revoked tokens: one revocation id a line, as `macronode token inspect` shows it.\n";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    /// The ids, in small hex digits.
    pub ids: BTreeSet<String>,
    /// Numbers of the lines, from 1, that are neither an id nor a comment; the other lines hold nevertheless.
    pub unreadable_lines: Vec<usize>,
    /// Whether the file changed just now: it may still be being written, and the end of it be missing.
    pub may_be_unfinished: bool,
}

/// The file as a running node follows it: it is read only where it may have changed.
#[derive(Debug)]
pub struct RevocationsFile {
    path: PathBuf,
    /// Stamp of what was read last; none where the file may have changed since without another stamp.
    read: Option<Stamp>,
    /// Stamp at the last look.
    seen: Option<Stamp>,
    /// Whether the trace of its ids is there.
    has_trace: bool,
}

/// What tells one content of a file from the next without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of content.
    modified: (i64, i64),
    /// The same of the file itself, which nobody can set back.
    changed: (i64, i64),
}

impl RevocationsFile {
    /// A file that was not read yet.
    pub fn new(path: PathBuf) -> Self {
        RevocationsFile { path, read: None, seen: None, has_trace: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says; nothing if it is the one that was read last. `now_ms` is the time, milliseconds since 1970.
    pub fn changes(&mut self, now_ms: u64) -> Option<io::Result<Revocations>> {
        // Before it is read: what changes meanwhile has another stamp the next time.
        let stamp = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if stamp.is_some() && stamp == self.read {
            return None;
        }
        let read = Revocations::load(&self.path).inspect(|read| self.note_ids(read));
        let is_settled = stamp.as_ref().is_none_or(|stamp| stamp.is_settled(now_ms));
        // By the times of a clock that was set back meanwhile it would never be done.
        let may_be_unfinished = !is_settled && stamp != self.seen;
        self.seen.clone_from(&stamp);
        self.read = stamp.filter(|_| read.is_ok() && is_settled);
        Some(read.map(|read| Revocations { may_be_unfinished, ..read }))
    }

    /// Leaves a trace of a list that holds ids, so that the next start knows of it should it be gone by then.
    fn note_ids(&mut self, read: &Revocations) {
        if read.ids.is_empty() || self.has_trace {
            return;
        }
        match leave_trace(&self.path) {
            Ok(()) => self.has_trace = true,
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "no trace of the list could be left"),
        }
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a further change must show. Two that follow each other at once may bear the same time, so that a file
    /// that was changed a moment ago is read again.
    fn is_settled(&self, now_ms: u64) -> bool {
        let changed_ms = u64::try_from(self.changed.0).unwrap_or(0).saturating_mul(1000);
        now_ms >= changed_ms.saturating_add(SETTLED_AFTER_MS)
    }
}

impl Revocations {
    /// Reads the file; no file means that nothing is revoked. A line that is no text is one that cannot be read.
    pub fn load(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(Revocations::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Revocations::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads the file as a node does at its start. One that is gone although there were ids in it cannot be read: what
    /// it held is in force nowhere, and nobody knows what it was.
    pub fn load_at_start(path: &Path) -> io::Result<Self> {
        match fs::exists(path)? || !has_trace(path)? {
            true => Revocations::load(path),
            false => Err(io::Error::new(io::ErrorKind::NotFound, GONE)),
        }
    }

    /// Reads the text of the file.
    pub fn parse(text: &str) -> Self {
        let mut read = Revocations::default();
        for (index, line) in text.lines().enumerate() {
            let id = line.split_once('#').map_or(line, |(id, _)| id).trim();
            match normalized(id) {
                Some(id) => drop(read.ids.insert(id)),
                None if id.is_empty() => {}
                None => read.unreadable_lines.push(index + 1),
            }
        }
        read
    }

    /// What is wrong with the file, if something is: the line to look at, and what to do about it.
    pub fn problem(&self) -> Option<String> {
        let line = self.unreadable_lines.first()?;
        let others = match self.unreadable_lines.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        Some(format!("line {line}{others} is no revocation id ({ID_RULE}); mend it, or put a # before it"))
    }

    /// Adds an id to the file, with a note for people; false if it was there. The file is never seen half written,
    /// and no two that add at once lose what the other added.
    pub fn append(path: &Path, id: &str, note: &str) -> Result<bool, AuthError> {
        let id = normalized(id.trim()).ok_or_else(|| AuthError::BadName {
            what: "the revocation id",
            text: id.to_owned(),
            rule: ID_RULE,
        })?;
        append(path, &id, note).map_err(|source| AuthError::File { path: path.to_owned(), source })
    }
}

fn append(path: &Path, id: &str, note: &str) -> io::Result<bool> {
    let _lock = file::lock_beside(path)?;
    // A new list with this id alone would take back what the one before it revoked.
    if !fs::exists(path)? && has_trace(path)? {
        return Err(io::Error::new(io::ErrorKind::NotFound, GONE));
    }
    let mut text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => HEADER.to_owned(),
        Err(error) => return Err(error),
    };
    if Revocations::parse(&text).ids.contains(id) {
        return Ok(false);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let note: String = note.chars().filter(|c| !c.is_control()).collect();
    text.push_str(id);
    if !note.is_empty() {
        text.push_str(" # ");
        text.push_str(&note);
    }
    text.push('\n');
    file::replace(path, text.as_bytes())?;
    // The id is revoked in any case; a running node leaves the trace, too.
    let _ = leave_trace(path);
    Ok(true)
}

/// Whether a list with ids was seen here once.
fn has_trace(path: &Path) -> io::Result<bool> {
    match fs::metadata(file::beside(path)) {
        Ok(metadata) => Ok(metadata.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says in the file beside the list, which stays where the list goes, that there is one.
fn leave_trace(path: &Path) -> io::Result<()> {
    if has_trace(path)? {
        return Ok(());
    }
    let mut options = fs::OpenOptions::new();
    let mut beside = options.create(true).append(true).mode(0o600).open(file::beside(path))?;
    beside.write_all(TRACE.as_bytes())?;
    beside.sync_all()
}

/// The id in small digits, if it is one.
fn normalized(text: &str) -> Option<String> {
    let is_id = text.len().is_multiple_of(2) && ID_BYTES.contains(&(text.len() / 2));
    (is_id && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn comments_are_skipped_and_bad_lines_are_named() {
        let upper = ID.to_uppercase().replace("00", "01");
        let read = Revocations::parse(&format!("# all\n\n{ID} # ann\n  {upper}\nxyz\n{}\n", &ID[1..]));
        assert_eq!(read.ids.iter().collect::<Vec<_>>(), [ID, &ID.replace("00", "01")]);
        assert_eq!(read.unreadable_lines, [5, 6]);
        assert!(read.problem().is_some_and(|problem| problem.starts_with("line 5 (and 1 more)")));
        assert_eq!(Revocations::parse(ID).problem(), None);
    }

    #[test]
    fn no_file_means_nothing_is_revoked() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        assert_eq!(Revocations::load(&folder.path().join("revoked")).expect("none"), Revocations::default());
    }

    #[test]
    fn a_list_that_is_gone_is_not_taken_for_one_without_ids() {
        for by_hand in [false, true] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let path = folder.path().join("revoked");
            // What the command of older versions leaves: a lock, whether there is a list or not.
            drop(file::lock_beside(&path).expect("locked"));
            let at_start = || Revocations::load_at_start(&path).map(|list| list.ids.len());
            assert_eq!(at_start().expect("there never was one"), 0);
            if by_hand {
                fs::write(&path, ID).expect("written");
                assert!(RevocationsFile::new(path.clone()).changes(0).is_some_and(|read| read.is_ok()));
            } else {
                Revocations::append(&path, ID, "").expect("added");
            }
            assert_eq!(at_start().expect("there"), 1);
            fs::remove_file(&path).expect("removed");
            let refused = at_start().expect_err("nobody knows what was revoked").to_string();
            assert!(refused.contains("gone") && refused.contains("restore it from a backup"), "{refused}");
            let other = ID.replace("00", "01");
            Revocations::append(&path, &other, "").expect_err("it would let in who was on the one that is gone");
            assert!(!path.exists());
            fs::write(&path, "").expect("made");
            assert_eq!(at_start().expect("an empty file is somebody's word"), 0);
            assert!(Revocations::append(&path, &other, "").expect("added"));
        }
    }

    #[test]
    fn a_list_that_changes_is_said_to_be_unfinished_until_it_rests() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("revoked");
        let mut file = RevocationsFile::new(path.clone());
        let mut look = |now_ms| file.changes(now_ms).map(|read| read.expect("readable").may_be_unfinished);
        assert_eq!(look(0), Some(false), "there is none");
        for text in [ID, &ID[..40]] {
            fs::write(&path, text).expect("written");
            assert_eq!((look(0), look(0)), (Some(true), Some(false)), "whatever the clock says");
        }
        fs::write(&path, "").expect("written");
        let rested_ms = fs::metadata(&path).expect("there").ctime() as u64 * 1000 + SETTLED_AFTER_MS;
        assert_eq!(look(rested_ms), Some(false));
    }

    #[test]
    fn an_id_is_added_once_and_what_was_there_stays() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("revoked");
        fs::write(&path, "# mine").expect("written");
        assert!(Revocations::append(&path, &ID.to_uppercase(), "ann\nor so").expect("added"));
        assert!(!Revocations::append(&path, ID, "").expect("known"));
        assert_eq!(fs::read_to_string(&path).expect("there"), format!("# mine\n{ID} # annor so\n"));
        assert!(Revocations::append(&path, "12", "").is_err());
        assert_eq!(
            fs::read_dir(folder.path()).expect("there").count(),
            2,
            "the list, its lock, and nothing unfinished"
        );
    }

    #[test]
    fn a_list_that_did_not_change_is_not_read_again() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("revoked");
        let ids = |found: Option<io::Result<Revocations>>| found.map(|read| read.expect("readable").ids.len());
        let mut file = RevocationsFile::new(path.clone());
        assert_eq!(ids(file.changes(0)), Some(0), "there is none");
        let changed_ms = || fs::metadata(&path).expect("there").ctime() as u64 * 1000;
        for count in 1..=3_usize {
            Revocations::append(&path, &format!("{count:064x}"), "").expect("added");
            let young_ms = changed_ms() + SETTLED_AFTER_MS - 1;
            for now_ms in [0, young_ms, young_ms] {
                assert_eq!(ids(file.changes(now_ms)), Some(count), "it may have changed without another time");
            }
            assert_eq!(ids(file.changes(young_ms + 1)), Some(count));
            for now_ms in [young_ms + 1, young_ms + 1_000_000, 0] {
                assert_eq!(ids(file.changes(now_ms)), None, "it is the same");
            }
        }
        let later_ms = changed_ms() + 1_000_000;
        fs::remove_file(&path).expect("removed");
        assert_eq!((ids(file.changes(later_ms)), ids(file.changes(later_ms))), (Some(0), Some(0)));
        fs::create_dir(&path).expect("made");
        for _ in ["first", "again"] {
            assert!(file.changes(u64::MAX).is_some_and(|read| read.is_err()), "what fails is tried again");
        }
    }

    #[test]
    fn none_of_those_added_at_once_is_lost() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("revoked");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || Revocations::append(path, &format!("{number:064x}"), "").expect("added"));
            }
        });
        assert_eq!(Revocations::load(&path).expect("read").ids.len(), 16);
    }
}
