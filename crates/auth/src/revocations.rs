//! The list of revoked tokens: a text file with one revocation id in each line, shared by the node and the tools.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::file;
use crate::types::AuthError;

/// Bytes of the shortest and the longest id: signatures of the kinds a token may carry.
const ID_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

const ID_RULE: &str = "32 to 256 hex digits, an even number of them";
const HEADER: &str = "# Revoked tokens: one revocation id a line, as `macronode token inspect` shows it.\n";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    /// The ids, in small hex digits.
    pub ids: BTreeSet<String>,
    /// Numbers of the lines, from 1, that are neither an id nor a comment; the other lines hold nevertheless.
    pub unreadable_lines: Vec<usize>,
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
    Ok(true)
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
