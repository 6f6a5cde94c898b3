//! Changes of provider records, of which a key has several, in the tables of the hours in which they are over.

use std::hash::{BuildHasher as _, RandomState};

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

/// Draws by which rows of a key that is full keep their places. They are secret, or keys could be made to win; and new
/// with each start, which changes nothing for the rows that have a place by then.
#[derive(Clone, Default)]
pub(in super::super) struct Draws(RandomState);

impl Draws {
    fn of(&self, row: &ProviderRow) -> u64 {
        self.0.hash_one(row)
    }

    /// Whether a row with a place gives way to one without: both are of the lower half, and its draw is the lower.
    fn gives_way(placed: u64, coming: u64) -> bool {
        placed < coming && coming < 1 << 63
    }
}

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
            None => match self.weakest(record, &row, is_own, &places)? {
                None => return Ok(Applied::KeyFull),
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

    /// The row that makes room for a record of a key that has as many as it may. What is over goes first, for anybody.
    /// What this node signed pushes out any stranger's record, and no stranger's pushes out what this node signed.
    ///
    /// Of strangers, a peer that speaks for itself pushes out one that is vouched for, or else a withdrawal, the first
    /// to end. Among those who speak for themselves keys cost nothing, so neither the first to come may keep all
    /// places, or 64 made-up keys would shut out everybody else, nor the last to come take them, or a flood of new keys
    /// would silence the old. A draw decides that nobody outside the node can foresee and that differs from node to
    /// node: half of all rows keep the place that they once have, against any flood; those of the other half give way
    /// to a row of that half with a higher draw. Who speaks for himself stays at about half of the nodes nearest to the
    /// key whoever comes later, and who comes late has a chance at the other half that nobody can make nothing.
    fn weakest(
        &mut self,
        record: &ProviderRecord,
        row: &ProviderRow,
        is_own: bool,
        places: &[Place],
    ) -> Result<Option<Place>, StoreError> {
        let may_push = is_own || (record.is_self_signed() && !record.withdraws());
        let draw = if is_own { u64::MAX } else { self.draws.of(row) };
        let mut weakest: Option<((u8, u64), Place)> = None;
        for (hour, other_row) in places {
            let other = self.provider_at(record, *hour, other_row)?;
            let until_ms = other.kept_until_ms();
            let other_draw = self.draws.of(other_row);
            let strength = match () {
                () if until_ms <= self.now_ms => (0, until_ms),
                () if !may_push || self.owner == Some(other.signer) => continue,
                () if !other.is_self_signed() => (1, until_ms),
                () if other.withdraws() => (2, until_ms),
                () if is_own || Draws::gives_way(other_draw, draw) => (3, other_draw),
                () => continue,
            };
            if weakest.as_ref().is_none_or(|(least, _)| strength < *least) {
                weakest = Some((strength, (*hour, *other_row)));
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
