//! Data that comes in: taken once, in the order of its origin.

use std::cmp::Ordering;

use crate::CONTROL_FLOW;
use crate::config::Signatures;
use crate::lane::repair::Source;
use crate::lane::{Lane, Next};
use crate::names::{self, Micros, Origin};
use crate::origin::{Claim, OriginState, Waiting};
use crate::peers::Session;
use crate::ring::Stored;
use crate::shell::{Misbehaviour, SendOutcome, Shell};
use crate::turn::{Proof, Shared, Turn};
use crate::wire::{self, Body, Data, Key, Message};

/// A copy of what was asked for within this time is the answer, not a needless push.
const ANSWER_WITHIN: Micros = 10_000_000;
/// The wait for a push grows up to so many times its base.
const GRAFT_WAIT_GROWTH: Micros = 16;

/// Time for which an origin that somebody spoke for is only believed on its own session.
const DISPUTE_LASTS: Micros = 60_000_000;
/// Numbers that others may be ahead of an origin's own session, since ways differ.
const AHEAD_OF_ORIGIN_MAX: u64 = 4096;

impl Lane {
    /// A peer sent a message of this lane.
    pub(crate) fn receive<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        message: Message,
    ) -> Result<(), Misbehaviour> {
        if matches!(message.body, Body::Data(_) | Body::ChunkHead(_) | Body::Chunk(_)) {
            self.consume(turn, session, message.encoded_len() as u64);
        }
        match message.body {
            Body::Data(data) => self.on_data(turn, session, &data),
            Body::ChunkHead(head) => self.on_chunk_head(turn, session, head),
            Body::Chunk(chunk) => self.on_chunk(turn, session, chunk),
            Body::Digest { no_push, entries } => {
                let source = if no_push { Source::Asked } else { Source::Pushed };
                self.on_entries(turn, session, &entries, source)
            }
            Body::Summary { reply, entries } => {
                if reply && let Some(link) = self.link_mut(session) {
                    link.summary_at = turn.now;
                    self.wake(turn.now);
                }
                self.on_entries(turn, session, &entries, Source::Summary)
            }
            Body::Graft(want) => {
                self.on_graft(turn, session);
                self.on_want(turn, session, want);
                Ok(())
            }
            Body::Pull(want) => {
                self.on_want(turn, session, want);
                Ok(())
            }
            Body::Prune { is_full } => {
                self.on_prune(turn, session, is_full);
                Ok(())
            }
            Body::Credit { consumed } => {
                self.on_credit(turn, session, consumed);
                Ok(())
            }
            Body::Answer(answer) => {
                self.on_answer(turn, session, &answer);
                Ok(())
            }
            Body::Join => {
                self.on_join(turn, session);
                Ok(())
            }
            Body::Leave => {
                if let Some(link) = self.link_mut(session) {
                    link.is_child = false;
                }
                Ok(())
            }
        }
    }

    /// Counts data against the sender's credit, and gives credit back in steps.
    fn consume<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, bytes: u64) {
        let Some(consumed) = self.link_mut(session).and_then(|link| link.credit.consume(bytes)) else { return };
        let message = self.encode(Body::Credit { consumed });
        // If there is no room for it, the next data tries again.
        if self.send_control(turn, session, CONTROL_FLOW, message) == SendOutcome::Sent
            && let Some(link) = self.link_mut(session)
        {
            link.credit.tell();
        }
    }

    fn on_credit<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, consumed: u64) {
        let Some(link) = self.link_mut(session) else { return };
        link.credit.acknowledge(turn.now, consumed);
        if link.retry_at != Micros::MAX {
            self.pump(turn, session.slot());
        }
    }

    fn on_data<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, data: &Data) -> Result<(), Misbehaviour> {
        let Data { key, seal, payload, .. } = data;
        let Key { origin, epoch, seq } = key;
        let proof = match self.asks_for_proof(turn.shared, turn.now, session, key) {
            true => {
                let leaf = || names::leaf(origin, *epoch, &self.name, *seq, payload);
                turn.check_seal(session, origin, seal.as_ref(), leaf)?
            }
            false => Proof::NotAsked,
        };
        if self.is_left_to_its_origin(turn, session, key, proof) {
            return Ok(());
        }
        let Some(at) = self.admit(turn, session, key)? else { return Ok(()) };
        let hops = data.hops.clamp(1, turn.shared.config.hops_max.max(1));
        let push = self.is_pushed_on(at, session, *epoch, *seq);
        // Copied out of the read buffer, which a small slice would keep alive, and encoded for the next link in one go.
        let (message, head) = wire::encode_data(&self.name, key, hops.saturating_add(1), seal.as_ref(), payload);
        let stored = Stored::Whole { message, head };
        self.take(turn, at, *seq, Waiting { stored, hops, from: session, push, proof });
        Ok(())
    }

    /// Whether a message's signature is worth a look: this node looks at signatures, and the message would change
    /// something here. A copy would not; what came back would, if it is of a later life of this node.
    pub(super) fn asks_for_proof(&self, shared: &Shared, now: Micros, session: Session, key: &Key) -> bool {
        if shared.config.signatures == Signatures::Off {
            return false;
        }
        if key.origin == shared.me {
            return key.epoch > self.own_standing().map_or(shared.epoch, |(epoch, _)| epoch);
        }
        self.origins.look_up(&key.origin).is_none_or(|origin| match key.epoch.cmp(&origin.epoch) {
            Ordering::Greater => true,
            Ordering::Equal => !origin.knows(key.seq),
            Ordering::Less => gives_way(shared, now, origin, session, key.epoch),
        })
    }

    /// Whether a message is left to the origin's own session: it proves nothing, and somebody spoke for its origin of
    /// late.
    pub(super) fn is_left_to_its_origin<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        key: &Key,
        proof: Proof,
    ) -> bool {
        let is_left = proof == Proof::NotAsked && self.is_disputed(turn, session, (&key.origin, key.epoch, key.seq));
        turn.shared.counts.duplicates += u64::from(is_left);
        is_left
    }

    /// Whether only the origin's own session is believed about it: for a while after it had to begin anew because
    /// somebody had spoken for it, and for as long as somebody goes on with that.
    pub(super) fn is_disputed<S: Shell>(
        &mut self,
        turn: &Turn<'_, S>,
        session: Session,
        (of, epoch, last): (&Origin, u64, u64),
    ) -> bool {
        let shared = &*turn.shared;
        let is_from_another = shared.session_of(of).is_some_and(|own| own != session);
        if !is_from_another || shared.config.signatures == Signatures::Require {
            return false;
        }
        let Some(at) = self.origins.find(of) else { return false };
        let Some(origin) = self.origins.get_mut(at).filter(|origin| turn.now < origin.disputed_until) else {
            return false;
        };
        if epoch > origin.epoch || (epoch == origin.epoch && last > origin.next + AHEAD_OF_ORIGIN_MAX) {
            origin.disputed_until = turn.now.saturating_add(DISPUTE_LASTS);
        }
        true
    }

    /// The origin of a message that is new here, brought to its epoch; nothing if the message is a copy. Asked before
    /// anything is hashed or copied.
    pub(super) fn admit<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        key: &Key,
    ) -> Result<Option<u32>, Misbehaviour> {
        if key.origin == turn.shared.me {
            self.own_came_back(turn, session, (key.epoch, key.seq))?;
            turn.shared.counts.duplicates += 1;
            return Ok(None);
        }
        let at = match self.origins.find(&key.origin) {
            Some(at) => at,
            None => {
                turn.shared.check_epoch(turn.now, session, &key.origin, key.epoch)?;
                self.open_origin(turn, session, key.origin)?
            }
        };
        let Some(origin) = self.origins.get(at) else { return Ok(None) };
        if key.epoch > origin.epoch || gives_way(turn.shared, turn.now, origin, session, key.epoch) {
            turn.shared.check_epoch(turn.now, session, &key.origin, key.epoch)?;
            // A life right after the known one, or before it, or in the middle of a session, is begun by who has
            // learned that others speak for it.
            let is_answer = key.epoch <= origin.epoch.saturating_add(1) || origin.spoke_on == session;
            let is_first = origin.epoch == 0;
            self.switch_epoch(turn, at, key.epoch);
            if is_answer
                && !is_first
                && turn.shared.peers.is_own_session(session, &key.origin)
                && let Some(origin) = self.origins.get_mut(at)
            {
                origin.disputed_until = turn.now.saturating_add(DISPUTE_LASTS);
            }
        }
        if let Some(origin) = self.origins.get_mut(at)
            && origin.spoke_on != session
            && turn.shared.peers.is_own_session(session, &key.origin)
        {
            origin.spoke_on = session;
        }
        let is_new = self.origins.get(at).is_some_and(|origin| key.epoch == origin.epoch && !origin.knows(key.seq));
        if !is_new {
            self.on_duplicate(turn, session, at, key);
        }
        Ok(is_new.then_some(at))
    }

    /// Whether a message goes on as a push.
    pub(super) fn is_pushed_on(&self, at: u32, session: Session, epoch: u64, seq: u64) -> bool {
        let asked = self.origins.get(at).and_then(|origin| origin.repair.as_ref()?.asked);
        asked.is_none_or(|asked| asked.is_live || !asked.covers(session, epoch, seq))
    }

    fn on_duplicate<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, at: u32, key: &Key) {
        turn.shared.counts.duplicates += 1;
        if self.origins.get(at).is_some_and(|origin| key.epoch < origin.epoch) {
            // Not a copy of anything: the link is not given up for it.
            return self.tell_epoch(turn, session, at);
        }
        // Where messages prove nothing, what is known of later numbers than its own may be somebody else's word.
        if turn.shared.config.signatures != Signatures::Require
            && turn.shared.peers.is_own_session(session, &key.origin)
            && self.origins.get(at).is_some_and(|origin| origin.next > key.seq + 1)
        {
            self.tell_epoch(turn, session, at);
        }
        let Some(origin) = self.origins.get_mut(at) else { return };
        let arrival = origin.arrival(key.seq);
        let asked = origin.last_asked.filter(|asked| turn.now.saturating_sub(asked.at) < ANSWER_WITHIN);
        let is_answer = asked.is_some_and(|asked| asked.covers(session, key.epoch, key.seq));
        // Push and answer both came: the push had only been late. Each question counts once.
        if let Some(asked) = asked.filter(|asked| asked.graft && asked.covers(asked.session, key.epoch, key.seq)) {
            origin.last_asked = Some(crate::origin::Asked { graft: false, ..asked });
            self.graft_wait = (2 * self.graft_wait).min(GRAFT_WAIT_GROWTH * turn.shared.config.graft_after);
        }
        let mut first = Session::NONE;
        if let Some(entry) = arrival.and_then(|arrival| self.ring.get_mut(arrival)) {
            entry.duplicates = entry.duplicates.saturating_add(1);
            first = entry.from;
        }
        if !is_answer {
            self.on_second_copy(turn, session, first);
        }
    }

    /// Takes a message: next in its order, or kept until it is. One in chunks was new when its head came, and need not
    /// be when its last chunk does.
    pub(super) fn take<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32, seq: u64, message: Waiting) {
        let Some(origin) = self.origins.get_mut(at) else { return };
        if origin.knows(seq) {
            turn.shared.counts.duplicates += 1;
            return;
        }
        origin.used_at = turn.now;
        if let Some(repair) = &mut origin.repair
            && let Some(asked) = &mut repair.asked
            && asked.covers(message.from, origin.epoch, seq)
        {
            (asked.at, repair.since) = (turn.now, turn.now);
            turn.shared.counts.repaired += 1;
            // Where this node was not there before, an origin begins with the oldest message that somebody holds.
            if !origin.started && asked.from == seq && seq > origin.next {
                origin.next = seq;
                let behind = origin.waiting.split_off(&seq);
                let passed: usize = std::mem::replace(&mut origin.waiting, behind).values().map(Waiting::bytes).sum();
                turn.shared.totals.waiting_bytes -= passed;
            }
        }
        if seq == origin.next {
            self.append(turn, Next { origin: at, seq, message }, None);
            self.drain(turn, at);
        } else {
            self.keep_waiting(turn, at, seq, message);
        }
    }

    /// Delivers what waited for the message before it.
    pub(super) fn drain<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32) {
        loop {
            let Some(origin) = self.origins.get_mut(at) else { return };
            let seq = origin.next;
            if origin.waiting.is_empty() {
                return;
            }
            let Some(message) = origin.waiting.remove(&seq) else { return };
            turn.shared.totals.waiting_bytes -= message.bytes();
            self.append(turn, Next { origin: at, seq, message }, None);
        }
    }

    /// Keeps a message until the ones before it are here. Where there is no room, lower numbers go before higher ones.
    fn keep_waiting<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32, seq: u64, message: Waiting) {
        let (session, bytes) = (message.from, message.bytes());
        let config = &turn.shared.config;
        let Some(origin) = self.origins.get_mut(at) else { return };
        let (epoch, first) = (origin.epoch, origin.next);
        let is_full = |origin: &crate::origin::OriginState, held: usize| {
            origin.waiting.len() >= config.waiting_per_origin_max || held + bytes > config.waiting_bytes_max
        };
        while is_full(origin, turn.shared.totals.waiting_bytes)
            && let Some(last) = origin.waiting.last_entry()
            && *last.key() > seq
        {
            turn.shared.totals.waiting_bytes -= last.remove().bytes();
        }
        if !is_full(origin, turn.shared.totals.waiting_bytes) {
            turn.shared.totals.waiting_bytes += bytes;
            origin.waiting.insert(seq, message);
        }
        let claim = Claim { session, epoch, first, last: seq };
        self.schedule(turn, at, claim, turn.now.saturating_add(self.graft_wait), true);
    }
}

/// Whether the life that is known of an origin gives way to an earlier one, which is itself not far ahead of the clock.
/// The origin's own session may name any; of others' word a life that was over before is none, unless that was far
/// ahead as well.
pub(super) fn gives_way(shared: &Shared, now: Micros, origin: &OriginState, session: Session, to: u64) -> bool {
    to < origin.epoch
        && shared.yields(now, origin.epoch)
        && !shared.yields(now, to)
        && (to > origin.floor || shared.yields(now, origin.floor) || shared.peers.is_own_session(session, &origin.id))
}
