//! The lanes of one engine and the peers they share.

use bytes::Bytes;
use hashbrown::HashMap;

use crate::MESSAGE_BYTES_MAX;
use crate::config::{CoreConfig, Signatures};
use crate::lane::Lane;
use crate::names::{LaneName, Micros, MsgId, Origin, Peer};
use crate::peers::{Peers, Session};
use crate::recall::{Reached, Recall};
use crate::ring::RingEntry;
use crate::rng::Rng;
use crate::seal::{SEAL_BATCH_MAX, Seal, Verified};
use crate::shares::{self, Opener};
use crate::shell::{Misbehaviour, PublishError, Published, Shell};
use crate::turn::{Shared, Totals, Turn};
use crate::wire::{Body, Message};

/// The lanes of one engine.
pub struct Core {
    shared: Shared,
    lanes: Vec<Option<Lane>>,
    by_name: HashMap<LaneName, u32>,
    next_at: Micros,
}

/// What a link is for in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Messages are pushed over it.
    Eager,
    /// Only digests go over it.
    Lazy,
}

/// The way of a message through this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Lane of the message.
    pub lane: LaneName,
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u64,
    /// Peer that brought it first; none for an own publication, or if that peer has left.
    pub from: Option<Peer>,
    /// Links it came over.
    pub hops: u8,
    /// Copies that came after the first.
    pub duplicates: u32,
    /// Peers that the lane's messages are pushed to now.
    pub eager: Vec<Peer>,
    /// Peers that get digests now.
    pub lazy: Vec<Peer>,
}

/// How far an origin has got in a lane at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its current life.
    pub epoch: u64,
    /// Number of the next message; those before it were delivered, told as lost, or before this node's time.
    pub next: u64,
    /// This node has known an earlier life.
    pub is_reborn: bool,
    /// Messages are being asked for: others may be further.
    pub is_behind: bool,
}

/// A message of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u64,
    /// Links it came over.
    pub hops: u8,
    /// Content.
    pub payload: Bytes,
}

/// A message of the ring, before its content is put together.
#[derive(Clone, Copy, Debug)]
pub struct HeldMessage<'a> {
    /// Number of its arrival in its lane.
    pub arrival: u64,
    /// Publisher; none if it is forgotten.
    pub origin: Option<Origin>,
    pub(crate) entry: &'a RingEntry,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Own publications.
    pub published: u64,
    /// Messages handed to the node, own publications included.
    pub delivered: u64,
    /// Messages and chunks that were here already.
    pub duplicates: u64,
    /// Messages and chunks of data given to outboxes.
    pub data_sent: u64,
    /// Bytes of those.
    pub data_bytes_sent: u64,
    /// Other messages given to outboxes.
    pub control_sent: u64,
    /// Times that an outbox had no room or a lane no credit.
    pub busy: u64,
    /// Grafts and pulls sent.
    pub asked: u64,
    /// Messages that came because they were asked for.
    pub repaired: u64,
    /// Messages lost to this node, as told by gaps.
    pub lost: u64,
    /// Strikes given to peers.
    pub strikes: u64,
}

impl Core {
    /// An engine without lanes. `me` is this node as an origin, `epoch` its life (wall-clock milliseconds at `now`,
    /// greater than in any life before), `seed` what its choices among peers are drawn from.
    pub fn new(now: Micros, config: CoreConfig, me: Origin, epoch: u64, seed: u64) -> Self {
        let shared = Shared {
            config,
            me,
            epoch,
            wall_clock: (epoch, now),
            own_latest: epoch.saturating_sub(1),
            peers: Peers::default(),
            totals: Totals::default(),
            partial_shares: HashMap::new(),
            counts: Counts::default(),
            rng: Rng::new(seed),
            recall: Recall::default(),
            verified: Verified::default(),
            arrivals: 0,
            doomed: Vec::new(),
        };
        Core { shared, lanes: Vec::new(), by_name: HashMap::new(), next_at: Micros::MAX }
    }

    /// What the wall clock shows in milliseconds. Told now and then, since it may be set while the node runs: a machine
    /// that starts before it knows the time, or slept, would otherwise refuse the lives of all others.
    pub fn set_wall_clock(&mut self, now: Micros, wall_ms: u64) {
        self.shared.wall_clock = (wall_ms, now);
    }

    /// A session to a peer is up. False if the peer is up already, or there are as many as there may be.
    pub fn peer_up<S: Shell>(&mut self, now: Micros, peer: Peer, shell: &mut S) -> bool {
        let Some(session) = self.shared.peers.join(now, peer, &self.shared.config) else { return false };
        for lane in self.lanes.iter_mut().flatten() {
            lane.peer_up(&self.shared, now, session);
            self.next_at = self.next_at.min(lane.due());
        }
        self.finish(now, shell);
        true
    }

