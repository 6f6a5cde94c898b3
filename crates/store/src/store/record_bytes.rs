//! Bytes of the records held, counted table by table: those of provider records are dropped as a whole, and their bytes
//! must come back without a look at every row.

use std::collections::BTreeMap;

use redb::{ReadableTable, Table, TableHandle as _, WriteTransaction};

use super::StoreError;
use super::tables::{self, OTHER_ROW_BYTES, PROVIDER_ROW_BYTES, Providers, hour_name, hour_of_name};

/// Bytes of records: the row and the value of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordBytes {
    /// All together.
    total: usize,
    /// Name, peer and IPNS records.
    others: usize,
    /// Provider records, by the hour in which they are over.
    hours: BTreeMap<u32, usize>,
}

impl RecordBytes {
    /// What is written down of these hours; none if something is missing, as in a file of an earlier version.
    pub(super) fn read(
        meta: &impl ReadableTable<&'static str, u64>,
        hours: impl Iterator<Item = u32>,
    ) -> Result<Option<Self>, StoreError> {
        let bytes_of = |name: &str| Ok::<_, StoreError>(meta.get(name)?.map(|bytes| bytes.value() as usize));
        let Some(others) = bytes_of(tables::OTHERS.name())? else { return Ok(None) };
        let mut bytes = RecordBytes { total: others, others, hours: BTreeMap::new() };
        for hour in hours {
            let Some(of_hour) = bytes_of(&hour_name(hour))? else { return Ok(None) };
            bytes.add_provider(hour, of_hour);
        }
        Ok(Some(bytes))
    }

    /// Counts anew, row by row, where something is missing; says whether it was.
    pub(super) fn write_missing(transaction: &WriteTransaction) -> Result<bool, StoreError> {
        let hours = transaction.list_tables()?.filter_map(|table| hour_of_name(table.name())).collect::<Vec<u32>>();
        let mut meta = transaction.open_table(tables::META)?;
        if RecordBytes::read(&meta, hours.iter().copied())?.is_some() {
            return Ok(false);
        }
        let mut others = 0;
        for row in transaction.open_table(tables::OTHERS)?.iter()? {
            others += other_bytes(row?.1.value());
        }
        meta.insert(tables::OTHERS.name(), others as u64)?;
        for hour in hours {
            let (name, mut bytes) = (hour_name(hour), 0);
            for row in transaction.open_table(Providers::new(&name))?.iter()? {
                bytes += provider_bytes(row?.1.value());
            }
            meta.insert(name.as_str(), bytes as u64)?;
        }
        Ok(true)
    }

    /// Writes down what is not as it was before.
    pub(super) fn write_changes(
        &self,
        before: &RecordBytes,
        meta: &mut Table<'_, &'static str, u64>,
    ) -> Result<(), StoreError> {
        if self.others != before.others {
            meta.insert(tables::OTHERS.name(), self.others as u64)?;
        }
        for (hour, bytes) in self.hours.iter().filter(|(hour, bytes)| before.hours.get(hour) != Some(bytes)) {
            meta.insert(hour_name(*hour).as_str(), *bytes as u64)?;
        }
        for hour in before.hours.keys().filter(|hour| !self.hours.contains_key(hour)) {
            meta.remove(hour_name(*hour).as_str())?;
        }
        Ok(())
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn add_provider(&mut self, hour: u32, bytes: usize) {
        *self.hours.entry(hour).or_default() += bytes;
        self.total += bytes;
    }

    pub(super) fn remove_provider(&mut self, hour: u32, bytes: usize) {
        let of_hour = self.hours.entry(hour).or_default();
        // A version that does not count may have written to the file meanwhile: then there is less than was noted.
        let bytes = bytes.min(*of_hour);
        *of_hour -= bytes;
        self.total -= bytes;
    }

    /// The table of an hour is dropped.
    pub(super) fn drop_hour(&mut self, hour: u32) {
        self.total -= self.hours.remove(&hour).unwrap_or_default();
    }

    pub(super) fn add_other(&mut self, bytes: usize) {
        self.others += bytes;
        self.total += bytes;
    }

    pub(super) fn remove_other(&mut self, bytes: usize) {
        // As with providers.
        let bytes = bytes.min(self.others);
        self.others -= bytes;
        self.total -= bytes;
    }
}

/// Bytes of a provider record with this value.
pub(super) fn provider_bytes(value: &[u8]) -> usize {
    PROVIDER_ROW_BYTES + value.len()
}

/// Bytes of a record of another kind with this value.
pub(super) fn other_bytes(value: &[u8]) -> usize {
    OTHER_ROW_BYTES + value.len()
}
