//! One life of a node: take the ports, build the services, serve, drain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ron_admin::{AdminOptions, AdminThread};
use ron_api::{Api, ApiBuilder, dev_routes, node_routes};
use ron_auth::{Authority, Revocations, RootKey};
use ron_kernel::builder::Builder;
use ron_kernel::queue::{QueueReceiver, QueueSender};
use ron_kernel::{ExitReport, Kernel, Metrics, Snapshot, TaskError};
use ron_transport::{NodeKey, PostQuantum, Tls};
use tokio::signal::unix::{SignalKind, signal};

use crate::adapters::ProcessControl;
use crate::capability_refresher::{ListProblem, capability_refresher};
use crate::config::{Config, Loaded, Runtime, Sources};
use crate::config_watch::{LiveConfig, ReloadPort, config_watcher};
use crate::data_dir::{DataDir, NODE_KEY_FILE};
use crate::errors::{Code, Exit, Failure};
use crate::health::{Measurement, health_reporter};
use crate::ingress::{Ingress, ServedSurface, transport_ingress};
use crate::listeners::Listeners;
use crate::planes::PlaneSockets;
use crate::services::{self, Installed, Parts, Ports, Routes, Service};
use crate::work::{Job, WorkPort, worker};
use crate::{banner, descriptors, dumps, logging, planes, signals, specs};

/// Runs the node until it has drained.
pub fn run(sources: Sources, loaded: Loaded) -> Result<Exit, Failure> {
    let config = &loaded.config;
    if config.amnesia {
        // Before the first secret: what is freed earlier is not wiped.
        ron_amnesia::start_wiping();
        dumps::forbid()?;
    }
    let log = logging::start(config.log.format, &config.log.filter)
        .map_err(|reason| Failure::new(Code::OutOfRange, reason))?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    // Before anything is opened or bound: how many connections there may be follows from it.
    descriptors::raise_limit();
    if let Some(warning) = descriptors::warning(config) {
        tracing::warn!("{warning}");
    }
    let runtime = build_runtime(config).map_err(|error| Failure::new(Code::CannotStart, error.to_string()))?;
    let _entered = runtime.enter();
    // From here on SIGHUP means reload, even before somebody listens for it; left alone it would end the process.
    let _hangup = signal(SignalKind::hangup()).map_err(|error| Failure::new(Code::CannotStart, error.to_string()))?;

    let listeners = Arc::new(planes::bind(config)?);
    let data = DataDir::open(&config.data_dir, config.amnesia).map_err(|error| unusable(config, &error))?;
    // Before anything in it is written, and held to the end: two nodes would overwrite each other's keys.
    let _locked = data.lock().map_err(|error| unusable(config, &error))?;
    let token = data.operator_token().map_err(|error| Failure::new(Code::TokenUnusable, error.to_string()))?;
    // A configured port may be 0; commands find the real one in this file.
    data.note_addresses(&listeners.addresses());
    let access = Access::load(&data, &token)?;
    let node = Node::new(sources, loaded, log, Arc::clone(&listeners), data);
    // Before any service is built, so that a slow start can be watched and ended.
    let admin = node.start_admin(token)?;
    node.obey_signals()?;
    let (kernel, watched) = node.build(Arc::clone(&admin), access)?;

    banner::print(&watched.config.get().value, &watched.listeners.addresses());
    let report = runtime.block_on(kernel.run());
    // Only now: the admin plane answers until the drain is over.
    admin.stop();
    runtime.shutdown_timeout(blocking_wait_max());
    Ok(farewell(&report))
}

/// Maximum wait for blocking work at the end, which cannot be aborted. Longer in amnesia mode: a thread left behind
/// would keep what it holds in memory.
fn blocking_wait_max() -> Duration {
    Duration::from_millis(if ron_amnesia::is_wiping() { 2_000 } else { 100 })
}

fn build_runtime(config: &Config) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = match config.runtime {
        Runtime::Multi => tokio::runtime::Builder::new_multi_thread(),
        Runtime::Current => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().thread_name("macronode").on_thread_stop(ron_amnesia::wipe_stack).build()
}

fn unusable(config: &Config, error: &io::Error) -> Failure {
    Failure::new(Code::DataDirUnusable, format!("data_dir = {}: {error}", config.data_dir.display()))
}

