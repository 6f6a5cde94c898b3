//! Circuit breakers by target: closed, open, half-open, judged by the share of errors in a window.
//!
//! At most a share of the targets may be open at once: when everything seems to fail, the fault is here and not there,
//! and a node that asks nobody would never find out.

use std::collections::HashMap;
use std::hash::Hash;

use ron_types::limits::lookup as limits;

use crate::chance::Chance;
use crate::{Millis, millis};

mod window;

use window::Window;

/// A cool-down is at most this many times the first one, before the cap in milliseconds.
const GROWTH_BITS_MAX: u32 = 16;
/// When all places are taken, this part of the closed breakers makes room at once: one scan pays for many.
const EVICTED_PART: usize = 16;

/// Thresholds of all breakers of a table.
#[derive(Clone, Copy, Debug)]
pub struct BreakerLimits {
    /// Window over which errors are counted.
    pub error_window_ms: Millis,
    /// Share of errors, per mille, above which a breaker opens.
    pub trip_per_mille: u32,
    /// Fewer calls than this in the window never open it.
    pub calls_min: u32,
    /// First cool-down; it doubles with each trip that follows soon after another.
    pub cooldown_ms: Millis,
    /// Longest cool-down, before its jitter of up to a quarter.
    pub cooldown_max_ms: Millis,
    /// Probes that must succeed before a half-open breaker closes.
    pub half_open_probes: u32,
    /// Share of the known targets, per mille, that may be open at once; one always may.
    pub open_per_mille_max: u32,
    /// Targets with a breaker; the closed ones unused for longest make room.
    pub targets_max: usize,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        BreakerLimits {
            error_window_ms: millis(limits::BREAKER_WINDOW),
            trip_per_mille: limits::BREAKER_TRIP_PER_MILLE,
            calls_min: limits::BREAKER_CALLS_MIN,
            cooldown_ms: millis(limits::BREAKER_COOLDOWN),
            cooldown_max_ms: millis(limits::BREAKER_COOLDOWN_MAX),
            half_open_probes: limits::BREAKER_PROBES,
            open_per_mille_max: limits::BREAKER_OPEN_PER_MILLE_MAX,
            targets_max: limits::BREAKER_TARGETS_MAX,
        }
    }
}

/// Whether a target may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its breaker is closed.
    Yes,
    /// As a probe of a half-open breaker: its outcome must be recorded, or the probe cancelled.
    Probe,
    /// Its breaker is open, or half-open with all probes out.
    No {
        /// Time until it is worth asking again.
        retry_ms: Millis,
    },
}

/// State of one breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Everything passes.
    Closed,
    /// Probes pass.
    HalfOpen,
    /// Nothing passes.
    Open,
}

/// One breaker as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Its state.
    pub state: BreakerState,
    /// Calls in the window of a closed breaker.
    pub calls: u32,
    /// Failed calls in the window of a closed breaker.
    pub failures: u32,
    /// Trips that followed each other soon: the exponent of the cool-down.
    pub trips: u32,
    /// When an open breaker lets a probe through.
    pub until_ms: Option<Millis>,
}

/// The breakers of all targets.
#[derive(Clone, Debug)]
pub struct BreakerTable<T> {
    limits: BreakerLimits,
    breakers: HashMap<T, Breaker>,
    /// Breakers that are open or half-open.
    open: usize,
    opened_total: u64,
    chance: Chance,
}

#[derive(Clone, Debug)]
struct Breaker {
    circuit: Circuit,
    trips: u32,
    closed_at_ms: Millis,
    used_at_ms: Millis,
}

#[derive(Clone, Debug)]
enum Circuit {
    Closed(Window),
    Open {
        until_ms: Millis,
    },
    /// Probes that never come back are given up at `until_ms`.
    HalfOpen {
        out: u32,
        succeeded: u32,
        until_ms: Millis,
    },
}

