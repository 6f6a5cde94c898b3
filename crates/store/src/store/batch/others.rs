//! Changes of name, peer and IPNS records, of which each has one row.

use redb::ReadableTable as _;

use super::super::snapshot::damaged;
use super::super::tables::{self, OtherRow, expiring_row, hour_of, other_row, split_end, with_end};
use super::super::{Applied, StoreError};
use super::Batch;
use crate::{Record, TTL_MAX_MS};

impl Batch<'_> {
    pub(super) fn put_other(&mut self, record: &Record) -> Result<Applied, StoreError> {
        // An end of life in a hundred years is no reason to keep a record of others so long.
        let until_ms = record.kept_until_ms().min(self.now_ms.saturating_add(TTL_MAX_MS));
        if until_ms <= self.now_ms {
            return Ok(Applied::Refused);
        }
        let row = other_row(record.kind(), &record.key());
        let old = match self.others.get(&row)? {
            Some(value) => {
                let (old_until_ms, old) = split_end(value.value())?;
                Some((old_until_ms, Record::decode(old).map_err(damaged)?))
            }
            None => None,
        };
        match &old {
            None if self.is_full() => return Ok(Applied::Full),
            None => self.counts.others += 1,
            Some((old_until_ms, old)) => {
                let is_live = *old_until_ms > self.now_ms;
                if is_live && old == record {
                    return self.keep_longer(&row, *old_until_ms, until_ms, record);
                }
                if is_live && !record.supersedes(old) {
                    return Ok(Applied::Older);
                }
                self.expiring.remove(&expiring_row(hour_of(*old_until_ms), &row))?;
            }
        }
        self.expiring.insert(&expiring_row(hour_of(until_ms), &row), ())?;
        self.others.insert(&row, with_end(until_ms, &record.encode()).as_slice())?;
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
            self.others.insert(row, with_end(until_ms, &record.encode()).as_slice())?;
        }
        Ok(Applied::Same)
    }
}
