//! Copying what can be read of a damaged file, row by row.
//!
//! What this node itself keeps comes first: content it provides, its names, pins, answers to requests, documents.
//! Records come last: they are published again by whoever signed them, so that a disk without room for them loses no
//! more.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, Key, ReadOnlyDatabase, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, TableError, TableHandle as _, Value, WriteTransaction,
};

use super::bad_rows::{decode_other, decode_provider};
use super::damage::with_suffix;
use super::record_bytes::RecordBytes;
use super::rescue::Between;
use super::tables::{
    self, KIND_REMEMBERED, OTHER_ROW_BYTES, OtherRow, PROVIDER_ROW_BYTES, ProviderRow, Providers, document_of_row,
    expiring_row, hour_name, hour_of, hour_of_name, kind_row, label_row, split_end,
};
use super::{Bounds, Provided, StoreError, guarded, open};
use crate::name::is_label;
use crate::{ContentId, Record, RecordKind, Subject};

/// Rows and bytes that are written in one transaction.
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of the disk that a copy of records leaves to others.
const SPARE_BYTES: u64 = 64 * 1024 * 1024;
/// Places of one table that make no sense, after which the rest of it is given up.
const FAILURES_MAX: usize = 64;
/// Parts that a table with such a place is read in, each from both of its ends.
const PARTS: u16 = 256;

/// What was copied, by what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    tables: BTreeMap<&'static str, Tally>,
    /// Whether there was no room for all records of others.
    lacked_room: bool,
    /// Whether nothing of the file could be read, and why.
    unreadable: Option<String>,
}

/// How the rows of one table fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    copied: usize,
    /// Rows that make no sense.
    bad: usize,
    /// Places at which rows could not be read.
    gaps: usize,
}

/// A table of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Provided,
    Named,
    Pins,
    Remembered,
    Manifests,
    Others,
    /// Provider records that are over in this hour.
    Hour(u32),
}

/// A row as its bytes lie in the file.
type Row = (Vec<u8>, Vec<u8>);

/// What a row is handed to; only it may end the copying.
type Take<'a> = &'a mut dyn FnMut(Row) -> Result<(), StoreError>;

/// Copies what can be read of `from` into the new file `into`.
pub(super) fn copy_readable(
    from: &Path,
    into: &Path,
    bounds: Bounds,
    between: Between<'_>,
) -> Result<Copied, StoreError> {
    let target = open::open_database(into, bounds)?;
    open::prepare(&target)?;
    between()?;
    let mut copied = Copied::default();
    let mut source = match Source::open(from, bounds) {
        Ok(source) => source,
        Err(StoreError::Damaged(why)) => {
            copied.unreadable = Some(why);
            return Ok(copied);
        }
        Err(error) => return Err(error),
    };
    for table in [Table::Provided, Table::Named, Table::Pins, Table::Remembered, Table::Manifests] {
        copy_table(&mut source, &target, table, &mut copied)?;
        between()?;
    }
    // Records of others come back; what else is on the disk needs room as well.
    let spare = Spare::hold(into, std::fs::metadata(from)?.len());
    copied.lacked_room = spare.is_err();
    let hours = source.hours().into_iter().map(Table::Hour);
    for table in [Table::Others].into_iter().chain(hours) {
        if copied.lacked_room {
            break;
        }
        match copy_table(&mut source, &target, table, &mut copied) {
            Ok(()) => {}
            // What is most of the file is worth least of it.
            Err(StoreError::File(_)) => copied.lacked_room = true,
            Err(error) => return Err(error),
        }
        between()?;
    }
    drop(spare);
    if copied.lacked_room {
        // After a write that failed the library does nothing more with a file until it is opened anew.
        drop(target);
        let target = open::open_database(into, bounds)?;
        return count(&target).map(|()| copied);
    }
    count(&target)?;
    Ok(copied)
}

/// A file that takes room on the disk, which is free again when this is dropped: a copy must not take the last of what
/// the logs of the node, or others, write to.
struct Spare(PathBuf);

