//! Access keys: pairs of id and secret, each bound to a capability, kept in one private file.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ron_auth::{Authority, file};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

mod renewal;

/// Maximum access keys of one node.
const ACCESS_KEYS_MAX: usize = 1_000;
/// Maximum signing keys remembered for one access key; there is one for each day and region.
const SIGNING_KEYS_MAX: usize = 8;
/// Not the prefix of the real service, so that nobody takes one of these for a key to a cloud account.
const ID_PREFIX: &str = "MNSQ";
const ID_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const ID_RANDOM_LETTERS: usize = 16;
/// Forty characters of text, as the service's secrets have.
const SECRET_BYTES: usize = 30;

/// All access keys of a node; clones are the same ring.
#[derive(Clone)]
pub struct Keyring(Arc<Ring>);

struct Ring {
    file: Option<PathBuf>,
    /// Read by every request, replaced as a whole by the few that change it.
    keys: ArcSwap<Keys>,
    /// Held while the file is written, so that no change is lost.
    changing: Mutex<()>,
}

type Keys = BTreeMap<String, Arc<AccessKey>>;

/// A pair of id and secret, bound to the capability of its holder.
pub struct AccessKey {
    /// Public half, sent with every request.
    pub id: String,
    /// Secret half, which signs and is never sent.
    pub secret: Zeroizing<String>,
    /// Capability token that decides what the key allows.
    pub token: Arc<str>,
    /// Purpose of the key, in the operator's words.
    pub note: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    signing: ArcSwap<Vec<Arc<SigningKey>>>,
}

/// The key of one day and one region, derived from a secret.
pub(super) struct SigningKey {
    pub date: String,
    pub region: String,
    pub key: hmac::Key,
}

/// Contents of the key file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    keys: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: String,
    secret: Zeroizing<String>,
    token: Arc<str>,
    note: String,
    created_ms: u64,
}

impl Keyring {
    /// The keys of a file; none if there is no such file yet. Without a file they are kept in memory alone.
    pub fn open(file: Option<PathBuf>) -> io::Result<Keyring> {
        let text = file.as_deref().map(file::read_private).transpose()?.flatten();
        let keys = text.map_or_else(|| Ok(Keys::new()), |text| read(&text))?;
        Ok(Keyring(Arc::new(Ring { file, keys: ArcSwap::from_pointee(keys), changing: Mutex::default() })))
    }

    /// The key with this id.
    pub fn find(&self, id: &str) -> Option<Arc<AccessKey>> {
        self.0.keys.load().get(id).cloned()
    }

    /// Every key, in the order of their ids.
    pub fn list(&self) -> Vec<Arc<AccessKey>> {
        self.0.keys.load().values().cloned().collect()
    }

    /// Makes a key bound to the capability that `mint` gives for its id. Blocks while the file is written; on an error
    /// nothing has changed.
    pub fn create(
        &self,
        note: &str,
        created_ms: u64,
        mint: impl FnOnce(&str) -> Result<String, Error>,
    ) -> Result<Arc<AccessKey>, Error> {
        let _changing = self.changing();
        let mut keys = Keys::clone(&self.0.keys.load());
        if keys.len() >= ACCESS_KEYS_MAX {
            let full = format!("there are {ACCESS_KEYS_MAX} access keys already; revoke some");
            return Err(Error::new(Kind::Conflict, full));
        }
        let (id, secret) = (new_id().map_err(failed)?, new_secret().map_err(failed)?);
        let token = mint(&id)?.into();
        let key = Arc::new(AccessKey::new(Stored { id, secret, token, note: note.to_owned(), created_ms }));
        keys.insert(key.id.clone(), Arc::clone(&key));
        self.replace(keys).map_err(failed)?;
        Ok(key)
    }

    /// Forgets a key: from now on nothing signed with it is accepted. False if there was none. Blocks like `create`.
    pub fn revoke(&self, id: &str) -> Result<bool, Error> {
        let _changing = self.changing();
        let mut keys = Keys::clone(&self.0.keys.load());
        if keys.remove(id).is_none() {
            return Ok(false);
        }
        self.replace(keys).map(|()| true).map_err(failed)
    }

