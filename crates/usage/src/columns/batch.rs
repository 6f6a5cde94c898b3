//! A decoded batch of a Parquet file as rows.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, BinaryViewType, ByteViewType, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type,
    StringViewType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, GenericByteViewArray, RecordBatch};
use arrow_schema::DataType;

use crate::field::{self, Column, METRIC_DEFAULT, Reason};
use crate::gather::Rows;
use crate::input::InputError;
use crate::report::PieceReport;

/// Reads the batches of one row group.
#[derive(Debug)]
pub struct BatchReader {
    places: [Option<usize>; 5],
    quantities: Vec<u128>,
    /// Rows of the batch whose quantity cannot be counted, in order.
    bad_quantities: Vec<(usize, Reason)>,
    slots: Vec<Result<u16, (Column, Reason)>>,
    /// Rows before the batch.
    row: u64,
}

impl BatchReader {
    /// Nothing read yet.
    pub fn new(places: [Option<usize>; 5]) -> BatchReader {
        BatchReader { places, quantities: Vec::new(), bad_quantities: Vec::new(), slots: Vec::new(), row: 0 }
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.row
    }

    /// Adds the rows of a batch; the bytes they were unpacked to, or what is wrong with the file.
    pub fn add(
        &mut self,
        batch: &RecordBatch,
        sink: &mut impl Rows,
        report: &mut PieceReport,
    ) -> Result<Result<u64, String>, InputError> {
        let column = |column: Column| self.places[column as usize].map(|place| batch.column(place));
        let (Some(actors), Some(quantities)) = (column(Column::Actor), column(Column::Quantity)) else {
            return Ok(Err("columns are missing".to_owned()));
        };
        self.bad_quantities.clear();
        if !read_quantities(quantities, &mut self.quantities, &mut self.bad_quantities) {
            return Ok(Err(format!("column `quantity` has type {}", quantities.data_type())));
        }
        self.read_slots(batch, sink)?;
        let bytes = match actors.data_type() {
            DataType::Utf8View => self.add_rows(actors.as_byte_view::<StringViewType>(), sink, report)?,
            DataType::BinaryView => self.add_rows(actors.as_byte_view::<BinaryViewType>(), sink, report)?,
            other => return Ok(Err(format!("column `actor` has type {other}"))),
        };
        self.row += batch.num_rows() as u64;
        Ok(Ok(bytes))
    }

    fn add_rows<T: ByteViewType<Native: AsRef<[u8]>>>(
        &self,
        actors: &GenericByteViewArray<T>,
        sink: &mut impl Rows,
        report: &mut PieceReport,
    ) -> Result<u64, InputError> {
        let must_check = matches!(T::DATA_TYPE, DataType::BinaryView);
        let has_nulls = actors.null_count() > 0;
        let mut bad_quantities = self.bad_quantities.iter().peekable();
        let mut bytes = 0;
        for (index, quantity) in self.quantities.iter().enumerate() {
            let actor: &[u8] = actors.value(index).as_ref();
            bytes += actor.len() as u64 + 16;
            let bad_quantity = bad_quantities.next_if(|(bad, _)| *bad == index);
            let checked = if has_nulls && actors.is_null(index) {
                Err("null".into())
            } else if must_check {
                field::actor(actor).and_then(|()| field::utf8(actor))
            } else {
                field::actor(actor)
            };
            let slot = self.slots.get(index).or_else(|| self.slots.first());
            let bad = match (checked, bad_quantity, slot) {
                (Ok(()), None, Some(Ok(slot))) => {
                    sink.add(actor, *slot, *quantity)?;
                    continue;
                }
                (Err(reason), _, _) => (Column::Actor, reason),
                (_, Some((_, reason)), _) => (Column::Quantity, reason.clone()),
                (_, _, Some(Err((column, reason)))) => (*column, reason.clone()),
                (_, _, None) => continue,
            };
            report.bad(self.row + index as u64, Some(bad.0), bad.1);
        }
        Ok(bytes)
    }

