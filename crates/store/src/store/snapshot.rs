//! What readers see: the tables as they were after one batch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, Range, ReadOnlyTable, ReadableDatabase as _, ReadableTableMetadata as _, TableHandle as _};

use super::masks::Masks;
use super::record_bytes::RecordBytes;
use super::tables::{self, OtherRow, ProviderRow, Providers, other_row, provider_row_of, provider_rows, split_end};
use super::{Counts, Provided, StoreError};
use crate::{ContentId, Key, NameRecord, PeerId, ProviderRecord, PublicKey, Record, RecordKind, Subject};

type ProviderTable = ReadOnlyTable<&'static ProviderRow, &'static [u8]>;

/// All tables after one batch. It holds the pages of that state, so only the newest is kept.
pub(super) struct Snapshot {
    /// Tables of provider records by the hour in which they are over, the earliest first.
    pub(super) hours: Vec<(u32, ProviderTable)>,
    pub(super) masks: Arc<Masks>,
    pub(super) counts: Counts,
    pub(super) bytes: RecordBytes,
    others: ReadOnlyTable<&'static OtherRow, &'static [u8]>,
    labels: ReadOnlyTable<&'static [u8], ()>,
    provided: ReadOnlyTable<&'static [u8; 32], &'static [u8]>,
    named: ReadOnlyTable<&'static str, &'static [u8]>,
    manifests: ReadOnlyTable<&'static [u8], &'static [u8]>,
    pins: ReadOnlyTable<&'static str, u64>,
    remembered: ReadOnlyTable<&'static [u8; 32], &'static [u8]>,
}

impl Snapshot {
    /// The state after the last commit. Without masks all hours are looked at for every key.
    pub(super) fn take(database: &Database, masks: Option<Arc<Masks>>) -> Result<Self, StoreError> {
        let transaction = database.begin_read()?;
        let mut hours = Vec::new();
        for table in transaction.list_tables()? {
            if let Some(hour) = tables::hour_of_name(table.name()) {
                hours.push((hour, transaction.open_table(Providers::new(table.name()))?));
            }
        }
        hours.sort_by_key(|(hour, _)| *hour);
        let providers = hours.iter().try_fold(0, |sum, (_, table)| Ok::<_, StoreError>(sum + table.len()?))?;
        let meta = transaction.open_table(tables::META)?;
        let manifests_bytes = meta.get(tables::META_MANIFESTS_BYTES)?;
        let bytes = RecordBytes::read(&meta, hours.iter().map(|(hour, _)| *hour))?;
        let bytes = bytes.ok_or_else(|| StoreError::Damaged("the bytes of a table are not written down".to_owned()))?;
        let others = transaction.open_table(tables::OTHERS)?;
        let provided = transaction.open_table(tables::PROVIDED)?;
        let named = transaction.open_table(tables::NAMED)?;
        let manifests = transaction.open_table(tables::MANIFESTS)?;
        let pins = transaction.open_table(tables::PINS)?;
        let remembered = transaction.open_table(tables::REMEMBERED)?;
        let counts = Counts {
            providers: providers as usize,
            others: others.len()? as usize,
            records_bytes: bytes.total(),
            provided: provided.len()? as usize,
            named: named.len()? as usize,
            manifests: manifests.len()? as usize,
            manifests_bytes: manifests_bytes.map_or(0, |bytes| bytes.value()) as usize,
            pins: pins.len()? as usize,
            remembered: remembered.len()? as usize,
        };
        let unlearned = hours.iter().map(|(hour, _)| *hour);
        let masks = masks.unwrap_or_else(|| Arc::new(Masks::new(counts.providers, unlearned)));
        let labels = transaction.open_table(tables::LABELS)?;
        Ok(Snapshot { hours, masks, counts, bytes, others, labels, provided, named, manifests, pins, remembered })
    }

    pub(super) fn providers(&self, key: &Key, now_ms: u64, max: usize) -> Result<Vec<ProviderRecord>, StoreError> {
        let mut records = Vec::new();
        let (first, last) = provider_rows(key);
        for (_, table) in self.hours.iter().filter(|(hour, _)| self.masks.may_have(key, *hour)) {
            for row in table.range::<&ProviderRow>(&first..=&last)? {
                let record = ProviderRecord::decode_at(*key, row?.1.value()).map_err(damaged)?;
                if is_live(&record, now_ms) {
                    records.push(record);
                }
            }
        }
        records.sort_by_key(|record| (!record.is_self_signed(), Reverse(record.issued_ms)));
        records.truncate(max);
        Ok(records)
    }

