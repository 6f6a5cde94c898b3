//! What becomes of a damaged file: what can be read of it is copied into a new one, and it is set aside.
//!
//! Every step leaves names behind that say how far it came, so that a start that was killed is gone on with by the
//! next:
//!
//! | names | what the next start does |
//! | --- | --- |
//! | the file, its note | copies what can be read |
//! | and `.copying` | the same; a copy that did not end is worth nothing |
//! | and `.copied` | sets the file aside |
//! | the note, `.copied` | puts the copy in place |
//! | the new file, the note | removes the note, which means another file |

use std::fs::File;
use std::path::{Path, PathBuf};

use super::copy::{Copied, copy_readable, spare_of};
use super::damage::{self, FileIdentity, remove_if_there, with_suffix};
use super::{Bounds, StoreError};

/// Damaged files that are kept beside the store; who has so many has a disk to replace.
const SET_ASIDE_MAX: u32 = 1_000;

/// A damaged file that was replaced.
pub(super) struct Rescued {
    /// Where the damaged file lies now; none if an earlier start set it aside.
    pub(super) aside: Option<PathBuf>,
    /// What was copied; none if an earlier start did it.
    pub(super) copied: Option<Copied>,
}

/// Called between two steps. A test ends the work there, as a kill would.
pub(super) type Between<'a> = &'a mut dyn FnMut() -> Result<(), StoreError>;

/// Takes up what an earlier start was in the middle of; says whether the file that is there is damaged, and why.
pub(super) fn resume(path: &Path) -> Result<Option<String>, StoreError> {
    let (copying, copied) = names_of(path);
    if !path.exists() && copied.exists() {
        std::fs::rename(&copied, path)?;
        sync_folder(path)?;
    }
    let why = damage::marked(path)?;
    if why.is_none() {
        // Nothing that is damaged is there, so that nothing is copied from.
        remove_if_there(&copied)?;
        remove_copy(&copying)?;
    }
    Ok(why)
}

/// Puts a new file in the place of a damaged one, with what can be read of that.
pub(super) fn replace(path: &Path, bounds: Bounds, why: &str, between: Between<'_>) -> Result<Rescued, StoreError> {
    // First, so that whatever ends this is gone on with.
    damage::mark(path, FileIdentity::of(path), why)?;
    between()?;
    let (copying, finished) = names_of(path);
    let mut copied = None;
    if !finished.exists() {
        remove_copy(&copying)?;
        let made = copy_readable(path, &copying, bounds, between);
        if made.is_err() {
            // It would take the room that the next start needs. One that cannot be removed is removed by that.
            let _ = remove_copy(&copying);
        }
        copied = Some(made?);
        std::fs::rename(&copying, &finished)?;
        sync_folder(path)?;
        between()?;
    }
    let aside = set_aside(path)?;
    between()?;
    std::fs::rename(&finished, path)?;
    sync_folder(path)?;
    between()?;
    damage::unmark(path)?;
    Ok(Rescued { aside: Some(aside), copied })
}

/// Bytes of the copy of a file that is being made.
pub(super) fn copied_bytes(path: &Path) -> Option<u64> {
    let (copying, _) = names_of(path);
    std::fs::metadata(copying).ok().map(|of| of.len())
}

/// Names of a copy that is being made, and of one that is complete.
fn names_of(path: &Path) -> (PathBuf, PathBuf) {
    (with_suffix(path, ".copying"), with_suffix(path, ".copied"))
}

/// Removes a copy that did not end, and what kept room beside it.
fn remove_copy(copying: &Path) -> std::io::Result<()> {
    remove_if_there(&spare_of(copying))?;
    remove_if_there(copying)
}

/// Renames the file to the first name with a number that is free.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let mut names = (1..=SET_ASIDE_MAX).map(|number| with_suffix(path, &format!(".damaged-{number}")));
    let aside = names.find(|name| !name.exists());
    let aside = aside.ok_or_else(|| std::io::Error::other("there are a thousand damaged files beside the store"))?;
    std::fs::rename(path, &aside)?;
    sync_folder(path)?;
    Ok(aside)
}

/// Makes renamed files last through the loss of power.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

