//! Puts a node together: the only place where tasks, queues and gates come into being.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use ron_cells::Monotone;
use ron_policy::{NodeState, NodeView, Phase, Plan, PlanError, ServicePlan, TaskPlan};
use tokio::sync::watch;

use crate::bus::{Broadcast, Bus};
use crate::clock;
use crate::coalesce::{Coalesce, Coalescing, coalescing};
use crate::gate::Gate;
use crate::handle::{Inner, KernelHandle, Request, SUPERVISOR_INBOX};
use crate::kernel::{CONFIG_UPDATES, ConfigChange, Kernel};
use crate::meter::Meter;
use crate::metrics::Metrics;
use crate::outages::Outages;
use crate::queue::{Payload, QueueProbe, QueueReceiver, QueueSender, queue};
use crate::shutdown::{SHUTDOWN, Stopping};
use crate::snapshot::Snapshot;
use crate::spec::{GateSpec, QueueSpec, ServiceSpec, TaskSpec};
use crate::status::NodeStatus;
use crate::task::{Factory, TaskContext, TaskResult};
use crate::topology::{Declared, DeclaredService, LiveNumbers};

/// Settings of the kernel itself.
#[derive(Clone, Debug)]
pub struct KernelOptions {
    /// Maximum duration of a drain, all phases together.
    pub drain_deadline: Duration,
    /// Events a bus receiver may be behind.
    pub bus_capacity: usize,
    /// Configuration changes that may wait for the supervisor.
    pub config_updates_capacity: usize,
    /// Seed of the random restart delays; the same seed gives the same delays.
    pub seed: u64,
    /// Keep every step for a conformance check; for tests.
    pub record: bool,
}

impl Default for KernelOptions {
    fn default() -> Self {
        KernelOptions {
            drain_deadline: ron_types::limits::DRAIN_DEADLINE,
            bus_capacity: ron_types::limits::BUS_CAPACITY,
            config_updates_capacity: ron_types::limits::CONFIG_UPDATES_CAPACITY,
            seed: 0,
            record: false,
        }
    }
}

/// Collects what the node consists of.
pub struct Builder {
    options: KernelOptions,
    handle: KernelHandle,
    inbox: QueueReceiver<Request>,
    config_updates: Coalescing<ConfigChange>,
    services: Vec<BuiltService>,
    queues: Vec<QueueProbe>,
    gates: Vec<Gate>,
}

struct BuiltService {
    spec: &'static ServiceSpec,
    is_required: bool,
    depends_on: Vec<&'static str>,
    serves: Vec<&'static str>,
    tasks: Vec<BuiltTask>,
}

/// A task as the kernel keeps it.
pub(crate) struct BuiltTask {
    pub spec: &'static TaskSpec,
    pub instances: u16,
    pub factory: Factory,
}

/// Registers the tasks of one service.
pub struct ServiceBuilder<'a> {
    service: &'a mut BuiltService,
}

impl Builder {
    /// A builder without services, queues or gates.
    pub fn new(options: KernelOptions, metrics: Arc<Metrics>) -> Self {
        let view = NodeView {
            state: NodeState::Starting,
            accepts_reads: false,
            accepts_writes: false,
            services: Vec::new(),
            unmet: Vec::new(),
            pressure: Vec::new(),
        };
        let status = watch::Sender::new(Arc::new(NodeStatus { sequence: 0, view, tasks: Vec::new() }));
        let bus = Bus::new(options.bus_capacity, status.clone());
        let (sender, inbox, inbox_probe) = queue(&SUPERVISOR_INBOX, SUPERVISOR_INBOX.capacity, None, &metrics);
        let (config_updates, config_probe) =
            coalescing(&CONFIG_UPDATES, options.config_updates_capacity, &metrics, metrics.config_coalesced.clone());
        let stopping = watch::Sender::new(Stopping::default());
        let shutdown_probe = QueueProbe::of(&SHUTDOWN, 1, &metrics, || 0);
        let queues = vec![bus.probe(options.bus_capacity, &metrics), shutdown_probe, config_probe, inbox_probe];
        let inner = Inner {
            inbox: sender,
            status,
            stopping,
            bus,
            meter: Meter::new(&metrics),
            metrics,
            declared: OnceLock::new(),
            last_turn_ms: Monotone::new(0),
            drain_asked: OnceLock::new(),
            started: clock::now(),
            notes: Mutex::default(),
            drain_deadline: Snapshot::new(options.drain_deadline),
            outages: Snapshot::new(Outages::default()),
        };
        let handle = KernelHandle { inner: Arc::new(inner) };
        Builder { options, handle, inbox, config_updates, services: Vec::new(), queues, gates: Vec::new() }
    }

    /// The kernel as tasks and planes will see it.
    pub fn handle(&self) -> KernelHandle {
        self.handle.clone()
    }

    /// The usage meter, through which a service says what it did for whom.
    pub fn meter(&self) -> Meter {
        self.handle.meter().clone()
    }

    /// Sender of configuration changes to the supervisor.
    pub fn config_updates(&self) -> Coalescing<ConfigChange> {
        self.config_updates.clone()
    }

    /// A queue with the capacity of its spec.
    pub fn queue<T: Payload>(&mut self, spec: &'static QueueSpec) -> (QueueSender<T>, QueueReceiver<T>) {
        self.queue_of(spec, spec.capacity, spec.bytes_max)
    }

    /// A queue whose capacity comes from the configuration instead of its spec.
    pub fn queue_of<T: Payload>(
        &mut self,
        spec: &'static QueueSpec,
        capacity: usize,
        bytes_max: Option<usize>,
    ) -> (QueueSender<T>, QueueReceiver<T>) {
        let (sender, receiver, probe) = queue(spec, capacity, bytes_max, self.handle.metrics());
        self.queues.push(probe);
        (sender, receiver)
    }

