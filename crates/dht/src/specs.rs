//! Everything the DHT declares: its service, tasks and queues. What is not here does not exist.

use std::time::Duration;

use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Phase, RestartLaw};
use ron_types::limits::dht as limits;

const OWNER: &str = "svc-dht";
pub(crate) const SERVICE: &str = "dht";
/// As for every task of the node.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));
/// Instances of the task that answers: reading records waits for the disk.
pub(crate) const ANSWERERS: u16 = 2;

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Owns the network.
pub static SWARM: TaskSpec = task(
    "swarm",
    "1",
    Phase::Work,
    "owns the libp2p network: connections, who may have one, questions on their way out and in; it never waits",
);
/// Answers other nodes.
pub static ANSWERER: TaskSpec = task(
    "answerer",
    "2",
    Phase::Work,
    "answers questions of other nodes from the records, and checks the signatures of what they offer",
);
/// Places records.
pub static PLACER: TaskSpec = task(
    "placer",
    "1, a child per offer",
    Phase::Work,
    "gives records to the nodes nearest to their keys, many records in one offer",
);
/// Keeps records near their keys while nodes come and go.
pub static REPUBLISHER: TaskSpec = task(
    "republisher",
    "1",
    Phase::Work,
    "walks the held records by region and has those placed whose nearest nodes have changed",
);
/// Knows the other nodes.
pub static MEMBERSHIP: TaskSpec = task(
    "membership",
    "1",
    Phase::Work,
    "dials the bootstrap list, tells and hears on the overlay where nodes are, writes the known nodes down",
);

/// The DHT.
pub static DHT: ServiceSpec = ServiceSpec {
    name: SERVICE,
    // What the node holds itself can be resolved without it.
    required: false,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&SWARM, &ANSWERER, &PLACER, &REPUBLISHER, &MEMBERSHIP],
    does: "keeps signed records near their keys, on the nodes of a private network",
};

const fn queue(name: &'static str, from: &'static str, to: &'static str, overflow: Overflow) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: limits::ORDERS_CAPACITY,
        bytes_max: None,
        from,
        to,
        overflow,
        holds_up_writers: false,
        answer: "Busy",
        on_restart: Fate::Kept,
        on_drain: Fate::Discarded,
    }
}

/// Questions, offers and dials of this node.
pub static ORDERS: QueueSpec = QueueSpec {
    answer: "Busy; a lookup asks another node",
    ..queue("dht_orders", "callers, placer, membership", "swarm", Overflow::RejectNew)
};
/// Questions and offers of other nodes.
pub static ASKED: QueueSpec = QueueSpec {
    kind: QueueKind::Mpmc,
    capacity: limits::ASKED_CAPACITY,
    bytes_max: Some(limits::ASKED_BYTES_MAX),
    answer: "the stream is closed without an answer; the other node asks elsewhere",
    on_restart: Fate::Kept,
    ..queue("dht_asked", "swarm", "answerer", Overflow::RejectNew)
};
/// Answers for other nodes.
pub static ANSWERS: QueueSpec = QueueSpec {
    capacity: limits::ANSWERS_CAPACITY,
    bytes_max: Some(limits::ANSWERS_BYTES_MAX),
    answer: "the answer is given up; the other node asks elsewhere",
    ..queue("dht_answers", "answerer", "swarm", Overflow::AwaitSend)
};
/// Records on their way to the nodes nearest to their keys.
pub static KEEP: QueueSpec = QueueSpec {
    capacity: limits::KEEP_CAPACITY,
    bytes_max: Some(limits::KEEP_BYTES_MAX),
    answer: "Busy; the next republish places the record",
    ..queue("dht_keep", "callers, republisher", "placer", Overflow::RejectNew)
};
/// What happens to peers, for whoever watches.
pub static EVENTS: QueueSpec = QueueSpec {
    kind: QueueKind::Broadcast,
    answer: "a watcher that falls behind is told how many it missed",
    ..queue("dht_events", "swarm", "observers", Overflow::DropOldest)
};

/// Every queue and broadcast of the DHT.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    [&ORDERS, &ASKED, &ANSWERS, &KEEP, &EVENTS].into_iter()
}
