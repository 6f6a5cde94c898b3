//! The rewarder: epochs from usage to verified payouts, with its ledger.

mod books;
mod examine;
mod ledger;
mod reward;
mod top;
mod usage;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ron_api::{REWARDER_SURFACE, Surface};
use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{GateSpec, QueueSpec, ServiceSpec};
use ron_log::{Disk, RamDisk, RealDisk};
use ron_types::limits::rewarder::BATCH_ENTRIES_MAX;
use svc_rewarder::capabilities::CAPABILITIES;
use svc_rewarder::config::Options;
use svc_rewarder::folders::{Folders, RamFolders, RealFolders};
use svc_rewarder::inputs::Inputs;
use svc_rewarder::service::ServiceOptions;
use svc_rewarder::usage_meter::{FILES_KEPT, OpenDisk, UsageMeter};
use svc_rewarder::{TrustedKeys, specs};

use self::books::BOOK_FOLDER;
use super::{Code, Config, Failure, Finding, Installed, Pane, Parts, Routes, Section, Service, ServiceCommand};
use crate::config::cpus;

/// Name of the rewarder's folder in the data directory.
const FOLDER: &str = "rewarder";
/// Name of the folder of the seal log in it.
const LOG_FOLDER: &str = "log";
/// Descriptors reserved for each of its logs, which have few segments and are read when they are opened.
const LOG_DESCRIPTORS: usize = 8;

/// The rewarder as a service of the node.
pub struct Rewarder;

impl Service for Rewarder {
    fn spec(&self) -> &'static ServiceSpec {
        &specs::REWARDER
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        specs::queues().collect()
    }

    fn gates(&self) -> &'static [&'static GateSpec] {
        static GATES: [&GateSpec; 1] = [&specs::REWARD_READS];
        &GATES
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        svc_rewarder::METRICS
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] = &[Section::of::<Options>("rewarder")];
        SECTIONS
    }

    fn examine(&self, config: &Config) -> Vec<Finding> {
        examine::examine(config)
    }

    fn descriptors(&self) -> u64 {
        // The seal log, the usage log and the book; each has its lock and its folder open beside its reserve.
        3 * (LOG_DESCRIPTORS as u64 + 2)
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![
            ServiceCommand::new(
                "reward",
                "Compute, verify, prove and explain payouts; look after policies",
                &["macronode reward run --help            from a usage file to verified payouts"],
                reward::reward,
            ),
            ServiceCommand::new("ledger", "Read the embedded ledger", &[], ledger::ledger),
        ]
    }

    fn panes(&self) -> Vec<Box<dyn Pane>> {
        top::panes()
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 1] = [&REWARDER_SURFACE];
        &SURFACES
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let config = node.config.keep();
        let options = config.value.section::<Options>();
        let live = node.config.derive(|config| config.section::<Options>().live());
        let folder = node.data.path(FOLDER);
        let usage = UsageMeter::new(node.builder.meter(), disk_opener(folder.as_deref(), "usage"), FILES_KEPT);
        let fixed = ServiceOptions {
            disk: disk_opener(folder.as_deref(), LOG_FOLDER).into(),
            folders: folders(folder.as_deref())?,
            inputs: Arc::new(inputs(folder.as_deref())?),
            inputs_dir: options.inputs_dir.clone(),
            spill: spill(folder.as_deref())?,
            usage,
            trusted: trusted(options)?,
            ledger: books::opener(options, folder.as_deref())?,
            is_amnesia: folder.is_none(),
            compute_workers: options.compute_workers,
            run_memory_bytes: options.run_memory_bytes(),
            run_threads: (cpus() / options.compute_workers.max(1)).max(1),
            read_permits: config.value.permits_of(&specs::REWARD_READS),
            batch_entries: BATCH_ENTRIES_MAX,
            divide: ron_calculus::allocate,
        };
        let rewarder = svc_rewarder::install(node.builder, fixed, live);
        let authority = node.authority.clone();
        let routes: Routes = Box::new(move |plane| ron_api::rewarder_routes(plane, rewarder, authority));
        Ok(routes.into())
    }
}

/// Opens a folder of a log, or memory in amnesia mode; a restarted task finds the same memory.
pub(super) fn disk_opener(folder: Option<&Path>, name: &str) -> Box<OpenDisk> {
    match folder.map(|folder| folder.join(name)) {
        Some(path) => Box::new(move || Ok(Arc::new(RealDisk::open_reserving(&path, LOG_DESCRIPTORS)?))),
        None => {
            let memory = Arc::new(RamDisk::new());
            Box::new(move || Ok(Arc::clone(&memory) as Arc<dyn Disk>))
        }
    }
}

fn folders(folder: Option<&Path>) -> Result<Arc<dyn Folders>, Failure> {
    Ok(match folder {
        Some(folder) => Arc::new(RealFolders::open(folder.join("epochs")).map_err(|error| unusable(folder, &error))?),
        None => Arc::new(RamFolders::default()),
    })
}

fn inputs(folder: Option<&Path>) -> Result<Inputs, Failure> {
    let Some(folder) = folder else { return Ok(Inputs::nowhere()) };
    Inputs::open(folder.join("inputs")).map_err(|error| unusable(folder, &error))
}

/// The folder for what does not fit into memory, emptied of what a killed node left there.
fn spill(folder: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let spill = folder.join("spill");
    // The folder itself stays: a device that is full may have no room to make it again.
    let emptied = std::fs::create_dir_all(&spill).and_then(|()| {
        std::fs::read_dir(&spill)?.try_for_each(|entry| {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
        })
    });
    emptied.map(|()| Some(spill)).map_err(|error| unusable(folder, &error))
}

fn trusted(options: &Options) -> Result<Option<TrustedKeys>, Failure> {
    let Some(path) = &options.trusted_keys else { return Ok(None) };
    let keys = std::fs::read(path).map_err(Into::into).and_then(|bytes| TrustedKeys::parse(&bytes));
    let failure = |error| Failure::new(Code::CannotStart, format!("rewarder.trusted_keys = {path:?}: {error}"));
    keys.map(Some).map_err(failure)
}

fn unusable(folder: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::DataDirUnusable, format!("{}: {error}", folder.display()))
}
