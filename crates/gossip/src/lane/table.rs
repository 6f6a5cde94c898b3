//! The origins of a lane as a bounded table: who is let in, who is forgotten, and where a new life begins.

use crate::lane::Lane;
use crate::lane::news::RANGES_MAX;
use crate::link::{LINK_BYTES, SERVE_BYTES};
use crate::names::Micros;
use crate::origin::{ORIGIN_BYTES, OriginState};
use crate::peers::Session;
use crate::recall::Reached;
use crate::ring::NO_ORIGIN;
use crate::shares::{self, Opener};
use crate::shell::{Misbehaviour, Shell};
use crate::turn::{Shared, Turn};

/// A lane of this node begins anew at most once in this time, whatever peers say they know of its past.
const BEGIN_ANEW_EVERY: Micros = 10_000_000;

/// Bytes of memory of a lane beside its links, origins and messages.
pub(crate) const LANE_BYTES: usize = 2 * std::mem::size_of::<Lane>() + 2 * RANGES_MAX * 2 * 48 + 512;

impl Lane {
    /// This node among the origins of the lane. Its epoch is the moment the lane began here, or what is later than any
    /// it began with before: also after the lane was forgotten, and after a restart.
    pub(super) fn own_origin<S: Shell>(&mut self, turn: &mut Turn<'_, S>) -> u32 {
        if let Some(at) = self.own {
            return at;
        }
        let epoch = turn.shared.next_own_epoch(turn.now);
        let mut state = OriginState::new(turn.shared.me, epoch, 1, turn.now, None);
        state.started = true;
        turn.shared.totals.origins += 1;
        let at = self.origins.insert(state);
        self.own = Some(at);
        at
    }

