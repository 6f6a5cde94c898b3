//! Proofs that somebody has content of a BLAKE3 id: one chunk that the asker draws, and the last one, each with the
//! hashes beside its way to the root.
//!
//! The last chunk says how long the content is: its number is part of its hash. Without it whoever has one chunk alone
//! could name a length for which that chunk is the one that was drawn.

use blake3::hazmat::{
    ChainingValue, HasherExt as _, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{CHUNK_LEN, Hasher};
use ron_types::limits::records::{MANIFEST_BYTES_MAX, POSSESSION_DEPTH_MAX};

use crate::bytes_io::{Malformed, Reader, put_bytes, put_number};

/// Proof that somebody has content, or had somebody to ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possession {
    /// Bytes of the whole content.
    length: u64,
    /// The chunk that was drawn.
    drawn: Leaf,
    /// The last chunk.
    last: Leaf,
}

/// A chunk and the hashes beside its way to the root, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaf {
    bytes: Vec<u8>,
    beside: Vec<ChainingValue>,
}

/// A side of the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Where a chunk lies in the tree of some content.
struct Place {
    offset: u64,
    length: usize,
    /// Sides that lead to it, from the root.
    way: Vec<Side>,
}

impl Possession {
    /// Proof that these bytes are here; `draw` decides which chunk is shown.
    pub fn of(content: &[u8], draw: u64) -> Self {
        let length = content.len() as u64;
        let leaf = |chunk: u64| {
            let place = Place::of(length, chunk);
            let (mut subtree, mut offset, mut beside) = (content, 0, Vec::with_capacity(place.way.len()));
            for side in &place.way {
                let (left, right) = subtree.split_at(left_subtree_len(subtree.len() as u64) as usize);
                let right_offset = offset + left.len() as u64;
                match side {
                    Side::Left => {
                        beside.push(hash_of(right, right_offset));
                        subtree = left;
                    }
                    Side::Right => {
                        beside.push(hash_of(left, offset));
                        (subtree, offset) = (right, right_offset);
                    }
                }
            }
            beside.reverse();
            Leaf { bytes: subtree.to_vec(), beside }
        };
        Possession { length, drawn: leaf(draw % chunks(length)), last: leaf(chunks(length) - 1) }
    }

    /// Whether it proves possession of the content with this digest, with the chunk that `draw` decides on.
    pub fn proves(&self, digest: &[u8; 32], draw: u64) -> bool {
        let holds =
            |leaf: &Leaf, chunk: u64| leaf.root(&Place::of(self.length, chunk)).is_some_and(|root| root == *digest);
        let count = chunks(self.length);
        self.length <= MANIFEST_BYTES_MAX as u64 && holds(&self.last, count - 1) && holds(&self.drawn, draw % count)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.length);
        for leaf in [&self.drawn, &self.last] {
            put_bytes(out, &leaf.bytes);
            put_number(out, leaf.beside.len() as u64);
            leaf.beside.iter().for_each(|hash| out.extend_from_slice(hash));
        }
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = reader.number()?;
        let mut leaf = || {
            let bytes = reader.bytes(CHUNK_LEN)?.to_vec();
            let count = reader.count(POSSESSION_DEPTH_MAX)?;
            let beside = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
            Ok(Leaf { bytes, beside })
        };
        Ok(Possession { length, drawn: leaf()?, last: leaf()? })
    }
}

impl Leaf {
    /// Digest of the content that has this chunk there; none if it cannot be there.
    fn root(&self, place: &Place) -> Option<[u8; 32]> {
        if self.bytes.len() != place.length || self.beside.len() != place.way.len() {
            return None;
        }
        if place.way.is_empty() {
            return Some(*blake3::hash(&self.bytes).as_bytes());
        }
        let mut hash = hash_of(&self.bytes, place.offset);
        for (height, (beside, side)) in self.beside.iter().zip(place.way.iter().rev()).enumerate() {
            let (left, right) = if *side == Side::Left { (&hash, beside) } else { (beside, &hash) };
            if height + 1 == place.way.len() {
                return Some(*merge_subtrees_root(left, right, Mode::Hash).as_bytes());
            }
            hash = merge_subtrees_non_root(left, right, Mode::Hash);
        }
        None
    }
}

