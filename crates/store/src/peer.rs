//! Who a peer is: libp2p peer ids, the Ed25519 keys in them, and whoever can sign with one.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use cid::Cid;
use multihash::Multihash;
use ron_transport::{NodeId, NodeKey};

use crate::Key;
use crate::bytes_io::{from_hex, write_hex};

/// Bytes of a peer id at most: an inlined key of 42 bytes with its kind and length.
pub(crate) const PEER_ID_BYTES_MAX: usize = 44;
/// Text of a peer id at most: its bytes in base 32 with a CID around them, and room for base 16.
const PEER_ID_TEXT_BYTES_MAX: usize = 128;

const HASH_IDENTITY: u64 = 0x00;
const HASH_SHA2_256: u64 = 0x12;
const INLINED_KEY_BYTES_MAX: usize = 42;
const CODEC_LIBP2P_KEY: u64 = 0x72;
/// What stands before an Ed25519 key in a peer id: identity hash, 36 bytes, and the protobuf of a public key.
const ED25519_PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// Points of small order without their sign, in all encodings: of order 4, 1, 8, 8, 2, and again 4 and 1 with numbers
/// that are not reduced.
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    number(1, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    number(0xec, 0xff, 0x7f),
    number(0xed, 0xff, 0x7f),
    number(0xee, 0xff, 0x7f),
];

/// Bytes of a number near zero or near the prime of the curve.
const fn number(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// A libp2p peer id. Ids of Ed25519 keys contain the key.
#[derive(Clone, Copy)]
pub struct PeerId {
    length: u8,
    /// Zero behind `length`.
    bytes: [u8; PEER_ID_BYTES_MAX],
}

/// An Ed25519 public key, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// Reason why a text or bytes are not a peer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer id is base58btc, or a CID of version 1 with the codec libp2p-key")]
pub struct NotAPeerId;

/// Reason why a text is not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a public key is 64 lower-case hex digits")]
pub struct NotAPublicKey;

/// Whoever can sign records.
pub trait Signer {
    /// The key that the signatures verify with.
    fn public_key(&self) -> PublicKey;
    /// The Ed25519 signature over `bytes`.
    fn sign(&self, bytes: &[u8]) -> [u8; 64];
}

impl PeerId {
    /// The peer with this Ed25519 key.
    pub fn of_ed25519(key: &[u8; 32]) -> Self {
        let mut bytes = [0; PEER_ID_BYTES_MAX];
        bytes[..6].copy_from_slice(&ED25519_PREFIX);
        bytes[6..38].copy_from_slice(key);
        PeerId { length: 38, bytes }
    }

    /// The id with these bytes, which are a multihash.
    pub fn from_bytes(id: &[u8]) -> Result<Self, NotAPeerId> {
        let hash = Multihash::<INLINED_KEY_BYTES_MAX>::from_bytes(id).map_err(|_| NotAPeerId)?;
        let is_known = match hash.code() {
            HASH_IDENTITY => true,
            HASH_SHA2_256 => hash.size() == 32,
            _ => false,
        };
        // The numbers in it have one spelling, or one peer would have many ids.
        if !is_known || hash.to_bytes() != id {
            return Err(NotAPeerId);
        }
        let mut bytes = [0; PEER_ID_BYTES_MAX];
        bytes.get_mut(..id.len()).ok_or(NotAPeerId)?.copy_from_slice(id);
        Ok(PeerId { length: id.len() as u8, bytes })
    }

    /// The bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The Ed25519 key in the id, if it is of one.
    pub fn ed25519(&self) -> Option<[u8; 32]> {
        self.as_bytes().strip_prefix(&ED25519_PREFIX)?.try_into().ok()
    }

    /// The Ed25519 key in the id, if it is of one.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.ed25519().map(PublicKey)
    }

    /// As a CID of version 1 in base 36, the way IPNS names are written.
    pub fn cid_text(&self) -> String {
        let hash = Multihash::from_bytes(self.as_bytes()).expect("a peer id is a multihash");
        let text = Cid::new_v1(CODEC_LIBP2P_KEY, hash).to_string_of_base(multibase::Base::Base36Lower);
        text.expect("a CID of version 1 has a text in every base")
    }

    /// Position in the key space.
    pub fn key(&self) -> Key {
        Key::of_peer(self)
    }
}

impl PublicKey {
    /// Whether `signature` over `message` was made with this key.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        !self.is_weak() && UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }

    /// Whether it is a point of small order, for which anyone can make signatures over anything. The library verifies
    /// those, as the specification of Ed25519 lets it.
    fn is_weak(&self) -> bool {
        let mut point = self.0;
        point[31] &= 0x7f;
        SMALL_ORDER.contains(&point)
    }

    /// The peer with this key.
    pub fn peer_id(&self) -> PeerId {
        PeerId::of_ed25519(&self.0)
    }
}

impl Signer for NodeKey {
    fn public_key(&self) -> PublicKey {
        self.node_id().into()
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        NodeKey::sign(self, bytes)
    }
}

impl From<NodeId> for PublicKey {
    fn from(id: NodeId) -> Self {
        PublicKey(*id.as_bytes())
    }
}

impl From<NodeId> for PeerId {
    fn from(id: NodeId) -> Self {
        PeerId::of_ed25519(id.as_bytes())
    }
}

impl FromStr for PeerId {
    type Err = NotAPeerId;

    fn from_str(text: &str) -> Result<Self, NotAPeerId> {
        if text.len() > PEER_ID_TEXT_BYTES_MAX {
            return Err(NotAPeerId);
        }
        // The two multihashes of peer ids begin with these letters in base58btc, and no CID of version 1 does.
        if text.starts_with('1') || text.starts_with("Qm") {
            let bytes = multibase::Base::Base58Btc.decode(text).map_err(|_| NotAPeerId)?;
            return PeerId::from_bytes(&bytes);
        }
        let (_, bytes) = multibase::decode(text).map_err(|_| NotAPeerId)?;
        let cid = Cid::read_bytes(bytes.as_slice()).map_err(|_| NotAPeerId)?;
        let is_key = cid.version() == cid::Version::V1 && cid.codec() == CODEC_LIBP2P_KEY;
        if !is_key || cid.to_bytes() != bytes {
            return Err(NotAPeerId);
        }
        PeerId::from_bytes(&cid.hash().to_bytes())
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&multibase::Base::Base58Btc.encode(self.as_bytes()))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({self})")
    }
}

impl PartialEq for PeerId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for PeerId {}

impl PartialOrd for PeerId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PeerId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for PeerId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl FromStr for PublicKey {
    type Err = NotAPublicKey;

    fn from_str(text: &str) -> Result<Self, NotAPublicKey> {
        from_hex(text).map(PublicKey).ok_or(NotAPublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}
