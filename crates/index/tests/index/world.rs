//! A node with nothing but the index, and a scripted network around it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::{Builder, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot, clock};
use ron_policy::NodeState;
use ron_store::{
    Bounds, ContentId, Key, Multiaddr, NameRecord, PeerId, Possession, ProviderFields, ProviderRecord, Record, Store,
    Subject,
};
use ron_transport::NodeKey;
use ron_types::Error;
use svc_index::config::{LiveOptions, Options};
use svc_index::ports::{AskError, Network, Question, Reply, Upstream, UpstreamQuestion};
use svc_index::words::{Resolution, ResolveOptions};
use svc_index::{Index, IndexOptions, WallClock};

pub const HOUR_MS: u64 = 3_600_000;
pub const TENANT: &str = "tester";
/// Where the node of a test says to be reached.
pub const OWN_ADDR: &str = "/ip4/192.0.2.9/tcp/4001";

/// How a peer behaves.
#[derive(Clone)]
pub enum Behaviour {
    /// It answers after this time with these records and closer peers.
    Answers(Duration, Vec<Record>, Vec<PeerId>),
    /// It never answers.
    Silent,
    /// It fails after this time.
    Fails(Duration, AskError),
}

/// A network that does as it is told.
#[derive(Default)]
pub struct Script {
    peers: Mutex<Vec<PeerId>>,
    behaviours: Mutex<HashMap<PeerId, Behaviour>>,
    asked: Mutex<Vec<(PeerId, Question)>>,
    kept: Mutex<Vec<Record>>,
    /// What peers show of content when they are asked for proof.
    documents: Mutex<HashMap<PeerId, Vec<u8>>>,
    proofs_asked: AtomicUsize,
    /// Whether nobody takes records.
    pub refuses: AtomicBool,
    /// Questions that were neither answered nor dropped.
    open: Arc<AtomicUsize>,
    is_complete: bool,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Script {
    pub fn peer(&self, number: u8, behaviour: Behaviour) -> PeerId {
        let peer = PeerId::of_ed25519(&[number; 32]);
        lock(&self.peers).push(peer);
        self.set(peer, behaviour);
        peer
    }

    /// A peer for each behaviour, the nearest to the content first: that is the order in which a lookup asks.
    pub fn nearest_first(&self, content: ContentId, behaviours: Vec<Behaviour>) -> Vec<PeerId> {
        let mut peers: Vec<PeerId> = (1..=behaviours.len() as u8).map(|n| PeerId::of_ed25519(&[n; 32])).collect();
        peers.sort_by_key(|peer| peer.key().distance(&content.key()));
        lock(&self.peers).extend(&peers);
        for (peer, behaviour) in peers.iter().zip(behaviours) {
            self.set(*peer, behaviour);
        }
        peers
    }

    /// The peers with these numbers, all behaving alike.
    pub fn peers(&self, numbers: std::ops::RangeInclusive<u8>, behaviour: &Behaviour) {
        for number in numbers {
            self.peer(number, behaviour.clone());
        }
    }

    pub fn set(&self, peer: PeerId, behaviour: Behaviour) {
        lock(&self.behaviours).insert(peer, behaviour);
    }

    pub fn asked(&self) -> usize {
        lock(&self.asked).len()
    }

    pub fn asked_of(&self, peer: &PeerId) -> usize {
        lock(&self.asked).iter().filter(|(asked, _)| asked == peer).count()
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// From now on the peer shows chunks of these bytes as those of whatever it is asked for.
    pub fn shows(&self, peer: PeerId, bytes: Vec<u8>) {
        lock(&self.documents).insert(peer, bytes);
    }

    pub fn proofs_asked(&self) -> usize {
        self.proofs_asked.load(Ordering::SeqCst)
    }

    pub fn kept(&self) -> Vec<Record> {
        lock(&self.kept).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with a lock held")
}

impl Network for Script {
    /// Nearest first, as they were added: what is near does not matter to these tests.
    fn nearest(&self, _key: &Key, count: usize) -> Vec<PeerId> {
        lock(&self.peers).iter().take(count).copied().collect()
    }

    fn ask(
        &self,
        target: &PeerId,
        question: Question,
        _budget: Duration,
    ) -> BoxFuture<'static, Result<Reply, AskError>> {
        lock(&self.asked).push((*target, question));
        let behaviour = lock(&self.behaviours).get(target).cloned();
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.open));
        Box::pin(async move {
            let _open = open;
            match behaviour {
                Some(Behaviour::Answers(after, records, closer)) => {
                    tokio::time::sleep(after).await;
                    Ok(Reply { records, closer })
                }
                Some(Behaviour::Fails(after, error)) => {
                    tokio::time::sleep(after).await;
                    Err(error)
                }
                Some(Behaviour::Silent) => std::future::pending().await,
                None => Err(AskError::Unreachable),
            }
        })
    }

    fn prove(
        &self,
        target: &PeerId,
        _digest: [u8; 32],
        draw: u64,
        _budget: Duration,
    ) -> BoxFuture<'static, Result<Option<Possession>, AskError>> {
        self.proofs_asked.fetch_add(1, Ordering::SeqCst);
        let shown = lock(&self.documents).get(target).map(|bytes| Possession::of(bytes, draw));
        let silent = matches!(lock(&self.behaviours).get(target), Some(Behaviour::Silent));
        Box::pin(async move {
            if silent {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(shown)
        })
    }