    /// A message of this node came back. One of a later life than this means that the clock went back in between: the
    /// lane begins anew after it, since the others would take its messages for old ones.
    pub(super) fn own_came_back<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        epoch: u64,
    ) -> Result<(), Misbehaviour> {
        let me = turn.shared.me;
        turn.shared.check_epoch(turn.now, session, &me, epoch)?;
        // Anybody can make such a life up, and honest peers pass it on: so nobody is struck for it, and it changes
        // little however often it is said.
        let is_soon = self.began_anew_at.is_some_and(|at| turn.now.saturating_sub(at) < BEGIN_ANEW_EVERY);
        if epoch <= turn.shared.epoch || is_soon || !turn.shared.may_be_own_past(turn.now, epoch) {
            return Ok(());
        }
        let at = self.own_origin(turn);
        if self.origins.get(at).is_some_and(|own| own.epoch < epoch) {
            // What was published last is told while its life is the current one.
            self.flush_news(turn);
            self.began_anew_at = Some(turn.now);
            turn.shared.own_latest = turn.shared.own_latest.max(epoch + 1);
            if let Some(own) = self.origins.get_mut(at) {
                own.begin_life(epoch + 1);
            }
            turn.shell.new_epoch(&self.name, &me, epoch + 1);
        }
        Ok(())
    }

    /// Lets a new origin in, within the opener's budget and the table's bounds.
    pub(super) fn open_origin<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        id: crate::Origin,
    ) -> Result<u32, Misbehaviour> {
        let (now, rate) = (turn.now, turn.shared.config.openings);
        let opener = turn.shared.peers.pay_opening(session, rate, now);
        if opener.is_none() || !self.make_room(turn, opener) {
            return Err(turn.shared.offence(now, session, Misbehaviour::TooManyOpenings));
        }
        let mut state = OriginState::new(id, 0, 1, now, opener);
        if let Some(Reached { epoch, next }) = turn.shared.recall.recall(&(self.flow, id)) {
            (state.epoch, state.next, state.started) = (epoch, next, true);
        }
        turn.shared.totals.origins += 1;
        Ok(self.origins.insert(state))
    }

    /// Room for one more origin of this lane. The bound over all lanes is kept at the end of the turn, where all of
    /// them are looked at.
    fn make_room<S: Shell>(&mut self, turn: &mut Turn<'_, S>, newcomer: Opener) -> bool {
        if self.origins.len() < turn.shared.config.origins_per_lane_max {
            return true;
        }
        let openers = self.foreign().map(|(_, origin)| origin.opened_by);
        let Some(largest) = shares::largest(openers, newcomer) else { return false };
        let of_it = self.foreign().filter(|(_, origin)| origin.opened_by == largest.opener);
        let Some(quietest) = of_it.min_by_key(|(_, origin)| origin.used_at).map(|(at, _)| at) else { return false };
        self.forget_origin(turn.shared, turn.now, quietest);
        true
    }

    /// The origins that peers brought.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = (u32, &OriginState)> {
        self.origins.iter().filter(|(at, _)| Some(*at) != self.own)
    }

    /// Forgets an origin but for how far it had got. What the ring holds of it stays until its turn to go.
    pub(crate) fn forget_origin(&mut self, shared: &mut Shared, now: Micros, at: u32) {
        let Some(origin) = self.origins.remove(at) else { return };
        self.tree.forget(at);
        // Its place may be another's soon, whose news and half-sent messages these are not.
        self.fresh.forget(at);
        self.history.forget(at);
        self.links.iter_mut().filter(|link| link.half.is_some_and(|half| half.origin == at)).for_each(|link| {
            link.half = None;
        });
        for (_, arrival) in &origin.held {
            if let Some(entry) = self.ring.get_mut(*arrival) {
                entry.origin = NO_ORIGIN;
            }
        }
        if origin.had_lives {
            // Its place will be another's, whose these messages are not.
            self.ring.iter_mut().filter(|entry| entry.origin == at).for_each(|entry| entry.origin = NO_ORIGIN);
        }
        let waiting: usize = origin.waiting.values().map(crate::origin::Waiting::bytes).sum();
        shared.totals.waiting_bytes -= waiting;
        shared.totals.origins -= 1;
        self.repairing.retain(|repairing| *repairing != at);
        let (of_it, others) = std::mem::take(&mut self.partials).into_iter().partition(|it| it.origin == at);
        self.partials = others;
        let freed: Vec<super::Partial> = of_it;
        freed.iter().for_each(|partial| partial.release(shared));
        if origin.epoch > 0 && origin.id != shared.me {
            let (max, age) = (shared.config.remembered_max, shared.config.remember_for);
            let reached = Reached { epoch: origin.epoch, next: origin.next };
            shared.recall.remember(now, (self.flow, origin.id), reached, max, age);
        }
    }

    /// Lets everything of the lane go.
    pub(crate) fn forget(&mut self, shared: &mut Shared, now: Micros) {
        loop {
            let first = self.origins.iter().next().map(|(at, _)| at);
            let Some(at) = first else { break };
            self.forget_origin(shared, now, at);
        }
        while self.evict(shared) > 0 {}
        shared.totals.serves -= self.links.iter().map(|link| link.serves.len()).sum::<usize>();
    }

    /// An origin began anew: what waited in its last life is delivered, with its holes told.
    pub(super) fn switch_epoch<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32, epoch: u64) {
        while self.origins.get(at).is_some_and(|origin| !origin.waiting.is_empty()) {
            self.give_up(turn, at);
        }
        self.drop_partials(turn, |partial| partial.origin == at);
        let Some(origin) = self.origins.get_mut(at) else { return };
        if origin.epoch > 0 && origin.started {
            turn.shell.new_epoch(&self.name, &origin.id, epoch);
        }
        // A life that began after this node's is followed from its first message; of an older one nobody here missed
        // the beginning.
        origin.started |= epoch > turn.shared.epoch;
        origin.begin_life(epoch);
    }

    /// Bytes of memory beside those of the messages, which are summed over all lanes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let serves: usize = self.links.iter().map(|link| link.serves.capacity()).sum();
        LANE_BYTES
            + self.links.capacity() * LINK_BYTES / 2
            + serves * SERVE_BYTES / 2
            + self.origins.len() * ORIGIN_BYTES
    }
}