fn farewell(report: &ExitReport) -> Exit {
    let milliseconds = report.drained_in.as_millis() as u64;
    match report.code {
        0 => {
            tracing::info!(milliseconds, "drained");
            Exit::Clean
        }
        75 => {
            tracing::error!(milliseconds, aborted = ?report.aborted, "{} drained with aborts", Code::DrainAborted);
            Exit::Aborted
        }
        code => {
            tracing::error!(code, "a service could not start or go on");
            if code == Exit::Usage.number() { Exit::Usage } else { Exit::Failed }
        }
    }
}

/// Authority over capabilities, and the file of the revoked ones.
struct Access {
    authority: Authority,
    /// The list of revoked capabilities; none in amnesia mode.
    revocations: Option<Arc<PathBuf>>,
    /// What is wrong with that list.
    problem: ListProblem,
}

impl Access {
    fn load(data: &DataDir, token: &ron_admin::OperatorToken) -> Result<Access, Failure> {
        let unusable = |error: &dyn std::fmt::Display| Failure::new(Code::TokenUnusable, error.to_string());
        let key_file = data.signing_key().map_err(|error| Failure::new(Code::SigningKeyUnusable, error.to_string()))?;
        let root = match key_file {
            Some(file) => RootKey::load_or_create(&file).map_err(|error| unusable(&error))?,
            None => RootKey::generate(),
        };
        let authority = Authority::new(root, Some(token.expose()), ron_kernel::clock::unix_millis);
        let revocations = data.path(ron_auth::REVOKED_FILE).map(Arc::new);
        if let Some(file) = &revocations {
            // Before any service is installed: one that keeps tokens must not revive a revoked one.
            authority.set_revoked(Revocations::load_at_start(file).map_err(|error| unreadable_list(file, &error))?.ids);
        }
        Ok(Access { authority, revocations, problem: ListProblem::default() })
    }
}

/// Nobody knows which tokens were taken back, so that none can be let in.
fn unreadable_list(file: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "the list of revoked tokens {} cannot be read: {error}; make it a file that the node may read, restore it from a \
         backup, or make it an empty one if no token is revoked",
        file.display()
    );
    Failure::new(Code::DataDirUnusable, message)
}

/// Parts of a node before the kernel is built.
struct Node {
    live: LiveConfig,
    builder: Builder,
    listeners: Arc<Listeners>,
    data: DataDir,
    reloads: ReloadPort,
}

/// Parts that stay visible once the kernel owns everything.
struct Watched {
    config: Snapshot<Config>,
    listeners: Arc<Listeners>,
}

impl Node {
    fn new(
        sources: Sources,
        loaded: Loaded,
        log: logging::LogControl,
        listeners: Arc<Listeners>,
        data: DataDir,
    ) -> Self {
        let mut seed = [0_u8; 8];
        // A seed is only needed to spread restarts of many nodes; without one they are merely less spread.
        let _ = getrandom::fill(&mut seed);
        let metrics = Metrics::new();
        metrics.config_version.set(1);
        let mut builder = Builder::new(loaded.config.kernel_options(u64::from_le_bytes(seed)), metrics);
        let absorbed = builder.handle().metrics().config_coalesced.clone();
        let reloads = ReloadPort(builder.coalescing(&specs::RELOADS, absorbed));
        let live = LiveConfig::new(sources, loaded, log, builder.config_updates(), Arc::clone(&listeners));
        Node { live, builder, listeners, data, reloads }
    }

    fn obey_signals(&self) -> Result<(), Failure> {
        let drain_deadline = self.live.config.derive(|config| config.io.drain_deadline.duration());
        signals::obey(self.builder.handle(), drain_deadline)
            .map_err(|error| Failure::new(Code::CannotStart, format!("signals cannot be caught: {error}")))
    }

