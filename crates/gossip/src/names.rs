//! Names of the overlay: nodes as peers and as origins, lanes, messages.

use std::fmt;
use std::str::FromStr;

use crate::seal::Leaf;
use crate::{CHUNK_BYTES, LANE_NAME_BYTES_MAX};

/// Monotonic time in microseconds; where it begins is the caller's choice.
pub type Micros = u64;

/// A neighbour, by its node id (an Ed25519 public key).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub [u8; 32]);

/// The node that published a message, by its node id. It may be a neighbour or many hops away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(pub [u8; 32]);

/// First 128 bits of a BLAKE3 over origin, epoch, lane, seq and content: one id never stands for two contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MsgId(pub [u8; 16]);

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! shown_as_hex {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0[..4], f)
            }
        }
    )*};
}
shown_as_hex!(Peer, Origin, MsgId);

impl MsgId {
    fn of(leaf: &Leaf) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&leaf[..16]);
        MsgId(id)
    }
}

impl FromStr for MsgId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let mut bytes = [0; 16];
        if text.len() != 2 * bytes.len() {
            return Err(InvalidId);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(InvalidId);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(MsgId(bytes))
    }
}

/// A text that is not the id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a message has 32 hexadecimal digits")]
pub struct InvalidId;

/// The name of a lane: 1 to 80 letters, digits, dots, underscores and hyphens. Held in place, so that a name from the
/// wire neither allocates nor keeps a read buffer alive.
#[derive(Clone, Copy)]
pub struct LaneName {
    length: u8,
    bytes: [u8; LANE_NAME_BYTES_MAX],
}

impl LaneName {
    /// Takes a name from outside.
    pub fn new(text: &str) -> Result<Self, InvalidLane> {
        Self::from_bytes(text.as_bytes())
    }

