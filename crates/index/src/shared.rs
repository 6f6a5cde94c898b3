//! What the tasks of the index and its handle share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ron_kernel::bus::Broadcast;
use ron_kernel::coalesce::Coalescing;
use ron_kernel::gate::Gate;
use ron_kernel::{KernelHandle, Snapshot, clock};
use ron_store::{ContentId, Multiaddr, PeerId, PublicKey, Signer as _, Store, StoreError};
use ron_transport::NodeKey;
use ron_types::{Error, Kind};
use tokio::time::Instant;

use crate::admin::UnderWay;
use crate::admission::Addresses;
use crate::cache::Answers;
use crate::capacity::LoadWindow;
use crate::config::LiveOptions;
use crate::flights::Flights;
use crate::ingest::Update;
use crate::judge::Ranking;
use crate::metrics::Counts;
use crate::ports::{Network, Question, Upstream, UpstreamQuestion};
use crate::possession::Possessions;
use crate::prefetch::Refresh;
use crate::recent::Recent;
use crate::resolver::Job;
use crate::targets::Targets;
use crate::watchers::Watchers;
use crate::words::IndexEvent;
use crate::work::WorkQueue;

/// Multiaddresses at which the node itself is reached, as they are now.
pub type OwnAddresses = Arc<dyn Fn() -> Vec<Multiaddr> + Send + Sync>;

/// Reads the wall clock. A parameter, so that the days that records last pass in a test.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What is fixed while the node runs.
pub struct IndexOptions {
    /// Records, documents and pins.
    pub store: Store,
    /// The network of peers; none where the node has none.
    pub network: Option<Arc<dyn Network>>,
    /// Routers asked beside the peers.
    pub upstreams: Vec<Arc<dyn Upstream>>,
    /// Identity of the node, which signs what it publishes.
    pub key: NodeKey,
    /// Where the node itself is reached, as it is now: what it provides is to be had there.
    pub own_addresses: OwnAddresses,
    /// Wall-clock time in Unix milliseconds, which records are dated with.
    pub wall_clock: WallClock,
    /// Whether nothing is kept on disk.
    pub is_amnesia: bool,
    /// Lookups under way at once.
    pub resolvers: usize,
    /// Memory for answers.
    pub cache_bytes: usize,
    /// Names and content looked up at the start; what cannot be read is told and left out.
    pub warmup_keys: Vec<String>,
    /// Permits of the gate `index_ingest`.
    pub ingest_permits: usize,
}

pub(crate) struct Shared {
    pub options: IndexOptions,
    pub live: Snapshot<LiveOptions>,
    pub kernel: KernelHandle,
    pub counts: Counts,
    pub cache: Answers,
    pub flights: Arc<Flights>,
    pub targets: Targets,
    /// Lookups that wait for a resolver.
    pub work: Arc<WorkQueue<Job>>,
    pub ingest: Coalescing<Update>,
    pub refresh: Coalescing<Refresh>,
    pub gate: Gate,
    pub events: Broadcast<IndexEvent>,
    pub watchers: Arc<Watchers>,
    pub recent: Recent,
    pub load: LoadWindow,
    pub addresses: Arc<Addresses>,
    /// Requests with an idempotency key that are being done.
    pub under_way: UnderWay,
    /// What probes of providers came to.
    pub possessions: Possessions,
    /// Last sequence number that this node signed something with.
    pub sequence: AtomicU64,
    /// Draws for what needs no secret: jitter, and the order of retries.
    pub seed: AtomicU64,
}

impl Shared {
    /// Key of this node.
    pub fn node_key(&self) -> PublicKey {
        self.options.key.public_key()
    }

    /// Peer id of this node.
    pub fn node_peer(&self) -> PeerId {
        self.node_key().peer_id()
    }

    /// Milliseconds of the clock that lookups go by.
    pub fn now_ms(&self) -> u64 {
        self.kernel.now_ms()
    }

    /// What the order of providers depends on, as it is now.
    pub fn ranking(&self) -> Ranking<'_> {
        Ranking { targets: &self.targets, possessions: &self.possessions, region: self.region() }
    }

    /// Region of this node; none if nobody said.
    pub fn region(&self) -> Option<Arc<str>> {
        self.live.get().value.region.clone()
    }

    /// Wall-clock time, which records are dated with.
    pub fn unix_ms(&self) -> u64 {
        (self.options.wall_clock)()
    }

    /// The instant of a time of [`Shared::now_ms`].
    pub fn instant_of(&self, at_ms: u64) -> Instant {
        clock::now() + Duration::from_millis(at_ms.saturating_sub(self.now_ms()))
    }

    /// What routers of other networks can be asked instead; none if they cannot answer it.
    pub fn upstream_question(&self, question: &Question, content: Option<ContentId>) -> Option<UpstreamQuestion> {
        match question {
            Question::Providers(_) => content.map(UpstreamQuestion::Providers),
            Question::Ipns(name) => Some(UpstreamQuestion::Ipns(*name)),
            Question::Name { .. } | Question::Peer(_) => None,
        }
    }

    /// A number that differs each time.
    pub fn draw(&self) -> u64 {
        self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    /// A sequence number above all that this node used: the time, so that a node that lost its store goes on above.
    pub fn next_sequence(&self, known: u64) -> u64 {
        let at_least = self.unix_ms().max(known.saturating_add(1));
        let next = |last: u64| Some(at_least.max(last.saturating_add(1)));
        let last = self.sequence.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_default();
        at_least.max(last.saturating_add(1))
    }

    /// Reads the store: at once where it is memory, else on a thread that may block.
    pub async fn read<T, F>(&self, read: F) -> Result<T, Error>
    where
        F: FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        if self.options.is_amnesia {
            return read(&self.options.store).map_err(|error| self.store_failed(&error));
        }
        self.blocking(read).await
    }

    /// Works with the store on a thread that may block.
    pub async fn blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let store = self.options.store.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(answer) => answer.map_err(|error| self.store_failed(&error)),
            Err(_) => Err(Error::canceled("the node stopped before its store answered")),
        }
    }

    /// The error that callers see when the store fails; counted and told.
    pub fn store_failed(&self, error: &StoreError) -> Error {
        self.kernel.metrics().io_errors.at("index_store").inc();
        tracing::error!(%error, "the store of the index fails");
        Error::new(Kind::Degraded, "the store of the index fails; its log says why")
    }
}
