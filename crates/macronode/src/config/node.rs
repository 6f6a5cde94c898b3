//! The node's own sections of the configuration: every key once, with its meaning, bounds and reload class.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ron_types::limits;
use ron_types::settings::{
    GIB, HOUR_MS, KIB, MIB, MINUTE_MS, ValueKind, choice, live, process, restarts, size, time, whole,
};
use ron_types::{Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known_services;
use crate::specs;

/// The bounds of most durations: long enough for any use, short enough that a slip of the unit is refused.
fn ordinary_time() -> ValueKind {
    time(1, 10 * MINUTE_MS)
}

/// The public HTTP plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Api {
    /// Where it listens; port 0 takes a free one.
    #[schemars(extend("x-setting" = restarts("http", ValueKind::Address).flag("--api")))]
    pub addr: SocketAddr,
    /// A PEM file with the certificate chain; together with `api.tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = restarts("http", ValueKind::Path)))]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key; together with `api.tls_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = restarts("http", ValueKind::Path)))]
    pub tls_key: Option<PathBuf>,
}

/// The plane of the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Where it listens; other than on loopback only with TLS.
    #[schemars(extend("x-setting" = process(ValueKind::Address).flag("--admin")))]
    pub addr: SocketAddr,
    /// A PEM file with the certificate chain; together with `admin.tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Path)))]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key; together with `admin.tls_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Path)))]
    pub tls_key: Option<PathBuf>,
}

/// The port for OAP frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Oap {
    /// Where it listens; port 0 takes a free one.
    #[schemars(extend("x-setting" = restarts("oap", ValueKind::Address).flag("--oap")))]
    pub addr: SocketAddr,
    /// The largest frame that is read. Nodes have no session with each other below 65,963 bytes; clients do.
    #[schemars(extend("x-setting" = live(size(KIB, limits::FRAME_BYTES_MAX))))]
    pub max_frame_bytes: Size,
}

/// What the node calls ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Readiness {
    /// Services and planes that `/readyz` waits for, where the node runs them; of the others it only names the state.
    #[schemars(extend("x-setting" = process(ValueKind::Names(Vec::new()))))]
    pub required: Vec<String>,
}

/// Reading, writing and leaving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// A started frame or body must arrive within this time.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub read_timeout: TimeSpan,
    /// A reply must be taken by the peer within this time.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub write_timeout: TimeSpan,
    /// A connection with nothing in flight is closed after this time.
    #[schemars(extend("x-setting" = live(time(1, HOUR_MS))))]
    pub idle_timeout: TimeSpan,
    /// The total time of a drain; what still runs is then aborted.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub drain_deadline: TimeSpan,
    /// The ceiling of `io.drain_deadline`, so that raising it is a deliberate act.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub drain_deadline_max: TimeSpan,
    /// What one read from a stream asks for.
    #[schemars(extend("x-setting" = live(size(KIB, MIB))))]
    pub chunk_bytes: Size,
    /// A compressed body may grow at most this many times.
    #[schemars(extend("x-setting" = live(whole(1, 1_000))))]
    pub decompress_ratio_max: usize,
}

/// Limits of HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// The total time of a request that asks for no other.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub request_deadline: TimeSpan,
    /// The longest deadline a caller may ask for.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub request_deadline_max: TimeSpan,
    /// The largest body, before and after decompression.
    #[schemars(extend("x-setting" = live(size(1, GIB))))]
    pub max_body_bytes: Size,
    /// All header lines of a request together.
    #[schemars(extend("x-setting" = live(size(8 * KIB, MIB))))]
    pub max_header_bytes: Size,
    /// Requests of one route in flight at once, and four times as many over frames; one caller can have half of them.
    #[schemars(extend("x-setting" = live(whole(1, 65_536))))]
    pub route_concurrency: usize,
    /// Requests that wait for messages or events at once, long polls and streams; one caller can have half of them.
    #[schemars(extend("x-setting" = live(whole(1, 1_000_000))))]
    pub waiting_max: usize,
    /// Memory for the bodies of all requests at once, or four of the largest if that is more; one caller can have half.
    #[schemars(extend("x-setting" = live(size(KIB, 64 * GIB))))]
    pub body_memory: Size,
    /// Memory for answers until they have left, at least 64 MiB; one caller can have half.
    #[schemars(extend("x-setting" = live(size(KIB, 64 * GIB))))]
    pub answer_memory: Size,
}

/// TLS on every port that has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// A handshake must be complete within this time.
    #[schemars(extend("x-setting" = live(time(1, MINUTE_MS))))]
    pub handshake_timeout: TimeSpan,
}

/// Limits of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Connections {
    /// Connections each listener holds at once.
    #[schemars(extend("x-setting" = live(whole(1, 1_000_000))))]
    pub max: usize,
    /// Connections one address may hold at once.
    #[schemars(extend("x-setting" = live(whole(1, 1_000_000))))]
    pub per_ip_max: usize,
    /// New connections one address may open in a second, sustained.
    #[schemars(extend("x-setting" = live(whole(1, 1_000_000))))]
    pub accepts_per_ip_per_second: u32,
    /// An HTTP connection is closed when bytes wait for its peer and it takes less than 1 KiB a second over this time.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub write_stall: TimeSpan,
}

