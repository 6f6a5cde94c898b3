//! Every fixed limit and default of the node, with the relations between them proven at compile time.
//!
//! A limit an operator may change appears here as its default; the configuration refers to these constants, so a
//! number has one home.

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
/// An HTTP connection is closed when bytes wait for its peer and none are taken for this time.
pub const WRITE_STALL: Duration = Duration::from_secs(30);
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

// --- retries ---

/// First wait before a retry is drawn from this window.
pub const RETRY_JITTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));
/// No retry waits longer than this.
pub const RETRY_CAP: Duration = Duration::from_secs(2);
/// Tries in all, the first one included.
pub const RETRY_TRIES_MAX: u32 = 3;

/// Limits of the overlay.
pub mod overlay {
    use std::time::Duration;

    use super::MIB;

    /// Items of each queue of the overlay, as the contract has it.
    pub const QUEUE_CAPACITY: usize = 512;
    /// Engines that lanes are divided among, whatever the machine: one that has no lane costs nothing.
    pub const ENGINES: usize = 4;
    /// Changes of settings that may wait, as the contract has it; only the newest counts.
    pub const CONFIG_UPDATES_CAPACITY: usize = 16;
    /// Events a watcher may be behind.
    pub const EVENTS_CAPACITY: usize = 1024;
    /// Sessions that wait for a task to take them.
    pub const SESSIONS_WAITING_MAX: usize = 64;
    /// Bytes of batches that wait for one engine.
    pub const INGRESS_BYTES_MAX: usize = 32 * MIB;
    /// Memory of each engine for messages that peers and subscribers can still ask for.
    pub const RING_BYTES: usize = 32 * MIB;
    /// Bytes that wait for one peer.
    pub const EGRESS_BYTES_MAX: usize = 8 * MIB;
    /// Bytes that wait for all peers together: where there are many, each has its part of it.
    pub const EGRESS_TOTAL_BYTES_MAX: usize = 256 * MIB;
    /// Nodes that one node has sessions with. Every lane knows each of them, and a message is pushed to eight.
    pub const PEERS_MAX: usize = 256;
    /// Lanes that may have a policy of their own for slow peers.
    pub const LANE_POLICIES_MAX: usize = 64;
    /// Bytes in a second that one peer is sent at most where nobody says; 0 for no bound.
    pub const PEER_BYTES_PER_SECOND: usize = 0;
    /// Messages in a second that one lane pushes at most where nobody says: more than an engine can.
    pub const LANE_MESSAGES_PER_SECOND: u64 = 4_000_000;
    /// Messages that one lane pushes at once at most where nobody says.
    pub const LANE_BURST: u64 = 1_000_000;
    /// Subscriptions of one node, all lanes together.
    pub const SUBSCRIPTIONS_MAX: usize = 4096;
    /// Bytes that wait for all subscribers of the node together, what holds the items included; beyond it those with
    /// more than their part lose their oldest.
    pub const SUBSCRIBERS_BYTES_MAX: usize = 128 * MIB;
    /// Items that wait for one subscriber, before the oldest make room.
    pub const SUBSCRIBER_ITEMS_MAX: usize = 4096;
    /// Bytes that wait for one subscriber.
    pub const SUBSCRIBER_BYTES_MAX: usize = 8 * MIB;
    /// Largest payload of one message.
    pub const PAYLOAD_BYTES_MAX: usize = 4 * MIB;
    /// Longest name of a lane, in bytes.
    pub const LANE_NAME_BYTES_MAX: usize = 80;
    /// Time in which another node has shown who it is.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
    /// A session on which nothing is heard for this time has ended.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
    /// First wait before a peer is dialled again is drawn from this window; it doubles.
    pub const REDIAL_JITTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(300));
    /// No wait before a peer is dialled again is longer, so that a network that comes back is whole soon.
    pub const REDIAL_CAP: Duration = Duration::from_secs(10);

    const _: () = assert!(PAYLOAD_BYTES_MAX <= super::BODY_BYTES_MAX, "the HTTP plane reads what the overlay takes");
    const _: () = assert!(PAYLOAD_BYTES_MAX < EGRESS_BYTES_MAX, "the largest message fits into an idle peer's queue");
    const _: () = assert!(PAYLOAD_BYTES_MAX <= SUBSCRIBER_BYTES_MAX, "a subscriber can be handed any message");
    const _: () = assert!(HANDSHAKE_TIMEOUT.as_secs() < IDLE_TIMEOUT.as_secs());
    const _: () =
        assert!(EGRESS_TOTAL_BYTES_MAX / PEERS_MAX >= super::FRAME_BYTES_MAX, "each peer can be sent a frame");
    const _: () = assert!(SUBSCRIBERS_BYTES_MAX >= 8 * SUBSCRIBER_BYTES_MAX, "a few can be far behind");
}

