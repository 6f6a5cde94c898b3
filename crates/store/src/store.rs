//! The store of records, manifests, pins and remembered answers: a redb file, or memory alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ron_types::limits::records::{MANIFESTS_BYTES_MAX, RECORDS_BYTES_MAX, RECORDS_MAX, STORE_CACHE_BYTES};

use crate::{
    ContentId, IpnsRecord, Key, NameRecord, PeerId, PeerRecord, ProviderRecord, PublicKey, Record, RecordKind, Subject,
};

mod batch;
mod error;
mod masks;
mod open;
mod provided;
mod record_bytes;
mod reopen;
mod snapshot;
mod tables;

use batch::{Base, Batch, Draws};
use masks::Masks;
use reopen::Writer;
use snapshot::Snapshot;

pub use error::StoreError;
pub use provided::Provided;

/// The store. Cheap to clone; calls block on the disk, so they belong on a thread that may. Readers see the state after
/// some batch, whole, and never wait for a writer.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    /// The file; none if the store is in memory.
    path: Option<PathBuf>,
    bounds: Bounds,
    /// Key of the node whose store it is: nobody pushes out what it signed.
    owner: OnceLock<PublicKey>,
    draws: Draws,
    /// Held by whoever writes; the database has one writer at a time anyway, and the state belongs to it.
    writer: Mutex<Writer>,
    /// State after the last batch, which all readers read from.
    snapshot: ArcSwap<Snapshot>,
}

/// Bounds of a store. A sixteenth of the records and of their bytes is room for what this node itself publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Records of all kinds together.
    pub records_max: usize,
    /// Bytes of all records together: their rows and values.
    pub records_bytes_max: usize,
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
    /// Keeps a record that this node itself signed; it may use the room that strangers may not, and pushes
    /// them out where its key is full.
    PutOwn(Record),
    /// Keeps telling others that this node has content.
    Provide(Provided),
    /// Stops telling others that this node has the content at a key.
    Withdraw(Key),
    /// Keeps a name of this node standing for content.
    KeepName {
        /// Label in the node's own namespace.
        label: String,
        /// What it stands for.
        value: ContentId,
    },
    /// Lets a name of this node end with its record.
    DropName(String),
    /// Keeps a newer record of what this node provides or names, if it still does when this is applied.
    Renew(Record),
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
    /// Its key has as many provider records as it may, and none of them gives way to this one.
    KeyFull,
    /// It is over, too large, or its bytes are not what its id says.
    Refused,
}

/// What was dropped because it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Number of records and remembered answers.
    pub dropped: usize,
    /// Whether there is more that is over.
    pub has_more: bool,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Provider records, with withdrawals and those that are over and not dropped yet.
    pub providers: usize,
    /// Name, peer and IPNS records.
    pub others: usize,
    /// Bytes of all records: their rows and values.
    pub records_bytes: usize,
    /// Keys that this node provides.
    pub provided: usize,
    /// Names of its own that this node keeps standing.
    pub named: usize,
    /// Manifests.
    pub manifests: usize,
    /// Bytes of all manifests.
    pub manifests_bytes: usize,
    /// Pins.
    pub pins: usize,
    /// Remembered answers.
    pub remembered: usize,
}

impl Store {
    /// Opens a file, or begins one. A damaged file is set aside and a new one begun.
    pub fn open(path: &Path, bounds: Bounds) -> Result<StoreOpened, StoreError> {
        open::open(path, bounds)
    }

    /// A store that is gone when it is dropped.
    pub fn in_memory(bounds: Bounds) -> Result<Store, StoreError> {
        open::in_memory(bounds)
    }

    /// Says whose store it is: from now on no stranger's record pushes out one that this key signed. The first key said
    /// stays.
    pub fn set_owner(&self, owner: PublicKey) {
        let _ = self.inner.owner.set(owner);
    }

