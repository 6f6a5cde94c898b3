//! Limits of the overlay.

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
/// Origins that a subscription may begin from.
pub const STARTING_POINTS_MAX: usize = 256;
/// Gaps and epochs that wait for a subscriber that is behind; beyond them it is told as lagged.
pub const SUBSCRIBER_NOTICES_MAX: usize = 128;
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
const _: () = assert!(EGRESS_TOTAL_BYTES_MAX / PEERS_MAX >= super::FRAME_BYTES_MAX, "each peer can be sent a frame");
const _: () = assert!(SUBSCRIBERS_BYTES_MAX >= 8 * SUBSCRIBER_BYTES_MAX, "a few can be far behind");
