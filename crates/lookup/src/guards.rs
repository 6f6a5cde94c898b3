//! What a lookup must ask before it asks a target, and whom it tells how that went: breakers, budget and latencies.

use crate::Millis;
use crate::breaker::{Admission, BreakerState, BreakerTable};
use crate::budget::HedgeBudget;
use crate::latency::LatencyTrack;
use crate::lookup::LookupTarget;

/// What an ask says about its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered, with or without what was wanted.
    Answered,
    /// It refused, broke off or was silent for too long.
    Failed,
    /// The lookup ended first: nothing is known.
    Cancelled,
}

/// The surroundings of a lookup, shared by all lookups of a node.
pub trait Guards<T> {
    /// Whether the target may be asked now; a probe it grants must be followed by [`Guards::ended`].
    fn admit(&mut self, target: &T, now_ms: Millis) -> Admission;
    /// Whether the target's breaker is closed: nothing else may be hedged to or tried again.
    fn is_closed(&self, target: &T) -> bool;
    /// A question was asked that is no hedge.
    fn asked(&mut self);
    /// Takes a token for one hedge.
    fn take_hedge(&mut self) -> bool;
    /// An ask has ended.
    fn ended(&mut self, target: &T, verdict: Verdict, took_ms: Millis, now_ms: Millis);
}

/// Breakers, budget and latencies in one place, with the class of a target computed from it.
#[derive(Clone, Debug)]
pub struct TargetGuards<T: LookupTarget, C: Ord> {
    /// Breaker of each target.
    pub breakers: BreakerTable<T>,
    /// Tokens for hedges.
    pub budget: HedgeBudget,
    /// Latest answers by class.
    pub latency: LatencyTrack<C>,
    class_of: fn(&T) -> C,
}

impl<T: LookupTarget, C: Ord> TargetGuards<T, C> {
    /// Nothing known yet.
    pub fn new(breakers: BreakerTable<T>, budget: HedgeBudget, class_of: fn(&T) -> C) -> Self {
        TargetGuards { breakers, budget, latency: LatencyTrack::new(), class_of }
    }
}

impl<T: LookupTarget, C: Ord> Guards<T> for TargetGuards<T, C> {
    fn admit(&mut self, target: &T, now_ms: Millis) -> Admission {
        self.breakers.admit(target, now_ms)
    }

    fn is_closed(&self, target: &T) -> bool {
        self.breakers.state(target) == BreakerState::Closed
    }

    fn asked(&mut self) {
        self.budget.asked();
    }

    fn take_hedge(&mut self) -> bool {
        self.budget.take()
    }

    fn ended(&mut self, target: &T, verdict: Verdict, took_ms: Millis, now_ms: Millis) {
        match verdict {
            Verdict::Answered => {
                self.breakers.record(target, true, now_ms);
                self.latency.observe((self.class_of)(target), took_ms);
            }
            Verdict::Failed => self.breakers.record(target, false, now_ms),
            Verdict::Cancelled => self.breakers.cancelled(target, now_ms),
        }
    }
}
