//! Everything the overlay declares: its service, tasks and channels. What is not here does not exist.

use std::time::Duration;

use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Escalation, Phase, RestartLaw};
use ron_types::limits::overlay as limits;

const OWNER: &str = "svc-overlay";
pub(crate) const SERVICE: &str = "overlay";
/// As for every task of the node.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Decides which nodes may have a session.
pub static LISTENER: TaskSpec = task(
    "listener",
    "1",
    Phase::Intake,
    "takes sessions of other nodes from the framed plane, after their handshake; refuses whom the node does not accept",
);
/// Keeps the connections.
pub static CONN_SUPERVISOR: TaskSpec = task(
    "conn_supervisor",
    "1, a child per connection",
    Phase::Work,
    "dials wanted peers, again and again; splits each session into one reader and one writer and ends both together",
);
/// Reads what peers send.
pub static READER: TaskSpec = task(
    "reader",
    "1, a child per connection",
    Phase::Work,
    "reads the frames of each connection in batches and gives them to the engine of their lane",
);
/// Writes what peers are sent.
pub static WRITER: TaskSpec = task(
    "writer",
    "1, exactly one child per connection",
    Phase::Flush,
    "writes the outbox of each connection, control first, then lanes in turn; the last to stop, so that nothing queued is lost",
);
/// Runs the protocol.
pub static GOSSIP_ENGINE: TaskSpec = task(
    "gossip_engine",
    "4",
    Phase::Work,
    "owns the lanes that fall to it: order, relay, repair, fan-out and burst budgets; delivers to subscribers",
);

/// The overlay.
pub static OVERLAY: ServiceSpec = ServiceSpec {
    name: SERVICE,
    required: false,
    depends_on: &[],
    // Fail closed: a node that cannot hold its sessions together should not go on half deaf.
    law: RestartLaw { jitter_ms: (100, 2_000), cap_ms: 2_000, then: Escalation::Fatal, ..RestartLaw::MACRONODE },
    tasks: &[&LISTENER, &CONN_SUPERVISOR, &READER, &WRITER, &GOSSIP_ENGINE],
    does: "live messages between nodes, on lanes",
};

const fn queue(name: &'static str, from: &'static str, to: &'static str, overflow: Overflow) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: limits::QUEUE_CAPACITY,
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

/// Sessions of other nodes, from the framed plane.
pub static PEER_SESSIONS: QueueSpec = QueueSpec {
    capacity: limits::SESSIONS_WAITING_MAX,
    answer: "GOAWAY 429; the other node dials again",
    ..queue("peer_sessions", "transport_ingress", "listener", Overflow::RejectNew)
};
/// Sessions that the listener took.
pub static INGRESS_WORK: QueueSpec = QueueSpec {
    answer: "GOAWAY 429; the other node dials again",
    ..queue("ingress_work_tx", "listener", "conn_supervisor", Overflow::RejectNew)
};
/// Reading halves on their way to the task that runs them.
pub static READ_HALVES: QueueSpec = QueueSpec {
    capacity: limits::SESSIONS_WAITING_MAX,
    answer: "the connection ends",
    ..queue("read_halves", "conn_supervisor", "reader", Overflow::AwaitSend)
};
/// Writing halves on their way to the task that runs them.
pub static WRITE_HALVES: QueueSpec = QueueSpec {
    capacity: limits::SESSIONS_WAITING_MAX,
    answer: "the connection ends",
    on_drain: Fate::Drained,
    ..queue("write_halves", "conn_supervisor", "writer", Overflow::AwaitSend)
};

const fn ingress(name: &'static str) -> QueueSpec {
    QueueSpec {
        bytes_max: Some(limits::INGRESS_BYTES_MAX),
        holds_up_writers: true,
        answer: "Busy to a publisher; a reader waits a moment and tries again, and so slows its peer down",
        ..queue(name, "reader, callers", "gossip_engine", Overflow::RejectNew)
    }
}

const fn orders(name: &'static str) -> QueueSpec {
    QueueSpec {
        answer: "Backpressure",
        ..queue(name, "conn_supervisor, callers", "gossip_engine", Overflow::AwaitSend)
    }
}

/// Batches of frames and publications, for each engine.
pub static GOSSIP_INGRESS: [QueueSpec; limits::ENGINES] = [
    ingress("gossip_ingress_tx"),
    ingress("gossip_ingress_tx[1]"),
    ingress("gossip_ingress_tx[2]"),
    ingress("gossip_ingress_tx[3]"),
];
/// Peers that come and go, subscriptions and questions, for each engine: few, and none may be lost.
pub static ENGINE_ORDERS: [QueueSpec; limits::ENGINES] =
    [orders("engine_orders"), orders("engine_orders[1]"), orders("engine_orders[2]"), orders("engine_orders[3]")];

/// Frames on their way to a peer: one outbox for each connection, shown as the fullest of them.
pub static GOSSIP_EGRESS: QueueSpec = QueueSpec {
    bytes_max: Some(limits::EGRESS_BYTES_MAX),
    answer: "Busy for that peer alone, or the oldest of the lane makes room, as the lane's policy says",
    on_drain: Fate::Drained,
    ..queue("gossip_egress_tx", "gossip_engine", "writer", Overflow::PermitThenSend)
};
/// What happens to peers, for whoever watches.
pub static EVENTS: QueueSpec = QueueSpec {
    kind: QueueKind::Broadcast,
    capacity: limits::EVENTS_CAPACITY,
    answer: "a watcher that falls behind is told how many it missed",
    ..queue("overlay_events", "conn_supervisor, listener", "observers", Overflow::DropOldest)
};

/// Settings that changed: the snapshot's own watch.
pub static CONFIG_UPDATES: QueueSpec = QueueSpec {
    kind: QueueKind::Watch,
    capacity: limits::CONFIG_UPDATES_CAPACITY,
    answer: "the newest settings are what counts",
    ..queue("config_updates_rx", "config_watcher", "conn_supervisor", Overflow::LastWriteWins)
};

/// Every queue and broadcast of the overlay.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    let single = [&PEER_SESSIONS, &INGRESS_WORK, &READ_HALVES, &WRITE_HALVES, &GOSSIP_EGRESS, &EVENTS, &CONFIG_UPDATES];
    single.into_iter().chain(&GOSSIP_INGRESS).chain(&ENGINE_ORDERS)
}