    /// What a signer says of a peer at a key, withdrawals too.
    pub(super) fn provider(
        &self,
        key: &Key,
        peer: &PeerId,
        signer: &PublicKey,
        now_ms: u64,
    ) -> Result<Option<ProviderRecord>, StoreError> {
        let row = provider_row_of(key, peer, signer);
        for (_, table) in self.hours.iter().filter(|(hour, _)| self.masks.may_have(key, *hour)) {
            if let Some(value) = table.get(&row)? {
                let record = ProviderRecord::decode_at(*key, value.value()).map_err(damaged)?;
                return Ok(Some(record).filter(|record| record.kept_until_ms() > now_ms));
            }
        }
        Ok(None)
    }

    /// A live record of another kind.
    pub(super) fn other(&self, kind: RecordKind, key: &Key, now_ms: u64) -> Result<Option<Record>, StoreError> {
        let Some(value) = self.others.get(&other_row(kind, key))? else { return Ok(None) };
        live_other(value.value(), now_ms)
    }

    /// Live records of another kind in order of keys, at most `max`.
    pub(super) fn others(&self, kind: RecordKind, now_ms: u64, max: usize) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for row in self.others_between(kind, Key([0; 32]), Key([0xff; 32]))? {
            if records.len() == max {
                break;
            }
            records.extend(live_other(row?.1.value(), now_ms)?);
        }
        Ok(records)
    }

    pub(super) fn names(
        &self,
        owner: &PublicKey,
        after: Option<&str>,
        max: usize,
        now_ms: u64,
    ) -> Result<Vec<NameRecord>, StoreError> {
        let mut records = Vec::new();
        // A label has no zero byte, so the row behind that of `after` ends with one; none begins with the last byte.
        let first = [tables::label_row(&owner.0, after.unwrap_or_default()), vec![0]].concat();
        let end = [owner.0.as_slice(), &[0xff]].concat();
        for row in self.labels.range::<&[u8]>(first.as_slice()..end.as_slice())? {
            if records.len() >= max {
                break;
            }
            let (row, _) = row?;
            let label = row.value().get(32..).and_then(|label| std::str::from_utf8(label).ok());
            let label = label.ok_or_else(|| StoreError::Damaged("a row is no label".to_owned()))?;
            let key = Key::of_owned_label(owner, label);
            match self.other(RecordKind::Name, &key, now_ms)? {
                Some(Record::Name(record)) if !record.withdraws() => records.push(record),
                _ => {}
            }
        }
        Ok(records)
    }

    pub(super) fn manifest(&self, content: &ContentId) -> Result<Option<Bytes>, StoreError> {
        let Some(value) = self.manifests.get(content.multihash_bytes().as_slice())? else { return Ok(None) };
        if content.verifies(value.value()) != Some(true) {
            return Err(StoreError::Damaged(format!("the manifest {content} is not what it was")));
        }
        Ok(Some(Bytes::copy_from_slice(value.value())))
    }

    pub(super) fn pins(&self, after: Option<&Subject>, max: usize) -> Result<Vec<(Subject, u64)>, StoreError> {
        let mut pins = Vec::new();
        let first = after.map(|subject| format!("{subject}\0")).unwrap_or_default();
        for row in self.pins.range::<&str>(first.as_str()..)?.take(max) {
            let (subject, since_ms) = row?;
            pins.push((subject.value().parse().map_err(damaged)?, since_ms.value()));
        }
        Ok(pins)
    }

    pub(super) fn is_pinned(&self, subject: &Subject) -> Result<bool, StoreError> {
        Ok(self.pins.get(subject.to_string().as_str())?.is_some())
    }

    pub(super) fn remembered(&self, request: &[u8; 32], now_ms: u64) -> Result<Option<Bytes>, StoreError> {
        let Some(value) = self.remembered.get(request)? else { return Ok(None) };
        let (until_ms, answer) = split_end(value.value())?;
        Ok((until_ms > now_ms).then(|| Bytes::copy_from_slice(answer)))
    }

    pub(super) fn provided(&self, after: Option<Key>, max: usize) -> Result<Vec<(Key, Provided)>, StoreError> {
        let mut found = Vec::new();
        let first = after.map_or([0; 32], |key| key.0);
        for row in self.provided.range::<&[u8; 32]>(&first..)? {
            if found.len() == max {
                break;
            }
            let (key, value) = row?;
            if after != Some(Key(*key.value())) {
                found.push((Key(*key.value()), Provided::decode(value.value()).map_err(damaged)?));
            }
        }
        Ok(found)
    }

    pub(super) fn named(&self, after: Option<&str>, max: usize) -> Result<Vec<(String, ContentId)>, StoreError> {
        let mut found = Vec::new();
        // A label has no zero byte, so the first row behind that of `after` is the next one.
        let first = after.map(|label| format!("{label}\0")).unwrap_or_default();
        for row in self.named.range::<&str>(first.as_str()..)?.take(max) {
            let (label, value) = row?;
            let value = ContentId::from_cid_bytes(value.value()).map_err(damaged)?;
            found.push((label.value().to_owned(), value));
        }
        Ok(found)
    }

    /// Live records with keys from `from` to `to` in order of keys: tables are ordered each for itself, so their first
    /// rows are merged.
    pub(super) fn records_in(&self, from: Key, to: Key, max: usize, now_ms: u64) -> Result<Vec<Record>, StoreError> {
        let (first, _) = provider_rows(&from);
        let (_, last) = provider_rows(&to);
        let mut sources = Vec::new();
        for (_, table) in &self.hours {
            sources.push(Source::Providers(table.range::<&ProviderRow>(&first..=&last)?));
        }
        for kind in [RecordKind::Name, RecordKind::Peer, RecordKind::Ipns] {
            sources.push(Source::Others(self.others_between(kind, from, to)?));
        }
        let mut heads = BinaryHeap::new();
        for (at, source) in sources.iter_mut().enumerate() {
            heads.extend(source.next(now_ms)?.map(|(key, record)| Reverse(Head { key, at, record })));
        }
        let mut records: Vec<Record> = Vec::new();
        while let Some(Reverse(Head { key, at, record })) = heads.pop() {
            if records.len() >= max && records.last().is_some_and(|last| last.key() != key) {
                break;
            }
            records.push(record);
            heads.extend(sources[at].next(now_ms)?.map(|(key, record)| Reverse(Head { key, at, record })));
        }
        Ok(records)
    }

    fn others_between(
        &self,
        kind: RecordKind,
        from: Key,
        to: Key,
    ) -> Result<Range<'static, &'static OtherRow, &'static [u8]>, StoreError> {
        Ok(self.others.range::<&OtherRow>(&other_row(kind, &from)..=&other_row(kind, &to))?)
    }
}

