//! Ids of content: CIDs of any version, codec and base, and `b3:` ids, which are raw BLAKE3 CIDs written short.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use cid::Cid;
use multihash::Multihash;
use ron_types::limits::records::CONTENT_ID_TEXT_BYTES_MAX;

use crate::Key;
use crate::bytes_io::{from_hex, write_hex};

const B3_PREFIX: &str = "b3:";
const CODEC_RAW: u64 = 0x55;
const HASH_BLAKE3: u64 = 0x1e;
const HASH_SHA2_256: u64 = 0x12;

/// Bytes of a CID at most: its version, codec and hash as varints of 10 bytes, the length, and a digest of 64 bytes.
pub(crate) const CID_BYTES_MAX: usize = 1 + 10 + 10 + 2 + 64;

/// What content is called: the kind of its bytes and a hash over them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId {
    codec: u64,
    hash: Multihash<64>,
}

/// Reason why a text or bytes are not an id of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAContentId {
    /// It begins with `b3:` and does not go on with a BLAKE3 digest.
    #[error("after b3: stand 64 lower-case hex digits")]
    B3,
    /// It is longer than any id.
    #[error("longer than any CID")]
    TooLong,
    /// It is no CID.
    #[error("neither b3:<64 hex digits> nor a CID")]
    Cid,
}

impl ContentId {
    /// Id of these bytes: raw, by BLAKE3.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        ContentId::blake3(*blake3::hash(bytes).as_bytes())
    }

    /// Id of raw bytes with this BLAKE3 digest.
    pub fn blake3(digest: [u8; 32]) -> Self {
        let hash = Multihash::wrap(HASH_BLAKE3, &digest).expect("32 bytes are no more than 64");
        ContentId { codec: CODEC_RAW, hash }
    }

    /// The BLAKE3 digest, if that is its hash.
    pub fn blake3_digest(&self) -> Option<[u8; 32]> {
        if self.hash.code() == HASH_BLAKE3 { self.hash.digest().try_into().ok() } else { None }
    }

    /// The id in a CID's binary form, of version 0 or 1.
    pub fn from_cid_bytes(bytes: &[u8]) -> Result<Self, NotAContentId> {
        if bytes.len() > CID_BYTES_MAX {
            return Err(NotAContentId::TooLong);
        }
        let cid = Cid::read_bytes(bytes).map_err(|_| NotAContentId::Cid)?;
        // Nothing may follow, and its numbers have one spelling, or one id would have many.
        if cid.to_bytes() == bytes { Ok(ContentId::from_cid(&cid)) } else { Err(NotAContentId::Cid) }
    }

    /// Kind of the bytes: 0x55 is raw, 0x70 is dag-pb, 0x71 is dag-cbor.
    pub fn codec(&self) -> u64 {
        self.codec
    }

    /// Binary form, as a CID of version 1.
    pub fn cid_bytes(&self) -> Vec<u8> {
        self.cid().to_bytes()
    }

    /// As a CID of version 1 in base 32.
    pub fn cid_text(&self) -> String {
        self.cid().to_string()
    }

    /// As `b3:` with 64 hex digits, if it is raw and by BLAKE3.
    pub fn b3_text(&self) -> Option<String> {
        self.is_b3().then(|| self.to_string())
    }

    /// The hash with its kind and length before it: what routing goes by.
    pub fn multihash_bytes(&self) -> Vec<u8> {
        self.hash.to_bytes()
    }

    /// Position in the key space, the same for all codecs of one hash.
    pub fn key(&self) -> Key {
        Key::of_multihash(&self.multihash_bytes())
    }

    /// Whether the hash is that of `bytes`; `None` if it is of a kind that is not computed here.
    pub fn verifies(&self, bytes: &[u8]) -> Option<bool> {
        match (self.hash.code(), self.hash.size()) {
            (HASH_BLAKE3, 32) => Some(blake3::hash(bytes).as_bytes() == self.hash.digest()),
            (HASH_SHA2_256, 32) => Some(digest(&SHA256, bytes).as_ref() == self.hash.digest()),
            _ => None,
        }
    }

    fn from_cid(cid: &Cid) -> Self {
        ContentId { codec: cid.codec(), hash: *cid.hash() }
    }

    fn cid(&self) -> Cid {
        Cid::new_v1(self.codec, self.hash)
    }

    fn is_b3(&self) -> bool {
        self.codec == CODEC_RAW && self.hash.code() == HASH_BLAKE3 && self.hash.size() == 32
    }
}

impl FromStr for ContentId {
    type Err = NotAContentId;

    fn from_str(text: &str) -> Result<Self, NotAContentId> {
        // Some bases are read in quadratic time, so length comes first.
        if text.len() > CONTENT_ID_TEXT_BYTES_MAX {
            return Err(NotAContentId::TooLong);
        }
        if let Some(digits) = text.strip_prefix(B3_PREFIX) {
            return from_hex(digits).map(ContentId::blake3).ok_or(NotAContentId::B3);
        }
        if text.starts_with("Qm") && text.len() == 46 {
            let bytes = multibase::Base::Base58Btc.decode(text).map_err(|_| NotAContentId::Cid)?;
            return ContentId::from_cid_bytes(&bytes);
        }
        let (_, bytes) = multibase::decode(text).map_err(|_| NotAContentId::Cid)?;
        // A CID of version 0 stands without a base before it, so behind one it is something else.
        if bytes.first() != Some(&1) {
            return Err(NotAContentId::Cid);
        }
        ContentId::from_cid_bytes(&bytes)
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_b3() {
            return self.cid().fmt(f);
        }
        f.write_str(B3_PREFIX)?;
        write_hex(f, self.hash.digest())
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}
