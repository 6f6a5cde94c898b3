//! How long answers of a class of targets take: the 95th percentile of the latest ones says when a hedge is due.

use std::collections::BTreeMap;

use ron_types::limits::lookup as limits;

use crate::{Millis, millis};

/// Latest answers of a class that are judged.
const SAMPLES_MAX: usize = 512;
/// Fewer answers than this say nothing about the tail.
const SAMPLES_MIN: usize = 20;
/// The percentile is computed again after this many answers: sorting at each one would cost more than asking.
const REFRESH_EVERY: usize = 16;

/// Latest answers by class of target; classes are few and chosen by the program, never by a peer.
#[derive(Clone, Debug)]
pub struct LatencyTrack<C: Ord> {
    classes: BTreeMap<C, Samples>,
}

#[derive(Clone, Debug, Default)]
struct Samples {
    latest: Vec<u32>,
    next: usize,
    since_refresh: usize,
    p95: Option<Millis>,
}

impl<C: Ord> LatencyTrack<C> {
    /// Nothing known yet.
    pub fn new() -> Self {
        LatencyTrack { classes: BTreeMap::new() }
    }

    /// Counts an answer that took so long. Silence is not counted: a black hole says nothing about those that answer.
    pub fn observe(&mut self, class: C, took_ms: Millis) {
        self.classes.entry(class).or_default().push(u32::try_from(took_ms).unwrap_or(u32::MAX));
    }

    /// The 95th percentile of the class, if enough answers are known.
    pub fn p95_ms(&self, class: &C) -> Option<Millis> {
        self.classes.get(class).and_then(|samples| samples.p95)
    }

    /// When a hedge is due: the percentile within its bounds, or the default where too little is known.
    pub fn hedge_after_ms(&self, class: &C) -> Millis {
        let (low, high) = (millis(limits::HEDGE_AFTER_MIN), millis(limits::HEDGE_AFTER_MAX));
        self.p95_ms(class).map_or_else(|| millis(limits::HEDGE_AFTER), |p95| p95.clamp(low, high))
    }

    /// When a silent target has failed: a few times what nearly all others need. A fixed time would be too long where
    /// all are near, and silent targets would hold the places of those that answer.
    pub fn ask_timeout_ms(&self, class: &C) -> Millis {
        let (low, high) = (millis(limits::ASK_TIMEOUT_MIN), millis(limits::ASK_TIMEOUT));
        (self.hedge_after_ms(class) * limits::ASK_TIMEOUT_FACTOR).clamp(low, high)
    }
}

impl<C: Ord> Default for LatencyTrack<C> {
    fn default() -> Self {
        LatencyTrack::new()
    }
}

impl Samples {
    fn push(&mut self, took_ms: u32) {
        if self.latest.len() < SAMPLES_MAX {
            self.latest.push(took_ms);
        } else {
            self.latest[self.next] = took_ms;
            self.next = (self.next + 1) % SAMPLES_MAX;
        }
        self.since_refresh += 1;
        let is_due = self.p95.is_none() || self.since_refresh >= REFRESH_EVERY;
        if self.latest.len() >= SAMPLES_MIN && is_due {
            self.since_refresh = 0;
            let mut sorted = self.latest.clone();
            let rank = sorted.len() * 95 / 100;
            let (_, p95, _) = sorted.select_nth_unstable(rank);
            self.p95 = Some(Millis::from(*p95));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_holds_until_enough_is_known() {
        let mut track = LatencyTrack::new();
        for _ in 0..SAMPLES_MIN - 1 {
            track.observe("peer", 30);
        }
        assert_eq!((track.p95_ms(&"peer"), track.hedge_after_ms(&"peer")), (None, 150));
        track.observe("peer", 30);
        assert_eq!(track.hedge_after_ms(&"peer"), 30);
        assert_eq!(track.hedge_after_ms(&"upstream"), 150, "classes are apart");
    }

    #[test]
    fn it_is_the_95th_percentile_within_bounds() {
        let mut track = LatencyTrack::new();
        (0..500).for_each(|sample| track.observe((), sample % 100));
        assert_eq!((track.hedge_after_ms(&()), track.ask_timeout_ms(&())), (95, 380));
        (0..SAMPLES_MAX).for_each(|_| track.observe((), 1));
        assert_eq!((track.hedge_after_ms(&()), track.ask_timeout_ms(&())), (20, 200), "the old ones are gone");
        (0..SAMPLES_MAX).for_each(|_| track.observe((), 5_000));
        assert_eq!((track.hedge_after_ms(&()), track.ask_timeout_ms(&())), (400, 400));
    }
}
