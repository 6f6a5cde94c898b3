//! The key that signs tokens: kept in one private file, never shown.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use biscuit_auth::{Algorithm, KeyPair, PrivateKey};
use zeroize::Zeroizing;

use crate::file;
use crate::types::AuthError;

/// Signs tokens; whoever has it can mint any. Cheap to clone.
#[derive(Clone)]
pub struct RootKey(Arc<KeyPair>);

/// Verifies tokens; may be shown to anybody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub(crate) biscuit_auth::PublicKey);

impl RootKey {
    /// A new key from the system's randomness, kept nowhere.
    pub fn generate() -> Self {
        RootKey(Arc::new(KeyPair::new()))
    }

    /// Reads a key in PKCS #8 PEM, as its file has it.
    pub fn from_pem(text: &str) -> Result<Self, AuthError> {
        let pair = KeyPair::from_private_key_pem_with_algorithm(text.trim(), Algorithm::Ed25519);
        pair.map(|pair| RootKey(Arc::new(pair))).map_err(bad_key)
    }

    /// Reads a key written as 64 hex digits.
    pub fn from_hex(text: &str) -> Result<Self, AuthError> {
        let key = PrivateKey::from_bytes_hex(text.trim(), Algorithm::Ed25519).map_err(bad_key)?;
        Ok(RootKey(Arc::new(KeyPair::from(&key))))
    }

    /// Reads the key of a file, or makes one if there is no file. Of two that make it at once, both get the same.
    pub fn load_or_create(path: &Path) -> Result<Self, AuthError> {
        let at = |source| AuthError::File { path: path.to_owned(), source };
        if let Some(text) = file::read_private(path).map_err(at)? {
            return RootKey::from_pem(&text);
        }
        let pem = KeyPair::new().to_private_key_pem().map_err(bad_key)?;
        file::create_private(path, pem.as_bytes()).map_err(at)?;
        let text = file::read_private(path).map_err(at)?.ok_or_else(|| at(std::io::ErrorKind::NotFound.into()))?;
        RootKey::from_pem(&text)
    }

    /// The key of a file, if there is one.
    pub fn load(path: &Path) -> Result<Option<Self>, AuthError> {
        let text: Option<Zeroizing<String>> =
            file::read_private(path).map_err(|source| AuthError::File { path: path.to_owned(), source })?;
        text.map(|text| RootKey::from_pem(&text)).transpose()
    }

    /// The half that only verifies.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public())
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }
}

impl PublicKey {
    /// The key as 64 hex digits.
    pub fn to_hex(self) -> String {
        self.0.to_bytes_hex()
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(hidden)")
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.to_hex())
    }
}

fn bad_key(error: biscuit_auth::error::Format) -> AuthError {
    AuthError::BadKey(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_kept_private_and_read_again() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("auth.key");
        assert!(RootKey::load(&path).expect("nothing there").is_none());
        let first = RootKey::load_or_create(&path).expect("made");
        assert_eq!(RootKey::load_or_create(&path).expect("read").public(), first.public());
        assert_eq!(RootKey::load(&path).expect("read").expect("there").public(), first.public());
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn those_who_make_it_at_once_get_the_same() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("auth.key");
        let make = || RootKey::load_or_create(&path).expect("made").public();
        // The map of an array is not lazy: all have begun before the first is waited for.
        let keys = std::thread::scope(|scope| {
            [(); 8].map(|()| scope.spawn(make)).map(|maker| maker.join().expect("no panic"))
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn a_damaged_key_is_refused_rather_than_replaced() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("auth.key");
        for text in ["", "short", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            fs::write(&path, text).expect("written");
            assert!(RootKey::load_or_create(&path).is_err(), "{text:?}");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
    }

    #[test]
    fn hex_digits_are_a_key_and_no_key_shows_itself() {
        let text = "0123456789abcdef".repeat(4);
        let key = RootKey::from_hex(&text).expect("valid");
        assert_eq!(key.public(), RootKey::from_hex(&text).expect("valid").public());
        assert!(!format!("{key:?}").contains("0123"));
        for bad in ["", "0123", &"g".repeat(64)] {
            assert!(RootKey::from_hex(bad).is_err(), "{bad:?}");
        }
    }
}
