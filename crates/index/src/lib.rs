//! The index: a name or a hash to a manifest and ranked providers, by hedged lookups.
//!
//! In order of flow: a question finds its answer in the cache, or the first of those who ask the same leads: it reads
//! the store, and where that knows nothing queues one lookup. A resolver drives the lookup ([`ron_lookup::Lookup`]
//! decides, without I/O) over the [`ports`], verifies what comes, ranks and caches it, and all who wait get it. What is
//! published is checked under a gate, coalesced, and written in batches by one task. What the node itself provides or
//! names is signed anew before it ends.

mod admin;
mod admission;
mod cache;
pub mod capabilities;
mod capacity;
pub mod config;
mod driver;
mod find;
mod flights;
mod handle;
mod ingest;
mod janitors;
mod judge;
mod metrics;
pub mod ports;
mod possession;
mod prefetch;
mod publish;
mod query;
mod recent;
mod renewal;
mod resolver;
mod shared;
pub mod specs;
mod stream;
mod targets;
mod watchers;
pub mod words;
mod work;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ron_kernel::{Builder, Snapshot};
use ron_store::Signer as _;

pub use admission::QuestionSlot;
pub use handle::{Index, WeakIndex};
pub use metrics::METRICS;
pub use shared::{IndexOptions, OwnAddresses, WallClock};
pub use stream::ProviderStream;
pub use watchers::Watch;

use crate::config::LiveOptions;
use crate::metrics::IndexMetrics;
use crate::shared::Shared;

/// Adds the index to a node: its queues, its gate, its tasks and its metrics.
pub fn install(builder: &mut Builder, options: IndexOptions, live: Snapshot<LiveOptions>) -> Index {
    let resolvers = u16::try_from(options.resolvers.max(1)).unwrap_or(u16::MAX);
    let shared = make(builder, options, live);
    builder.handle().metrics().register_collector(Box::new(IndexMetrics { shared: Arc::downgrade(&shared) }));
    let [resolver, cache, breaker, prefetch, renewer, ingester] = [(); 6].map(|()| Arc::clone(&shared));
    builder
        .service(&specs::INDEX)
        .task(&specs::RESOLVER, resolvers, move |context| resolver::resolver(context, Arc::clone(&resolver)))
        .task(&specs::CACHE_JANITOR, 1, move |context| janitors::cache_janitor(context, Arc::clone(&cache)))
        .task(&specs::BREAKER_JANITOR, 1, move |context| janitors::breaker_janitor(context, Arc::clone(&breaker)))
        .task(&specs::WARMUP_PREFETCHER, 1, move |context| prefetch::warmup_prefetcher(context, Arc::clone(&prefetch)))
        .task(&specs::RENEWER, 1, move |context| renewal::renewer(context, Arc::clone(&renewer)))
        .task(&specs::INGESTER, 1, move |context| ingest::index_ingester(context, Arc::clone(&ingester)));
    Index { shared }
}

/// What tasks and handle share.
fn make(builder: &mut Builder, options: IndexOptions, live: Snapshot<LiveOptions>) -> Arc<Shared> {
    let busy = builder.handle().metrics().busy_rejections.at(specs::WORK.name);
    let work = work::WorkQueue::new(specs::WORK.name, specs::WORK.capacity, options.resolvers.max(1), busy);
    let waiting = Arc::clone(&work);
    builder.shown(&specs::WORK, move || waiting.len());
    let kernel = builder.handle();
    let ingest = builder.coalescing(&specs::INGEST, kernel.metrics().queue_dropped.at(specs::INGEST.name));
    let refresh = builder.coalescing(&specs::REFRESH, kernel.metrics().queue_dropped.at(specs::REFRESH.name));
    let events = builder.broadcast(&specs::EVENTS);
    let gate = builder.gate(&specs::INGEST_GATE, options.ingest_permits);
    let watchers: Arc<watchers::Watchers> = Arc::default();
    let fullest = Arc::clone(&watchers);
    builder.shown(&specs::WATCHER_INBOX, move || fullest.deepest());
    builder.shown(&specs::CONFIG_WATCH, || 0);
    options.store.set_owner(options.key.public_key());
    // A fresh state is seeded by the system, which is random enough for jitter.
    let seed = RandomState::new().hash_one(0);
    let shared = Shared {
        cache: cache::Answers::new(options.cache_bytes),
        targets: targets::Targets::new(live.get().value.breaker, seed),
        options,
        live,
        kernel,
        counts: metrics::Counts::new(),
        flights: Arc::default(),
        work,
        ingest,
        refresh,
        gate,
        events,
        watchers,
        recent: recent::Recent::default(),
        load: capacity::LoadWindow::new(),
        addresses: admission::Addresses::new(),
        under_way: admin::UnderWay::default(),
        possessions: possession::Possessions::default(),
        sequence: AtomicU64::new(0),
        seed: AtomicU64::new(seed),
    };
    Arc::new(shared)
}