impl Spare {
    /// Takes as much room as is to be left; a copy of a small file leaves no more than that file takes.
    fn hold(into: &Path, bytes: u64) -> std::io::Result<Self> {
        let spare = Spare(spare_of(into));
        let mut file = File::create(&spare.0)?;
        std::io::copy(&mut std::io::repeat(0).take(bytes.min(SPARE_BYTES)), &mut file)?;
        // Some disks find out that there is no room only now.
        file.sync_all()?;
        Ok(spare)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // One that stays is removed by the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Name of the file that keeps room beside a copy.
pub(super) fn spare_of(into: &Path) -> PathBuf {
    with_suffix(into, ".spare")
}

/// Writes down the bytes of what was copied.
fn count(target: &Database) -> Result<(), StoreError> {
    let mut transaction = target.begin_write()?;
    transaction.set_quick_repair(true);
    let mut bytes = 0;
    for row in transaction.open_table(tables::MANIFESTS)?.iter()? {
        bytes += row?.1.value().len() as u64;
    }
    {
        let mut meta = transaction.open_table(tables::META)?;
        meta.insert(tables::META_MANIFESTS_BYTES, bytes)?;
        meta.remove(tables::OTHERS.name())?;
    }
    RecordBytes::write_missing(&transaction)?;
    transaction.commit()?;
    Ok(())
}

fn copy_table(source: &mut Source, target: &Database, table: Table, copied: &mut Copied) -> Result<(), StoreError> {
    let (mut rows, mut bytes, mut tally) = (Vec::new(), 0, Tally::default());
    tally.gaps = source.rows(table, &mut |(key, value)| {
        if !table.is_whole(&key, &value) {
            tally.bad += 1;
            return Ok(());
        }
        tally.copied += 1;
        bytes += key.len() + value.len();
        rows.push((key, value));
        if rows.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            bytes = 0;
            write(target, table, &std::mem::take(&mut rows))?;
        }
        Ok(())
    })?;
    let written = write(target, table, &rows);
    let sum = copied.tables.entry(table.what()).or_default();
    sum.copied += tally.copied;
    sum.bad += tally.bad;
    sum.gaps += tally.gaps;
    written
}

fn write(target: &Database, table: Table, rows: &[Row]) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut transaction = target.begin_write()?;
    transaction.set_quick_repair(true);
    for (key, value) in rows {
        table.insert(&transaction, key, value)?;
    }
    transaction.commit()?;
    Ok(())
}

impl Table {
    fn what(self) -> &'static str {
        match self {
            Table::Provided => "provided keys",
            Table::Named => "names of this node",
            Table::Pins => "pins",
            Table::Remembered => "remembered answers",
            Table::Manifests => "documents",
            Table::Others => "name, peer and IPNS records",
            Table::Hour(_) => "provider records",
        }
    }

    /// Whether a row says what it must: what was read may be what the damage left.
    fn is_whole(self, key: &[u8], value: &[u8]) -> bool {
        match self {
            Table::Provided => Provided::decode(value).is_ok_and(|provided| provided.content.key().0 == key),
            Table::Named => std::str::from_utf8(key).is_ok_and(is_label) && ContentId::from_cid_bytes(value).is_ok(),
            Table::Pins => {
                let text = std::str::from_utf8(key).ok();
                text.is_some_and(|text| text.parse::<Subject>().is_ok_and(|subject| subject.to_string() == text))
            }
            Table::Remembered => split_end(value).is_ok(),
            Table::Manifests => document_of_row(key).is_some_and(|id| id.verifies(value) == Some(true)),
            Table::Others => key.try_into().is_ok_and(|row| decode_other(row, value).is_some()),
            Table::Hour(hour) => {
                let record = key.try_into().ok().and_then(|row| decode_provider(row, value));
                record.is_some_and(|record| hour_of(record.kept_until_ms()) == hour)
            }
        }
    }

    /// First and last key that the rows of a part can have; none if the table is not read in parts, or there are no
    /// more.
    fn part(self, part: u16) -> Option<(Vec<u8>, Vec<u8>)> {
        let first = u8::try_from(part).ok()?;
        let between = |head: &[u8], low: u8, high: u8, bytes: usize| {
            let key = |byte: u8, rest: u8| {
                let mut key = [head, &[byte]].concat();
                key.resize(bytes, rest);
                key
            };
            Some((key(low, 0), key(high, 0xff)))
        };
        match self {
            Table::Provided | Table::Remembered => between(&[], first, first, 32),
            Table::Hour(_) => between(&[], first, first, PROVIDER_ROW_BYTES),
            // Documents are kept under their BLAKE3 digests of 32 bytes.
            Table::Manifests => between(&[0x1e, 0x20], first, first, 34),
            // Three kinds, each by the first byte of its keys.
            Table::Others => {
                const PARTS_OF_KIND: u8 = 85;
                const KEYS_OF_PART: u8 = 3;
                let (kind, place) = (first / PARTS_OF_KIND, first % PARTS_OF_KIND);
                let low = place * KEYS_OF_PART;
                let high = if place + 1 == PARTS_OF_KIND { 0xff } else { low + KEYS_OF_PART - 1 };
                if kind < 3 { between(&[RecordKind::Name as u8 + kind], low, high, OTHER_ROW_BYTES) } else { None }
            }
            Table::Named | Table::Pins => None,
        }
    }

    /// Writes a row, with what leads to it. A row of another length than its table has was refused before.
    fn insert(self, transaction: &WriteTransaction, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let strange = |_| StoreError::Damaged("a row has another length than its table".to_owned());
        let text = |key| std::str::from_utf8(key).map_err(|_| StoreError::Damaged("a row is no text".to_owned()));
        match self {
            Table::Provided => {
                let key: &[u8; 32] = key.try_into().map_err(strange)?;
                transaction.open_table(tables::PROVIDED)?.insert(key, value)?;
            }
            Table::Named => drop(transaction.open_table(tables::NAMED)?.insert(text(key)?, value)?),
            Table::Pins => {
                let since_ms = u64::from_le_bytes(value.try_into().map_err(strange)?);
                transaction.open_table(tables::PINS)?.insert(text(key)?, since_ms)?;
            }
            Table::Remembered => {
                let key: &[u8; 32] = key.try_into().map_err(strange)?;
                let (until_ms, _) = split_end(value)?;
                transaction.open_table(tables::REMEMBERED)?.insert(key, value)?;
                let row = expiring_row(hour_of(until_ms), &kind_row(KIND_REMEMBERED, key));
                transaction.open_table(tables::EXPIRING)?.insert(&row, ())?;
            }
            Table::Manifests => drop(transaction.open_table(tables::MANIFESTS)?.insert(key, value)?),
            Table::Others => {
                let row: &OtherRow = key.try_into().map_err(strange)?;
                transaction.open_table(tables::OTHERS)?.insert(row, value)?;
                let Some((until_ms, record)) = decode_other(row, value) else { return Ok(()) };
                transaction.open_table(tables::EXPIRING)?.insert(&expiring_row(hour_of(until_ms), row), ())?;
                if let Record::Name(name) = record {
                    let label = label_row(&name.owner.0, &name.label);
                    transaction.open_table(tables::LABELS)?.insert(label.as_slice(), ())?;
                }
            }
            Table::Hour(hour) => {
                let row: &ProviderRow = key.try_into().map_err(strange)?;
                transaction.open_table(Providers::new(&hour_name(hour)))?.insert(row, value)?;
            }
        }
        Ok(())
    }
}

