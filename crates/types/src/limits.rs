//! Every fixed limit and default of the node, with the relations between them proven at compile time.
//!
//! A limit an operator may change appears here as its default; the configuration refers to these constants, so a
//! number has one home.

pub mod dht;
pub mod index;
pub mod lookup;
pub mod mailbox;
pub mod overlay;
pub mod records;
pub mod rewarder;

use std::time::Duration;

/// One mebibyte, so that sizes read as they are said.
pub const MIB: usize = 1024 * 1024;

// --- frames and bodies ---

/// Largest length-prefixed frame on the OAP port.
pub const FRAME_BYTES_MAX: usize = MIB;
/// Largest HTTP request body, before and after decompression.
pub const BODY_BYTES_MAX: usize = 4 * MIB;
/// A compressed body may grow at most this many times.
pub const INFLATE_RATIO_MAX: usize = 10;
/// All header lines of one HTTP request together.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// What one read from a stream is asked for.
pub const CHUNK_BYTES: usize = 64 * 1024;

// --- time ---

/// A started frame or body must arrive within this time.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// A reply must be taken by the peer within this time.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// An HTTP connection is closed when bytes wait for its peer and too few are taken over this time.
pub const WRITE_STALL: Duration = Duration::from_secs(30);
/// Bytes in a second that the peer of an HTTP connection must take at least while they wait for it.
pub const ANSWER_BYTES_PER_SECOND_MIN: u64 = 1024;
/// Bytes of an answer that the system may hold for one connection without having sent them. A full socket takes bytes
/// again when half of them are gone, which at the least rate must happen within [`WRITE_STALL`].
pub const UNSENT_BYTES_MAX: u32 = 32 * 1024;
/// A connection with nothing in flight is closed after this time.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// TLS handshake, HTTP header block, or first OAP frame must be complete within this time.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Total time a request has from its first byte understood to its answer.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(2);
/// The longest deadline a caller may ask for.
pub const REQUEST_DEADLINE_MAX: Duration = Duration::from_secs(30);
/// Total time of a drain.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(3);
/// The ceiling of the drain deadline unless the operator raises it.
pub const DRAIN_DEADLINE_MAX: Duration = Duration::from_secs(5);

// --- queues ---

/// Events a bus receiver may be behind before it is handed a snapshot instead.
pub const BUS_CAPACITY: usize = 1024;
/// Jobs waiting for a worker.
pub const WORK_CAPACITY: usize = 512;
/// Bytes of payload waiting for a worker: a count alone is not a memory bound.
pub const WORK_BYTES_MAX: usize = 64 * MIB;
/// Measurements waiting to be aggregated.
pub const TELEMETRY_CAPACITY: usize = 512;
/// Configuration changes waiting to be applied.
pub const CONFIG_UPDATES_CAPACITY: usize = 64;
/// Index updates waiting to be ingested.
pub const INDEX_INGEST_CAPACITY: usize = 256;

// --- connections ---

/// Connections one HTTP or OAP listener holds at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections one address may hold at once.
pub const CONNECTIONS_PER_IP_MAX: usize = 256;
/// New connections one address may open in a second, sustained.
pub const ACCEPTS_PER_IP_PER_SECOND: u32 = 1024;
/// Requests of one route in flight at once, of which one caller can have half: 1,024.
pub const ROUTE_CONCURRENCY_MAX: usize = 2048;
/// Requests and streams that wait for something to happen at once, of which one caller can have half.
pub const WAITING_MAX: usize = 8192;
/// Bytes of all HTTP request bodies in memory at once, of which one caller can have half.
pub const BODY_MEMORY_BYTES_MAX: usize = 128 * MIB;
/// Bytes of all HTTP answers in memory at once, until they have left, of which one caller can have half.
pub const ANSWER_MEMORY_BYTES_MAX: usize = 128 * MIB;

// --- retries ---

/// First wait before a retry is drawn from this window.
pub const RETRY_JITTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));
/// No retry waits longer than this.
pub const RETRY_CAP: Duration = Duration::from_secs(2);
/// Tries in all, the first one included.
pub const RETRY_TRIES_MAX: u32 = 3;

// --- tenants ---

/// Tenants whose rates are known at once; one that is unknown when all places are taken is told to come back.
pub const TENANTS_MAX: usize = 100_000;

// --- capabilities ---

/// A runtime whose supervisor has not turned for this long does not turn: everything that runs on it waits.
pub const RUNTIME_STILL_MAX: Duration = Duration::from_secs(2);
/// Time beyond the drain deadline after which the process ends itself: what is left of a drain that turned is to stop
/// the admin thread, which takes a second at most.
pub const DRAIN_OVERRUN_MAX: Duration = Duration::from_secs(2);

/// How long a verified token may be used without looking again.
pub const CAPABILITY_CACHE_TTL: Duration = Duration::from_secs(30);
/// Bytes of all verified tokens remembered, with what is remembered of them; the oldest goes first. There is room for
/// about thirty thousand of common size: their number alone is no bound, because each that is not remembered costs its
/// signatures again with every request.
pub const CAPABILITY_CACHE_BYTES_MAX: usize = 32 * MIB;
/// Maximum rights in one grant or one narrowing.
pub const CAPABILITY_RIGHTS_MAX: usize = 256;
/// Maximum limits in one grant.
pub const CAPABILITY_LIMITS_MAX: usize = 32;
/// Longest token that is looked at.
pub const CAPABILITY_BYTES_MAX: usize = 8 * 1024;
/// Maximum blocks of one token: the minted one and one for each narrowing. Each costs the node a signature.
pub const CAPABILITY_BLOCKS_MAX: usize = 5;

const _: () = assert!(FRAME_BYTES_MAX <= BODY_BYTES_MAX, "a frame must fit where a body fits");
const _: () = assert!(WORK_BYTES_MAX >= 8 * BODY_BYTES_MAX, "a few of the largest bodies must fit the work queue");
const _: () = assert!(CHUNK_BYTES <= FRAME_BYTES_MAX);
const _: () = assert!(CONNECTIONS_PER_IP_MAX <= CONNECTIONS_MAX);
const _: () =
    assert!(REQUEST_DEADLINE.as_millis() < DRAIN_DEADLINE.as_millis(), "a request in flight can end inside a drain");
const _: () = assert!(
    UNSENT_BYTES_MAX as u64 / 2 <= ANSWER_BYTES_PER_SECOND_MIN * WRITE_STALL.as_secs(),
    "a peer at the least rate must be seen to read"
);
const _: () = assert!(DRAIN_DEADLINE.as_millis() <= DRAIN_DEADLINE_MAX.as_millis());
const _: () = assert!(REQUEST_DEADLINE.as_millis() <= REQUEST_DEADLINE_MAX.as_millis());
const _: () = assert!(
    RETRY_JITTER.0.as_millis() < RETRY_JITTER.1.as_millis() && RETRY_JITTER.1.as_millis() < RETRY_CAP.as_millis()
);
const _: () = assert!(CAPABILITY_BYTES_MAX <= HEADER_BYTES_MAX / 2, "a token must leave room for the other headers");
