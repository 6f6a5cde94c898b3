//! Parquet files: what they must look like, and their row groups as rows.
//!
//! The library trusts what files say about sizes in places where a lie makes it panic or ask for memory that is not
//! there. `guard` checks sizes before the library sees them; panics that are left end here, as damage of the file.

mod batch;
mod footer;
mod guard;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_schema::{DataType, Field, Fields};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema};
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::field::Column;
use crate::gather::Rows;
use crate::input::InputError;
use crate::report::PieceReport;
use batch::BatchReader;
pub use guard::Bytes;
use guard::{GuardedFile, RowGroup};

/// Rows that are decoded at once: their columns fit into a second-level cache.
const BATCH_ROWS: usize = 4096;

/// A Parquet file with usable columns.
pub struct ParquetFile {
    name: String,
    file: Arc<GuardedFile>,
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    places: [Option<usize>; 5],
    unpacked_bytes: AtomicU64,
    unpacked_bytes_max: u64,
}

impl ParquetFile {
    /// Opens a file and checks its columns.
    pub fn open(
        name: &str,
        bytes: Bytes,
        page_bytes_max: u64,
        unpacked_bytes_max: u64,
    ) -> Result<ParquetFile, InputError> {
        let file = GuardedFile::new(bytes, page_bytes_max)
            .map_err(|source| InputError::Io { file: name.to_owned(), source })?;
        let file = Arc::new(file);
        let opened = guarded(|| {
            file.check_footer()?;
            let metadata = ParquetMetaDataReader::new().parse_and_finish(file.as_ref()).map_err(told)?;
            let places = check_columns(&metadata)?;
            check_row_groups(&metadata, file.length())?;
            let levels = levels(&metadata).map_err(told)?;
            Ok((metadata, places, levels))
        });
        let (metadata, places, levels) = opened.map_err(|reason| bad(name, reason))?;
        Ok(ParquetFile {
            name: name.to_owned(),
            file,
            metadata: Arc::new(metadata),
            levels,
            places,
            unpacked_bytes: AtomicU64::new(0),
            unpacked_bytes_max,
        })
    }

    /// Number of row groups.
    pub fn row_groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Packed bytes of a row group.
    pub fn row_group_bytes(&self, group: usize) -> u64 {
        self.metadata.row_group(group).columns().iter().map(|column| column.byte_range().1).sum()
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.file.length()
    }

    /// BLAKE3 of the file's bytes; tells after each piece how many bytes it had.
    pub fn hash(&self) -> Result<blake3::Hash, InputError> {
        self.file.hash().map_err(|source| InputError::Io { file: self.name.clone(), source })
    }

    /// Adds the rows of a row group; the number of rows in it.
    pub fn add_rows(&self, group: usize, sink: &mut impl Rows, report: &mut PieceReport) -> Result<u64, InputError> {
        let row_group = RowGroup::new(&self.file, &self.metadata, group);
        let reader = guarded(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(&self.levels, &row_group, BATCH_ROWS, None).map_err(told)
        });
        let mut reader = reader.map_err(|reason| bad(&self.name, format!("row group {group}: {reason}")))?;
        let mut batches = BatchReader::new(self.places);
        loop {
            let next = guarded(|| reader.next().transpose().map_err(|error| error.to_string()));
            let next = next.map_err(|reason| bad(&self.name, format!("row group {group}: {reason}")))?;
            let Some(batch) = next else { break };
            let bytes = batches.add(&batch, sink, report)?.map_err(|reason| bad(&self.name, reason))?;
            // Pages may say "the same again" a billion times in a few bytes.
            let unpacked = self.unpacked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if unpacked > self.unpacked_bytes_max {
                let (name, most) = (&self.name, self.unpacked_bytes_max);
                return Err(InputError::TooMuch(format!("{name}: unpacks to more than {most} bytes")));
            }
        }
        let expected = self.metadata.row_group(group).num_rows() as u64;
        if batches.rows() != expected {
            let reason = format!("row group {group}: {} rows, but its head says {expected}", batches.rows());
            return Err(bad(&self.name, reason));
        }
        Ok(expected)
    }
}

/// Runs a call into the library; a panic is the file's fault.
pub fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("damaged: decoding it failed".to_owned()))
}

fn told(error: ParquetError) -> String {
    error.to_string()
}

fn bad(file: &str, reason: String) -> InputError {
    InputError::BadFile { file: file.to_owned(), reason }
}

/// The columns by name; flat, of types that can hold what they are for.
fn check_columns(metadata: &ParquetMetaData) -> Result<[Option<usize>; 5], String> {
    let schema = metadata.file_metadata().schema_descr();
    let fields = schema.root_schema().get_fields();
    let places = Column::places(fields.iter().map(|field| field.name()))?;
    // One leaf for each field: nothing is nested.
    if fields.iter().any(|field| field.is_group()) || schema.num_columns() != fields.len() {
        return Err("a column is nested".to_owned());
    }
    if let Some(column) = schema.columns().iter().find(|column| column.max_rep_level() > 0) {
        return Err(format!("column `{}` is repeated", column.name()));
    }
    let arrow = parquet_to_arrow_schema(schema, None).map_err(told)?;
    for column in Column::ALL {
        let Some(place) = places[column as usize] else { continue };
        let (kind, leaf) = (arrow.field(place).data_type(), schema.column(place));
        // A decimal of a billion bytes is reserved for each row before one is read.
        let is_huge = leaf.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY && leaf.type_length() > 16;
        let is_text = matches!(kind, DataType::Utf8 | DataType::Binary);
        let is_number = kind.is_integer() || matches!(kind, DataType::Decimal128(_, 0));
        if is_huge || !(is_text || column == Column::Quantity && is_number) {
            let name = column.name();
            return Err(match kind {
                DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                    format!("column `{name}` holds floats, which lose digits; cast it to an integer or DECIMAL(38,0)")
                }
                _ => format!("column `{name}` has type {kind}, which cannot be read"),
            });
        }
    }
    Ok(places)
}

/// Row groups lie within the file.
fn check_row_groups(metadata: &ParquetMetaData, length: u64) -> Result<(), String> {
    for (index, group) in metadata.row_groups().iter().enumerate() {
        // The last eight bytes are the end of the footer, and no part of a page.
        let is_within =
            |(start, bytes): (u64, u64)| start.checked_add(bytes).is_some_and(|end| end.saturating_add(8) <= length);
        let is_sound = group.num_rows() >= 0 && group.columns().iter().all(|column| is_within(column.byte_range()));
        if !is_sound {
            return Err(format!("row group {index} lies outside the file"));
        }
    }
    Ok(())
}

/// How columns are decoded: text as views into the pages, which copies nothing.
fn levels(metadata: &ParquetMetaData) -> Result<FieldLevels, ParquetError> {
    let schema = metadata.file_metadata().schema_descr();
    let arrow = parquet_to_arrow_schema(schema, None)?;
    let as_view = |field: &Arc<Field>| {
        let kind = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            other => other.clone(),
        };
        Field::new(field.name(), kind, field.is_nullable())
    };
    let fields: Fields = arrow.fields().iter().map(as_view).collect();
    parquet_to_arrow_field_levels(schema, ProjectionMask::all(), Some(&fields))
}