    fn start_admin(&self, token: ron_admin::OperatorToken) -> Result<Arc<AdminThread>, Failure> {
        let config = self.live.config.get();
        let admin = &config.value.admin;
        let listener = self.listeners.take("admin", admin.addr, |_| {});
        let listener = listener.map_err(|error| planes::cannot_bind("admin", admin.addr, &error))?;
        let options = AdminOptions {
            listener,
            tls: planes::tls(admin.tls_cert.as_ref().zip(admin.tls_key.as_ref()))?,
            token,
            chaos: config.value.chaos,
            connections_max: descriptors::admin_connections_max(descriptors::limit()),
        };
        let control = ProcessControl {
            reloads: self.reloads.clone(),
            log: self.live.log.clone(),
            config: self.live.config.clone(),
        };
        let started = AdminThread::start(options, self.builder.handle(), Arc::new(control));
        started.map(Arc::new).map_err(|error| Failure::new(Code::CannotStart, format!("admin thread: {error}")))
    }

    fn build(self, admin: Arc<AdminThread>, access: Access) -> Result<(Kernel, Watched), Failure> {
        let Node { live, mut builder, listeners, data, reloads } = self;
        let config = live.config.keep();
        let config = &config.value;
        let (telemetry, measurements) = builder.queue_of(&specs::TELEMETRY, config.queues.telemetry, None);
        let work = specs::uses_pool(&config.services, config.dev).then(|| pool(&mut builder, &live, &telemetry));
        let key = node_key(&data)?;
        let oap_address = listeners.addresses().get("oap").copied();
        let mut routes: Vec<Routes> = Vec::new();
        let echo = || ServedSurface { service: specs::WORKERS.name, surface: ron_api::echo_frames() };
        let mut frames = Vec::from_iter(config.dev.then(echo));
        let (mut peers, mut ports) = (None, Ports::default());
        for service in services::chosen(config) {
            let authority = &access.authority;
            let (builder, ports, config_seen) = (&mut builder, &mut ports, &live.config);
            let mut parts =
                Parts { builder, config: config_seen, data: &data, authority, key: &key, oap_address, ports };
            let installed = match service.install(&mut parts) {
                Err(failure) if is_bearable(&failure, config, service) => {
                    without(parts.builder, service, failure, authority)
                }
                installed => installed?,
            };
            routes.push(installed.routes);
            let name = service.spec().name;
            frames.extend(installed.frames.into_iter().map(|surface| ServedSurface { service: name, surface }));
            peers = peers.or(installed.peers);
        }
        let (authority, oap_authority) = (access.authority.clone(), access.authority.clone());
        own_units(&mut builder, admin, (&live, reloads), access, measurements);
        let sockets = PlaneSockets::new(Arc::clone(&listeners), data, live.config.clone());
        let plane = ApiBuilder::new(builder.handle(), live.config.derive(Config::http_limits));
        // Whether a caller asks by HTTP or by frames, its share is one.
        let shares = plane.shares();
        if config.runs("http") {
            let api = api(plane, authority, work.clone().filter(|_| config.dev), routes);
            let sockets = sockets.clone();
            let pool = config.dev.then_some(specs::WORKERS.name);
            let http = builder.service(&specs::HTTP).depends_on(pool).serves(specs::served_by_http());
            http.task(&specs::OVERLAY_HTTP, 1, move |context| {
                let (api, sockets) = (api.clone(), sockets.clone());
                async move {
                    let (listener, tls) = sockets.open_http()?;
                    let serving = ron_api::serve(context.clone(), listener, tls, api);
                    sockets.closed_by_drain("api", &context, serving).await
                }
            });
        }
        if let Some(work) = work.filter(|_| config.runs("oap")) {
            let tls = match &peers {
                Some(peers) => peers.tls().clone(),
                None => Tls::new(&key, PostQuantum::Hybrid).map_err(|error| unusable_key(&error))?,
            };
            let (config, kernel) = (live.config.clone(), builder.handle());
            let (node_id, surfaces, authority) = (key.node_id(), frames.into(), oap_authority);
            let ingress = Ingress { config, tls, node_id, authority, peers, surfaces, kernel, shares, work };
            let oap = builder.service(&specs::OAP).serves(services::all().map(|service| service.spec().name));
            oap.task(&specs::TRANSPORT_INGRESS, 1, move |context| {
                let (ingress, sockets) = (ingress.clone(), sockets.clone());
                async move {
                    let serving = transport_ingress(context.clone(), sockets.open_oap()?, ingress);
                    sockets.closed_by_drain("oap", &context, serving).await
                }
            });
        }
        builder.require(|unit| config.requires(unit));
        let kernel = builder.build().map_err(|error| Failure::new(Code::CannotStart, error.to_string()))?;
        Ok((kernel, Watched { config: live.config, listeners }))
    }
}

