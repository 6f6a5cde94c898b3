//! Names and rows of the tables in the file.

use redb::TableDefinition;

use super::StoreError;
use crate::{Key, PeerId, ProviderRecord, PublicKey, RecordKind};

pub(super) const HOUR_MS: u64 = 3_600_000;

/// Version of the tables' layout; a file with another one is set aside.
pub(super) const LAYOUT: u64 = 1;
pub(super) const META_LAYOUT: &str = "layout";
pub(super) const META_MANIFESTS_BYTES: &str = "manifests_bytes";

/// Key of the content, then the first half of a hash of the peer and the signer: each signer has one row for each peer,
/// so nobody can push out what another says with a higher sequence.
pub(super) const PROVIDER_ROW_BYTES: usize = 48;
pub(super) type ProviderRow = [u8; PROVIDER_ROW_BYTES];
pub(super) type Providers<'a> = TableDefinition<'a, &'static ProviderRow, &'static [u8]>;

/// Kind of the record, then its key.
pub(super) const OTHER_ROW_BYTES: usize = 33;
pub(super) type OtherRow = [u8; OTHER_ROW_BYTES];
/// Hour in which something is over, big-endian, then its row.
pub(super) type ExpiringRow = [u8; 37];

type ById = TableDefinition<'static, &'static [u8; 32], &'static [u8]>;
type ByBytes = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// The layout, the bytes of all manifests, and the bytes of the records in `OTHERS` and in each table of provider
/// records, by the name of the table.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Name, peer and IPNS records: eight bytes of when each is over, then the record.
pub(super) const OTHERS: TableDefinition<'static, &OtherRow, &[u8]> = TableDefinition::new("others");
/// What of `OTHERS` and `REMEMBERED` is over in which hour. Rows of these are few beside those of providers, so they
/// are dropped one by one.
pub(super) const EXPIRING: TableDefinition<'static, &ExpiringRow, ()> = TableDefinition::new("expiring");
/// Owner, then label, of all name records.
pub(super) const LABELS: TableDefinition<'static, &[u8], ()> = TableDefinition::new("labels");
/// What this node provides, by key.
pub(super) const PROVIDED: ById = TableDefinition::new("provided");
/// Names of its own that this node keeps standing: label to content.
pub(super) const NAMED: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("named");
/// Manifests by multihash.
pub(super) const MANIFESTS: ByBytes = TableDefinition::new("manifests");
/// Texts of pinned subjects, with the Unix milliseconds of when they were pinned.
pub(super) const PINS: TableDefinition<'static, &str, u64> = TableDefinition::new("pins");
/// Remembered answers: eight bytes of when each is over, then the answer.
pub(super) const REMEMBERED: ById = TableDefinition::new("remembered");

/// Stands for a remembered answer where other rows have the kind of a record.
pub(super) const KIND_REMEMBERED: u8 = 0xff;

const HOUR_PREFIX: &str = "providers/";

/// Name of the table with the provider records that are over in an hour.
pub(super) fn hour_name(hour: u32) -> String {
    format!("{HOUR_PREFIX}{hour:010}")
}

/// The hour of a table with such a name.
pub(super) fn hour_of_name(name: &str) -> Option<u32> {
    name.strip_prefix(HOUR_PREFIX)?.parse().ok()
}

/// The hour in which a time lies.
pub(super) fn hour_of(unix_ms: u64) -> u32 {
    u32::try_from(unix_ms / HOUR_MS).unwrap_or(u32::MAX)
}

/// Row of a provider record.
pub(super) fn provider_row(record: &ProviderRecord) -> ProviderRow {
    provider_row_of(&record.key, &record.peer, &record.signer)
}

/// Row of what a signer says of a peer at a key.
pub(super) fn provider_row_of(key: &Key, peer: &PeerId, signer: &PublicKey) -> ProviderRow {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&signer.0);
    hasher.update(peer.as_bytes());
    row_of(key, &hasher.finalize().as_bytes()[..16])
}

/// First and last row that a provider record of a key can have.
pub(super) fn provider_rows(key: &Key) -> (ProviderRow, ProviderRow) {
    (row_of(key, &[0; 16]), row_of(key, &[0xff; 16]))
}

/// Key of a provider record's row.
pub(super) fn key_of_row(row: &ProviderRow) -> Key {
    let (key, _) = row.split_first_chunk().expect("a row is longer than a key");
    Key(*key)
}

fn row_of(key: &Key, rest: &[u8]) -> ProviderRow {
    let mut row = [0; PROVIDER_ROW_BYTES];
    row[..32].copy_from_slice(&key.0);
    row[32..].copy_from_slice(rest);
    row
}

/// Row of a record of another kind.
pub(super) fn other_row(kind: RecordKind, key: &Key) -> OtherRow {
    kind_row(kind as u8, &key.0)
}

pub(super) fn kind_row(kind: u8, key: &[u8; 32]) -> OtherRow {
    let mut row = [kind; 33];
    row[1..].copy_from_slice(key);
    row
}

pub(super) fn expiring_row(hour: u32, row: &OtherRow) -> ExpiringRow {
    let mut expiring = [0; 37];
    expiring[..4].copy_from_slice(&hour.to_be_bytes());
    expiring[4..].copy_from_slice(row);
    expiring
}

/// Row of a label, and what all rows of its owner begin with.
pub(super) fn label_row(owner: &[u8; 32], label: &str) -> Vec<u8> {
    [owner.as_slice(), label.as_bytes()].concat()
}

/// A value with the Unix milliseconds of when it is over before it.
pub(super) fn with_end(until_ms: u64, value: &[u8]) -> Vec<u8> {
    [until_ms.to_be_bytes().as_slice(), value].concat()
}

/// What [`with_end`] put together.
pub(super) fn split_end(value: &[u8]) -> Result<(u64, &[u8]), StoreError> {
    let (until, rest) =
        value.split_first_chunk().ok_or_else(|| StoreError::Damaged("a row is too short".to_owned()))?;
    Ok((u64::from_be_bytes(*until), rest))
}
