//! Changes of provider records, of which a key has several, in the tables of the hours in which they are over.

use redb::ReadableTable as _;
use ron_types::limits::records::PROVIDERS_PER_KEY_MAX;

use super::super::snapshot::damaged;
use super::super::tables::{ProviderRow, hour_of, provider_row, provider_rows};
use super::super::{Applied, StoreError};
use super::Batch;
use crate::{CLOCK_SKEW_MS, ProviderRecord, Record, TTL_MAX_MS};

/// A row of a key, and the hour of the table that it is in.
type Place = (u32, ProviderRow);

impl Batch<'_> {
    pub(super) fn put_provider(&mut self, record: &ProviderRecord) -> Result<Applied, StoreError> {
        let until_ms = record.kept_until_ms();
        if until_ms <= self.now_ms || until_ms > self.now_ms.saturating_add(TTL_MAX_MS + CLOCK_SKEW_MS) {
            return Ok(Applied::Refused);
        }
        let row = provider_row(record);
        let places = self.places(record)?;
        let old = places.iter().find(|(_, other)| *other == row);
        if let Some((hour, _)) = old {
            if let Some(answer) = self.compare(record, *hour, &row)? {
                return Ok(answer);
            }
            self.hour(*hour)?.remove(&row)?;
        } else if places.len() >= PROVIDERS_PER_KEY_MAX {
            let Some((hour, other)) = self.weakest(record, &places)? else { return Ok(Applied::Full) };
            self.hour(hour)?.remove(&other)?;
        } else if self.is_full() {
            return Ok(Applied::Full);
        } else {
            self.counts.providers += 1;
        }
        let hour = hour_of(until_ms);
        let mut value = Vec::with_capacity(256);
        record.encode_at_key(&mut value);
        self.hour(hour)?.insert(&row, value.as_slice())?;
        self.masks.note(&record.key, hour);
        Ok(Applied::Stored)
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
