//! The node's configuration: its sections, their defaults, and how it is loaded, checked, compared and documented.

mod diff;
mod document;
mod error;
mod keys;
mod kind;
mod layers;
mod nearest;
mod print;
mod rules;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;

use ron_api::SqsOptions;
use ron_types::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use document::{markdown, schema};
pub use error::ConfigError;
#[cfg(test)]
pub use keys::KEYS;
pub use keys::{Key, Reload};
pub use layers::{Loaded, Sources, load};
pub use print::print;
pub use ron_types::{Permits, Size, TimeSpan};

/// The services this build knows.
pub const KNOWN_SERVICES: &[&str] = &["http", "oap", "mailbox"];

/// Everything an operator may set. The documentation of a field is its meaning in docs/config.md and in the schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The services this node runs.
    pub services: Vec<String>,
    /// Keep everything in memory and open no file for writing.
    pub amnesia: bool,
    /// Serve the development routes and echo frames, to try the node out.
    pub dev: bool,
    /// Allow the admin plane to kill and freeze tasks, to rehearse failures.
    pub chaos: bool,
    /// The scheduler: a thread for each core, or one thread for everything.
    pub runtime: Runtime,
    /// The directory of everything the node keeps.
    pub data_dir: PathBuf,
    /// Workers that take jobs from the work queue; 0 chooses by the number of cores.
    pub workers: usize,
    /// The public HTTP plane.
    pub api: Api,
    /// The plane of the operator.
    pub admin: Admin,
    /// The port for OAP frames.
    pub oap: Oap,
    /// Reading, writing and leaving.
    pub io: Io,
    /// Limits of HTTP requests.
    pub http: Http,
    /// TLS on every port that has it.
    pub tls: Tls,
    /// Limits of connections.
    pub connections: Connections,
    /// Capacities of the queues.
    pub queues: Queues,
    /// Permits of the facets.
    pub facets: Facets,
    /// Retries of calls to others.
    pub retry: Retry,
    /// The mailbox.
    pub mailbox: Mailbox,
    /// The surface that speaks SQS.
    pub sqs: Sqs,
    /// Who is let in.
    pub auth: Auth,
    /// The log.
    pub log: Log,
}

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A thread for each core.
    Multi,
    /// One thread.
    Current,
}

/// The public HTTP plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Api {
    /// Where it listens; port 0 takes a free one.
    pub addr: SocketAddr,
    /// A PEM file with the certificate chain; together with `api.tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key; together with `api.tls_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
}

/// The plane of the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Where it listens; other than on loopback only with TLS.
    pub addr: SocketAddr,
    /// A PEM file with the certificate chain; together with `admin.tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key; together with `admin.tls_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
}

/// The port for OAP frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Oap {
    /// Where it listens; port 0 takes a free one.
    pub addr: SocketAddr,
    /// The largest frame that is read.
    pub max_frame_bytes: Size,
}

/// Reading, writing and leaving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// A started frame or body must arrive within this time.
    pub read_timeout: TimeSpan,
    /// A reply must be taken by the peer within this time.
    pub write_timeout: TimeSpan,
    /// A connection with nothing in flight is closed after this time.
    pub idle_timeout: TimeSpan,
    /// The total time of a drain; what still runs is then aborted.
    pub drain_deadline: TimeSpan,
    /// The ceiling of `io.drain_deadline`, so that raising it is a deliberate act.
    pub drain_deadline_max: TimeSpan,
    /// What one read from a stream asks for.
    pub chunk_bytes: Size,
    /// A compressed body may grow at most this many times.
    pub decompress_ratio_max: usize,
}

/// Limits of HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// The total time of a request that asks for no other.
    pub request_deadline: TimeSpan,
    /// The longest deadline a caller may ask for.
    pub request_deadline_max: TimeSpan,
    /// The largest body, before and after decompression.
    pub max_body_bytes: Size,
    /// All header lines of a request together.
    pub max_header_bytes: Size,
    /// Requests of one route in flight at once.
    pub route_concurrency: usize,
}

/// TLS on every port that has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// A handshake must be complete within this time.
    pub handshake_timeout: TimeSpan,
}

/// Limits of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Connections {
    /// Connections each listener holds at once.
    pub max: usize,
    /// Connections one address may hold at once.
    pub per_ip_max: usize,
    /// New connections one address may open in a second, sustained.
    pub accepts_per_ip_per_second: u32,
    /// An HTTP connection is closed when bytes wait for its peer and none are taken for this time.
    pub write_stall: TimeSpan,
}

/// Capacities of the queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    /// Events a receiver of the bus may be behind before it is handed a snapshot instead.
    pub bus: usize,
    /// Jobs waiting for a worker.
    pub work: usize,
    /// Bytes of payload waiting for a worker.
    pub work_bytes_max: Size,
    /// Measurements waiting to be aggregated.
    pub telemetry: usize,
    /// Configuration changes waiting to be applied.
    pub cfg_updates: usize,
}

/// Permits of the facets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Facets {
    /// Feed fan-outs at once.
    pub feed_fanout: Permits,
    /// Graph expansions at once.
    pub graph_expand: Permits,
    /// Searches at once.
    pub search_qps: Permits,
    /// Index updates at once.
    pub index_ingest: Permits,
    /// Mailbox operations at once.
    pub mailbox_ops: Permits,
}

