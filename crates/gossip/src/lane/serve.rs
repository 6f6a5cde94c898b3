//! Answering questions: messages from the ring, then a word how far the answer went.

use crate::lane::Lane;
use crate::lane::push::{retry_at, send_parts};
use crate::link::{SERVES_MAX, SERVES_PER_LINK_MAX, Serve};
use crate::names::Micros;
use crate::origin::OriginState;
use crate::peers::Session;
use crate::shell::{SendOutcome, Shell};
use crate::turn::Turn;
use crate::wire::{Answer, Body, ENTRIES_MAX, Entries, Entry, Want};

/// Messages in one answer.
const ANSWER_MESSAGES_MAX: usize = 256;
/// Bytes in one answer; the message that crosses it is the last.
const ANSWER_BYTES_MAX: usize = 512 << 10;

/// A peer is told at most once in this time, in one lane, that an origin has begun a later life.
const TELL_EPOCH_EVERY: Micros = 100_000;

/// What became of one step of an answer.
enum Step {
    /// Another message may follow.
    More,
    /// The answer is complete.
    Done,
    /// The link is to wait.
    Wait(u32),
}

impl Lane {
    /// A peer asks for a range.
    pub(super) fn on_want<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, want: Want) {
        let has_room = turn.shared.totals.serves < SERVES_MAX;
        let Some(link) = self.link_mut(session) else { return };
        // The same question again means that the answer is late, not that two are wanted.
        if link.serves.iter().any(|serve| serve.want == want) {
            return;
        }
        if link.serves.len() >= SERVES_PER_LINK_MAX || !has_room {
            let nothing = Answer {
                origin: want.origin,
                epoch: want.epoch,
                from: want.from,
                through: want.from - 1,
                missing_to: want.from - 1,
            };
            let message = self.encode(Body::Answer(nothing));
            self.send_control(turn, session, self.flow, message);
            return;
        }
        let position = if want.chunk == 0 { 0 } else { usize::from(want.chunk) + 1 };
        link.serves.push_back(Serve {
            want,
            next: want.from,
            position,
            missing_to: want.from - 1,
            messages: 0,
            bytes: 0,
            is_done: false,
        });
        link.retry_at = link.retry_at.min(turn.now);
        turn.shared.totals.serves += 1;
        self.wake(turn.now);
    }

    /// Goes on with a link's answers; false if the link is to wait.
    pub(super) fn serve<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize) -> bool {
        while let Some(mut serve) = self.links[slot].serves.pop_front() {
            let mut step = if serve.is_done { Step::Done } else { Step::More };
            while matches!(step, Step::More) {
                step = self.serve_next(turn, slot, &mut serve);
            }
            if matches!(step, Step::Done) {
                serve.is_done = true;
                step = self.finish_answer(turn, slot, &serve);
            }
            if let Step::Wait(retry_after_ms) = step {
                self.links[slot].serves.push_front(serve);
                self.links[slot].retry_at = retry_at(turn.now, retry_after_ms);
                self.wake(self.links[slot].retry_at);
                return false;
            }
            turn.shared.totals.serves -= 1;
        }
        // An empty list keeps no buffer: there is one for each link in each lane.
        self.links[slot].serves = Default::default();
        true
    }

    /// Sends one message of an answer.
    fn serve_next<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize, serve: &mut Serve) -> Step {
        let way = self.way();
        let origin = self.origins.find(&serve.want.origin).and_then(|at| self.origins.get(at));
        let held = origin.and_then(|origin| origin.held_of(serve.want.epoch)).and_then(|held| {
            let at = held.partition_point(|(seq, _)| *seq < serve.next);
            held.get(at).filter(|(seq, _)| *seq <= serve.want.to)
        });
        let Some((seq, arrival)) = held.copied() else {
            if serve.messages == 0 {
                (serve.missing_to, serve.next) = (serve.want.to, serve.want.to + 1);
            }
            return Step::Done;
        };
        if seq > serve.next {
            if serve.messages > 0 {
                return Step::Done; // the next question begins with this hole
            }
            (serve.missing_to, serve.next, serve.position) = (seq - 1, seq, 0);
        }
        let Some(entry) = self.ring.get(arrival) else { return Step::Done };
        let bytes = entry.stored.bytes();
        match send_parts(turn, &mut self.links[slot], &way, &entry.stored, serve.position) {
            (SendOutcome::Busy { retry_after_ms }, stopped_at) => {
                serve.position = stopped_at;
                return Step::Wait(retry_after_ms);
            }
            (SendOutcome::NotReady, _) => return Step::Done,
            _ => {}
        }
        (serve.next, serve.position) = (seq + 1, 0);
        serve.messages += 1;
        serve.bytes += bytes;
        let is_full = serve.messages >= ANSWER_MESSAGES_MAX || serve.bytes >= ANSWER_BYTES_MAX;
        if is_full || serve.next > serve.want.to { Step::Done } else { Step::More }
    }

    /// Says how far the answer went; behind its messages, so in the same flow.
    fn finish_answer<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize, serve: &Serve) -> Step {
        let Want { origin, epoch, from, .. } = serve.want;
        let answer = Answer { origin, epoch, from, through: serve.next - 1, missing_to: serve.missing_to };
        let message = self.encode(Body::Answer(answer));
        match self.send_control(turn, self.links[slot].session, self.flow, message) {
            SendOutcome::Busy { retry_after_ms } => Step::Wait(retry_after_ms),
            _ => Step::Done,
        }
    }

    /// A peer says something of a life of an origin that is over. Without a word an origin whose clock was set back
    /// would go on in vain: it learns which life is known here, and begins one after it. A peer in between is told only
    /// of what is held, since it will ask for it; from then on it tells the origin.
    pub(super) fn tell_epoch<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, at: u32) {
        let Some(origin) = self.origins.get(at) else { return };
        let is_itself = turn.shared.peers.id(session).is_some_and(|peer| peer.0 == origin.id.0);
        let reached = origin.next.saturating_sub(1).max(1);
        let range = origin.range().or_else(|| is_itself.then_some((reached, reached)));
        let Some((first, last)) = range.filter(|_| turn.shared.is_relayed(turn.now, origin.epoch)) else { return };
        let entry = Entry { origin: origin.id, epoch: origin.epoch, first, last };
        let Some(link) = self.link_mut(session).filter(|link| link.tell_epoch_at <= turn.now) else { return };
        link.tell_epoch_at = turn.now.saturating_add(TELL_EPOCH_EVERY);
        let message = self.encode(Body::Summary { reply: false, entries: Entries::pack([entry]) });
        self.send_control(turn, session, self.flow, message);
    }

    /// Sends the summaries that are due, and picks a random peer for the next one.
    pub(super) fn send_summaries<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        if self.summary_at <= turn.now {
            let every = turn.shared.config.summary_every;
            // Drawn from half to one and a half: nodes that began together must not go on together.
            self.summary_at = turn.now + every / 2 + turn.shared.rng.below(every as usize) as Micros;
            // Paths change: what was learned about late pushes fades, an eighth at a time.
            self.graft_wait = (self.graft_wait - self.graft_wait / 8).max(turn.shared.config.graft_after);
            let up = self.links.iter().filter(|link| link.is_up()).count();
            let chosen = turn.shared.rng.below(up);
            if self.ring.len() > 0
                && let Some(link) = self.links.iter_mut().filter(|link| link.is_up()).nth(chosen)
            {
                (link.summary_at, link.summary_reply) = (turn.now, true);
            }
        }
        for slot in 0..self.links.len() {
            if self.links[slot].summary_at <= turn.now && self.links[slot].is_up() {
                self.send_summary(turn, slot);
            }
        }
    }

    fn send_summary<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize) {
        let (session, reply) = (self.links[slot].session, self.links[slot].summary_reply);
        (self.links[slot].summary_at, self.links[slot].summary_reply) = (Micros::MAX, false);
        let is_passed_on =
            |(at, origin): &(u32, &OriginState)| self.is_passed_on(turn.shared, turn.now, *at, origin.epoch);
        let relayed = self.origins.iter().filter(is_passed_on);
        let held = relayed.filter_map(|(_, origin)| Some((origin, origin.range()?)));
        let entries: Vec<Entry> =
            held.map(|(origin, (first, last))| Entry { origin: origin.id, epoch: origin.epoch, first, last }).collect();
        for (at, part) in entries.chunks(ENTRIES_MAX).enumerate() {
            let entries = Entries::pack(part.iter().copied());
            let message = self.encode(Body::Summary { reply: reply && at == 0, entries });
            if let SendOutcome::Busy { retry_after_ms } = self.send_control(turn, session, self.flow, message) {
                let again = retry_at(turn.now, retry_after_ms);
                (self.links[slot].summary_at, self.links[slot].summary_reply) = (again, reply);
                return self.wake(again);
            }
        }
    }
}
