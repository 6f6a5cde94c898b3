//! The index's section of the configuration: every key once, with its meaning, bounds and reload class.

use std::sync::Arc;
use std::time::Duration;

use ron_types::limits::{index as limits, lookup, records};
use ron_types::settings::{
    DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS, ValueKind, choice, live, process, size, texts, time, whole,
    word,
};
use ron_types::{Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hedge earlier than this is answered with noise, a later one comes too late to be of use.
fn hedge_time() -> ValueKind {
    time(lookup::HEDGE_AFTER_MIN.as_millis() as u64, lookup::HEDGE_AFTER_MAX.as_millis() as u64)
}

/// The index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Time in which a question is answered, whatever peers do.
    #[schemars(extend("x-setting" = live(time(50, 30 * SECOND_MS))))]
    pub resolve_deadline: TimeSpan,
    /// Time after which more targets are asked, until enough answers were seen to know how long they take.
    #[schemars(extend("x-setting" = live(hedge_time())))]
    pub hedge_after: TimeSpan,
    /// Targets asked at first.
    #[schemars(extend("x-setting" = live(whole(1, 16))))]
    pub alpha: usize,
    /// Targets asked in addition when the first ones take long; 0 asks nobody else.
    #[schemars(extend("x-setting" = live(whole(0, 16))))]
    pub beta: usize,
    /// Questions of one lookup that are asked again after a failure that may pass.
    #[schemars(extend("x-setting" = live(whole(0, 16))))]
    pub retry_max: usize,
    /// Wait before a question is tried again is drawn from this window.
    #[schemars(extend("x-setting" = live(ValueKind::Window { max_ms: MINUTE_MS })))]
    pub retry_jitter_ms: [u64; 2],
    /// Questions of one address at once.
    #[schemars(extend("x-setting" = live(whole(1, 65_536))))]
    pub per_ip_connections: usize,
    /// Questions of one address in a second; 0 counts none.
    #[schemars(extend("x-setting" = live(whole(0, 10_000_000))))]
    pub per_ip_per_second: u64,
    /// Largest body of a request, and largest document.
    #[schemars(extend("x-setting" = live(size(KIB, records::MANIFEST_BYTES_MAX))))]
    pub max_body_bytes: Size,
    /// Who may resolve: everybody, or bearers of a token with `index:read`.
    #[schemars(extend("x-setting" = live(choice(&["public", "token"]))))]
    pub access: Access,
    /// Region this node is in, as its operators call it: said in what it provides, and providers of the same one rank
    /// higher. Nodes of releases before this key cannot read records with a region.
    #[schemars(extend("x-setting" = live(word(records::REGION_BYTES_MAX))))]
    pub region: String,
    /// Whether providers are asked, after an answer is given, for one random chunk of content they say they have: who
    /// shows it ranks higher, who shows something else last. Nodes of releases before this key do not answer it.
    #[schemars(extend("x-setting" = live(ValueKind::Switch)))]
    pub possession_probe: bool,
    /// Lookups under way at once.
    #[schemars(extend("x-setting" = process(whole(1, 1024))))]
    pub resolvers: usize,
    /// Memory for answers.
    #[schemars(extend("x-setting" = process(size(MIB, 64 * GIB))))]
    pub cache_bytes: Size,
    /// Longest time an answer is used without asking again.
    #[schemars(extend("x-setting" = live(time(0, DAY_MS))))]
    pub cache_ttl: TimeSpan,
    /// Time for which it is remembered that nobody has something.
    #[schemars(extend("x-setting" = live(time(0, HOUR_MS))))]
    pub absent_ttl: TimeSpan,
    /// Time for which it is remembered that nobody could say.
    #[schemars(extend("x-setting" = live(time(0, HOUR_MS))))]
    pub unknown_ttl: TimeSpan,
    /// Interval at which a node in amnesia mode forgets every answer, and every node what has expired.
    #[schemars(extend("x-setting" = live(time(SECOND_MS, DAY_MS))))]
    pub purge_interval: TimeSpan,
    /// Names and content looked up at the start, before somebody asks.
    #[schemars(extend("x-setting" = process(texts(limits::WARMUP_KEYS_MAX, limits::WARMUP_KEY_BYTES_MAX))))]
    pub warmup_keys: Vec<String>,
    /// Routers asked beside the peers: addresses of their `/routing/v1`.
    #[schemars(extend("x-setting" = process(texts(limits::UPSTREAMS_MAX, limits::UPSTREAM_BYTES_MAX))))]
    pub upstreams: Vec<String>,
    /// Records that the store keeps; more are refused. One in sixteen is for what the node itself publishes.
    #[schemars(extend("x-setting" = process(whole(1_000, 1_000_000_000))))]
    pub records_max: usize,
    /// Bytes of all records together; more are refused. One in sixteen is for what the node itself publishes. The file,
    /// or in amnesia mode memory, takes up to about three times as much. 0 means 4GiB, or 128MiB in amnesia mode.
    #[schemars(extend("x-setting" = process(size(0, 1024 * GIB))))]
    pub records_bytes_max: Size,
    /// Disk, or in amnesia mode memory, for documents; more are refused.
    #[schemars(extend("x-setting" = process(size(MIB, 1024 * GIB))))]
    pub manifests_bytes_max: Size,
    /// Memory in which the store keeps pages of its file.
    #[schemars(extend("x-setting" = process(size(MIB, 64 * GIB))))]
    pub store_cache_bytes: Size,
    /// Seconds over which the failures of a target are counted.
    #[schemars(extend("x-setting" = live(whole(1, 3_600))))]
    pub error_window_s: u64,
    /// Failures in a hundred from which on a target is left out.
    #[schemars(extend("x-setting" = live(whole(1, 100))))]
    pub trip_threshold: u64,
    /// Seconds for which a target is left out at first; each time in a row it is longer.
    #[schemars(extend("x-setting" = live(whole(1, 3_600))))]
    pub cooldown_s: u64,
    /// Questions that a target which was left out must answer before it is trusted again.
    #[schemars(extend("x-setting" = live(whole(1, 100))))]
    pub half_open_probes: u32,
}

