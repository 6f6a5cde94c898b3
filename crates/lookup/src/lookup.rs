//! One hedged, iterative lookup as a state machine: events in, actions out.
//!
//! The nearest targets are asked, `alpha` at a time. When most of those in flight are late, up to `beta` distinct
//! targets are asked as well, if the budget has tokens. The first answers that satisfy the quorum end the lookup and
//! cancel the rest. Answers without the record bring closer targets; when the nearest have all answered without it,
//! the record is absent. Silence and failure never make it absent: then it is unknown.

use std::hash::Hash;

use ron_types::limits::lookup as limits;

use crate::chance::Chance;
use crate::guards::{Guards, Verdict};
use crate::latency::LatencyTrack;
use crate::space::Position;
use crate::table::IpGroup;
use crate::{Admission, BreakerState, Millis, millis};

mod course;
mod known;

pub use course::{AskEnd, AskRecord, Course};
use known::{KnownSet, Standing};

/// What a lookup can ask: copied, compared, and ordered so that a run can be repeated.
pub trait LookupTarget: Clone + Eq + Hash + Ord {}

impl<T: Clone + Eq + Hash + Ord> LookupTarget for T {}

/// Widths, waits and bounds of one lookup.
#[derive(Clone, Copy, Debug)]
pub struct HedgeLimits {
    /// Targets asked at once before anything is late.
    pub alpha: usize,
    /// Further targets asked at once when most are late; 0 turns hedging off.
    pub beta: usize,
    /// An ask is late after this time: see [`LatencyTrack::hedge_after_ms`].
    pub hedge_after_ms: Millis,
    /// An ask has failed after this time: see [`LatencyTrack::ask_timeout_ms`].
    pub ask_timeout_ms: Millis,
    /// Total time, from the start.
    pub deadline_ms: Millis,
    /// Satisfactory answers that end the lookup.
    pub quorum: usize,
    /// Nearest targets that must have answered before the record is absent.
    pub nearest: usize,
    /// Closer targets taken from one answer.
    pub closer_max: usize,
    /// Targets known at once; the furthest go first.
    pub candidates_max: usize,
    /// Questions in all.
    pub asks_max: usize,
    /// Retries in all, of failures that may pass.
    pub retries_max: usize,
    /// Bounds of the wait before a retry.
    pub retry_jitter_ms: (Millis, Millis),
}

impl Default for HedgeLimits {
    fn default() -> Self {
        HedgeLimits {
            alpha: limits::ALPHA,
            beta: limits::BETA,
            hedge_after_ms: millis(limits::HEDGE_AFTER),
            ask_timeout_ms: millis(limits::ASK_TIMEOUT),
            deadline_ms: millis(limits::DEADLINE),
            quorum: 1,
            nearest: limits::NEAREST,
            closer_max: limits::CLOSER_MAX,
            candidates_max: limits::CANDIDATES_MAX,
            asks_max: limits::ASKS_MAX,
            retries_max: limits::RETRIES_MAX,
            retry_jitter_ms: (millis(limits::RETRY_JITTER.0), millis(limits::RETRY_JITTER.1)),
        }
    }
}

impl HedgeLimits {
    /// These limits with the waits that fit what is known of a class of targets.
    pub fn paced<C: Ord>(self, latency: &LatencyTrack<C>, class: &C) -> Self {
        let (hedge_after_ms, ask_timeout_ms) = (latency.hedge_after_ms(class), latency.ask_timeout_ms(class));
        HedgeLimits { hedge_after_ms, ask_timeout_ms, ..self }
    }
}

/// A target and its position in the key space.
///
/// A target without a position, such as an upstream router, is given the position of the key: it is asked first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<T> {
    /// Whom to ask.
    pub target: T,
    /// Where it stands, computed from its identity and never taken from a peer's word.
    pub position: Position,
    /// Network of the address it is reached at, where it is known and counts: see [`crate::ip_group`].
    pub group: Option<IpGroup>,
}