/// Limits of the records about content and of the store that keeps them.
pub mod records {
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
    /// Longest time that a record may last, and that any record of others is kept.
    pub const TTL_MAX: Duration = Duration::from_secs(48 * 3600);
    /// A record issued further in the future than this is refused: a clock may be off, but not by more.
    pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
    /// Largest IPNS record, as its specification has it.
    pub const IPNS_BYTES_MAX: usize = 10 * 1024;
    /// Provider records kept for one key.
    pub const PROVIDERS_PER_KEY_MAX: usize = 64;
    /// Records of all kinds that the store keeps unless told otherwise.
    pub const RECORDS_MAX: usize = 10_000_000;
    /// Largest manifest.
    pub const MANIFEST_BYTES_MAX: usize = MIB;
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

    const _: () = assert!(IPNS_BYTES_MAX * 2 < REQUEST_BYTES_MAX, "any one record fits into a request");
    const _: () = assert!(MANIFEST_BYTES_MAX <= super::BODY_BYTES_MAX, "a manifest can be sent in one request");
    const _: () = assert!(PROVIDERS_PER_KEY_MAX <= WIRE_RECORDS_MAX, "all providers of a key fit into one answer");
    const _: () = assert!(
        (ADDRS_MAX * (ADDR_BYTES_MAX + 2) + PROTOCOLS_MAX * (PROTOCOL_BYTES_MAX + 1) + 256) * PROVIDERS_PER_KEY_MAX
            < ANSWER_BYTES_MAX,
        "the largest provider records of a key fit into one answer"
    );
}

/// Limits and defaults of a lookup in the network.
pub mod lookup {
    use std::time::Duration;