    /// Binds the keys that a node of before bound to a capability without services to one that means the same today,
    /// in the file as well. One that cannot be written is renewed again at the next start.
    pub(super) fn renew(&self, authority: &Authority) {
        let _changing = self.changing();
        let mut keys = Keys::clone(&self.0.keys.load());
        let mut renewed = 0_usize;
        for key in keys.values_mut() {
            if let Some(token) = renewal::renewed(authority, &key.token) {
                *key = Arc::new(AccessKey::new(Stored { token: token.into(), ..key.stored() }));
                renewed += 1;
            }
        }
        if renewed == 0 {
            return;
        }
        self.0.keys.store(Arc::new(keys.clone()));
        match self.replace(keys) {
            Ok(()) => {
                tracing::info!(renewed, "access keys of an earlier version are bound to rights of the mailbox now")
            }
            Err(error) => tracing::error!(%error, "the renewed access keys could not be written"),
        }
    }

    fn replace(&self, keys: Keys) -> io::Result<()> {
        if let Some(path) = &self.0.file {
            file::replace(path, written(&keys)?.as_bytes())?;
        }
        self.0.keys.store(Arc::new(keys));
        Ok(())
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("keys", &self.0.keys.load().len()).finish_non_exhaustive()
    }
}

impl AccessKey {
    fn new(stored: Stored) -> Self {
        let Stored { id, secret, token, note, created_ms } = stored;
        AccessKey { id, secret, token, note, created_ms, signing: ArcSwap::default() }
    }

    fn stored(&self) -> Stored {
        let AccessKey { id, secret, token, note, created_ms, .. } = self;
        let (id, note) = (id.clone(), note.clone());
        Stored { id, secret: secret.clone(), token: Arc::clone(token), note, created_ms: *created_ms }
    }

    /// The signing key of a day and a region, if a good signature needed it before.
    pub(super) fn remembered(&self, date: &str, region: &str) -> Option<Arc<SigningKey>> {
        self.signing.load().iter().find(|known| known.date == date && known.region == region).cloned()
    }

    /// Remembers a signing key. Only to be called after a good signature: strangers must not fill the few places.
    pub(super) fn remember(&self, key: &Arc<SigningKey>) {
        self.signing.rcu(|known| {
            let others = known.iter().filter(|other| other.date != key.date || other.region != key.region);
            std::iter::once(key).chain(others).take(SIGNING_KEYS_MAX).cloned().collect::<Vec<_>>()
        });
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("id", &self.id).field("note", &self.note).finish_non_exhaustive()
    }
}

fn failed(error: io::Error) -> Error {
    tracing::error!(%error, "the access keys could not be written");
    Error::new(Kind::Degraded, "the access keys could not be written; nothing was changed")
}

fn read(text: &str) -> io::Result<Keys> {
    // What is wrong is told without the text around it, which may be a secret.
    let told = |error: serde_json::Error| {
        let place = format!("the access keys cannot be read, line {} column {}", error.line(), error.column());
        io::Error::new(io::ErrorKind::InvalidData, place)
    };
    let File { keys } = serde_json::from_str(text).map_err(told)?;
    Ok(keys.into_iter().map(|stored| (stored.id.clone(), Arc::new(AccessKey::new(stored)))).collect())
}

fn written(keys: &Keys) -> io::Result<Zeroizing<String>> {
    let file = File { keys: keys.values().map(|key| key.stored()).collect() };
    Ok(Zeroizing::new(serde_json::to_string_pretty(&file)?))
}

fn new_id() -> io::Result<String> {
    let mut random = [0_u8; ID_RANDOM_LETTERS];
    fill(&mut random)?;
    let letters = random.iter().map(|byte| char::from(ID_LETTERS[usize::from(*byte) % ID_LETTERS.len()]));
    Ok(ID_PREFIX.chars().chain(letters).collect())
}

fn new_secret() -> io::Result<Zeroizing<String>> {
    let mut random = Zeroizing::new([0_u8; SECRET_BYTES]);
    fill(random.as_mut())?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(random.as_slice())))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| io::Error::other("the system gave no randomness"))
}

