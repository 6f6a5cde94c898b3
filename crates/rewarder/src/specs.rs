//! Everything the rewarder declares: its service, tasks, channels and gate. What is not here does not exist.

use std::time::Duration;

use ron_kernel::spec::{Fate, GateSpec, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Escalation, Phase, RestartLaw};
use ron_types::limits;
use ron_types::limits::rewarder::QUEUE_CAPACITY;

use crate::usage_meter::USAGE_METER;

const OWNER: &str = "svc-rewarder";
pub(crate) const SERVICE: &str = "rewarder";
/// As for every task of the node.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Decides which requests become runs.
pub static COMPUTE_SCHEDULER: TaskSpec =
    task("compute_scheduler", "1", Phase::Intake, "one run per epoch: finds duplicates, pins inputs, makes jobs");
/// Computes runs.
pub static COMPUTE_WORKER: TaskSpec = task(
    "compute_worker",
    "rewarder.compute_workers",
    Phase::Work,
    "reads inputs, divides the pots, checks conservation; on a thread that may block",
);
/// Makes runs durable.
pub static ARTIFACT_WRITER: TaskSpec = task(
    "artifact_writer",
    "1",
    Phase::Flush,
    "recovers the seal log; writes artifacts, then the one record that seals a run; asks the release gate",
);
/// Pays.
pub static INTENT_EMITTER: TaskSpec = task(
    "intent_emitter",
    "1",
    Phase::Flush,
    "sends the payouts of sealed and released runs to the ledger, remembers how far, reconciles",
);

/// The rewarder.
pub static REWARDER: ServiceSpec = ServiceSpec {
    name: SERVICE,
    required: false,
    depends_on: &[],
    law: RestartLaw { jitter_ms: (100, 400), then: Escalation::Unready, ..RestartLaw::MACRONODE },
    tasks: &[&COMPUTE_SCHEDULER, &COMPUTE_WORKER, &ARTIFACT_WRITER, &INTENT_EMITTER, &USAGE_METER],
    does: "exact, reproducible, provable payouts of epochs",
};

const fn queue(name: &'static str, from: &'static str, to: &'static str, overflow: Overflow) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: QUEUE_CAPACITY,
        bytes_max: None,
        from,
        to,
        overflow,
        holds_up_writers: false,
        answer: "",
        on_restart: Fate::Kept,
        on_drain: Fate::Drained,
    }
}

/// Requests to compute an epoch. Their count bounds their bytes: a body has at most 1 MiB, and what a request holds on
/// to is counted.
pub static WORK_REQ: QueueSpec = QueueSpec {
    bytes_max: Some(limits::WORK_BYTES_MAX),
    holds_up_writers: true,
    answer: "HTTP 429 + Retry-After",
    ..queue("work_req", "callers", "compute_scheduler", Overflow::RejectNew)
};

/// Runs to be computed. The contract calls it `work`; the node has one queue of each name, and `work` is its own.
pub static WORK: QueueSpec = QueueSpec {
    kind: QueueKind::Mpmc,
    holds_up_writers: true,
    answer: "one retry after 50 to 150 ms, then Busy to the caller",
    on_drain: Fate::Discarded,
    ..queue("reward_work", "compute_scheduler", "compute_worker", Overflow::RetryOnce)
};

/// Runs that were computed, or why they were not.
pub static RESULTS: QueueSpec = QueueSpec {
    holds_up_writers: true,
    answer: "the worker waits; what a drain leaves is counted and computed again after the next request",
    ..queue("results", "compute_worker", "artifact_writer", Overflow::AwaitSend)
};

/// Epochs whose payouts may leave. They follow the seal, because nothing is paid that a crash could forget.
pub static INTENTS: QueueSpec = QueueSpec {
    answer: "a wake-up: one that finds the queue full is not needed, the seal log knows what is released",
    on_drain: Fate::Discarded,
    ..queue("intents", "artifact_writer, callers", "intent_emitter", Overflow::AwaitSend)
};

/// What happens to epochs, for observers.
pub static EVENTS: QueueSpec = QueueSpec {
    kind: QueueKind::Broadcast,
    capacity: limits::BUS_CAPACITY,
    answer: "loss-tolerant",
    on_drain: Fate::Discarded,
    ..queue("events", "artifact_writer, intent_emitter, callers", "observers", Overflow::DropOldest)
};

/// Every channel of the rewarder, for the documentation and the contract.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    [&WORK_REQ, &WORK, &RESULTS, &INTENTS, &EVENTS].into_iter()
}

/// Callers that read a sealed run at once.
pub static REWARD_READS: GateSpec = GateSpec {
    facet: SERVICE,
    name: "reward_reads",
    permits_per_cpu: 2,
    does: "callers that prove, explain or compare at once: each reads a sealed run on a thread that may block",
};
