//! Asking for what is missing: who says to have it, who is asked, and when a hole is told as a gap.

use crate::lane::Lane;
use crate::names::Micros;
use crate::origin::{Asked, BLIND_ASKS_MAX, Claim, LeftOut, Repair};
use crate::peers::Session;
use crate::shell::{Misbehaviour, SendOutcome, Shell};
use crate::turn::Turn;
use crate::wire::{Answer, Body, Entries, Entry, Want};

/// A peer that refused to push is asked for single messages for this time, without waiting for pushes.
const REFUSAL_LASTS: Micros = 10_000_000;

/// How a peer came to what it says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It was pushed there, and may be pushed here.
    Pushed,
    /// It was asked for there: no push follows.
    Asked,
    /// All that the peer holds.
    Summary,
}

/// What to do about a hole.
enum Plan {
    /// Nothing is missing.
    Rest,
    /// Nobody is to be asked before this time.
    Wait(Micros),
    /// Ask a peer for a range.
    Ask { session: Session, epoch: u64, from: u64, to: u64, blind: bool },
    /// The hole is lost: go on with what waits behind it.
    GiveUp,
}

impl Lane {
    /// Notes that a peer has messages that are missing here, to be asked for when due.
    pub(super) fn schedule<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        at: u32,
        claim: Claim,
        due: Micros,
        is_live: bool,
    ) {
        let Some(origin) = self.origins.get_mut(at) else { return };
        if origin.repair.is_none() {
            self.repairing.push(at);
        }
        let repair = origin.repair.get_or_insert_with(|| Box::new(Repair { is_live, ..Repair::new(turn.now) }));
        // A search whose messages have come is over: its time is not this claim's.
        let (epoch, next) = (origin.epoch, origin.next);
        repair.claims.retain(|known| known.epoch > epoch || (known.epoch == epoch && known.last >= next));
        if repair.claims.is_empty() && repair.asked.is_none() && origin.waiting.is_empty() {
            **repair = Repair::new(turn.now);
        }
        repair.note(claim, |session| turn.shared.peers.strikes(session, turn.now));
        // A question that is out is waited for; its answer brings the time forward.
        if repair.asked.is_none() {
            repair.due = repair.due.min(due);
            repair.is_live |= is_live;
            self.wake(due);
        }
    }

    /// A digest or a summary: what a peer says it holds.
    pub(super) fn on_entries<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        entries: &Entries,
        source: Source,
    ) -> Result<(), Misbehaviour> {
        // What a summary lists may be on its way by a push as well; only where none will come is there no wait.
        let at_once = source == Source::Asked || self.has_refused(turn.now, session);
        let wait = if at_once { 0 } else { self.graft_wait };
        let (due, mut outcome) = (turn.now.saturating_add(wait), Ok(()));
        for entry in entries.iter() {
            let heard = if entry.origin == turn.shared.me {
                self.own_came_back(turn, session, entry.epoch)
            } else {
                self.on_entry(turn, session, &entry, due, source == Source::Pushed)
            };
            // What is refused may be another's lie that the peer relays: the rest of its list counts all the same.
            outcome = outcome.and(heard);
        }
        outcome
    }

    fn on_entry<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        entry: &Entry,
        due: Micros,
        is_live: bool,
    ) -> Result<(), Misbehaviour> {
        let at = match self.origins.find(&entry.origin) {
            Some(at) => at,
            None => {
                turn.shared.check_epoch(turn.now, session, &entry.origin, entry.epoch)?;
                self.open_origin(turn, session, entry.origin)?
            }
        };
        let Some(origin) = self.origins.get(at) else { return Ok(()) };
        if entry.epoch < origin.epoch {
            self.tell_epoch(turn, session, at);
            return Ok(());
        }
        if entry.epoch == origin.epoch && entry.last < origin.next {
            return Ok(());
        }
        if entry.epoch > origin.epoch {
            turn.shared.check_epoch(turn.now, session, &entry.origin, entry.epoch)?;
        }
        let claim = Claim { session, epoch: entry.epoch, first: entry.first, last: entry.last };
        self.schedule(turn, at, claim, due, is_live);
        Ok(())
    }

    fn has_refused(&self, now: Micros, session: Session) -> bool {
        let refused_at = self.links.get(session.slot()).and_then(|link| link.refused_at);
        refused_at.is_some_and(|at| now.saturating_sub(at) < REFUSAL_LASTS)
    }

    /// A peer has sent what it holds of what it was asked for.
    pub(super) fn on_answer<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, answer: &Answer) {
        let Some(at) = self.origins.find(&answer.origin) else { return };
        let (waiting_max, timeout) = (turn.shared.config.waiting_per_origin_max, turn.shared.config.answer_timeout);
        let Some(origin) = self.origins.get_mut(at) else { return };
        let has_it = answer.epoch < origin.epoch || (answer.epoch == origin.epoch && origin.knows(answer.from));
        let is_full = origin.waiting.len() >= waiting_max;
        let Some(repair) = &mut origin.repair else { return };
        let is_asked = |asked: &Asked| (asked.session, asked.epoch, asked.from) == (session, answer.epoch, answer.from);
        let Some(asked) = repair.asked.filter(is_asked) else { return };
        let is_left_out = repair.left_out.is_some_and(|left_out| left_out.excuses(&asked));
        repair.asked = None;
        repair.due = turn.now;
        let mut is_untrue = false;
        if is_left_out && !has_it {
            repair.due = turn.now.saturating_add(timeout / 2); // it was sent, and there was no room
        } else if answer.through < answer.from {
            repair.due = turn.now.saturating_add(timeout / 2); // the peer is busy
        } else if answer.missing_to >= answer.from {
            let claimed = |claim: &Claim| claim.session == session && claim.first <= answer.from;
            is_untrue = repair.claims.iter().any(claimed) && answer.missing_to >= answer.through;
            for claim in repair.claims.iter_mut().filter(|claim| claim.session == session) {
                claim.first = claim.first.max(answer.missing_to + 1);
            }
            repair.claims.retain(|claim| claim.first <= claim.last);
            if repair.blind.len() < BLIND_ASKS_MAX && !repair.blind.contains(&session) {
                repair.blind.push(session);
            }
        } else if !has_it && !is_full {
            is_untrue = true; // it said to have sent what did not come
            repair.claims.retain(|claim| claim.session != session);
        }
        self.wake(turn.now);
        if is_untrue {
            turn.shared.was_silent(turn.now, session);
        }
    }

    /// Does what is due about the holes of one origin.
    pub(super) fn repair<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32) {
        self.settle_question(turn, at);
        match self.plan(turn, at) {
            Plan::Rest => {
                if let Some(origin) = self.origins.get_mut(at) {
                    origin.repair = None;
                }
            }
            Plan::Wait(due) => self.repair_again(at, due),
            Plan::Ask { session, epoch, from, to, blind } => self.ask(turn, at, (session, epoch, from, to), blind),
            Plan::GiveUp => {
                self.give_up(turn, at);
                self.repair_again(at, turn.now);
            }
        }
    }

    fn repair_again(&mut self, at: u32, due: Micros) {
        if let Some(repair) = self.origins.get_mut(at).and_then(|origin| origin.repair.as_mut()) {
            repair.due = due;
            self.wake(due);
        }
    }

    /// Forgets a question that is answered, whose peer has left, or whose time is over; and claims that came true.
    fn settle_question<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32) {
        let timeout = turn.shared.config.answer_timeout;
        let Some(origin) = self.origins.get_mut(at) else { return };
        let (epoch, next) = (origin.epoch, origin.next);
        let Some(repair) = &mut origin.repair else { return };
        let is_open = |of: u64, last: u64| of > epoch || (of == epoch && last >= next);
        let peers = &turn.shared.peers;
        repair.claims.retain(|claim| is_open(claim.epoch, claim.last) && peers.get(claim.session).is_some());
        let Some(asked) = repair.asked else { return };
        if !is_open(asked.epoch, asked.to) || peers.get(asked.session).is_none() {
            repair.asked = None;
        } else if turn.now >= asked.at.saturating_add(timeout) {
            repair.asked = None;
            if repair.left_out.is_some_and(|left_out| left_out.excuses(&asked)) {
                return;
            }
            repair.claims.retain(|claim| claim.session != asked.session);
            turn.shared.was_silent(turn.now, asked.session);
            if !turn.shared.is_in_good_standing(turn.now, asked.session) {
                self.set_lazy(turn.now, asked.session);
            }
        }
    }

    fn plan<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32) -> Plan {
        let (timeout, gap_after) = (turn.shared.config.answer_timeout, turn.shared.config.gap_after);
        let Some(origin) = self.origins.get(at) else { return Plan::Rest };
        let Some(repair) = &origin.repair else { return Plan::Rest };
        if let Some(asked) = repair.asked {
            return Plan::Wait(asked.at.saturating_add(timeout));
        }
        // Holes of this epoch and claims of a newer one take turns by chance: a lie about either must not hide the
        // other.
        let newest = repair.claims.iter().map(|claim| claim.epoch).max().unwrap_or(0).max(origin.epoch);
        let has_current = !origin.waiting.is_empty() || repair.claims.iter().any(|claim| claim.epoch == origin.epoch);
        let epoch = if has_current && turn.shared.rng.below(2) == 0 { origin.epoch } else { newest };
        let is_current = epoch == origin.epoch;
        let next = if is_current { origin.next } else { 1 };
        let behind = if is_current { origin.waiting.first_key_value().map(|(seq, _)| *seq) } else { None };
        let growing = |it: &&crate::lane::Partial| (it.origin, it.epoch, it.seq) == (at, epoch, next);
        if let Some(partial) = self.partials.iter().find(growing)
            && partial.is_growing(turn.now, timeout)
        {
            return Plan::Wait(partial.updated_at.saturating_add(timeout));
        }
        if let Some((session, from, last)) = choose(turn, &repair.claims, epoch, next, behind) {
            let is_that = |it: &LeftOut| (it.session, it.epoch, it.seq) == (session, epoch, from);
            if let Some(LeftOut { size, .. }) = repair.left_out.filter(is_that)
                && let Some(peer) = turn.shared.peers.id(session)
                && !turn.shared.has_partial_room(&peer, size)
            {
                return Plan::Wait(turn.now.saturating_add(timeout / 2)); // it would only come for nothing
            }
            let to = behind.map_or(last, |behind| last.min(behind - 1)).max(from);
            return Plan::Ask { session, epoch, from, to, blind: false };
        }
        // Claims alone are no proof that a message ever was: without one that waits there is no hole.
        let Some(behind) = behind else { return Plan::Rest };
        if !origin.started {
            return Plan::GiveUp;
        }
        let is_asked = |session: &Session| repair.blind.contains(session);
        let others: Vec<Session> = turn.shared.peers.sessions().filter(|session| !is_asked(session)).collect();
        if repair.blind.len() >= BLIND_ASKS_MAX
            || others.is_empty()
            || turn.now >= repair.since.saturating_add(gap_after)
        {
            return Plan::GiveUp;
        }
        let session = others[turn.shared.rng.below(others.len())];
        Plan::Ask { session, epoch, from: next, to: behind - 1, blind: true }
    }

    fn ask<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        at: u32,
        (session, epoch, from, to): (Session, u64, u64, u64),
        blind: bool,
    ) {
        let refused = self.has_refused(turn.now, session);
        let chunk = self.find_partial(at, epoch, from).map_or(0, |partial| {
            partial.from = session;
            partial.updated_at = partial.updated_at.max(1);
            partial.first_missing()
        });
        let Some(origin) = self.origins.get_mut(at) else { return };
        let Some(repair) = &mut origin.repair else { return };
        let is_live = repair.is_live && !blind;
        let graft = is_live && !refused;
        let want = Want { origin: origin.id, epoch, from, to, chunk };
        let body = if graft { Body::Graft(want) } else { Body::Pull(want) };
        let message = self.encode(body);
        // A question goes before data: its answer must not wait for what it is to mend.
        let outcome = self.send_control(turn, session, crate::CONTROL_FLOW, message);
        let Some(origin) = self.origins.get_mut(at) else { return };
        let Some(repair) = &mut origin.repair else { return };
        if outcome != SendOutcome::Sent {
            repair.due = turn.now.saturating_add(turn.shared.config.answer_timeout / 4);
            let due = repair.due;
            return self.wake(due);
        }
        turn.shared.counts.asked += 1;
        let asked = Asked { session, epoch, from, to, at: turn.now, graft, is_live };
        (repair.asked, origin.last_asked) = (Some(asked), Some(asked));
        repair.due = turn.now.saturating_add(turn.shared.config.answer_timeout);
        repair.is_live = false;
        if blind {
            repair.blind.push(session);
        }
        let due = repair.due;
        self.wake(due);
        if graft {
            self.become_eager(turn, session);
        }
    }

    /// Tells the hole before the first waiting message as a gap, and goes on.
    pub(super) fn give_up<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32) {
        let Some(origin) = self.origins.get_mut(at) else { return };
        let Some((behind, _)) = origin.waiting.first_key_value() else { return };
        let (from, to) = (origin.next, behind - 1);
        origin.next = *behind;
        if let Some(repair) = &mut origin.repair {
            repair.since = turn.now;
            repair.blind.clear();
        }
        // Before the first message there is no subscriber who could miss one.
        if origin.started && from <= to {
            turn.shared.counts.lost += to - from + 1;
            turn.shell.gap(&self.name, &origin.id, origin.epoch, from, to);
        }
        self.drop_partials(turn, |partial| partial.origin == at && partial.seq <= to);
        self.drain(turn, at);
    }
}

/// The claim to be asked about: one that has the next message, else the one that begins soonest after it. Peers in good
/// standing first, then chance.
fn choose<S: Shell>(
    turn: &mut Turn<'_, S>,
    claims: &[Claim],
    epoch: u64,
    next: u64,
    behind: Option<u64>,
) -> Option<(Session, u64, u64)> {
    let useful =
        |claim: &&Claim| claim.epoch == epoch && claim.last >= next && behind.is_none_or(|behind| claim.first < behind);
    let (now, salt) = (turn.now, turn.shared.rng.next());
    let shared = &*turn.shared;
    let rank = |claim: &&Claim| {
        let chance = (claim.session.slot() as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (claim.first.max(next), !shared.is_in_good_standing(now, claim.session), chance)
    };
    let best = claims.iter().filter(useful).min_by_key(rank)?;
    Some((best.session, best.first.max(next), best.last))
}