    /// The session to a peer is gone.
    pub fn peer_down<S: Shell>(&mut self, now: Micros, peer: &Peer, shell: &mut S) {
        let Some(session) = self.shared.peers.leave(peer) else { return };
        let mut turn = Turn { now, shared: &mut self.shared, shell };
        for lane in self.lanes.iter_mut().flatten() {
            lane.peer_down(&mut turn, session);
            self.next_at = self.next_at.min(lane.due());
        }
    }

    /// A peer sent a message. What it did wrong is counted against it; whoever does too much of it is disconnected.
    pub fn receive<S: Shell>(
        &mut self,
        now: Micros,
        peer: &Peer,
        message: Message,
        shell: &mut S,
    ) -> Result<(), Misbehaviour> {
        let session = self.shared.peers.session(peer).ok_or(Misbehaviour::UnknownPeer)?;
        let Some(at) = self.lane_of(now, session, &message, shell)? else { return Ok(()) };
        let Some(lane) = &mut self.lanes[at] else { return Ok(()) };
        let outcome = lane.receive(&mut Turn { now, shared: &mut self.shared, shell }, session, message);
        self.next_at = self.next_at.min(lane.due());
        self.finish(now, shell);
        outcome
    }

    /// The lane of a message; only messages that say that something exists open one.
    fn lane_of<S: Shell>(
        &mut self,
        now: Micros,
        session: Session,
        message: &Message,
        shell: &S,
    ) -> Result<Option<usize>, Misbehaviour> {
        if let Some(at) = self.by_name.get(&message.lane) {
            return Ok(Some(*at as usize));
        }
        let opens = match &message.body {
            Body::Data(_) | Body::ChunkHead(_) | Body::Digest { .. } => true,
            Body::Summary { entries, .. } => !entries.is_empty(),
            _ => false,
        };
        if !opens {
            return Ok(None);
        }
        let rate = self.shared.config.openings;
        let opener = self.shared.peers.pay_opening(session, rate, now);
        match opener.and_then(|opener| self.open_lane(now, message.lane, Some(opener), shell)) {
            Some(at) => Ok(Some(at)),
            None => Err(self.shared.offence(now, session, Misbehaviour::TooManyOpenings)),
        }
    }

    /// Opens a lane; where there is no room, another goes.
    fn open_lane<S: Shell>(&mut self, now: Micros, name: LaneName, opener: Opener, shell: &S) -> Option<usize> {
        if self.by_name.len() >= self.shared.config.lanes_max {
            // What is waited for here is this node's own wish, whoever brings it.
            let newcomer = opener.filter(|_| !shell.is_heard(&name));
            let goes = self.lane_to_forget(now, newcomer, shell)?;
            self.forget_lane(now, &goes);
        }
        let lane = Lane::new(&mut self.shared, now, name, opener);
        self.next_at = self.next_at.min(lane.due());
        let at = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        match self.lanes.get_mut(at) {
            Some(free) => *free = Some(lane),
            None => self.lanes.push(Some(lane)),
        }
        self.by_name.insert(name, at as u32);
        Some(at)
    }

    /// The lane that goes for one of the newcomer's: the quietest of whoever has most. A lane that this node hears, or
    /// published in of late, is its own, whoever was first; its own never go for a peer's, and those with subscribers
    /// last.
    fn lane_to_forget<S: Shell>(&self, now: Micros, newcomer: Opener, shell: &S) -> Option<LaneName> {
        let quiet_after = self.shared.config.quiet_after;
        let seen = self.lanes.iter().flatten().map(|lane| {
            let is_heard = shell.is_heard(&lane.name);
            let is_own = is_heard || lane.is_published(now, quiet_after);
            (lane, is_heard, is_own, if is_own { None } else { lane.opened_by })
        });
        let may_go: Vec<_> = seen.filter(|(_, _, is_own, _)| newcomer.is_none() || !is_own).collect();
        let largest = shares::largest(may_go.iter().map(|(.., opener)| *opener), newcomer)?;
        let of_it = may_go.into_iter().filter(|(.., opener)| *opener == largest.opener);
        let (lane, ..) = of_it.min_by_key(|(lane, is_heard, ..)| (*is_heard, lane.used_at))?;
        Some(lane.name)
    }

    fn forget_lane(&mut self, now: Micros, name: &LaneName) {
        let Some(at) = self.by_name.remove(name) else { return };
        if let Some(mut lane) = self.lanes[at as usize].take() {
            self.shared.arrivals = self.shared.arrivals.max(lane.tip());
            lane.forget(&mut self.shared, now);
        }
    }

