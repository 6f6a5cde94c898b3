//! What this node itself says and goes on saying: content that it provides, and names of its own.

use redb::ReadableTable as _;
use ron_types::limits::records::PINS_MAX;

use super::super::snapshot::damaged;
use super::super::{Applied, Provided, StoreError};
use super::Batch;
use crate::name::is_label;
use crate::{ContentId, Key, Record};

impl Batch<'_> {
    pub(super) fn provide(&mut self, provided: &Provided) -> Result<Applied, StoreError> {
        let (key, value) = (provided.content.key(), provided.encode());
        if Provided::decode(&value).is_err() {
            return Ok(Applied::Refused);
        }
        let old = self.provided.get(&key.0)?.map(|old| old.value() == value);
        match old {
            Some(true) => return Ok(Applied::Same),
            Some(false) => {}
            None if self.counts.provided >= PINS_MAX => return Ok(Applied::Full),
            None => self.counts.provided += 1,
        }
        self.provided.insert(&key.0, value.as_slice())?;
        Ok(Applied::Stored)
    }

    pub(super) fn withdraw(&mut self, key: &Key) -> Result<Applied, StoreError> {
        if self.provided.remove(&key.0)?.is_none() {
            return Ok(Applied::Same);
        }
        self.counts.provided -= 1;
        Ok(Applied::Stored)
    }

    pub(super) fn keep_name(&mut self, label: &str, value: &ContentId) -> Result<Applied, StoreError> {
        if !is_label(label) {
            return Ok(Applied::Refused);
        }
        match self.named_value(label)? {
            Some(known) if known == *value => return Ok(Applied::Same),
            Some(_) => {}
            None if self.counts.named >= PINS_MAX => return Ok(Applied::Full),
            None => self.counts.named += 1,
        }
        self.named.insert(label, value.cid_bytes().as_slice())?;
        Ok(Applied::Stored)
    }

    pub(super) fn drop_name(&mut self, label: &str) -> Result<Applied, StoreError> {
        if self.named.remove(label)?.is_none() {
            return Ok(Applied::Same);
        }
        self.counts.named -= 1;
        Ok(Applied::Stored)
    }

    /// A withdrawal that was written since the record was signed has an older number, and yet it stands: whether to
    /// renew is decided here, where writes have an order.
    pub(super) fn renew(&mut self, record: &Record) -> Result<Applied, StoreError> {
        let is_kept = match record {
            Record::Provider(record) => self.provided.get(&record.key.0)?.is_some(),
            Record::Name(record) => self.named_value(&record.label)? == Some(record.value),
            Record::Peer(_) | Record::Ipns(_) => false,
        };
        if is_kept { self.put(record, true) } else { Ok(Applied::Refused) }
    }

    fn named_value(&self, label: &str) -> Result<Option<ContentId>, StoreError> {
        let value = self.named.get(label)?;
        value.map(|value| ContentId::from_cid_bytes(value.value()).map_err(damaged)).transpose()
    }
}
