//! The end of what is over.

use redb::{ReadableTable as _, ReadableTableMetadata as _};
use ron_types::limits::records::EXPIRED_AT_ONCE_MAX;

use super::super::bad_rows::decode_other;
use super::super::record_bytes::other_bytes;
use super::super::tables::{
    self, ExpiringRow, KIND_DOCUMENT, KIND_PEER_PLACE, KIND_REMEMBERED, OtherRow, PeerPlace, Providers, expiring_row,
    hour_name, hour_of,
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
        let (mut dropped, mut looked_at) = (0, 0);
        let end = expiring_row(current, &[0; 33]);
        while let Some(row) = self.first_expiring()?.filter(|row| *row < end) {
            if looked_at == EXPIRED_AT_ONCE_MAX {
                return Ok(Expired { dropped, has_more: true });
            }
            self.is_changed = true;
            self.expiring.remove(&row)?;
            looked_at += 1;
            dropped += usize::from(self.drop_other(&row)?);
        }
        Ok(Expired { dropped, has_more: false })
    }

    /// Drops what was noted of a peer, unless a record that lasts longer was noted since.
    fn drop_peer_place(&mut self, noted: &ExpiringRow) -> Result<(), StoreError> {
        let (hour, row) = noted.split_first_chunk::<4>().expect("a row with an hour before it is longer than an hour");
        let peer: &[u8; 32] = row[1..].try_into().expect("and what follows is a kind and a key");
        let place = self.peer_places.get(peer)?.and_then(|value| PeerPlace::decode(value.value()));
        if place.is_none_or(|place| place.hour <= u32::from_be_bytes(*hour)) {
            self.peer_places.remove(peer)?;
        }
        Ok(())
    }

    fn first_expiring(&self) -> Result<Option<ExpiringRow>, StoreError> {
        Ok(self.expiring.first()?.map(|(row, _)| *row.value()))
    }

    /// Drops what was noted for an hour, if its time is over; says whether it was a record or an answer, and went.
    fn drop_other(&mut self, row: &ExpiringRow) -> Result<bool, StoreError> {
        match row[4] {
            KIND_DOCUMENT => return self.drop_document(row).map(|()| false),
            KIND_PEER_PLACE => return self.drop_peer_place(row).map(|()| false),
            _ => {}
        }
        let (hour, row) = row.split_first_chunk::<4>().expect("a row with an hour before it is longer than an hour");
        let row: &OtherRow = row.try_into().expect("and what follows is the row");
        if row[0] == KIND_REMEMBERED {
            let (_, request) = row.split_last_chunk().expect("a row ends with a key");
            let was_there = self.remembered.remove(request)?.is_some();
            self.counts.remembered = self.counts.remembered.saturating_sub(usize::from(was_there));
            return Ok(was_there);
        }
        let Some(value) = self.others.get(row)?.map(|value| value.value().to_vec()) else { return Ok(false) };
        let record = decode_other(row, &value);
        // A row that took the place of a damaged one lasts longer than what was noted of that.
        if record.as_ref().is_some_and(|(until_ms, _)| hour_of(*until_ms) > u32::from_be_bytes(*hour)) {
            return Ok(false);
        }
        self.others.remove(row)?;
        let bytes = other_bytes(&value);
        self.counts.others = self.counts.others.saturating_sub(1);
        self.bytes.remove_other(bytes);
        if let Some((_, Record::Name(name))) = record {
            self.labels.remove(tables::label_row(&name.owner.0, &name.label).as_slice())?;
        }
        Ok(true)
    }
}
