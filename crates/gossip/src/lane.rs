//! One lane: its ring, its origins, its links, and a message's way through them.

mod news;
mod partial;
mod push;
mod receive;
mod repair;
mod serve;
mod table;
mod tree;

use bytes::Bytes;

use crate::FAN_OUT_MAX;
use crate::budget::Bucket;
use crate::core::{Held, HeldMessage, Link, Standing, Trace};
use crate::link::LinkState;
use crate::names::{self, LaneName, Micros, MsgId, Origin};
use crate::origin::{Origins, Waiting};
use crate::peers::Session;
use crate::ring::{Ring, RingEntry, Stored};
use crate::seal::Seal;
use crate::shares::Opener;
use crate::shell::{Delivered, Outcomes, Published, SendOutcome, Shell, SlowConsumer};
use crate::turn::{Shared, Turn};
use crate::wire::{self, Key, Message};
use news::News;
use partial::Partial;
use tree::Tree;

pub(crate) use partial::PARTIAL_OVERHEAD_BYTES;
pub(crate) use table::LANE_BYTES;

/// One lane.
pub(crate) struct Lane {
    pub(crate) name: LaneName,
    flow: u64,
    policy: SlowConsumer,
    ring: Ring,
    origins: Origins,
    /// This node among the origins.
    own: Option<u32>,
    /// Links by the peer's place.
    links: Vec<LinkState>,
    /// Places of the links that are pushed over.
    eager: Vec<u16>,
    /// New messages that were pushed: lazy links get their digest.
    fresh: News,
    /// New messages that were asked for and not pushed on: every link gets their digest.
    history: News,
    partials: Vec<Partial>,
    tree: Tree,
    frames: Bucket,
    /// Origins with messages to be asked for.
    repairing: Vec<u32>,
    /// Time a push may come later than its digest: grows when asking was needless.
    graft_wait: Micros,
    /// When a random peer gets a summary.
    summary_at: Micros,
    pub(crate) used_at: Micros,
    /// Who brought the first news of the lane.
    pub(crate) opened_by: Opener,
    /// When this node last published in it.
    published_at: Option<Micros>,
    /// When this node last began a life of its own anew because a peer knew a later one.
    began_anew_at: Option<Micros>,
    due: Micros,
}

/// A message that is next in its origin's order.
struct Next {
    origin: u32,
    seq: u64,
    message: Waiting,
}

impl Lane {
    pub(crate) fn new(shared: &mut Shared, now: Micros, name: LaneName, opened_by: Opener) -> Self {
        let config = &shared.config;
        let mut lane = Lane {
            name,
            flow: name.flow(),
            policy: config.slow_consumer_of.get(&name).copied().unwrap_or(config.slow_consumer),
            ring: Ring::starting_at(shared.arrivals),
            origins: Origins::default(),
            own: None,
            links: Vec::new(),
            eager: Vec::with_capacity(FAN_OUT_MAX),
            fresh: News::default(),
            history: News::default(),
            partials: Vec::new(),
            tree: Tree::default(),
            frames: Bucket::full(config.lane_frames, now),
            repairing: Vec::new(),
            graft_wait: config.graft_after,
            summary_at: now.saturating_add(config.summary_every),
            used_at: now,
            opened_by,
            published_at: None,
            began_anew_at: None,
            due: Micros::MAX,
        };
        lane.wake(lane.summary_at);
        // Which peers are pushed to first is left to chance: with fixed places a node with many peers would load the
        // same eight in every lane.
        let mut sessions: Vec<Session> = shared.peers.sessions().collect();
        for at in (1..sessions.len()).rev() {
            sessions.swap(at, shared.rng.below(at + 1));
        }
        sessions.into_iter().for_each(|session| lane.join(shared, now, session));
        lane
    }

    /// Whether this node published in the lane of late.
    pub(crate) fn is_published(&self, now: Micros, quiet_after: Micros) -> bool {
        self.published_at.is_some_and(|at| now.saturating_sub(at) < quiet_after)
    }

    /// When something is due in this lane.
    pub(crate) fn due(&self) -> Micros {
        self.due
    }

    fn wake(&mut self, at: Micros) {
        self.due = self.due.min(at);
    }

    // --- peers ---