    /// The slot of each row; one for all if no column says otherwise.
    fn read_slots(&mut self, batch: &RecordBatch, sink: &mut impl Rows) -> Result<(), InputError> {
        self.slots.clear();
        let names = [Column::Metric, Column::Group, Column::Asset];
        let columns =
            names.map(|column| self.places[column as usize].map(|place| NameColumn::new(column, batch.column(place))));
        if columns.iter().all(Option::is_none) {
            if batch.num_rows() > 0 {
                self.slots.push(Ok(sink.slot(METRIC_DEFAULT, None, None)?));
            }
            return Ok(());
        }
        let mut last: Option<[Option<u128>; 3]> = None;
        for row in 0..batch.num_rows() {
            // Equal views are equal names; unequal ones may be equal still, and are looked at.
            let views = columns.each_ref().map(|column| column.as_ref().and_then(|column| column.view(row)));
            if last == Some(views)
                && let Some(same) = self.slots.last().cloned()
            {
                self.slots.push(same);
                continue;
            }
            last = Some(views);
            let mut found = [None; 3];
            let mut bad = None;
            for (name, column) in found.iter_mut().zip(&columns) {
                let Some(column) = column else { continue };
                match column.name(row) {
                    Ok(text) => *name = text,
                    Err(reason) => bad = bad.or(Some((column.column, reason))),
                }
            }
            let slot = match bad {
                None => Ok(sink.slot(found[0].unwrap_or(METRIC_DEFAULT), found[1], found[2])?),
                Some(bad) => Err(bad),
            };
            self.slots.push(slot);
        }
        Ok(())
    }
}

/// A column of names.
struct NameColumn<'a> {
    column: Column,
    texts: Option<&'a GenericByteViewArray<StringViewType>>,
    bytes: Option<&'a GenericByteViewArray<BinaryViewType>>,
}

impl<'a> NameColumn<'a> {
    fn new(column: Column, array: &'a dyn Array) -> NameColumn<'a> {
        NameColumn { column, texts: array.as_string_view_opt(), bytes: array.as_binary_view_opt() }
    }

    /// The view of a row, which tells whether the name is the same as in the row before; none for null.
    fn view(&self, row: usize) -> Option<u128> {
        match (self.texts, self.bytes) {
            (Some(texts), _) => texts.is_valid(row).then(|| texts.views()[row]),
            (_, Some(bytes)) => bytes.is_valid(row).then(|| bytes.views()[row]),
            _ => None,
        }
    }

    fn name(&self, row: usize) -> Result<Option<&'a str>, Reason> {
        let text = match (self.texts, self.bytes) {
            (Some(texts), _) if texts.is_valid(row) => texts.value(row),
            (_, Some(bytes)) if bytes.is_valid(row) => {
                let bytes = bytes.value(row);
                field::utf8(bytes)?;
                std::str::from_utf8(bytes).unwrap_or_default()
            }
            _ if self.column == Column::Metric => return Err("null".into()),
            _ => return Ok(None),
        };
        field::name(text.as_bytes())?;
        Ok(Some(text))
    }
}

/// Reads all quantities, whatever their type; false for a type that holds none.
fn read_quantities(array: &dyn Array, into: &mut Vec<u128>, bad: &mut Vec<(usize, Reason)>) -> bool {
    into.clear();
    match array.data_type() {
        DataType::Int8 => numbers::<Int8Type>(array, into, bad),
        DataType::Int16 => numbers::<Int16Type>(array, into, bad),
        DataType::Int32 => numbers::<Int32Type>(array, into, bad),
        DataType::Int64 => numbers::<Int64Type>(array, into, bad),
        DataType::UInt8 => numbers::<UInt8Type>(array, into, bad),
        DataType::UInt16 => numbers::<UInt16Type>(array, into, bad),
        DataType::UInt32 => numbers::<UInt32Type>(array, into, bad),
        DataType::UInt64 => numbers::<UInt64Type>(array, into, bad),
        DataType::Decimal128(_, 0) => numbers::<Decimal128Type>(array, into, bad),
        DataType::Utf8View => digits::<StringViewType>(array.as_byte_view(), into, bad),
        DataType::BinaryView => digits::<BinaryViewType>(array.as_byte_view(), into, bad),
        _ => return false,
    }
    true
}

fn numbers<T>(array: &dyn Array, into: &mut Vec<u128>, bad: &mut Vec<(usize, Reason)>)
where
    T: ArrowPrimitiveType<Native: TryInto<u128>>,
{
    let array = array.as_primitive::<T>();
    let has_nulls = array.null_count() > 0;
    into.extend(array.values().iter().enumerate().map(|(index, number)| {
        if has_nulls && array.is_null(index) {
            bad.push((index, "null".into()));
            return 0;
        }
        (*number).try_into().unwrap_or_else(|_| {
            bad.push((index, field::NEGATIVE.into()));
            0
        })
    }));
}

fn digits<T: ByteViewType<Native: AsRef<[u8]>>>(
    array: &GenericByteViewArray<T>,
    into: &mut Vec<u128>,
    bad: &mut Vec<(usize, Reason)>,
) {
    for index in 0..array.len() {
        let read = if array.is_null(index) { Err("null".into()) } else { field::quantity(array.value(index).as_ref()) };
        into.push(read.unwrap_or_else(|reason| {
            bad.push((index, reason));
            0
        }));
    }
}
