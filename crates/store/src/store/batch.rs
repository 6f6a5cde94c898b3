//! One write transaction: changes are applied to open tables, and all of them are committed or none.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use redb::{ReadableTable as _, Table, WriteTransaction};
use ron_types::limits::records::{
    MANIFEST_BYTES_MAX, PINS_MAX, RECORDS_RESERVE_SHARE, REMEMBERED_BYTES_MAX, REMEMBERED_MAX,
};

use super::masks::Masks;
use super::record_bytes::RecordBytes;
use super::tables::{
    self, ExpiringRow, KIND_REMEMBERED, OtherRow, ProviderRow, Providers, expiring_row, hour_name, hour_of, kind_row,
    split_end, with_end,
};
use super::{Applied, Bounds, Change, Counts, StoreError};
use crate::{ContentId, PublicKey, Record, Subject, TTL_MAX_MS};

mod expire;
mod kept;
mod others;
mod providers;

pub(super) use providers::Draws;

/// A table whose rows begin with `K`.
type Rows<'a, K, V> = Table<'a, &'static K, V>;
type ProviderRows<'a> = Rows<'a, ProviderRow, &'static [u8]>;

/// Open tables of a write transaction, with how much is in them now.
pub(super) struct Batch<'a> {
    transaction: &'a WriteTransaction,
    bounds: Bounds,
    owner: Option<PublicKey>,
    draws: Draws,
    now_ms: u64,
    /// Whether there is something to commit.
    pub(super) is_changed: bool,
    counts: Counts,
    bytes: RecordBytes,
    masks: Arc<Masks>,
    /// Hours that have a table.
    pub(super) hours: Vec<u32>,
    /// Of these, the tables that this batch has opened.
    open_hours: BTreeMap<u32, ProviderRows<'a>>,
    meta: Table<'a, &'static str, u64>,
    others: Rows<'a, OtherRow, &'static [u8]>,
    expiring: Rows<'a, ExpiringRow, ()>,
    labels: Rows<'a, [u8], ()>,
    provided: Rows<'a, [u8; 32], &'static [u8]>,
    named: Table<'a, &'static str, &'static [u8]>,
    manifests: Rows<'a, [u8], &'static [u8]>,
    pins: Table<'a, &'static str, u64>,
    remembered: Rows<'a, [u8; 32], &'static [u8]>,
}

/// What a batch starts from.
pub(super) struct Base {
    pub(super) bounds: Bounds,
    /// Key of the node whose store it is, if it was said.
    pub(super) owner: Option<PublicKey>,
    pub(super) draws: Draws,
    pub(super) now_ms: u64,
    pub(super) counts: Counts,
    pub(super) bytes: RecordBytes,
    pub(super) masks: Arc<Masks>,
    pub(super) hours: Vec<u32>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(transaction: &'a WriteTransaction, base: Base) -> Result<Self, StoreError> {
        let Base { bounds, owner, draws, now_ms, counts, bytes, masks, hours } = base;
        Ok(Batch {
            transaction,
            bounds,
            owner,
            draws,
            now_ms,
            is_changed: false,
            counts,
            bytes,
            masks,
            hours,
            open_hours: BTreeMap::new(),
            meta: transaction.open_table(tables::META)?,
            others: transaction.open_table(tables::OTHERS)?,
            expiring: transaction.open_table(tables::EXPIRING)?,
            labels: transaction.open_table(tables::LABELS)?,
            provided: transaction.open_table(tables::PROVIDED)?,
            named: transaction.open_table(tables::NAMED)?,
            manifests: transaction.open_table(tables::MANIFESTS)?,
            pins: transaction.open_table(tables::PINS)?,
            remembered: transaction.open_table(tables::REMEMBERED)?,
        })
    }

    pub(super) fn apply(&mut self, change: &Change) -> Result<Applied, StoreError> {
        let applied = self.apply_one(change)?;
        self.is_changed |= applied == Applied::Stored;
        Ok(applied)
    }

    pub(super) fn apply_update(&mut self, update: &[Change]) -> Result<Vec<Applied>, StoreError> {
        let Some((first, rest)) = update.split_first() else { return Ok(Vec::new()) };
        let of_first = self.apply(first)?;
        let is_withdrawal = matches!(first, Change::Put(record) | Change::PutOwn(record) if record.withdraws());
        let is_done = is_withdrawal || matches!(of_first, Applied::Stored | Applied::Same);
        let mut applied = vec![of_first];
        for change in rest {
            applied.push(if is_done { self.apply(change)? } else { Applied::Refused });
        }
        Ok(applied)
    }

    fn apply_one(&mut self, change: &Change) -> Result<Applied, StoreError> {
        match change {
            Change::Put(record) => self.put(record, false),
            Change::PutOwn(record) => self.put(record, true),
            Change::Provide(provided) => self.provide(provided),
            Change::Withdraw(key) => self.withdraw(key),
            Change::KeepName { label, value } => self.keep_name(label, value),
            Change::DropName(label) => self.drop_name(label),
            Change::Renew(record) => self.renew(record),
            Change::Manifest { content, bytes } => self.put_manifest(content, bytes),
            Change::Forget(content) => self.forget(content),
            Change::Pin(subject) => self.pin(subject),
            Change::Unpin(subject) => self.unpin(subject),
            Change::Remember { request, answer, until_ms } => self.remember(request, answer, *until_ms),
        }
    }

