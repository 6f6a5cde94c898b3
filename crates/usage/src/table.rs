//! The tables that a run writes and reads again: totals and allocations as Parquet, always the same bytes.

mod ordered;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::UInt16Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StringArray, UInt16Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use ron_calculus::{AssetAllocation, Roster, Slot, Totals};

pub use ordered::read_totals;

/// Rows that are made at once.
const BATCH_ROWS: usize = 16 << 10;
/// Rows of a row group: enough to be read quickly, few enough to be held in memory while they are written.
const ROW_GROUP_ROWS: usize = 128 << 10;

/// Writes totals as Parquet: actor, metric, group, asset, quantity (decimal text), in canonical order.
pub fn write_totals(totals: &Totals, to: &mut (dyn io::Write + Send)) -> io::Result<()> {
    let name = |part: fn(&Slot) -> Option<&str>| names(totals.slots().iter().map(part));
    let metrics = name(|slot| Some(&slot.metric));
    let (groups, assets) = (name(|slot| slot.group.as_deref()), name(|slot| slot.asset.as_deref()));
    let schema = schema(&[("actor", false), ("metric", true), ("group", true), ("asset", true), ("quantity", false)]);
    let mut table = TableWriter::new(to, schema, "quantity")?;
    for actor in 0..totals.roster().len() {
        for (slot, total) in totals.entries(actor) {
            if table.add(totals.roster().get(actor), slot, total) {
                table.write(&[&metrics, &groups, &assets])?;
            }
        }
    }
    table.end(&[&metrics, &groups, &assets])
}

/// Writes allocations as Parquet: actor, asset, amount (decimal text), by actor, then by asset in the policy's order.
pub fn write_allocations(
    roster: &Roster,
    allocations: &[AssetAllocation],
    to: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    let is_whole = allocations.iter().all(|allocation| allocation.amounts.len() == roster.len());
    if !is_whole || allocations.len() > usize::from(u16::MAX) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the allocations are not of this roster"));
    }
    let assets = names(allocations.iter().map(|allocation| Some(allocation.asset.as_str())));
    let schema = schema(&[("actor", false), ("asset", true), ("amount", false)]);
    let mut table = TableWriter::new(to, schema, "amount")?;
    for actor in 0..roster.len() {
        for (number, allocation) in allocations.iter().enumerate() {
            if table.add(roster.get(actor), number as u16, allocation.amounts[actor]) {
                table.write(&[&assets])?;
            }
        }
    }
    table.end(&[&assets])
}

/// Columns by name; whether each is one of few names.
fn schema(columns: &[(&str, bool)]) -> SchemaRef {
    let kind = |is_name: bool| match is_name {
        true => DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8)),
        false => DataType::Utf8,
    };
    // Groups and assets may be absent; metrics never are, but one rule for all names is simpler and costs a bit a page.
    let field = |(name, is_name): &(&str, bool)| Field::new(*name, kind(*is_name), *is_name);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The values that a column of names refers to by number.
fn names<'a>(names: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(names.collect::<StringArray>())
}

/// Rows on their way into a file: an actor, a number that stands for names, an amount.
struct TableWriter<'a> {
    writer: ArrowWriter<&'a mut (dyn io::Write + Send)>,
    schema: SchemaRef,
    actors: StringBuilder,
    numbers: Vec<u16>,
    amounts: StringBuilder,
}

impl<'a> TableWriter<'a> {
    fn new(to: &'a mut (dyn io::Write + Send), schema: SchemaRef, amount: &str) -> io::Result<TableWriter<'a>> {
        let options = ArrowWriterOptions::new().with_properties(properties(amount)).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(to, schema.clone(), options).map_err(io_error)?;
        let (actors, amounts) = (StringBuilder::new(), StringBuilder::new());
        Ok(TableWriter { writer, schema, actors, numbers: Vec::with_capacity(BATCH_ROWS), amounts })
    }

    /// Adds a row; true if it is time to write.
    #[must_use]
    fn add(&mut self, actor: &str, number: u16, amount: u128) -> bool {
        self.actors.append_value(actor);
        self.numbers.push(number);
        // Text of 64 bits is made several times quicker than of 128. Writing to memory does not fail.
        let _ = match u64::try_from(amount) {
            Ok(amount) => write!(self.amounts, "{amount}"),
            Err(_) => write!(self.amounts, "{amount}"),
        };
        self.amounts.append_value("");
        self.numbers.len() == BATCH_ROWS
    }

    /// Writes the rows so far; `names` are the columns between actor and amount.
    fn write(&mut self, names: &[&ArrayRef]) -> io::Result<()> {
        let numbers = std::mem::replace(&mut self.numbers, Vec::with_capacity(BATCH_ROWS));
        let numbers = UInt16Array::from(numbers);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.actors.finish())];
        for names in names {
            let column = DictionaryArray::<UInt16Type>::try_new(keys(&numbers, names), Arc::clone(names));
            columns.push(Arc::new(column.map_err(io::Error::other)?));
        }
        columns.push(Arc::new(self.amounts.finish()));
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(io::Error::other)?;
        self.writer.write(&batch).map_err(io_error)
    }

    fn end(mut self, names: &[&ArrayRef]) -> io::Result<()> {
        if !self.numbers.is_empty() {
            self.write(names)?;
        }
        self.writer.close().map(drop).map_err(io_error)
    }
}

/// Numbers whose name is absent become null.
fn keys(numbers: &UInt16Array, names: &ArrayRef) -> UInt16Array {
    if names.null_count() == 0 {
        return numbers.clone();
    }
    numbers.values().iter().map(|number| names.is_valid(usize::from(*number)).then_some(*number)).collect()
}

/// Everything that decides about bytes is said here, so that a new default of the library changes none.
fn properties(amount: &str) -> WriterProperties {
    let plain = |name: &str| ColumnPath::from(name);
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by("macronode".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_dictionary_enabled(true)
        .set_column_dictionary_enabled(plain("actor"), false)
        .set_column_dictionary_enabled(plain(amount), false)
        .set_dictionary_page_size_limit(4 << 20)
        .set_data_page_size_limit(1 << 20)
        .set_data_page_row_count_limit(20_000)
        .set_write_batch_size(1024)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(None)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(None)
        .build()
}

fn io_error(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests;
