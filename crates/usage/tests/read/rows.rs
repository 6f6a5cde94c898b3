//! Rows as plain data, their totals by the book, and files of every format made of them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray, Decimal128Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use ron_calculus::{Slot, Totals};
use ron_usage::{InputError, InputFile, Limits, Progress, Read};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub actor: String,
    pub metric: String,
    pub group: Option<String>,
    pub asset: Option<String>,
    pub quantity: u128,
}

/// A format, with its packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    CsvGzip,
    CsvZstd,
    Ndjson,
    NdjsonGzip,
    NdjsonZstd,
    /// Quantities as text, ids as text.
    ParquetText,
    /// Quantities as decimals, ids as bytes.
    ParquetDecimal,
    /// Names and ids as dictionaries, second version of pages.
    ParquetDictionary,
}

pub const FORMATS: [Format; 9] = [
    Format::Csv,
    Format::CsvGzip,
    Format::CsvZstd,
    Format::Ndjson,
    Format::NdjsonGzip,
    Format::NdjsonZstd,
    Format::ParquetText,
    Format::ParquetDecimal,
    Format::ParquetDictionary,
];

/// Goes on for ever.
pub struct GoOn;

impl Progress for GoOn {
    fn read(&self, bytes: u64, of: u64) -> bool {
        assert!(bytes <= of);
        true
    }
}

/// Limits of an ordinary reading.
pub fn limits(threads: usize) -> Limits {
    Limits { memory_bytes: 256 << 20, threads, spill: None, unpacked_bytes_max: 1 << 30 }
}

/// Totals by the book.
pub fn reference(rows: &[Row]) -> Totals {
    let mut sums: BTreeMap<&str, BTreeMap<Slot, u128>> = BTreeMap::new();
    let mut slots = std::collections::BTreeSet::new();
    for row in rows {
        let slot = Slot { metric: row.metric.clone(), group: row.group.clone(), asset: row.asset.clone() };
        slots.insert(slot.clone());
        *sums.entry(&row.actor).or_default().entry(slot).or_default() += row.quantity;
    }
    let slots: Vec<Slot> = slots.into_iter().collect();
    let mut totals = Totals::new(slots.clone()).expect("sorted");
    for (actor, sums) in sums {
        let number = |slot: &Slot| slots.binary_search(slot).expect("known") as u16;
        let entries: Vec<(u16, u128)> = sums.iter().map(|(slot, total)| (number(slot), *total)).collect();
        assert!(totals.push(actor, &entries));
    }
    totals
}

/// Writes bytes as a file and names it.
pub fn file(folder: &Path, name: &str, bytes: &[u8]) -> InputFile {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a scratch folder");
    InputFile::new(name, path)
}

/// Reads one file of these bytes.
pub fn read_bytes(name: &str, bytes: &[u8], limits: &Limits) -> Result<Read, InputError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    ron_usage::read(&[file(folder.path(), name, bytes)], limits, &GoOn)
}

/// The rows in a format.
pub fn encode(rows: &[Row], format: Format) -> Vec<u8> {
    match format {
        Format::Csv => csv(rows),
        Format::CsvGzip => gzip(&csv(rows)),
        Format::CsvZstd => zstd::encode_all(csv(rows).as_slice(), 1).expect("memory"),
        Format::Ndjson => ndjson(rows),
        Format::NdjsonGzip => gzip(&ndjson(rows)),
        Format::NdjsonZstd => zstd::encode_all(ndjson(rows).as_slice(), 1).expect("memory"),
        Format::ParquetText | Format::ParquetDecimal | Format::ParquetDictionary => parquet(rows, format),
    }
}

/// Packs bytes in two members, as appending to a packed file does.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let member = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    };
    [member(one), member(two)].concat()
}

