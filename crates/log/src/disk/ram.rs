//! Files in memory for amnesia: nothing reaches a disk, and what is removed is wiped and freed.

use super::{Claim, Disk, DiskFile, Durability};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use zeroize::Zeroizing;

const CHUNK_BYTES: usize = 256 << 10;

/// A directory in memory.
#[derive(Default)]
pub struct RamDisk {
    files: Mutex<BTreeMap<String, Arc<RamFile>>>,
    claim: Claim,
}

impl RamDisk {
    /// A disk without files.
    pub fn new() -> RamDisk {
        RamDisk::default()
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files().values().map(|file| file.read().chunks.len() as u64 * CHUNK_BYTES as u64).sum()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RamFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for RamDisk {
    fn durability(&self) -> Durability {
        Durability::Ram
    }

    fn secret(&self) -> u32 {
        (RandomState::new().hash_one("ram") >> 32) as u32
    }

    fn claim(&self) -> bool {
        self.claim.take()
    }

    fn unclaim(&self) {
        self.claim.give_back();
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::new(RamFile::default());
        self.files().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Chunks of fixed room, so that growing moves nothing.
#[derive(Default)]
struct RamFile(RwLock<Content>);

#[derive(Default)]
struct Content {
    /// Contents in chunks; all but the last are full.
    chunks: Vec<Zeroizing<Vec<u8>>>,
    len: u64,
}

impl RamFile {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Content> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pieces of `len` bytes from `offset` on: chunk, start in it, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = usize::try_from(offset).expect("a file in memory fits memory");
    let end = at + len;
    std::iter::from_fn(move || {
        let start = at % CHUNK_BYTES;
        let taken = (CHUNK_BYTES - start).min(end - at);
        let piece = (at / CHUNK_BYTES, start, taken);
        at += taken;
        (taken > 0).then_some(piece)
    })
}

/// Puts bytes into a chunk; what was skipped before them is zero.
fn put(chunk: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if chunk.len() < start {
        chunk.resize(start, 0);
    }
    let (over, beyond) = bytes.split_at(bytes.len().min(chunk.len() - start));
    chunk[start..start + over.len()].copy_from_slice(over);
    chunk.extend_from_slice(beyond);
}

impl DiskFile for RamFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.read().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = self.read();
        if offset + buffer.len() as u64 > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for (chunk, start, len) in pieces(offset, buffer.len()) {
            buffer[done..done + len].copy_from_slice(&content.chunks[chunk][start..start + len]);
            done += len;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut content = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        for (chunk, start, len) in pieces(offset, bytes.len()) {
            while content.chunks.len() <= chunk {
                if let Some(last) = content.chunks.last_mut() {
                    last.resize(CHUNK_BYTES, 0);
                }
                content.chunks.push(Zeroizing::new(Vec::with_capacity(CHUNK_BYTES)));
            }
            put(&mut content.chunks[chunk], start, &bytes[done..done + len]);
            done += len;
        }
        content.len = content.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_skipped_is_zero() {
        let file = RamFile::default();
        let mut expected = Vec::new();
        let chunk = CHUNK_BYTES;
        for (offset, len, byte) in [
            (0, 10, 1),
            (10, 5, 2),
            (4, 20, 3),
            (chunk - 3, 8, 4),
            (3 * chunk + 7, 2, 5),
            (chunk + 1, 2 * chunk, 6),
            (0, 4 * chunk, 7),
        ] {
            file.write_at(offset as u64, &vec![byte; len]).expect("memory");
            expected.resize(expected.len().max(offset + len), 0);
            expected[offset..offset + len].fill(byte);
            let mut read = vec![0xff; expected.len()];
            file.read_at(0, &mut read).expect("all of it");
            assert!(read == expected, "after {len} bytes at {offset}");
            assert_eq!(file.len().expect("memory"), expected.len() as u64);
        }
        assert!(file.read_at(1, &mut vec![0; expected.len()]).is_err(), "past the end");
    }
}
