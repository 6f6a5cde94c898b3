//! Usage rows from Parquet, CSV and NDJSON, added up under a memory cap, and the tables that a run writes.
//!
//! `input` is the entry. `files` opens files and hands out pieces: blocks of `text` (`csv`, `ndjson`) or row groups of
//! `columns` (Parquet). `gather` adds rows up in the tables of `groups`, `spill` takes what does not fit, and `finish`
//! sorts. `table` writes and reads the tables of a run.

#![forbid(unsafe_code)]

mod columns;
mod crew;
mod csv;
mod field;
mod files;
mod finish;
mod gather;
mod groups;
mod identity;
mod input;
mod limits;
mod ndjson;
mod report;
mod slots;
mod spill;
mod table;
mod text;

pub use identity::{FileIdentity, open_file};
pub use input::{BadRow, InputError, InputFile, Limits, Progress, Read, read};
pub use limits::ACTOR_BYTES_MAX;
pub use table::{read_totals, write_allocations, write_totals};