fn csv(rows: &[Row]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["group", "actor", "metric", "quantity", "asset"]).expect("memory");
    for row in rows {
        let (group, asset) = (row.group.as_deref().unwrap_or(""), row.asset.as_deref().unwrap_or(""));
        writer.write_record([group, &row.actor, &row.metric, &row.quantity.to_string(), asset]).expect("memory");
    }
    writer.into_inner().expect("memory")
}

fn ndjson(rows: &[Row]) -> Vec<u8> {
    let line = |(index, row): (usize, &Row)| {
        let text = |text: &str| serde_json::to_string(text).expect("memory");
        let option = |name: Option<&str>| name.map_or_else(|| "null".to_owned(), text);
        let quotes = if index.is_multiple_of(2) { "\"" } else { "" };
        let (actor, metric) = (text(&row.actor), text(&row.metric));
        let (group, asset) = (option(row.group.as_deref()), option(row.asset.as_deref()));
        let quantity = format!("{quotes}{}{quotes}", row.quantity);
        format!(
            "{{\"actor\":{actor},\"quantity\":{quantity},\"metric\":{metric},\"group\":{group},\"asset\":{asset}}}\n"
        )
    };
    rows.iter().enumerate().map(line).collect::<String>().into_bytes()
}

/// A column of names.
type Get<'a> = &'a dyn Fn(&Row) -> Option<&str>;

fn parquet(rows: &[Row], format: Format) -> Vec<u8> {
    let quantity = |row: &Row| row.quantity;
    let digits =
        || Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.quantity.to_string()))) as ArrayRef;
    let decimals = || {
        let values = rows.iter().map(|row| i128::try_from(quantity(row)).expect("below 10^38"));
        Arc::new(Decimal128Array::from_iter_values(values).with_precision_and_scale(38, 0).expect("digits")) as ArrayRef
    };
    let fits = |most: u128| rows.iter().all(|row| row.quantity <= most);
    let text = |get: Get<'_>| Arc::new(rows.iter().map(get).collect::<StringArray>()) as ArrayRef;
    let dictionary = |get: Get<'_>| {
        let mut builder = StringDictionaryBuilder::<Int32Type>::new();
        rows.iter().for_each(|row| builder.append_option(get(row)));
        Arc::new(builder.finish()) as ArrayRef
    };
    let bytes = |get: Get<'_>| {
        Arc::new(rows.iter().map(|row| get(row).map(str::as_bytes)).collect::<BinaryArray>()) as ArrayRef
    };
    let (names, quantities): (&dyn Fn(Get<'_>) -> ArrayRef, ArrayRef) = match format {
        Format::ParquetDecimal if fits(10_u128.pow(37)) => (&bytes, decimals()),
        Format::ParquetDictionary if fits(i64::MAX as u128) => {
            (&dictionary, Arc::new(rows.iter().map(|row| Some(row.quantity as i64)).collect::<Int64Array>()))
        }
        Format::ParquetDictionary if fits(u64::MAX.into()) => {
            (&dictionary, Arc::new(rows.iter().map(|row| Some(row.quantity as u64)).collect::<UInt64Array>()))
        }
        _ => (&text, digits()),
    };
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("quantity", quantities, true),
        ("asset", names(&|row| row.asset.as_deref()), true),
        ("actor", names(&|row| Some(&row.actor)), true),
        ("group", names(&|row| row.group.as_deref()), true),
        ("metric", names(&|row| Some(&row.metric)), true),
    ]);
    parquet_of(&batch.expect("equal lengths"), format)
}

/// A batch as a file, in small row groups so that threads have something to share.
pub fn parquet_of(batch: &RecordBatch, format: Format) -> Vec<u8> {
    let builder = WriterProperties::builder().set_max_row_group_row_count(Some(64));
    let properties = match format {
        Format::ParquetDecimal => builder.set_compression(Compression::SNAPPY).set_dictionary_enabled(false),
        Format::ParquetDictionary => builder
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level")))
            .set_data_page_row_count_limit(20),
        _ => builder,
    };
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).expect("a schema");
    writer.write(batch).expect("memory");
    writer.into_inner().expect("memory")
}