/// The next row of a table that is being merged.
struct Head {
    key: Key,
    at: usize,
    record: Record,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.key, self.at).cmp(&(other.key, other.at))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.at) == (other.key, other.at)
    }
}

impl Eq for Head {}

/// A table that is being merged.
enum Source {
    Providers(Range<'static, &'static ProviderRow, &'static [u8]>),
    Others(Range<'static, &'static OtherRow, &'static [u8]>),
}

impl Source {
    /// The next record that is not over.
    fn next(&mut self, now_ms: u64) -> Result<Option<(Key, Record)>, StoreError> {
        match self {
            Source::Providers(rows) => {
                for row in rows {
                    let (row, value) = row?;
                    let key = tables::key_of_row(row.value());
                    let record = ProviderRecord::decode_at(key, value.value()).map_err(damaged)?;
                    if record.kept_until_ms() > now_ms {
                        return Ok(Some((key, Record::Provider(record))));
                    }
                }
            }
            Source::Others(rows) => {
                for row in rows {
                    if let Some(record) = live_other(row?.1.value(), now_ms)? {
                        return Ok(Some((record.key(), record)));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Whether a provider record is of use to those who look for content.
pub(super) fn is_live(record: &ProviderRecord, now_ms: u64) -> bool {
    record.expires_ms > now_ms && !record.withdraws()
}

fn live_other(value: &[u8], now_ms: u64) -> Result<Option<Record>, StoreError> {
    let (until_ms, record) = split_end(value)?;
    if until_ms <= now_ms {
        return Ok(None);
    }
    Ok(Some(Record::decode(record).map_err(damaged)?))
}

/// What was written can be read; if not, the file is not what was written.
pub(super) fn damaged(error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(error.to_string())
}
