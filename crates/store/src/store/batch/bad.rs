//! The end of rows that make no sense.

use redb::ReadableTable as _;

use super::super::bad_rows::{BadRow, decode_other, decode_provider};
use super::super::record_bytes::other_bytes;
use super::super::tables::{OtherRow, document_of_row, expiring_row, hour_of, split_end};
use super::super::{Provided, StoreError};
use super::Batch;
use crate::{ContentId, Record, Subject};

impl Batch<'_> {
    /// Drops a row, if it still makes no sense: it may have been written anew since it was read. Says whether it did.
    pub(in crate::store) fn drop_bad(&mut self, bad: &BadRow) -> Result<bool, StoreError> {
        let is_dropped = match bad {
            BadRow::Provider(hour, row) if self.hours.contains(hour) => {
                let is_bad = |value: &[u8]| decode_provider(row, value).is_none_or(|record| record.verify().is_err());
                let is_dropped = self.hour(*hour)?.get(row)?.is_some_and(|value| is_bad(value.value()));
                if is_dropped {
                    self.crowd = None;
                    self.remove_provider((*hour, *row))?;
                    self.counts.providers = self.counts.providers.saturating_sub(1);
                }
                is_dropped
            }
            BadRow::Provider(..) => false,
            BadRow::Other(row) => self.drop_other_if(row, |known| known.is_none_or(|record| !record.is_signed()))?,
            BadRow::Label(row) => self.labels.remove(row.as_slice())?.is_some(),
            BadRow::Provided(key) => {
                let is_bad = self.provided.get(key)?.is_some_and(|value| Provided::decode(value.value()).is_err());
                if is_bad {
                    self.provided.remove(key)?;
                    self.counts.provided = self.counts.provided.saturating_sub(1);
                }
                is_bad
            }
            BadRow::Named(label) => {
                let is_bad = |value: &[u8]| ContentId::from_cid_bytes(value).is_err();
                let is_bad = self.named.get(label.as_str())?.is_some_and(|value| is_bad(value.value()));
                if is_bad {
                    self.named.remove(label.as_str())?;
                    self.counts.named = self.counts.named.saturating_sub(1);
                }
                is_bad
            }
            BadRow::Manifest(row) => {
                let is_whole = |value: &[u8]| document_of_row(row).is_some_and(|id| id.verifies(value) == Some(true));
                let is_bad = self.manifests.get(row.as_slice())?.is_some_and(|value| !is_whole(value.value()));
                if is_bad {
                    self.remove_manifest(row)?;
                }
                is_bad
            }
            BadRow::Pin(text) => {
                let is_bad = text.parse::<Subject>().is_err() && self.pins.remove(text.as_str())?.is_some();
                self.counts.pins = self.counts.pins.saturating_sub(usize::from(is_bad));
                is_bad
            }
            BadRow::Remembered(request) => {
                let is_bad = self.remembered.get(request)?.is_some_and(|value| split_end(value.value()).is_err());
                if is_bad {
                    self.remembered.remove(request)?;
                    self.counts.remembered = self.counts.remembered.saturating_sub(1);
                }
                is_bad
            }
        };
        if is_dropped {
            self.is_changed = true;
            self.bad_rows.dropped(bad);
        }
        Ok(is_dropped)
    }

    /// Drops a name, peer or IPNS record that is bad; `is_bad` is given none of one that makes no sense. The label of a
    /// name stays, and leads to nothing.
    pub(super) fn drop_other_if(
        &mut self,
        row: &OtherRow,
        is_bad: impl FnOnce(Option<Record>) -> bool,
    ) -> Result<bool, StoreError> {
        let Some(value) = self.others.get(row)?.map(|value| value.value().to_vec()) else { return Ok(false) };
        if !is_bad(decode_other(row, &value).map(|(_, record)| record)) {
            return Ok(false);
        }
        if let Ok((until_ms, _)) = split_end(&value) {
            self.expiring.remove(&expiring_row(hour_of(until_ms), row))?;
        }
        self.others.remove(row)?;
        self.counts.others = self.counts.others.saturating_sub(1);
        self.bytes.remove_other(other_bytes(&value));
        Ok(true)
    }
}