    /// A coalescing queue; `absorbed` counts what was coalesced.
    pub fn coalescing<T: Coalesce>(&mut self, spec: &'static QueueSpec, absorbed: Counter) -> Coalescing<T> {
        let (queue, probe) = coalescing(spec, spec.capacity, self.handle.metrics(), absorbed);
        self.queues.push(probe);
        queue
    }

    /// A broadcast of a service's own events.
    pub fn broadcast<T: Clone + Send + 'static>(&mut self, spec: &'static QueueSpec) -> Broadcast<T> {
        let (broadcast, probe) = Broadcast::new(spec, self.handle.metrics());
        self.queues.push(probe);
        broadcast
    }

    /// Shows a channel that the kernel does not make itself: a bounded outbox for each connection, a watch of settings.
    /// `depth` is asked when somebody looks.
    pub fn shown(&mut self, spec: &'static QueueSpec, depth: impl Fn() -> usize + Send + Sync + 'static) {
        self.queues.push(QueueProbe::of(spec, spec.capacity, self.handle.metrics(), depth));
    }

    /// A facet's gate with this many permits.
    pub fn gate(&mut self, spec: &'static GateSpec, permits: usize) -> Gate {
        let gate = Gate::new(spec, permits, self.handle.metrics());
        self.gates.push(gate.clone());
        gate
    }

    /// Probes of all queues made so far, for the pressure meter.
    pub fn queue_probes(&self) -> Vec<QueueProbe> {
        self.queues.clone()
    }

    /// Decides which of the services made so far the node is ready only with, in place of what their specs say.
    pub fn require(&mut self, is_required: impl Fn(&'static ServiceSpec) -> bool) {
        self.services.iter_mut().for_each(|service| service.is_required = is_required(service.spec));
    }

    /// A service of the readiness DAG.
    pub fn service(&mut self, spec: &'static ServiceSpec) -> ServiceBuilder<'_> {
        let (is_required, depends_on) = (spec.required, spec.depends_on.to_vec());
        self.services.push(BuiltService { spec, is_required, depends_on, serves: Vec::new(), tasks: Vec::new() });
        ServiceBuilder { service: self.services.last_mut().expect("just pushed") }
    }

    /// Checks the plan and makes the kernel, ready to run.
    pub fn build(self) -> Result<Kernel, PlanError> {
        let running: Vec<&'static str> = self.services.iter().map(|service| service.spec.name).collect();
        let plan = Plan {
            services: self.services.iter().map(|service| service.plan(&running)).collect(),
            drain_deadline_ms: self.options.drain_deadline.as_millis() as u64,
        };
        plan.validate()?;
        let live = LiveNumbers { queues: self.queues.clone(), gates: self.gates.clone() };
        self.handle.metrics().register_collector(Box::new(live));
        let declared = Declared {
            services: self.services.iter().map(|service| service.declared(&running)).collect(),
            queues: self.queues,
            gates: self.gates,
            plan: Some(plan.clone()),
        };
        let _ = self.handle.inner.declared.set(declared);
        let services = self.services.into_iter().map(|service| (service.spec, service.tasks)).collect();
        Kernel::new(plan, self.options, self.handle, self.inbox, self.config_updates, services)
    }
}

impl ServiceBuilder<'_> {
    /// Adds what it needs beside what its spec says.
    pub fn depends_on(self, services: impl IntoIterator<Item = &'static str>) -> Self {
        self.service.depends_on.extend(services);
        self
    }

    /// Adds services that it passes requests on to: it runs without them, and leaves before them.
    pub fn serves(self, services: impl IntoIterator<Item = &'static str>) -> Self {
        self.service.serves.extend(services);
        self
    }

    /// Adds a task: `life` is called for every start.
    pub fn task<F, L>(self, spec: &'static TaskSpec, instances: u16, life: L) -> Self
    where
        L: Fn(TaskContext) -> F + Send + Sync + 'static,
        F: Future<Output = TaskResult> + Send + 'static,
    {
        let factory: Factory = Arc::new(move |context| life(context).boxed());
        self.service.tasks.push(BuiltTask { spec, instances, factory });
        self
    }
}

impl BuiltService {
    fn declared(&self, running: &[&'static str]) -> DeclaredService {
        DeclaredService {
            spec: self.spec,
            depends_on: those_of(&self.depends_on, running),
            serves: those_of(&self.serves, running),
        }
    }

    /// What policy needs to know.
    fn plan(&self, running: &[&'static str]) -> ServicePlan {
        let tasks = self.tasks.iter().map(|task| TaskPlan {
            name: task.spec.name,
            instances: task.instances,
            phase: task.spec.phase,
            heartbeat_ms: task.spec.heartbeat.map(|heartbeat| heartbeat.as_millis() as u64),
        });
        ServicePlan {
            name: self.spec.name,
            required: self.is_required,
            depends_on: those_of(&self.depends_on, running),
            serves: those_of(&self.serves, running),
            law: self.spec.law,
            tasks: tasks.collect(),
        }
    }
}

/// Those of these services that the node runs; one that it does not is neither waited for nor asked.
fn those_of(names: &[&'static str], running: &[&'static str]) -> Vec<&'static str> {
    names.iter().copied().filter(|name| running.contains(name)).collect()
}

/// The supervisor itself, for the picture: it is the loop that runs everything else.
pub const SUPERVISOR: TaskSpec = TaskSpec {
    owner: "macronode",
    name: "supervisor",
    count: "1",
    phase: Phase::Observe,
    heartbeat: None,
    does: "owns the shutdown watch, starts, watches and restarts tasks, escalates crash loops, drains",
};
