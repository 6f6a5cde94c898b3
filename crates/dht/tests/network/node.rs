//! A node of the DHT on a kernel of its own, with records in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use ron_kernel::{Builder, Deadline, KernelHandle, KernelOptions, Metrics, Snapshot, clock};
use ron_store::wire::{Question, Reply};
use ron_store::{Key, PeerId, Possession, ProviderFields, ProviderRecord, Record};
use ron_transport::{NodeKey, PeerAddress};
use svc_dht::config::LiveOptions;
use svc_dht::{Announcement, Dht, DhtOptions, Gossip, Held, Records};
use tokio::sync::{oneshot, watch};

/// Records in memory, each once.
#[derive(Default)]
pub struct MemoryRecords {
    pub kept: Mutex<BTreeMap<Key, Vec<Record>>>,
    /// Documents that this node keeps, by their digest.
    pub documents: BTreeMap<[u8; 32], Vec<u8>>,
    /// Whether the records count as this node's own.
    pub are_own: bool,
}

impl MemoryRecords {
    pub fn put(&self, record: Record) {
        let mut kept = self.kept.lock().expect("not poisoned");
        let of_key = kept.entry(record.key()).or_default();
        if !of_key.contains(&record) {
            of_key.push(record);
        }
    }

    pub fn has(&self, record: &Record) -> bool {
        self.kept.lock().expect("not poisoned").get(&record.key()).is_some_and(|of_key| of_key.contains(record))
    }

    /// Keeps this node from answering until the result is dropped: connections stand, and requests wait.
    pub async fn stall(self: &Arc<Self>) -> oneshot::Sender<()> {
        let ((held, is_held), (release, released)) = (oneshot::channel(), oneshot::channel());
        let records = Arc::clone(self);
        std::thread::spawn(move || {
            let _kept = records.kept.lock().expect("not poisoned");
            held.send(()).expect("somebody waits for it");
            // Ends with an error when the other side is dropped, which is what it waits for.
            let _: Result<(), _> = released.blocking_recv();
        });
        is_held.await.expect("the thread runs");
        release
    }

    pub fn count(&self) -> usize {
        self.kept.lock().expect("not poisoned").values().map(Vec::len).sum()
    }
}

impl Records for MemoryRecords {
    fn answer(&self, question: &Question, _: u64) -> Reply {
        let kept = self.kept.lock().expect("not poisoned");
        let of_key = kept.get(&question.key()).cloned().unwrap_or_default();
        let records = of_key.into_iter().filter(|record| question.is_answered_by(record)).collect();
        Reply { records, closer: Vec::new() }
    }

    fn possession(&self, digest: &[u8; 32], draw: u64) -> Option<Possession> {
        self.documents.get(digest).map(|bytes| Possession::of(bytes, draw))
    }

    fn offer(&self, records: Vec<Record>) -> usize {
        let count = records.len();
        records.into_iter().for_each(|record| self.put(record));
        count
    }

    fn held(&self, from: &Key, to: &Key, max: usize) -> Vec<Held> {
        let kept = self.kept.lock().expect("not poisoned");
        let of_range = kept.range(*from..=*to).flat_map(|(_, records)| records.iter().cloned());
        of_range.take(max).map(|record| Held { record, is_own: self.are_own }).collect()
    }
}

/// The overlay of a test: everybody hears everything.
#[derive(Clone)]
pub struct Bus {
    said: watch::Sender<Vec<Announcement>>,
}

impl Bus {
    pub fn new() -> Self {
        Bus { said: watch::Sender::new(Vec::new()) }
    }

    /// Says this as if it came from that node.
    pub fn say(&self, origin: PeerId, content: Bytes) {
        self.said.send_modify(|said| said.push(Announcement { origin, content }));
    }
}

/// A bus, as one node uses it.
struct OnBus {
    bus: Bus,
    own: PeerId,
}

impl Gossip for OnBus {
    fn announce(&self, announcement: Bytes) {
        self.bus.say(self.own, announcement);
    }

    fn announcements(&self) -> BoxStream<'static, Announcement> {
        let heard = (self.bus.said.subscribe(), 0);
        futures_util::stream::unfold(heard, |(mut said, next)| async move {
            let announcement = said.wait_for(|said| said.len() > next).await.ok()?[next].clone();
            Some((announcement, (said, next + 1)))
        })
        .boxed()
    }
}

/// What a node of a test is made of.
#[derive(Default)]
pub struct Setup {
    pub key: Option<NodeKey>,
    pub live: LiveOptions,
    pub peers_file: Option<PathBuf>,
    pub gossip: Option<Bus>,
    pub records: MemoryRecords,
}

