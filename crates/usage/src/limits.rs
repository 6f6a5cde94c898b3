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

/// Memory of a process before it reads anything: its code, its runtime, the stacks of its threads.
const PROCESS_BYTES: u64 = 24 << 20;
/// Memory cap from which on it is a cap on the resident memory of the process. Below, the process alone is most of it.
const RESIDENT_FROM_BYTES: u64 = 128 << 20;
/// Least memory that is worth a thread of its own.
const THREAD_BYTES: u64 = 32 << 20;
/// Binary logarithms of the smallest and the largest bound on the window of a zstd frame. Eight megabytes are what
/// ordinary levels use, and 128 what `--long` does; a hostile frame asks for gigabytes.
const WINDOW_LOGS: (u32, u32) = (23, 27);

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
    /// Binary logarithm of the largest window of a zstd frame. Each thread may have one open.
    pub window_log: u32,
}

impl Plan {
    /// Divides what the limits allow.
    ///
    /// A sixteenth goes to rows held back, another to decoding, of which the window of a packed file may take more;
    /// both
    /// are bounded by what still helps. What is left belongs to the tables, less what the process and its allocator
    /// take
    /// beside what is counted: with a hundred million rows of ten million actors that was an eighth at the end. Below
    /// some megabytes shares would be too small to work with: each has a least.
    pub fn of(limits: &Limits) -> Plan {
        let memory_bytes = usable_bytes(limits.memory_bytes);
        let is_resident = memory_bytes < limits.memory_bytes;
        let threads_max = if is_resident { limits.memory_bytes / THREAD_BYTES } else { 256 };
        let threads = limits.threads.clamp(1, threads_max.min(256) as usize);
        let share = memory_bytes / 16 / threads as u64;
        let row_bytes = (share / PARTITIONS as u64).clamp(4 << 10, 256 << 10) as usize;
        let page_bytes = (limits.memory_bytes / 16).clamp(8 << 20, 128 << 20);
        let (window_log_min, window_log_max) = WINDOW_LOGS;
        let window_log =
            (limits.memory_bytes / 4 / threads as u64).max(1).ilog2().clamp(window_log_min, window_log_max);
        let window_bytes = if is_resident { 1 << window_log } else { 0 };
        let decode_bytes = share.min(32 << 20);
        let reading_bytes = threads as u64 * decode_bytes.max(window_bytes);
        let held = threads as u64 * row_bytes as u64 * PARTITIONS as u64 + reading_bytes;
        let left = memory_bytes.saturating_sub(held);
        Plan {
            threads,
            row_bytes,
            table_bytes: left.saturating_sub(memory_bytes / 16).max(64 << 10),
            // Packed files are closed by then.
            finish_bytes: (memory_bytes - memory_bytes / 8).saturating_sub(threads as u64 * decode_bytes),
            page_bytes,
            window_log,
        }
    }
}

/// What a memory cap leaves to the work of a run.
pub fn usable_bytes(memory_bytes: u64) -> u64 {
    if memory_bytes >= RESIDENT_FROM_BYTES { memory_bytes - PROCESS_BYTES } else { memory_bytes }
}
