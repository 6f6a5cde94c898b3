//! Lookups in virtual time: what targets do is a script, and the driver checks what must hold in every run.

use super::*;
use crate::{BreakerLimits, BreakerState, BreakerTable, HedgeBudget, TargetGuards};

mod driver;
mod overhead;
mod properties;

use driver::{Reply, Run, drive, first_candidates, position};

type Guarded = TargetGuards<u32, ()>;

const NEVER_OPEN: BreakerLimits = BreakerLimits {
    error_window_ms: 30_000,
    trip_per_mille: 1000,
    calls_min: u32::MAX,
    cooldown_ms: 5_000,
    cooldown_max_ms: 120_000,
    half_open_probes: 1,
    open_per_mille_max: 1000,
    targets_max: 1_000,
};

fn guards() -> Guarded {
    TargetGuards::new(BreakerTable::new(NEVER_OPEN, 1), HedgeBudget::default(), |_| ())
}

fn limits() -> HedgeLimits {
    HedgeLimits { nearest: 8, ..HedgeLimits::default() }
}

fn run(limits: HedgeLimits, targets: u32, guards: &mut Guarded, script: impl FnMut(u32, u32) -> Reply) -> Run {
    let lookup = Lookup::new(position(0), limits, first_candidates(1..=targets), 1_000, 7);
    drive(lookup, 1_000, limits, guards, script)
}

/// Targets 1 to 5 have positions 1 to 5 and the key is 0: they are asked in that order.
#[test]
fn an_alpha_dropped_in_flight_is_overtaken_by_a_beta_and_everybody_else_is_cancelled() {
    let script = |target, _| match target {
        4 => Reply::found(20),
        5 => Reply::found(500),
        _ => Reply::Silence,
    };
    let run = run(limits(), 8, &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.took_ms), (Conclusion::Found, 170));
    assert_eq!(run.asked, [(0, 1, false), (0, 2, false), (0, 3, false), (150, 4, true), (150, 5, true)]);
    assert_eq!(run.cancelled, [(170, 1), (170, 2), (170, 3), (170, 5)]);
    let ends: Vec<_> = run.course.records().iter().map(|record| record.end.map(|(_, end)| end)).collect();
    let cancelled = Some(AskEnd::Cancelled);
    assert_eq!(ends, [cancelled, cancelled, cancelled, Some(AskEnd::Won), cancelled]);
    assert_eq!((run.course.took_ms(), run.course.hedges()), (Some(170), 2));
}

#[test]
fn an_alpha_whose_connection_breaks_is_replaced_at_once() {
    let script = |target, _| match target {
        1 => Reply::Fail { after_ms: 5, transient: false },
        4 => Reply::found(10),
        _ => Reply::Silence,
    };
    let run = run(limits(), 8, &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.took_ms, run.finished.failed), (Conclusion::Found, 15, 1));
    assert_eq!(run.course.hedges(), 0, "a failure is not late");
}

#[test]
fn one_late_target_beside_others_that_answer_is_not_hedged() {
    let script = |target, _| if target == 1 { Reply::empty(390) } else { Reply::empty(30) };
    let run = run(HedgeLimits { hedge_after_ms: 300, ..limits() }, 8, &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.course.hedges()), (Conclusion::Absent, 0));
}

#[test]
fn the_deadline_is_met_to_the_millisecond_whatever_the_targets_do() {
    let slow = HedgeLimits { ask_timeout_ms: 10_000, ..limits() };
    for (case, limits) in [("one wave", slow), ("many waves", limits())] {
        let run = run(limits, 64, &mut guards(), |_, _| Reply::Silence);
        assert_eq!((run.finished.conclusion, run.took_ms), (Conclusion::Unknown, 1200), "{case}");
        assert!(run.finished.deadline_hit, "{case}");
    }
    let run = run(limits(), 64, &mut guards(), |_, _| Reply::Fail { after_ms: 70, transient: true });
    assert!(run.took_ms <= 1200, "{}", run.took_ms);
    assert_eq!(run.finished.conclusion, Conclusion::Unknown);
}

