//! The node's configuration: its sections, their defaults, and how it is loaded, checked, compared and documented.

mod diff;
mod document;
mod error;
mod keys;
mod kind;
mod layers;
mod nearest;
mod node;
mod print;
mod rules;
mod section;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;

use ron_kernel::spec::{GateSpec, ServiceSpec};
use ron_types::settings::{ValueKind, choice, process, whole_or_auto};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use diff::ChangedKey;
pub use document::{markdown, schema};
pub use error::{ConfigError, ConfigErrors};
pub use keys::Key;
#[cfg(test)]
pub use keys::keys;
pub use layers::{Loaded, Reading, Sources, load, load_read};
pub use node::{Admin, Api, Connections, Http, Io, Log, LogFormat, Oap, Queues, Readiness, Retry, Tls};
pub use print::print;
pub use ron_types::{Permits, Size, TimeSpan};
pub use rules::BrokenRule;
pub use section::{Section, SectionValue};

use crate::services;

/// The planes of the node itself, which can be chosen like services.
pub const PLANES: [&str; 2] = ["http", "oap"];
/// The section with a key for each gate.
pub const PERMITS_SECTION: &str = "facets";

/// Everything that can be chosen with `services`.
pub fn known_services() -> impl Iterator<Item = &'static str> {
    PLANES.into_iter().chain(services::all().map(|service| service.spec().name))
}

/// Everything an operator may set. The documentation of a field is its meaning in docs/config.md and in the schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The services this node runs.
    #[schemars(extend("x-setting" = process(ValueKind::Names(Vec::new())).flag("--services")))]
    pub services: Vec<String>,
    /// Keep everything in memory and open no file for writing.
    #[schemars(extend("x-setting" = process(ValueKind::Switch).flag("--amnesia")))]
    pub amnesia: bool,
    /// Serve the development routes and echo frames, to try the node out.
    #[schemars(extend("x-setting" = process(ValueKind::Switch).flag("--dev")))]
    pub dev: bool,
    /// Allow the admin plane to kill and freeze tasks, to rehearse failures.
    #[schemars(extend("x-setting" = process(ValueKind::Switch).flag("--chaos")))]
    pub chaos: bool,
    /// The scheduler: a thread for each core, or one thread for everything.
    #[schemars(extend("x-setting" = process(choice(&["multi", "current"])).flag("--runtime")))]
    pub runtime: Runtime,
    /// The directory of everything the node keeps.
    #[schemars(extend("x-setting" = process(ValueKind::Path).flag("--data-dir")))]
    pub data_dir: PathBuf,
    /// Workers that take jobs from the work queue; 0 chooses by the number of cores.
    #[schemars(extend("x-setting" = process(whole_or_auto(1024, WORKERS_AUTO))))]
    pub workers: usize,
    /// The public HTTP plane.
    pub api: Api,
    /// The plane of the operator.
    pub admin: Admin,
    /// The port for OAP frames.
    pub oap: Oap,
    /// What the node calls ready.
    pub readiness: Readiness,
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
    /// Retries of calls to others.
    pub retry: Retry,
    /// The log.
    pub log: Log,
    /// Permits of each gate, by its name; gates that are not here have their default.
    #[serde(skip)]
    #[schemars(skip)]
    pub permits: BTreeMap<String, Permits>,
    /// The sections of services, by their headings.
    #[serde(skip)]
    #[schemars(skip)]
    pub sections: BTreeMap<&'static str, SectionValue>,
}

/// What the node chooses where nobody says how many workers, in words.
const WORKERS_AUTO: &str = "one for each core, with `dev` max(20, 4 x cpu)";

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A thread for each core.
    Multi,
    /// One thread.
    Current,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            services: known_services().map(str::to_owned).collect(),
            amnesia: false,
            dev: false,
            chaos: false,
            runtime: Runtime::Multi,
            data_dir: PathBuf::from("./macronode-data"),
            workers: 0,
            api: Api::default(),
            admin: Admin::default(),
            oap: Oap::default(),
            readiness: Readiness::default(),
            io: Io::default(),
            http: Http::default(),
            tls: Tls::default(),
            connections: Connections::default(),
            queues: Queues::default(),
            retry: Retry::default(),
            log: Log::default(),
            permits: services::gates()
                .map(|gate| (gate.name.to_owned(), Permits::PerCpu(gate.permits_per_cpu)))
                .collect(),
            sections: services::sections().map(|section| (section.name, section.defaults())).collect(),
        }
    }
}

impl Config {
    /// The number of workers on this machine. Without `dev` their only work is to answer frames, which takes a core
    /// and no time; the development routes may also sleep in a worker.
    pub fn worker_count(&self) -> usize {
        match (self.workers, self.dev) {
            (0, true) => (4 * cpus()).clamp(20, 1024),
            (0, false) => cpus().min(1024),
            (count, _) => count,
        }
    }

    /// Whether this service or plane is to run.
    pub fn runs(&self, service: &str) -> bool {
        self.services.iter().any(|name| name == service)
    }

    /// Whether the node is ready only while this unit serves. Of the units that cannot be named, their specs say so.
    pub fn requires(&self, unit: &ServiceSpec) -> bool {
        match known_services().any(|name| name == unit.name) {
            true => self.readiness.required.iter().any(|name| name == unit.name),
            false => unit.required,
        }
    }

    /// Values of the section whose Options type is `T`.
    pub fn section<T: 'static>(&self) -> &T {
        let found = self.sections.values().find_map(SectionValue::get::<T>);
        found.expect("the services of this binary declare every section that is asked for")
    }

    /// The permits of a gate on this machine.
    pub fn permits_of(&self, gate: &GateSpec) -> usize {
        self.permits.get(gate.name).copied().unwrap_or(Permits::PerCpu(gate.permits_per_cpu)).on(cpus())
    }
}

/// Number of cores this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Memory of the machine in bytes, or of this control group if that is less; none where the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024;
    // Without a limit the file says "max".
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}
