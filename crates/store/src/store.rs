//! The store of records, manifests, pins and remembered answers: a redb file, or memory alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ron_types::limits::records::{
    MANIFESTS_BYTES_MAX, PROVIDERS_PER_KEY_MAX, RECORDS_BYTES_MAX, RECORDS_MAX, STORE_CACHE_BYTES,
};

use crate::{
    ContentId, IpnsRecord, Key, NameRecord, PeerId, PeerRecord, ProviderRecord, PublicKey, Record, RecordKind, Subject,
};

mod bad_rows;
mod batch;
mod copy;
mod damage;
mod error;
mod masks;
mod open;
mod provided;
mod record_bytes;
mod reopen;
mod rescue;
mod shortage;
mod signed;
mod snapshot;
mod tables;

use bad_rows::BadRows;
use batch::{Base, Batch, Draws};
use damage::FileIdentity;
use masks::Masks;
use reopen::Writer;
use shortage::Refused;
use signed::Signed;
use snapshot::Snapshot;

pub use error::StoreError;
pub use provided::Provided;
pub use shortage::Shortages;

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
    /// Rows that readers found to make no sense.
    bad_rows: Arc<BadRows>,
    /// Records that were read and whose signatures hold.
    signed: Signed,
    /// Why the file cannot be trusted any more. From then on it is only read.
    damage: OnceLock<String>,
    /// What there was no room for.
    refused: Mutex<Refused>,
    /// The file that is open.
    identity: Mutex<Option<FileIdentity>>,
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
    /// Provider records of one key.
    pub providers_per_key_max: usize,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
}

/// A store, and what was lost on the way to it.
pub struct StoreOpened {
    /// The store.
    pub store: Store,
    /// What happened to the file that was there, if it was damaged: why, where it lies now, and what was copied.
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
    /// Keeps a manifest. One that nothing holds is kept for 48 hours from when it came last.
    Manifest {
        /// Id of the manifest.
        content: ContentId,
        /// Its bytes, which are verified.
        bytes: Bytes,
    },
    /// Keeps a manifest of the operator, who may use the room that others may not.
    OperatorsManifest {
        /// Id of the manifest.
        content: ContentId,
        /// Its bytes, which are verified.
        bytes: Bytes,
    },
    /// Removes a manifest that nothing holds: no pin, nothing that this node provides, no name of it.
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
    /// It is pinned, provided or named by this node, and stays.
    Held,
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
    /// Opens a file, or begins one. What can be read of a damaged file is copied into a new one, and it is set aside.
    pub fn open(path: &Path, bounds: Bounds) -> Result<StoreOpened, StoreError> {
        open::open(path, bounds)
    }

    /// Whether damage was found in the file that lies there, which the next start replaces. Changes nothing.
    pub fn is_damaged(path: &Path) -> bool {
        damage::is_marked(path)
    }

    /// Bytes of the copy that an opening makes of a damaged file, as far as it has come; none where none is made.
    pub fn copied_bytes(path: &Path) -> Option<u64> {
        rescue::copied_bytes(path)
    }

    /// Why the file cannot be trusted any more, if damage was found that is not of one row alone. What can be read
    /// still is, and every write is refused: it would be gone, or make things worse. The next opening copies what can
    /// be read.
    pub fn damage(&self) -> Option<&str> {
        self.inner.damage.get().map(String::as_str)
    }

    /// What keeps the store from taking more, as long as it does.
    pub fn shortages(&self) -> Shortages {
        let mut refused = self.refused();
        refused.update(&self.inner.bounds, &self.counts());
        Shortages {
            damaged: self.damage().is_some(),
            disk: refused.disk,
            records: refused.record_bytes.is_some(),
            documents: refused.documents_level.is_some(),
        }
    }

    /// Writes a few bytes to a disk that refused a write, so that it is known when it takes them again.
    pub fn try_disk(&self, now_ms: u64) -> Result<(), StoreError> {
        self.write(now_ms, 0, |open| open.touch())
    }

    /// Rows that made no sense and were dropped since this was asked last, in words.
    pub fn take_dropped_rows(&self) -> Vec<String> {
        self.inner.bad_rows.take_dropped()
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

    /// The record of a peer as a provider that says best where it is reached: what it says itself goes before what this
    /// node says of it, and that before what others say. Of files from before this was noted, records that came since.
    pub fn provider_record_of(&self, peer: &PeerId, now_ms: u64) -> Result<Option<ProviderRecord>, StoreError> {
        self.read(|state| state.provider_record_of(peer, now_ms))
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

    /// Manifests and their bytes, in order, after `after`.
    pub fn manifests(&self, after: Option<&ContentId>, max: usize) -> Result<Vec<(ContentId, usize)>, StoreError> {
        self.read(|state| state.manifests(after, max))
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

    /// Whether the signature of a record that was read from here holds, as it did when it was stored. One that a bit
    /// changed which flipped is dropped by the next write: whoever were given it would trust this node no more.
    pub fn is_still_signed(&self, record: &Record) -> bool {
        let is_signed = self.inner.signed.holds(record);
        if !is_signed {
            // Where it is cannot be read now, it is found again when it is read next.
            let _ = self.read(|state| state.note_unsigned(record));
        }
        is_signed
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
        let bad_rows = Arc::clone(&self.inner.bad_rows);
        self.inner.snapshot.store(Arc::new(Snapshot::take(database, None, bad_rows)?));
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
        if let Some(why) = self.damage() {
            return Err(StoreError::Damaged(format!("nothing is written until the next start: {why}")));
        }
        writer.may_write(now_ms)?;
        let result = self.told_if_damaged(guarded(|| self.write_locked(&mut writer, now_ms, added_max, write)));
        if matches!(result, Err(StoreError::File(_))) {
            self.refused().disk = true;
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
            bad_rows: Arc::clone(&self.inner.bad_rows),
            masks: masks.clone(),
            hours: hours.clone(),
        };
        let mut batch = Batch::new(&transaction, base)?;
        // One that is not dropped now, because the write fails, is found again when it is read next.
        for bad in self.inner.bad_rows.take() {
            batch.drop_bad(&bad)?;
        }
        let result = write(&mut batch)?;
        batch.write_bytes(&before.bytes)?;
        self.refused().add(batch.refused);
        let (is_changed, hours_now) = (batch.is_changed, std::mem::take(&mut batch.hours));
        drop(batch);
        if !is_changed {
            transaction.abort()?;
            return Ok(result);
        }
        transaction.commit()?;
        self.refused().disk = false;
        self.inner.snapshot.store(Arc::new(Snapshot::take(database, Some(masks.clone()), before.bad_rows.clone())?));
        clear_dropped(&masks, &hours, &hours_now);
        Ok(result)
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.inner.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file in which damage was found is replaced when it is opened next, as it may look whole again then.
    fn told_if_damaged<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(why)) = &result
            && self.inner.damage.set(why.clone()).is_ok()
            && let Some(path) = &self.inner.path
        {
            let identity = *self.inner.identity.lock().unwrap_or_else(PoisonError::into_inner);
            // Without the note, the next start finds the damage when it comes upon it.
            let _ = damage::mark(path, identity, why);
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
            providers_per_key_max: PROVIDERS_PER_KEY_MAX,
            cache_bytes: STORE_CACHE_BYTES,
        }
    }
}
