//! A network of our nodes in this process: the DHT and the index of each on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use ron_kernel::{Builder, Deadline, KernelOptions, Metrics, Snapshot, clock};
use ron_lookup::{AskEnd, IpGroup};
use ron_store::wire::{AskError, Question, Reply};
use ron_store::{Bounds, ContentId, Key, PeerId, Possession, Record, Store, Subject};
use ron_transport::{NodeKey, PeerAddress};
use svc_dht::config::{LiveOptions as DhtLive, Mode};
use svc_dht::{Dht, DhtOptions, Held, Records};
use svc_index::config::Options as IndexConfig;
use svc_index::ports::Network;
use svc_index::words::{Outcome, ProviderOffer, Resolution, ResolveOptions};
use svc_index::{Index, IndexOptions, WeakIndex};
use tokio::task::JoinSet;

use super::lookups::{JOIN_WITHIN, Lookup, Plan, content, warm_up};
use super::thread::{Hindered, Hindrance, NodeThread};

/// Lookups of one node at once are few, and a hundred nodes share this process.
const RESOLVERS: usize = 64;
const CACHE_BYTES: usize = 1 << 20;
const TENANT: &str = "bench";
/// An address that every record carries.
const PROVIDER_ADDRESS: &str = "/ip4/192.0.2.17/tcp/4001";

/// The network, with records in it.
pub struct OurNetwork {
    nodes: Vec<NodeThread<OurNode>>,
    /// Nodes that a new one must know before it counts as joined.
    neighbours: usize,
}

struct OurNode {
    index: Index,
    dht: Dht,
    store: Store,
    address: PeerAddress,
}

/// What makes one node differ from another.
struct Setup {
    bootstrap: Vec<PeerAddress>,
    mode: Mode,
    beta: Option<usize>,
}

impl OurNetwork {
    /// Starts so many nodes, joins them through the first, and has records placed.
    pub async fn start(count: usize, published: u64) -> anyhow::Result<OurNetwork> {
        let neighbours = (count - 1).min(ron_types::limits::lookup::NEAREST);
        let mut nodes = vec![start(0, Setup { bootstrap: Vec::new(), mode: Mode::Server, beta: None }).await?];
        for number in 1..count {
            let bootstrap = vec![nodes[0].node.address.clone()];
            nodes.push(start(number, Setup { bootstrap, mode: Mode::Server, beta: None }).await?);
        }
        let network = OurNetwork { nodes, neighbours };
        let knows_enough = || network.nodes.iter().all(|node| node.node.dht.peers().len() >= neighbours);
        until("every node knows its neighbours", knows_enough).await?;
        network.publish(published).await?;
        Ok(network)
    }

