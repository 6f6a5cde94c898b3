//! Positions in the key space, where content, names and peers meet.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};

use crate::bytes_io::{from_hex, write_hex};
use crate::{Name, PeerId, PublicKey};

const NAME_DOMAIN: &[u8] = b"macronode/name/1\0";

/// A position in the key space: what records are kept under, and what peers are near to or far from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

/// How far two keys are apart: the exclusive or of them, compared as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Distance(pub [u8; 32]);

/// Reason why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 64 lower-case hex digits")]
pub struct NotAKey;

impl Key {
    /// Position of content: the SHA-256 of its multihash, so that all codecs of one digest share it.
    pub fn of_multihash(multihash: &[u8]) -> Self {
        Key::of_parts(&[multihash])
    }

    /// Position of a name. A name in the namespace of a node must be given that node's key before it can travel.
    pub fn of_name(name: &Name) -> Self {
        Key::of_parts(&[NAME_DOMAIN, name.to_string().as_bytes()])
    }

    /// Position of a name with an owner, of its parts.
    pub(crate) fn of_owned_label(owner: &PublicKey, label: &str) -> Self {
        Key::of_parts(&[NAME_DOMAIN, format!("name:{label}@{owner}").as_bytes()])
    }

    /// Position of a peer: the SHA-256 of its id, as Kademlia has it.
    pub fn of_peer(peer: &PeerId) -> Self {
        Key::of_parts(&[peer.as_bytes()])
    }

    /// Position of the IPNS record of a name, as IPFS has it.
    pub fn of_ipns(name: &PeerId) -> Self {
        Key::of_parts(&[b"/ipns/", name.as_bytes()])
    }

    /// How far it is to another key.
    pub fn distance(&self, other: &Key) -> Distance {
        Distance(std::array::from_fn(|at| self.0[at] ^ other.0[at]))
    }

    fn of_parts(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Key(bytes)
    }
}

impl Distance {
    /// Leading bits in which the two keys agree: 256 for a key and itself.
    pub fn common_bits(&self) -> u32 {
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count();
        zeros as u32 * 8 + self.0.get(zeros).map_or(0, |byte| byte.leading_zeros())
    }
}

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        from_hex(text).map(Key).ok_or(NotAKey)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distance({self})")
    }
}
