//! What does not fit into memory: one file without a name, in which each lane has its pieces.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::crew::lock;
use crate::groups::{Entry, Store};
use crate::input::InputError;

/// Bytes after which a piece is written.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a record before the actor's id: its length, the slot, the total.
const HEAD_BYTES: usize = 2 + 2 + 16;
/// Set in a record's length if it is the first of its actor.
const FIRST: u16 = 1 << 15;

/// A file that is gone when the process is, divided into lanes of records.
#[derive(Debug)]
pub struct Spill {
    file: File,
    end: AtomicU64,
    lanes: Vec<Mutex<Vec<Piece>>>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    length: usize,
}

/// A record as it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Id of the actor.
    pub actor: &'a [u8],
    /// Number of the slot.
    pub slot: u16,
    /// The total so far.
    pub total: u128,
    /// Whether it is the first of its actor.
    pub is_first: bool,
}

impl Spill {
    /// An empty one with some lanes.
    pub fn new(folder: &Path, lanes: usize) -> Result<Spill, InputError> {
        let file = tempfile::tempfile_in(folder).map_err(failed)?;
        Ok(Spill { file, end: AtomicU64::new(0), lanes: (0..lanes).map(|_| Mutex::default()).collect() })
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether something was written.
    pub fn is_used(&self) -> bool {
        self.bytes() > 0
    }

    /// Writes entries of a store to a lane.
    pub fn write<'a>(
        &self,
        lane: usize,
        store: &Store,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<(), InputError> {
        let mut buffer = Vec::with_capacity(64 << 10);
        for entry in entries {
            let actor = store.actor(entry);
            let length = actor.len() as u16 | if entry.is_first() { FIRST } else { 0 };
            buffer.extend_from_slice(&length.to_le_bytes());
            buffer.extend_from_slice(&entry.slot.to_le_bytes());
            buffer.extend_from_slice(&entry.total().to_le_bytes());
            buffer.extend_from_slice(actor);
            if buffer.len() >= PIECE_BYTES {
                self.append(lane, &buffer)?;
                buffer.clear();
            }
        }
        if buffer.is_empty() { Ok(()) } else { self.append(lane, &buffer) }
    }

    fn append(&self, lane: usize, bytes: &[u8]) -> Result<(), InputError> {
        let start = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, start).map_err(failed)?;
        lock(&self.lanes[lane]).push(Piece { start, length: bytes.len() });
        Ok(())
    }

    /// Reads a lane, piece by piece, in the order written.
    pub fn read(
        &self,
        lane: usize,
        mut each: impl FnMut(Record<'_>) -> Result<(), InputError>,
    ) -> Result<(), InputError> {
        let pieces = lock(&self.lanes[lane]).clone();
        let mut buffer = Vec::new();
        for piece in pieces {
            buffer.resize(piece.length, 0);
            self.file.read_exact_at(&mut buffer, piece.start).map_err(failed)?;
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let (record, after) = record(rest).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
                rest = after;
                each(record)?;
            }
        }
        Ok(())
    }
}

/// The first record, and what follows it.
fn record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let length = u16::from_le_bytes([head[0], head[1]]);
    let (actor, rest) = rest.split_at_checked(usize::from(length & !FIRST))?;
    let total = u128::from_le_bytes(head[4..].try_into().ok()?);
    let slot = u16::from_le_bytes([head[2], head[3]]);
    Some((Record { actor, slot, total, is_first: length & FIRST != 0 }, rest))
}

fn failed(source: io::Error) -> InputError {
    InputError::Io { file: "the spill folder".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_give_back_what_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = Spill::new(folder.path(), 2).expect("a file");
        let mut store = Store::default();
        let long = "x".repeat(1024);
        for index in 0..3000_u32 {
            let actor = format!("{index}{}", if index % 2 == 0 { "" } else { &long });
            assert!(store.push(actor.as_bytes(), index as u16, u128::MAX - u128::from(index), index % 3 == 0));
        }
        spill.write(1, &store, store.entries.iter()).expect("room");
        spill.write(0, &store, store.entries[..1].iter()).expect("room");
        assert!(spill.bytes() > 2 * PIECE_BYTES as u64 / 3 && lock(&spill.lanes[1]).len() > 1);
        let mut seen = 0;
        let check = |record: Record<'_>| {
            let entry = &store.entries[seen];
            let expected = (store.actor(entry), entry.slot, entry.total(), entry.is_first());
            assert_eq!((record.actor, record.slot, record.total, record.is_first), expected);
            seen += 1;
            Ok(())
        };
        spill.read(1, check).expect("read");
        assert_eq!(seen, 3000);
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0, "the file has no name");
    }
}