    /// Targets asked at once before anything is late.
    pub const ALPHA: usize = 3;
    /// Further targets asked at once when an answer is late.
    pub const BETA: usize = 2;
    /// Total time of one lookup.
    pub const DEADLINE: Duration = Duration::from_millis(1200);
    /// Wait before a hedge while too little is known about the targets.
    pub const HEDGE_AFTER: Duration = Duration::from_millis(150);
    /// Shortest wait before a hedge: shorter, the noise of a scheduler would be answered with load.
    pub const HEDGE_AFTER_MIN: Duration = Duration::from_millis(20);
    /// Longest wait before a hedge: longer, a hedge could not win before the deadline.
    pub const HEDGE_AFTER_MAX: Duration = Duration::from_millis(400);
    /// A target that is silent for this time has failed, whatever its like need.
    pub const ASK_TIMEOUT: Duration = Duration::from_millis(400);
    /// A target has at least this time, however quick its like are: a busy machine is not a dead one.
    pub const ASK_TIMEOUT_MIN: Duration = Duration::from_millis(200);
    /// A target is given this many times what nearly all its like need.
    pub const ASK_TIMEOUT_FACTOR: u64 = 4;
    /// Nearest targets that must all have answered before a record is called absent; also its copies in the network.
    pub const NEAREST: usize = 20;
    /// Closer targets taken from one answer.
    pub const CLOSER_MAX: usize = 20;
    /// Targets known to one lookup; the furthest go first.
    pub const CANDIDATES_MAX: usize = 256;
    /// Questions of one lookup, hedges and retries included.
    pub const ASKS_MAX: usize = 96;
    /// Retries of one lookup.
    pub const RETRIES_MAX: usize = 3;
    /// Wait before a retry is drawn from this window.
    pub const RETRY_JITTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(100));
    /// Hedges for each thousand other questions. A little under the promised 100, so that the tokens a budget starts
    /// with are paid back.
    pub const HEDGE_PER_MILLE: u32 = 95;
    /// Hedges that may follow each other without a question between them.
    pub const HEDGE_BURST: u32 = 10;

    /// Window over which the share of errors of a target is judged.
    pub const BREAKER_WINDOW: Duration = Duration::from_secs(30);
    /// Calls in the window below which a breaker never opens.
    pub const BREAKER_CALLS_MIN: u32 = 5;
    /// Share of errors above which a breaker opens, per mille.
    pub const BREAKER_TRIP_PER_MILLE: u32 = 500;
    /// First cool-down of a breaker; it doubles with each trip that follows soon.
    pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(5);
    /// Longest cool-down of a breaker, without its jitter.
    pub const BREAKER_COOLDOWN_MAX: Duration = Duration::from_secs(120);
    /// Probes that must succeed before a breaker closes.
    pub const BREAKER_PROBES: u32 = 1;
    /// Share of the known targets whose breakers may be open at once, per mille.
    pub const BREAKER_OPEN_PER_MILLE_MAX: u32 = 333;
    /// Targets with a breaker; the closed one unused for longest makes room.
    pub const BREAKER_TARGETS_MAX: usize = 16_384;

    /// Peers in the table of one node.
    pub const TABLE_PEERS_MAX: usize = 65_536;
    /// Peers of one network of addresses (IPv4 /16, IPv6 /32) in the whole table.
    pub const TABLE_GROUP_PEERS_MAX: usize = 64;
    /// Peers of one network of addresses among those that share a prefix of the same length with the node.
    pub const TABLE_GROUP_BUCKET_MAX: usize = 8;
    /// Addresses of one peer that are looked at.
    pub const TABLE_ADDRESSES_MAX: usize = 8;

    /// Time in which a node publishes everything it provides once more.
    pub const SWEEP_PERIOD: Duration = Duration::from_secs(22 * 60 * 60);
    /// Time in which a node hands the records it keeps for others to those nearest to them now. When a third of the
    /// nodes leaves in an hour, a record of 20 copies keeps some of them for far longer than this.
    pub const REPAIR_PERIOD: Duration = Duration::from_secs(60 * 60);

    const _: () = assert!(ASK_TIMEOUT.as_millis() * 2 < DEADLINE.as_millis(), "a second wave fits into the deadline");
    const _: () = assert!(ASK_TIMEOUT_MIN.as_millis() < ASK_TIMEOUT.as_millis());
    const _: () = assert!(HEDGE_AFTER_MIN.as_millis() < HEDGE_AFTER.as_millis());
    const _: () = assert!(HEDGE_AFTER.as_millis() < HEDGE_AFTER_MAX.as_millis());
    const _: () = assert!(NEAREST <= ASKS_MAX && ASKS_MAX <= CANDIDATES_MAX);
    const _: () = assert!(TABLE_GROUP_BUCKET_MAX <= TABLE_GROUP_PEERS_MAX);
}

/// Limits and defaults of the DHT.
pub mod dht {
    use std::time::Duration;

    use super::MIB;