#[test]
fn an_answer_at_the_deadline_still_counts() {
    let limits = HedgeLimits { ask_timeout_ms: 5_000, ..limits() };
    let run = run(limits, 3, &mut guards(), |_, _| Reply::found(1200));
    assert_eq!((run.finished.conclusion, run.took_ms), (Conclusion::Found, 1200));
}

#[test]
fn the_budget_of_an_ask_never_passes_the_deadline() {
    let limits = HedgeLimits { ask_timeout_ms: 500, ..limits() };
    let run = run(limits, 64, &mut guards(), |_, _| Reply::Silence);
    assert!(run.budgets.iter().all(|(at_ms, budget_ms)| *budget_ms == 500.min(1200 - at_ms)), "{:?}", run.budgets);
    assert!(run.budgets.iter().any(|(at_ms, _)| *at_ms > 700));
}

fn open(guards: &mut Guarded, target: u32) {
    guards.breakers.set_limits(BreakerLimits { calls_min: 1, trip_per_mille: 0, ..NEVER_OPEN });
    guards.breakers.record(&target, false, 1_000);
    guards.breakers.set_limits(NEVER_OPEN);
    assert_eq!(guards.breakers.state(&target), BreakerState::Open);
}

#[test]
fn nothing_is_asked_of_or_hedged_to_an_open_breaker() {
    let mut guards = guards();
    for target in [2, 5] {
        open(&mut guards, target);
    }
    let run = run(limits(), 7, &mut guards, |target, _| if target == 7 { Reply::found(10) } else { Reply::Silence });
    let asked: Vec<_> = run.asked.iter().map(|(_, target, hedge)| (*target, *hedge)).collect();
    assert_eq!(asked, [(1, false), (3, false), (4, false), (6, true), (7, true)]);
    assert_eq!((run.finished.conclusion, run.finished.degraded), (Conclusion::Found, 1), "5 was not needed");
    let skipped = run.course.records().iter().find(|record| record.target == 2).expect("a record of the skip");
    assert_eq!((skipped.end, skipped.breaker), (Some((0, AskEnd::SkippedOpen)), BreakerState::Open));
    let mut others = run.course.records().iter().filter(|record| record.target != 2);
    assert!(others.all(|record| record.breaker == BreakerState::Closed));
}

#[test]
fn a_half_open_breaker_gets_its_probe_from_an_alpha_and_never_from_a_hedge() {
    let mut guards = guards();
    for target in [1, 4] {
        open(&mut guards, target);
    }
    guards.breakers.roll(100_000);
    assert_eq!(guards.breakers.state(&4), BreakerState::HalfOpen);
    let script = |target, _| if target == 6 { Reply::found(10) } else { Reply::Silence };
    let run = run(limits(), 6, &mut guards, script);
    let asked: Vec<_> = run.asked.iter().map(|(_, target, hedge)| (*target, *hedge)).collect();
    assert_eq!(asked, [(1, false), (2, false), (3, false), (5, true), (6, true)]);
    let breakers: Vec<_> = run.course.records().iter().map(|record| record.breaker).collect();
    assert_eq!(breakers[..2], [BreakerState::HalfOpen, BreakerState::Closed], "the course tells a probe");
    assert_eq!(guards.breakers.admit(&1, 100_000), Admission::Probe, "the cancelled probe was given back");
}

#[test]
fn without_tokens_nothing_is_hedged() {
    let mut guards = guards();
    while guards.budget.take() {}
    let run = run(limits(), 8, &mut guards, |target, _| if target == 4 { Reply::found(9) } else { Reply::Silence });
    assert_eq!((run.course.hedges(), run.took_ms), (0, 409), "the next is asked when the first are given up");
}

#[test]
fn a_dead_target_does_not_poison_what_others_brought() {
    let limits = HedgeLimits { quorum: 2, ..limits() };
    let script = |target, _| match target {
        1 => Reply::Silence,
        2 => Reply::Fail { after_ms: 10, transient: false },
        3 | 5 => Reply::found(30),
        _ => Reply::empty(30),
    };
    let run = run(limits, 6, &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.finished.satisfied, run.took_ms), (Conclusion::Found, 2, 60));

    let script = |target, _| if target == 3 { Reply::found(30) } else { Reply::Silence };
    let run = self::run(limits, 6, &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.finished.satisfied), (Conclusion::Found, 1), "all the others are dead");
}