impl<T> Candidate<T> {
    /// A candidate of no known network of addresses.
    pub fn new(target: T, position: Position) -> Self {
        Candidate { target, position, group: None }
    }
}

/// Something that happened to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// The lookup begins.
    Start,
    /// A target answered.
    Answered {
        /// The one that was asked.
        target: T,
        /// Whether the answer holds a record that was wanted and *verified*. An answer with a forged record is no
        /// answer at all but an [`Event::Failed`]: whoever shows one is not believed in what it names either.
        satisfactory: bool,
        /// Targets it named, without the node itself.
        closer: Vec<Candidate<T>>,
    },
    /// Asking a target failed.
    Failed {
        /// The one that was asked.
        target: T,
        /// Whether the failure may pass: worth a retry.
        transient: bool,
    },
    /// The time of the last [`Action::WakeAt`] has come.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Ask the target; the answer is an [`Event::Answered`] or [`Event::Failed`].
    Ask {
        /// Whom to ask.
        target: T,
        /// Whether it is asked because others are late.
        hedge: bool,
        /// Time left for it, to be sent along.
        budget_ms: Millis,
    },
    /// Drop the ask in flight and tell the target.
    Cancel {
        /// The one that was asked.
        target: T,
    },
    /// Send [`Event::Tick`] at this time unless something else happens before; replaces the earlier one.
    WakeAt(Millis),
    /// The lookup has ended; nothing follows.
    Finish(Finished),
}

/// What a lookup found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The record was found.
    Found,
    /// The nearest targets all answered without it.
    Absent,
    /// The deadline came, or too many of the nearest failed or could not be asked.
    Unknown,
}

/// The end of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What is known now.
    pub conclusion: Conclusion,
    /// Satisfactory answers, which may be fewer than the quorum when no more could be had.
    pub satisfied: usize,
    /// Targets that were not asked because their breaker is open.
    pub degraded: usize,
    /// Targets that failed or were silent.
    pub failed: usize,
    /// Steps from the start to the answer, or to the furthest that answered.
    pub hops: u32,
    /// Whether the deadline ended it.
    pub deadline_hit: bool,
}

/// One lookup under way.
#[derive(Clone, Debug)]
pub struct Lookup<T> {
    limits: HedgeLimits,
    deadline_at_ms: Millis,
    known: KnownSet<T>,
    course: Course<T>,
    retries_left: usize,
    satisfied: usize,
    degraded: usize,
    failed: usize,
    hops: u32,
    is_finished: bool,
    chance: Chance,
}

impl<T: LookupTarget> Lookup<T> {
    /// A lookup of `key` that starts with `candidates`; `seed` decides the waits before retries.
    pub fn new(key: Position, limits: HedgeLimits, candidates: Vec<Candidate<T>>, now_ms: Millis, seed: u64) -> Self {
        let mut known = KnownSet::new(key, limits.nearest, limits.candidates_max);
        known.add_first(candidates);
        Lookup {
            limits,
            deadline_at_ms: now_ms.saturating_add(limits.deadline_ms),
            known,
            course: Course::new(now_ms),
            retries_left: limits.retries_max,
            satisfied: 0,
            degraded: 0,
            failed: 0,
            hops: 0,
            is_finished: false,
            chance: Chance::new(seed),
        }
    }

    /// Takes one event and says what to do. After [`Action::Finish`] there is nothing more to do.
    pub fn step(&mut self, now_ms: Millis, event: Event<T>, guards: &mut dyn Guards<T>) -> Vec<Action<T>> {
        let mut actions = Vec::new();
        if self.is_finished {
            return actions;
        }
        match event {
            Event::Start | Event::Tick => {}
            Event::Answered { target, satisfactory, closer } => {
                self.answered(now_ms, &target, satisfactory, closer, guards);
            }
            Event::Failed { target, transient } => self.ask_failed(now_ms, &target, transient, guards),
        }
        self.give_up_silent(now_ms, guards, &mut actions);
        if self.satisfied >= self.limits.quorum.max(1) {
            self.finish(now_ms, Conclusion::Found, false, guards, &mut actions);
        } else if now_ms >= self.deadline_at_ms {
            let conclusion = if self.satisfied > 0 { Conclusion::Found } else { Conclusion::Unknown };
            self.finish(now_ms, conclusion, true, guards, &mut actions);
        } else {
            self.proceed(now_ms, guards, &mut actions);
        }
        actions
    }