/// The damaged file. It is opened anew after a place that cannot be read.
struct Source {
    path: PathBuf,
    bounds: Bounds,
    state: Opened,
}

enum Opened {
    ReadOnly(ReadOnlyDatabase),
    /// One that was not closed in order must be written to before it can be read.
    Whole(Database),
}

impl Source {
    fn open(path: &Path, bounds: Bounds) -> Result<Self, StoreError> {
        let read_only = guarded(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(bounds.cache_bytes);
            Ok(Opened::ReadOnly(builder.open_read_only(path)?))
        });
        let state = match read_only {
            Ok(state) => state,
            Err(_) => guarded(|| Ok(Opened::Whole(open::open_database(path, bounds)?)))?,
        };
        Ok(Source { path: path.to_owned(), bounds, state })
    }

    fn begin(&self) -> Result<ReadTransaction, StoreError> {
        guarded(|| {
            Ok(match &self.state {
                Opened::ReadOnly(database) => database.begin_read()?,
                Opened::Whole(database) => database.begin_read()?,
            })
        })
    }

    /// Hours that have a table, as far as the list of tables can be read.
    fn hours(&self) -> Vec<u32> {
        let hours = guarded(|| {
            let transaction = self.begin()?;
            let tables = transaction.list_tables()?;
            Ok(tables.filter_map(|table| hour_of_name(table.name())).collect())
        });
        hours.unwrap_or_default()
    }

    /// Hands on the rows of a table that can be read, each once; says at how many places some could not.
    fn rows(&mut self, table: Table, take: Take<'_>) -> Result<usize, StoreError> {
        match table {
            Table::Provided => self.walk(tables::PROVIDED, table, take),
            Table::Remembered => self.walk(tables::REMEMBERED, table, take),
            Table::Named => self.walk(tables::NAMED, table, take),
            Table::Pins => self.walk(tables::PINS, table, take),
            Table::Manifests => self.walk(tables::MANIFESTS, table, take),
            Table::Others => self.walk(tables::OTHERS, table, take),
            Table::Hour(hour) => self.walk(Providers::new(&hour_name(hour)), table, take),
        }
    }

    /// A page that makes no sense ends the way through a table from either end. What lies between is looked for in
    /// parts, of which most have no such page.
    fn walk<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
        table: Table,
        take: Take<'_>,
    ) -> Result<usize, StoreError> {
        let Some(gap) = self.walk_part(definition, None, &Gap::default(), take)? else { return Ok(0) };
        let mut gaps = 1;
        for bounds in (0..PARTS).map_while(|part| table.part(part)) {
            if gaps >= FAILURES_MAX {
                break;
            }
            gaps += usize::from(self.walk_part(definition, Some(&bounds), &gap, take)?.is_some());
        }
        Ok(gaps)
    }

    /// Hands on what is within the bounds and in the gap; gives what is left of the gap, if something is.
    fn walk_part<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
        bounds: Option<&(Vec<u8>, Vec<u8>)>,
        gap: &Gap,
        take: Take<'_>,
    ) -> Result<Option<Gap>, StoreError> {
        let Gap { mut low, mut high } = gap.clone();
        for end in [End::Low, End::High] {
            let has_ended = self.pass(definition, bounds, end, &mut |row| {
                let is_known = |other: &Option<Vec<u8>>, is_beyond: fn(&Vec<u8>, &Vec<u8>) -> bool| {
                    other.as_ref().is_some_and(|other| is_beyond(&row.0, other))
                };
                let is_below = is_known(&low, |key, low| key <= low);
                let is_above = is_known(&high, |key, high| key >= high);
                match end {
                    // Behind what was handed on before comes what is new.
                    End::Low if is_below => return Ok(ControlFlow::Continue(())),
                    End::High if is_above => return Ok(ControlFlow::Continue(())),
                    End::Low if is_above => return Ok(ControlFlow::Break(())),
                    End::High if is_below => return Ok(ControlFlow::Break(())),
                    End::Low => low = Some(row.0.clone()),
                    End::High => high = Some(row.0.clone()),
                }
                take(row).map(ControlFlow::Continue)
            })?;
            if has_ended {
                return Ok(None);
            }
        }
        Ok(Some(Gap { low, high }))
    }

    /// Hands on rows from one end on, until there are no more or whoever takes them has enough; false if it comes to a
    /// place that cannot be read.
    fn pass<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
        bounds: Option<&(Vec<u8>, Vec<u8>)>,
        end: End,
        each: &mut dyn FnMut(Row) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<bool, StoreError> {
        let range = guarded(|| {
            let table = match self.begin()?.open_table(definition) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(Some(match bounds {
                Some((low, high)) => table.range::<K::SelfType<'_>>(K::from_bytes(low)..=K::from_bytes(high))?,
                None => table.range::<K::SelfType<'_>>(..)?,
            }))
        });
        let mut range = match range {
            Ok(Some(range)) => range,
            Ok(None) => return Ok(true),
            Err(_) => return self.after_failure(),
        };
        let mut last: Option<Vec<u8>> = None;
        loop {
            let row = guarded(|| {
                let row = if end == End::Low { range.next() } else { range.next_back() };
                let Some(row) = row else { return Ok(None) };
                let (key, value) = row?;
                let (key, value) = (key.value(), value.value());
                Ok(Some((K::as_bytes(&key).as_ref().to_vec(), V::as_bytes(&value).as_ref().to_vec())))
            });
            let row = match row {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(true),
                Err(_) => return self.after_failure(),
            };
            // Pages that lead back to others would never end.
            let is_in_order = |last: &Vec<u8>| if end == End::Low { *last < row.0 } else { *last > row.0 };
            if !last.as_ref().is_none_or(is_in_order) {
                return self.after_failure();
            }
            last = Some(row.0.clone());
            if each(row)?.is_break() {
                return Ok(true);
            }
        }
    }

    /// After a read that fails the library does nothing more with a file until it is opened anew.
    fn after_failure(&mut self) -> Result<bool, StoreError> {
        self.state = Source::open(&self.path, self.bounds)?.state;
        Ok(false)
    }
}

/// Keys between which not everything could be read; none where there is no row before or behind.
#[derive(Clone, Debug, Default)]
struct Gap {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

/// The end of a table that reading begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Low,
    High,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.unreadable {
            return write!(f, "nothing of it can be read: {why}");
        }
        f.write_str("what can be read of it is in the new file:")?;
        for (what, Tally { copied, bad, gaps }) in &self.tables {
            write!(f, " {copied} {what}")?;
            if *bad > 0 || *gaps > 0 {
                write!(f, " ({bad} damaged, {gaps} places unreadable)")?;
            }
            f.write_str(",")?;
        }
        match self.lacked_room {
            true => f.write_str(" and no more, as the disk has no room; records come back as they are published again"),
            false => f.write_str(" and that is all"),
        }
    }
}