/// Who may resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Everybody.
    Public,
    /// Bearers of a token that allows it.
    Token,
}

/// What a reload may change.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveOptions {
    /// Time in which a question is answered.
    pub resolve_deadline: Duration,
    /// Time after which more targets are asked, before it was measured.
    pub hedge_after: Duration,
    /// Targets asked at first.
    pub alpha: usize,
    /// Targets asked in addition.
    pub beta: usize,
    /// Questions of one lookup that are asked again.
    pub retry_max: usize,
    /// Window of the wait before a question is tried again.
    pub retry_jitter: (Duration, Duration),
    /// Questions of one address at once.
    pub per_ip_connections: usize,
    /// Questions of one address in a second; 0 counts none.
    pub per_ip_per_second: u64,
    /// Largest body of a request, and largest document.
    pub body_bytes_max: usize,
    /// Who may resolve.
    pub access: Access,
    /// Region this node is in; none if nobody said.
    pub region: Option<Arc<str>>,
    /// Whether providers are asked for a chunk of what they say they have.
    pub possession_probe: bool,
    /// Longest time an answer is used without asking again.
    pub cache_ttl: Duration,
    /// Time for which it is remembered that nobody has something.
    pub absent_ttl: Duration,
    /// Time for which it is remembered that nobody could say.
    pub unknown_ttl: Duration,
    /// Interval of the purge.
    pub purge_interval: Duration,
    /// When targets are left out, and for how long.
    pub breaker: BreakerOptions,
}

