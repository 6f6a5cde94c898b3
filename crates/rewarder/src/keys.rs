//! Keys that sign policies: Ed25519, in files that other tools can read, and the list of those that are trusted.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::hashing::b3;

/// Longest key file, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 16 << 10;
/// Longest list of trusted keys, in bytes.
const TRUST_FILE_BYTES_MAX: usize = 64 << 10;
/// Most keys in a list of trusted keys.
const TRUSTED_MAX: usize = 256;
/// Beginning of a public key in text.
const PUBLIC_PREFIX: &str = "ed25519:";
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
const PEM_COLUMNS: usize = 64;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file holds something else.
    #[error("{0}")]
    Unusable(String),
}

fn unusable(reason: impl Into<String>) -> KeyError {
    KeyError::Unusable(reason.into())
}

/// A public key: `ed25519:` and base64 of its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Id of the key in an envelope: the BLAKE3 hash of its bytes.
    pub fn id(&self) -> String {
        b3(blake3::hash(&self.0).as_bytes())
    }

    /// Whether the signature over the message is one of this key.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let bytes = text.strip_prefix(PUBLIC_PREFIX).and_then(|digits| STANDARD.decode(digits).ok());
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let shown: String = text.chars().take(80).collect();
        bytes.map(PublicKey).ok_or_else(|| unusable(format!("`{shown}` is not `ed25519:` and 32 bytes in base64")))
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<PublicKey, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

/// A private key.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    /// The key as PKCS#8 v1, which is also what `openssl genpkey -algorithm ED25519` writes.
    pkcs8: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

impl SigningKey {
    /// A new key.
    pub fn generate() -> Result<SigningKey, KeyError> {
        let made = Ed25519KeyPair::generate().and_then(|pair| Ok((pair.to_pkcs8v1()?, pair)));
        let (document, pair) = made.map_err(|_| unusable("the system gives no random numbers"))?;
        Ok(SigningKey { pair, pkcs8: Zeroizing::new(document.as_ref().to_vec()) })
    }

    /// A key from the text of its file: PEM of an unencrypted PKCS#8 document.
    pub fn from_pem(text: &str) -> Result<SigningKey, KeyError> {
        let body = text.trim().strip_prefix(PEM_BEGIN).and_then(|rest| rest.strip_suffix(PEM_END));
        let body = body.ok_or_else(|| unusable("not a PEM file with one unencrypted PRIVATE KEY"))?;
        let digits: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
        let bytes = STANDARD.decode(digits.as_bytes()).map_err(|_| unusable("the PEM file is not base64"))?;
        let pkcs8 = Zeroizing::new(bytes);
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| unusable("not an Ed25519 key in PKCS#8"))?;
        Ok(SigningKey { pair, pkcs8 })
    }

    /// The text of the key's file.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let digits = Zeroizing::new(STANDARD.encode(&*self.pkcs8));
        let mut text = Zeroizing::new(format!("{PEM_BEGIN}\n"));
        for line in digits.as_bytes().chunks(PEM_COLUMNS) {
            text.push_str(std::str::from_utf8(line).unwrap_or_default());
            text.push('\n');
        }
        text.push_str(PEM_END);
        text.push('\n');
        text
    }

    /// Reads a key file.
    pub fn read(path: &Path) -> Result<SigningKey, KeyError> {
        let mut text = Zeroizing::new(String::new());
        std::fs::File::open(path)?.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)?;
        SigningKey::from_pem(&text)
    }

    /// Writes a new key file that only its owner can read; a file that is there is never replaced.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_pem().as_bytes())?;
        Ok(file.sync_all()?)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let bytes = self.pair.public_key().as_ref();
        PublicKey(bytes.try_into().expect("an Ed25519 public key has 32 bytes"))
    }

    /// Signature over a message.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// The keys whose signatures count, and how many of them a policy needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKeys {
    /// Number of distinct keys that must have signed.
    pub threshold: u32,
    /// The keys.
    pub keys: Vec<PublicKey>,
}

impl TrustedKeys {
    /// Reads the list from JSON: `{"threshold":2,"keys":["ed25519:…","ed25519:…"]}`.
    pub fn parse(bytes: &[u8]) -> Result<TrustedKeys, KeyError> {
        if bytes.len() > TRUST_FILE_BYTES_MAX {
            return Err(unusable(format!("a list of keys has at most {TRUST_FILE_BYTES_MAX} bytes")));
        }
        let trusted: TrustedKeys = serde_json::from_slice(bytes).map_err(|error| unusable(error.to_string()))?;
        trusted.check()?;
        Ok(trusted)
    }

    fn check(&self) -> Result<(), KeyError> {
        let mut distinct = self.keys.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != self.keys.len() || self.keys.len() > TRUSTED_MAX {
            return Err(unusable(format!("a list of keys names each key once, and at most {TRUSTED_MAX}")));
        }
        if self.threshold == 0 || self.threshold as usize > self.keys.len() {
            let (threshold, keys) = (self.threshold, self.keys.len());
            return Err(unusable(format!("the threshold is {threshold}; it must be between 1 and the {keys} keys")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_survives_its_file_and_nobody_else_can_read_it() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("key.pem");
        let key = SigningKey::generate().expect("made");
        key.write(&path).expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let read = SigningKey::read(&path).expect("read");
        assert_eq!(read.public(), key.public());
        assert!(key.public().verifies(b"message", &read.sign(b"message")));
        assert!(!key.public().verifies(b"massage", &read.sign(b"message")));
        assert!(SigningKey::generate().expect("made").write(&path).is_err(), "a key is never replaced");
        assert!(!format!("{key:?}").contains(key.to_pem().lines().nth(1).expect("digits")));
    }

    #[test]
    fn a_key_of_openssl_is_read() {
        // RFC 8410, section 10.3.
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                   -----END PRIVATE KEY-----\n";
        let key = SigningKey::from_pem(pem).expect("read");
        assert_eq!(key.public().to_string(), "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=");
        assert_eq!(&*key.to_pem(), pem);
        let wrong = ["", "junk", &pem.replace("MC4C", "MC4D"), &pem.replace("PRIVATE KEY", "PUBLIC KEY")];
        for text in wrong {
            assert!(SigningKey::from_pem(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_of_keys_is_checked() {
        let key = SigningKey::generate().expect("made").public();
        let other = SigningKey::generate().expect("made").public();
        let list = |threshold: u32, keys: &[PublicKey]| {
            TrustedKeys::parse(&serde_json::to_vec(&TrustedKeys { threshold, keys: keys.to_vec() }).expect("JSON"))
        };
        assert!(list(2, &[key, other]).is_ok());
        for (threshold, keys) in [(0, vec![key]), (2, vec![key]), (1, vec![key, key]), (1, vec![])] {
            assert!(list(threshold, &keys).is_err(), "{threshold} of {keys:?}");
        }
        for text in ["{\"threshold\":1}", "{\"threshold\":1,\"keys\":[\"ed25519:AAAA\"]}", "[]", "{\"x\":1}"] {
            assert!(TrustedKeys::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