    /// Every ask so far, in the order they were made.
    pub fn course(&self) -> &Course<T> {
        &self.course
    }

    /// Targets that answered, nearest first, to place a record at. No network of addresses has more than a quarter of
    /// them while there are others, or whoever has many addresses could be given every copy.
    pub fn nearest_answered(&self, count: usize) -> Vec<T> {
        self.known.nearest_answered(count)
    }

    /// Whether the lookup has ended.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn answered(
        &mut self,
        now_ms: Millis,
        target: &T,
        satisfactory: bool,
        closer: Vec<Candidate<T>>,
        guards: &mut dyn Guards<T>,
    ) {
        // An answer that nobody waits for any more, or that nobody asked for, changes nothing.
        let Some((started_ms, ask)) = self.known.in_flight_of(target) else { return };
        guards.ended(target, Verdict::Answered, now_ms.saturating_sub(started_ms), now_ms);
        self.satisfied += usize::from(satisfactory);
        self.course.end(ask, now_ms, if satisfactory { AskEnd::Won } else { AskEnd::Empty });
        let hop = self.known.settle(target, Standing::Answered);
        self.hops = if satisfactory { hop } else { self.hops.max(hop) };
        self.known.add_closer(closer.into_iter().take(self.limits.closer_max), hop + 1);
    }

    fn ask_failed(&mut self, now_ms: Millis, target: &T, transient: bool, guards: &mut dyn Guards<T>) {
        let Some((started_ms, ask)) = self.known.in_flight_of(target) else { return };
        guards.ended(target, Verdict::Failed, now_ms.saturating_sub(started_ms), now_ms);
        self.course.end(ask, now_ms, AskEnd::Failed);
        if transient && self.retries_left > 0 && guards.is_closed(target) {
            self.retries_left -= 1;
            let (low, high) = self.limits.retry_jitter_ms;
            let at_ms = now_ms.saturating_add(self.chance.between(low, high));
            self.known.settle(target, Standing::Fresh { not_before_ms: at_ms });
        } else {
            self.failed += 1;
            self.known.settle(target, Standing::Failed);
        }
    }

    fn give_up_silent(&mut self, now_ms: Millis, guards: &mut dyn Guards<T>, actions: &mut Vec<Action<T>>) {
        let timeout_ms = self.limits.ask_timeout_ms;
        for (target, started_ms, ask) in self.known.in_flight() {
            if now_ms >= started_ms.saturating_add(timeout_ms) {
                guards.ended(&target, Verdict::Failed, now_ms - started_ms, now_ms);
                self.course.end(ask, now_ms, AskEnd::TimedOut);
                self.known.settle(&target, Standing::Failed);
                self.failed += 1;
                actions.push(Action::Cancel { target });
            }
        }
    }

    /// Fills the free places, hedges what is late, and ends when nothing is left to ask.
    fn proceed(&mut self, now_ms: Millis, guards: &mut dyn Guards<T>, actions: &mut Vec<Action<T>>) {
        while self.known.in_flight_count(false) < self.limits.alpha.max(1) {
            let Some(target) = self.known.next_in_front(now_ms, self.limits.hedge_after_ms) else { break };
            if !self.ask(now_ms, target, false, guards, actions) {
                break;
            }
        }
        self.hedge(now_ms, guards, actions);
        let is_idle = self.known.in_flight_count(false) + self.known.in_flight_count(true) == 0;
        if self.known.is_settled() || (is_idle && self.course.asks() >= self.limits.asks_max) {
            let conclusion = match self.satisfied {
                0 if self.known.has_converged() => Conclusion::Absent,
                0 => Conclusion::Unknown,
                _ => Conclusion::Found,
            };
            self.finish(now_ms, conclusion, false, guards, actions);
        } else {
            actions.push(Action::WakeAt(self.wake_at(now_ms)));
        }
    }

    /// Asks one target unless its breaker or the bound of asks forbids it; `false` when no more may be asked at all.
    fn ask(
        &mut self,
        now_ms: Millis,
        target: T,
        hedge: bool,
        guards: &mut dyn Guards<T>,
        actions: &mut Vec<Action<T>>,
    ) -> bool {
        if self.course.asks() >= self.limits.asks_max {
            return false;
        }
        let breaker = match guards.admit(&target, now_ms) {
            Admission::Yes => BreakerState::Closed,
            Admission::Probe => BreakerState::HalfOpen,
            Admission::No { .. } => {
                self.degraded += 1;
                let hop = self.known.settle(&target, Standing::Skipped);
                self.course.skip(target, now_ms, hop);
                return true;
            }
        };
        if !hedge {
            guards.asked();
        }
        let ask = self.course.begin(target.clone(), now_ms, hedge, self.known.hop_of(&target), breaker);
        self.known.settle(&target, Standing::InFlight { started_ms: now_ms, hedge, ask });
        let budget_ms = (self.deadline_at_ms - now_ms).min(self.limits.ask_timeout_ms);
        actions.push(Action::Ask { target, hedge, budget_ms });
        true
    }

    /// Asks further targets when two thirds of those in flight are late. One that is late beside others that answer
    /// does not delay the lookup, so it is not worth a hedge.
    fn hedge(&mut self, now_ms: Millis, guards: &mut dyn Guards<T>, actions: &mut Vec<Action<T>>) {
        let in_flight = self.known.in_flight();
        let is_late = |started_ms: Millis| now_ms >= started_ms.saturating_add(self.limits.hedge_after_ms);
        let late = in_flight.iter().filter(|(_, started_ms, _)| is_late(*started_ms)).count();
        if late == 0 || late * 3 < in_flight.len() * 2 {
            return;
        }
        while self.known.in_flight_count(true) < self.limits.beta && self.course.asks() < self.limits.asks_max {
            let may = |target: &T| guards.is_closed(target);
            let next = self.known.next_for_hedge(now_ms, self.limits.hedge_after_ms, may);
            let Some(target) = next else { return };
            if !guards.take_hedge() || !self.ask(now_ms, target, true, guards, actions) {
                return;
            }
        }
    }

    /// The next time at which something is due: never in the past, or the driver would spin.
    fn wake_at(&self, now_ms: Millis) -> Millis {
        let waits = [self.limits.hedge_after_ms, self.limits.ask_timeout_ms];
        let in_flight = self.known.in_flight();
        let asks = in_flight.iter().flat_map(|(_, started_ms, _)| waits.map(|wait| started_ms.saturating_add(wait)));
        let due = asks.chain(self.known.retries_at()).filter(|at_ms| *at_ms > now_ms);
        due.chain([self.deadline_at_ms]).min().unwrap_or(self.deadline_at_ms)
    }

    fn finish(
        &mut self,
        now_ms: Millis,
        conclusion: Conclusion,
        deadline_hit: bool,
        guards: &mut dyn Guards<T>,
        actions: &mut Vec<Action<T>>,
    ) {
        for (target, started_ms, ask) in self.known.in_flight() {
            guards.ended(&target, Verdict::Cancelled, now_ms.saturating_sub(started_ms), now_ms);
            self.course.end(ask, now_ms, AskEnd::Cancelled);
            actions.push(Action::Cancel { target });
        }
        self.is_finished = true;
        self.course.finish(now_ms);
        actions.push(Action::Finish(Finished {
            conclusion,
            satisfied: self.satisfied,
            degraded: self.degraded,
            failed: self.failed,
            hops: self.hops,
            deadline_hit,
        }));
    }
}

#[cfg(test)]
mod tests;
