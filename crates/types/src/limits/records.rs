//! Limits of the records about content and of the store that keeps them.

use std::time::Duration;

use super::MIB;

/// Longest text that is read as an id of content: a digest of 64 bytes in base 2, with what names its kind.
pub const CONTENT_ID_TEXT_BYTES_MAX: usize = 768;
/// Longest label of a name.
pub const LABEL_BYTES_MAX: usize = 128;
/// Addresses of one record.
pub const ADDRS_MAX: usize = 8;
/// Longest address, in its binary form.
pub const ADDR_BYTES_MAX: usize = 128;
/// Protocols of one provider record.
pub const PROTOCOLS_MAX: usize = 8;
/// Longest name of a protocol.
pub const PROTOCOL_BYTES_MAX: usize = 64;
/// Longest name of a region.
pub const REGION_BYTES_MAX: usize = 32;
/// Longest time that a record may last, and that any record of others is kept.
pub const TTL_MAX: Duration = Duration::from_secs(48 * 3600);
/// A record issued further in the future than this is refused: a clock may be off, but not by more.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// Largest IPNS record, as its specification has it.
pub const IPNS_BYTES_MAX: usize = 10 * 1024;
/// Provider records kept for one key.
pub const PROVIDERS_PER_KEY_MAX: usize = 64;
/// Records of all kinds that the store keeps unless told otherwise.
pub const RECORDS_MAX: usize = 11_000_000;
/// Bytes of all records that the store keeps on disk unless told otherwise: their rows and values, not the pages around
/// them. A count alone is no bound, as an IPNS record may have sixty times the bytes of a provider record.
pub const RECORDS_BYTES_MAX: usize = 4096 * MIB;
/// The same where the store is memory alone.
pub const RECORDS_BYTES_IN_MEMORY_MAX: usize = 128 * MIB;
/// One of so many records, and of so many bytes of records, is room for what this node itself publishes: strangers who
/// fill the store do not silence its operator.
pub const RECORDS_RESERVE_SHARE: usize = 16;
/// Names, peers and IPNS records that are dropped in one transaction when they are over: whoever writes waits no longer
/// than for these.
pub const EXPIRED_AT_ONCE_MAX: usize = 4096;
/// Largest manifest.
pub const MANIFEST_BYTES_MAX: usize = MIB;
/// Hashes between a chunk of 1 KiB of the largest manifest and its root.
pub const POSSESSION_DEPTH_MAX: usize = 10;
/// Bytes of all manifests that the store keeps unless told otherwise.
pub const MANIFESTS_BYTES_MAX: usize = 1024 * MIB;
/// Pins that the store keeps, and keys that the node itself provides.
pub const PINS_MAX: usize = 1_000_000;
/// Largest answer remembered for an idempotency key.
pub const REMEMBERED_BYTES_MAX: usize = 64 * 1024;
/// Answers remembered at once.
pub const REMEMBERED_MAX: usize = 16 * 1024;
/// Memory in which the store keeps pages of its file.
pub const STORE_CACHE_BYTES: usize = 64 * MIB;
/// Largest request of the index protocol.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Largest answer of the index protocol.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Records of one request or answer of the index protocol.
pub const WIRE_RECORDS_MAX: usize = 64;
/// Closer peers named in one answer of the index protocol.
pub const CLOSER_MAX: usize = 20;

/// Provider records of strangers that the store is made for, and the bytes of one with its row.
const STRANGERS_RECORDS: usize = 10_000_000;
const SMALL_RECORD_BYTES: usize = 256;

const _: () = assert!(RECORDS_MAX - RECORDS_MAX / RECORDS_RESERVE_SHARE >= STRANGERS_RECORDS, "beside the reserve");
const _: () = assert!(
    RECORDS_BYTES_MAX - RECORDS_BYTES_MAX / RECORDS_RESERVE_SHARE >= STRANGERS_RECORDS * SMALL_RECORD_BYTES,
    "small records are bounded by their number, not by their bytes"
);
const _: () = assert!(MANIFEST_BYTES_MAX <= 1024 << POSSESSION_DEPTH_MAX, "every chunk of a manifest can be proved");
const _: () = assert!(IPNS_BYTES_MAX * 2 < REQUEST_BYTES_MAX, "any one record fits into a request");
const _: () = assert!(MANIFEST_BYTES_MAX <= super::BODY_BYTES_MAX, "a manifest can be sent in one request");
const _: () = assert!(PROVIDERS_PER_KEY_MAX <= WIRE_RECORDS_MAX, "all providers of a key fit into one answer");
const _: () = assert!(
    (ADDRS_MAX * (ADDR_BYTES_MAX + 2) + PROTOCOLS_MAX * (PROTOCOL_BYTES_MAX + 1) + 256) * PROVIDERS_PER_KEY_MAX
        < ANSWER_BYTES_MAX,
    "the largest provider records of a key fit into one answer"
);