#[test]
fn a_record_is_absent_only_when_the_nearest_have_answered() {
    let all = run(limits(), 20, &mut guards(), |_, _| Reply::empty(10));
    assert_eq!((all.finished.conclusion, all.course.asks()), (Conclusion::Absent, 8));
    let held_by_the_eighth = |target, _| if target == 8 { Reply::found(10) } else { Reply::empty(10) };
    assert_eq!(run(limits(), 20, &mut guards(), held_by_the_eighth).finished.conclusion, Conclusion::Found);

    let lost = |count: u32| {
        let script = move |target, _| if target <= count { Reply::Silence } else { Reply::empty(10) };
        run(limits(), 8, &mut guards(), script).finished.conclusion
    };
    assert_eq!(lost(2), Conclusion::Absent, "a quarter may be lost");
    assert_eq!(lost(3), Conclusion::Unknown);
    let alone = run(limits(), 0, &mut guards(), |_, _| Reply::Silence);
    assert_eq!((alone.finished.conclusion, alone.took_ms), (Conclusion::Unknown, 0), "nobody to ask is no answer");
}

#[test]
fn open_breakers_count_as_lost_for_absence() {
    let mut guards = guards();
    for target in [1, 2, 3] {
        open(&mut guards, target);
    }
    let run = run(limits(), 8, &mut guards, |_, _| Reply::empty(10));
    assert_eq!((run.finished.conclusion, run.finished.degraded), (Conclusion::Unknown, 3));
}

#[test]
fn transient_failures_are_tried_again_three_times_within_the_window() {
    let script = |_, _| Reply::Fail { after_ms: 10, transient: true };
    let run = run(limits(), 1, &mut guards(), script);
    let at: Vec<_> = run.asked.iter().map(|(at_ms, ..)| *at_ms).collect();
    assert_eq!(at.len(), 4, "one try and three retries: {at:?}");
    let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0] - 10).collect();
    assert!(waits.iter().all(|wait| (50..=100).contains(wait)), "{waits:?}");
    assert_eq!(run.finished.conclusion, Conclusion::Unknown);

    let script =
        |_, attempt| if attempt == 2 { Reply::found(10) } else { Reply::Fail { after_ms: 10, transient: true } };
    assert_eq!(self::run(limits(), 1, &mut guards(), script).finished.conclusion, Conclusion::Found);
    let script = |_, _| Reply::Fail { after_ms: 10, transient: false };
    assert_eq!(self::run(limits(), 1, &mut guards(), script).course.asks(), 1);
}

#[test]
fn a_breaker_that_opens_ends_the_retries() {
    let trips_at_two = BreakerLimits { calls_min: 2, trip_per_mille: 500, ..NEVER_OPEN };
    let mut guards: Guarded = TargetGuards::new(BreakerTable::new(trips_at_two, 1), HedgeBudget::default(), |_| ());
    let run = run(limits(), 1, &mut guards, |_, _| Reply::Fail { after_ms: 10, transient: true });
    assert_eq!((run.course.asks(), guards.breakers.state(&1)), (2, BreakerState::Open));
}

#[test]
fn closer_targets_are_asked_and_their_steps_counted() {
    let script = |target, _| match target {
        100..=103 => Reply::Answer { after_ms: 10, satisfactory: false, closer: vec![50, 51] },
        50 | 51 => Reply::Answer { after_ms: 10, satisfactory: false, closer: vec![7] },
        _ => Reply::found(10),
    };
    let lookup = Lookup::new(position(0), limits(), first_candidates(100..=103), 0, 7);
    let run = drive(lookup, 0, limits(), &mut guards(), script);
    assert_eq!((run.finished.conclusion, run.finished.hops, run.took_ms), (Conclusion::Found, 3, 30));
}

