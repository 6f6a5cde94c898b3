//! libp2p's Kademlia as it comes: swarms of this process, each on a thread of its own, asked with `get_providers`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use libp2p::kad::store::MemoryStore;
use libp2p::kad::{self, GetProvidersOk, QueryId, QueryResult};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, PeerId, StreamProtocol, Swarm, SwarmBuilder, identify, noise, tcp, yamux};
use ron_kernel::clock;
use ron_store::ContentId;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::lookups::{Lookup, Plan, content};
use super::ours::until;
use super::thread::{Hindrance, Life, NodeThread};

const PROTOCOL: StreamProtocol = StreamProtocol::new("/bench/kad/1.0.0");
/// A node must listen within this time.
const LISTEN_WITHIN: Duration = Duration::from_secs(10);

#[derive(NetworkBehaviour)]
struct Behaviour {
    kad: kad::Behaviour<MemoryStore>,
    identify: identify::Behaviour,
}

/// Where a node is.
type Place = (PeerId, Multiaddr);

/// The network, with records in it.
pub struct KademliaNetwork {
    nodes: Vec<NodeThread<Place>>,
}

impl KademliaNetwork {
    /// Starts so many nodes, tells each of all others, and has records placed.
    pub async fn start(count: usize, published: u64) -> anyhow::Result<KademliaNetwork> {
        let (known, knowing) = watch::channel(Vec::new());
        let placed = Arc::new(AtomicUsize::new(0));
        let mut nodes = Vec::new();
        for number in 0..count {
            let (knowing, placed) = (knowing.clone(), Arc::clone(&placed));
            let own = (number as u64..published).step_by(count).map(content).collect();
            let life: Life<Place> = Box::new(move |ready| Box::pin(live(ready, knowing, own, placed)));
            nodes.push(NodeThread::start(format!("kad-{number}"), life).await?);
        }
        known.send_replace(nodes.iter().map(|node| node.node.clone()).collect());
        until("every record has been provided", || placed.load(Ordering::Relaxed) >= published as usize).await?;
        Ok(KademliaNetwork { nodes })
    }

    /// A node that joins as a client and then looks everything up; nodes are hindered after it has joined.
    pub async fn look_up(&self, plan: &Plan, which: &[usize], how: Option<Hindrance>) -> anyhow::Result<Vec<Lookup>> {
        let mut swarm = swarm(kad::Mode::Client)?;
        for node in &self.nodes {
            let (peer, address) = node.node.clone();
            swarm.behaviour_mut().kad.add_address(&peer, address.clone());
            swarm.dial(address)?;
        }
        let all = self.nodes.len();
        let mut connected = 0;
        let by = ron_kernel::Deadline::after(LISTEN_WITHIN);
        let connecting = async {
            while connected < all {
                if let SwarmEvent::ConnectionEstablished { .. } = swarm.select_next_some().await {
                    connected += 1;
                }
            }
        };
        by.run("connections", connecting).await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let _hindered: Option<Vec<_>> =
            how.map(|how| which.iter().map(|number| self.nodes[*number].hinder(how)).collect());
        Ok(Asker { swarm, plan: *plan, under_way: HashMap::new(), lookups: Vec::new() }.run().await)
    }
}

/// Lookups under way: their place in the list, and when they began.
struct Asker {
    swarm: Swarm<Behaviour>,
    plan: Plan,
    under_way: HashMap<QueryId, (usize, Instant)>,
    lookups: Vec<Lookup>,
}

impl Asker {
    async fn run(mut self) -> Vec<Lookup> {
        let mut wanted = self.plan.wanted();
        let mut next = wanted.next();
        let mut pace = tokio::time::interval(self.plan.every);
        let mut patience = std::pin::pin!(tokio::time::sleep(self.plan.patience));
        while next.is_some() || !self.under_way.is_empty() {
            tokio::select! {
                _ = pace.tick(), if next.is_some() => {
                    if let Some((content, is_published)) = next.take() {
                        self.ask(&content, is_published);
                        patience.as_mut().reset(clock::now() + self.plan.patience);
                    }
                    next = wanted.next();
                }
                event = self.swarm.select_next_some() => {
                    if let SwarmEvent::Behaviour(BehaviourEvent::Kad(event)) = event {
                        self.hear(event);
                    }
                }
                () = &mut patience => break,
            }
        }
        self.lookups
    }

