//! Totals read from the table that holds them: rows must come in canonical order, and are checked as any foreign file.

use std::io;

use ron_calculus::Totals;
use ron_calculus::totals::TotalsParts;

use crate::columns::{Bytes, ParquetFile};
use crate::gather::Rows;
use crate::input::InputError;
use crate::report::{PieceReport, Report};
use crate::slots::{SlotCache, SlotNames};

/// Name of the table in reports.
const NAME: &str = "the table of totals";

/// Reads what [`write_totals`](crate::write_totals) wrote, under a bound on memory in bytes.
pub fn read_totals(from: bytes::Bytes, memory_bytes: u64) -> io::Result<Totals> {
    let page_bytes_max = (memory_bytes / 16).clamp(8 << 20, 128 << 20);
    let file = ParquetFile::open(NAME, Bytes::Memory(from), page_bytes_max, u64::MAX).map_err(refused)?;
    let mut rows = OrderedRows { memory_bytes, ..OrderedRows::default() };
    let report = Report::default();
    let mut counts = Vec::with_capacity(file.row_groups());
    for group in 0..file.row_groups() {
        let mut found = PieceReport::default();
        counts.push(file.add_rows(group, &mut rows, &mut found).map_err(not_read)?);
        report.add((0, group as u64), found);
    }
    report.end(&[NAME], &[counts]).map_err(refused)?;
    rows.end().ok_or_else(|| refused("rows are not in canonical order"))
}

/// Want of memory says nothing about the file.
fn not_read(error: InputError) -> io::Error {
    match error {
        InputError::TooMuch(reason) => io::Error::new(io::ErrorKind::OutOfMemory, reason),
        error => refused(error),
    }
}

fn refused(reason: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_string())
}

/// Totals in the making; slots are numbered as they come and put in order at the end.
#[derive(Default)]
struct OrderedRows {
    memory_bytes: u64,
    names: SlotNames,
    cache: SlotCache,
    text: Vec<u8>,
    parts: TotalsParts,
}

impl Rows for OrderedRows {
    fn slot(&mut self, metric: &str, group: Option<&str>, asset: Option<&str>) -> Result<u16, InputError> {
        self.cache.number(&self.names, metric, group, asset)
    }

    fn add(&mut self, actor: &[u8], slot: u16, quantity: u128) -> Result<(), InputError> {
        let parts = &mut self.parts;
        let last_start = parts.actor_ends.len().checked_sub(2).map_or(0, |before| parts.actor_ends[before]) as usize;
        let is_same = !parts.actor_ends.is_empty() && &self.text[last_start..] == actor;
        parts.entry_slots.push(slot);
        parts.entry_totals.push(quantity);
        let entries = parts.entry_slots.len() as u64;
        match parts.entry_ends.last_mut() {
            Some(end) if is_same => *end = entries,
            _ => {
                self.text.extend_from_slice(actor);
                parts.actor_ends.push(self.text.len() as u64);
                parts.entry_ends.push(entries);
            }
        }
        let held = self.text.capacity() + 16 * parts.actor_ends.capacity() + 18 * parts.entry_slots.capacity();
        if held as u64 > self.memory_bytes {
            let most = self.memory_bytes;
            return Err(InputError::TooMuch(format!("{NAME} needs more than {most} bytes of memory")));
        }
        Ok(())
    }
}

impl OrderedRows {
    fn end(mut self) -> Option<Totals> {
        let (slots, places) = self.names.sorted();
        for slot in &mut self.parts.entry_slots {
            *slot = places[usize::from(*slot)];
        }
        let text = String::from_utf8(self.text).ok()?;
        Totals::from_parts(TotalsParts { slots, text, ..self.parts })
    }
}