impl<T: Clone + Eq + Hash> BreakerTable<T> {
    /// No target known; `seed` decides the jitter of cool-downs.
    pub fn new(limits: BreakerLimits, seed: u64) -> Self {
        BreakerTable { limits, breakers: HashMap::new(), open: 0, opened_total: 0, chance: Chance::new(seed) }
    }

    /// Applies changed thresholds from now on; windows and cool-downs that run keep their course.
    pub fn set_limits(&mut self, limits: BreakerLimits) {
        self.limits = limits;
    }

    /// Whether `target` may be asked now.
    pub fn admit(&mut self, target: &T, now_ms: Millis) -> Admission {
        let limits = self.limits;
        let Some(breaker) = self.breakers.get_mut(target) else { return Admission::Yes };
        breaker.used_at_ms = now_ms;
        breaker.cool(now_ms);
        match &mut breaker.circuit {
            Circuit::Closed(_) => Admission::Yes,
            Circuit::Open { until_ms } => Admission::No { retry_ms: *until_ms - now_ms },
            Circuit::HalfOpen { out, succeeded, until_ms } => {
                if *out > 0 && now_ms >= *until_ms {
                    *out = 0;
                }
                if *out + *succeeded >= limits.half_open_probes.max(1) {
                    return Admission::No { retry_ms: until_ms.saturating_sub(now_ms) };
                }
                *out += 1;
                *until_ms = now_ms + limits.cooldown_ms;
                Admission::Probe
            }
        }
    }

    /// Learns how a call to `target` ended.
    pub fn record(&mut self, target: &T, ok: bool, now_ms: Millis) {
        if !self.breakers.contains_key(target) && !self.make_room() {
            return;
        }
        let targets = self.breakers.len() + usize::from(!self.breakers.contains_key(target));
        let may_open = self.open < (targets * self.limits.open_per_mille_max as usize / 1000).max(1);
        let limits = self.limits;
        let breaker = self.breakers.entry(target.clone()).or_insert_with(|| Breaker::new(now_ms));
        breaker.used_at_ms = now_ms;
        match &mut breaker.circuit {
            Circuit::Closed(window) => {
                window.count(ok, now_ms, limits.error_window_ms);
                let (calls, failures) = window.totals(now_ms, limits.error_window_ms);
                let is_bad = u64::from(failures) * 1000 > u64::from(calls) * u64::from(limits.trip_per_mille);
                if !ok && is_bad && calls >= limits.calls_min && may_open {
                    self.open += 1;
                    self.opened_total += 1;
                    breaker.open(&limits, &mut self.chance, now_ms);
                }
            }
            // A call from before it opened says nothing new.
            Circuit::Open { .. } => {}
            Circuit::HalfOpen { out: 0, .. } => {}
            Circuit::HalfOpen { .. } if !ok => {
                self.opened_total += 1;
                breaker.open(&limits, &mut self.chance, now_ms);
            }
            Circuit::HalfOpen { out, succeeded, .. } => {
                *out -= 1;
                *succeeded += 1;
                if *succeeded >= limits.half_open_probes.max(1) {
                    self.open -= 1;
                    breaker.circuit = Circuit::Closed(Window::default());
                    breaker.closed_at_ms = now_ms;
                }
            }
        }
    }

    /// A call to `target` was given up before it ended; a probe may be sent again.
    pub fn cancelled(&mut self, target: &T, _now_ms: Millis) {
        if let Some(Breaker { circuit: Circuit::HalfOpen { out, .. }, .. }) = self.breakers.get_mut(target) {
            *out = out.saturating_sub(1);
        }
    }

    /// Moves open breakers whose cool-down is over to half-open: the janitor's work, so that observers see it in time.
    pub fn roll(&mut self, now_ms: Millis) {
        self.breakers.values_mut().for_each(|breaker| breaker.cool(now_ms));
    }

    /// State of a target's breaker as last rolled; an unknown target's is closed.
    pub fn state(&self, target: &T) -> BreakerState {
        self.breakers.get(target).map_or(BreakerState::Closed, Breaker::state)
    }