    fn ask(&mut self, content: &ContentId, is_published: bool) {
        let id = self.swarm.behaviour_mut().kad.get_providers(key(content));
        self.under_way.insert(id, (self.lookups.len(), clock::now()));
        self.lookups.push(Lookup { is_published, first: None, end: None, asks: 0, hedges: 0 });
    }

    fn hear(&mut self, event: kad::Event) {
        let kad::Event::OutboundQueryProgressed { id, result: QueryResult::GetProviders(result), step, stats } = event
        else {
            return;
        };
        let Some((place, began)) = self.under_way.get(&id).copied() else { return };
        let lookup = &mut self.lookups[place];
        if matches!(&result, Ok(GetProvidersOk::FoundProviders { providers, .. }) if !providers.is_empty()) {
            lookup.first.get_or_insert_with(|| began.elapsed());
        }
        if step.last {
            lookup.end = Some(began.elapsed());
            lookup.asks = stats.num_requests() as usize;
            self.under_way.remove(&id);
        }
    }
}

fn key(content: &ContentId) -> kad::RecordKey {
    kad::RecordKey::new(&content.multihash_bytes())
}

fn swarm(mode: kad::Mode) -> anyhow::Result<Swarm<Behaviour>> {
    let transport = tcp::Config::default().nodelay(true);
    let builder = SwarmBuilder::with_new_identity().with_tokio().with_tcp(
        transport,
        noise::Config::new,
        yamux::Config::default,
    )?;
    let mut swarm = builder
        .with_behaviour(|key| {
            let peer = key.public().to_peer_id();
            let kad = kad::Behaviour::with_config(peer, MemoryStore::new(peer), kad::Config::new(PROTOCOL));
            let identify = identify::Behaviour::new(identify::Config::new("/bench/1".to_owned(), key.public()));
            Behaviour { kad, identify }
        })
        .map_err(|error| anyhow::anyhow!("{error}"))?
        .build();
    swarm.behaviour_mut().kad.set_mode(Some(mode));
    Ok(swarm)
}

/// One life of a node: it provides what is its own once it knows everybody.
async fn live(
    ready: oneshot::Sender<Place>,
    mut knowing: watch::Receiver<Vec<Place>>,
    own: Vec<ContentId>,
    placed: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let mut swarm = swarm(kad::Mode::Server)?;
    swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            break address;
        }
    };
    let peer = *swarm.local_peer_id();
    // Whoever started it is gone if this fails.
    let _ = ready.send((peer, address));
    // Others are told of a node before they dial it, so that nobody waits for this one meanwhile.
    let all = knowing.wait_for(|all| !all.is_empty()).await.context("the network ended")?.clone();
    for (other, address) in all.into_iter().filter(|(other, _)| *other != peer) {
        swarm.behaviour_mut().kad.add_address(&other, address);
    }
    for content in own {
        swarm.behaviour_mut().kad.start_providing(key(&content)).context("the store is full")?;
    }
    loop {
        let event = swarm.select_next_some().await;
        let SwarmEvent::Behaviour(BehaviourEvent::Kad(kad::Event::OutboundQueryProgressed { result, step, .. })) =
            event
        else {
            continue;
        };
        match (result, step.last) {
            (QueryResult::StartProviding(Ok(_)), true) => {
                placed.fetch_add(1, Ordering::Relaxed);
            }
            // A machine that is busy with all the others' connections; whoever started the network has a limit.
            (QueryResult::StartProviding(Err(error)), true) => {
                swarm.behaviour_mut().kad.start_providing(error.into_key()).context("the store is full")?;
            }
            _ => {}
        }
    }
}
