//! Everything the index declares: its service, tasks, channels and gate. What is not here does not exist.

use std::time::Duration;

use ron_kernel::spec::{Fate, GateSpec, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_policy::{Escalation, Phase, RestartLaw};
use ron_types::limits;

const OWNER: &str = "svc-index";
pub(crate) const SERVICE: &str = "index";
/// As for every task of the node.
const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(5));

const fn task(name: &'static str, count: &'static str, phase: Phase, does: &'static str) -> TaskSpec {
    TaskSpec { owner: OWNER, name, count, phase, heartbeat: HEARTBEAT, does }
}

/// Answers what neither the cache nor the store knows.
pub static RESOLVER: TaskSpec = task(
    "resolver",
    "index.resolvers",
    Phase::Work,
    "asks alpha targets, then beta more, takes the first answer that holds, ranks it and caches it",
);
/// Keeps the cache and the store free of what is over.
pub static CACHE_JANITOR: TaskSpec = task(
    "cache_janitor",
    "1",
    Phase::Work,
    "evicts answers and records whose time is over; in amnesia mode forgets every answer after each purge interval",
);
/// Keeps the breakers.
pub static BREAKER_JANITOR: TaskSpec = task(
    "breaker_janitor",
    "1",
    Phase::Work,
    "rolls the error windows of targets, ends cool-downs, tells observers which targets are left out",
);
/// Looks things up before somebody asks.
pub static WARMUP_PREFETCHER: TaskSpec = task(
    "warmup_prefetcher",
    "1",
    Phase::Intake,
    "resolves the configured keys at the start, then what callers had answered from the store or want looked up anew; \
     asks providers of what was found for a chunk of it, if the configuration says so",
);
/// Keeps alive what the node itself says.
pub static RENEWER: TaskSpec = task(
    "renewer",
    "1",
    Phase::Intake,
    "signs what this node provides and its own names anew before their records end, a few each second, until withdrawn",
);
/// Writes to the store.
pub static INGESTER: TaskSpec = task(
    "index_ingester",
    "1",
    Phase::Flush,
    "the only writer of the store: takes updates in batches, tells watchers, hands records to the network to keep",
);

/// The index.
pub static INDEX: ServiceSpec = ServiceSpec {
    name: SERVICE,
    required: false,
    depends_on: &["dht"],
    law: RestartLaw { jitter_ms: (100, 500), cap_ms: 5_000, then: Escalation::Degraded, ..RestartLaw::MACRONODE },
    tasks: &[&RESOLVER, &CACHE_JANITOR, &BREAKER_JANITOR, &WARMUP_PREFETCHER, &RENEWER, &INGESTER],
    does: "a name or a hash to a manifest and ranked providers, by hedged lookups",
};

const fn queue(name: &'static str, from: &'static str, to: &'static str, overflow: Overflow) -> QueueSpec {
    QueueSpec {
        owner: OWNER,
        service: SERVICE,
        name,
        kind: QueueKind::Mpsc,
        capacity: limits::index::WORK_CAPACITY,
        bytes_max: None,
        from,
        to,
        overflow,
        holds_up_writers: false,
        answer: "Busy",
        on_restart: Fate::Kept,
        on_drain: Fate::Drained,
    }
}

/// Lookups that wait for a resolver: one for each key, however many ask for it.
pub static WORK: QueueSpec = QueueSpec {
    kind: QueueKind::Mpmc,
    answer: "Busy: HTTP 429",
    ..queue("work_tx", "callers, warmup_prefetcher", "resolver", Overflow::RejectNew)
};

/// Updates that wait for the store. The contract names it as the node's own.
pub static INGEST: QueueSpec = QueueSpec {
    owner: "macronode",
    capacity: limits::INDEX_INGEST_CAPACITY,
    holds_up_writers: true,
    answer: "newest update of a key wins",
    ..queue("index_ingest", "callers, resolver, renewer, dht", "index_ingester", Overflow::Coalesce)
};

/// Subjects to be looked up again when there is time.
pub static REFRESH: QueueSpec = QueueSpec {
    capacity: limits::index::REFRESH_CAPACITY,
    answer: "it is looked up again when somebody asks next",
    on_drain: Fate::Discarded,
    ..queue("index_refresh", "callers, resolver", "warmup_prefetcher", Overflow::Coalesce)
};

/// What happens in the index, for observers. The contract calls it `events_tx`; the node has one queue of each name,
/// and `events_tx` is the mailbox's.
pub static EVENTS: QueueSpec = QueueSpec {
    kind: QueueKind::Broadcast,
    capacity: limits::index::EVENTS_CAPACITY,
    answer: "an observer that falls behind is told how many it missed",
    on_drain: Fate::Discarded,
    ..queue("index_events", "resolver, cache_janitor, breaker_janitor, callers", "observers", Overflow::DropOldest)
};

/// Changes that wait for one watcher: an inbox for each, shown as the fullest of them.
pub static WATCHER_INBOX: QueueSpec = QueueSpec {
    capacity: limits::index::WATCHER_ITEMS_MAX,
    answer: "a watcher that falls behind is told how many it missed",
    on_drain: Fate::Discarded,
    ..queue("index_watchers", "index_ingester", "watchers", Overflow::DropOldest)
};

/// Settings that changed: the snapshot's own watch.
pub static CONFIG_WATCH: QueueSpec = QueueSpec {
    kind: QueueKind::Watch,
    capacity: 1,
    answer: "the newest settings are what counts",
    on_drain: Fate::Discarded,
    ..queue("cfg_watch", "config_watcher", "resolver", Overflow::LastWriteWins)
};

/// Every channel of the index, for the documentation and the contract.
pub fn queues() -> impl Iterator<Item = &'static QueueSpec> {
    [&WORK, &INGEST, &REFRESH, &EVENTS, &WATCHER_INBOX, &CONFIG_WATCH].into_iter()
}

/// Publications checked at once.
pub static INGEST_GATE: GateSpec = GateSpec {
    facet: SERVICE,
    name: "index_ingest",
    permits_per_cpu: 1,
    does: "publications whose signature or digest is checked at once, from callers and from peers",
};
