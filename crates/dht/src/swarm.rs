//! The task that owns the network: orders in, events out, and never a wait in between.

mod inbound;
mod outbound;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use libp2p::core::ConnectedPoint;
use libp2p::core::transport::ListenerId;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::swarm::{DialError, SwarmEvent};
use libp2p::{Multiaddr, Swarm, identify, kad, ping};
use ron_kernel::queue::QueueReceiver;
use ron_kernel::{TaskContext, TaskError, TaskResult};
use ron_store::PeerRecord;
use ron_types::limits::dht as limits;
use tokio::sync::oneshot;

use crate::config::Mode;
use crate::convert::{dialable, ip_of, keypair_of, ours, over_quic, over_tcp, tcp_port_of, theirs};
use crate::members::Entry;
use crate::network::{self, Behaviour, BehaviourEvent, KAD_PROTOCOL, codec};
use crate::shared::{Answering, Order, Reached, Shared};
use crate::swarm::inbound::Inbound;
use crate::swarm::outbound::Outbound;
use crate::words::DhtEvent;

/// How often what is kept for quiet addresses is looked through.
const TIDY_EVERY: Duration = Duration::from_millis(500);
/// Times that a changed part in the network is told: libp2p tells it by itself only to those whose own words it has
/// heard already, and the first time may be too early for it.
const PUSHES: u8 = 2;
/// Process exit code of a node that cannot start.
const EXIT_CANNOT_LISTEN: u8 = 70;

/// The task.
pub(crate) async fn swarm(
    context: TaskContext,
    shared: Arc<Shared>,
    mut orders: QueueReceiver<Order>,
    mut answers: QueueReceiver<Answering>,
) -> TaskResult {
    let mut network = Network::start(Arc::clone(&shared))?;
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    let mut is_ready = false;
    loop {
        // Ready once it listens, so that whoever waits for the service finds its addresses.
        if !is_ready && network.listens() {
            is_ready = true;
            context.ready().await;
        }
        tokio::select! {
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            // Not before it listens: whoever is dialled earlier hears of a node without addresses that keeps nothing.
            Some(order) = orders.recv(), if network.listens() => network.obey(order),
            Some(answering) = answers.recv() => network.inbound.send(&mut network.swarm, answering),
            event = network.swarm.select_next_some() => network.on_event(event)?,
            _ = tidy.tick() => network.tidy(),
        }
    }
    network.end();
    Ok(())
}

/// One life of the network.
struct Network {
    swarm: Swarm<Behaviour>,
    shared: Arc<Shared>,
    outbound: Outbound,
    inbound: Inbound,
    tcp: ListenerId,
    listen_addrs: Vec<Multiaddr>,
    /// Whether QUIC was told to listen: it follows TCP, to take the same port.
    is_quic_begun: bool,
    mode: Mode,
    /// Those who wait for the neighbourhood to be looked up.
    walks: Vec<oneshot::Sender<()>>,
    /// Those who wait for a node to be reached.
    dials: Vec<(libp2p::PeerId, Reached)>,
    /// Times that connected nodes are still to be told what this node does now.
    pushes: u8,
}

impl Network {
    fn start(shared: Arc<Shared>) -> Result<Self, TaskError> {
        let keypair = keypair_of(&shared.options.key)
            .ok_or_else(|| TaskError::Failed("the node's key cannot be read".to_owned()))?;
        let metrics = shared.kernel.metrics();
        let mut swarm = network::build(keypair, &shared.live, &shared.counts, metrics).map_err(TaskError::Failed)?;
        let (addr, mode) = (shared.live.get().value.addr, shared.live.get().value.mode);
        let tcp = swarm.listen_on(over_tcp(addr)).map_err(|error| TaskError::Init {
            code: EXIT_CANNOT_LISTEN,
            detail: format!("the DHT cannot listen on {addr} (`dht.addr`): {error}"),
        })?;
        // The connections of an earlier life ended with it.
        shared.members.disconnect_all();
        shared.members.allow_loopback(addr.ip().is_loopback());
        let mut network = Network {
            swarm,
            outbound: Outbound::new(Arc::clone(&shared)),
            inbound: Inbound::new(Arc::clone(&shared)),
            shared,
            tcp,
            listen_addrs: Vec::new(),
            is_quic_begun: false,
            mode,
            walks: Vec::new(),
            dials: Vec::new(),
            pushes: 0,
        };
        let ip = addr.ip();
        network.set_server(mode == Mode::Server || (mode == Mode::Auto && (ip.is_loopback() || is_global(ip))));
        network.enter_known();
        Ok(network)
    }

    /// What an earlier life knew is known to this one.
    fn enter_known(&mut self) {
        for view in self.shared.members.views() {
            if let Some(peer) = theirs(&view.peer) {
                self.enter(peer, &view.addrs);
            }
        }
    }

    fn listens(&self) -> bool {
        !self.listen_addrs.is_empty()
    }