    /// Nodes nearest to a key that keep its records.
    pub const REPLICATION: usize = 20;
    /// Most nodes that may keep one record.
    pub const REPLICATION_MAX: usize = 64;
    /// Nodes a node knows at once.
    pub const PEERS_MAX: usize = 4096;
    /// Nodes that were named by others and not met yet, whose addresses are remembered.
    pub const CANDIDATES_MAX: usize = 4096;
    /// Addresses remembered of one node.
    pub const ADDRESSES_PER_PEER_MAX: usize = 8;
    /// Nodes of the bootstrap list.
    pub const BOOTSTRAP_MAX: usize = 64;
    /// Connections with other nodes at once.
    pub const CONNECTIONS_MAX: usize = 1024;
    /// Connections that other nodes opened from one IP address at once; loopback is exempt.
    pub const CONNECTIONS_PER_IP_MAX: usize = 8;
    /// Connections of one node at once: both sides may dial, over TCP and over QUIC.
    pub const CONNECTIONS_PER_PEER_MAX: usize = 4;
    /// Connections whose handshake is under way at once.
    pub const HANDSHAKES_MAX: usize = 128;
    /// Streams of one connection, of all protocols and both ways: each can make the node hold a window of 256 KiB.
    pub const STREAMS_MAX: usize = 128;
    /// Streams of one connection whose protocol is being agreed on.
    pub const STREAMS_NEGOTIATING_MAX: usize = 64;
    /// Questions of this node that one other node has at once; more wait for those.
    pub const ASKS_PER_PEER_AT_ONCE_MAX: usize = 32;
    /// Questions and offers of one node in a second, sustained.
    pub const ASKS_PER_PEER_PER_SECOND: u64 = 1000;
    /// Questions of one node that may wait for their answer here.
    pub const ASKS_PER_PEER_WAITING_MAX: usize = 48;
    /// Records that one node may offer in a second, sustained: each costs a signature.
    pub const OFFERED_PER_PEER_PER_SECOND: u64 = 4096;
    /// Questions of other nodes that wait for an answer.
    pub const ASKED_CAPACITY: usize = 512;
    /// Bytes of the offers among them.
    pub const ASKED_BYTES_MAX: usize = 16 * MIB;
    /// Bytes of requests that are being read from one connection.
    pub const READING_BYTES_PER_CONNECTION_MAX: usize = MIB;
    /// Answers on their way to the task that sends them.
    pub const ANSWERS_CAPACITY: usize = 512;
    /// Bytes of the answers that wait to be sent.
    pub const ANSWERS_BYTES_MAX: usize = 32 * MIB;
    /// Orders to the network that wait to be taken.
    pub const ORDERS_CAPACITY: usize = 1024;
    /// Questions of this node that wait for another one at once.
    pub const ASKS_IN_FLIGHT_MAX: usize = 2048;
    /// Longest time a question may wait for its answer.
    pub const ASK_TIME_MAX: Duration = Duration::from_secs(5);
    /// Records that wait to be placed at the nodes nearest to their keys.
    pub const KEEP_CAPACITY: usize = 4096;
    /// Bytes of the records that wait to be placed.
    pub const KEEP_BYTES_MAX: usize = 16 * MIB;
    /// Offers of records under way at once.
    pub const OFFERS_AT_ONCE_MAX: usize = 16;
    /// Time in which a dialled node must have shown who it is.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
    /// A connection without a question is closed after this time.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
    /// Every connection is asked for a sign of life this often.
    pub const PING_INTERVAL: Duration = Duration::from_secs(15);
    /// A node that shows no sign of life for this time has its connection closed.
    pub const PING_TIMEOUT: Duration = Duration::from_secs(10);
    /// The neighbourhood is looked up again this often.
    pub const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
    /// A node tells the overlay where it is this often.
    pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(60);
    /// What a node says of its addresses holds for this time.
    pub const PEER_RECORD_TTL: Duration = Duration::from_secs(24 * 3600);
    /// The known nodes are written down this often, if they changed.
    pub const PEERS_SAVED_EVERY: Duration = Duration::from_secs(60);
    /// Nodes that are written down.
    pub const PEERS_SAVED_MAX: usize = 1024;
    /// Largest file of known nodes that is read.
    pub const PEERS_FILE_BYTES_MAX: usize = 2 * MIB;
    /// Every held record is looked at once in this time.
    pub const REPUBLISH_INTERVAL: Duration = Duration::from_secs(3600);
    /// Failures in a row after which a node is no longer known.
    pub const FAILURES_MAX: u32 = 5;