    fn keep(&self, record: Record) -> Result<(), Error> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(Error::busy("the network"));
        }
        lock(&self.kept).push(record);
        Ok(())
    }

    fn complete(&self) -> bool {
        self.is_complete
    }
}

/// A router that answers at once with these records.
pub struct Router(pub &'static str, pub Vec<Record>);

impl Upstream for Router {
    fn name(&self) -> &str {
        self.0
    }

    fn ask(&self, _: UpstreamQuestion, _: Duration) -> BoxFuture<'static, Result<Reply, AskError>> {
        let reply = Reply { records: self.1.clone(), closer: Vec::new() };
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            Ok(reply)
        })
    }
}

/// What a test can change before the node starts.
pub struct Setup {
    pub options: Options,
    pub script: Arc<Script>,
    pub upstreams: Vec<Arc<dyn Upstream>>,
    pub resolvers: usize,
    pub key: NodeKey,
    pub store: Store,
    pub wall_clock: WallClock,
    /// Where the node is reached.
    pub addrs: Arc<Mutex<Vec<Multiaddr>>>,
    pub is_amnesia: bool,
}

/// The running node.
pub struct World {
    pub index: Index,
    pub addrs: Arc<Mutex<Vec<Multiaddr>>>,
    pub script: Arc<Script>,
    pub live: Snapshot<LiveOptions>,
    pub kernel: KernelHandle,
}

/// A wall clock that shows this time now, and then goes so many times as fast as the clock of the runtime: records last
/// for days, and the tasks of a node have something to do each second.
pub fn wall_clock(from_ms: u64, speed: u64) -> WallClock {
    let began = clock::now();
    Arc::new(move || from_ms + began.elapsed().as_millis() as u64 * speed)
}

pub fn setup() -> Setup {
    let bounds = Bounds { records_max: 100_000, ..Bounds::default() };
    Setup {
        options: Options::default(),
        script: Arc::new(Script { is_complete: true, ..Script::default() }),
        upstreams: Vec::new(),
        resolvers: 8,
        key: NodeKey::generate().expect("randomness"),
        store: Store::in_memory(bounds).expect("memory"),
        wall_clock: wall_clock(clock::unix_millis(), 1),
        addrs: Arc::new(Mutex::new(vec![OWN_ADDR.parse().expect("an address")])),
        is_amnesia: true,
    }
}

impl Setup {
    /// Runs the node beside the script, which ends with a drain.
    pub async fn run<F: Future<Output = ()>>(self, test: impl FnOnce(World) -> F) -> ExitReport {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(self.options.live());
        let options = IndexOptions {
            store: self.store,
            network: Some(Arc::clone(&self.script) as Arc<dyn Network>),
            upstreams: self.upstreams,
            key: self.key,
            own_addresses: {
                let addrs = Arc::clone(&self.addrs);
                Arc::new(move || lock(&addrs).clone())
            },
            wall_clock: self.wall_clock,
            is_amnesia: self.is_amnesia,
            resolvers: self.resolvers,
            cache_bytes: self.options.cache_bytes.bytes(),
            warmup_keys: self.options.warmup_keys,
            ingest_permits: 2,
        };
        let index = svc_index::install(&mut builder, options, live.clone());
        let kernel = builder.build().expect("a valid plan");
        let world = World { index, addrs: self.addrs, script: self.script, live, kernel: kernel.handle() };
        let handle = kernel.handle();
        let script = async {
            let mut status = handle.watch_status();
            status.wait_for(|status| status.view.state == NodeState::Ready).await.expect("the kernel lives");
            test(world).await;
            handle.drain().await.expect("the supervisor listens");
        };
        let (report, ()) = tokio::join!(kernel.run(), script);
        assert_eq!((report.code, report.aborted.len()), (0, 0), "no task is left behind");
        report
    }
}

impl World {
    pub async fn resolve(&self, content: ContentId) -> Resolution {
        self.resolve_with(content, ResolveOptions::default()).await
    }

    pub async fn resolve_with(&self, content: ContentId, options: ResolveOptions) -> Resolution {
        self.index.resolve(TENANT, Subject::Content(content), options).await.expect("an answer")
    }
}

pub fn content(number: u8) -> ContentId {
    ContentId::blake3([number; 32])
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A provider record that the provider itself signed.
pub fn provider(content: ContentId, key: &NodeKey, sequence: u64) -> ProviderRecord {
    vouched(content, PeerId::from(key.node_id()), key, sequence)
}

/// A provider record that somebody else signed.
pub fn vouched(content: ContentId, peer: PeerId, key: &NodeKey, sequence: u64) -> ProviderRecord {
    let now_ms = clock::unix_millis();
    let fields = ProviderFields {
        key: content.key(),
        peer,
        addrs: vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")],
        protocols: Vec::new(),
        region: None,
        sequence,
        issued_ms: now_ms,
        expires_ms: now_ms + HOUR_MS,
    };
    ProviderRecord::sign(fields, key).expect("within bounds")
}

pub fn name(label: &str, value: ContentId, key: &NodeKey, sequence: u64) -> NameRecord {
    let now_ms = clock::unix_millis();
    NameRecord::sign(label, value, sequence, now_ms, now_ms + HOUR_MS, key).expect("within bounds")
}

pub fn new_key() -> NodeKey {
    NodeKey::generate().expect("randomness")
}

/// It answers after this time with these records.
pub fn answers(after_ms: u64, records: Vec<Record>) -> Behaviour {
    Behaviour::Answers(ms(after_ms), records, Vec::new())
}