    /// Applies changes in one transaction, and says what became of each. All are on the disk when it returns.
    ///
    /// Signatures are not looked at: they cost more than all else, so those who take records from others verify them
    /// before, on as many threads as they like.
    pub fn apply(&self, batch: &[Change], now_ms: u64) -> Result<Vec<Applied>, StoreError> {
        self.write(now_ms, batch.len(), |open| batch.iter().map(|change| open.apply(change)).collect())
    }

    /// Applies updates in one transaction, and says what became of each change. The first change of an update decides:
    /// where it is refused, the others are left out, or they would outlast what the caller is told. Those of a
    /// withdrawal are done anyway: a full store must not go on saying what its operator takes back.
    pub fn apply_updates(&self, updates: &[Vec<Change>], now_ms: u64) -> Result<Vec<Vec<Applied>>, StoreError> {
        let added_max = updates.iter().map(Vec::len).sum();
        self.write(now_ms, added_max, |open| updates.iter().map(|update| open.apply_update(update)).collect())
    }

    /// Drops what was over before the hour of `now_ms`, and says how many records that were.
    pub fn expire(&self, now_ms: u64) -> Result<usize, StoreError> {
        let mut all = 0;
        loop {
            let Expired { dropped, has_more } = self.expire_some(now_ms)?;
            all += dropped;
            if !has_more {
                return Ok(all);
            }
        }
    }

    /// As [`Store::expire`], in one transaction: provider records by whole tables, of the others as many as others who
    /// write can wait for.
    pub fn expire_some(&self, now_ms: u64) -> Result<Expired, StoreError> {
        self.write(now_ms, 0, |open| open.expire())
    }

    /// Live provider records of a key, at most `max`: those by the peer itself first, then the later issued.
    pub fn providers(&self, key: &Key, now_ms: u64, max: usize) -> Result<Vec<ProviderRecord>, StoreError> {
        self.read(|state| state.providers(key, now_ms, max))
    }

    /// Newest record of a signer about a peer at a key, also if it takes back what was said before.
    pub fn provider_or_withdrawal(
        &self,
        key: &Key,
        peer: &PeerId,
        signer: &PublicKey,
        now_ms: u64,
    ) -> Result<Option<ProviderRecord>, StoreError> {
        self.read(|state| state.provider(key, peer, signer, now_ms))
    }

    /// Live record of a name that stands for something.
    pub fn name(&self, owner: &PublicKey, label: &str, now_ms: u64) -> Result<Option<NameRecord>, StoreError> {
        Ok(self.name_or_withdrawal(owner, label, now_ms)?.filter(|record| !record.withdraws()))
    }

    /// Newest record of a name, also if it takes the name back: others must hear of that.
    pub fn name_or_withdrawal(
        &self,
        owner: &PublicKey,
        label: &str,
        now_ms: u64,
    ) -> Result<Option<NameRecord>, StoreError> {
        let record = self.read(|state| state.other(RecordKind::Name, &Key::of_owned_label(owner, label), now_ms))?;
        Ok(record.and_then(|record| if let Record::Name(record) = record { Some(record) } else { None }))
    }

    /// Live records of names of an owner, by label, after the label `after`.
    pub fn names(
        &self,
        owner: &PublicKey,
        after: Option<&str>,
        max: usize,
        now_ms: u64,
    ) -> Result<Vec<NameRecord>, StoreError> {
        self.read(|state| state.names(owner, after, max, now_ms))
    }

    /// Live IPNS record of a name.
    pub fn ipns(&self, name: &PeerId, now_ms: u64) -> Result<Option<IpnsRecord>, StoreError> {
        let record = self.read(|state| state.other(RecordKind::Ipns, &Key::of_ipns(name), now_ms))?;
        Ok(record.and_then(|record| if let Record::Ipns(record) = record { Some(record) } else { None }))
    }

