//! Rows that go: a node seals epochs for ever, and remembers of the oldest only that they were.
//!
//! A row goes when it is over, its artifacts are removed, and nothing that is known could be paid again without it. Its
//! name stays as a hash, so that nobody computes the epoch anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ron_log::Class;
use ron_types::limits::rewarder::{EPOCHS_FORGOTTEN_MAX, EPOCHS_KNOWN_MAX, EPOCHS_MAX};

use super::{EpochRow, EpochStatus, Rows, SealRecord, Store, StoreError};

/// Bytes of a name that is forgotten.
const HASH_BYTES: usize = 16;
/// Bytes that a name takes in a record: its digits in quotes, and a comma.
const NAME_BYTES: u64 = 2 * HASH_BYTES as u64 + 3;
/// Names in one record.
const NAMES_MAX: usize = 1024;
/// Bytes that all rows take in the log at most before old ones go.
const ROWS_BYTES_MAX: u64 = 1 << 30;

/// What a store remembers at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    /// Epochs with artifacts.
    pub kept: usize,
    /// Epochs with a row.
    pub known: usize,
    /// Bytes of all rows in the log.
    pub rows_bytes: u64,
    /// Names of epochs whose row is gone.
    pub forgotten: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        let (kept, known, forgotten) = (EPOCHS_MAX, EPOCHS_KNOWN_MAX, EPOCHS_FORGOTTEN_MAX);
        StoreLimits { kept, known, rows_bytes: ROWS_BYTES_MAX, forgotten }
    }
}

/// Names of epochs whose rows are gone, each with the segment in which that is written.
#[derive(Default)]
pub(super) struct Forgotten(BTreeMap<[u8; HASH_BYTES], u32>);

fn hash_of(epoch: &str) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(epoch.as_bytes()).as_bytes()[..HASH_BYTES]);
    hash
}

impl Forgotten {
    /// Takes in what a record says; a name that is none is passed over.
    pub fn take(&mut self, names: &[String], segment: u32) {
        let parsed = names.iter().filter_map(|name| {
            let mut hash = [0; HASH_BYTES];
            for (byte, digits) in hash.iter_mut().zip(name.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            }
            (name.len() == 2 * HASH_BYTES).then_some(hash)
        });
        self.0.extend(parsed.map(|hash| (hash, segment)));
    }

    /// The epoch has a row again.
    pub fn forget(&mut self, epoch: &str) {
        if !self.0.is_empty() {
            self.0.remove(&hash_of(epoch));
        }
    }

    fn written(hashes: &[[u8; HASH_BYTES]]) -> SealRecord {
        let digits = |hash: &[u8; HASH_BYTES]| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        SealRecord::Forgotten { names: hashes.iter().map(digits).collect() }
    }
}

impl Rows {
    /// Whether another epoch finds room, among those with artifacts and among all rows.
    pub fn has_room(&self, limits: &StoreLimits) -> bool {
        let is_full = self.by_epoch.len() >= limits.known || self.bytes >= limits.rows_bytes;
        self.by_epoch.len() - self.removed < limits.kept && (!is_full || !self.forgettable(1, &[]).is_empty())
    }

    /// Bytes that everything known takes in the log.
    pub fn weight(&self) -> u64 {
        self.bytes + self.forgotten.0.len() as u64 * NAME_BYTES
    }

    /// The oldest rows that may go, at most so many; those that are to stay come in a list.
    fn forgettable(&self, limit: usize, stay: &[&str]) -> Vec<String> {
        let last: BTreeSet<&str> = self.last_of_policies().collect();
        let is_gone = |named: Option<&String>| named.is_none_or(|named| !self.by_epoch.contains_key(named));
        // A correction that is yet to be paid names the run of the one it corrects.
        let unpaid = self.by_epoch.values().filter(|row| !row.is_over());
        let awaited: BTreeSet<&str> = unpaid.filter_map(|row| row.corrects.as_deref()).collect();
        // A correction or a carried leftover is known for as long as what it was paid from.
        let may_go = |row: &&Arc<EpochRow>| {
            let is_free = is_gone(row.corrects.as_ref()) && is_gone(row.carried_from.as_ref());
            let epoch = row.epoch.as_str();
            let is_named = last.contains(epoch) || awaited.contains(epoch) || stay.contains(&epoch);
            row.is_over() && row.removed_by.is_some() && is_free && !is_named
        };
        let mut oldest: Vec<(u64, &str)> =
            self.by_epoch.values().filter(may_go).map(|row| (row.settled_as.unwrap_or(0), &*row.epoch)).collect();
        oldest.sort_unstable();
        oldest.into_iter().take(limit).map(|(_, epoch)| epoch.to_owned()).collect()
    }