    /// This node publishes a message. It is delivered here, pushed and announced before the call returns; a slow peer
    /// is never waited for.
    pub fn publish<S: Shell>(
        &mut self,
        now: Micros,
        lane: &LaneName,
        payload: &Bytes,
        shell: &mut S,
    ) -> Result<Published, PublishError> {
        if self.shared.config.signatures != Signatures::Off {
            let first = self.publish_batch(now, lane, std::slice::from_ref(payload), shell).pop();
            return first.unwrap_or(Err(PublishError::Busy { retry_after_ms: 0 }));
        }
        self.publish_one(now, lane, payload, None, shell)
    }

    /// Publishes several messages of a lane one after the other. Where this node signs, each [`SEAL_BATCH_MAX`] of them
    /// have one signature; they are numbered before any is sent.
    pub fn publish_batch<S: Shell>(
        &mut self,
        now: Micros,
        lane: &LaneName,
        payloads: &[Bytes],
        shell: &mut S,
    ) -> Vec<Result<Published, PublishError>> {
        let mut outcomes = Vec::with_capacity(payloads.len());
        for batch in payloads.chunks(SEAL_BATCH_MAX) {
            // What is too large takes no number, so it is no part of what is signed.
            let fitting = batch.iter().filter(|payload| payload.len() <= MESSAGE_BYTES_MAX);
            let mut seals = self.seals(now, lane, fitting, shell).into_iter().flatten();
            for payload in batch {
                let seal = if payload.len() <= MESSAGE_BYTES_MAX { seals.next() } else { None };
                outcomes.push(self.publish_one(now, lane, payload, seal, shell));
            }
        }
        outcomes
    }

