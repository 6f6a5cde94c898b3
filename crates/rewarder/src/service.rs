//! The live rewarder: requests become runs, runs are sealed, sealed runs are paid.
//!
//! In order of flow: the handle ([`Rewarder`]) checks a request and queues it; the scheduler finds duplicates and
//! makes a job; a worker computes it; the writer writes its artifacts and then its row in the seal log, the only commit
//! point; the release gate asks whether a person must look; the emitter brings the payouts to the ledger and compares.

mod correction;
mod emitter;
pub(crate) mod engine;
mod handle;
mod ledger_port;
mod paid_usage;
mod reads;
mod release;
mod request;
mod retention;
mod room;
mod scheduler;
mod settled;
mod shares;
mod worker;
mod writer;

use std::sync::Arc;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{Builder, Snapshot};

pub use correction::CorrectionRequest;
pub use engine::{Begun, DiskOpener, LedgerOpener, LiveOptions, Progress, Refusal, RewardEvent, ServiceOptions};
pub use handle::{EpochState, Rewarder, RewarderStats};
pub use ledger_port::PayoutLedger;
pub use reads::{ArtifactReader, ReadShare};
pub use request::{ComputeRequest, InputRef};

use crate::metrics::RewarderMetrics;
use crate::specs;
use crate::usage_meter::{USAGE_METER, usage_meter};
use engine::{Asked, Computation, Engine, Payable, Queues, Ticket};

/// Shown on `/readyz` where the ledger leaves the rule to the node.
const NODE_KEEPS_POTS: &str = "the ledger does not say `one_run_per_pot`: only the seal log of this node keeps an epoch \
                               from being paid by two runs, so never restore it from a copy and pay from one node";

/// The receiving ends of the queues.
struct Receivers {
    asked: QueueReceiver<Asked>,
    jobs: QueueReceiver<Ticket>,
    computed: QueueReceiver<Computation>,
    payable: QueueReceiver<Payable>,
}

fn make_engine(
    builder: &mut Builder,
    options: ServiceOptions,
    live: Snapshot<LiveOptions>,
) -> (Arc<Engine>, Receivers) {
    let (requests, asked) = builder.queue(&specs::WORK_REQ);
    let (work, jobs) = builder.queue(&specs::WORK);
    let (results, computed) = builder.queue(&specs::RESULTS);
    let (intents, payable) = builder.queue(&specs::INTENTS);
    let events = builder.broadcast(&specs::EVENTS);
    let reads = builder.gate(&specs::REWARD_READS, options.read_permits);
    let queues = Queues { requests, work, results, intents };
    let engine = Engine::new(options, live, builder.handle(), queues, events, reads);
    (Arc::new(engine), Receivers { asked, jobs, computed, payable })
}

/// Adds the rewarder to a node: its queues, its tasks and its metrics.
pub fn install(builder: &mut Builder, options: ServiceOptions, live: Snapshot<LiveOptions>) -> Rewarder {
    let usage = options.usage.clone();
    let workers = u16::try_from(options.compute_workers.max(1)).unwrap_or(u16::MAX);
    let (engine, Receivers { asked, jobs, computed, payable }) = make_engine(builder, options, live);
    builder.handle().metrics().register_collector(Box::new(RewarderMetrics::new(&engine)));
    let noted = Arc::downgrade(&engine);
    builder.handle().add_note(move || {
        let keeps_pots = noted.upgrade()?.counts.keeps_pots()?;
        (!keeps_pots).then(|| NODE_KEEPS_POTS.to_owned())
    });
    let compared = Arc::downgrade(&engine);
    builder.handle().add_note(move || engine::lock(&compared.upgrade()?.settled).words());

    let [scheduler, worker, writer, emitter] = [(); 4].map(|()| Arc::clone(&engine));
    builder
        .service(&specs::REWARDER)
        .task(&specs::COMPUTE_SCHEDULER, 1, move |context| {
            scheduler::compute_scheduler(context, Arc::clone(&scheduler), asked.clone())
        })
        .task(&specs::COMPUTE_WORKER, workers, move |context| {
            worker::compute_worker(context, Arc::clone(&worker), jobs.clone())
        })
        .task(&specs::ARTIFACT_WRITER, 1, move |context| {
            writer::artifact_writer(context, Arc::clone(&writer), computed.clone())
        })
        .task(&specs::INTENT_EMITTER, 1, move |context| {
            emitter::intent_emitter(context, Arc::clone(&emitter), payable.clone())
        })
        .task(&USAGE_METER, 1, move |context| usage_meter(context, usage.clone()));
    Rewarder { engine }
}

#[cfg(test)]
mod crash;
#[cfg(test)]
mod ledgers;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
