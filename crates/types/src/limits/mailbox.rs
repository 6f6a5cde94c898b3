//! Limits and defaults of the mailbox.

use std::time::Duration;

use super::MIB;

/// Operations of callers that may use a core at once where nobody says.
pub const OPS_PERMITS: usize = 64;

/// How long a lease lasts where nobody says.
pub const VISIBILITY: Duration = Duration::from_secs(5);
/// The shortest lease.
pub const VISIBILITY_MIN: Duration = Duration::from_millis(250);
/// The longest lease.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
/// First bound of the wait after a failed delivery.
pub const BACKOFF_BASE: Duration = Duration::from_millis(200);
/// Last bound of the wait after a failed delivery.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The scanner looks at least this long after it last looked.
pub const SCANNER_WAKE_MIN: Duration = Duration::from_millis(50);
/// The scanner looks at most this long after it last looked.
pub const SCANNER_WAKE_MAX: Duration = Duration::from_millis(500);
/// How long an idempotency key is remembered.
pub const REPLAY_WINDOW: Duration = Duration::from_secs(300);
/// Deliveries before a message is dead.
pub const MAX_ATTEMPTS: u32 = 5;
/// How long a message is kept.
pub const RETENTION: Duration = Duration::from_secs(4 * 24 * 3600);
/// The longest a topic may keep messages, and the longest delay.
pub const RETENTION_MAX: Duration = Duration::from_secs(14 * 24 * 3600);
/// Longest wait of a receive that finds nothing.
pub const LONG_POLL_MAX: Duration = Duration::from_secs(20);
/// Newer messages that may be delivered before an older one after a failover.
pub const REORDER_DEPTH_MAX: usize = 32;
/// Largest payload of a message.
pub const PAYLOAD_BYTES_MAX: usize = MIB;
/// All attributes of a message together, as the native surface takes them.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;
/// All attributes of a message together, as the engine keeps them: other surfaces allow as much as a payload, and
/// bytes in base64 take a third more.
pub const ENVELOPE_ATTRIBUTE_BYTES_MAX: usize = 3 * MIB / 2;
/// The name of one attribute, as surfaces take it.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 256;
/// The name of one attribute, as the engine keeps it: a surface may put a word of its own before it.
pub const ENVELOPE_ATTRIBUTE_NAME_BYTES_MAX: usize = ATTRIBUTE_NAME_BYTES_MAX + 64;
/// Attributes of a message.
pub const ATTRIBUTES_MAX: usize = 64;
/// Characters of a topic's name.
pub const TOPIC_NAME_BYTES_MAX: usize = 80;
/// Bytes of a group or of an idempotency key.
pub const KEY_BYTES_MAX: usize = 128;
/// Bytes kept of what a consumer says about a failure.
pub const REASON_BYTES_MAX: usize = 1024;
/// Receives of one node that wait for a message at once: each costs memory, and a connection somewhere.
pub const RECEIVERS_MAX: usize = 16 * 1024;
/// Deliveries remembered of one message.
pub const HISTORY_MAX: usize = 8;
/// Items of one batch, and messages of one receive.
pub const BATCH_MAX: usize = 100;
/// Items that the engine takes in one call: a batch over frames, which costs a caller less than one over HTTP.
pub const CALL_ITEMS_MAX: usize = 1024;
/// Bytes of one receive: messages as they lie in the log.
pub const RECV_BYTES_MAX: usize = 4 * MIB;
/// Bytes of one receive as it is written, unless its only message is larger: base64 adds a third, and what is escaped
/// in JSON may take six times its length.
pub const ANSWER_BYTES_MAX: usize = 2 * RECV_BYTES_MAX;
/// Topics of a node.
pub const TOPICS_MAX: usize = 100_000;
/// Partitions of a topic.
pub const PARTITIONS_MAX: u16 = 64;
/// Messages of a topic, unless it says otherwise.
pub const TOPIC_MESSAGES_MAX: u64 = 100_000_000;
/// Bytes of a topic, unless it says otherwise.
pub const TOPIC_BYTES_MAX: u64 = 1 << 40;
/// Leases of a topic at once, unless it says otherwise.
pub const TOPIC_INFLIGHT_MAX: u32 = 120_000;
/// Shard workers a node runs; how many of them own partitions is configured.
pub const SHARDS_MAX: usize = 8;
/// Jobs waiting for one shard.
pub const SHARD_CAPACITY: usize = 1024;
/// Bytes of payload waiting for one shard.
pub const SHARD_BYTES_MAX: usize = 32 * MIB;
/// Messages of the whole node with consumers at once.
pub const GLOBAL_INFLIGHT_MAX: usize = 1_000_000;
/// Disk the log may take.
pub const DISK_BYTES_MAX: usize = 64 * 1024 * MIB;
/// Bytes of one file of the log.
pub const SEGMENT_BYTES: usize = 16 * MIB;
/// Bytes in a second that making room in the log may move.
pub const UPKEEP_BYTES_PER_SECOND: usize = 32 * MIB;
/// Memory that messages may take where nobody knows how much the machine has.
pub const MEMORY_BYTES_MAX: usize = 1024 * MIB;
/// Payload bytes each shard keeps in memory for deliveries to come.
pub const HOT_BYTES_MAX: usize = 32 * MIB;

const _: () = assert!(VISIBILITY_MIN.as_millis() <= VISIBILITY.as_millis());
const _: () = assert!(REPLAY_WINDOW.as_millis() <= RETENTION.as_millis());
const _: () = assert!(PAYLOAD_BYTES_MAX * 4 / 3 + ATTRIBUTE_BYTES_MAX < super::BODY_BYTES_MAX, "in base64, too");
const _: () = assert!(BATCH_MAX <= CALL_ITEMS_MAX);
const _: () = assert!(RECV_BYTES_MAX * 4 / 3 + BATCH_MAX * 1024 < ANSWER_BYTES_MAX, "payloads in base64 need no cut");
const _: () = assert!(ATTRIBUTE_BYTES_MAX <= ENVELOPE_ATTRIBUTE_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_ATTRIBUTE_BYTES_MAX < SEGMENT_BYTES / 2, "a record fits a file");
const _: () = assert!(SHARD_BYTES_MAX >= 8 * (PAYLOAD_BYTES_MAX + ENVELOPE_ATTRIBUTE_BYTES_MAX));
