//! Usage rows from Parquet, CSV and NDJSON, added up under a memory cap, and the tables that a run writes.

#![forbid(unsafe_code)]

mod input;
mod table;

pub use input::{BadRow, InputError, InputFile, Limits, Progress, Read, read};
pub use table::{read_totals, write_allocations, write_totals};
