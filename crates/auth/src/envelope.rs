//! A token taken apart without a key: its wrapping, its revocation ids, and what its blocks say.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use biscuit_auth::format::SerializedBiscuit;
use biscuit_auth::format::schema::{self, public_key::Algorithm};
use prost::Message as _;
use ron_types::limits::{CAPABILITY_BLOCKS_MAX, CAPABILITY_BYTES_MAX};

use crate::block::Symbols;
use crate::key::PublicKey;
use crate::types::{AuthError, Grant, Narrowing};

/// The wrapping of a token, read but not verified. Nothing here costs more than its bytes.
pub(crate) struct Envelope {
    bytes: Vec<u8>,
    token: schema::Biscuit,
}

/// What the blocks of a token say; true only if its signatures hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Content of the minted block.
    pub grant: Grant,
    /// Content of each block after it.
    pub narrowings: Vec<Narrowing>,
}

impl Envelope {
    /// Reads the wrapping. A token is good in one spelling only: the text is decoded strictly, and the wrapping must
    /// be the one this crate would write, because a cache and a list of revocations must not see it as two.
    pub fn open(text: &str) -> Result<Self, AuthError> {
        let malformed = |why: &str| AuthError::Malformed(why.to_owned());
        if text.len() > CAPABILITY_BYTES_MAX {
            return Err(AuthError::Malformed(format!("it is longer than {CAPABILITY_BYTES_MAX} bytes")));
        }
        let bytes = URL_SAFE.decode(text).map_err(|error| AuthError::Malformed(error.to_string()))?;
        let token = schema::Biscuit::decode(&*bytes).map_err(|error| AuthError::Malformed(error.to_string()))?;
        if token.encode_to_vec() != bytes {
            return Err(malformed("it is not written as this node writes it"));
        }
        // Each block costs a signature, so that their number bounds what a stranger's token costs.
        if token.blocks.len() >= CAPABILITY_BLOCKS_MAX {
            return Err(AuthError::TooMany { what: "blocks", max: CAPABILITY_BLOCKS_MAX });
        }
        let envelope = Envelope { bytes, token };
        // Nobody signs these, so that anybody could write one token in any number of ways, each of which would have to
        // be verified, and be remembered in the place of another's.
        let has_unsigned = envelope.blocks().any(|block| block.version == Some(0));
        if envelope.token.root_key_id.is_some() || has_unsigned {
            return Err(malformed("it says what is not signed"));
        }
        if envelope.blocks().any(|block| block.external_signature.is_some()) {
            return Err(malformed("a third party signed a block"));
        }
        // Signatures of other kinds can be rewritten by anybody into others that hold as well, and with them the
        // revocation id; Ed25519, verified strictly, has one signature for each signing.
        if envelope.blocks().any(|block| block.next_key.algorithm != Algorithm::Ed25519 as i32) {
            return Err(malformed("a block is signed with other than Ed25519"));
        }
        Ok(envelope)
    }

    /// Revocation ids of all blocks in small hex digits, the minted one first.
    pub fn ids(&self) -> Vec<String> {
        self.blocks().map(|block| hex(&block.signature)).collect()
    }

    /// What the blocks say, if each is one that this project writes.
    pub fn contents(&self) -> Result<Contents, AuthError> {
        let mut symbols = Symbols::new();
        let grant = symbols.read_grant(&self.token.authority.block)?;
        let appended = self.token.blocks.iter().enumerate();
        let narrowings = appended.map(|(index, block)| symbols.read_narrowing(index + 1, &block.block));
        Ok(Contents { narrowings: narrowings.collect::<Result<_, _>>()?, grant })
    }

    /// Whether all signatures hold under this key; a fixed price for each block.
    pub fn is_signed_by(&self, key: PublicKey) -> bool {
        SerializedBiscuit::from_slice(&self.bytes, key.0).is_ok()
    }

    fn blocks(&self) -> impl Iterator<Item = &schema::SignedBlock> {
        std::iter::once(&self.token.authority).chain(&self.token.blocks)
    }
}

impl Contents {
    /// The earliest expiry of all blocks.
    pub fn expires_ms(&self) -> Option<u64> {
        self.narrowings.iter().map(|narrowing| narrowing.expires_ms).chain([self.grant.expires_ms]).flatten().min()
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char];
    bytes.iter().flat_map(digits).collect()
}