/// Whether the node starts without a service: one that it does not require, and whose files cannot be used. What is
/// wrong with the configuration is a refusal all the same.
fn is_bearable(failure: &Failure, config: &Config, service: &dyn Service) -> bool {
    failure.code == Code::DataDirUnusable && !config.requires(service.spec())
}

/// A service that could not be made: it is shown as failed, with the cause, and its requests are refused.
fn without(builder: &mut Builder, service: &dyn Service, failure: Failure, authority: &Authority) -> Installed {
    let spec = service.spec();
    tracing::error!("{failure}; the node runs without its service {}", spec.name);
    let (code, detail) = (failure.code.exit().number(), format!("{failure}; restart the node once that is put right"));
    builder.service(spec).task(spec.tasks[0], 1, move |_context| {
        std::future::ready(Err(TaskError::Fatal { code, detail: detail.clone() }))
    });
    let (surfaces, authority) = (service.surfaces(), authority.clone());
    let routes: Routes = Box::new(move |plane| ron_api::out_of_service(plane, surfaces, &authority));
    routes.into()
}

/// Identity of the node: read, or made at the first run; in memory alone in amnesia mode.
fn node_key(data: &DataDir) -> Result<NodeKey, Failure> {
    let key = data.path(NODE_KEY_FILE).map_or_else(NodeKey::generate, |path| NodeKey::load_or_create(&path));
    key.map_err(|error| unusable_key(&error))
}

fn unusable_key(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::SigningKeyUnusable, format!("{NODE_KEY_FILE}: {error}"))
}

/// Declares the worker pool; returns the port that queues work for it.
fn pool(builder: &mut Builder, live: &LiveConfig, telemetry: &QueueSender<Measurement>) -> WorkPort {
    let config = live.config.keep();
    let config = &config.value;
    let bytes_max = Some(config.queues.work_bytes_max.bytes());
    let (jobs, taken) = builder.queue_of::<Job>(&specs::WORK, config.queues.work, bytes_max);
    let workers = u16::try_from(config.worker_count()).unwrap_or(u16::MAX);
    let telemetry = telemetry.clone();
    builder
        .service(&specs::WORKERS)
        .task(&specs::WORKER, workers, move |context| worker(context, taken.clone(), telemetry.clone()));
    WorkPort::new(jobs, live.config.clone(), Arc::clone(builder.handle().metrics()))
}

/// The units that every node has: the admin plane and health, the configuration, and access.
fn own_units(
    builder: &mut Builder,
    admin: Arc<AdminThread>,
    (live, ReloadPort(reloads)): (&LiveConfig, ReloadPort),
    Access { authority, revocations, problem }: Access,
    measurements: QueueReceiver<Measurement>,
) {
    // Asked for when every queue is there: the meter watches all of them.
    let probes = builder.queue_probes();
    builder
        .service(&specs::OBSERVE)
        .task(&specs::METRICS_SERVER, 1, move |context| ron_admin::supervise(context, Arc::clone(&admin)))
        .task(&specs::HEALTH_REPORTER, 1, move |context| {
            health_reporter(context, probes.clone(), measurements.clone())
        });
    let live = live.clone();
    builder
        .service(&specs::CONFIG)
        .task(&specs::CONFIG_WATCHER, 1, move |context| config_watcher(context, live.clone(), reloads.clone()));
    let told = problem.clone();
    builder.handle().add_note(move || told.get());
    builder.service(&specs::ACCESS).task(&specs::CAPABILITY_REFRESHER, 1, move |context| {
        capability_refresher(context, authority.clone(), revocations.clone(), problem.clone())
    });
}

/// The plane: the development routes if wanted, the node's own, and those of each service.
fn api(node: ApiBuilder, authority: Authority, dev: Option<WorkPort>, routes: Vec<Routes>) -> Api {
    let builder = match dev {
        Some(work) => dev_routes(node, Arc::new(work)),
        None => node,
    };
    let builder = node_routes(builder, authority, services::capabilities().collect());
    routes.into_iter().fold(builder, |builder, add| add(builder)).build()
}
