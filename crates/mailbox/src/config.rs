//! The mailbox's section of the configuration: every key once, with its meaning, bounds and reload class.

use ron_types::limits::mailbox as limits;
use ron_types::settings::{
    DAY_MS, GIB, HOUR_MS, KIB, MIB, SECOND_MS, ValueKind, live, process, size, time, whole, whole_or_auto,
};
use ron_types::{Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::{LiveOptions, LogLocation, MailboxOptions};
use crate::types::TopicSettings;

/// The mailbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Shards that own partitions; 0 chooses by the number of cores.
    #[schemars(extend("x-setting" = live(whole_or_auto(limits::SHARDS_MAX as u64, "one for each core, at most 8"))))]
    pub ready_shards: usize,
    /// Jobs waiting for one shard.
    #[schemars(extend("x-setting" = process(whole(1, 65_536))))]
    pub shard_capacity: usize,
    /// Messages of the whole node with consumers at once.
    #[schemars(extend("x-setting" = live(whole(1, 100_000_000))))]
    pub global_inflight: usize,
    /// The first send to a topic makes it.
    #[schemars(extend("x-setting" = live(ValueKind::Switch)))]
    pub auto_create: bool,
    /// How long a lease lasts where neither receiver nor topic says.
    #[schemars(extend("x-setting" = live(time(1, 12 * HOUR_MS))))]
    pub visibility: TimeSpan,
    /// The shortest lease a receiver may ask for.
    #[schemars(extend("x-setting" = live(time(1, 12 * HOUR_MS))))]
    pub visibility_min: TimeSpan,
    /// Deliveries before a message is dead, where its topic does not say; 0 means any number.
    #[schemars(extend("x-setting" = live(whole(0, 1_000))))]
    pub max_attempts: u32,
    /// How long an idempotency key is remembered, where its topic does not say.
    #[schemars(extend("x-setting" = live(time(1, 14 * DAY_MS))))]
    pub replay_window: TimeSpan,
    /// How long a message is kept, where its topic does not say.
    #[schemars(extend("x-setting" = live(time(SECOND_MS, 14 * DAY_MS))))]
    pub retention: TimeSpan,
    /// First bound of the wait after a failed delivery, where its topic does not say.
    #[schemars(extend("x-setting" = live(time(1, 12 * HOUR_MS))))]
    pub backoff_base: TimeSpan,
    /// Last bound of the wait after a failed delivery, where its topic does not say.
    #[schemars(extend("x-setting" = live(time(1, 12 * HOUR_MS))))]
    pub backoff_max: TimeSpan,
    /// Disk (or, with amnesia, memory) the mailbox's log may take; sends are refused before it is full.
    #[schemars(extend("x-setting" = process(size(16 * MIB, 1024 * 1024 * GIB))))]
    pub disk_bytes_max: Size,
    /// Bytes of one file of the log, or an eighth of `disk_bytes_max` where that is less.
    #[schemars(extend("x-setting" = process(size(2 * MIB, GIB))))]
    pub segment_bytes: Size,
    /// Messages one capability may send in a second, the operator's excepted; 0 means any number.
    #[schemars(extend("x-setting" = live(whole(0, 10_000_000))))]
    pub tenant_sends_per_second: u32,
    /// Bytes in a second that making room in the log and scrubbing it may move.
    #[schemars(extend("x-setting" = live(size(KIB, 1024 * GIB))))]
    pub upkeep_bytes_per_second: Size,
    /// Memory that waiting messages, their groups and idempotency keys may take, bodies not counted; sends are refused
    /// beyond it. 0 takes a quarter of the machine's memory, or of its control group's.
    #[schemars(extend("x-setting" = live(size(0, 1024 * 1024 * GIB))))]
    pub memory_bytes_max: Size,
    /// Part of `memory_bytes_max` that idempotency keys may take, of which one sender or topic has half; sends with new
    /// keys are refused beyond it, and keys are forgotten when their replay windows end. 0 takes half.
    #[schemars(extend("x-setting" = live(size(0, 1024 * 1024 * GIB))))]
    pub key_bytes_max: Size,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ready_shards: 0,
            shard_capacity: limits::SHARD_CAPACITY,
            global_inflight: limits::GLOBAL_INFLIGHT_MAX,
            auto_create: true,
            visibility: TimeSpan::from_duration(limits::VISIBILITY),
            visibility_min: TimeSpan::from_duration(limits::VISIBILITY_MIN),
            max_attempts: limits::MAX_ATTEMPTS,
            replay_window: TimeSpan::from_duration(limits::REPLAY_WINDOW),
            retention: TimeSpan::from_duration(limits::RETENTION),
            backoff_base: TimeSpan::from_duration(limits::BACKOFF_BASE),
            backoff_max: TimeSpan::from_duration(limits::BACKOFF_MAX),
            disk_bytes_max: Size(limits::DISK_BYTES_MAX),
            segment_bytes: Size(limits::SEGMENT_BYTES),
            tenant_sends_per_second: 0,
            upkeep_bytes_per_second: Size(limits::UPKEEP_BYTES_PER_SECOND),
            memory_bytes_max: Size(0),
            key_bytes_max: Size(0),
        }
    }
}

impl Options {
    /// What is fixed while the node runs.
    pub fn fixed(&self, location: LogLocation, secret: [u8; 32], ops_permits: usize) -> MailboxOptions {
        MailboxOptions {
            location,
            secret,
            shard_capacity: self.shard_capacity,
            disk_bytes_max: self.disk_bytes_max.bytes() as u64,
            segment_bytes: u32::try_from(self.segment_bytes.bytes()).unwrap_or(u32::MAX),
            ops_permits,
        }
    }

    /// What a reload may change, on a machine with so many cores and, if that is known, so much memory.
    pub fn live(&self, cpus: usize, machine_bytes: Option<u64>) -> LiveOptions {
        let memory_bytes_max = match self.memory_bytes_max.bytes() {
            0 => machine_bytes.map_or(limits::MEMORY_BYTES_MAX as u64, |bytes| bytes / 4),
            bytes => bytes as u64,
        };
        LiveOptions {
            ready_shards: match self.ready_shards {
                0 => cpus.clamp(1, limits::SHARDS_MAX),
                shards => shards,
            },
            global_inflight: self.global_inflight,
            auto_create: self.auto_create,
            visibility_min: self.visibility_min.duration(),
            defaults: TopicSettings {
                visibility_ms: self.visibility.0,
                max_attempts: self.max_attempts,
                replay_window_ms: self.replay_window.0,
                retention_ms: self.retention.0,
                backoff_base_ms: self.backoff_base.0,
                backoff_max_ms: self.backoff_max.0,
                ..TopicSettings::default()
            },
            tenant_sends_per_second: self.tenant_sends_per_second,
            upkeep_bytes_per_second: self.upkeep_bytes_per_second.bytes() as u64,
            memory_bytes_max,
            key_bytes_max: match self.key_bytes_max.bytes() {
                0 => memory_bytes_max / 2,
                bytes => bytes as u64,
            },
        }
    }
}
