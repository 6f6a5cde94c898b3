//! Who a node is: an Ed25519 key, and the node id that is its public half.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

mod private_file;

/// Bytes of a node id.
pub const NODE_ID_BYTES: usize = 32;

/// The public key of a node, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; NODE_ID_BYTES]);

/// The private key of a node. Cheap to clone; never shown.
#[derive(Clone)]
pub struct NodeKey {
    pair: Arc<Ed25519KeyPair>,
    id: NodeId,
}

/// Reason why a text is not a node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node id is 64 lower-case hex digits")]
pub struct NotANodeId;

/// Reason why there is no node key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The bytes are no Ed25519 key in PKCS #8.
    #[error("not an Ed25519 key in PKCS #8")]
    Unusable,
    /// The system gave no randomness, or the key could not be written down.
    #[error("the cryptographic library refused")]
    Library,
    /// Others than its owner can read or write the file.
    #[error("{path} has mode {mode:03o}: others than its owner can use it; chmod 600 it, or make a new key")]
    Exposed {
        /// The file of the key.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file of the key.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl NodeId {
    /// The id with this public key.
    pub fn from_bytes(bytes: [u8; NODE_ID_BYTES]) -> Self {
        NodeId(bytes)
    }

    /// The public key.
    pub fn as_bytes(&self) -> &[u8; NODE_ID_BYTES] {
        &self.0
    }

    /// Whether `signature` over `message` was made with the key of this node.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl NodeKey {
    /// A new key from the system's randomness, kept nowhere.
    pub fn generate() -> Result<Self, KeyError> {
        NodeKey::from_pair(Ed25519KeyPair::generate().map_err(|_| KeyError::Library)?)
    }

    /// The key of a PKCS #8 document (DER, version 1 or 2).
    pub fn from_pkcs8(document: &[u8]) -> Result<Self, KeyError> {
        NodeKey::from_pair(Ed25519KeyPair::from_pkcs8(document).map_err(|_| KeyError::Unusable)?)
    }

    /// The key of a PKCS #8 document in PEM, as its file has it.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let document = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| KeyError::Unusable)?;
        NodeKey::from_pkcs8(document.secret_pkcs8_der())
    }

    /// The key as a PKCS #8 document (DER, version 1), wiped when dropped.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let document: aws_lc_rs::encoding::Pkcs8V1Der<'_> = self.pair.as_der().map_err(|_| KeyError::Library)?;
        Ok(Zeroizing::new(document.as_ref().to_vec()))
    }

    /// The key of a file, or a new one if there is no file yet; the file is PEM with mode 0600. A file that others than
    /// its owner can use is refused: the key may be known to them, and only the operator can judge that.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        if let Some(text) = private_file::read(path)? {
            return NodeKey::from_pem(&text);
        }
        let text = NodeKey::generate()?.signing_pair()?.serialize_pem();
        private_file::create(path, Zeroizing::new(text).as_bytes())?;
        // Of two processes that make it at once, both get the one that was linked first.
        let text = private_file::read(path)?
            .ok_or_else(|| KeyError::File { path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() })?;
        NodeKey::from_pem(&text)
    }

    /// The public half.
    pub fn node_id(&self) -> NodeId {
        self.id
    }

    /// The Ed25519 signature over `message`, 64 bytes.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(message).as_ref());
        bytes
    }

    /// The same key in the shape the maker of certificates takes.
    pub(crate) fn signing_pair(&self) -> Result<rcgen::KeyPair, KeyError> {
        let document = self.to_pkcs8()?;
        let document = PrivatePkcs8KeyDer::from(document.as_slice());
        rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&document, &rcgen::PKCS_ED25519).map_err(|_| KeyError::Unusable)
    }

    fn from_pair(pair: Ed25519KeyPair) -> Result<Self, KeyError> {
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Unusable)?;
        Ok(NodeKey { pair: Arc::new(pair), id: NodeId(public) })
    }
}

impl FromStr for NodeId {
    type Err = NotANodeId;

    fn from_str(text: &str) -> Result<Self, NotANodeId> {
        let digits = text.as_bytes();
        if digits.len() != 2 * NODE_ID_BYTES {
            return Err(NotANodeId);
        }
        let mut bytes = [0; NODE_ID_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value_of(pair[0])? << 4 | value_of(pair[1])?;
        }
        Ok(NodeId(bytes))
    }
}

/// Upper-case digits are refused: two spellings of one id would be two peers to whoever compares texts.
fn value_of(digit: u8) -> Result<u8, NotANodeId> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotANodeId),
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey(hidden, of {})", self.id)
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