/// Capacities of the queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    /// Events a receiver of the bus may be behind before it is handed a snapshot instead.
    #[schemars(extend("x-setting" = process(whole(1, 65_536))))]
    pub bus: usize,
    /// Jobs waiting for a worker.
    #[schemars(extend("x-setting" = process(whole(1, 65_536))))]
    pub work: usize,
    /// Bytes of payload waiting for a worker.
    #[schemars(extend("x-setting" = process(size(MIB, 64 * GIB))))]
    pub work_bytes_max: Size,
    /// Measurements waiting to be aggregated.
    #[schemars(extend("x-setting" = process(whole(1, 65_536))))]
    pub telemetry: usize,
    /// Configuration changes waiting to be applied.
    #[schemars(extend("x-setting" = process(whole(1, 65_536))))]
    pub cfg_updates: usize,
}

/// Retries of calls to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first wait is drawn from this window of milliseconds.
    #[schemars(extend("x-setting" = live(ValueKind::Window { max_ms: MINUTE_MS })))]
    pub initial_jitter_ms: [u64; 2],
    /// No wait is longer than this.
    #[schemars(extend("x-setting" = live(ordinary_time())))]
    pub cap: TimeSpan,
    /// Tries in all, the first one included.
    #[schemars(extend("x-setting" = live(whole(1, 10))))]
    pub max_tries: u32,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Lines for people, or one JSON object for each event.
    #[schemars(extend("x-setting" = process(choice(&["pretty", "json"])).flag("--log")))]
    pub format: LogFormat,
    /// Which events are written: a level, or `target=level` pairs with commas between.
    #[schemars(extend("x-setting" = live(ValueKind::Filter)))]
    pub filter: String,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For machines.
    Json,
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Default for Api {
    fn default() -> Self {
        Api { addr: loopback(8080), tls_cert: None, tls_key: None }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Admin { addr: loopback(9600), tls_cert: None, tls_key: None }
    }
}

impl Default for Oap {
    fn default() -> Self {
        Oap { addr: loopback(9500), max_frame_bytes: Size(limits::FRAME_BYTES_MAX) }
    }
}

impl Default for Readiness {
    fn default() -> Self {
        let named: Vec<&str> = known_services().collect();
        let required = specs::units().filter(|unit| unit.required && named.contains(&unit.name));
        Readiness { required: required.map(|unit| unit.name.to_owned()).collect() }
    }
}

impl Default for Io {
    fn default() -> Self {
        Io {
            read_timeout: TimeSpan::from_duration(limits::READ_TIMEOUT),
            write_timeout: TimeSpan::from_duration(limits::WRITE_TIMEOUT),
            idle_timeout: TimeSpan::from_duration(limits::IDLE_TIMEOUT),
            drain_deadline: TimeSpan::from_duration(limits::DRAIN_DEADLINE),
            drain_deadline_max: TimeSpan::from_duration(limits::DRAIN_DEADLINE_MAX),
            chunk_bytes: Size(limits::CHUNK_BYTES),
            decompress_ratio_max: limits::INFLATE_RATIO_MAX,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Http {
            request_deadline: TimeSpan::from_duration(limits::REQUEST_DEADLINE),
            request_deadline_max: TimeSpan::from_duration(limits::REQUEST_DEADLINE_MAX),
            max_body_bytes: Size(limits::BODY_BYTES_MAX),
            max_header_bytes: Size(limits::HEADER_BYTES_MAX),
            route_concurrency: limits::ROUTE_CONCURRENCY_MAX,
            waiting_max: limits::WAITING_MAX,
            body_memory: Size(limits::BODY_MEMORY_BYTES_MAX),
            answer_memory: Size(limits::ANSWER_MEMORY_BYTES_MAX),
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Tls { handshake_timeout: TimeSpan::from_duration(limits::HANDSHAKE_TIMEOUT) }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            max: limits::CONNECTIONS_MAX,
            per_ip_max: limits::CONNECTIONS_PER_IP_MAX,
            accepts_per_ip_per_second: limits::ACCEPTS_PER_IP_PER_SECOND,
            write_stall: TimeSpan::from_duration(limits::WRITE_STALL),
        }
    }
}

impl Default for Queues {
    fn default() -> Self {
        Queues {
            bus: limits::BUS_CAPACITY,
            work: limits::WORK_CAPACITY,
            work_bytes_max: Size(limits::WORK_BYTES_MAX),
            telemetry: limits::TELEMETRY_CAPACITY,
            cfg_updates: limits::CONFIG_UPDATES_CAPACITY,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let (low, high) = limits::RETRY_JITTER;
        Retry {
            initial_jitter_ms: [low.as_millis() as u64, high.as_millis() as u64],
            cap: TimeSpan::from_duration(limits::RETRY_CAP),
            max_tries: limits::RETRY_TRIES_MAX,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Pretty, filter: "info".to_owned() }
    }
}
