//! The files of one reading: opened once, taken apart piece by piece, by any thread.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::columns::{Bytes, ParquetFile};
use crate::crew::lock;
use crate::gather::{Gathering, RowSink};
use crate::identity::{self, FileIdentity};
use crate::input::{InputError, InputFile, Limits, Progress};
use crate::report::{PieceReport, Report};
use crate::text::{TextFile, TextFormat};
use crate::{csv, ndjson};

/// All files, and how far they are read.
pub struct Files<'a> {
    files: Vec<OpenFile<'a>>,
    limits: &'a Limits,
    progress: &'a dyn Progress,
    bytes_done: AtomicU64,
    bytes_all: u64,
}

struct OpenFile<'a> {
    input: &'a InputFile,
    state: Mutex<State>,
    /// Rows of each piece that was read.
    rows: Mutex<Vec<u64>>,
    end: Mutex<Option<(blake3::Hash, u64)>>,
    /// The file before the reading; one that changes or is replaced meanwhile has no one hash.
    seen: FileIdentity,
}

enum State {
    Closed,
    Text { file: Box<TextFile>, next: u64 },
    Parquet { file: Arc<ParquetFile>, next: usize, is_hashed: bool },
    Done,
}

/// A part of a file that one thread reads.
enum Piece {
    Block { format: TextFormat, bytes: Vec<u8>, number: u64, file_bytes: u64 },
    RowGroup { file: Arc<ParquetFile>, number: usize },
    Hash(Arc<ParquetFile>),
}

impl<'a> Files<'a> {
    /// Looks at all files, without opening them.
    pub fn new(
        inputs: &'a [InputFile],
        limits: &'a Limits,
        progress: &'a dyn Progress,
    ) -> Result<Files<'a>, InputError> {
        let mut files = Vec::with_capacity(inputs.len());
        for input in inputs {
            let metadata = std::fs::metadata(&input.path).map_err(|source| io_error(input, source))?;
            if !metadata.is_file() {
                return Err(InputError::BadFile { file: input.name.clone(), reason: "not a file".to_owned() });
            }
            let seen = FileIdentity::of(&metadata);
            // Since it was accepted, anybody who may write there may have put another file or a link in its place.
            if input.accepted.is_some_and(|accepted| accepted != seen) {
                let reason = "is not the file that was accepted: it was changed or replaced meanwhile".to_owned();
                return Err(InputError::BadFile { file: input.name.clone(), reason });
            }
            let (state, rows, end) = (Mutex::new(State::Closed), Mutex::default(), Mutex::default());
            files.push(OpenFile { input, state, rows, end, seen });
        }
        let bytes_all = files.iter().map(|file| file.seen.length()).sum();
        Ok(Files { files, limits, progress, bytes_done: AtomicU64::new(0), bytes_all })
    }

    /// One thread's work: takes pieces of all files, beginning with its own share of them, until none is left.
    pub fn work(&self, thread: usize, gathering: &Gathering, report: &Report) -> Result<(), InputError> {
        let mut sink = RowSink::new(gathering);
        let count = self.files.len();
        let first = thread * count / gathering.plan.threads.max(1);
        for index in (0..count).map(|offset| (first + offset) % count) {
            while !report.has_failed(index) {
                match self.files[index].take(self.limits, gathering.plan.page_bytes) {
                    Ok(None) => break,
                    Ok(Some(piece)) => {
                        let number = piece.number();
                        if let Err(error) = self.read(index, piece, &mut sink, report) {
                            report.fail((index, number), error);
                        }
                    }
                    Err(error) => report.fail((index, u64::MAX), error),
                }
            }
        }
        sink.finish()
    }

    fn read(&self, index: usize, piece: Piece, sink: &mut RowSink<'_>, report: &Report) -> Result<(), InputError> {
        let file = &self.files[index];
        let mut found = PieceReport::default();
        let number = piece.number();
        let (rows, bytes) = match piece {
            Piece::Block { format: TextFormat::Csv(header), bytes, file_bytes, .. } => {
                (csv::add_rows(&header, &bytes, sink, &mut found)?, file_bytes)
            }
            Piece::Block { format: TextFormat::Ndjson, bytes, file_bytes, .. } => {
                (ndjson::add_rows(&bytes, sink, &mut found)?, file_bytes)
            }
            Piece::RowGroup { file, number } => {
                (file.add_rows(number, sink, &mut found)?, file.row_group_bytes(number))
            }
            Piece::Hash(parquet) => {
                *lock(&file.end) = Some((parquet.hash()?, parquet.length()));
                return Ok(());
            }
        };
        let mut all = lock(&file.rows);
        if all.len() <= number as usize {
            all.resize(number as usize + 1, 0);
        }
        all[number as usize] = rows;
        drop(all);
        report.add((index, number), found);
        let done = self.bytes_done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.progress.read(done.min(self.bytes_all), self.bytes_all) { Ok(()) } else { Err(InputError::Stopped) }
    }

    /// Rows of each piece of each file, to number bad rows by.
    pub fn rows(&self) -> Vec<Vec<u64>> {
        self.files.iter().map(|file| lock(&file.rows).clone()).collect()
    }

    /// Hashes and lengths, after all pieces were read.
    pub fn ends(&self) -> Result<(Vec<blake3::Hash>, Vec<u64>), InputError> {
        let (mut hashes, mut lengths) = (Vec::new(), Vec::new());
        for file in &self.files {
            let (hash, length) = file.unchanged_end()?;
            hashes.push(hash);
            lengths.push(length);
        }
        if !self.progress.read(self.bytes_all, self.bytes_all) {
            return Err(InputError::Stopped);
        }
        Ok((hashes, lengths))
    }
}

