//! Seals: an origin's signature over a batch of its messages, with the way from one message up to what was signed.
//!
//! The leaves of a batch are the full hashes whose first halves are the messages' ids; they are the bottom row of a
//! Merkle tree, and its root is what the origin signs. Each message carries the signature and the hashes beside its way
//! up. So it is proven alone: it goes on before the rest of its batch is here, and is believed from anybody who still
//! holds it, while signing and checking cost one signature for the whole batch.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hashbrown::HashSet;

use crate::names::Origin;
use crate::wire::WireError;

/// Most messages under one signature.
pub const SEAL_BATCH_MAX: usize = 1 << DEPTH_MAX;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of the largest seal.
pub const SEAL_BYTES_MAX: usize = FIXED + DEPTH_MAX * HASH + SIGNATURE_BYTES;

const DEPTH_MAX: usize = 6;
const HASH: usize = 32;
/// Height of the tree, place among its leaves.
const FIXED: usize = 1 + 1;
/// What is signed begins with these words: the node's key signs other things, too, and none of them is a batch.
const SIGNED_WORDS: &[u8; 32] = b"macronode overlay 1,origin batch";
const NODE_KEY: &[u8; 32] = b"macronode overlay 1, merkle node";
const VERIFIED_KEY: &[u8; 32] = b"macronode overlay 1, verified ok";

/// The full hash of a message.
pub type Leaf = [u8; HASH];
/// What an origin signs: fixed words of 32 bytes, and a root.
pub type SignedText = [u8; 2 * HASH];

/// What proves that an origin published a message. Checked for its shape when decoded, and kept as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal(Bytes);

impl Seal {
    /// Reads a seal from the front of bytes.
    pub(crate) fn decode(bytes: &mut Bytes) -> Result<Seal, WireError> {
        let (Some(depth), Some(index)) = (bytes.first().copied(), bytes.get(1).copied()) else {
            return Err(WireError::TooShort);
        };
        let depth = usize::from(depth);
        if depth > DEPTH_MAX || usize::from(index) >= 1 << depth {
            return Err(WireError::OutOfBounds("seal"));
        }
        let length = FIXED + depth * HASH + SIGNATURE_BYTES;
        if bytes.len() < length {
            return Err(WireError::TooShort);
        }
        let seal = Seal(bytes.slice(..length));
        bytes.advance(length);
        Ok(seal)
    }

    /// The seal as it travels.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text that the origin has signed if this message is one of the batch.
    pub fn text(&self, leaf: &Leaf) -> SignedText {
        let mut place = self.0[1];
        let path = self.0[FIXED..self.0.len() - SIGNATURE_BYTES].chunks_exact(HASH);
        let root = path.fold(*leaf, |hash, beside| {
            let (left, right): (&[u8], &[u8]) = if place & 1 == 0 { (&hash, beside) } else { (beside, &hash) };
            place >>= 1;
            join(left, right)
        });
        signed_text(&root)
    }

    /// The signature over that text.
    pub fn signature(&self) -> &[u8] {
        &self.0[self.0.len() - SIGNATURE_BYTES..]
    }
}

/// The tree over a batch of messages, for the origin that seals them.
pub(crate) struct Batch {
    /// From the leaves to the root. A row of odd length ends with a hash of zeros, which no message has.
    rows: Vec<Vec<Leaf>>,
    messages: usize,
}

impl Batch {
    /// A tree over 1 to [`SEAL_BATCH_MAX`] leaves.
    pub(crate) fn new(mut leaves: Vec<Leaf>) -> Self {
        leaves.truncate(SEAL_BATCH_MAX);
        let messages = leaves.len();
        let mut rows = vec![leaves];
        while let Some(row) = rows.last_mut()
            && row.len() > 1
        {
            if row.len() % 2 == 1 {
                row.push([0; HASH]);
            }
            let above = row.chunks_exact(2).map(|pair| join(&pair[0], &pair[1])).collect();
            rows.push(above);
        }
        Batch { rows, messages }
    }

    /// What is to be signed.
    pub(crate) fn text(&self) -> SignedText {
        let root = self.rows.last().and_then(|row| row.first()).copied().unwrap_or_default();
        signed_text(&root)
    }

    /// The seals of all messages, in their order.
    pub(crate) fn seals(&self, signature: &[u8; SIGNATURE_BYTES]) -> impl Iterator<Item = Seal> {
        (0..self.messages).map(|index| self.seal(index, signature))
    }

    fn seal(&self, index: usize, signature: &[u8; SIGNATURE_BYTES]) -> Seal {
        let depth = self.rows.len() - 1;
        let mut out = BytesMut::with_capacity(FIXED + depth * HASH + SIGNATURE_BYTES);
        out.put_u8(depth as u8);
        out.put_u8(index as u8);
        for (height, row) in self.rows[..depth].iter().enumerate() {
            out.put_slice(&row[(index >> height) ^ 1]);
        }
        out.put_slice(signature);
        Seal(out.freeze())
    }
}