impl Place {
    /// Where chunk number `chunk` lies in content of this length.
    fn of(length: u64, chunk: u64) -> Self {
        let target = chunk * CHUNK_LEN as u64;
        let (mut offset, mut length, mut way) = (0, length, Vec::new());
        while length > CHUNK_LEN as u64 {
            let left = left_subtree_len(length);
            if target < offset + left {
                length = left;
                way.push(Side::Left);
            } else {
                (offset, length) = (offset + left, length - left);
                way.push(Side::Right);
            }
        }
        Place { offset, length: length as usize, way }
    }
}

/// Chunks of content; nothing at all is one, too.
fn chunks(length: u64) -> u64 {
    length.div_ceil(CHUNK_LEN as u64).max(1)
}

/// Hash of a part of the tree that is not all of it.
fn hash_of(part: &[u8], offset: u64) -> ChainingValue {
    Hasher::new().set_input_offset(offset).update(part).finalize_non_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn every_chunk_of_every_length_can_be_proved() {
        for length in [0, 1, 1023, 1024, 1025, 2048, 3000, 5 * 1024, 7 * 1024 + 1, 16 * 1024, 33 * 1024 + 5] {
            let content = content(length);
            let digest = *blake3::hash(&content).as_bytes();
            for draw in 0..chunks(length as u64) + 2 {
                let proof = Possession::of(&content, draw);
                assert!(proof.proves(&digest, draw), "chunk {draw} of {length} bytes");
                assert!(!proof.proves(&[7; 32], draw), "of other content");
                let is_other = chunks(length as u64) > 1;
                assert_eq!(proof.proves(&digest, draw + 1), !is_other, "another chunk of {length} bytes");
            }
        }
        let largest = content(MANIFEST_BYTES_MAX);
        assert!(Possession::of(&largest, u64::MAX).proves(blake3::hash(&largest).as_bytes(), u64::MAX));
    }

    #[test]
    fn whoever_changes_anything_proves_nothing() {
        let content = content(7 * 1024 + 100);
        let digest = *blake3::hash(&content).as_bytes();
        let proof = Possession::of(&content, 3);
        let changed = |change: fn(&mut Possession)| {
            let mut changed = proof.clone();
            change(&mut changed);
            changed.proves(&digest, 3)
        };
        assert!(changed(|_| {}));
        assert!(!changed(|proof| proof.drawn.bytes[0] ^= 1));
        assert!(!changed(|proof| proof.last.bytes[0] ^= 1));
        assert!(!changed(|proof| proof.drawn.beside[1][0] ^= 1));
        assert!(!changed(|proof| proof.drawn.beside.truncate(2)));
        assert!(!changed(|proof| proof.last.bytes.truncate(99)));
        assert!(!changed(|proof| proof.length -= 1));
        assert!(!changed(|proof| proof.length += 1));
        assert!(!changed(|proof| proof.length = u64::MAX));
    }

    #[test]
    fn one_chunk_alone_is_not_enough_whatever_length_its_owner_names() {
        let content = content(8 * 1024);
        let digest = *blake3::hash(&content).as_bytes();
        // It has the first chunk and the way from it, and is asked for another.
        let has = Possession::of(&content, 0);
        for length in 0..=64 * 1024 {
            let lie = Possession { length, ..has.clone() };
            assert!(!lie.proves(&digest, 5), "{length}");
        }
    }

    #[test]
    fn the_binary_form_is_small_and_bounded() {
        let content = content(MANIFEST_BYTES_MAX);
        let mut bytes = Vec::new();
        Possession::of(&content, 77).put(&mut bytes);
        assert!(bytes.len() < 3 * 1024, "{}", bytes.len());
        assert_eq!(Possession::take(&mut Reader::new(&bytes)).ok(), Some(Possession::of(&content, 77)));
        let deep = [&[1, 1, 0, POSSESSION_DEPTH_MAX as u8 + 1][..], &[0; 400]].concat();
        assert!(Possession::take(&mut Reader::new(&deep)).is_err());
    }
}