    /// Writes down the bytes of records, once for the whole batch.
    pub(super) fn write_bytes(&mut self, before: &RecordBytes) -> Result<(), StoreError> {
        self.bytes.write_changes(before, &mut self.meta)
    }

    /// Keeps a record; one of this node's own may use all room there is, and at its key goes before strangers.
    fn put(&mut self, record: &Record, is_own: bool) -> Result<Applied, StoreError> {
        match record {
            Record::Provider(record) => self.put_provider(record, is_own),
            record => self.put_other(record, is_own),
        }
    }

    /// Whether there is room for a record of so many bytes, if it takes the place of one of so many.
    fn has_room(&self, bytes: usize, replaced: Option<usize>, is_own: bool) -> bool {
        let max = |all: usize| if is_own { all } else { all - all / RECORDS_RESERVE_SHARE };
        let records = self.counts.providers + self.counts.others;
        let is_within_count = replaced.is_some() || records < max(self.bounds.records_max);
        let freed = replaced.unwrap_or_default();
        // What does not grow stays welcome in a full store: records are renewed, and withdrawn, as long as they last.
        let grows_beyond =
            bytes > freed && self.bytes.total().saturating_sub(freed) + bytes > max(self.bounds.records_bytes_max);
        is_within_count && !grows_beyond
    }

    /// The table of an hour, which is made if there is none.
    fn hour(&mut self, hour: u32) -> Result<&mut ProviderRows<'a>, StoreError> {
        match self.open_hours.entry(hour) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                if let Err(at) = self.hours.binary_search(&hour) {
                    self.hours.insert(at, hour);
                }
                Ok(entry.insert(self.transaction.open_table(Providers::new(&hour_name(hour)))?))
            }
        }
    }

    fn put_manifest(&mut self, content: &ContentId, bytes: &[u8]) -> Result<Applied, StoreError> {
        if bytes.len() > MANIFEST_BYTES_MAX || content.verifies(bytes) != Some(true) {
            return Ok(Applied::Refused);
        }
        let row = content.multihash_bytes();
        if self.manifests.get(row.as_slice())?.is_some() {
            return Ok(Applied::Same);
        }
        if self.counts.manifests_bytes + bytes.len() > self.bounds.manifests_bytes_max {
            return Ok(Applied::Full);
        }
        self.manifests.insert(row.as_slice(), bytes)?;
        self.counts.manifests += 1;
        self.set_manifests_bytes(self.counts.manifests_bytes + bytes.len())?;
        Ok(Applied::Stored)
    }

    fn forget(&mut self, content: &ContentId) -> Result<Applied, StoreError> {
        let row = content.multihash_bytes();
        let removed = self.manifests.remove(row.as_slice())?.map(|bytes| bytes.value().len());
        let Some(bytes) = removed else { return Ok(Applied::Same) };
        self.counts.manifests -= 1;
        self.set_manifests_bytes(self.counts.manifests_bytes.saturating_sub(bytes))?;
        Ok(Applied::Stored)
    }

    fn set_manifests_bytes(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.counts.manifests_bytes = bytes;
        self.meta.insert(tables::META_MANIFESTS_BYTES, bytes as u64)?;
        Ok(())
    }

    fn pin(&mut self, subject: &Subject) -> Result<Applied, StoreError> {
        let text = subject.to_string();
        if self.pins.get(text.as_str())?.is_some() {
            return Ok(Applied::Same);
        }
        if self.counts.pins >= PINS_MAX {
            return Ok(Applied::Full);
        }
        self.pins.insert(text.as_str(), self.now_ms)?;
        self.counts.pins += 1;
        Ok(Applied::Stored)
    }

    fn unpin(&mut self, subject: &Subject) -> Result<Applied, StoreError> {
        if self.pins.remove(subject.to_string().as_str())?.is_none() {
            return Ok(Applied::Same);
        }
        self.counts.pins -= 1;
        Ok(Applied::Stored)
    }

    /// The first answer to a request stays: a second one would be that of a request done twice.
    fn remember(&mut self, request: &[u8; 32], answer: &[u8], until_ms: u64) -> Result<Applied, StoreError> {
        let until_ms = until_ms.min(self.now_ms.saturating_add(TTL_MAX_MS));
        if until_ms <= self.now_ms || answer.len() > REMEMBERED_BYTES_MAX {
            return Ok(Applied::Refused);
        }
        let old_until_ms = match self.remembered.get(request)? {
            Some(value) => Some(split_end(value.value())?.0),
            None => None,
        };
        let row = kind_row(KIND_REMEMBERED, request);
        match old_until_ms {
            Some(old_until_ms) if old_until_ms > self.now_ms => return Ok(Applied::Same),
            Some(old_until_ms) => {
                self.expiring.remove(&expiring_row(hour_of(old_until_ms), &row))?;
            }
            None if self.counts.remembered >= REMEMBERED_MAX => return Ok(Applied::Full),
            None => self.counts.remembered += 1,
        }
        self.expiring.insert(&expiring_row(hour_of(until_ms), &row), ())?;
        self.remembered.insert(request, with_end(until_ms, answer).as_slice())?;
        Ok(Applied::Stored)
    }
}
