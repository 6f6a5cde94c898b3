//! Hash chains over the batches of a session: a lost, doubled or changed batch shows at the next one.

use std::sync::{Mutex, PoisonError};

use ron_types::{Error, Kind};

/// One end of a chain: how many batches it is made of, and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Batches so far.
    pub number: u64,
    /// BLAKE3 over the hash before and the hash of the last batch; all zero before the first.
    pub hash: [u8; 32],
}

/// A chain that grows.
#[derive(Debug, Default)]
pub struct Chain(Mutex<Link>);

impl Chain {
    /// Adds a batch by its hash.
    pub fn add(&self, batch: &[u8; 32]) -> Link {
        let mut link = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *link = link.after(batch);
        *link
    }

    /// Adds a batch if the chain then has the hash that the other side says; nothing changes otherwise.
    pub fn add_checked(&self, batch: &[u8; 32], expected: &[u8; 32]) -> Result<Link, Error> {
        let mut link = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = link.after(batch);
        if next.hash != *expected {
            let detail = format!("batch_chain: batch {} does not continue the {} before it", next.number, link.number);
            return Err(Error::new(Kind::Integrity, detail));
        }
        *link = next;
        Ok(next)
    }
}

impl Link {
    fn after(&self, batch: &[u8; 32]) -> Link {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.hash).update(batch);
        Link { number: self.number + 1, hash: *hasher.finalize().as_bytes() }
    }
}

/// Hash of a batch: BLAKE3 over the hashes of its payloads, in order.
pub(crate) fn batch_hash<'a>(payload_hashes: impl IntoIterator<Item = &'a [u8; 32]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for hash in payload_hashes {
        hasher.update(hash);
    }
    *hasher.finalize().as_bytes()
}