/// When a target is left out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Seconds over which failures are counted.
    pub error_window_s: u64,
    /// Failures in a hundred from which on a target is left out.
    pub trip_threshold: u64,
    /// Seconds for which a target is left out at first.
    pub cooldown_s: u64,
    /// Questions it must answer before it is trusted again.
    pub half_open_probes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            resolve_deadline: TimeSpan::from_duration(lookup::DEADLINE),
            hedge_after: TimeSpan::from_duration(lookup::HEDGE_AFTER),
            alpha: lookup::ALPHA,
            beta: lookup::BETA,
            retry_max: lookup::RETRIES_MAX,
            retry_jitter_ms: [lookup::RETRY_JITTER.0.as_millis() as u64, lookup::RETRY_JITTER.1.as_millis() as u64],
            per_ip_connections: ron_types::limits::CONNECTIONS_PER_IP_MAX,
            per_ip_per_second: 0,
            max_body_bytes: Size(records::MANIFEST_BYTES_MAX),
            access: Access::Public,
            region: String::new(),
            possession_probe: false,
            resolvers: limits::RESOLVERS,
            cache_bytes: Size(limits::CACHE_BYTES),
            cache_ttl: TimeSpan::from_duration(limits::CACHE_TTL),
            absent_ttl: TimeSpan::from_duration(limits::ABSENT_TTL),
            unknown_ttl: TimeSpan::from_duration(limits::UNKNOWN_TTL),
            purge_interval: TimeSpan::from_duration(limits::PURGE_INTERVAL),
            warmup_keys: Vec::new(),
            upstreams: Vec::new(),
            records_max: records::RECORDS_MAX,
            records_bytes_max: Size(0),
            manifests_bytes_max: Size(records::MANIFESTS_BYTES_MAX),
            store_cache_bytes: Size(records::STORE_CACHE_BYTES),
            error_window_s: lookup::BREAKER_WINDOW.as_secs(),
            trip_threshold: u64::from(lookup::BREAKER_TRIP_PER_MILLE / 10),
            cooldown_s: lookup::BREAKER_COOLDOWN.as_secs(),
            half_open_probes: lookup::BREAKER_PROBES,
        }
    }
}

impl Options {
    /// Bounds of the store, which is memory alone in amnesia mode.
    pub fn bounds(&self, is_amnesia: bool) -> ron_store::Bounds {
        ron_store::Bounds {
            records_max: self.records_max,
            records_bytes_max: match self.records_bytes_max.bytes() {
                0 if is_amnesia => records::RECORDS_BYTES_IN_MEMORY_MAX,
                0 => records::RECORDS_BYTES_MAX,
                bytes => bytes,
            },
            manifests_bytes_max: self.manifests_bytes_max.bytes(),
            cache_bytes: self.store_cache_bytes.bytes(),
        }
    }

    /// What a reload may change.
    pub fn live(&self) -> LiveOptions {
        let [low, high] = self.retry_jitter_ms;
        LiveOptions {
            resolve_deadline: self.resolve_deadline.duration(),
            hedge_after: self.hedge_after.duration(),
            alpha: self.alpha,
            beta: self.beta,
            retry_max: self.retry_max,
            retry_jitter: (Duration::from_millis(low), Duration::from_millis(high)),
            per_ip_connections: self.per_ip_connections,
            per_ip_per_second: self.per_ip_per_second,
            body_bytes_max: self.max_body_bytes.bytes(),
            access: self.access,
            region: Some(self.region.as_str()).filter(|region| !region.is_empty()).map(Into::into),
            possession_probe: self.possession_probe,
            cache_ttl: self.cache_ttl.duration(),
            absent_ttl: self.absent_ttl.duration(),
            unknown_ttl: self.unknown_ttl.duration(),
            purge_interval: self.purge_interval.duration(),
            breaker: BreakerOptions {
                error_window_s: self.error_window_s,
                trip_threshold: self.trip_threshold,
                cooldown_s: self.cooldown_s,
                half_open_probes: self.half_open_probes,
            },
        }
    }
}
