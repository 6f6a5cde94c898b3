//! The live picture: every declared task, queue and gate with its numbers, as JSON and as a Mermaid map.

use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use ron_policy::{DrainStep, Plan, ServiceView, drain_plan};
use serde::Serialize;

use crate::builder::SUPERVISOR;
use crate::flowchart::Flowchart;
use crate::gate::Gate;
use crate::metrics::COLLECTED;
use crate::queue::QueueProbe;
use crate::spec::{QueueSpec, ServiceSpec};
use crate::status::{NodeStatus, TaskStatus};

/// One node of the readiness DAG.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceRow {
    /// State of the service in the readiness graph.
    #[serde(flatten)]
    pub view: ServiceView,
    /// Names of the services it depends on.
    pub depends_on: Vec<&'static str>,
    /// Names of the services it passes requests on to; it runs without them.
    pub serves: Vec<&'static str>,
    /// One sentence on what the service does.
    pub does: &'static str,
}

/// Queue with its live numbers.
#[derive(Clone, Debug, Serialize)]
pub struct QueueRow {
    /// Declaration of the queue.
    #[serde(flatten)]
    pub spec: &'static QueueSpec,
    /// Maximum number of items.
    pub capacity: usize,
    /// Maximum number of bytes, if they are bounded.
    pub bytes_max: Option<usize>,
    /// Number of items waiting.
    pub depth: usize,
    /// Number of bytes waiting, if they are bounded.
    pub bytes: Option<usize>,
    /// Greatest number of items that waited at once.
    pub high_water: usize,
    /// Number of items refused.
    pub busy: u64,
    /// Number of items dropped.
    pub dropped: u64,
}

/// Gate with its live numbers.
#[derive(Clone, Debug, Serialize)]
pub struct GateRow {
    /// Facet or service the gate belongs to.
    pub facet: &'static str,
    /// Name of the gate.
    pub name: &'static str,
    /// Number of permits, in use or free.
    pub permits: usize,
    /// Number of permits in use.
    pub in_flight: usize,
    /// Number of refusals.
    pub busy: u64,
}

/// Services, tasks, queues and gates at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Topology {
    /// Readiness of the whole node.
    pub state: ron_policy::NodeState,
    /// Services with their dependencies.
    pub services: Vec<ServiceRow>,
    /// Every task instance.
    pub tasks: Vec<TaskStatus>,
    /// Every channel.
    pub queues: Vec<QueueRow>,
    /// Every gate.
    pub gates: Vec<GateRow>,
    /// The order of a drain, as it would run now.
    pub drain: Vec<DrainStep>,
}

/// Everything declared to the builder: the live objects and their specs.
#[derive(Default)]
pub(crate) struct Declared {
    pub services: Vec<DeclaredService>,
    pub queues: Vec<QueueProbe>,
    pub gates: Vec<Gate>,
    /// None before the node is built.
    pub plan: Option<Plan>,
}

/// A service with those that it needs and serves, of those that run.
pub(crate) struct DeclaredService {
    pub spec: &'static ServiceSpec,
    pub depends_on: Vec<&'static str>,
    pub serves: Vec<&'static str>,
}

impl Declared {
    /// The picture of a node of this status, a drain of which may take this long.
    pub(crate) fn topology(&self, status: &NodeStatus, drain_deadline: Duration) -> Topology {
        let drain = |plan| drain_plan(&Plan { drain_deadline_ms: drain_deadline.as_millis() as u64, ..plan });
        let services = status.view.services.iter().filter_map(|view| {
            let DeclaredService { spec, depends_on, serves } =
                self.services.iter().find(|service| service.spec.name == view.name)?;
            let (depends_on, serves) = (depends_on.clone(), serves.clone());
            Some(ServiceRow { view: view.clone(), depends_on, serves, does: spec.does })
        });
        Topology {
            state: status.view.state,
            services: services.collect(),
            tasks: status.tasks.clone(),
            queues: self.queues.iter().map(queue_row).collect(),
            gates: self.gates.iter().map(gate_row).collect(),
            drain: self.plan.clone().map(drain).unwrap_or_default(),
        }
    }
}

fn queue_row(probe: &QueueProbe) -> QueueRow {
    QueueRow {
        spec: probe.spec(),
        capacity: probe.capacity(),
        bytes_max: probe.bytes_max(),
        depth: probe.depth(),
        bytes: probe.bytes(),
        high_water: probe.high_water(),
        busy: probe.busy(),
        dropped: probe.dropped(),
    }
}

fn gate_row(gate: &Gate) -> GateRow {
    GateRow {
        facet: gate.spec().facet,
        name: gate.spec().name,
        permits: gate.permits(),
        in_flight: gate.in_flight(),
        busy: gate.busy(),
    }
}

impl Topology {
    /// The topology as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let mut map = Flowchart::default();
        map.service("kernel", "kernel", [(SUPERVISOR.name, SUPERVISOR.name.to_owned())]);
        for service in &self.services {
            let counts = self.task_counts(service.view.name).into_iter();
            let tasks = counts.map(|(task, running, all)| (task, format!("{task} {running}/{all}")));
            map.service(service.view.name, &format!("{}: {}", service.view.name, word(&service.view.state)), tasks);
        }
        for service in &self.services {
            service.depends_on.iter().for_each(|dependency| map.need(service.view.name, dependency));
            service.serves.iter().for_each(|other| map.serve(service.view.name, other));
        }
        for queue in &self.queues {
            map.queue(queue.spec, &format!("{}/{}", queue.depth, queue.capacity));
        }
        map.finish()
    }

    fn task_counts(&self, unit: &str) -> Vec<(&'static str, usize, usize)> {
        let mut counts: Vec<(&'static str, usize, usize)> = Vec::new();
        for task in self.tasks.iter().filter(|task| task.unit == unit) {
            let running = usize::from(task.view.state == ron_policy::TaskState::Running);
            match counts.last_mut() {
                Some((name, up, all)) if *name == task.name => {
                    *up += running;
                    *all += 1;
                }
                _ => counts.push((task.name, running, 1)),
            }
        }
        counts
    }
}

/// A unit variant as it is written in JSON.
fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Reads depth and permits in use when scraped.
pub(crate) struct LiveNumbers {
    pub queues: Vec<QueueProbe>,
    pub gates: Vec<Gate>,
}

impl std::fmt::Debug for LiveNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveNumbers").field("queues", &self.queues.len()).field("gates", &self.gates.len()).finish()
    }
}

impl Collector for LiveNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let queues = |read: fn(&QueueProbe) -> usize| -> Vec<(&'static str, usize)> {
            self.queues.iter().map(|probe| (probe.spec().name, read(probe))).collect()
        };
        let gates = self.gates.iter().map(|gate| (gate.spec().facet, gate.in_flight())).collect();
        let rows = [queues(QueueProbe::depth), queues(QueueProbe::high_water), gates];
        for (spec, values) in COLLECTED.iter().zip(rows) {
            let mut family = encoder.encode_descriptor(spec.name, spec.help, None, MetricType::Gauge)?;
            for (label, value) in values {
                let gauge = ConstGauge::new(value as i64);
                let labels = match label.strip_suffix(']').and_then(|label| label.split_once('[')) {
                    // One queue of several: `name[shard]`.
                    Some((name, shard)) => vec![(spec.labels[0], name), ("shard", shard)],
                    None => vec![(spec.labels[0], label)],
                };
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