fn join(left: &[u8], right: &[u8]) -> Leaf {
    let mut both = [0; 2 * HASH];
    both[..HASH].copy_from_slice(left);
    both[HASH..].copy_from_slice(right);
    *blake3::keyed_hash(NODE_KEY, &both).as_bytes()
}

fn signed_text(root: &Leaf) -> SignedText {
    let mut text = [0; 2 * HASH];
    text[..HASH].copy_from_slice(SIGNED_WORDS);
    text[HASH..].copy_from_slice(root);
    text
}

/// Signatures that were found good, in two generations: the messages of a batch come one after the other, and only the
/// first of them pays for the check.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    young: HashSet<Leaf>,
    old: HashSet<Leaf>,
}

/// Signatures remembered in each generation.
const VERIFIED_MAX: usize = 512;
/// Bytes of memory for them, in tables that grow by doubling.
pub(crate) const VERIFIED_BYTES: usize = 2 * 2 * VERIFIED_MAX * (HASH + 8);

impl Verified {
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.young.capacity() + self.old.capacity()) * (HASH + 8)
    }

    /// Whether a seal's signature is good; `check` is asked where that is not known. The signature is part of what is
    /// remembered: a root with another signature would be refused by those it is passed on to.
    pub(crate) fn holds(
        &mut self,
        origin: &Origin,
        text: &SignedText,
        seal: &Seal,
        check: impl FnOnce() -> bool,
    ) -> bool {
        let mut hasher = blake3::Hasher::new_keyed(VERIFIED_KEY);
        hasher.update(&origin.0).update(text).update(seal.signature());
        let key = *hasher.finalize().as_bytes();
        if self.young.contains(&key) || self.old.contains(&key) {
            return true;
        }
        if !check() {
            return false;
        }
        if self.young.len() >= VERIFIED_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: usize) -> Vec<Leaf> {
        (0..count).map(|at| *blake3::hash(&[at as u8]).as_bytes()).collect()
    }

    #[test]
    fn every_message_of_every_batch_leads_to_what_was_signed() {
        for count in 1..=SEAL_BATCH_MAX {
            let (leaves, batch) = (leaves(count), Batch::new(leaves(count)));
            for (at, leaf) in leaves.iter().enumerate() {
                let seal = batch.seal(at, &[9; SIGNATURE_BYTES]);
                assert_eq!(seal.text(leaf), batch.text(), "{at} of {count}");
                assert_eq!(seal.signature(), [9; SIGNATURE_BYTES]);
                assert!(seal.as_bytes().len() <= SEAL_BYTES_MAX);
                let other = leaves[(at + 1) % count];
                assert!(count == 1 || seal.text(&other) != batch.text(), "another message has another place");
                let mut bytes = Bytes::from([seal.as_bytes(), b"rest"].concat());
                assert_eq!(Seal::decode(&mut bytes), Ok(seal));
                assert_eq!(bytes, "rest");
            }
        }
    }

    #[test]
    fn a_seal_that_is_cut_or_out_of_bounds_is_refused() {
        let seal = Batch::new(leaves(5)).seal(4, &[1; SIGNATURE_BYTES]);
        for length in 0..seal.as_bytes().len() {
            let mut bytes = Bytes::copy_from_slice(&seal.as_bytes()[..length]);
            assert_eq!(Seal::decode(&mut bytes), Err(WireError::TooShort), "{length}");
        }
        for (depth, index) in [(7, 0), (255, 255), (0, 1), (3, 8)] {
            let mut bytes = BytesMut::zeroed(2 * SEAL_BYTES_MAX);
            (bytes[0], bytes[1]) = (depth, index);
            assert_eq!(Seal::decode(&mut bytes.freeze()), Err(WireError::OutOfBounds("seal")), "{depth} {index}");
        }
    }

    #[test]
    fn what_was_verified_is_not_checked_again_and_the_memory_of_it_is_bounded() {
        let (batch, mut verified) = (Batch::new(leaves(2)), Verified::default());
        let (seal, text) = (batch.seal(0, &[1; SIGNATURE_BYTES]), batch.text());
        assert!(!verified.holds(&Origin([1; 32]), &text, &seal, || false));
        assert!(verified.holds(&Origin([1; 32]), &text, &seal, || true));
        assert!(verified.holds(&Origin([1; 32]), &text, &batch.seal(1, &[1; SIGNATURE_BYTES]), || false));
        assert!(!verified.holds(&Origin([2; 32]), &text, &seal, || false), "another origin");
        assert!(!verified.holds(&Origin([1; 32]), &text, &batch.seal(0, &[2; SIGNATURE_BYTES]), || false));
        for number in 0..5 * VERIFIED_MAX {
            let text = signed_text(blake3::hash(&number.to_be_bytes()).as_bytes());
            assert!(verified.holds(&Origin([3; 32]), &text, &seal, || true));
            assert!(verified.young.len() <= VERIFIED_MAX && verified.old.len() <= VERIFIED_MAX);
        }
        assert!(!verified.holds(&Origin([1; 32]), &text, &seal, || false), "forgotten by now");
    }
}
