//! Bounds on what a usage file may hold, and the plan that divides the memory cap among those who use it.

use crate::input::Limits;

/// Longest actor id in bytes.
pub const ACTOR_BYTES_MAX: usize = 1024;
/// Longest name of a metric, group or asset in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest line of a text file in bytes; also the size of the blocks that threads take from it.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Bad rows that are listed; the others are counted.
pub const BAD_ROWS_LISTED: usize = 100;
/// Longest footer of a Parquet file in bytes. The library builds some two hundred bytes for each byte of a hostile one.
pub const FOOTER_BYTES_MAX: usize = 16 << 20;
/// Parts that actors are divided into by their hash. A part of ten million actors still fits into a second-level cache.
pub const PARTITIONS: usize = 256;

const _: () = assert!(ACTOR_BYTES_MAX < 1 << 15, "the length shares a u16 with a flag");
const _: () = assert!(ron_calculus::totals::SLOTS_MAX <= 1 << 16, "slots are u16");

/// The memory cap, divided.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads that decode and add up.
    pub threads: usize,
    /// Bytes of rows that one thread holds back for one partition.
    pub row_bytes: usize,
    /// Bytes that the tables of all partitions may take before they are spilled.
    pub table_bytes: u64,
    /// Bytes that tables and result may take together at the end.
    pub finish_bytes: u64,
    /// Bytes of one page of a Parquet file, packed or unpacked.
    pub page_bytes: u64,
}

impl Plan {
    /// Divides what the limits allow.
    ///
    /// A sixteenth goes to rows held back, another to decoding; both are bounded by what still helps. What is left
    /// belongs to the tables, less what the process and its allocator take beside what is counted: with a hundred
    /// million rows of ten million actors that was an eighth at the end. Below some megabytes shares would be too small
    /// to work with: each has a least.
    pub fn of(limits: &Limits) -> Plan {
        let threads = limits.threads.clamp(1, 256);
        let share = limits.memory_bytes / 16 / threads as u64;
        let row_bytes = (share / PARTITIONS as u64).clamp(4 << 10, 256 << 10) as usize;
        let page_bytes = (limits.memory_bytes / 16).clamp(8 << 20, 128 << 20);
        let decode_bytes = share.min(32 << 20);
        let held = threads as u64 * (row_bytes as u64 * PARTITIONS as u64 + decode_bytes);
        let left = limits.memory_bytes.saturating_sub(held);
        Plan {
            threads,
            row_bytes,
            table_bytes: left.saturating_sub(limits.memory_bytes / 16).max(64 << 10),
            finish_bytes: (limits.memory_bytes - limits.memory_bytes / 8).saturating_sub(threads as u64 * decode_bytes),
            page_bytes,
        }
    }
}
