//! Changes of provider records, of which a key has several, in the tables of the hours in which they are over.

use redb::ReadableTable as _;
use ron_types::limits::records::PROVIDERS_PER_KEY_MAX;

use super::super::record_bytes::provider_bytes;
use super::super::snapshot::damaged;
use super::super::tables::{ProviderRow, hour_of, provider_row, provider_rows};
use super::super::{Applied, StoreError};
use super::Batch;
use crate::{CLOCK_SKEW_MS, ProviderRecord, Record, TTL_MAX_MS};

/// A row of a key, and the hour of the table that it is in.
type Place = (u32, ProviderRow);

impl Batch<'_> {
    pub(super) fn put_provider(&mut self, record: &ProviderRecord, is_own: bool) -> Result<Applied, StoreError> {
        let until_ms = record.kept_until_ms();
        if until_ms <= self.now_ms || until_ms > self.now_ms.saturating_add(TTL_MAX_MS + CLOCK_SKEW_MS) {
            return Ok(Applied::Refused);
        }
        let row = provider_row(record);
        let places = self.places(record)?;
        let old = places.iter().find(|(_, other)| *other == row).copied();
        let replaced = match old {
            Some((hour, _)) => match self.compare(record, hour, &row)? {
                Some(answer) => return Ok(answer),
                None => old,
            },
            None if places.len() < PROVIDERS_PER_KEY_MAX => None,
            None => match self.weakest(record, &places)? {
                None => return Ok(Applied::Full),
                weakest => weakest,
            },
        };
        let mut value = Vec::with_capacity(256);
        record.encode_at_key(&mut value);
        let bytes = provider_bytes(&value);
        let replaced_bytes = replaced.map(|place| self.bytes_at(place)).transpose()?;
        if !self.has_room(bytes, replaced_bytes, is_own) {
            return Ok(Applied::Full);
        }
        match replaced {
            None => self.counts.providers += 1,
            Some(place) => self.remove_provider(place)?,
        }
        let hour = hour_of(until_ms);
        self.hour(hour)?.insert(&row, value.as_slice())?;
        self.bytes.add_provider(hour, bytes);
        self.masks.note(&record.key, hour);
        Ok(Applied::Stored)
    }

    fn bytes_at(&mut self, (hour, row): Place) -> Result<usize, StoreError> {
        Ok(self.hour(hour)?.get(&row)?.map_or(0, |value| provider_bytes(value.value())))
    }

    fn remove_provider(&mut self, (hour, row): Place) -> Result<(), StoreError> {
        let removed = self.hour(hour)?.remove(&row)?.map_or(0, |value| provider_bytes(value.value()));
        self.bytes.remove_provider(hour, removed);
        Ok(())
    }

    /// All rows of the record's key.
    fn places(&mut self, record: &ProviderRecord) -> Result<Vec<Place>, StoreError> {
        let mut places = Vec::new();
        let (first, last) = provider_rows(&record.key);
        let masks = self.masks.clone();
        for at in 0..self.hours.len() {
            let hour = self.hours[at];
            if masks.may_have(&record.key, hour) {
                for row in self.hour(hour)?.range::<&ProviderRow>(&first..=&last)? {
                    places.push((hour, *row?.0.value()));
                }
            }
        }
        Ok(places)
    }

    /// What a record comes to that finds another in its row; `None` if it takes its place.
    fn compare(
        &mut self,
        record: &ProviderRecord,
        hour: u32,
        row: &ProviderRow,
    ) -> Result<Option<Applied>, StoreError> {
        let old = self.provider_at(record, hour, row)?;
        if old.kept_until_ms() <= self.now_ms {
            return Ok(None);
        }
        if old == *record {
            return Ok(Some(Applied::Same));
        }
        let wins = Record::Provider(record.clone()).supersedes(&Record::Provider(old));
        Ok((!wins).then_some(Applied::Older))
    }

    /// The row that makes room for a record of a key that has as many as it may. What is over goes first. A peer that
    /// speaks for itself pushes out a peer that is vouched for, or else a withdrawal, the first to end; nobody pushes
    /// out a peer that speaks for itself, or a flood of new keys would silence the old.
    fn weakest(&mut self, record: &ProviderRecord, places: &[Place]) -> Result<Option<Place>, StoreError> {
        let may_push = record.is_self_signed() && !record.withdraws();
        let mut weakest: Option<((u8, u64), Place)> = None;
        for (hour, row) in places {
            let other = self.provider_at(record, *hour, row)?;
            let until_ms = other.kept_until_ms();
            let strength = match () {
                () if until_ms <= self.now_ms => 0,
                () if !may_push => continue,
                () if !other.is_self_signed() => 1,
                () if other.withdraws() => 2,
                () => continue,
            };
            if weakest.as_ref().is_none_or(|(least, _)| (strength, until_ms) < *least) {
                weakest = Some(((strength, until_ms), (*hour, *row)));
            }
        }
        Ok(weakest.map(|(_, place)| place))
    }

    fn provider_at(
        &mut self,
        record: &ProviderRecord,
        hour: u32,
        row: &ProviderRow,
    ) -> Result<ProviderRecord, StoreError> {
        let value = self.hour(hour)?.get(row)?;
        let value = value.ok_or_else(|| StoreError::Damaged("a row is gone that was just read".to_owned()))?;
        ProviderRecord::decode_at(record.key, value.value()).map_err(damaged)
    }
}