    /// Seals for the next messages of this node in a lane. A message that the lane's budget refuses is followed by
    /// refusals alone, since no time passes meanwhile: so the numbers that were sealed are those that are given.
    fn seals<'a, S: Shell>(
        &mut self,
        now: Micros,
        lane: &LaneName,
        payloads: impl Iterator<Item = &'a Bytes>,
        shell: &mut S,
    ) -> Option<Vec<Seal>> {
        let at = self.own_lane(now, lane, shell).ok()?;
        let lane = self.lanes[at].as_mut()?;
        lane.seals(&mut Turn { now, shared: &mut self.shared, shell }, payloads)
    }

    /// The lane that this node publishes in; opened if it is new.
    fn own_lane<S: Shell>(&mut self, now: Micros, lane: &LaneName, shell: &S) -> Result<usize, PublishError> {
        match self.by_name.get(lane) {
            Some(at) => Ok(*at as usize),
            None => self
                .open_lane(now, *lane, None, shell)
                .ok_or(PublishError::TooManyLanes { max: self.shared.config.lanes_max }),
        }
    }

    fn publish_one<S: Shell>(
        &mut self,
        now: Micros,
        lane: &LaneName,
        payload: &Bytes,
        seal: Option<Seal>,
        shell: &mut S,
    ) -> Result<Published, PublishError> {
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(PublishError::TooLarge { max: MESSAGE_BYTES_MAX });
        }
        let at = self.own_lane(now, lane, shell)?;
        let Some(lane) = &mut self.lanes[at] else {
            return Err(PublishError::TooManyLanes { max: self.shared.config.lanes_max });
        };
        let mut turn = Turn { now, shared: &mut self.shared, shell };
        let published = lane.publish(&mut turn, payload, seal).map_err(|wait| {
            let retry_after_ms = wait.div_ceil(1000).min(u64::from(u32::MAX)) as u32;
            PublishError::Busy { retry_after_ms }
        });
        self.next_at = self.next_at.min(lane.due());
        self.finish(now, shell);
        published
    }

    /// Does what is due, and says when the next thing is. Every event may bring that time forward: ask
    /// [`Core::next_at`] after a batch of them.
    pub fn tick<S: Shell>(&mut self, now: Micros, shell: &mut S) -> Micros {
        if now < self.next_at {
            return self.next_at;
        }
        let mut turn = Turn { now, shared: &mut self.shared, shell };
        let mut next_at = Micros::MAX;
        for lane in self.lanes.iter_mut().flatten() {
            lane.tick(&mut turn);
            next_at = next_at.min(lane.due());
        }
        self.next_at = next_at;
        self.finish(now, shell);
        self.next_at
    }

    /// When the next thing is due.
    pub fn next_at(&self) -> Micros {
        self.next_at
    }

    /// The end of a turn: the bound over all lanes, and the peers that have to go.
    fn finish<S: Shell>(&mut self, now: Micros, shell: &mut S) {
        while self.shared.totals.ring_bytes > self.shared.config.ring_bytes_max {
            self.trim_largest();
        }
        while self.shared.totals.origins > self.shared.config.origins_max && self.trim_origins(now) {}
        while let Some((peer, why)) = self.shared.doomed.pop() {
            self.peer_down(now, &peer, shell);
            shell.disconnect(&peer, why);
        }
    }

    /// The lane that holds most gives way, a sixteenth of what it has at once: the search looks at every lane.
    fn trim_largest(&mut self) {
        let Some(lane) = self.lanes.iter_mut().flatten().max_by_key(|lane| lane.ring_bytes()) else { return };
        let goal = lane.ring_bytes() - lane.ring_bytes() / 16;
        while lane.ring_bytes() >= goal.max(1) && lane.evict(&mut self.shared) > 0 {}
    }

    /// Forgets the quietest origins of the peer that brought most of them; false if there are none. Several at once,
    /// since the search looks at every origin, but not more than what that peer has over an equal share.
    fn trim_origins(&mut self, now: Micros) -> bool {
        let bound = self.shared.config.origins_max;
        let lanes = || self.lanes.iter().enumerate().filter_map(|(lane, state)| Some((lane, state.as_ref()?)));
        let origins = || lanes().flat_map(|(lane, state)| state.foreign().map(move |(at, origin)| (lane, at, origin)));
        let Some(largest) = shares::largest(origins().map(|(_, _, origin)| origin.opened_by), None) else {
            return false;
        };
        let of_it = origins().filter(|(_, _, origin)| origin.opened_by == largest.opener);
        let mut by_use: Vec<_> = of_it.map(|(lane, at, origin)| (origin.used_at, lane, at)).collect();
        by_use.sort_unstable();
        let goes = largest.entries.saturating_sub(bound / largest.openers).min(bound / 64).max(1);
        for (_, lane, at) in by_use.into_iter().take(goes) {
            if let Some(lane) = &mut self.lanes[lane] {
                lane.forget_origin(&mut self.shared, now, at);
            }
        }
        true
    }

    /// Messages of an origin's current epoch that the ring still holds, from a number on.
    pub fn replay(
        &self,
        lane: &LaneName,
        origin: &Origin,
        from_seq: u64,
    ) -> impl Iterator<Item = HeldMessage<'_>> + use<'_> {
        self.lane(lane).into_iter().flat_map({
            let origin = *origin;
            move |lane| lane.replay(&origin, from_seq)
        })
    }

    /// How far an origin has got, whether the ring holds any of it or not; none if nothing came of it, or so long ago
    /// that it is forgotten.
    pub fn standing(&self, lane: &LaneName, origin: &Origin) -> Option<Standing> {
        if let Some(known) = self.lane(lane).and_then(|lane| lane.standing(origin)) {
            return known;
        }
        let Reached { epoch, next } = self.shared.recall.recall(&(lane.flow(), *origin))?;
        Some(Standing { epoch, next, is_reborn: false, is_behind: false })
    }

    /// The first message of a lane, of any origin and epoch, that the ring holds from an arrival on.
    pub fn arrived(&self, lane: &LaneName, arrival: u64) -> Option<HeldMessage<'_>> {
        self.lane(lane)?.arrived(arrival)
    }

    /// Arrival that is above those of all messages that the lane has had, and not above the next one's.
    pub fn tip(&self, lane: &LaneName) -> u64 {
        self.lane(lane).map_or(self.shared.arrivals, Lane::tip)
    }

    fn lane(&self, name: &LaneName) -> Option<&Lane> {
        self.lanes[*self.by_name.get(name)? as usize].as_ref()
    }

    /// The lanes, and what the link to a peer is for in each.
    pub fn lanes_of(&self, peer: &Peer) -> Vec<(LaneName, Link)> {
        let Some(session) = self.shared.peers.session(peer) else { return Vec::new() };
        self.lanes.iter().flatten().filter_map(|lane| Some((lane.name, lane.link(session)?))).collect()
    }

    /// The way of a message that the ring still holds. The ring is hashed to find it: for a person who asks, not for a
    /// program that does so often.
    pub fn trace(&self, id: &MsgId) -> Option<Trace> {
        self.lanes.iter().flatten().find_map(|lane| lane.trace(&self.shared, id))
    }

    /// Bytes of memory held; never more than [`CoreConfig::memory_bytes_max`].
    pub fn memory_bytes(&self) -> usize {
        let Totals { ring_bytes, waiting_bytes, partial_bytes, .. } = self.shared.totals;
        let lanes: usize = self.lanes.iter().flatten().map(Lane::memory_bytes).sum();
        let shared = &self.shared;
        let tables = shared.peers.memory_bytes() + shared.recall.memory_bytes() + shared.verified.memory_bytes();
        ring_bytes + waiting_bytes + partial_bytes + lanes + tables
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.shared.counts
    }
}

#[cfg(test)]
mod tests;