    /// Live record of a peer.
    pub fn peer(&self, peer: &PeerId, now_ms: u64) -> Result<Option<PeerRecord>, StoreError> {
        let record = self.read(|state| state.other(RecordKind::Peer, &peer.key(), now_ms))?;
        Ok(record.and_then(|record| if let Record::Peer(record) = record { Some(record) } else { None }))
    }

    /// Live records of peers, by key, at most `max`.
    pub fn peers(&self, max: usize, now_ms: u64) -> Result<Vec<PeerRecord>, StoreError> {
        let records = self.read(|state| state.others(RecordKind::Peer, now_ms, max))?;
        let peer = |record| if let Record::Peer(record) = record { Some(record) } else { None };
        Ok(records.into_iter().filter_map(peer).collect())
    }

    /// A manifest, verified.
    pub fn manifest(&self, content: &ContentId) -> Result<Option<Bytes>, StoreError> {
        self.read(|state| state.manifest(content))
    }

    /// Pins with the Unix milliseconds of when they were made, by their text, after `after`.
    pub fn pins(&self, after: Option<&Subject>, max: usize) -> Result<Vec<(Subject, u64)>, StoreError> {
        self.read(|state| state.pins(after, max))
    }

    /// Whether something is pinned.
    pub fn is_pinned(&self, subject: &Subject) -> Result<bool, StoreError> {
        self.read(|state| state.is_pinned(subject))
    }

    /// The remembered answer to a request.
    pub fn remembered(&self, request: &[u8; 32], now_ms: u64) -> Result<Option<Bytes>, StoreError> {
        self.read(|state| state.remembered(request, now_ms))
    }

    /// Keys that this node provides, in order, after `after`.
    pub fn own_keys(&self, after: Option<Key>, max: usize) -> Result<Vec<Key>, StoreError> {
        Ok(self.provided(after, max)?.into_iter().map(|(key, _)| key).collect())
    }

    /// What this node provides, in order of keys, after `after`.
    pub fn provided(&self, after: Option<Key>, max: usize) -> Result<Vec<(Key, Provided)>, StoreError> {
        self.read(|state| state.provided(after, max))
    }

    /// Names that this node keeps standing, and for what, in order of labels, after `after`.
    pub fn named(&self, after: Option<&str>, max: usize) -> Result<Vec<(String, ContentId)>, StoreError> {
        self.read(|state| state.named(after, max))
    }

    /// Records that are not over, withdrawals too, with keys from `from` to `to`, both included, in order of keys. It
    /// ends with the key at which there are `max`, all records of it included, so the next call goes on behind it.
    pub fn records_in(&self, from: Key, to: Key, max: usize, now_ms: u64) -> Result<Vec<Record>, StoreError> {
        self.read(|state| state.records_in(from, to, max, now_ms))
    }

    /// How much is stored.
    pub fn counts(&self) -> Counts {
        self.inner.snapshot.load().counts
    }

    /// Records of all kinds, with those that are over and not dropped yet.
    pub fn count(&self) -> usize {
        let counts = self.counts();
        counts.providers + counts.others
    }

