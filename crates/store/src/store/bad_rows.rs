//! Rows that make no sense, though the pages they are in do: each costs itself and nothing else.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tables::{OtherRow, ProviderRow, key_of_row, other_row, provider_row, split_end};
use crate::{ProviderRecord, Record};

/// Rows that are remembered until a writer drops them. One that is not remembered is found again when it is read next.
const BAD_ROWS_MAX: usize = 1024;

/// Where a row is whose value is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BadRow {
    /// A provider record, in the table of this hour.
    Provider(u32, ProviderRow),
    /// A name, peer or IPNS record.
    Other(OtherRow),
    /// The label of a name record.
    Label(Vec<u8>),
    /// What this node provides, by key.
    Provided([u8; 32]),
    /// A name that this node keeps standing.
    Named(String),
    /// A document, by its multihash.
    Manifest(Vec<u8>),
    /// A pinned subject.
    Pin(String),
    /// A remembered answer.
    Remembered([u8; 32]),
}

/// Rows that were found to make no sense, and what became of those that were dropped.
#[derive(Default)]
pub(super) struct BadRows {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// Rows that are to be dropped.
    waiting: BTreeSet<BadRow>,
    /// Texts of rows that were dropped, for the log of the node.
    dropped: Vec<String>,
}

impl BadRows {
    /// Notes a row that a reader came upon.
    pub(super) fn note(&self, row: BadRow) {
        let mut found = self.lock();
        if found.waiting.len() < BAD_ROWS_MAX {
            found.waiting.insert(row);
        }
    }

    /// Rows that wait to be dropped, which whoever writes now looks at again.
    pub(super) fn take(&self) -> BTreeSet<BadRow> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Notes that a row was dropped.
    pub(super) fn dropped(&self, row: &BadRow) {
        let mut found = self.lock();
        if found.dropped.len() < BAD_ROWS_MAX {
            found.dropped.push(row.to_string());
        }
    }

    /// What was dropped since this was asked last.
    pub(super) fn take_dropped(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().dropped)
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            BadRow::Provider(_, row) => write!(f, "a provider record at the key {}", hex(&row[..32])),
            BadRow::Other(row) => write!(f, "a record of kind {} at the key {}", row[0], hex(&row[1..])),
            BadRow::Label(row) => write!(f, "a label {}", hex(row)),
            BadRow::Provided(key) => write!(f, "what this node provides at the key {}", hex(key)),
            BadRow::Named(label) => write!(f, "what this node's name {label:?} stands for"),
            BadRow::Manifest(row) => write!(f, "the document with the multihash {}", hex(row)),
            BadRow::Pin(subject) => write!(f, "the pin {subject:?}"),
            BadRow::Remembered(request) => write!(f, "the answer to the request {}", hex(request)),
        }
    }
}

/// A name, peer or IPNS record with the Unix milliseconds until which it is kept; none if the value makes no sense, is
/// that of another row, or is to be kept for longer than its record says, which no signature is over.
pub(super) fn decode_other(row: &OtherRow, value: &[u8]) -> Option<(u64, Record)> {
    let (until_ms, record) = split_end(value).ok()?;
    let record = Record::decode(record).ok()?;
    let is_of_row = other_row(record.kind(), &record.key()) == *row;
    (is_of_row && until_ms <= record.kept_until_ms()).then_some((until_ms, record))
}

/// A provider record; none if the value makes no sense, or is that of another row.
pub(super) fn decode_provider(row: &ProviderRow, value: &[u8]) -> Option<ProviderRecord> {
    let record = ProviderRecord::decode_at(key_of_row(row), value).ok()?;
    (provider_row(&record) == *row).then_some(record)
}
