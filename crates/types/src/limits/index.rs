//! Limits and defaults of the index.

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
/// Interval at which what somebody watches is looked up again.
pub const WATCHED_LOOKED_UP_EVERY: Duration = Duration::from_secs(30);
/// Subjects of watchers that are looked up in a second. Where more are watched, each waits longer for its turn.
pub const WATCHED_LOOKED_UP_PER_SECOND: usize = 8;
/// Providers of a watched subject that are remembered, so that each is told once.
pub const WATCHED_PROVIDERS_MAX: usize = 4 * PROVIDERS_MAX;
/// A lookup ends this long before its callers' time is over, so that they get what it found.
pub const ANSWER_MARGIN: Duration = Duration::from_millis(10);
/// Time that a caller waits for the network where strangers' records in the store are all that is known: what a target
/// has at least, so that one that is well is heard.
pub const STRANGERS_WAIT: Duration = super::lookup::ASK_TIMEOUT_MIN;
/// Lookups under way at once. They wait more than they work.
pub const RESOLVERS: usize = 64;
/// One of so many resolvers, and of so many places in the queue for them, every address has for certain.
pub const ASKER_SHARE: usize = 8;
/// One of so many is left to addresses that have fewer than that.
pub const ASKERS_RESERVE_SHARE: usize = 4;
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
/// Providers of one answer, unless its caller filters them first.
pub const PROVIDERS_MAX: usize = super::records::PROVIDERS_PER_KEY_MAX;
/// Providers that one lookup looks at and remembers, of which answers have the best, or the best that pass a filter.
pub const CANDIDATES_MAX: usize = 4 * PROVIDERS_MAX;
/// Updates written in one transaction.
pub const INGEST_BATCH_MAX: usize = 256;
/// Callers that wait for one coalesced update.
pub const INGEST_WAITERS_MAX: usize = 1024;
/// Time a publication has to be written.
pub const INGEST_DEADLINE: Duration = Duration::from_secs(2);
/// Time after which whoever found the store full, or the places of a key taken, may come back: records end by the hour.
pub const STORE_FULL_RETRY: Duration = Duration::from_secs(3600);
/// Providers of one answer that are asked for a chunk of what they say they have.
pub const PROBES_PER_ANSWER_MAX: usize = 3;
/// Time a provider has to show the chunk.
pub const PROBE_TIME: Duration = Duration::from_secs(1);
/// Time for which it is remembered what a provider showed.
pub const POSSESSION_TTL: Duration = Duration::from_secs(600);
/// Time for which a provider that could not be asked is left alone: it may only have been slow.
pub const POSSESSION_UNKNOWN_TTL: Duration = Duration::from_secs(10);
/// Peers of an answer to who is nearest to a key.
pub const CLOSEST_PEERS_MAX: usize = 20;
/// Questions who is nearest to a key that are answered at once.
pub const CLOSEST_AT_ONCE_MAX: usize = 32;
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
/// Records of this node that are signed anew in a second.
pub const RENEWALS_PER_SECOND: usize = 128;
/// Records of this node of which it is looked in a second whether they end soon.
pub const RENEWALS_LOOKED_AT_PER_SECOND: usize = 512;
/// Pause after all that this node says was looked at.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// Time a provider record holds where nobody says.
pub const PROVIDER_TTL: Duration = Duration::from_secs(24 * 3600);
/// Time a name holds where nobody says.
pub const NAME_TTL: Duration = super::records::TTL_MAX;

const _: () = assert!(2 * ASKERS_RESERVE_SHARE <= ASKER_SHARE, "the reserve is enough for two addresses");
const _: () = assert!(WATCHED_LOOKED_UP_PER_SECOND < REFRESH_AT_ONCE, "watchers leave room for other refreshes");
const _: () = assert!(ANSWER_MARGIN.as_millis() <= 50, "the deadline holds within 50 ms");
const _: () = assert!(UNKNOWN_TTL.as_millis() < ABSENT_TTL.as_millis(), "not to know is worth less than to know");
// What the node says itself is renewed at the latest with 3/8 of its life left.
const RENEWED_IN_S: usize = PROVIDER_TTL.as_secs() as usize * 3 / 8;
const SAID_MAX: usize = 2 * super::records::PINS_MAX;
const _: () = assert!(SAID_MAX / RENEWALS_PER_SECOND < RENEWED_IN_S, "all that a node says can be renewed in time");
const _: () = assert!(SAID_MAX / RENEWALS_LOOKED_AT_PER_SECOND < RENEWED_IN_S / 2, "and is looked at in time");
const _: () = assert!(2 * RENEWALS_PER_SECOND <= super::INDEX_INGEST_CAPACITY, "and leaves room for callers");
const _: () = assert!(INGEST_BATCH_MAX >= super::INDEX_INGEST_CAPACITY, "a drain writes what waits in one go");