    async fn publish(&self, count: u64) -> anyhow::Result<()> {
        for number in 0..count {
            let node = &self.nodes[number as usize % self.nodes.len()];
            let index = node.node.index.clone();
            let offer =
                ProviderOffer { peer: None, addrs: vec![PROVIDER_ADDRESS.parse()?], protocols: Vec::new(), ttl: None };
            let publishing = async move { index.publish_provider(TENANT, &content(number), offer).await };
            node.runtime().spawn(publishing).await?.map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        let copies = self.neighbours.min(ron_types::limits::dht::REPLICATION);
        let stored = || self.nodes.iter().map(|node| node.node.store.count()).sum::<usize>();
        let wanted = count as usize * copies;
        let placed = until("every record has its copies", || stored() >= wanted).await;
        placed.with_context(|| format!("{} of {wanted} copies", stored()))
    }

    /// Hinders these nodes until the result is dropped.
    pub fn hinder(&self, which: &[usize], how: Hindrance) -> Vec<Hindered> {
        which.iter().map(|number| self.nodes[*number].hinder(how)).collect()
    }

    /// A node that joins, and then looks everything up; nodes are hindered after it has joined.
    pub async fn look_up(
        &self,
        plan: &Plan,
        hedged: bool,
        which: &[usize],
        how: Option<Hindrance>,
    ) -> anyhow::Result<Vec<Lookup>> {
        let bootstrap = vec![self.nodes[0].node.address.clone()];
        let beta = (!hedged).then_some(0);
        let asker = start(self.nodes.len(), Setup { bootstrap, mode: Mode::Client, beta }).await?;
        until("the asker knows its neighbours", || asker.node.dht.peers().len() >= self.neighbours).await?;
        for wanted in warm_up() {
            let index = asker.node.index.clone();
            asker.runtime().spawn(async move { look_up(&index, wanted, false).await }).await??;
        }
        let _hindered = how.map(|how| self.hinder(which, how));
        let mut asking = JoinSet::new();
        let mut pace = tokio::time::interval(plan.every);
        for (wanted, is_published) in plan.wanted() {
            pace.tick().await;
            let index = asker.node.index.clone();
            asking.spawn_on(async move { look_up(&index, wanted, is_published).await }, asker.runtime());
        }
        let mut lookups = Vec::new();
        while let Some(ended) = asking.join_next().await {
            lookups.push(ended??);
        }
        Ok(lookups)
    }
}

async fn look_up(index: &Index, wanted: ContentId, is_published: bool) -> anyhow::Result<Lookup> {
    let began = clock::now();
    let options = ResolveOptions { fresh: true, ..ResolveOptions::default() };
    let answer = index.resolve(TENANT, Subject::Content(wanted), options).await;
    let answer: Resolution = answer.map_err(|error| anyhow::anyhow!("{error}"))?;
    let took = began.elapsed();
    let asked = || answer.course.iter().filter(|ask| ask.end != AskEnd::SkippedOpen);
    Ok(Lookup {
        is_published,
        first: (answer.outcome == Outcome::Found).then_some(took),
        end: Some(took),
        asks: asked().count(),
        hedges: asked().filter(|ask| ask.hedge).count(),
    })
}

async fn start(number: usize, setup: Setup) -> anyhow::Result<NodeThread<OurNode>> {
    NodeThread::start(format!("node-{number}"), Box::new(move |ready| Box::pin(live(setup, ready)))).await
}

/// One life of a node, as the binary puts it together.
async fn live(setup: Setup, ready: tokio::sync::oneshot::Sender<OurNode>) -> anyhow::Result<()> {
    let key = NodeKey::generate()?;
    let store = Store::in_memory(Bounds::default())?;
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let dht_live = DhtLive { bootstrap: setup.bootstrap, mode: setup.mode, ..DhtLive::default() };
    let dht_options = DhtOptions { key: key.clone(), peers_file: None, gossip: None };
    let dht = svc_dht::install(&mut builder, dht_options, Snapshot::new(dht_live));
    let options = IndexOptions {
        store: store.clone(),
        network: Some(Arc::new(DhtNetwork(dht.clone()))),
        upstreams: Vec::new(),
        key: key.clone(),
        is_amnesia: true,
        resolvers: RESOLVERS,
        cache_bytes: CACHE_BYTES,
        warmup_keys: Vec::new(),
        ingest_permits: 2,
        own_addresses: Arc::new(Vec::new),
        wall_clock: Arc::new(clock::unix_millis),
    };
    let config = IndexConfig::default();
    let config = IndexConfig { beta: setup.beta.unwrap_or(config.beta), ..config };
    let index = svc_index::install(&mut builder, options, Snapshot::new(config.live()));
    dht.serve(Arc::new(IndexRecords { index: index.downgrade(), store: store.clone() }));
    let kernel = builder.build()?;
    let reach = async {
        until("a node listens", || port_of(&dht).is_some()).await?;
        let port = port_of(&dht).context("it listens")?;
        let address = PeerAddress::new(key.node_id(), &format!("127.0.0.1:{port}"))?;
        // Whoever started it is gone if this fails.
        let _ = ready.send(OurNode { index, dht, store, address });
        Ok::<(), anyhow::Error>(())
    };
    let (report, reached) = tokio::join!(kernel.run(), reach);
    reached?;
    anyhow::bail!("it ended with code {}", report.code)
}

fn port_of(dht: &Dht) -> Option<u16> {
    let texts = dht.listen_addrs().into_iter().map(|addr| addr.to_string());
    texts.into_iter().find_map(|text| text.split_once("/tcp/")?.1.split('/').next()?.parse().ok())
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let by = Deadline::after(JOIN_WITHIN);
    while !is_so() {
        anyhow::ensure!(!by.has_passed(), "not within {JOIN_WITHIN:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The DHT as the network of the index.
struct DhtNetwork(Dht);

impl Network for DhtNetwork {
    fn nearest(&self, key: &Key, count: usize) -> Vec<PeerId> {
        self.0.nearest(key, count)
    }

    fn ask(
        &self,
        target: &PeerId,
        question: Question,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Reply, AskError>> {
        self.0.ask(target, question, budget)
    }

    fn keep(&self, record: Record) -> Result<(), ron_types::Error> {
        self.0.keep(record)
    }

    fn group(&self, peer: &PeerId) -> Option<IpGroup> {
        self.0.ip_group(peer)
    }

    fn complete(&self) -> bool {
        self.0.complete()
    }
}

/// The index as the keeper of the DHT's records.
struct IndexRecords {
    index: WeakIndex,
    store: Store,
}

impl Records for IndexRecords {
    fn answer(&self, question: &Question, now_ms: u64) -> Reply {
        self.index.upgrade().map_or_else(Reply::default, |index| index.answer(question, now_ms))
    }

    fn possession(&self, digest: &[u8; 32], draw: u64) -> Option<Possession> {
        self.index.upgrade()?.possession(digest, draw)
    }

    fn offer(&self, records: Vec<Record>) -> usize {
        self.index.upgrade().and_then(|index| index.offer(records).ok()).unwrap_or(0)
    }

    fn held(&self, from: &Key, to: &Key, max: usize) -> Vec<Held> {
        let records = self.store.records_in(*from, *to, max, clock::unix_millis()).unwrap_or_default();
        records.into_iter().map(|record| Held { record, is_own: false }).collect()
    }
}