#[test]
fn what_a_single_liar_names_does_not_fill_the_front() {
    // Target 100 names as many of its own as it may, all nearer than anybody; they deny everything. The honest
    // targets are further, and one of them has the record.
    let script = |target, _| match target {
        100 => Reply::Answer { after_ms: 5, satisfactory: false, closer: (1..=20).collect() },
        1..=20 => Reply::Answer { after_ms: 5, satisfactory: false, closer: (21..=40).collect() },
        103 => Reply::found(5),
        _ => Reply::empty(5),
    };
    let lookup = Lookup::new(position(0), limits(), first_candidates(100..=103), 0, 7);
    let run = drive(lookup, 0, limits(), &mut guards(), script);
    assert_eq!(run.finished.conclusion, Conclusion::Found);
}

#[test]
fn those_that_do_not_exist_do_not_take_all_places() {
    // Target 100 answers first and names twenty that do not exist. One of them is tried at a time.
    let script = |target, _| match target {
        100 => Reply::Answer { after_ms: 5, satisfactory: false, closer: (1..=20).collect() },
        101..=106 => Reply::Answer { after_ms: 20, satisfactory: false, closer: vec![60, 61] },
        61 => Reply::found(20),
        60 => Reply::empty(20),
        _ => Reply::Silence,
    };
    let lookup = Lookup::new(position(0), limits(), first_candidates(100..=106), 0, 7);
    let run = drive(lookup, 0, limits(), &mut guards(), script);
    assert_eq!(run.finished.conclusion, Conclusion::Found);
    assert!(run.took_ms <= 150, "{:?}", run.asked);
}

#[test]
fn a_network_of_addresses_fills_a_quarter_of_the_front() {
    let script = |target, _| if target == 104 { Reply::found(5) } else { Reply::empty(5) };
    let group = crate::ip_group([203, 0, 113, 9].into(), true);
    let crowd = (1..=20).map(|target| Candidate { group, ..driver::candidate(target) });
    let candidates = crowd.chain(first_candidates(100..=110)).collect();
    let lookup = Lookup::new(position(0), limits(), candidates, 0, 7);
    let run = drive(lookup, 0, limits(), &mut guards(), script);
    assert_eq!(run.finished.conclusion, Conclusion::Found);
    assert_eq!(run.nearest_answered.iter().filter(|target| **target <= 20).count(), 2, "nor is it given every copy");
    let of_crowd = run.asked.iter().filter(|(_, target, _)| *target <= 20).count();
    assert_eq!(of_crowd, 2, "{:?}", run.asked);
}

#[test]
fn what_peers_name_is_bounded() {
    let bounds = HedgeLimits { closer_max: 3, candidates_max: 10, asks_max: 12, ..limits() };
    let endless = |target: u32, _| Reply::Answer {
        after_ms: 1,
        satisfactory: false,
        closer: (1..100).map(|step| target.saturating_sub(step)).filter(|target| *target > 0).collect(),
    };
    let lookup = Lookup::new(position(0), bounds, first_candidates(1_000_000..=1_000_003), 0, 7);
    let run = drive(lookup, 0, bounds, &mut guards(), endless);
    assert!(run.course.asks() <= 12 && run.finished.conclusion == Conclusion::Unknown, "{:?}", run.finished);
    assert!(run.known_max <= 10, "{}", run.known_max);
}

#[test]
fn answers_nobody_waits_for_change_nothing() {
    let mut guards = guards();
    let mut lookup = Lookup::new(position(0), limits(), first_candidates(1..=8), 0, 7);
    lookup.step(0, Event::Start, &mut guards);
    for target in [6, 99] {
        let event = Event::Answered { target, satisfactory: true, closer: first_candidates(200..=220) };
        let actions = lookup.step(1, event, &mut guards);
        assert_eq!(actions, [Action::WakeAt(150)], "{target} was not asked");
    }
    lookup.step(2, Event::Answered { target: 1, satisfactory: true, closer: Vec::new() }, &mut guards);
    assert!(lookup.is_finished());
    assert_eq!(lookup.step(3, Event::Tick, &mut guards), []);
}