impl Setup {
    /// A node that joins through these.
    pub fn joining(nodes: &[&TestNode]) -> Self {
        let bootstrap = nodes.iter().map(|node| node.address()).collect();
        Setup { live: LiveOptions { bootstrap, ..LiveOptions::default() }, ..Setup::default() }
    }
}

pub struct TestNode {
    pub dht: Dht,
    pub records: Arc<MemoryRecords>,
    pub key: NodeKey,
    pub kernel: KernelHandle,
    running: tokio::task::JoinHandle<ron_kernel::ExitReport>,
}

impl TestNode {
    #[expect(clippy::disallowed_methods, reason = "a test has no kernel to run its kernel on")]
    pub async fn start(setup: Setup) -> TestNode {
        let key = setup.key.unwrap_or_else(|| NodeKey::generate().expect("randomness"));
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let own = PeerId::from(key.node_id());
        let gossip = setup.gossip.map(|bus| Arc::new(OnBus { bus, own }) as Arc<dyn Gossip>);
        let options = DhtOptions { key: key.clone(), peers_file: setup.peers_file, gossip };
        let dht = svc_dht::install(&mut builder, options, Snapshot::new(setup.live));
        let records = Arc::new(setup.records);
        dht.serve(Arc::clone(&records) as Arc<dyn Records>);
        let kernel = builder.build().expect("a valid plan");
        let handle = kernel.handle();
        let running = tokio::spawn(kernel.run());
        let node = TestNode { dht, records, key, kernel: handle, running };
        eventually(|| node.dht.listen_addrs().len(), |addrs| *addrs == 2).await;
        node
    }

    /// A node that joins through another.
    pub async fn joining(node: &TestNode) -> TestNode {
        TestNode::start(Setup::joining(&[node])).await
    }

    pub async fn stop(self) -> u8 {
        self.kernel.drain().await.expect("the supervisor listens");
        self.running.await.expect("it ends").code
    }

    /// Where the node is, as a bootstrap list has it.
    pub fn address(&self) -> PeerAddress {
        let port = self.dht.listen_addrs().iter().find_map(|addr| {
            addr.iter().find_map(|part| match part {
                Protocol::Tcp(port) => Some(port),
                _ => None,
            })
        });
        PeerAddress::new(self.key.node_id(), &format!("127.0.0.1:{}", port.expect("it listens"))).expect("an address")
    }

    pub fn peer(&self) -> PeerId {
        self.dht.peer_id()
    }

    /// Address over TCP alone.
    pub fn tcp(&self) -> Multiaddr {
        self.dht.listen_addrs().into_iter().find(|addr| addr.to_string().contains("/tcp/")).expect("it listens")
    }

    /// The value of a counter or gauge.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.kernel.metrics().render();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    pub fn refused(&self, reason: &str) -> f64 {
        self.metric(&format!("dht_refused_total{{reason=\"{reason}\"}}"))
    }

    pub async fn knows(&self, count: usize) {
        let look = || {
            let numbers = ["dht_dials_failed_total", "dht_peers_refused_total", "dht_connections"];
            (self.dht.peers().len(), numbers.map(|name| (name, self.metric(name))))
        };
        eventually(look, |(known, _)| *known == count).await;
    }

    /// Asks with more time than a loaded machine takes for an answer.
    pub async fn ask(&self, peer: &PeerId, key: Key) -> Result<Reply, svc_dht::AskError> {
        self.ask_within(peer, key, Duration::from_secs(60)).await
    }

    pub async fn ask_within(&self, peer: &PeerId, key: Key, budget: Duration) -> Result<Reply, svc_dht::AskError> {
        self.dht.ask(peer, Question::Providers(key), budget).await
    }

    /// A record of this node about some content.
    pub fn provides(&self, key: Key) -> Record {
        Record::Provider(provider_record(&self.key, key))
    }
}

pub fn provider_record(key: &NodeKey, content: Key) -> ProviderRecord {
    let issued_ms = clock::unix_millis();
    let fields = ProviderFields {
        key: content,
        peer: PeerId::from(key.node_id()),
        addrs: vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")],
        protocols: vec!["transport-bitswap".to_owned()],
        region: None,
        sequence: issued_ms,
        issued_ms,
        expires_ms: issued_ms + 3_600_000,
    };
    ProviderRecord::sign(fields, key).expect("within bounds")
}

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(150))
}

/// Looks at something until it is as wanted; if that never happens, says how it was last.
pub async fn eventually<T: std::fmt::Debug>(look: impl Fn() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let looking = soon().run("test", async {
        loop {
            let seen = look();
            if is_so(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    looking.await.unwrap_or_else(|_| panic!("still {:?}", look()))
}
