//! The store of records, manifests, pins and remembered answers: a redb file, or memory alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use multiaddr::Multiaddr;

use crate::{ContentId, IpnsRecord, Key, NameRecord, PeerId, PeerRecord, ProviderRecord, PublicKey, Record, Subject};

/// The store. Cheap to clone; calls block on the disk, so they belong on a thread that may. Readers see the state after
/// some batch, whole, and never wait for a writer.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {}

/// Bounds of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Records of all kinds together.
    pub records_max: usize,
    /// Bytes of all manifests together.
    pub manifests_bytes_max: usize,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
}

/// A store, and what was lost on the way to it.
pub struct StoreOpened {
    /// The store.
    pub store: Store,
    /// What happened to the file that was there, if it was damaged: where it lies now, and why.
    pub lost: Option<String>,
}

/// A change of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Keeps a record, which the caller has verified.
    Put(Record),
    /// Keeps telling others that this node has content.
    Provide(Provided),
    /// Stops telling others that this node has the content at a key.
    Withdraw(Key),
    /// Keeps a manifest.
    Manifest {
        /// Id of the manifest.
        content: ContentId,
        /// Its bytes, which are verified.
        bytes: Bytes,
    },
    /// Drops a manifest.
    Forget(ContentId),
    /// Marks something as to be kept.
    Pin(Subject),
    /// Takes the mark away.
    Unpin(Subject),
    /// Remembers the answer to a request, so that the request is not done twice.
    Remember {
        /// Key of the request, as its sender chose it, with whoever sent it.
        request: [u8; 32],
        /// The answer.
        answer: Bytes,
        /// Unix milliseconds until which it is remembered.
        until_ms: u64,
    },
}

/// Content that this node tells others it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    /// The content.
    pub content: ContentId,
    /// Where it can be had; none means where the node is reached.
    pub addrs: Vec<Multiaddr>,
    /// Protocols by which it can be had.
    pub protocols: Vec<String>,
    /// Milliseconds that each record of it lasts.
    pub ttl_ms: u64,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It is stored.
    Stored,
    /// Something newer is stored.
    Older,
    /// The same is stored.
    Same,
    /// There is no room for it.
    Full,
    /// It is over, too large, or its bytes are not what its id says.
    Refused,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Provider records, with withdrawals and those that are over and not dropped yet.
    pub providers: usize,
    /// Name, peer and IPNS records.
    pub others: usize,
    /// Keys that this node provides.
    pub provided: usize,
    /// Manifests.
    pub manifests: usize,
    /// Bytes of all manifests.
    pub manifests_bytes: usize,
    /// Pins.
    pub pins: usize,
}

/// Reason why the store does not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The file cannot be read or written.
    #[error("the store: {0}")]
    File(#[from] std::io::Error),
    /// What is in the file is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

#[expect(unused_variables, reason = "signatures first")]
impl Store {
    /// Opens a file, or begins one. A damaged file is set aside and a new one begun.
    pub fn open(path: &Path, bounds: Bounds) -> Result<StoreOpened, StoreError> {
        let _ = Store { inner: Arc::new(Inner {}) }.inner;
        todo!()
    }
    /// A store that is gone when it is dropped.
    pub fn in_memory(bounds: Bounds) -> Result<Store, StoreError> {
        todo!()
    }
    /// Applies changes in one transaction, and says what became of each.
    pub fn apply(&self, batch: &[Change], now_ms: u64) -> Result<Vec<Applied>, StoreError> {
        todo!()
    }
    /// Live provider records of a key, at most `max`: those by the peer itself first, then the later issued.
    pub fn providers(&self, key: &Key, now_ms: u64, max: usize) -> Result<Vec<ProviderRecord>, StoreError> {
        todo!()
    }
    /// Live record of a name.
    pub fn name(&self, owner: &PublicKey, label: &str, now_ms: u64) -> Result<Option<NameRecord>, StoreError> {
        todo!()
    }
    /// Live records of names of an owner, by label, after the label `after`.
    pub fn names(
        &self,
        owner: &PublicKey,
        after: Option<&str>,
        max: usize,
        now_ms: u64,
    ) -> Result<Vec<NameRecord>, StoreError> {
        todo!()
    }
    /// Live IPNS record of a name.
    pub fn ipns(&self, name: &PeerId, now_ms: u64) -> Result<Option<IpnsRecord>, StoreError> {
        todo!()
    }
    /// Live record of a peer.
    pub fn peer(&self, peer: &PeerId, now_ms: u64) -> Result<Option<PeerRecord>, StoreError> {
        todo!()
    }
    /// Live records of peers, by key, at most `max`.
    pub fn peers(&self, max: usize, now_ms: u64) -> Result<Vec<PeerRecord>, StoreError> {
        todo!()
    }
    /// A manifest, verified.
    pub fn manifest(&self, content: &ContentId) -> Result<Option<Bytes>, StoreError> {
        todo!()
    }
    /// Pins with the Unix milliseconds of when they were made, after `after`.
    pub fn pins(&self, after: Option<&Subject>, max: usize) -> Result<Vec<(Subject, u64)>, StoreError> {
        todo!()
    }
    /// Whether something is pinned.
    pub fn is_pinned(&self, subject: &Subject) -> Result<bool, StoreError> {
        todo!()
    }
    /// The remembered answer to a request.
    pub fn remembered(&self, request: &[u8; 32], now_ms: u64) -> Result<Option<Bytes>, StoreError> {
        todo!()
    }
    /// Keys that this node provides, in order, after `after`.
    pub fn own_keys(&self, after: Option<Key>, max: usize) -> Result<Vec<Key>, StoreError> {
        todo!()
    }
    /// What this node provides, in order of keys, after `after`.
    pub fn provided(&self, after: Option<Key>, max: usize) -> Result<Vec<(Key, Provided)>, StoreError> {
        todo!()
    }
    /// Live records with keys from `from` to `to`, both included, in order of keys: at least `max` if there are so
    /// many, and all of the last key, so that the next call can go on behind it.
    pub fn records_in(&self, from: Key, to: Key, max: usize, now_ms: u64) -> Result<Vec<Record>, StoreError> {
        todo!()
    }
    /// Drops what is over by whole hours, and says how many records that were.
    pub fn expire(&self, now_ms: u64) -> Result<usize, StoreError> {
        todo!()
    }
    /// How much is stored.
    pub fn counts(&self) -> Counts {
        todo!()
    }
    /// Records of all kinds.
    pub fn count(&self) -> usize {
        todo!()
    }
    /// Drops everything.
    pub fn clear(&self) -> Result<(), StoreError> {
        todo!()
    }
}

impl Default for Bounds {
    fn default() -> Self {
        use ron_types::limits::records::{MANIFESTS_BYTES_MAX, RECORDS_MAX, STORE_CACHE_BYTES};
        Bounds { records_max: RECORDS_MAX, manifests_bytes_max: MANIFESTS_BYTES_MAX, cache_bytes: STORE_CACHE_BYTES }
    }
}
