//! Drives a lookup in virtual time and checks what must hold in every run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::*;
use crate::Guards;

/// What a target does when it is asked.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Answer { after_ms: Millis, satisfactory: bool, closer: Vec<u32> },
    Fail { after_ms: Millis, transient: bool },
    Silence,
}

impl Reply {
    pub(super) fn found(after_ms: Millis) -> Self {
        Reply::Answer { after_ms, satisfactory: true, closer: Vec::new() }
    }

    pub(super) fn empty(after_ms: Millis) -> Self {
        Reply::Answer { after_ms, satisfactory: false, closer: Vec::new() }
    }
}

/// What a lookup did; times from its start.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) finished: Finished,
    pub(super) took_ms: Millis,
    pub(super) asked: Vec<(Millis, u32, bool)>,
    pub(super) budgets: Vec<(Millis, Millis)>,
    pub(super) cancelled: Vec<(Millis, u32)>,
    pub(super) course: Course<u32>,
    pub(super) known_max: usize,
    pub(super) nearest_answered: Vec<u32>,
}

/// A target's number is its position, and so its distance from position 0.
pub(super) fn position(target: u32) -> Position {
    let mut position = [0; 32];
    position[28..].copy_from_slice(&target.to_be_bytes());
    position
}

pub(super) fn candidate(target: u32) -> Candidate<u32> {
    Candidate::new(target, position(target))
}

pub(super) fn first_candidates(targets: std::ops::RangeInclusive<u32>) -> Vec<Candidate<u32>> {
    targets.map(candidate).collect()
}

/// Runs to the end. `script` says what a target does at its n-th ask, counted from 0.
pub(super) fn drive(
    mut lookup: Lookup<u32>,
    start_ms: Millis,
    limits: HedgeLimits,
    guards: &mut dyn Guards<u32>,
    mut script: impl FnMut(u32, u32) -> Reply,
) -> Run {
    // Replies to come: time, order of asking, target; the order tells a reply from that of a cancelled ask.
    let mut coming: BinaryHeap<Reverse<(Millis, u64, u32)>> = BinaryHeap::new();
    let mut replies: BTreeMap<u64, Event<u32>> = BTreeMap::new();
    let mut in_flight: BTreeMap<u32, u64> = BTreeMap::new();
    let mut attempts: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut asked, mut budgets, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    let (mut asks, mut known_max) = (0, 0);
    let (mut now_ms, mut event) = (start_ms, Event::Start);
    loop {
        let (mut wake_at_ms, mut finished) = (None, None);
        for action in lookup.step(now_ms, event, guards) {
            assert_eq!(finished, None, "nothing follows the end");
            match action {
                Action::Ask { target, hedge, budget_ms } => {
                    asks += 1;
                    assert_eq!(in_flight.insert(target, asks), None, "{target} is asked twice at once");
                    asked.push((now_ms - start_ms, target, hedge));
                    budgets.push((now_ms - start_ms, budget_ms));
                    let attempt = attempts.entry(target).or_default();
                    let (after_ms, reply) = match script(target, *attempt) {
                        Reply::Silence => (None, Event::Tick),
                        Reply::Fail { after_ms, transient } => (Some(after_ms), Event::Failed { target, transient }),
                        Reply::Answer { after_ms, satisfactory, closer } => {
                            let closer = closer.into_iter().map(candidate).collect();
                            (Some(after_ms), Event::Answered { target, satisfactory, closer })
                        }
                    };
                    *attempt += 1;
                    if let Some(after_ms) = after_ms {
                        coming.push(Reverse((now_ms + after_ms, asks, target)));
                        replies.insert(asks, reply);
                    }
                }
                Action::Cancel { target } => {
                    assert!(in_flight.remove(&target).is_some(), "{target} is not in flight");
                    cancelled.push((now_ms - start_ms, target));
                }
                Action::WakeAt(at_ms) => wake_at_ms = Some(at_ms),
                Action::Finish(end) => finished = Some(end),
            }
        }
        known_max = known_max.max(lookup.known.len());
        assert!(in_flight.len() <= limits.alpha + limits.beta, "too many at once: {in_flight:?}");
        if let Some(finished) = finished {
            assert!(in_flight.is_empty(), "left in flight: {in_flight:?}");
            assert!(now_ms <= start_ms + limits.deadline_ms, "finished at {now_ms}");
            let course = lookup.course().clone();
            assert!(course.records().iter().all(|record| record.end.is_some()), "{course:?}");
            let nearest_answered = lookup.nearest_answered(limits.nearest);
            let took_ms = now_ms - start_ms;
            return Run { finished, took_ms, asked, budgets, cancelled, course, known_max, nearest_answered };
        }
        let wake_at_ms = wake_at_ms.expect("a lookup that goes on says when");
        assert!(wake_at_ms > now_ms, "a wake-up in the past would spin");
        while coming.peek().is_some_and(|Reverse((_, ask, target))| in_flight.get(target) != Some(ask)) {
            coming.pop();
        }
        (now_ms, event) = match coming.peek() {
            Some(Reverse((at_ms, ask, target))) if *at_ms <= wake_at_ms => {
                in_flight.remove(target);
                let reply = replies.remove(ask).expect("each reply comes once");
                let at_ms = *at_ms;
                coming.pop();
                (at_ms, reply)
            }
            _ => (wake_at_ms, Event::Tick),
        };
    }
}
