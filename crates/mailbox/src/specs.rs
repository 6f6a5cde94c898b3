//! Everything the mailbox declares: its service, tasks, channels and gate. What is not here does not exist.

use std::time::Duration;

use ron_kernel::spec::{Fate, GateSpec, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Phase, RestartLaw};
use ron_types::limits;
use ron_types::limits::mailbox::{SHARD_BYTES_MAX, SHARD_CAPACITY, SHARDS_MAX};

const OWNER: &str = "svc-mailbox";
pub(crate) const SERVICE: &str = "mailbox";
/// As for every task of the node.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Opens the log, keeps its writer, makes room in it, and says so when it fails.
pub static LOG_KEEPER: TaskSpec = task(
    "log_keeper",
    "1",
    Phase::Flush,
    "recovers the log, owns its writer thread, copies stragglers forward, scrubs; a failed disk ends the process",
);
/// Does at a shard what its callers did not do themselves.
pub static SHARD_WORKER: TaskSpec = task(
    "shard_worker",
    "1 per shard",
    Phase::Work,
    "runs the turns of a shard that callers do not run themselves: jobs they had to queue, what is due; sends replies \
     once their records are durable",
);
/// Wakes shards when something is due.
pub static VISIBILITY_SCANNER: TaskSpec = task(
    "visibility_scanner",
    "1",
    Phase::Work,
    "wakes at the nearest deadline, 10 to 500 ms after its last look, jittered; requeues what has timed out",
);
/// Moves dead letters back.
pub static DLQ_REPROCESSOR: TaskSpec = task(
    "dlq_reprocessor",
    "0-1",
    Phase::Work,
    "carries out moves of dead letters: filter, limit, rate, pause, progress",
);
/// Changes how many shards own partitions.
pub static REBALANCER: TaskSpec =
    task("rebalancer", "0-1", Phase::Work, "on a change of shard count: drain, move, rebind, without loss");

/// The mailbox.
pub static MAILBOX: ServiceSpec = ServiceSpec {
    name: SERVICE,
    required: true,
    depends_on: &[],
    law: RestartLaw { jitter_ms: (100, 500), ..RestartLaw::MACRONODE },
    tasks: &[&LOG_KEEPER, &SHARD_WORKER, &VISIBILITY_SCANNER, &DLQ_REPROCESSOR, &REBALANCER],
    does: "a durable at-least-once queue",
};

const fn work(name: &'static str) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: SHARD_CAPACITY,
        bytes_max: Some(SHARD_BYTES_MAX),
        from: "callers",
        to: "shard_worker",
        overflow: Overflow::RejectNew,
        holds_up_writers: true,
        answer: "HTTP 429 + Retry-After",
        on_restart: Fate::Kept,
        on_drain: Fate::Drained,
    }
}

const fn requeue(name: &'static str) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: requeue_capacity(SHARD_CAPACITY),
        bytes_max: None,
        from: "visibility_scanner, shard_worker",
        to: "shard_worker",
        overflow: Overflow::RetryBackoff,
        holds_up_writers: false,
        answer: "exponential retry",
        on_restart: Fate::Kept,
        on_drain: Fate::Discarded,
    }
}

/// Wake-ups a shard's queue holds: a quarter of its jobs, at most 512.
pub const fn requeue_capacity(shard_capacity: usize) -> usize {
    let quarter = shard_capacity / 4;
    if quarter > 512 {
        512
    } else if quarter == 0 {
        1
    } else {
        quarter
    }
}

/// Jobs of each shard.
pub static WORK: [QueueSpec; SHARDS_MAX] = [
    work("work_tx[0]"),
    work("work_tx[1]"),
    work("work_tx[2]"),
    work("work_tx[3]"),
    work("work_tx[4]"),
    work("work_tx[5]"),
    work("work_tx[6]"),
    work("work_tx[7]"),
];

/// Wake-ups of each shard.
pub static REQUEUE: [QueueSpec; SHARDS_MAX] = [
    requeue("requeue_tx[0]"),
    requeue("requeue_tx[1]"),
    requeue("requeue_tx[2]"),
    requeue("requeue_tx[3]"),
    requeue("requeue_tx[4]"),
    requeue("requeue_tx[5]"),
    requeue("requeue_tx[6]"),
    requeue("requeue_tx[7]"),
];

/// Names of the shards, as metrics label them.
pub static SHARD_NAMES: [&str; SHARDS_MAX] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// Orders that the reprocessor has not taken in hand yet.
pub const REPROCESS_CAPACITY: usize = 256;

/// Orders to move dead letters, on their way to the task that carries them out.
pub static REPROCESS: QueueSpec = QueueSpec {
    owner: OWNER,
    service: SERVICE,
    name: "reproc_tx",
    kind: QueueKind::Mpsc,
    capacity: REPROCESS_CAPACITY,
    bytes_max: None,
    from: "callers",
    to: "dlq_reprocessor",
    overflow: Overflow::RejectNew,
    holds_up_writers: false,
    answer: "Busy, operator sees reproc_queue_full",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};

/// What happens to messages, for observers.
pub static EVENTS: QueueSpec = QueueSpec {
    owner: OWNER,
    service: SERVICE,
    name: "events_tx",
    kind: QueueKind::Broadcast,
    capacity: limits::BUS_CAPACITY,
    bytes_max: None,
    from: "shard_worker, log_keeper, rebalancer",
    to: "observers",
    overflow: Overflow::DropOldest,
    holds_up_writers: false,
    answer: "loss-tolerant",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};

/// Every channel of the mailbox, for the documentation and the contract.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    WORK.iter().chain(&REQUEUE).chain([&REPROCESS, &EVENTS])
}

/// Callers that use a core in the mailbox at once.
pub static MAILBOX_OPS: GateSpec = GateSpec {
    facet: SERVICE,
    name: "mailbox_ops",
    permits_per_cpu: 4,
    does: "callers that use a core in the mailbox at once: admission, encoding, their own turn at a shard; not held \
           while they wait for the disk, a message or a queue; the mailbox's own tasks need none",
};
