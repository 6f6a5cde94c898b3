//! The list of services, and what one is made of. Everything that speaks of all services walks this list.
//!
//! A service is its crate, its surface in `ron-api`, one file below this one, and one line in [`SERVICES`]:
//! docs/adding-a-service.md.

mod dht;
mod index;
mod mailbox;
mod overlay;
mod ports;
mod rewarder;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use clap::{ArgMatches, Subcommand};
use futures_util::future::LocalBoxFuture;
use ron_api::frames::FrameSurface;
use ron_api::{ApiBuilder, Surface};
use ron_auth::{Authority, Capabilities};
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{GateSpec, QueueSpec, ServiceSpec};
use ron_kernel::{Builder, Snapshot};
use ron_transport::NodeKey;

pub use crate::client::ApiClient;
pub use crate::commands::{Pane, Report};
pub use crate::config::{BrokenRule, Config, Section};
pub use crate::data_dir::DataDir;
pub use crate::doctor::Finding;
pub use crate::errors::{Code, Failure};
pub use crate::ingress::PeerPort;
pub use ports::Ports;

/// The services of this binary, in start order.
pub static SERVICES: &[&dyn Service] =
    &[&mailbox::Mailbox, &rewarder::Rewarder, &overlay::Overlay, &dht::Dht, &index::Index];

/// One service: what it declares, and how it becomes part of a node.
pub trait Service: Sync {
    /// Unit of the service in the readiness DAG, with its tasks.
    fn spec(&self) -> &'static ServiceSpec;

    /// Queues and broadcasts of the service.
    fn queues(&self) -> Vec<&'static QueueSpec> {
        Vec::new()
    }

    /// Gates of the service; the permits of each are a key of the configuration.
    fn gates(&self) -> &'static [&'static GateSpec] {
        &[]
    }

    /// Metrics of the service.
    fn metrics(&self) -> &'static [MetricSpec] {
        &[]
    }

    /// Sections of the configuration that the service owns.
    fn sections(&self) -> &'static [Section] {
        &[]
    }

    /// Rules between values that do not hold.
    fn broken_rules(&self, _config: &Config) -> Vec<BrokenRule> {
        Vec::new()
    }

    /// Sentences an operator should read though the node is well; shown on /readyz while they hold.
    fn notes(&self, _config: &Config) -> Vec<String> {
        Vec::new()
    }

    /// What `macronode doctor` finds out about the service's part of the data directory, without changing it.
    fn examine(&self, _config: &Config) -> Vec<Finding> {
        Vec::new()
    }

    /// File descriptors that the service holds or reserves, whatever its load: connections leave it these.
    fn descriptors(&self) -> u64 {
        0
    }

    /// Verbs, kind of resource and limits that an operator can grant.
    fn capabilities(&self) -> Option<&'static Capabilities> {
        None
    }

    /// Surfaces of the service on the public HTTP plane, which refuses their requests while the service is out.
    fn surfaces(&self) -> &'static [&'static Surface] {
        &[]
    }

    /// Commands of the service: `macronode <name> …`.
    fn commands(&self) -> Vec<ServiceCommand> {
        Vec::new()
    }

    /// Panes of `macronode top` that show the service.
    fn panes(&self) -> Vec<Box<dyn Pane>> {
        Vec::new()
    }

    /// Whether the service of a running node has reached the other nodes it was told of; asked before a cluster is said
    /// to stand.
    fn has_joined<'a>(&'a self, _api: &'a mut ApiClient) -> LocalBoxFuture<'a, Result<bool, Failure>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Adds it to a node; gives what it serves on the planes. What can fail comes first: a node that does not require
    /// the service shows it as failed in its place, so nothing of it may be there already.
    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure>;
}

/// What a service serves on the planes of its node.
pub struct Installed {
    /// Its routes of the public HTTP plane.
    pub routes: Routes,
    /// Its surfaces on the framed plane.
    pub frames: Vec<Arc<dyn FrameSurface>>,
    /// Its port for sessions of other nodes, if it keeps them.
    pub peers: Option<Arc<dyn PeerPort>>,
}

