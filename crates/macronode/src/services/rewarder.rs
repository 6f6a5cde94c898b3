//! The rewarder: epochs from usage to verified payouts, with its ledger.

mod ledger;
mod reward;
mod usage;

use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{GateSpec, QueueSpec, ServiceSpec};
use svc_rewarder::capabilities::CAPABILITIES;
use svc_rewarder::config::Options;
use svc_rewarder::specs;

use super::{Failure, Parts, Routes, Section, Service, ServiceCommand};

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

    fn install(&self, node: &mut Parts<'_>) -> Result<Routes, Failure> {
        let _ = node;
        Ok(Box::new(|plane| plane))
    }
}
