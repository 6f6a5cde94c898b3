//! Data that comes in: taken once, in the order of its origin.

use crate::CONTROL_FLOW;
use crate::config::Signatures;
use crate::lane::repair::Source;
use crate::lane::{Lane, Next};
use crate::names::{self, Micros};
use crate::origin::{Claim, Waiting};
use crate::peers::Session;
use crate::ring::Stored;
use crate::shell::{Misbehaviour, SendOutcome, Shell};
use crate::turn::{Shared, Turn};
use crate::wire::{self, Body, Data, Key, Message};

/// A copy of what was asked for within this time is the answer, not a needless push.
const ANSWER_WITHIN: Micros = 10_000_000;
/// The wait for a push grows up to so many times its base.
const GRAFT_WAIT_GROWTH: Micros = 16;

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
        if self.asks_for_proof(turn.shared, key) {
            turn.check_seal(session, origin, seal.as_ref(), || names::leaf(origin, *epoch, &self.name, *seq, payload))?;
        }
        let Some(at) = self.admit(turn, session, key)? else { return Ok(()) };
        let hops = data.hops.clamp(1, turn.shared.config.hops_max.max(1));
        let push = self.is_pushed_on(at, session, *epoch, *seq);
        // Copied out of the read buffer, which a small slice would keep alive, and encoded for the next link in one go.
        let (message, head) = wire::encode_data(&self.name, key, hops.saturating_add(1), seal.as_ref(), payload);
        let stored = Stored::Whole { message, head };
        self.take(turn, at, *seq, Waiting { stored, hops, from: session, push });
        Ok(())
    }

    /// Whether a message's signature is worth a look: this node looks at signatures, and the message would change
    /// something here. A copy would not; what came back would, if it is of a later life of this node.
    pub(super) fn asks_for_proof(&self, shared: &Shared, key: &Key) -> bool {
        if shared.config.signatures == Signatures::Off {
            return false;
        }
        if key.origin == shared.me {
            return key.epoch > shared.epoch;
        }
        let known = self.origins.look_up(&key.origin);
        known.is_none_or(|origin| key.epoch > origin.epoch || (key.epoch == origin.epoch && !origin.knows(key.seq)))
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
            self.own_came_back(turn, session, key.epoch)?;
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
        let (epoch, is_known) = self.origins.get(at).map_or((0, false), |origin| (origin.epoch, origin.knows(key.seq)));
        if key.epoch > epoch {
            turn.shared.check_epoch(turn.now, session, &key.origin, key.epoch)?;
            self.switch_epoch(turn, at, key.epoch);
            return Ok(Some(at));
        }
        if key.epoch < epoch || is_known {
            self.on_duplicate(turn, session, at, key);
            return Ok(None);
        }
        Ok(Some(at))
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
