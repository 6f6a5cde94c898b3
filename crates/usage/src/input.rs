//! Reads usage files and adds them up.

use std::path::PathBuf;

use ron_calculus::Totals;

use crate::crew;
use crate::files::Files;
use crate::finish::finish;
use crate::gather::Gathering;
use crate::identity::FileIdentity;
use crate::limits::Plan;
use crate::report::Report;

/// A file of usage rows. Its format is told by its first bytes and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Name in reports and in the manifest.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// The file that was looked at when it was named: what lies there must be it still. None: whatever lies there.
    pub accepted: Option<FileIdentity>,
}

impl InputFile {
    /// Whatever file lies there when it is read.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> InputFile {
        InputFile { name: name.into(), path: path.into(), accepted: None }
    }
}

/// What reading may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for rows, totals and buffers, in bytes.
    pub memory_bytes: u64,
    /// Threads that decode and add up.
    pub threads: usize,
    /// Folder for what does not fit into memory; none: nothing is written, and what does not fit is refused.
    pub spill: Option<PathBuf>,
    /// Most bytes that a compressed file may unpack to.
    pub unpacked_bytes_max: u64,
}

/// Hears how far the reading is; says whether to go on.
pub trait Progress: Sync {
    /// Bytes read of all bytes; false stops the work with [`InputError::Stopped`].
    fn read(&self, bytes: u64, of: u64) -> bool;
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The rows, added up.
    pub totals: Totals,
    /// Rows in all files.
    pub rows: u64,
    /// BLAKE3 of the bytes of each file, in the order given.
    pub hashes: Vec<blake3::Hash>,
    /// Bytes of each file.
    pub lengths: Vec<u64>,
    /// Bytes written to the spill folder.
    pub spilled_bytes: u64,
}

/// A row that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BadRow {
    /// Name of the file.
    pub file: String,
    /// Row, counted from 1 without a header.
    pub row: u64,
    /// Column, if one is to blame.
    pub column: Option<String>,
    /// Why.
    pub reason: String,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Rows that cannot be counted: how many, and the first hundred.
    #[error("{count} bad rows; the first: {}", told(.first))]
    BadRows {
        /// Bad rows in all files.
        count: u64,
        /// The first hundred, by file and row.
        first: Vec<BadRow>,
    },
    /// A file that is damaged, has the wrong columns or is not of a known format.
    #[error("{file}: {reason}")]
    BadFile {
        /// Name of the file.
        file: String,
        /// Why.
        reason: String,
    },
    /// A bound was reached: memory without a spill folder, slots, unpacked bytes, the length of an id.
    #[error("{0}")]
    TooMuch(String),
    /// A total does not fit into 128 bits.
    #[error("the total of an actor in one metric does not fit into 128 bits")]
    Overflow {
        /// The actor.
        actor: String,
        /// The metric.
        metric: String,
    },
    /// [`Progress`] said so.
    #[error("stopped")]
    Stopped,
    /// The disk failed.
    #[error("{file}: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The first bad row in words.
fn told(bad: &[BadRow]) -> String {
    bad.first().map_or_else(String::new, |bad| format!("{} row {}: {}", bad.file, bad.row, bad.reason))
}

/// Reads all files, adds their rows up, and hashes their bytes.
///
/// The result depends on the rows alone: not on their order, on how they are spread over files, on the formats, on the
/// number of threads, or on whether something was spilled.
pub fn read(files: &[InputFile], limits: &Limits, progress: &dyn Progress) -> Result<Read, InputError> {
    let gathering = Gathering::new(Plan::of(limits), limits.spill.as_deref())?;
    let (open, report) = (Files::new(files, limits, progress)?, Report::default());
    let worked = crew::together(gathering.plan.threads, |thread| open.work(thread, &gathering, &report));
    let rows = open.rows();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    report.end(&names, &rows)?;
    worked?;
    let (hashes, lengths) = open.ends()?;
    drop(open);
    let rows = rows.iter().flatten().sum();
    let (totals, spilled_bytes) = finish(gathering, limits.spill.as_deref())?;
    Ok(Read { totals, rows, hashes, lengths, spilled_bytes })
}
