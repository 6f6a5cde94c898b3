//! Everything this node declares: services, tasks, queues, gates. What is not here does not exist.

use std::time::Duration;

use ron_kernel::bus::BUS;
use ron_kernel::handle::SUPERVISOR_INBOX;
use ron_kernel::kernel::CONFIG_UPDATES;
use ron_kernel::shutdown::SHUTDOWN;
use ron_kernel::spec::{Fate, GateSpec, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Phase, RestartLaw};
use ron_types::limits;
use svc_mailbox::specs::MAILBOX;

const OWNER: &str = "macronode";
/// Long enough for a loaded two-core machine to get round to every task, short enough to notice a dead one.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Sees configuration changes and applies them.
pub static CONFIG_WATCHER: TaskSpec = task(
    "config_watcher",
    "1",
    Phase::Intake,
    "sees file, SIGHUP and operator reloads, validates, diffs, swaps the snapshot",
);
/// Keeps the admin thread alive.
pub static METRICS_SERVER: TaskSpec = task(
    "metrics_server",
    "1",
    Phase::Observe,
    "keeps the admin thread: /metrics /healthz /readyz /version /topology; the thread itself exits last",
);
/// Accepts framed connections.
pub static TRANSPORT_INGRESS: TaskSpec =
    task("transport_ingress", "1 per socket", Phase::Intake, "accepts framed connections; frames into the work queue");
/// Serves the HTTP API.
pub static OVERLAY_HTTP: TaskSpec = task(
    "overlay_http",
    "1 per socket",
    Phase::Intake,
    "the HTTP API: deadlines, per-route concurrency, per-address limits",
);
/// Does the work.
pub static WORKER: TaskSpec =
    task("worker", "workers", Phase::Work, "takes work; CPU-heavy or blocking parts go to spawn_blocking");
/// Watches pressure and tells.
pub static HEALTH_REPORTER: TaskSpec = task(
    "health_reporter",
    "1",
    Phase::Observe,
    "measures pressure, aggregates telemetry, reports health, keeps the service manager informed",
);

/// Seeing and being seen.
pub static OBSERVE: ServiceSpec = ServiceSpec {
    name: "observe",
    required: false,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&METRICS_SERVER, &HEALTH_REPORTER],
    does: "admin plane and health reporting",
};
/// Live configuration.
pub static CONFIG: ServiceSpec = ServiceSpec {
    name: "config",
    required: false,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&CONFIG_WATCHER],
    does: "live configuration",
};
/// The worker pool.
pub static WORKERS: ServiceSpec = ServiceSpec {
    name: "workers",
    required: true,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&WORKER],
    does: "the pool that does the work of every plane",
};
/// The HTTP plane.
pub static HTTP: ServiceSpec = ServiceSpec {
    name: "http",
    required: true,
    depends_on: &["workers", "mailbox"],
    law: RestartLaw::MACRONODE,
    tasks: &[&OVERLAY_HTTP],
    does: "the public HTTP plane",
};
/// The framed plane.
pub static OAP: ServiceSpec = ServiceSpec {
    name: "oap",
    required: true,
    depends_on: &["workers"],
    law: RestartLaw::MACRONODE,
    tasks: &[&TRANSPORT_INGRESS],
    does: "the framed plane between nodes",
};

/// Every service, in start order.
pub static SERVICES: [&ServiceSpec; 6] = [&OBSERVE, &CONFIG, &WORKERS, &MAILBOX, &HTTP, &OAP];

/// Jobs of every plane on their way to a worker.
pub static WORK: QueueSpec = QueueSpec {
    owner: OWNER,
    service: "workers",
    name: "work",
    kind: QueueKind::Mpmc,
    capacity: limits::WORK_CAPACITY,
    bytes_max: Some(limits::WORK_BYTES_MAX),
    from: "transport_ingress, overlay_http",
    to: "worker",
    overflow: Overflow::RejectNew,
    answer: "Busy: HTTP 429 with Retry-After, a busy frame on OAP",
    on_restart: Fate::Kept,
    on_drain: Fate::Drained,
};
/// Measurements on their way to the health reporter.
pub static TELEMETRY: QueueSpec = QueueSpec {
    owner: OWNER,
    service: "observe",
    name: "telemetry",
    kind: QueueKind::Mpsc,
    capacity: limits::TELEMETRY_CAPACITY,
    bytes_max: None,
    from: "worker",
    to: "health_reporter",
    overflow: Overflow::DropOldest,
    answer: "best effort: the oldest measurement makes room",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};
/// Requests to look at the configuration again.
pub static RELOADS: QueueSpec = QueueSpec {
    owner: OWNER,
    service: "config",
    name: "reloads",
    kind: QueueKind::Mpsc,
    capacity: 2,
    bytes_max: None,
    from: "admin plane, file watch",
    to: "config_watcher",
    overflow: Overflow::Coalesce,
    answer: "those who ask while one waits share its outcome",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};
/// Index updates on their way to the ingester.
pub static INDEX_INGEST: QueueSpec = QueueSpec {
    owner: OWNER,
    service: "workers",
    name: "index_ingest",
    kind: QueueKind::Mpsc,
    capacity: limits::INDEX_INGEST_CAPACITY,
    bytes_max: None,
    from: "N",
    to: "1",
    overflow: Overflow::Coalesce,
    answer: "the newest update of a key wins",
    on_restart: Fate::Kept,
    on_drain: Fate::Drained,
};

/// The channels of the node itself, the kernel's own included.
static OWN_QUEUES: [&QueueSpec; 8] =
    [&BUS, &WORK, &SHUTDOWN, &CONFIG_UPDATES, &TELEMETRY, &INDEX_INGEST, &RELOADS, &SUPERVISOR_INBOX];

/// Every channel of a node with every service.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    OWN_QUEUES.iter().copied().chain(svc_mailbox::specs::queues())
}

const fn gate(facet: &'static str, name: &'static str, permits_per_cpu: usize, does: &'static str) -> GateSpec {
    GateSpec { facet, name, permits_per_cpu, does }
}

/// The gates of facets to come; a service declares its own.
pub static GATES: [GateSpec; 4] = [
    gate("feed", "feed_fanout", 4, "fan-out of feed entries"),
    gate("graph", "graph_expand", 2, "neighbour expansion"),
    gate("search", "search_qps", 4, "queries at once"),
    gate("index", "index_ingest", 1, "index writes at once"),
];
