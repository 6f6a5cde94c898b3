//! Limits and defaults of the DHT.

use std::time::Duration;

use super::MIB;

/// Nodes nearest to a key that keep its records.
pub const REPLICATION: usize = 20;
/// Most nodes that may keep one record.
pub const REPLICATION_MAX: usize = 64;
/// Nodes a node knows at once.
pub const PEERS_MAX: usize = 4096;
/// Of these, at most one in so many is known by its announcement alone: whoever relays announcements can make them up.
pub const UNMET_ONE_IN: usize = 4;
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
/// A proof of possession costs as much as this many offered records: a mebibyte is hashed for it.
pub const PROOF_COSTS_RECORDS: u64 = 64;
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
