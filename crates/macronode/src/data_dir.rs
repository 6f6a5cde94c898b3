//! The data directory: the operator token and the addresses the node listens on. Untouched in amnesia mode.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

mod private;

use ron_admin::OperatorToken;
use zeroize::Zeroizing;

use crate::services;

/// Name of the file with the operator token.
pub const TOKEN_FILE: &str = "operator.token";
/// Name of the file with the bound addresses.
pub const ADDRESSES_FILE: &str = "addresses.json";

/// Name of the file with the key that is the node's identity among others.
pub const NODE_KEY_FILE: &str = "node.key";

/// Data directory of the node, or none in amnesia mode.
#[derive(Clone, Debug)]
pub enum DataDir {
    /// A directory that exists and is ours.
    Kept(PathBuf),
    /// Amnesia mode: nothing is written.
    Nowhere,
}

impl DataDir {
    /// Makes sure that the directory exists and that nobody else may look into it; never touches the disk in amnesia
    /// mode.
    pub fn open(path: &Path, amnesia: bool) -> io::Result<Self> {
        if amnesia {
            return Ok(DataDir::Nowhere);
        }
        private::make(path)?;
        Ok(DataDir::Kept(path.to_owned()))
    }

    /// Keeps other nodes out while the value lives; an error if one has it. The directory itself is locked, so that not
    /// even a file for that purpose is written before.
    pub fn lock(&self) -> io::Result<Option<private::Locked>> {
        match self {
            DataDir::Nowhere => Ok(None),
            DataDir::Kept(folder) => private::lock(folder).map(Some),
        }
    }

    /// The operator token: read, or made at the first run. In amnesia mode a fresh one, printed once on stderr.
    pub fn operator_token(&self) -> io::Result<OperatorToken> {
        match self {
            DataDir::Nowhere => {
                let token = fresh_token()?;
                eprintln!("operator token (amnesia: shown once, kept nowhere): {}", token.expose());
                Ok(token)
            }
            DataDir::Kept(folder) => {
                let path = folder.join(TOKEN_FILE);
                match fs::read_to_string(&path) {
                    Ok(text) => read_token(&path, Zeroizing::new(text)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let token = fresh_token()?;
                        write_private(&path, format!("{}\n", token.expose()).as_bytes())?;
                        Ok(token)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The path of a file or folder in it; none in amnesia mode.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        match self {
            DataDir::Kept(folder) => Some(folder.join(name)),
            DataDir::Nowhere => None,
        }
    }

    /// The secret key of a service, in a file called after it: read, or made at the first run; fresh in amnesia mode.
    pub fn key(&self, service: &str) -> io::Result<[u8; 32]> {
        let DataDir::Kept(folder) = self else { return random_key() };
        let path = folder.join(format!("{service}.key"));
        match fs::read(&path) {
            Ok(bytes) => bytes
                .try_into()
                .map_err(|_| io::Error::other(format!("{} is damaged: it must have 32 bytes", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let anew = "what was given out under the old key, such as receipts, will be refused";
                self.check_missing_key(&path, &[service.to_owned()], anew, "head -c 32 /dev/urandom")?;
                let key = random_key()?;
                write_private(&path, &key)?;
                fs::File::open(folder)?.sync_all()?;
                Ok(key)
            }
            Err(error) => Err(error),
        }
    }

    /// The path of the key that signs tokens, if it is there or may be made: beside a key or the data of a service it
    /// is not made again, because nobody would notice that every token had become worthless. None in amnesia mode.
    pub fn signing_key(&self) -> io::Result<Option<PathBuf>> {
        let Some(path) = self.path(ron_auth::KEY_FILE).filter(|path| !path.exists()) else {
            return Ok(self.path(ron_auth::KEY_FILE));
        };
        let names = services::all().map(|service| service.spec().name);
        let made_with: Vec<String> = names.flat_map(|name| [name.to_owned(), format!("{name}.key")]).collect();
        let anew = "every token made so far will be refused";
        self.check_missing_key(&path, &made_with, anew, "openssl genpkey -algorithm ed25519").map(|()| Some(path))
    }

    /// An error if one of these files or folders is there with something in it: the key existed once.
    fn check_missing_key(&self, key: &Path, made_with: &[String], anew: &str, command: &str) -> io::Result<()> {
        let holds = |name: &&String| {
            let path = self.path(name).unwrap_or_default();
            fs::read_dir(&path).map_or_else(|_| path.is_file(), |mut entries| entries.next().is_some())
        };
        let Some(name) = made_with.iter().find(holds) else { return Ok(()) };
        let key = key.display();
        Err(io::Error::other(format!(
            "{key} is missing, but {name} beside it was made with it: restore it from a backup; or make a new one, \
             knowing that {anew}: (umask 077; {command} > {key})"
        )))
    }

    /// Writes down where the node listens, for the command line tools; the node can live without it.
    pub fn note_addresses(&self, addresses: &BTreeMap<&'static str, SocketAddr>) {
        if let Err(error) = self.write_addresses(addresses) {
            tracing::warn!(%error, "the addresses could not be written down");
        }
    }

    fn write_addresses(&self, addresses: &BTreeMap<&'static str, SocketAddr>) -> io::Result<()> {
        let DataDir::Kept(folder) = self else { return Ok(()) };
        let mut body: serde_json::Map<String, serde_json::Value> =
            addresses.iter().map(|(plane, address)| ((*plane).to_owned(), address.to_string().into())).collect();
        body.insert("pid".to_owned(), std::process::id().into());
        write_private(&folder.join(ADDRESSES_FILE), serde_json::Value::from(body).to_string().as_bytes())
    }
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(random)
}

fn fresh_token() -> io::Result<OperatorToken> {
    let random = Zeroizing::new(random_key()?);
    let hex: Zeroizing<String> = Zeroizing::new(random.iter().map(|byte| format!("{byte:02x}")).collect());
    OperatorToken::parse(&hex).map_err(io::Error::other)
}

fn read_token(path: &Path, text: Zeroizing<String>) -> io::Result<OperatorToken> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others can read the operator token; its mode should be 0600");
    }
    OperatorToken::parse(text.trim()).map_err(io::Error::other)
}

/// Writes a file that only its owner can read, whole or not at all: a new file is renamed into place.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_kept_private_and_read_again() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let data = DataDir::open(&folder.path().join("node"), false).expect("made");
        let first = data.operator_token().expect("made");
        let again = data.operator_token().expect("read");
        assert_eq!(first.expose(), again.expose());
        assert_eq!(first.expose().len(), 64);
        let mode = fs::metadata(folder.path().join("node").join(TOKEN_FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_token_is_refused_rather_than_replaced() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        fs::write(folder.path().join(TOKEN_FILE), "short").expect("written");
        let data = DataDir::open(folder.path(), false).expect("there");
        assert!(data.operator_token().is_err());
    }

    #[test]
    fn amnesia_leaves_no_trace() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let data = DataDir::open(&folder.path().join("node"), true).expect("nowhere");
        data.operator_token().expect("made");
        data.write_addresses(&BTreeMap::new()).expect("skipped");
        assert!(!folder.path().join("node").exists());
    }
}