    const _: () = assert!(REPLICATION <= REPLICATION_MAX && REPLICATION_MAX <= PEERS_MAX);
    const _: () = assert!(ASKS_PER_PEER_AT_ONCE_MAX < ASKS_PER_PEER_WAITING_MAX, "an honest node is never refused");
    const _: () = assert!(2 * ASKS_PER_PEER_AT_ONCE_MAX < STREAMS_MAX, "both sides may ask at once, and look about");
    const _: () = assert!(8 * ASKS_PER_PEER_WAITING_MAX <= ASKED_CAPACITY, "one node cannot fill the queue");
    const _: () = assert!(CONNECTIONS_PER_IP_MAX <= CONNECTIONS_MAX);
    const _: () = assert!(PEERS_SAVED_MAX * ADDRESSES_PER_PEER_MAX * 160 <= PEERS_FILE_BYTES_MAX);
    const _: () = assert!(ANNOUNCE_INTERVAL.as_secs() < PEER_RECORD_TTL.as_secs());
}

/// Limits and defaults of the rewarder.
pub mod rewarder {
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
    /// Epochs whose artifacts a node keeps.
    pub const EPOCHS_MAX: usize = 100_000;
    /// Epochs that a node remembers, with or without artifacts: each is a small row in memory and in the seal log.
    pub const EPOCHS_KNOWN_MAX: usize = 400_000;
    /// Disk that the artifacts of epochs may take.
    pub const EPOCHS_BYTES_MAX: usize = 256 * 1024 * MIB;
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
}

/// Limits and defaults of the mailbox.
pub mod mailbox {
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
    /// Deliveries remembered of one message.
    pub const HISTORY_MAX: usize = 8;
    /// Items of one batch, and messages of one receive.
    pub const BATCH_MAX: usize = 100;
    /// Items that the engine takes in one call: a batch over frames, which costs a caller less than one over HTTP.
    pub const CALL_ITEMS_MAX: usize = 1024;
    /// Bytes of one receive.
    pub const RECV_BYTES_MAX: usize = 4 * MIB;
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
    /// Idempotency keys remembered for one partition.
    pub const KEYS_MAX: usize = 2_000_000;
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
    const _: () = assert!(ATTRIBUTE_BYTES_MAX <= ENVELOPE_ATTRIBUTE_BYTES_MAX);
    const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_ATTRIBUTE_BYTES_MAX < SEGMENT_BYTES / 2, "a record fits a file");
    const _: () = assert!(SHARD_BYTES_MAX >= 8 * (PAYLOAD_BYTES_MAX + ENVELOPE_ATTRIBUTE_BYTES_MAX));
}

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
/// Verified tokens remembered at once; the oldest goes first.
pub const CAPABILITY_CACHE_TOKENS_MAX: usize = 1024;
/// Bytes of all verified tokens remembered, with what is remembered of them.
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
const _: () = assert!(DRAIN_DEADLINE.as_millis() <= DRAIN_DEADLINE_MAX.as_millis());
const _: () = assert!(REQUEST_DEADLINE.as_millis() <= REQUEST_DEADLINE_MAX.as_millis());
const _: () = assert!(
    RETRY_JITTER.0.as_millis() < RETRY_JITTER.1.as_millis() && RETRY_JITTER.1.as_millis() < RETRY_CAP.as_millis()
);
const _: () = assert!(CAPABILITY_BYTES_MAX <= HEADER_BYTES_MAX / 2, "a token must leave room for the other headers");

/// Limits and defaults of the index.
pub mod index {
    use std::time::Duration;

    use super::MIB;