impl std::fmt::Display for Rescued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(aside) = &self.aside {
            write!(f, "it lies at {}, and ", aside.display())?;
        }
        match &self.copied {
            Some(copied) => copied.fmt(f),
            None => f.write_str("what could be read of it is in the new file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Store, open};
    use super::*;
    use crate::{ContentId, Subject};

    const PINS: u8 = 50;

    fn pin(number: u8) -> Change {
        Change::Pin(Subject::Content(ContentId::of_bytes(&[number])))
    }

    fn pins(path: &Path) -> (usize, Option<String>) {
        let opened = Store::open(path, Bounds::default()).expect("a store");
        (opened.store.pins(None, 100).expect("readable").len(), opened.lost)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_start_that_is_killed_at_any_step_of_the_copy_loses_nothing() {
        for kill_at in 0.. {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("records.redb");
            let store = Store::open(&path, Bounds::default()).expect("a store").store;
            store.apply(&(0..PINS).map(pin).collect::<Vec<_>>(), 1).expect("a batch");
            drop(store);
            let mut steps = 0;
            let ended = replace(&path, Bounds::default(), "a test says so", &mut || {
                steps += 1;
                if steps > kill_at { Err(std::io::Error::other("killed").into()) } else { Ok(()) }
            });
            let was_killed = ended.is_err();
            drop(ended);
            // The next start is killed as well, at the first step that it comes to.
            if was_killed && resume(&path).expect("resumed").is_some() {
                let killed = &mut || Err(std::io::Error::other("killed").into());
                assert!(replace(&path, Bounds::default(), "again", killed).is_err());
            }
            assert_eq!(pins(&path).0, usize::from(PINS), "killed at step {kill_at}");
            assert_eq!(pins(&path), (usize::from(PINS), None), "and it is over then");
            assert_eq!(names(folder.path()), ["records.redb", "records.redb.damaged-1"], "killed at step {kill_at}");
            if !was_killed {
                assert!(kill_at > 10, "there are that many steps: {kill_at}");
                return;
            }
        }
    }

    #[test]
    fn records_are_copied_while_room_is_kept_for_others_and_a_copy_that_fails_keeps_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.redb");
        let store = Store::open(&path, Bounds::default()).expect("a store").store;
        store.apply(&[pin(1)], 1).expect("a batch");
        drop(store);
        let spare = with_suffix(&path, ".copying.spare");
        let bytes = std::fs::metadata(&path).expect("a file").len();
        // The work ends where room is kept, as a disk that fails would end it.
        let mut held = None;
        let ended = replace(&path, Bounds::default(), "a test says so", &mut || {
            held = std::fs::metadata(&spare).ok().map(|of| of.len());
            if held.is_some() { Err(std::io::Error::other("it fails").into()) } else { Ok(()) }
        });
        assert!(ended.is_err());
        assert_eq!(held, Some(bytes), "as much as the file takes, where that is little");
        assert_eq!(names(folder.path()), ["records.redb", "records.redb.is-damaged"]);
        // Where none can be kept, records are left out, and what the node keeps itself is there.
        std::fs::create_dir(&spare).expect("something in its place");
        let copied = copy_readable(&path, &with_suffix(&path, ".copying"), Bounds::default(), &mut || Ok(()));
        let told = copied.expect("copied").to_string();
        assert!(told.contains("1 pins") && told.contains("no room"), "{told}");
        std::fs::remove_dir(&spare).expect("removed");
        assert_eq!((pins(&path).0, names(folder.path()).len()), (1, 2));
    }

    #[test]
    fn a_copy_that_did_not_end_is_worth_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.redb");
        let store = Store::open(&path, Bounds::default()).expect("a store").store;
        store.apply(&[pin(1)], 1).expect("a batch");
        drop(store);
        std::fs::write(with_suffix(&path, ".copying"), "half").expect("written");
        std::fs::write(with_suffix(&path, ".copying.spare"), "room").expect("written");
        std::fs::write(with_suffix(&path, ".copied"), "of a file that is gone").expect("written");
        assert_eq!(pins(&path), (1, None));
        assert_eq!(names(folder.path()), ["records.redb"]);
        drop(open::open_database(&path, Bounds::default()).expect("a database"));
    }
}