    /// All breakers, in no order.
    pub fn iter(&self, now_ms: Millis) -> impl Iterator<Item = (&T, BreakerView)> {
        let window_ms = self.limits.error_window_ms;
        self.breakers.iter().map(move |(target, breaker)| (target, breaker.view(now_ms, window_ms)))
    }

    /// Number of breakers that are open or half-open.
    pub fn open_count(&self) -> usize {
        self.open
    }

    /// Times a breaker opened.
    pub fn opened_total(&self) -> u64 {
        self.opened_total
    }

    /// Number of targets known.
    pub fn len(&self) -> usize {
        self.breakers.len()
    }

    /// Whether no target is known.
    pub fn is_empty(&self) -> bool {
        self.breakers.is_empty()
    }

    /// Forgets a target that has left.
    pub fn forget(&mut self, target: &T) {
        if let Some(breaker) = self.breakers.remove(target) {
            self.open -= usize::from(breaker.state() != BreakerState::Closed);
        }
    }

    /// Whether one more target can be known, after the longest unused closed ones made room.
    fn make_room(&mut self) -> bool {
        let targets_max = self.limits.targets_max;
        if self.breakers.len() < targets_max {
            return true;
        }
        let is_closed = |breaker: &&Breaker| breaker.state() == BreakerState::Closed;
        let mut ages: Vec<Millis> =
            self.breakers.values().filter(is_closed).map(|breaker| breaker.used_at_ms).collect();
        if ages.is_empty() {
            return false;
        }
        let mut leaving = (ages.len() / EVICTED_PART).max(1);
        let (_, youngest_leaving, _) = ages.select_nth_unstable(leaving - 1);
        let youngest_leaving = *youngest_leaving;
        self.breakers.retain(|_, breaker| {
            let leaves = leaving > 0 && is_closed(&&*breaker) && breaker.used_at_ms <= youngest_leaving;
            leaving -= usize::from(leaves);
            !leaves
        });
        self.breakers.len() < targets_max
    }
}

impl Breaker {
    fn new(now_ms: Millis) -> Self {
        Breaker { circuit: Circuit::Closed(Window::default()), trips: 0, closed_at_ms: 0, used_at_ms: now_ms }
    }

    fn state(&self) -> BreakerState {
        match self.circuit {
            Circuit::Closed(_) => BreakerState::Closed,
            Circuit::Open { .. } => BreakerState::Open,
            Circuit::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn cool(&mut self, now_ms: Millis) {
        if let Circuit::Open { until_ms } = self.circuit
            && now_ms >= until_ms
        {
            self.circuit = Circuit::HalfOpen { out: 0, succeeded: 0, until_ms: now_ms };
        }
    }

    fn open(&mut self, limits: &BreakerLimits, chance: &mut Chance, now_ms: Millis) {
        // A target that was well for as long as the longest cool-down has earned a fresh start.
        let was_well = self.state() == BreakerState::Closed && now_ms - self.closed_at_ms >= limits.cooldown_max_ms;
        self.trips = if was_well { 1 } else { self.trips.saturating_add(1) };
        let growth = 1u64 << (self.trips - 1).min(GROWTH_BITS_MAX);
        let cooldown_ms = limits.cooldown_ms.saturating_mul(growth).min(limits.cooldown_max_ms);
        let until_ms = now_ms + cooldown_ms + chance.between(0, cooldown_ms / 4);
        self.circuit = Circuit::Open { until_ms };
    }

    fn view(&self, now_ms: Millis, window_ms: Millis) -> BreakerView {
        let (calls, failures) = match &self.circuit {
            Circuit::Closed(window) => window.totals(now_ms, window_ms),
            _ => (0, 0),
        };
        let until_ms = match self.circuit {
            Circuit::Open { until_ms } => Some(until_ms),
            _ => None,
        };
        BreakerView { state: self.state(), calls, failures, trips: self.trips, until_ms }
    }
}

#[cfg(test)]
mod tests;