    /// The epoch of each policy that was settled last, with which the release gate compares the next.
    pub fn last_of_policies(&self) -> impl Iterator<Item = &str> {
        let mut last: BTreeMap<&str, &EpochRow> = BTreeMap::new();
        let settled = self.by_epoch.values().filter(|row| row.status == EpochStatus::Settled);
        for row in settled.filter(|row| row.corrects.is_none() && row.settled_as.is_some()) {
            let newest = last.entry(&row.policy).or_insert(row);
            *newest = if row.settled_as > newest.settled_as { row } else { newest };
        }
        last.into_values().map(|row| row.epoch.as_str())
    }

    /// Lets go of the rows whose names are forgotten: once after all records are read, because a name that is forgotten
    /// has no row after that.
    pub fn drop_forgotten(&mut self) {
        if !self.forgotten.0.is_empty() {
            let is_named = |epoch: &&String| self.forgotten.0.contains_key(&hash_of(epoch));
            let gone: Vec<String> = self.by_epoch.keys().filter(is_named).cloned().collect();
            self.drop_rows(&gone);
        }
    }

    fn drop_rows(&mut self, epochs: &[String]) {
        for epoch in epochs {
            self.removed -= usize::from(self.is_removed(epoch));
            self.by_epoch.remove(epoch);
            let place = self.places.remove(epoch);
            self.bytes -= place.map_or(0, |place| u64::from(place.bytes));
        }
    }
}

impl Store {
    /// Whether this epoch was sealed so long ago that no row of it is left.
    pub fn is_forgotten(&self, epoch: &str) -> bool {
        self.rows().forgotten.0.contains_key(&hash_of(epoch))
    }

    /// Lets the oldest rows go if there are as many as there may be, but for the one that this row comes in the place
    /// of and those that it names. The caller holds the right to write.
    pub(super) fn forget_oldest(&self, coming: &EpochRow) -> Result<(), StoreError> {
        let named = [coming.corrects.as_deref(), coming.carried_from.as_deref()];
        let stay: Vec<&str> = named.into_iter().flatten().chain([coming.epoch.as_str()]).collect();
        let names = {
            let rows = self.rows();
            let is_full = rows.by_epoch.len() >= self.limits.known || rows.bytes >= self.limits.rows_bytes;
            if is_full { rows.forgettable(NAMES_MAX.min(self.limits.known / 4 + 1), &stay) } else { Vec::new() }
        };
        if names.is_empty() {
            return Ok(());
        }
        let record = Forgotten::written(&names.iter().map(|name| hash_of(name)).collect::<Vec<_>>());
        let (place, _) = self.append(Class::Settle, &record)?;
        self.log.flush()?;
        let mut rows = self.rows();
        rows.take(&record, place);
        rows.drop_rows(&names);
        tracing::info!(epochs = names.len(), "the rows of the oldest epochs are gone; their names are known");
        Ok(())
    }

    /// Writes again which names are forgotten, as far as only old segments say so; the oldest go when there are too
    /// many.
    pub(super) fn copy_forgotten(&self, up_to_segment: u32) -> Result<(), StoreError> {
        let here: Vec<[u8; HASH_BYTES]> = {
            let mut rows = self.rows();
            let here = rows.forgotten.0.iter().filter(|(_, segment)| **segment <= up_to_segment);
            let mut here: Vec<[u8; HASH_BYTES]> = here.map(|(hash, _)| *hash).collect();
            let too_many = rows.forgotten.0.len().saturating_sub(self.limits.forgotten).min(here.len());
            for hash in here.drain(..too_many) {
                rows.forgotten.0.remove(&hash);
            }
            here
        };
        for hashes in here.chunks(NAMES_MAX) {
            let (place, _) = self.append(Class::Copy, &Forgotten::written(hashes))?;
            self.rows().forgotten.0.extend(hashes.iter().map(|hash| (*hash, place.segment)));
        }
        Ok(())
    }
}
