//! A libp2p peer that speaks the right protocols and says whatever a test wants.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, StreamExt as _};
use libp2p::identity::Keypair;
use libp2p::request_response::{self, Codec, Event, Message, ProtocolSupport, ResponseChannel};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, StreamProtocol, SwarmBuilder, identify, kad, noise, tcp, yamux};
use ron_store::PeerId;
use tokio::sync::mpsc;

use crate::node::{TestNode, eventually};

const INDEX: StreamProtocol = StreamProtocol::new("/macronode/index/1");
const KAD: StreamProtocol = StreamProtocol::new("/macronode/kad/1.0.0");

/// Bytes as they are, without a length.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Protocol = StreamProtocol;
    type Request = Vec<u8>;
    type Response = Vec<u8>;

    async fn read_request<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    async fn read_response<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    async fn write_request<T: AsyncWrite + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        io.write_all(&bytes).await
    }

    async fn write_response<T: AsyncWrite + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        io.write_all(&bytes).await
    }
}

#[derive(NetworkBehaviour)]
struct Behaviour {
    identify: identify::Behaviour,
    kad: kad::Behaviour<kad::store::MemoryStore>,
    index: request_response::Behaviour<Raw>,
}

/// What the peer does.
enum Order {
    Send(libp2p::PeerId, Vec<u8>),
    AnswerAll,
}

/// What the peer has seen.
#[derive(Default)]
pub struct Seen {
    pub asked: AtomicUsize,
    /// Answers it could not send.
    pub failed: AtomicUsize,
    pub sent: AtomicUsize,
    /// Answers it got, without their length.
    pub answers: Mutex<Vec<Vec<u8>>>,
    /// Requests of its own that came to nothing.
    pub refused: AtomicUsize,
}

pub struct Hostile {
    pub peer: PeerId,
    pub seen: Arc<Seen>,
    orders: mpsc::UnboundedSender<Order>,
    running: tokio::task::JoinHandle<()>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A message with its length before it.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

impl Hostile {
    /// A peer that connects to these nodes and enters their tables; it answers everything with `says`, or nothing.
    #[expect(clippy::disallowed_methods, reason = "a peer of a test has no kernel")]
    pub async fn join(nodes: &[&TestNode], says: Option<Vec<u8>>) -> Hostile {
        let keypair = Keypair::generate_ed25519();
        let peer = PeerId::from_bytes(&keypair.public().to_peer_id().to_bytes()).expect("an id");
        let mut swarm = SwarmBuilder::with_existing_identity(keypair)
            .with_tokio()
            .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
            .expect("a transport")
            .with_behaviour(|pair| {
                let id = pair.public().to_peer_id();
                let mut kad = kad::Behaviour::with_config(id, kad::store::MemoryStore::new(id), kad::Config::new(KAD));
                kad.set_mode(Some(kad::Mode::Server));
                let config = request_response::Config::default().with_max_concurrent_streams(4096);
                Behaviour {
                    identify: identify::Behaviour::new(identify::Config::new("/test".to_owned(), pair.public())),
                    kad,
                    index: request_response::Behaviour::new([(INDEX, ProtocolSupport::Full)], config),
                }
            })
            .expect("a behaviour")
            .with_swarm_config(|config| config.with_idle_connection_timeout(std::time::Duration::from_secs(60)))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address")).expect("it listens");
        // It must know where it listens before it says so to anybody.
        while !matches!(swarm.select_next_some().await, SwarmEvent::NewListenAddr { .. }) {}
        for node in nodes {
            let address: Multiaddr = node.tcp();
            swarm.dial(address).expect("dialled");
        }
        let seen = Arc::<Seen>::default();
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let running = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                let mut waiting: Vec<ResponseChannel<Vec<u8>>> = Vec::new();
                loop {
                    let event = tokio::select! {
                        Some(order) = ordered.recv() => {
                            let index = &mut swarm.behaviour_mut().index;
                            match order {
                                Order::Send(peer, bytes) => drop(index.send_request(&peer, bytes)),
                                Order::AnswerAll => {
                                    for channel in waiting.drain(..) {
                                        let _ = index.send_response(channel, vec![0; 1024]);
                                    }
                                }
                            }
                            continue;
                        }
                        event = swarm.select_next_some() => event,
                    };
                    let SwarmEvent::Behaviour(BehaviourEvent::Index(event)) = event else { continue };
                    match event {
                        Event::Message { message: Message::Request { channel, .. }, .. } => {
                            seen.asked.fetch_add(1, Ordering::SeqCst);
                            match &says {
                                Some(says) => drop(swarm.behaviour_mut().index.send_response(channel, says.clone())),
                                None => waiting.push(channel),
                            }
                        }
                        Event::Message { message: Message::Response { response, .. }, .. } => {
                            seen.answers.lock().expect("not poisoned").push(response);
                        }
                        Event::InboundFailure { .. } => drop(seen.failed.fetch_add(1, Ordering::SeqCst)),
                        Event::OutboundFailure { .. } => drop(seen.refused.fetch_add(1, Ordering::SeqCst)),
                        Event::ResponseSent { .. } => drop(seen.sent.fetch_add(1, Ordering::SeqCst)),
                    }
                }
            }
        });
        let hostile = Hostile { peer, seen, orders, running };
        for node in nodes {
            eventually(|| node.dht.peers().iter().any(|known| known.peer == peer), |is_known| *is_known).await;
        }
        hostile
    }

    /// Sends bytes as a request.
    pub fn send(&self, node: &TestNode, bytes: Vec<u8>) {
        let peer = libp2p::PeerId::from_bytes(node.peer().as_bytes()).expect("an id");
        assert!(self.orders.send(Order::Send(peer, bytes)).is_ok(), "it runs");
    }

    /// Answers everything that waits.
    pub fn answer_all(&self) {
        assert!(self.orders.send(Order::AnswerAll).is_ok(), "it runs");
    }

    pub fn asked(&self) -> usize {
        self.seen.asked.load(Ordering::SeqCst)
    }

    /// Requests of its own that were answered or came to nothing.
    pub fn ended(&self) -> usize {
        self.answers().len() + self.seen.refused.load(Ordering::SeqCst)
    }

    pub fn answers(&self) -> Vec<Vec<u8>> {
        self.seen.answers.lock().expect("not poisoned").clone()
    }
}
