//! The end of what is over.

use redb::{ReadableTable as _, ReadableTableMetadata as _};
use ron_types::limits::records::EXPIRED_AT_ONCE_MAX;

use super::super::record_bytes::other_bytes;
use super::super::snapshot::damaged;
use super::super::tables::{
    self, ExpiringRow, KIND_REMEMBERED, Providers, expiring_row, hour_name, hour_of, split_end,
};
use super::super::{Expired, StoreError};
use super::Batch;
use crate::Record;

impl Batch<'_> {
    /// Drops the tables of all hours that are over, and of what else was over in them as much as one transaction may.
    pub(in crate::store) fn expire(&mut self) -> Result<Expired, StoreError> {
        let current = hour_of(self.now_ms);
        let over: Vec<u32> = self.hours.iter().copied().filter(|hour| *hour < current).collect();
        self.hours.retain(|hour| *hour >= current);
        self.is_changed |= !over.is_empty();
        let Expired { mut dropped, has_more } = self.expire_others(current)?;
        for hour in over {
            let table = match self.open_hours.remove(&hour) {
                Some(table) => table,
                None => self.transaction.open_table(Providers::new(&hour_name(hour)))?,
            };
            let rows = table.len()? as usize;
            self.transaction.delete_table(table)?;
            self.counts.providers -= rows.min(self.counts.providers);
            self.bytes.drop_hour(hour);
            dropped += rows;
        }
        Ok(Expired { dropped, has_more })
    }

    fn expire_others(&mut self, current: u32) -> Result<Expired, StoreError> {
        let mut dropped = 0;
        let end = expiring_row(current, &[0; 33]);
        while let Some(row) = self.first_expiring()?.filter(|row| *row < end) {
            if dropped == EXPIRED_AT_ONCE_MAX {
                return Ok(Expired { dropped, has_more: true });
            }
            self.is_changed = true;
            self.expiring.remove(&row)?;
            self.drop_other(&row)?;
            dropped += 1;
        }
        Ok(Expired { dropped, has_more: false })
    }

    fn first_expiring(&self) -> Result<Option<ExpiringRow>, StoreError> {
        Ok(self.expiring.first()?.map(|(row, _)| *row.value()))
    }

    fn drop_other(&mut self, row: &ExpiringRow) -> Result<(), StoreError> {
        let (_, row) = row.split_last_chunk().expect("a row with an hour before it is longer than a row");
        if row[0] == KIND_REMEMBERED {
            let (_, request) = row.split_last_chunk().expect("a row ends with a key");
            let was_there = self.remembered.remove(request)?.is_some();
            self.counts.remembered -= usize::from(was_there);
            return Ok(());
        }
        let (record, bytes) = match self.others.remove(row)? {
            Some(value) => {
                let value = value.value();
                (Record::decode(split_end(value)?.1).map_err(damaged)?, other_bytes(value))
            }
            None => return Ok(()),
        };
        self.counts.others -= 1;
        self.bytes.remove_other(bytes);
        if let Record::Name(name) = record {
            self.labels.remove(tables::label_row(&name.owner.0, &name.label).as_slice())?;
        }
        Ok(())
    }
}
