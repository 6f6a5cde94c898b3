//! Nodes, sessions and time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use ron_gossip::wire::Message;
use ron_gossip::{
    Core, CoreConfig, Counts, Delivered, DisconnectReason, LaneName, Micros, Origin, Peer, PublishError, Published,
    SendOutcome, Shell,
};

use super::report::{Report, percentiles};
use super::{Behaviour, Topology, Witness, node_id, node_of};
use crate::rng::Rng;

/// The wall clock at the beginning, in milliseconds.
const EPOCH_MS: u64 = 1_700_000_000_000;
/// Time until a broken session is up again, where it comes back.
const RECONNECT: (Micros, Micros) = (200_000, 1_000_000);

/// What a network is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of nodes.
    pub nodes: usize,
    /// Who is joined to whom.
    pub topology: Topology,
    /// What all chance is drawn from.
    pub seed: u64,
    /// Shortest and longest time of a frame over a link.
    pub latency: (Micros, Micros),
    /// Frames lost of a million.
    pub loss_per_million: u64,
    /// Bytes a second of each direction of a link; 0 for no bound.
    pub bytes_per_second: u64,
    /// Bytes that wait for a link before it is busy.
    pub outbox_bytes: u64,
    /// Milliseconds by which the clocks of nodes differ at most.
    pub clock_skew_ms: u64,
    /// Bounds and times of every node.
    pub config: CoreConfig,
}

impl Settings {
    /// A network of so many nodes with latencies of 10 to 50 ms.
    pub fn new(nodes: usize, topology: Topology, seed: u64) -> Self {
        Settings {
            nodes,
            topology,
            seed,
            latency: (10_000, 50_000),
            loss_per_million: 0,
            bytes_per_second: 0,
            outbox_bytes: 4 << 20,
            clock_skew_ms: 0,
            config: CoreConfig::default(),
        }
    }
}

/// One direction of a session.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// When the link has taken all that was given to it.
    free_at: Micros,
    /// When the last frame arrives: a session keeps its order.
    arrives_at: Micros,
    bytes_per_second: u64,
}

/// A session between two nodes, the lower number first.
#[derive(Clone, Debug)]
struct Session {
    is_up: bool,
    /// Frames of an earlier life of the session are lost.
    life: u32,
    directions: [Direction; 2],
    /// Broken on purpose: does not come back by itself.
    is_cut: bool,
}

#[derive(Debug)]
enum Coming {
    Arrive { from: usize, to: usize, life: u32, message: Bytes },
    Tick { node: usize },
    Break { pair: (usize, usize) },
    Connect { pair: (usize, usize) },
    Attack { node: usize },
}

struct Event {
    at: Micros,
    order: u64,
    coming: Coming,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Node {
    /// The core; none while it is at work, or the node is dead.
    core: Option<Box<Core>>,
    is_alive: bool,
    behaviour: Behaviour,
    tick_at: Micros,
    /// Counts of the lives before this one.
    past: Counts,
    lives: u64,
}

/// A network at a moment.
pub struct Network {
    /// What it is like.
    pub settings: Settings,
    /// The moment.
    pub now: Micros,
    /// What nodes were told.
    pub witness: Witness,
    /// Peers that were disconnected by whom and why.
    pub disconnects: Vec<(usize, usize, DisconnectReason)>,
    /// Frames that did not decode.
    pub undecodable: u64,
    /// Frames sent, by kind.
    pub kinds: [u64; 16],
    /// Frames received, by node.
    pub received: Vec<u64>,
    queue: BinaryHeap<Reverse<Event>>,
    order: u64,
    nodes: Vec<Node>,
    sessions: BTreeMap<(usize, usize), Session>,
    rng: Rng,
}

/// The world of one node during one event.
struct Port<'a> {
    network: &'a mut Network,
    node: usize,
}

