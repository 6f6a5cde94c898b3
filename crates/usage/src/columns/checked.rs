//! A file on disk that is read at any place, and of which each byte that was read is a byte that was hashed.
//!
//! A Parquet file is read in pieces, by several threads, in an order of its own. Hashed in one pass and read in
//! another,
//! it could be exchanged in between, and exchanged back, by whoever may write to it. So the hash is made of what is
//! read: the file is divided into parts, the first reading of a part keeps the part's own hash, every later one must
//! have the same, and the hash of the whole is made of those of its parts, as BLAKE3 is a tree. Readers get bytes from
//! memory that was hashed, never from the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, OnceLock};

use blake3::hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};
use bytes::Bytes;

use crate::crew::lock;

/// Least bytes of a part: a reader holds one in memory, and reads all of it for a few bytes.
const PART_BYTES_MIN: u64 = 64 << 10;
/// Most parts of a file, at some forty bytes of memory each. Parts of a file of more than 8 GiB are larger for it.
const PARTS_MAX: u64 = 1 << 17;

/// A file of which what was read is kept as hashes.
#[derive(Debug)]
pub struct CheckedFile {
    file: File,
    length: u64,
    /// A power of two: the parts are then subtrees of the hash.
    part_bytes: u64,
    /// Hash of each part that was read once.
    parts: Vec<OnceLock<ChainingValue>>,
    /// Why a reading failed, in words and as the system's error: the library passes on neither.
    failure: Mutex<Option<ReadFailure>>,
}

/// Why bytes of a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// The file is not the one that was opened: somebody writes to it.
    Changed,
    /// The disk failed.
    Disk {
        /// Number of the system's error, if it has one.
        code: Option<i32>,
        /// Kind of the error.
        kind: io::ErrorKind,
    },
}

impl ReadFailure {
    fn of(error: &io::Error) -> ReadFailure {
        match error.kind() {
            // It was that long when it was opened.
            io::ErrorKind::UnexpectedEof => ReadFailure::Changed,
            kind => ReadFailure::Disk { code: error.raw_os_error(), kind },
        }
    }

    /// The failure as an error of input and output.
    pub fn to_error(self) -> io::Error {
        match self {
            ReadFailure::Changed => io::Error::other("changed while it was read"),
            ReadFailure::Disk { code: Some(code), .. } => io::Error::from_raw_os_error(code),
            ReadFailure::Disk { code: None, kind } => kind.into(),
        }
    }
}

impl CheckedFile {
    /// Nothing of the file was read yet.
    pub fn new(file: File) -> io::Result<CheckedFile> {
        let length = file.metadata()?.len();
        let part_bytes = length.div_ceil(PARTS_MAX).next_power_of_two().max(PART_BYTES_MIN);
        let parts = (0..length.div_ceil(part_bytes)).map(|_| OnceLock::new()).collect();
        Ok(CheckedFile { file, length, part_bytes, parts, failure: Mutex::default() })
    }

    /// Length in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Why the first reading that failed did.
    pub fn failure(&self) -> Option<ReadFailure> {
        *lock(&self.failure)
    }

    /// BLAKE3 of all bytes: of parts that were read, as they were; what was not read yet is read now. None if `goes_on`
    /// says so after a part.
    pub fn hash(&self, mut goes_on: impl FnMut() -> bool) -> io::Result<Option<blake3::Hash>> {
        let mut buffer = Vec::new();
        for number in 0..self.parts.len() {
            if self.parts[number].get().is_none() {
                buffer.resize(self.part_length(number), 0);
                self.read_part(number, &mut buffer)?;
                if !goes_on() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(match self.parts.as_slice() {
            [] => blake3::hash(&[]),
            [whole] => blake3::Hash::from_bytes(value(whole)),
            parts => {
                let (left, right) = halves(parts);
                merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash)
            }
        }))
    }

    fn part_length(&self, number: usize) -> usize {
        let start = number as u64 * self.part_bytes;
        (self.length - start).min(self.part_bytes) as usize
    }

    /// Fills a buffer of the part's length with the part.
    fn read_part(&self, number: usize, buffer: &mut [u8]) -> io::Result<()> {
        let start = number as u64 * self.part_bytes;
        let read = self.file.read_exact_at(buffer, start).map_err(|error| ReadFailure::of(&error));
        let checked = read.and_then(|()| {
            let found = match self.parts.len() {
                1 => *blake3::hash(buffer).as_bytes(),
                _ => blake3::Hasher::new().set_input_offset(start).update(buffer).finalize_non_root(),
            };
            if *self.parts[number].get_or_init(|| found) == found { Ok(()) } else { Err(ReadFailure::Changed) }
        });
        checked.map_err(|failure| lock(&self.failure).get_or_insert(failure).to_error())
    }
}

/// Left and right subtree of some parts, of which there are two or more: the left one is the largest that is full.
fn halves(parts: &[OnceLock<ChainingValue>]) -> (&[OnceLock<ChainingValue>], &[OnceLock<ChainingValue>]) {
    parts.split_at(parts.len().next_power_of_two() / 2)
}

fn subtree(parts: &[OnceLock<ChainingValue>]) -> ChainingValue {
    if let [part] = parts {
        return value(part);
    }
    let (left, right) = halves(parts);
    merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
}

fn value(part: &OnceLock<ChainingValue>) -> ChainingValue {
    *part.get().expect("every part was read before")
}

