//! Limits and defaults of the rewarder.

use std::time::Duration;

use super::MIB;

/// Items of each queue of the rewarder.
pub const QUEUE_CAPACITY: usize = 512;
/// Largest body of a request to compute an epoch.
pub const BODY_BYTES_MAX: usize = MIB;
/// Tries of one call to the ledger, the first one included.
pub const RPC_ATTEMPTS_MAX: u32 = 3;
/// First wait before a call to the ledger is tried again is drawn from this window.
pub const RPC_RETRY_JITTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(250));
/// Wait before the one retry of the queue of work, as the queue's policy has it.
pub const REQUEUE_JITTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(150));
/// Length of an epoch where nobody says; a run has half of it.
pub const EPOCH_DURATION: Duration = Duration::from_secs(24 * 3600);
/// Runs computed at once.
pub const COMPUTE_WORKERS: usize = 2;
/// Most runs that may be computed at once.
pub const COMPUTE_WORKERS_MAX: usize = 64;
/// Memory of all runs together.
pub const MEMORY_BYTES: usize = 2048 * MIB;
/// Disk that uploaded inputs may take.
pub const INPUTS_BYTES_MAX: usize = 64 * 1024 * MIB;
/// Bytes that an uploaded input counts at least: file systems have about one file for so many, and a quota of bytes
/// alone would let millions of empty ones in.
pub const INPUT_BYTES_COUNTED_MIN: u64 = 16 << 10;
/// Epochs whose artifacts a node keeps.
pub const EPOCHS_MAX: usize = 100_000;
/// Epochs that a node remembers, with or without artifacts: each is a small row in memory and in the seal log.
pub const EPOCHS_KNOWN_MAX: usize = 400_000;
/// Names of epochs whose rows are gone that a node remembers, so that none is computed anew: 16 bytes each.
pub const EPOCHS_FORGOTTEN_MAX: usize = 4_000_000;
/// Disk that the artifacts of epochs may take.
pub const EPOCHS_BYTES_MAX: usize = 256 * 1024 * MIB;
/// Memory of all runs that wait or are computed, without what their computation takes: policies and names of files.
pub const WAITING_RUNS_BYTES_MAX: usize = 256 * MIB;
/// Files that one run may read.
pub const INPUT_FILES_MAX: usize = 1024;
/// Uploads at once.
pub const UPLOADS_MAX: usize = 16;
/// Payouts in one call to the ledger.
pub const BATCH_ENTRIES_MAX: usize = 4096;
/// Runs refused for their input that are remembered, so that a caller can read why.
pub const REFUSALS_KEPT: usize = 256;

const _: () = assert!(BODY_BYTES_MAX <= super::BODY_BYTES_MAX, "the plane reads what the rewarder takes");
const _: () = assert!(EPOCHS_KNOWN_MAX >= EPOCHS_MAX);
const _: () = assert!(COMPUTE_WORKERS >= 1 && COMPUTE_WORKERS <= COMPUTE_WORKERS_MAX);
const _: () = assert!(MEMORY_BYTES / COMPUTE_WORKERS >= 512 * MIB, "a run has room to work in");