impl Network {
    /// All nodes up and joined.
    pub fn new(settings: Settings) -> Self {
        let links = settings.topology.links(settings.nodes, settings.seed);
        let mut network = Network {
            now: 1_000_000,
            witness: Witness::default(),
            disconnects: Vec::new(),
            undecodable: 0,
            kinds: [0; 16],
            received: Vec::new(),
            queue: BinaryHeap::new(),
            order: 0,
            nodes: Vec::new(),
            sessions: BTreeMap::new(),
            rng: Rng::new(settings.seed),
            settings,
        };
        for _ in 0..network.settings.nodes {
            network.add_node(Behaviour::Honest);
        }
        links.into_iter().for_each(|(one, other)| network.join(one, other));
        network
    }

    /// A new node that nobody is joined to; its number.
    pub fn add_node(&mut self, behaviour: Behaviour) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node {
            core: None,
            is_alive: false,
            behaviour,
            tick_at: Micros::MAX,
            past: Counts::default(),
            lives: 0,
        });
        self.witness.grow(self.nodes.len());
        self.received.push(0);
        self.start(node);
        node
    }

    /// Makes a node behave otherwise from now on.
    pub fn set_behaviour(&mut self, node: usize, behaviour: Behaviour) {
        self.nodes[node].behaviour = behaviour;
        self.at(self.now, Coming::Attack { node });
    }

    /// Joins two nodes for good: a session that breaks comes back.
    pub fn join(&mut self, one: usize, other: usize) {
        let pair = (one.min(other), one.max(other));
        let direction = Direction { bytes_per_second: self.settings.bytes_per_second, ..Direction::default() };
        let session = Session { is_up: false, life: 0, directions: [direction; 2], is_cut: false };
        self.sessions.entry(pair).or_insert(session).is_cut = false;
        self.connect(pair);
    }

    /// Makes one direction of a session slow.
    pub fn slow_down(&mut self, from: usize, to: usize, bytes_per_second: u64) {
        if let Some(session) = self.sessions.get_mut(&(from.min(to), from.max(to))) {
            session.directions[usize::from(from > to)].bytes_per_second = bytes_per_second;
        }
    }

    /// Neighbours of a node, whether the session is up or not.
    pub fn neighbours(&self, node: usize) -> Vec<usize> {
        let other = |pair: &(usize, usize)| match pair {
            (one, other) if *one == node => Some(*other),
            (one, other) if *other == node => Some(*one),
            _ => None,
        };
        self.sessions.keys().filter_map(other).collect()
    }

    // --- lives ---

    fn start(&mut self, node: usize) {
        let epoch = EPOCH_MS + self.now / 1000 + self.clock_skew_ms(node);
        let seed = self.rng.draw();
        let core = Core::new(self.now, self.settings.config.clone(), Origin(node_id(node)), epoch, seed);
        self.nodes[node].core = Some(Box::new(core));
        self.nodes[node].is_alive = true;
        self.nodes[node].lives += 1;
    }

    /// Milliseconds by which a node's clock is ahead: spread over the whole range, neighbours apart.
    fn clock_skew_ms(&self, node: usize) -> u64 {
        (node as u64).wrapping_mul(7919) % (self.settings.clock_skew_ms + 1)
    }

    /// Kills a node: its sessions break and do not come back.
    pub fn kill(&mut self, node: usize) {
        if let Some(core) = self.nodes[node].core.take() {
            self.nodes[node].past = sum(self.nodes[node].past, core.counts());
        }
        (self.nodes[node].is_alive, self.nodes[node].tick_at) = (false, Micros::MAX);
        for other in self.neighbours(node) {
            self.break_session((node.min(other), node.max(other)), false);
        }
    }

    /// Starts a dead node anew, knowing nothing, and joins it to its neighbours.
    pub fn restart(&mut self, node: usize) {
        self.witness.forget(node);
        self.start(node);
        for other in self.neighbours(node) {
            self.connect((node.min(other), node.max(other)));
        }
    }

    /// Whether a node is alive.
    pub fn is_alive(&self, node: usize) -> bool {
        self.nodes[node].is_alive
    }

    /// Number of nodes, dead ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The core of a node that is alive.
    pub fn core(&self, node: usize) -> Option<&Core> {
        self.nodes[node].core.as_deref()
    }

    // --- sessions ---

    fn connect(&mut self, pair: (usize, usize)) {
        let both_alive = self.nodes[pair.0].is_alive && self.nodes[pair.1].is_alive;
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&pair) else { return };
        if session.is_up || session.is_cut || !both_alive {
            return;
        }
        session.is_up = true;
        session.life += 1;
        for direction in &mut session.directions {
            (direction.free_at, direction.arrives_at) = (now, now);
        }
        for (node, peer) in [pair, (pair.1, pair.0)] {
            self.with_core(node, |core, now, port| core.peer_up(now, Peer(node_id(peer)), port));
        }
    }

    /// Breaks a session; what is on the way is lost. It comes back by itself unless it was cut or an end is dead.
    fn break_session(&mut self, pair: (usize, usize), returns: bool) {
        let Some(session) = self.sessions.get_mut(&pair) else { return };
        if !std::mem::replace(&mut session.is_up, false) {
            return;
        }
        for (node, peer) in [pair, (pair.1, pair.0)] {
            self.with_core(node, |core, now, port| core.peer_down(now, &Peer(node_id(peer)), port));
        }
        if returns {
            let at = self.now + self.rng.between(RECONNECT.0, RECONNECT.1);
            self.at(at, Coming::Connect { pair });
        }
    }

    /// Breaks the session between two nodes; it comes back.
    pub fn interrupt(&mut self, one: usize, other: usize) {
        self.break_session((one.min(other), one.max(other)), true);
    }

    /// Breaks all sessions between a set of nodes and the rest, until [`Network::heal`].
    pub fn partition(&mut self, side: &BTreeSet<usize>) {
        let crossing = |pair: &&(usize, usize)| side.contains(&pair.0) != side.contains(&pair.1);
        let pairs: Vec<(usize, usize)> = self.sessions.keys().filter(crossing).copied().collect();
        for pair in pairs {
            self.break_session(pair, false);
            if let Some(session) = self.sessions.get_mut(&pair) {
                session.is_cut = true;
            }
        }
    }

    /// Brings cut sessions back.
    pub fn heal(&mut self) {
        let cut: Vec<(usize, usize)> =
            self.sessions.iter().filter(|(_, session)| session.is_cut).map(|(pair, _)| *pair).collect();
        for (one, other) in cut {
            self.join(one, other);
        }
    }

    // --- events ---

    fn at(&mut self, at: Micros, coming: Coming) {
        self.order += 1;
        self.queue.push(Reverse(Event { at: at.max(self.now), order: self.order, coming }));
    }

    /// Publishes a message at a node.
    pub fn publish(
        &mut self,
        node: usize,
        lane: &LaneName,
        payload: &Bytes,
    ) -> Option<Result<Published, PublishError>> {
        self.with_core(node, |core, now, port| core.publish(now, lane, payload, port))
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Micros) {
        let until = self.now + time;
        while self.queue.peek().is_some_and(|Reverse(event)| event.at <= until) {
            let Some(Reverse(event)) = self.queue.pop() else { break };
            self.now = event.at;
            self.happen(event.coming);
        }
        self.now = until;
    }

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Arrive { from, to, life, message } => self.arrive(from, to, life, message),
            Coming::Tick { node } => {
                if self.nodes[node].tick_at <= self.now {
                    self.nodes[node].tick_at = Micros::MAX;
                    self.with_core(node, |core, now, port| core.tick(now, port));
                }
            }
            Coming::Break { pair } => self.break_session(pair, true),
            Coming::Connect { pair } => self.connect(pair),
            Coming::Attack { node } => self.attack(node),
        }
    }

    fn arrive(&mut self, from: usize, to: usize, life: u32, message: Bytes) {
        let pair = (from.min(to), from.max(to));
        if !self.sessions.get(&pair).is_some_and(|session| session.is_up && session.life == life) {
            return;
        }
        self.received[to] += 1;
        self.overhear(to, from, &message);
        let Ok(message) = Message::decode(message) else {
            // A node ends a session over which nonsense comes.
            self.undecodable += 1;
            return self.break_session(pair, true);
        };
        self.with_core(to, |core, now, port| core.receive(now, &Peer(node_id(from)), message, port));
    }

    fn attack(&mut self, node: usize) {
        let Some((frames, again)) = self.next_attack(node) else { return };
        for (to, message) in frames {
            self.transmit(node, to, message);
        }
        self.at(self.now + again, Coming::Attack { node });
    }

    fn next_attack(&mut self, node: usize) -> Option<(Vec<(usize, Bytes)>, Micros)> {
        if !self.nodes[node].is_alive {
            return None;
        }
        let neighbours = self.neighbours(node);
        self.nodes[node].behaviour.attack(node, &neighbours, EPOCH_MS + self.now / 1000, &mut self.rng)
    }

    fn overhear(&mut self, node: usize, from: usize, message: &Bytes) {
        self.nodes[node].behaviour.overhear(from, message);
    }

    /// Lets a core work, with the network as its world.
    fn with_core<T>(&mut self, node: usize, work: impl FnOnce(&mut Core, Micros, &mut Port<'_>) -> T) -> Option<T> {
        let mut core = self.nodes[node].core.take()?;
        let now = self.now;
        let outcome = work(&mut core, now, &mut Port { network: self, node });
        let due = core.next_at();
        self.nodes[node].core = Some(core);
        if due < self.nodes[node].tick_at {
            self.nodes[node].tick_at = due;
            self.at(due, Coming::Tick { node });
        }
        Some(outcome)
    }

    /// Puts a frame on a link.
    fn transmit(&mut self, from: usize, to: usize, message: Bytes) -> SendOutcome {
        let pair = (from.min(to), from.max(to));
        let latency = self.rng.between(self.settings.latency.0, self.settings.latency.1);
        let is_lost =
            self.settings.loss_per_million > 0 && self.rng.draw() % 1_000_000 < self.settings.loss_per_million;
        let (now, outbox_bytes) = (self.now, self.settings.outbox_bytes);
        let Some(session) = self.sessions.get_mut(&pair).filter(|session| session.is_up) else {
            return SendOutcome::NotReady;
        };
        let life = session.life;
        self.kinds[usize::from(message.first().copied().unwrap_or(0) & 15)] += 1;
        let direction = &mut session.directions[usize::from(from > to)];
        if direction.bytes_per_second > 0 {
            let waiting = direction.free_at.saturating_sub(now);
            let bytes = waiting as u128 * u128::from(direction.bytes_per_second) / 1_000_000;
            if bytes + message.len() as u128 > u128::from(outbox_bytes) {
                return SendOutcome::Busy { retry_after_ms: (waiting / 2000).clamp(1, 1000) as u32 };
            }
            direction.free_at = direction.free_at.max(now)
                + (message.len() as u64).saturating_mul(1_000_000) / direction.bytes_per_second;
        }
        let at = direction.arrives_at.max(direction.free_at.max(now) + latency);
        direction.arrives_at = at;
        if !is_lost {
            self.at(at, Coming::Arrive { from, to, life, message });
        }
        SendOutcome::Sent
    }

    // --- figures ---

    /// Deliveries that did not happen, of publications from a number on, at honest nodes that are alive. A message that
    /// died with all who had it does not count: nobody is left to ask.
    pub fn missed(&self, from_publication: usize) -> Vec<(usize, usize)> {
        let publications = self.witness.publications.iter().enumerate().skip(from_publication);
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|node| self.is_honest(*node)).collect();
        let survived =
            |(_, publication): &(usize, &super::Publication)| alive.iter().any(|node| publication.reached(*node));
        let missing = |(at, publication): (usize, &super::Publication)| {
            alive.iter().filter(|node| !publication.reached(**node)).map(|node| (at, *node)).collect::<Vec<_>>()
        };
        publications.filter(survived).flat_map(missing).collect()
    }

    fn is_honest(&self, node: usize) -> bool {
        self.nodes[node].is_alive && matches!(self.nodes[node].behaviour, Behaviour::Honest)
    }

    /// Counts of all honest nodes, dead ones included.
    pub fn counts(&self) -> Counts {
        let honest = self.nodes.iter().filter(|node| matches!(node.behaviour, Behaviour::Honest));
        honest.fold(Counts::default(), |total, node| {
            let now = node.core.as_ref().map(|core| core.counts()).unwrap_or_default();
            sum(sum(total, node.past), now)
        })
    }

    /// The figures since a moment that is given by the counts and the number of deliveries then.
    pub fn report(&self, from_publication: usize, before: Counts, deliveries_before: u64) -> Report {
        let counts = self.counts();
        let deliveries = self.witness.deliveries - deliveries_before;
        let each = |count: u64| count as f64 / deliveries.max(1) as f64;
        let since = deliveries_before as usize;
        Report {
            nodes: self.nodes.iter().filter(|node| node.is_alive).count(),
            messages: self.witness.publications.len() - from_publication,
            deliveries,
            sends_per_delivery: each(counts.data_sent - before.data_sent),
            control_per_delivery: each(counts.control_sent - before.control_sent),
            hops: percentiles(&self.witness.hops[since..]),
            latency: percentiles(&self.witness.latencies[since..]),
            missed: self.missed(from_publication).len(),
            lost: self.witness.lost.iter().sum(),
            repaired: counts.repaired - before.repaired,
            duplicates: counts.duplicates - before.duplicates,
        }
    }
}

fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        published: one.published + other.published,
        delivered: one.delivered + other.delivered,
        duplicates: one.duplicates + other.duplicates,
        data_sent: one.data_sent + other.data_sent,
        data_bytes_sent: one.data_bytes_sent + other.data_bytes_sent,
        control_sent: one.control_sent + other.control_sent,
        busy: one.busy + other.busy,
        asked: one.asked + other.asked,
        repaired: one.repaired + other.repaired,
        lost: one.lost + other.lost,
        strikes: one.strikes + other.strikes,
    }
}

impl Shell for Port<'_> {
    fn send(&mut self, peer: &Peer, _lane: &LaneName, _flow: u64, message: Bytes) -> SendOutcome {
        let Some(to) = node_of(&peer.0) else { return SendOutcome::NotReady };
        if !self.network.nodes[self.node].behaviour.lets_out(&message) {
            return SendOutcome::Sent;
        }
        self.network.transmit(self.node, to, message)
    }

    fn shed_oldest(&mut self, _peer: &Peer, _flow: u64, _bytes: usize) -> usize {
        0 // what is on a simulated link is on its way
    }

    fn disconnect(&mut self, peer: &Peer, why: DisconnectReason) {
        let Some(other) = node_of(&peer.0) else { return };
        self.network.disconnects.push((self.node, other, why));
        let pair = (self.node.min(other), self.node.max(other));
        self.network.at(self.network.now, Coming::Break { pair });
    }

    fn deliver(&mut self, _lane: &LaneName, message: Delivered<'_>) {
        let (now, node) = (self.network.now, self.node);
        let from_honest = node_of(&message.origin.0)
            .and_then(|origin| self.network.nodes.get(origin))
            .is_some_and(|origin| matches!(origin.behaviour, Behaviour::Honest));
        self.network.witness.delivered(now, node, &message, from_honest);
    }

    fn gap(&mut self, lane: &LaneName, origin: &Origin, epoch: u64, from: u64, to: u64) {
        self.network.witness.gap(self.node, lane, origin, epoch, from, to);
    }

    fn new_epoch(&mut self, lane: &LaneName, origin: &Origin, epoch: u64) {
        self.network.witness.new_epoch(self.node, lane, origin, epoch);
    }
}