impl From<Routes> for Installed {
    fn from(routes: Routes) -> Self {
        Installed { routes, frames: Vec::new(), peers: None }
    }
}

/// Adds the routes of a service to the plane; not called on a node without one.
pub type Routes = Box<dyn FnOnce(ApiBuilder) -> ApiBuilder>;

/// Parts of the node that a service is installed with.
pub struct Parts<'a> {
    /// Makes its tasks, queues and metrics.
    pub builder: &'a mut Builder,
    /// The configuration in force; what a reload may change is derived from it.
    pub config: &'a Snapshot<Config>,
    /// Data directory of the node, or nowhere in amnesia mode.
    pub data: &'a DataDir,
    /// Authority that checks capabilities.
    pub authority: &'a Authority,
    /// Identity of the node among others.
    pub key: &'a NodeKey,
    /// Where the framed plane listens, if the node has it.
    pub oap_address: Option<SocketAddr>,
    /// What services that start earlier offer to those that start later.
    pub ports: &'a mut Ports,
}

/// A command of a service.
pub struct ServiceCommand {
    /// First word on the command line.
    pub name: &'static str,
    /// One sentence for the list of commands.
    pub about: &'static str,
    /// Lines for the examples of `macronode --help`.
    pub examples: &'static [&'static str],
    arguments: fn(clap::Command) -> clap::Command,
    run: Run,
}

/// Does a command with what the parser found.
type Run = Box<dyn Fn(&ArgMatches) -> Result<Report, Failure>>;

impl ServiceCommand {
    /// A command whose subcommands are the variants of this type.
    pub fn new<T: Subcommand + 'static>(
        name: &'static str,
        about: &'static str,
        examples: &'static [&'static str],
        run: fn(&T) -> Result<Report, Failure>,
    ) -> Self {
        let run = move |matches: &ArgMatches| {
            let command = T::from_arg_matches(matches);
            run(&command.expect("the matches were made by the arguments of this type"))
        };
        ServiceCommand { name, about, examples, arguments: T::augment_subcommands, run: Box::new(run) }
    }

    /// Description for the command line parser.
    pub fn parser(&self) -> clap::Command {
        let command = clap::Command::new(self.name).subcommand_required(true).arg_required_else_help(true);
        // Said last, because the type of the subcommands says what it is and not what it is for.
        (self.arguments)(command).about(self.about)
    }

    /// Carries the command out.
    pub fn run(&self, matches: &ArgMatches) -> Result<Report, Failure> {
        (self.run)(matches)
    }
}

impl std::fmt::Debug for ServiceCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServiceCommand").field(&self.name).finish()
    }
}

/// Services that this process has beside those of the binary: a test's example of the recipe.
static GUESTS: OnceLock<&'static [&'static dyn Service]> = OnceLock::new();

/// Adds services to those of the binary; only the first call counts, and it must come before anything walks the list.
#[doc(hidden)]
pub fn add_guests(guests: &'static [&'static dyn Service]) {
    let _ = GUESTS.set(guests);
}

/// Every service, in start order.
pub fn all() -> impl Iterator<Item = &'static dyn Service> {
    SERVICES.iter().chain(GUESTS.get().into_iter().copied().flatten()).copied()
}

/// The services that this configuration runs.
pub fn chosen(config: &Config) -> impl Iterator<Item = &'static dyn Service> {
    all().filter(|service| config.runs(service.spec().name))
}

/// The sections of all services.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    all().flat_map(Service::sections)
}

/// The gates of all services.
pub fn gates() -> impl Iterator<Item = &'static GateSpec> {
    all().flat_map(|service| service.gates().iter().copied())
}

/// The commands of all services.
pub fn commands() -> impl Iterator<Item = ServiceCommand> {
    all().flat_map(Service::commands)
}

/// The panes of all services.
pub fn panes() -> Vec<Box<dyn Pane>> {
    all().flat_map(Service::panes).collect()
}

/// Verbs and limits that the services let an operator grant.
pub fn capabilities() -> impl Iterator<Item = &'static Capabilities> {
    all().filter_map(Service::capabilities)
}