impl OpenFile<'_> {
    /// The next piece; none if all were taken.
    fn take(&self, limits: &Limits, page_bytes_max: u64) -> Result<Option<Piece>, InputError> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Closed) {
            // Only an open file is kept: after a failure nobody tries again.
            *state = State::Done;
            *state = self.open(limits, page_bytes_max)?;
        }
        match &mut *state {
            State::Closed | State::Done => Ok(None),
            State::Text { file, next } => match file.next_block() {
                Ok(Some((bytes, file_bytes))) => {
                    let piece = Piece::Block { format: file.format(), bytes, number: *next, file_bytes };
                    *next += 1;
                    Ok(Some(piece))
                }
                Ok(None) => {
                    if let State::Text { file, .. } = std::mem::replace(&mut *state, State::Done) {
                        *lock(&self.end) = Some(file.end()?);
                    }
                    Ok(None)
                }
                Err(error) => {
                    *state = State::Done;
                    Err(error)
                }
            },
            // First, because it is the longest single piece.
            State::Parquet { file, is_hashed, .. } if !*is_hashed => {
                *is_hashed = true;
                Ok(Some(Piece::Hash(Arc::clone(file))))
            }
            State::Parquet { file, next, .. } if *next < file.row_groups() => {
                *next += 1;
                Ok(Some(Piece::RowGroup { file: Arc::clone(file), number: *next - 1 }))
            }
            State::Parquet { .. } => {
                *state = State::Done;
                Ok(None)
            }
        }
    }

    /// Tells the format by the first bytes.
    fn open(&self, limits: &Limits, page_bytes_max: u64) -> Result<State, InputError> {
        let input = self.input;
        let file = identity::open_file(&input.path).map_err(|source| io_error(input, source))?;
        let opened = file.metadata().map_err(|source| io_error(input, source))?;
        if FileIdentity::of(&opened) != self.seen {
            return Err(changed(input));
        }
        let mut magic = [0; 4];
        let length = file.read_at(&mut magic, 0).map_err(|source| io_error(input, source))?;
        if &magic[..length] == b"PAR1" {
            let file = ParquetFile::open(&input.name, Bytes::File(file), page_bytes_max, limits.unpacked_bytes_max)?;
            return Ok(State::Parquet { file: Arc::new(file), next: 0, is_hashed: false });
        }
        if input.name.ends_with(".parquet") {
            let reason = "does not begin as a Parquet file does".to_owned();
            return Err(InputError::BadFile { file: input.name.clone(), reason });
        }
        let file = TextFile::open(input, file, &magic[..length], limits)?;
        Ok(State::Text { file: Box::new(file), next: 0 })
    }

    /// Hash and length, if the file is what it was at the beginning.
    fn unchanged_end(&self) -> Result<(blake3::Hash, u64), InputError> {
        let metadata = std::fs::metadata(&self.input.path).map_err(|source| io_error(self.input, source))?;
        let end = lock(&self.end).filter(|(_, length)| *length == self.seen.length());
        let is_unchanged = FileIdentity::of(&metadata) == self.seen;
        end.filter(|_| is_unchanged).ok_or_else(|| changed(self.input))
    }
}

impl Piece {
    fn number(&self) -> u64 {
        match self {
            Piece::Block { number, .. } => *number,
            Piece::RowGroup { number, .. } => *number as u64,
            Piece::Hash(_) => 0,
        }
    }
}

fn changed(input: &InputFile) -> InputError {
    InputError::BadFile { file: input.name.clone(), reason: "changed while it was read".to_owned() }
}

fn io_error(input: &InputFile, source: io::Error) -> InputError {
    InputError::Io { file: input.name.clone(), source }
}