#[cfg(test)]
impl Keyring {
    /// A ring with one key of this id and secret.
    pub(super) fn of(id: &str, secret: &str, token: &str) -> Keyring {
        let ring = Keyring::open(None).expect("no file");
        let (secret, note) = (Zeroizing::new(secret.to_owned()), String::new());
        let key = AccessKey::new(Stored { id: id.to_owned(), secret, token: token.into(), note, created_ms: 0 });
        ring.replace(Keys::from([(id.to_owned(), Arc::new(key))])).expect("no file");
        ring
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn create(ring: &Keyring, note: &str) -> Arc<AccessKey> {
        ring.create(note, 5, |id| Ok(format!("token of {id}"))).expect("made")
    }

    #[test]
    fn keys_outlive_the_ring_in_a_private_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("sqs.keys");
        let ring = Keyring::open(Some(path.clone())).expect("no file yet");
        assert!(ring.list().is_empty() && !path.exists());
        let (one, two) = (create(&ring, "one"), create(&ring, "two"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing unfinished is left");

        let again = Keyring::open(Some(path.clone())).expect("read");
        let found = again.find(&one.id).expect("kept");
        assert_eq!((&found.secret, &found.token, &*found.note), (&one.secret, &one.token, "one"));
        assert_eq!((found.created_ms, again.list().len()), (5, 2));
        assert_eq!(&*found.token, format!("token of {}", one.id));

        assert!(ring.revoke(&one.id).expect("written") && !ring.revoke(&one.id).expect("nothing to do"));
        assert!(ring.find(&one.id).is_none() && ring.find(&two.id).is_some());
        assert_eq!(Keyring::open(Some(path)).expect("read").list().len(), 1);
    }

    #[test]
    fn ids_and_secrets_look_like_those_of_the_service_and_differ() {
        let ring = Keyring::open(None).expect("no file");
        let (one, two) = (create(&ring, ""), create(&ring, ""));
        for key in [&one, &two] {
            assert!(
                key.id.len() == 20 && key.id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            );
            assert_eq!(key.secret.len(), 40);
            assert!(!format!("{key:?} {ring:?}").contains(key.secret.as_str()));
        }
        assert!(one.id != two.id && one.secret != two.secret);
    }

    #[test]
    fn a_damaged_file_is_refused_without_showing_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("sqs.keys");
        for text in ["", "{", r#"{"keys":[{"id":"a","secret":"hush","token":7}]}"#, r#"{"keys":[],"more":1}"#] {
            fs::write(&path, text).expect("written");
            let error = Keyring::open(Some(path.clone())).expect_err(text).to_string();
            assert!(error.contains("line") && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_written_or_minted_is_not_there() {
        let ring = Keyring::open(Some("/nowhere/at/all".into())).expect("no file yet");
        assert!(ring.create("", 0, |_| Ok(String::new())).is_err());
        let ring = Keyring::open(None).expect("no file");
        assert!(ring.create("", 0, |_| Err(Error::schema("no"))).is_err());
        assert!(ring.list().is_empty());
    }

    #[test]
    fn there_are_only_so_many() {
        let ring = Keyring::open(None).expect("no file");
        let first = create(&ring, "");
        (1..ACCESS_KEYS_MAX).for_each(|_| drop(create(&ring, "")));
        let error = ring.create("", 0, |_| Ok(String::new())).expect_err("full");
        assert_eq!(error.kind, Kind::Conflict);
        assert!(ring.revoke(&first.id).expect("in memory"));
        create(&ring, "there is room again");
    }

    #[test]
    fn few_signing_keys_are_remembered_and_the_newest_first() {
        let ring = Keyring::of("id", "secret", "token");
        let key = ring.find("id").expect("there");
        let signing = |day: usize| {
            let (date, region) = (day.to_string(), "r".to_owned());
            Arc::new(SigningKey { date, region, key: hmac::Key::new(hmac::HMAC_SHA256, b"k") })
        };
        for day in 0..2 * SIGNING_KEYS_MAX {
            key.remember(&signing(day));
            key.remember(&signing(day));
        }
        let is_known = |day: usize| key.remembered(&day.to_string(), "r").is_some();
        let known: Vec<usize> = (0..2 * SIGNING_KEYS_MAX).filter(|day| is_known(*day)).collect();
        assert_eq!(known, (SIGNING_KEYS_MAX..2 * SIGNING_KEYS_MAX).collect::<Vec<_>>());
        assert!(key.remembered("9", "other").is_none());
    }
}