    /// A peer is here; it is pushed to while there is room and nothing speaks against it.
    fn join(&mut self, shared: &Shared, now: Micros, session: Session) {
        let slots = shared.peers.slots().max(session.slot() + 1);
        if self.links.len() < slots {
            self.links.resize_with(slots, LinkState::nobody);
        }
        self.links[session.slot()] = LinkState::new(now, session, self.ring.tip());
        self.set_eager(session);
    }

    /// A session is up: both sides say what they hold.
    pub(crate) fn peer_up(&mut self, shared: &Shared, now: Micros, session: Session) {
        self.join(shared, now, session);
        if self.ring.len() > 0 {
            self.links[session.slot()].summary_at = now;
            self.wake(now);
        }
    }

    pub(crate) fn peer_down<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session) {
        if self.links.get(session.slot()).is_none_or(|link| link.session != session) {
            return;
        }
        turn.shared.totals.serves -= self.links[session.slot()].serves.len();
        self.links[session.slot()] = LinkState::nobody();
        self.eager.retain(|slot| usize::from(*slot) != session.slot());
        self.tree.peer_down(session);
        self.partials
            .iter_mut()
            .filter(|partial| partial.from == session)
            .for_each(|partial| partial.from = Session::NONE);
        for at in &self.repairing {
            if let Some(repair) = self.origins.get_mut(*at).and_then(|origin| origin.repair.as_mut())
                && repair.asked.is_some_and(|asked| asked.session == session)
            {
                (repair.asked, repair.due) = (None, turn.now);
            }
        }
        self.wake(turn.now);
    }

    fn link_mut(&mut self, session: Session) -> Option<&mut LinkState> {
        self.links.get_mut(session.slot()).filter(|link| link.session == session)
    }

    /// Pushes over a link from now on, if the fan-out allows it.
    fn set_eager(&mut self, session: Session) -> bool {
        let tip = self.ring.tip();
        let has_room = self.eager.len() < FAN_OUT_MAX;
        let Some(link) = self.link_mut(session) else { return false };
        if !link.eager && has_room {
            (link.eager, link.cursor, link.half) = (true, tip, None);
            self.eager.push(session.slot() as u16);
            return true;
        }
        link.eager
    }

    /// Sends digests over a link from now on. What it was behind with is told by a summary.
    fn set_lazy(&mut self, now: Micros, session: Session) {
        let tip = self.ring.tip();
        let Some(link) = self.link_mut(session) else { return };
        (link.half, link.is_child, link.has_joined) = (None, false, false);
        if !std::mem::replace(&mut link.eager, false) {
            return;
        }
        if link.cursor < tip {
            link.summary_at = now;
        }
        self.eager.retain(|slot| usize::from(*slot) != session.slot());
        self.wake(now);
    }

    // --- a message's way ---

    /// This node among the origins, and the number of its next message.
    fn next_own<S: Shell>(&mut self, turn: &mut Turn<'_, S>) -> (u32, Key) {
        let at = self.own_origin(turn);
        let (epoch, seq) = self.origins.get(at).map_or((0, 0), |origin| (origin.epoch, origin.next));
        (at, Key { origin: turn.shared.me, epoch, seq })
    }

    /// Seals for the next own messages; none where this node does not sign.
    pub(crate) fn seals<'a, S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        payloads: impl Iterator<Item = &'a Bytes>,
    ) -> Option<Vec<Seal>> {
        let (_, Key { origin, epoch, seq }) = self.next_own(turn);
        let numbered = (seq..).zip(payloads);
        turn.seal(numbered.map(|(seq, payload)| names::leaf(&origin, epoch, &self.name, seq, payload)))
    }

    /// Publishes an own message.
    pub(crate) fn publish<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        payload: &Bytes,
        seal: Option<Seal>,
    ) -> Result<Published, Micros> {
        self.frames.take(turn.shared.config.lane_frames, turn.now, 1)?;
        self.published_at = Some(turn.now);
        let (at, key) = self.next_own(turn);
        let Key { epoch, seq, .. } = key;
        let stored = Stored::publish(&self.name, &key, seal.as_ref(), payload);
        let hashes = stored.hashes().cloned();
        let mut outcomes = Outcomes::default();
        let message = Waiting { stored, hops: 0, from: Session::NONE, push: true };
        self.append(turn, Next { origin: at, seq, message }, Some(&mut outcomes));
        turn.shared.counts.published += 1;
        Ok(Published { epoch, seq, outcomes, hashes })
    }

    /// Puts the next message of an origin into the ring, hands it to the node and sends it on. Messages leave in the
    /// order of the ring, so a hole is mended once, where it arose, and not again at every node behind.
    fn append<S: Shell>(&mut self, turn: &mut Turn<'_, S>, next: Next, outcomes: Option<&mut Outcomes>) {
        let Next { origin: at, seq, message: Waiting { stored, hops, from, push } } = next;
        if !self.partials.is_empty() {
            // It came another way, or the order begins after it: what else came of it is of no use.
            self.drop_partials(turn, |partial| partial.origin == at && partial.seq <= seq);
        }
        let Some(origin) = self.origins.get_mut(at) else { return };
        let (epoch, arrival) = (origin.epoch, self.ring.tip());
        (origin.next, origin.started, origin.used_at) = (seq + 1, true, turn.now);
        origin.held.push_back((seq, arrival));
        self.used_at = turn.now;
        let way_before = self.tree.lead(turn.now, (origin.id, at), from);
        let (lane, origin) = (&self.name, &origin.id);
        let delivered = Delivered { lane, origin, epoch, seq, hops, arrival, stored: &stored };
        turn.shell.deliver(&self.name, delivered);
        turn.shared.counts.delivered += 1;
        let entry = RingEntry { origin: at, hops, epoch, seq, from, duplicates: 0, stored };
        turn.shared.totals.ring_bytes += entry.bytes();
        self.ring.push(entry);
        let relays = hops < turn.shared.config.hops_max && self.is_passed_on(turn.shared, turn.now, at, epoch);
        if push && relays {
            self.push_out(turn, arrival, from != Session::NONE, outcomes);
        } else {
            self.pass_over(arrival);
        }
        if relays {
            self.announce(turn, at, epoch, seq, from, push);
        }
        if way_before != self.tree.parent {
            self.change_parent(turn, way_before);
        }
        self.trim(turn);
    }

    /// Whether others are given what an origin published in a life: own messages are, whatever the clock was set to
    /// since.
    fn is_passed_on(&self, shared: &Shared, now: Micros, at: u32, epoch: u64) -> bool {
        self.own == Some(at) || shared.is_relayed(now, epoch)
    }

    /// Keeps the ring within the lane's bounds.
    fn trim<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        let (bytes, messages) = (turn.shared.config.ring_bytes_per_lane, turn.shared.config.ring_messages_per_lane);
        while self.ring.len() > 1 && (self.ring.bytes() > bytes || self.ring.len() > messages) {
            self.evict(turn.shared);
        }
    }

    /// Lets the oldest message of the ring go; its bytes.
    pub(crate) fn evict(&mut self, shared: &mut Shared) -> usize {
        let Some((arrival, entry)) = self.ring.pop() else { return 0 };
        let bytes = entry.bytes();
        shared.totals.ring_bytes -= bytes;
        if let Some(origin) = self.origins.get_mut(entry.origin) {
            origin.let_go(arrival);
        }
        bytes
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring.bytes()
    }

    // --- sending ---

    /// Sends what is not data; it needs no credit.
    fn send_control<S: Shell>(
        &self,
        turn: &mut Turn<'_, S>,
        session: Session,
        flow: u64,
        message: Bytes,
    ) -> SendOutcome {
        let Some(peer) = turn.shared.peers.id(session) else { return SendOutcome::NotReady };
        let outcome = turn.shell.send(&peer, &self.name, flow, message);
        match outcome {
            SendOutcome::Sent => turn.shared.counts.control_sent += 1,
            SendOutcome::Busy { .. } => turn.shared.counts.busy += 1,
            _ => {}
        }
        outcome
    }

    fn encode(&self, body: wire::Body) -> Bytes {
        Message { lane: self.name, body }.encode()
    }

    // --- time ---

    /// Does what is due.
    pub(crate) fn tick<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        if turn.now < self.due {
            return;
        }
        self.due = Micros::MAX;
        self.tell_news(turn);
        self.expire_partials(turn);
        for place in (0..self.repairing.len()).rev() {
            let at = self.repairing[place];
            if self.origins.get(at).and_then(|origin| origin.repair.as_ref()).is_some_and(|it| it.due <= turn.now) {
                self.repair(turn, at);
            }
        }
        self.repairing.retain(|at| self.origins.get(*at).is_some_and(|origin| origin.repair.is_some()));
        self.send_summaries(turn);
        for slot in 0..self.links.len() {
            if self.links[slot].retry_at <= turn.now {
                self.pump(turn, slot);
            }
        }
        self.due = self.due.min(self.next_due(turn.shared.config.gap_after));
    }

    fn next_due(&self, gap_after: Micros) -> Micros {
        let links = self.links.iter().map(LinkState::due).min().unwrap_or(Micros::MAX);
        let repair = |at: &u32| Some(self.origins.get(*at)?.repair.as_ref()?.due);
        let repairs = self.repairing.iter().filter_map(repair).min().unwrap_or(Micros::MAX);
        let partials = self.partials_due(gap_after);
        links.min(repairs).min(partials).min(self.summary_at).min(self.fresh.due()).min(self.history.due())
    }

    // --- questions from outside ---

    pub(crate) fn link(&self, session: Session) -> Option<Link> {
        let link = self.links.get(session.slot()).filter(|link| link.session == session)?;
        Some(if link.eager { Link::Eager } else { Link::Lazy })
    }

    pub(crate) fn replay<'a>(&'a self, id: &Origin, from_seq: u64) -> impl Iterator<Item = HeldMessage<'a>> + use<'a> {
        let origin = self.origins.look_up(id);
        let first = origin.map_or(0, |origin| origin.held.partition_point(|(seq, _)| *seq < from_seq));
        let held = origin.into_iter().flat_map(move |origin| origin.held.range(first..));
        held.filter_map(|(_, arrival)| self.held_at(*arrival))
    }

    /// How far an origin has got; none if the lane does not know it, and nothing if it has not begun here.
    pub(crate) fn standing(&self, id: &Origin) -> Option<Option<Standing>> {
        let origin = self.origins.look_up(id)?;
        let standing = Standing {
            epoch: origin.epoch,
            next: origin.next,
            is_reborn: origin.is_reborn,
            is_behind: origin.repair.is_some() || !origin.waiting.is_empty(),
        };
        Some(origin.started.then_some(standing))
    }

    /// The first message that the ring holds from an arrival on.
    pub(crate) fn arrived(&self, arrival: u64) -> Option<HeldMessage<'_>> {
        self.held_at(arrival.max(self.ring.base()))
    }

    fn held_at(&self, arrival: u64) -> Option<HeldMessage<'_>> {
        let entry = self.ring.get(arrival)?;
        let origin = self.origins.get(entry.origin).map(|origin| origin.id);
        Some(HeldMessage { arrival, origin, entry })
    }

    /// Arrival that the next message will have.
    pub(crate) fn tip(&self) -> u64 {
        self.ring.tip()
    }

    /// The way of a message. Ids are not kept: whoever asks pays for hashing the ring.
    pub(crate) fn trace(&self, shared: &Shared, id: &MsgId) -> Option<Trace> {
        let (entry, origin) = self.ring.iter().find_map(|entry| {
            let origin = self.origins.get(entry.origin)?.id;
            let key = Key { origin, epoch: entry.epoch, seq: entry.seq };
            (entry.stored.msg_id(&self.name, &key) == *id).then_some((entry, origin))
        })?;
        let peers = |eager: bool| {
            let links = self.links.iter().filter(move |link| link.is_up() && link.eager == eager);
            links.filter_map(|link| shared.peers.id(link.session)).collect()
        };
        Some(Trace {
            lane: self.name,
            origin,
            epoch: entry.epoch,
            seq: entry.seq,
            from: shared.peers.id(entry.from),
            hops: entry.hops,
            duplicates: entry.duplicates,
            eager: peers(true),
            lazy: peers(false),
        })
    }
}

#[cfg(test)]
impl Lane {
    pub(crate) fn origins_for_test(&self) -> impl Iterator<Item = (u32, &crate::origin::OriginState)> {
        self.origins.iter()
    }

    pub(crate) fn partials_for_test(&self) -> &[Partial] {
        &self.partials
    }
}

impl HeldMessage<'_> {
    /// Bytes of the content.
    pub fn payload_bytes(&self) -> usize {
        self.entry.stored.payload_bytes()
    }

    /// Number of the message.
    pub fn seq(&self) -> u64 {
        self.entry.seq
    }

    /// Life of the publisher.
    pub fn epoch(&self) -> u64 {
        self.entry.epoch
    }

    /// The message with its content, which is put together if it travelled in chunks.
    pub fn read(&self) -> Held {
        let RingEntry { epoch, seq, hops, stored, .. } = self.entry;
        Held { epoch: *epoch, seq: *seq, hops: *hops, payload: stored.payload() }
    }
}
