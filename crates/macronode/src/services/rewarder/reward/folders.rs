//! Files and folders that the commands read, and how it is told when they cannot be used.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ron_usage::{BadRow, FileIdentity, InputError, InputFile};
use svc_rewarder::sealed::Loaded;
use svc_rewarder::{Cost, Folder, PolicyDocument, RunError, SealedError, SealedRun, Trust, TrustedKeys};

use super::args::CostArgs;
use crate::commands::table::{row, shortened, table};
use crate::errors::{Code, Failure};

/// Longest policy, envelope or list of keys, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Columns for one cell of the table of bad rows.
const CELL_MAX: usize = 60;

/// What was given cannot be used.
pub fn refused(message: impl Into<String>) -> Failure {
    Failure::new(Code::PayoutsRefused, message)
}

/// The cost that a command allows. Spilling goes to the temporary folder, never beside the result.
pub fn cost(args: &CostArgs) -> Cost {
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    Cost {
        threads: args.threads.map_or_else(cores, usize::from),
        memory_bytes: args.memory,
        spill: Some(std::env::temp_dir()),
    }
}

/// The usage files of a command, under their names without folders.
pub fn inputs(paths: &[PathBuf]) -> Result<Vec<InputFile>, Failure> {
    let input = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        match std::fs::metadata(path) {
            Err(error) => Err(refused(format!("cannot read the usage {}: {error}", path.display()))),
            Ok(found) if found.is_dir() => Err(refused(format!("{} is a folder, not a usage file", path.display()))),
            Ok(found) => Ok((FileIdentity::of(&found).file(), InputFile::new(name.unwrap_or_default(), path))),
        }
    };
    let mut files: Vec<((u64, u64), InputFile)> = Vec::with_capacity(paths.len());
    for path in paths {
        let (file, input) = input(path)?;
        if files.iter().any(|(other, _)| *other == file) {
            return Err(refused(format!("the usage {} is named twice; an input counts once", path.display())));
        }
        files.push((file, input));
    }
    Ok(files.into_iter().map(|(_, input)| input).collect())
}

/// A small file.
pub fn document(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |error: &dyn std::fmt::Display| refused(format!("cannot read the {what} {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(cannot(&format!("it has more than {DOCUMENT_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// A list of trusted keys.
pub fn trusted_keys(path: &Path) -> Result<TrustedKeys, Failure> {
    let bytes = document(path, "list of keys")?;
    TrustedKeys::parse(&bytes).map_err(|error| refused(format!("the list of keys {}: {error}", path.display())))
}

/// A policy that is trusted as the command says.
pub fn policy(path: &Path, keys: Option<&Path>, unsigned: bool) -> Result<PolicyDocument, Failure> {
    let keys = keys.map(trusted_keys).transpose()?;
    let trust = Trust { keys: keys.as_ref(), allows_unsigned: unsigned };
    let read = PolicyDocument::read(&document(path, "policy")?, trust);
    read.map_err(|error| refused(format!("the policy {}: {error}", path.display())))
}

/// Opens the run in a folder.
pub fn open(path: &Path, cost: &Cost) -> Result<SealedRun, Failure> {
    let folder =
        Folder::open(path).map_err(|error| refused(format!("cannot open the run {}: {error}", path.display())));
    SealedRun::open(Arc::new(folder?), cost.memory_bytes, cost.threads).map_err(|error| damaged(path, &error))
}

/// Opens a run, and looks at it beside the run in this folder, which it says it corrects.
pub fn open_beside(path: &Path, corrected: Option<&Path>, cost: &Cost) -> Result<SealedRun, Failure> {
    let run = open(path, cost)?;
    match corrected {
        Some(corrected) => Ok(run.beside(open(corrected, cost)?.manifest_bytes())),
        None => Ok(run),
    }
}

/// Opens a run and loads it.
pub fn load(path: &Path, cost: &Cost) -> Result<Arc<Loaded>, Failure> {
    open(path, cost)?.load().map_err(|error| damaged(path, &error))
}

/// A run that is not what it says it is, or holds no amounts.
pub fn damaged(path: &Path, error: &SealedError) -> Failure {
    let place = path.display();
    match error {
        SealedError::Missing => refused(format!("there is no run in {place}; make one with `macronode reward run`")),
        SealedError::UnknownAsset(_) => refused(format!("{place}: {error}")),
        error => {
            let reason = one_line(&error.to_string());
            Failure::new(Code::RunDamaged, format!("the run in {place} cannot be used: {reason}"))
        }
    }
}

/// A run that was not made.
pub fn not_made(error: &RunError) -> Failure {
    match error {
        RunError::Input(InputError::BadRows { count, first }) => refused(bad_rows(*count, first)),
        RunError::Io(error) => Failure::new(Code::RunDamaged, format!("the run cannot be written: {error}")),
        error => refused(format!("{error}; nothing was written")),
    }
}

/// The rows that cannot be counted, as a table.
fn bad_rows(count: u64, first: &[BadRow]) -> String {
    let mut rows = vec![row(["file", "row", "column", "reason"])];
    for bad in first {
        let cells = [&bad.file, &bad.row.to_string(), bad.column.as_deref().unwrap_or(""), &bad.reason];
        rows.push(cells.iter().map(|cell| shortened(&one_line(cell), CELL_MAX)).collect());
    }
    let listed = first.len() as u64;
    let more = if count > listed { format!("and {} more\n", count - listed) } else { String::new() };
    let noun = if count == 1 { "row" } else { "rows" };
    format!("{count} {noun} of the usage cannot be counted; nothing was written\n{}{more}", table(2, &rows))
}

/// Writes a new file in one step. One that is there stays, and is fine only if it says the same.
pub fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, text),
        found => {
            let is_same = found?.len() == text.len() as u64 && std::fs::read(path)? == text.as_bytes();
            let told = || io::Error::new(io::ErrorKind::AlreadyExists, "it is there, with another content");
            if is_same { Ok(()) } else { Err(told()) }
        }
    }
}

/// Writes a file in one step, in the place of one that is the caller's own: a crash leaves the old one or the new.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    // A file of this name is somebody's, and stays.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let placed = written.and_then(|()| std::fs::rename(&temporary, path));
    placed.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

/// Text of strangers without characters that command a terminal.
pub fn one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_of_somebody_else_is_truncated() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let read = |name: &str| std::fs::read_to_string(at(name)).expect("there");
        std::fs::write(at("policy.json"), "mine").expect("written");
        std::fs::write(at("policy.json.tmp"), "mine too").expect("written");
        assert_eq!(write_new(&at("policy.json"), "new").expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        write_new(&at("policy.json"), "mine").expect("it says the same");
        write_new(&at("other.json"), "new").expect("written");
        replace(&at("other.json"), "newer").expect("replaced");
        assert_eq!([read("policy.json"), read("policy.json.tmp"), read("other.json")], ["mine", "mine too", "newer"]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 3, "nothing is left beside them");
    }

    #[test]
    fn bad_rows_are_a_table_with_the_rest_counted() {
        let bad = |row, column: Option<&str>, reason: &str| BadRow {
            file: "u.csv".into(),
            row,
            column: column.map(str::to_owned),
            reason: reason.into(),
        };
        let first = [bad(2, Some("quantity"), "`-1` is negative"), bad(9, None, "a line\u{1b}[2J")];
        let expected = "\
7 rows of the usage cannot be counted; nothing was written
  file   row  column    reason
  u.csv  2    quantity  `-1` is negative
  u.csv  9              a line\\u{1b}[2J
and 5 more
";
        assert_eq!(bad_rows(7, &first), expected);
    }
}