    /// Reads the keys of one hour of a file that was just opened, after which fewer tables are looked at for a key.
    /// Returns whether there are more hours to learn. Everything works without it, at some fifty looks a key.
    pub fn learn_hour(&self) -> Result<bool, StoreError> {
        let state = self.inner.snapshot.load_full();
        let mut unlearned = state.hours.iter().filter(|(hour, _)| !state.masks.is_known(*hour));
        let Some((hour, table)) = unlearned.next() else { return Ok(false) };
        self.told_if_damaged(guarded(|| {
            for row in table.range::<&tables::ProviderRow>(..)? {
                state.masks.note(&tables::key_of_row(row?.0.value()), *hour);
            }
            Ok(())
        }))?;
        // Masks that have grown meanwhile do not have these bits: then the hour is read again.
        let _writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&self.inner.snapshot.load().masks, &state.masks) {
            state.masks.set_known(*hour);
        }
        Ok(true)
    }

    /// Drops everything.
    pub fn clear(&self) -> Result<(), StoreError> {
        let mut writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let database = self.database(&mut writer)?;
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        for table in transaction.list_tables()? {
            transaction.delete_table(table)?;
        }
        open::make_tables(&transaction)?;
        transaction.commit()?;
        self.inner.snapshot.store(Arc::new(Snapshot::take(database, None)?));
        Ok(())
    }

    fn read<T>(&self, read: impl Fn(&Snapshot) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let state = self.inner.snapshot.load_full();
        match self.told_if_damaged(guarded(|| read(&state))) {
            Err(StoreError::File(error)) => {
                let state = self.state_after_failure(&state, error)?;
                self.told_if_damaged(guarded(|| read(&state)))
            }
            result => result,
        }
    }

    /// A transaction in which at most so many records are added.
    fn write<T>(
        &self,
        now_ms: u64,
        added_max: usize,
        write: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.may_write(now_ms)?;
        let result = self.told_if_damaged(guarded(|| self.write_locked(&mut writer, now_ms, added_max, write)));
        if matches!(result, Err(StoreError::File(_))) {
            self.after_failed_write(&mut writer, now_ms);
        }
        result
    }

    fn write_locked<T>(
        &self,
        writer: &mut Writer,
        now_ms: u64,
        added_max: usize,
        write: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database(writer)?;
        let before = self.inner.snapshot.load_full();
        let mut transaction = database.begin_write()?;
        // Without it, a file that was not closed is read as a whole when it is opened.
        transaction.set_quick_repair(true);
        let masks = before.masks.grown(before.counts.providers + added_max);
        let masks = masks.map_or_else(|| before.masks.clone(), Arc::new);
        let hours: Vec<u32> = before.hours.iter().map(|(hour, _)| *hour).collect();
        let base = Base {
            bounds: self.inner.bounds,
            owner: self.inner.owner.get().copied(),
            draws: self.inner.draws.clone(),
            now_ms,
            counts: before.counts,
            bytes: before.bytes.clone(),
            masks: masks.clone(),
            hours: hours.clone(),
        };
        let mut batch = Batch::new(&transaction, base)?;
        let result = write(&mut batch)?;
        batch.write_bytes(&before.bytes)?;
        let (is_changed, hours_now) = (batch.is_changed, std::mem::take(&mut batch.hours));
        drop(batch);
        if !is_changed {
            transaction.abort()?;
            return Ok(result);
        }
        transaction.commit()?;
        self.inner.snapshot.store(Arc::new(Snapshot::take(database, Some(masks.clone()))?));
        clear_dropped(&masks, &hours, &hours_now);
        Ok(result)
    }

    /// A file in which damage was found is set aside when it is opened next, as it may look whole again then.
    fn told_if_damaged<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let (Err(StoreError::Damaged(why)), Some(path)) = (&result, &self.inner.path) {
            open::mark_damaged(path, why);
        }
        result
    }
}

/// Clears the bits of hours that were dropped, unless an hour that is kept has the same.
fn clear_dropped(masks: &Masks, before: &[u32], after: &[u32]) {
    let kept = after.iter().fold(0, |bits, hour| bits | masks::bit(*hour));
    let dropped = before.iter().filter(|hour| after.binary_search(hour).is_err() && kept & masks::bit(**hour) == 0);
    dropped.for_each(|hour| masks.clear(*hour));
}

/// The library panics where pages of the file make no sense; that is damage of the file, not of this program.
fn guarded<T>(action: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(StoreError::Damaged(text.unwrap_or("a page makes no sense").to_owned()))
    })
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            records_max: RECORDS_MAX,
            records_bytes_max: RECORDS_BYTES_MAX,
            manifests_bytes_max: MANIFESTS_BYTES_MAX,
            cache_bytes: STORE_CACHE_BYTES,
        }
    }
}
