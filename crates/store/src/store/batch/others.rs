//! Changes of name, peer and IPNS records, of which each has one row.

use redb::ReadableTable as _;

use super::super::record_bytes::other_bytes;
use super::super::snapshot::damaged;
use super::super::tables::{self, OtherRow, expiring_row, hour_of, other_row, split_end, with_end};
use super::super::{Applied, StoreError};
use super::Batch;
use crate::{Record, TTL_MAX_MS};

impl Batch<'_> {
    pub(super) fn put_other(&mut self, record: &Record, is_own: bool) -> Result<Applied, StoreError> {
        // An end of life in a hundred years is no reason to keep a record of others so long.
        let until_ms = record.kept_until_ms().min(self.now_ms.saturating_add(TTL_MAX_MS));
        if until_ms <= self.now_ms {
            return Ok(Applied::Refused);
        }
        let row = other_row(record.kind(), &record.key());
        let old = match self.others.get(&row)? {
            Some(value) => {
                let (old_until_ms, old) = split_end(value.value())?;
                Some((old_until_ms, Record::decode(old).map_err(damaged)?, other_bytes(value.value())))
            }
            None => None,
        };
        if let Some((old_until_ms, old, _)) = &old
            && *old_until_ms > self.now_ms
        {
            if old == record {
                return self.keep_longer(&row, *old_until_ms, until_ms, record);
            }
            if !record.supersedes(old) {
                return Ok(Applied::Older);
            }
        }
        let value = with_end(until_ms, &record.encode());
        if !self.has_room(other_bytes(&value), old.as_ref().map(|(_, _, bytes)| *bytes), is_own) {
            return Ok(Applied::Full);
        }
        match old {
            None => self.counts.others += 1,
            Some((old_until_ms, ..)) => drop(self.expiring.remove(&expiring_row(hour_of(old_until_ms), &row))?),
        }
        self.expiring.insert(&expiring_row(hour_of(until_ms), &row), ())?;
        self.insert_other(&row, &value)?;
        if let Record::Name(name) = record {
            self.labels.insert(tables::label_row(&name.owner.0, &name.label).as_slice(), ())?;
        }
        Ok(Applied::Stored)
    }

    /// A record that comes again is kept from now on, if it was kept for less long than it says.
    fn keep_longer(
        &mut self,
        row: &OtherRow,
        old_until_ms: u64,
        until_ms: u64,
        record: &Record,
    ) -> Result<Applied, StoreError> {
        if hour_of(until_ms) > hour_of(old_until_ms) {
            self.is_changed = true;
            self.expiring.remove(&expiring_row(hour_of(old_until_ms), row))?;
            self.expiring.insert(&expiring_row(hour_of(until_ms), row), ())?;
            self.insert_other(row, &with_end(until_ms, &record.encode()))?;
        }
        Ok(Applied::Same)
    }

    fn insert_other(&mut self, row: &OtherRow, value: &[u8]) -> Result<(), StoreError> {
        let replaced = self.others.insert(row, value)?.map_or(0, |old| other_bytes(old.value()));
        self.bytes.add_other(other_bytes(value));
        self.bytes.remove_other(replaced);
        Ok(())
    }
}
