//! Limits and defaults of a lookup in the network.

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
/// Peers in the table of one node that nobody has met: known by what they claim alone.
pub const TABLE_UNMET_MAX: usize = 1024;
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
const _: () = assert!(TABLE_UNMET_MAX < TABLE_PEERS_MAX);