/// Retries of calls to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first wait is drawn from this window of milliseconds.
    pub initial_jitter_ms: [u64; 2],
    /// No wait is longer than this.
    pub cap: TimeSpan,
    /// Tries in all, the first one included.
    pub max_tries: u32,
}

/// The mailbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mailbox {
    /// Shards that own partitions; 0 chooses by the number of cores.
    pub ready_shards: usize,
    /// Jobs waiting for one shard.
    pub shard_capacity: usize,
    /// Messages of the whole node with consumers at once.
    pub global_inflight: usize,
    /// The first send to a topic makes it.
    pub auto_create: bool,
    /// How long a lease lasts where neither receiver nor topic says.
    pub visibility: TimeSpan,
    /// The shortest lease a receiver may ask for.
    pub visibility_min: TimeSpan,
    /// Deliveries before a message is dead, where its topic does not say; 0 means any number.
    pub max_attempts: u32,
    /// How long an idempotency key is remembered, where its topic does not say.
    pub replay_window: TimeSpan,
    /// How long a message is kept, where its topic does not say.
    pub retention: TimeSpan,
    /// First bound of the wait after a failed delivery, where its topic does not say.
    pub backoff_base: TimeSpan,
    /// Last bound of the wait after a failed delivery, where its topic does not say.
    pub backoff_max: TimeSpan,
    /// Disk (or, with amnesia, memory) the mailbox's log may take; sends are refused before it is full.
    pub disk_bytes_max: Size,
    /// Bytes of one file of the log.
    pub segment_bytes: Size,
    /// Messages one capability may send in a second, the operator's excepted; 0 means any number.
    pub tenant_sends_per_second: u32,
    /// Bytes in a second that making room in the log may move.
    pub upkeep_bytes_per_second: Size,
}

/// The surface that speaks SQS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sqs {
    /// The account in queue URLs and ARNs.
    pub account_id: String,
    /// The beginning of queue URLs, where clients reach the node by another address than the one they ask at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// How long the name of a deleted queue cannot be used again; the service itself has 60s.
    pub deleted_name_cooldown: TimeSpan,
    /// Take signatures that stand in the query of a URL.
    pub presigned: bool,
}

/// Who is let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// Whether requests of SQS must be signed with an access key of the node; off only if `api.addr` is on loopback.
    pub sqs: SqsAuth,
}

/// How requests of SQS are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SqsAuth {
    /// Signed with an access key.
    SigV4,
    /// All of them, for everything.
    Off,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Lines for people, or one JSON object for each event.
    pub format: LogFormat,
    /// Which events are written: a level, or `target=level` pairs with commas between.
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

impl Default for Config {
    fn default() -> Self {
        Config {
            services: KNOWN_SERVICES.iter().map(|name| (*name).to_owned()).collect(),
            amnesia: false,
            dev: false,
            chaos: false,
            runtime: Runtime::Multi,
            data_dir: PathBuf::from("./macronode-data"),
            workers: 0,
            api: Api::default(),
            admin: Admin::default(),
            oap: Oap::default(),
            io: Io::default(),
            http: Http::default(),
            tls: Tls::default(),
            connections: Connections::default(),
            queues: Queues::default(),
            facets: Facets::default(),
            retry: Retry::default(),
            mailbox: Mailbox::default(),
            sqs: Sqs::default(),
            auth: Auth::default(),
            log: Log::default(),
        }
    }
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

impl Default for Facets {
    fn default() -> Self {
        Facets {
            feed_fanout: Permits::PerCpu(4),
            graph_expand: Permits::PerCpu(2),
            search_qps: Permits::PerCpu(4),
            index_ingest: Permits::PerCpu(1),
            mailbox_ops: Permits::PerCpu(4),
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

impl Default for Mailbox {
    fn default() -> Self {
        use limits::mailbox as m;
        Mailbox {
            ready_shards: 0,
            shard_capacity: m::SHARD_CAPACITY,
            global_inflight: m::GLOBAL_INFLIGHT_MAX,
            auto_create: true,
            visibility: TimeSpan::from_duration(m::VISIBILITY),
            visibility_min: TimeSpan::from_duration(m::VISIBILITY_MIN),
            max_attempts: m::MAX_ATTEMPTS,
            replay_window: TimeSpan::from_duration(m::REPLAY_WINDOW),
            retention: TimeSpan::from_duration(m::RETENTION),
            backoff_base: TimeSpan::from_duration(m::BACKOFF_BASE),
            backoff_max: TimeSpan::from_duration(m::BACKOFF_MAX),
            disk_bytes_max: Size(m::DISK_BYTES_MAX),
            segment_bytes: Size(m::SEGMENT_BYTES),
            tenant_sends_per_second: 0,
            upkeep_bytes_per_second: Size(m::UPKEEP_BYTES_PER_SECOND),
        }
    }
}

impl Default for Sqs {
    fn default() -> Self {
        let SqsOptions { account_id, base_url, deleted_name_cooldown, presigned, .. } = SqsOptions::default();
        Sqs { account_id, base_url, deleted_name_cooldown: TimeSpan::from_duration(deleted_name_cooldown), presigned }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Auth { sqs: SqsAuth::SigV4 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Pretty, filter: "info".to_owned() }
    }
}

impl Config {
    /// The number of workers on this machine.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            0 => (4 * cpus()).clamp(20, 1024),
            count => count,
        }
    }

    /// Whether this service is to run.
    pub fn runs(&self, service: &str) -> bool {
        self.services.iter().any(|name| name == service)
    }
}

/// The cores this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