    fn end(&mut self) {
        self.shared.members.disconnect_all();
        self.shared.listen_addrs.store(Arc::default());
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Send(sending) => self.outbound.take(&mut self.swarm, sending),
            Order::Dial { peer, addrs, done } => self.dial(peer, &addrs, done),
            Order::Enter { peer, addrs } => {
                if let Some(peer) = theirs(&peer) {
                    self.enter(peer, &addrs);
                }
            }
            Order::Forget { peer } => self.forget(&peer),
            Order::Expel { peer } => {
                self.forget(&peer);
                if let Some(peer) = theirs(&peer) {
                    let _ = self.swarm.disconnect_peer_id(peer);
                }
            }
            Order::Walk { done } => self.walk(done),
        }
    }

    fn dial(&mut self, peer: ron_store::PeerId, addrs: &[Multiaddr], done: Option<Reached>) {
        let Some(peer) = theirs(&peer) else { return };
        self.dials.retain(|(_, waiting)| !waiting.is_closed());
        self.dials.extend(done.map(|done| (peer, done)));
        if self.swarm.is_connected(&peer) {
            self.dialled(&peer, &Ok(()));
            return;
        }
        let addrs = dialable(addrs, true);
        let options = DialOpts::peer_id(peer).addresses(addrs).extend_addresses_through_behaviour().build();
        match self.swarm.dial(options) {
            // It is being dialled already, and how that ends is told.
            Ok(()) | Err(DialError::DialPeerConditionFalse(_)) => {}
            Err(error) => {
                tracing::debug!(%peer, %error, "a node is not dialled");
                self.dialled(&peer, &Err(error.to_string()));
            }
        }
    }

    /// Tells those who wait for a node what became of that.
    fn dialled(&mut self, peer: &libp2p::PeerId, outcome: &Result<(), String>) {
        for (_, done) in self.dials.extract_if(.., |(waited_for, _)| waited_for == peer) {
            let _ = done.send(outcome.clone());
        }
    }

    fn enter(&mut self, peer: libp2p::PeerId, addrs: &[Multiaddr]) {
        for addr in addrs {
            self.swarm.behaviour_mut().kad.add_address(&peer, addr.clone());
        }
    }

    fn forget(&mut self, peer: &ron_store::PeerId) {
        if let Some(theirs) = theirs(peer) {
            self.swarm.behaviour_mut().kad.remove_peer(&theirs);
        }
        self.shared.events.publish(DhtEvent::Left(*peer));
    }

    fn walk(&mut self, done: oneshot::Sender<()>) {
        self.walks.retain(|waiting| !waiting.is_closed());
        match self.swarm.behaviour_mut().kad.bootstrap() {
            Ok(_) => self.walks.push(done),
            // Nobody is known yet: the walk begins by itself with the first node that is.
            Err(_) if !self.shared.live.get().value.bootstrap.is_empty() => self.walks.push(done),
            Err(_) => {
                let _ = done.send(());
            }
        }
    }

    fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>) -> TaskResult {
        match event {
            SwarmEvent::Behaviour(event) => self.on_behaviour(event),
            SwarmEvent::NewListenAddr { address, .. } => self.on_listening(address),
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.listen_addrs.retain(|known| *known != address);
                self.publish_addrs();
            }
            SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } if listener_id == self.tcp => {
                return Err(TaskError::Failed(format!("the DHT no longer listens: {error}")));
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => self.on_connected(&peer_id, &endpoint),
            SwarmEvent::ConnectionClosed { peer_id, .. } => {
                if let Some(peer) = ours(&peer_id)
                    && self.shared.members.connection_closed(&peer)
                {
                    self.inbound.peer_gone(&peer_id);
                }
            }
            SwarmEvent::OutgoingConnectionError { peer_id, error, .. } => self.on_dial_failed(peer_id, &error),
            _ => {}
        }
        Ok(())
    }

    fn on_listening(&mut self, address: Multiaddr) {
        if let (false, Some(port)) = (self.is_quic_begun, tcp_port_of(&address)) {
            self.is_quic_begun = true;
            let mut addr = self.shared.live.get().value.addr;
            addr.set_port(port);
            // A node whose UDP port is taken is still reached over TCP.
            if let Err(error) = self.swarm.listen_on(over_quic(addr)) {
                tracing::warn!(%addr, %error, "the DHT does not listen over QUIC");
            }
        }
        let ip = ip_of(&address);
        self.listen_addrs.push(address);
        let is_reached = ip.is_some_and(|ip| ip.is_loopback() || is_global(ip));
        if self.mode == Mode::Auto && is_reached {
            self.set_server(true);
        }
        self.publish_addrs();
    }

    fn on_connected(&mut self, peer: &libp2p::PeerId, endpoint: &ConnectedPoint) {
        let Some(peer) = ours(peer) else { return };
        self.shared.members.connection_opened(peer, ip_of(endpoint.get_remote_address()));
        // Somebody got through to us: so can others.
        if self.mode == Mode::Auto && endpoint.is_listener() && !self.shared.is_server() {
            self.set_server(true);
            self.publish_addrs();
        }
    }

    fn on_dial_failed(&mut self, peer: Option<libp2p::PeerId>, error: &DialError) {
        if let (Some(peer), false) = (&peer, matches!(error, DialError::DialPeerConditionFalse(_))) {
            self.dialled(peer, &Err(error.to_string()));
        }
        let is_ours =
            matches!(error, DialError::DialPeerConditionFalse(_) | DialError::Aborted | DialError::Denied { .. });
        if is_ours {
            return;
        }
        self.shared.counts.dials_failed.inc();
        let Some(peer) = peer.as_ref().and_then(ours) else { return };
        tracing::debug!(%peer, %error, "a node cannot be reached");
        if self.shared.members.failed(&peer, self.shared.now_ms()) {
            self.forget(&peer);
        }
    }

    fn on_behaviour(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.on_identified(peer_id, &info)
            }
            BehaviourEvent::Ping(ping::Event { peer, connection, result }) => match result {
                Ok(rtt) => {
                    if let Some(peer) = ours(&peer) {
                        self.shared.members.answered(&peer, rtt, self.shared.now_ms());
                    }
                }
                // A node that speaks no ping may be silent; one that does and is silent is gone.
                Err(ping::Failure::Unsupported) => {}
                Err(_) => drop(self.swarm.close_connection(connection)),
            },
            // The first step looks this node itself up, and each neighbour names all the nodes of a small network. What
            // follows refreshes the far parts of the table, and can wait long for a node that is gone.
            BehaviourEvent::Kad(kad::Event::OutboundQueryProgressed {
                result: kad::QueryResult::Bootstrap(_), ..
            }) => {
                self.shared.members.joined();
                for done in self.walks.drain(..) {
                    let _ = done.send(());
                }
            }
            BehaviourEvent::Index(event) => {
                self.outbound.on_event(&mut self.swarm, &mut self.inbound, event);
            }
            _ => {}
        }
    }

    /// A node said what it speaks and where it listens.
    fn on_identified(&mut self, peer_id: libp2p::PeerId, info: &identify::Info) {
        let Some(peer) = ours(&peer_id) else { return };
        let speaks = |protocol| info.protocols.contains(&protocol);
        if !speaks(KAD_PROTOCOL) || !speaks(codec::PROTOCOL) {
            self.dialled(&peer_id, &Err("it answers, but keeps no records of this network".to_owned()));
            if self.shared.members.leave(&peer) {
                self.forget(&peer);
            }
            return;
        }
        let now_ms = self.shared.now_ms();
        let entry = self.shared.members.met(peer, &info.listen_addrs, now_ms);
        self.dialled(&peer_id, &Ok(()));
        match entry {
            Entry::Refused => drop(self.shared.counts.peers_refused.inc()),
            Entry::Forgotten => {
                self.shared.counts.peers_refused.inc();
                self.forget(&peer);
            }
            entry => {
                let addrs = self.shared.members.addrs_of(&peer);
                self.enter(peer_id, &addrs);
                if entry == Entry::New {
                    self.shared.events.publish(DhtEvent::Joined(peer));
                }
                let known =
                    self.shared.members.record_of(&peer, now_ms + limits::PEER_RECORD_TTL.as_millis() as u64 / 2);
                if known.is_none_or(|record| dialable(&record.addrs, true) != addrs) {
                    self.outbound.ask_who_it_is(&mut self.swarm, peer_id, peer);
                }
            }
        }
    }

    fn set_server(&mut self, is_server: bool) {
        let mode = if is_server { kad::Mode::Server } else { kad::Mode::Client };
        self.swarm.behaviour_mut().kad.set_mode(Some(mode));
        if self.shared.is_server.swap(is_server, Ordering::Relaxed) != is_server {
            self.shared.events.publish(DhtEvent::Server(is_server));
            self.pushes = PUSHES;
        }
    }

    fn tidy(&mut self) {
        self.swarm.behaviour_mut().admission.tidy();
        if self.pushes > 0 {
            self.pushes -= 1;
            let connected: Vec<libp2p::PeerId> = self.swarm.connected_peers().copied().collect();
            self.swarm.behaviour_mut().identify.push(connected);
        }
    }

    /// Tells the node, and through it the overlay, where it is reached now.
    fn publish_addrs(&mut self) {
        self.shared.listen_addrs.store(Arc::new(self.listen_addrs.clone()));
        self.shared.events.publish(DhtEvent::Listening(self.listen_addrs.clone()));
        renew_own_record(&self.shared);
    }
}

/// Signs anew what this node says of itself: nothing while it keeps no records for others.
pub(crate) fn renew_own_record(shared: &Shared) {
    let now_ms = shared.now_ms();
    let addrs = dialable(shared.listen_addrs.load().iter(), true);
    let expires_ms = now_ms + limits::PEER_RECORD_TTL.as_millis() as u64;
    let is_told = shared.is_server() && !addrs.is_empty();
    let record = is_told.then(|| PeerRecord::sign(addrs, now_ms, expires_ms, &shared.options.key).ok()).flatten();
    shared.own_record.store(record.map(Arc::new));
    shared.own_record_changed.notify_one();
}

/// Whether an address is one that anybody can reach, unless a firewall stands before it.
fn is_global(ip: std::net::IpAddr) -> bool {
    match ip.to_canonical() {
        std::net::IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || is_shared)
        }
        std::net::IpAddr::V6(ip) => {
            !(ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
    }
}
