//! What an operator may set about the mailbox.

use std::path::PathBuf;
use std::time::Duration;

use ron_types::limits::mailbox as limits;

/// Where the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLocation {
    /// In this directory.
    Directory(PathBuf),
    /// In memory only: gone with the process.
    Memory,
}

impl std::fmt::Display for LogLocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogLocation::Directory(path) => path.display().fmt(formatter),
            LogLocation::Memory => formatter.write_str("memory"),
        }
    }
}

/// What is fixed while the node runs.
#[derive(Clone, Debug)]
pub struct MailboxOptions {
    /// Where the log is kept.
    pub location: LogLocation,
    /// The node's key for receipts and message ids.
    pub secret: [u8; 32],
    /// Jobs waiting for one shard.
    pub shard_capacity: usize,
    /// Disk the log may take.
    pub disk_bytes_max: u64,
    /// Bytes of one segment of the log.
    pub segment_bytes: u32,
    /// Permits of the gate `mailbox_ops`: callers that use a core in the mailbox at once.
    pub ops_permits: usize,
}

/// What a reload may change.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveOptions {
    /// Shards that own partitions.
    pub ready_shards: usize,
    /// Leases of the whole node at once.
    pub global_inflight: usize,
    /// The first send makes its topic.
    pub auto_create: bool,
    /// The shortest lease a receiver may ask for.
    pub visibility_min: Duration,
    /// What a topic has that does not say otherwise.
    pub defaults: crate::types::TopicSettings,
    /// Messages one capability may send in a second; 0 means any number.
    pub tenant_sends_per_second: u32,
    /// Bytes a second that compaction and scrubbing may move.
    pub upkeep_bytes_per_second: u64,
    /// Bytes of memory that messages, groups and keys may take; sends are refused beyond.
    pub memory_bytes_max: u64,
    /// Bytes of these that idempotency keys may take; sends with new keys are refused beyond.
    pub key_bytes_max: u64,
}

impl Default for MailboxOptions {
    fn default() -> Self {
        MailboxOptions {
            location: LogLocation::Memory,
            secret: [0; 32],
            shard_capacity: limits::SHARD_CAPACITY,
            disk_bytes_max: limits::DISK_BYTES_MAX as u64,
            segment_bytes: limits::SEGMENT_BYTES as u32,
            ops_permits: limits::OPS_PERMITS,
        }
    }
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            ready_shards: 2,
            global_inflight: limits::GLOBAL_INFLIGHT_MAX,
            auto_create: true,
            visibility_min: limits::VISIBILITY_MIN,
            defaults: crate::types::TopicSettings::default(),
            tenant_sends_per_second: 0,
            upkeep_bytes_per_second: limits::UPKEEP_BYTES_PER_SECOND as u64,
            memory_bytes_max: limits::MEMORY_BYTES_MAX as u64,
            key_bytes_max: limits::MEMORY_BYTES_MAX as u64 / 2,
        }
    }
}