    /// Takes a name from the wire.
    pub fn from_bytes(name: &[u8]) -> Result<Self, InvalidLane> {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > LANE_NAME_BYTES_MAX || !name.iter().all(allowed) {
            return Err(InvalidLane);
        }
        let mut bytes = [0; LANE_NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Ok(LaneName { length: name.len() as u8, bytes })
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// A stable number of the lane: the flow of its frames in an outbox, and what picks its engine. Never the number of
    /// the flow of control messages.
    pub fn flow(&self) -> u64 {
        // FNV-1a: stable over builds and nodes, and a lane name is short.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step).max(crate::CONTROL_FLOW + 1)
    }
}

impl PartialEq for LaneName {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for LaneName {}

impl std::hash::Hash for LaneName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for LaneName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LaneName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LaneName {
    type Err = InvalidLane;

    fn from_str(text: &str) -> Result<Self, InvalidLane> {
        LaneName::new(text)
    }
}

/// A text that is not the name of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a lane has 1 to 80 letters, digits, dots, underscores and hyphens")]
pub struct InvalidLane;

/// Key of the id's hash: ids of this protocol never meet hashes made for anything else.
const ID_KEY_WHOLE: &[u8; 32] = b"macronode overlay 1, whole   msg";
const ID_KEY_CHUNKS: &[u8; 32] = b"macronode overlay 1, chunked msg";
/// Content up to here is hashed from one buffer on the stack: half the cost of the incremental hasher at 64 B.
const ID_STACK_BYTES: usize = 512;

/// The id of a message. It follows from what the message says of itself, so it is sent nowhere and computed by whoever
/// wants it: at 1 KiB the hash was the largest part of what a node did with a message.
pub fn msg_id(origin: &Origin, epoch: u64, lane: &LaneName, seq: u64, payload: &[u8]) -> MsgId {
    MsgId::of(&leaf(origin, epoch, lane, seq, payload))
}

/// The id of a message that travels in chunks, because it is larger than one: over the list of the chunks' hashes.
pub(crate) fn msg_id_of_chunks(origin: &Origin, epoch: u64, lane: &LaneName, seq: u64, hashes: &[u8]) -> MsgId {
    MsgId::of(&leaf_of_chunks(origin, epoch, lane, seq, hashes))
}

/// The hash whose first half is the id: what the origin signs.
pub(crate) fn leaf(origin: &Origin, epoch: u64, lane: &LaneName, seq: u64, payload: &[u8]) -> Leaf {
    if payload.len() <= CHUNK_BYTES {
        return full_hash(ID_KEY_WHOLE, origin, epoch, lane, seq, payload);
    }
    let hashes: Vec<u8> = payload.chunks(CHUNK_BYTES).flat_map(|chunk| *blake3::hash(chunk).as_bytes()).collect();
    leaf_of_chunks(origin, epoch, lane, seq, &hashes)
}

/// The same for a message that travels in chunks.
pub(crate) fn leaf_of_chunks(origin: &Origin, epoch: u64, lane: &LaneName, seq: u64, hashes: &[u8]) -> Leaf {
    full_hash(ID_KEY_CHUNKS, origin, epoch, lane, seq, blake3::hash(hashes).as_bytes())
}

fn full_hash(key: &[u8; 32], origin: &Origin, epoch: u64, lane: &LaneName, seq: u64, content: &[u8]) -> Leaf {
    let mut buffer = [0; ID_STACK_BYTES];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        buffer[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    put(&origin.0);
    put(&epoch.to_be_bytes());
    put(&[lane.length]);
    put(lane.as_bytes());
    put(&seq.to_be_bytes());
    put(&(content.len() as u32).to_be_bytes());
    let hash = if content.len() <= ID_STACK_BYTES - length {
        buffer[length..length + content.len()].copy_from_slice(content);
        blake3::keyed_hash(key, &buffer[..length + content.len()])
    } else {
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&buffer[..length]).update(content);
        hasher.finalize()
    };
    *hash.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_names_are_what_the_surface_says() {
        for good in ["a", "A.b_c-9", &"x".repeat(80)] {
            assert_eq!(LaneName::new(good).map(|lane| lane.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "a b", "ä", "a/b", &"x".repeat(81)] {
            assert_eq!(LaneName::new(bad), Err(InvalidLane), "{bad}");
        }
    }

    #[test]
    fn an_id_differs_with_each_part_and_no_two_parts_run_together() {
        let origin = Origin([7; 32]);
        let lane = |name| LaneName::new(name).unwrap();
        let long = vec![1; 2000];
        let ids = [
            msg_id(&origin, 1, &lane("a"), 1, b""),
            msg_id(&origin, 1, &lane("a"), 1, b"x"),
            msg_id(&origin, 1, &lane("a"), 2, b"x"),
            msg_id(&origin, 2, &lane("a"), 1, b"x"),
            msg_id(&origin, 1, &lane("ax"), 1, b""),
            msg_id(&Origin([8; 32]), 1, &lane("a"), 1, b"x"),
            msg_id(&origin, 1, &lane("a"), 1, &long),
            msg_id_of_chunks(&origin, 1, &lane("a"), 1, &long),
            msg_id_of_chunks(&origin, 1, &lane("a"), 1, b"x"),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
        assert_eq!(ids[1].to_string().parse(), Ok(ids[1]));
        assert_eq!("xyz".parse::<MsgId>(), Err(InvalidId));
    }

    #[test]
    fn short_and_long_content_are_hashed_alike() {
        let (origin, lane) = (Origin([7; 32]), LaneName::new("a").unwrap());
        let slowly = |content: &[u8]| {
            let mut hasher = blake3::Hasher::new_keyed(ID_KEY_WHOLE);
            hasher.update(&origin.0).update(&5u64.to_be_bytes()).update(b"\x01a").update(&9u64.to_be_bytes());
            hasher.update(&(content.len() as u32).to_be_bytes()).update(content);
            MsgId(hasher.finalize().as_bytes()[..16].try_into().unwrap())
        };
        for length in [0, 64, 400, 459, 460, 5000] {
            let content = vec![3; length];
            assert_eq!(msg_id(&origin, 5, &lane, 9, &content), slowly(&content), "{length}");
        }
    }
}
