//! A libp2p peer that speaks the right protocols and says whatever a test wants.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, StreamExt as _};
use libp2p::identity::Keypair;
use libp2p::request_response::{self, Codec, Event, Message, ProtocolSupport, ResponseChannel};
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, StreamProtocol, Swarm, SwarmBuilder, identify, kad, noise, tcp, yamux};
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

/// Questions of Kademlia as they are, each with its length before it; answers as they are said to be.
#[derive(Clone, Default)]
struct RawKad;

impl Codec for RawKad {
    type Protocol = StreamProtocol;
    type Request = Vec<u8>;
    type Response = Vec<u8>;

    async fn read_request<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
    ) -> io::Result<Vec<u8>> {
        let (mut length, mut byte) = (0, [0x80]);
        for shift in 0..3 {
            io.read_exact(&mut byte).await?;
            length |= usize::from(byte[0] & 0x7f) << (7 * shift);
            if byte[0] < 0x80 {
                break;
            }
        }
        let mut message = vec![0; length];
        io.read_exact(&mut message).await?;
        Ok(message)
    }

    async fn read_response<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        _: &mut T,
    ) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn write_request<T: AsyncWrite + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        _: &mut T,
        _: Vec<u8>,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
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

/// What a peer does with a question.
#[derive(Clone)]
pub enum Says {
    /// It answers with these bytes.
    Bytes(Vec<u8>),
    /// It answers when it is told to.
    Later,
    /// It closes the stream.
    Nothing,
}

#[derive(NetworkBehaviour)]
struct Behaviour {
    identify: identify::Behaviour,
    kad: Toggle<kad::Behaviour<kad::store::MemoryStore>>,
    raw_kad: Toggle<request_response::Behaviour<RawKad>>,
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
    /// Questions of Kademlia that came in.
    pub asked_kad: AtomicUsize,
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

/// An answer of Kademlia to whoever asks for nodes or providers near a key, as it is written on the stream: these
/// peers, each at its address.
pub fn kad_answer(kind: u8, peers: &[(PeerId, Multiaddr)]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2], &varint(bytes.len())[..], bytes].concat();
    // Kind 4 names nodes nearer to a key (field 8), kind 3 those that provide it as well (field 9).
    let mut message = vec![1 << 3, kind];
    for (peer, address) in peers {
        let one = [field(1, peer.as_bytes()), field(2, &address.to_vec()), vec![3 << 3, 1]].concat();
        message.extend(field(8, &one));
        message.extend(field(9, &one));
    }
    [varint(message.len()), message].concat()
}

/// A number as protobuf writes it.
pub fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A message with its length before it.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// The network of a peer, whose Kademlia keeps the rules or says what it is told to say.
fn network_of(keypair: Keypair, has_raw_kad: bool) -> Swarm<Behaviour> {
    SwarmBuilder::with_existing_identity(keypair)
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
        .expect("a transport")
        .with_behaviour(|pair| {
            let id = pair.public().to_peer_id();
            let honest_kad = || {
                let store = kad::store::MemoryStore::new(id);
                let mut kad = kad::Behaviour::with_config(id, store, kad::Config::new(KAD));
                kad.set_mode(Some(kad::Mode::Server));
                kad
            };
            let config = request_response::Config::default().with_max_concurrent_streams(4096);
            let raw_kad = || request_response::Behaviour::new([(KAD, ProtocolSupport::Inbound)], config.clone());
            Behaviour {
                identify: identify::Behaviour::new(identify::Config::new("/test".to_owned(), pair.public())),
                kad: (!has_raw_kad).then(honest_kad).into(),
                raw_kad: has_raw_kad.then(raw_kad).into(),
                index: request_response::Behaviour::new([(INDEX, ProtocolSupport::Full)], config),
            }
        })
        .expect("a behaviour")
        .with_swarm_config(|config| config.with_idle_connection_timeout(std::time::Duration::from_secs(60)))
        .build()
}

impl Hostile {
    /// A peer that connects to these nodes and enters their tables; it answers everything with `says`, or nothing.
    pub async fn join(nodes: &[&TestNode], says: Option<Vec<u8>>) -> Hostile {
        Hostile::start(nodes, says.map_or(Says::Later, Says::Bytes), None).await
    }

    /// The same, and what it says to questions of Kademlia; none for a peer whose Kademlia keeps the rules.
    #[expect(clippy::disallowed_methods, reason = "a peer of a test has no kernel")]
    pub async fn start(nodes: &[&TestNode], says: Says, kad_says: Option<Says>) -> Hostile {
        let keypair = Keypair::generate_ed25519();
        let peer = PeerId::from_bytes(&keypair.public().to_peer_id().to_bytes()).expect("an id");
        let mut swarm = network_of(keypair, kad_says.is_some());
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
                let mut waiting_kad: Vec<ResponseChannel<Vec<u8>>> = Vec::new();
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
                    let event = match event {
                        SwarmEvent::Behaviour(BehaviourEvent::Index(event)) => event,
                        SwarmEvent::Behaviour(BehaviourEvent::RawKad(Event::Message {
                            message: Message::Request { channel, .. },
                            ..
                        })) => {
                            seen.asked_kad.fetch_add(1, Ordering::SeqCst);
                            match (&kad_says, swarm.behaviour_mut().raw_kad.as_mut()) {
                                (Some(Says::Bytes(says)), Some(kad)) => drop(kad.send_response(channel, says.clone())),
                                (Some(Says::Later), _) => waiting_kad.push(channel),
                                _ => drop(channel),
                            }
                            continue;
                        }
                        _ => continue,
                    };
                    match event {
                        Event::Message { message: Message::Request { channel, .. }, .. } => {
                            seen.asked.fetch_add(1, Ordering::SeqCst);
                            match &says {
                                Says::Bytes(says) => {
                                    drop(swarm.behaviour_mut().index.send_response(channel, says.clone()));
                                }
                                Says::Later => waiting.push(channel),
                                Says::Nothing => drop(channel),
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