/// Reads at places of a checked file, and keeps the part that it read last: pages follow each other.
#[derive(Debug)]
pub struct CheckedReader {
    file: Arc<CheckedFile>,
    last: Mutex<Option<(usize, Bytes)>>,
}

impl CheckedReader {
    /// A reader that has read nothing yet.
    pub fn new(file: &Arc<CheckedFile>) -> CheckedReader {
        CheckedReader { file: Arc::clone(file), last: Mutex::default() }
    }

    /// Fills the buffer with the bytes from a place on.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        if at.checked_add(buffer.len() as u64).is_none_or(|end| end > self.file.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buffer.is_empty() {
            let (number, skipped) = ((at / self.file.part_bytes) as usize, (at % self.file.part_bytes) as usize);
            let part_length = self.file.part_length(number);
            let (here, rest) = buffer.split_at_mut(buffer.len().min(part_length - skipped));
            if here.len() == part_length {
                self.file.read_part(number, here)?;
            } else {
                here.copy_from_slice(&self.part(number)?[skipped..skipped + here.len()]);
            }
            at += here.len() as u64;
            buffer = rest;
        }
        Ok(())
    }

    fn part(&self, number: usize) -> io::Result<Bytes> {
        let mut last = lock(&self.last);
        if let Some((_, part)) = last.as_ref().filter(|(held, _)| *held == number) {
            return Ok(part.clone());
        }
        // The old one goes first: a reader has one part in memory, not two.
        *last = None;
        let mut buffer = vec![0; self.file.part_length(number)];
        self.file.read_part(number, &mut buffer)?;
        Ok(last.insert((number, buffer.into())).1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Bytes as Source, ParquetFile};
    use crate::input::InputError;

    fn checked(folder: &tempfile::TempDir, bytes: &[u8]) -> Arc<CheckedFile> {
        std::fs::write(folder.path().join("u"), bytes).expect("written");
        let file = File::open(folder.path().join("u")).expect("opened");
        Arc::new(CheckedFile::new(file).expect("a file"))
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index / 251 + index) as u8).collect()
    }

    #[test]
    fn the_hash_of_the_parts_is_the_hash_of_the_file_whatever_was_read_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = PART_BYTES_MIN as usize;
        for length in [0, 1, 1024, part - 1, part, part + 1, 2 * part, 3 * part, 5 * part + 7, 8 * part] {
            let bytes = content(length);
            let file = checked(&folder, &bytes);
            let reader = CheckedReader::new(&file);
            for (at, wanted) in [(0, 9), (part - 3, 5), (part, part), (100, 2 * part), (length.saturating_sub(8), 8)] {
                let mut buffer = vec![0; wanted];
                let read = reader.read_exact_at(&mut buffer, at as u64);
                assert_eq!(read.is_ok(), at + wanted <= length, "{wanted} bytes at {at} of {length}");
                assert!(read.is_err() || buffer == bytes[at..at + wanted], "{wanted} bytes at {at} of {length}");
            }
            assert_eq!(file.hash(|| true).expect("read"), Some(blake3::hash(&bytes)), "{length} bytes");
            assert_eq!(file.failure(), None, "to ask beyond the end is no failure of the disk");
        }
    }

    #[test]
    fn a_part_that_reads_otherwise_the_second_time_is_refused_and_what_was_not_read_enters_the_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = PART_BYTES_MIN as usize;
        let before = content(3 * part);
        let file = checked(&folder, &before);
        let reader = CheckedReader::new(&file);
        reader.read_exact_at(&mut [0; 9], 0).expect("read");
        let mut after = before.clone();
        (after[5], after[2 * part + 5]) = (!before[5], !before[2 * part + 5]);
        std::fs::write(folder.path().join("u"), &after).expect("written");
        let mut buffer = [0; 9];
        reader.read_exact_at(&mut buffer, 0).expect("the part that was checked is still there");
        assert_eq!(buffer, before[..9]);
        CheckedReader::new(&file).read_exact_at(&mut buffer, 0).expect_err("other bytes");
        assert_eq!(file.failure(), Some(ReadFailure::Changed));
        let mut seen = before;
        seen[2 * part + 5] = after[2 * part + 5];
        assert_eq!(file.hash(|| true).expect("read"), Some(blake3::hash(&seen)), "the bytes that were read");
        std::fs::write(folder.path().join("u"), b"short").expect("written");
        CheckedReader::new(&file).read_exact_at(&mut buffer, 0).expect_err("cut off");
        assert_eq!(file.failure(), Some(ReadFailure::Changed));
        assert_eq!(file.hash(|| false).expect("all was read"), Some(blake3::hash(&seen)));
        assert_eq!(checked(&folder, b"more").hash(|| false).expect("read"), None, "told to stop");
    }

    #[test]
    fn a_disk_that_fails_is_not_called_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(checked(&folder, &content(100)));
        // Opened to be written to alone, it fails every reading.
        let unreadable = File::options().write(true).open(folder.path().join("u")).expect("opened");
        let file = Arc::new(CheckedFile::new(unreadable).expect("a file"));
        let failed = ParquetFile::open("u", Source::File(file), 8 << 20, u64::MAX).map(drop);
        assert!(matches!(&failed, Err(InputError::Io { source, .. }) if source.raw_os_error().is_some()), "{failed:?}");
    }
}