    /// Lookups waiting for a resolver, as the contract has it.
    pub const WORK_CAPACITY: usize = 512;
    /// Subjects waiting to be looked up again.
    pub const REFRESH_CAPACITY: usize = 256;
    /// Subjects looked up again at once.
    pub const REFRESH_AT_ONCE: usize = 16;
    /// Events an observer may be behind, as the contract has it.
    pub const EVENTS_CAPACITY: usize = 1024;
    /// Changes that wait for one watcher, before the oldest make room.
    pub const WATCHER_ITEMS_MAX: usize = 64;
    /// Watchers of a node.
    pub const WATCHERS_MAX: usize = 8192;
    /// A lookup ends this long before its callers' time is over, so that they get what it found.
    pub const ANSWER_MARGIN: Duration = Duration::from_millis(10);
    /// Lookups under way at once. They wait more than they work.
    pub const RESOLVERS: usize = 64;
    /// Memory for answers.
    pub const CACHE_BYTES: usize = 64 * MIB;
    /// Longest time an answer is used without asking again.
    pub const CACHE_TTL: Duration = Duration::from_secs(60);
    /// Time for which it is remembered that nobody has something.
    pub const ABSENT_TTL: Duration = Duration::from_secs(15);
    /// Time for which it is remembered that nobody could say: short, since the next try may well succeed.
    pub const UNKNOWN_TTL: Duration = Duration::from_secs(2);
    /// Interval of the purge.
    pub const PURGE_INTERVAL: Duration = Duration::from_secs(60);
    /// Interval at which error windows are rolled.
    pub const BREAKER_ROLL: Duration = Duration::from_secs(1);
    /// Names and content that can be looked up at the start.
    pub const WARMUP_KEYS_MAX: usize = 1024;
    /// Longest name or hash at the start, in bytes.
    pub const WARMUP_KEY_BYTES_MAX: usize = 512;
    /// Time for which the first lookups wait for the network to know somebody.
    pub const WARMUP_WAIT: Duration = Duration::from_secs(10);
    /// Upstream routers.
    pub const UPSTREAMS_MAX: usize = 16;
    /// Longest address of an upstream router, in bytes.
    pub const UPSTREAM_BYTES_MAX: usize = 256;
    /// Providers of one answer.
    pub const PROVIDERS_MAX: usize = super::records::PROVIDERS_PER_KEY_MAX;
    /// Providers that one lookup looks at, before the best are taken.
    pub const CANDIDATES_MAX: usize = 4 * PROVIDERS_MAX;
    /// Updates written in one transaction.
    pub const INGEST_BATCH_MAX: usize = 256;
    /// Callers that wait for one coalesced update.
    pub const INGEST_WAITERS_MAX: usize = 1024;
    /// Time a publication has to be written.
    pub const INGEST_DEADLINE: Duration = Duration::from_secs(2);
    /// Lookups that the live page can draw.
    pub const RECENT_MAX: usize = 64;
    /// Seconds over which the load of the resolvers is averaged.
    pub const CAPACITY_WINDOW_S: usize = 60;
    /// Peers of which it is remembered how they did.
    pub const PEERS_REMEMBERED_MAX: usize = 4096;
    /// Targets that metrics name.
    pub const TARGETS_NAMED_MAX: usize = 64;
    /// Addresses with questions under way at once.
    pub const ADDRESSES_MAX: usize = 65_536;
    /// How long an idempotency key is remembered.
    pub const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(24 * 3600);
    /// Longest idempotency key, in bytes.
    pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
    /// Time a provider record holds where nobody says.
    pub const PROVIDER_TTL: Duration = Duration::from_secs(24 * 3600);
    /// Time a name holds where nobody says.
    pub const NAME_TTL: Duration = super::records::TTL_MAX;

    const _: () = assert!(ANSWER_MARGIN.as_millis() <= 50, "the deadline holds within 50 ms");
    const _: () = assert!(UNKNOWN_TTL.as_millis() < ABSENT_TTL.as_millis(), "not to know is worth less than to know");
    const _: () = assert!(INGEST_BATCH_MAX >= super::INDEX_INGEST_CAPACITY, "a drain writes what waits in one go");
}
