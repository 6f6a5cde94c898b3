//! What the node itself declares: its own units, tasks and queues. Services declare theirs: `services.rs`.

use std::time::Duration;

use ron_kernel::bus::BUS;
use ron_kernel::handle::SUPERVISOR_INBOX;
use ron_kernel::kernel::CONFIG_UPDATES;
use ron_kernel::shutdown::SHUTDOWN;
use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Phase, RestartLaw};
use ron_types::limits;

use crate::services::{self, Service};

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
/// Takes jobs from the work queue.
pub static WORKER: TaskSpec =
    task("worker", "workers", Phase::Work, "takes work; CPU-heavy or blocking parts go to spawn_blocking");
/// Measures pressure and reports it to the kernel.
pub static HEALTH_REPORTER: TaskSpec = task(
    "health_reporter",
    "1",
    Phase::Observe,
    "measures pressure, aggregates telemetry, reports health, keeps the service manager informed",
);

/// Keeps what is known of capabilities fresh.
pub static CAPABILITY_REFRESHER: TaskSpec =
    task("capability_refresher", "1", Phase::Work, "forgets tokens not used lately, takes up revocations");

/// Unit of the admin plane and the health reporter.
pub static OBSERVE: ServiceSpec = ServiceSpec {
    name: "observe",
    required: false,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&METRICS_SERVER, &HEALTH_REPORTER],
    does: "admin plane and health reporting",
};
/// Unit of the live configuration.
pub static CONFIG: ServiceSpec = ServiceSpec {
    name: "config",
    required: false,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&CONFIG_WATCHER],
    does: "live configuration",
};
/// Unit of the worker pool.
pub static WORKERS: ServiceSpec = ServiceSpec {
    name: "workers",
    required: true,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&WORKER],
    does: "the pool that answers frames and does the work of the development routes",
};
/// Unit of the public HTTP plane.
pub static HTTP: ServiceSpec = ServiceSpec {
    name: "http",
    required: true,
    depends_on: &["access"],
    law: RestartLaw::MACRONODE,
    tasks: &[&OVERLAY_HTTP],
    does: "the public HTTP plane",
};
/// Unit of the framed plane.
pub static OAP: ServiceSpec = ServiceSpec {
    name: "oap",
    required: true,
    depends_on: &["workers"],
    law: RestartLaw::MACRONODE,
    tasks: &[&TRANSPORT_INGRESS],
    does: "the framed plane between nodes",
};

/// Unit of capabilities and their revocations.
pub static ACCESS: ServiceSpec = ServiceSpec {
    name: "access",
    required: true,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&CAPABILITY_REFRESHER],
    does: "capabilities: takes up revocations",
};

/// Every unit of the node in start order: its own, the services, and the planes that serve them.
pub fn units() -> impl Iterator<Item = &'static ServiceSpec> {
    let own = [&OBSERVE, &CONFIG, &ACCESS, &WORKERS];
    own.into_iter().chain(services::all().map(Service::spec)).chain([&HTTP, &OAP])
}

/// Whether a node has a worker pool: only if the framed plane or the development routes have work for it.
pub fn uses_pool(chosen: &[String], is_dev: bool) -> bool {
    is_dev || chosen.iter().any(|name| name == OAP.name)
}

/// The services that the HTTP plane passes requests on to. It is ready without them: each is refused by itself.
pub fn served_by_http() -> impl Iterator<Item = &'static str> {
    services::all().filter(|service| !service.surfaces().is_empty()).map(|service| service.spec().name)
}

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
    holds_up_writers: true,
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
    holds_up_writers: false,
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
    holds_up_writers: false,
    answer: "those who ask while one waits share its outcome",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};
/// The channels of the node itself, the kernel's own included.
static OWN_QUEUES: [&QueueSpec; 7] = [&BUS, &WORK, &SHUTDOWN, &CONFIG_UPDATES, &TELEMETRY, &RELOADS, &SUPERVISOR_INBOX];

/// Every channel of a node with every service.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    OWN_QUEUES.iter().copied().chain(services::all().flat_map(Service::queues))
}
