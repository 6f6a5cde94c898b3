//! Breakers against a naive model, and the cases a reader asks about.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::window::{SLICES, slice_of};
use super::*;

const LIMITS: BreakerLimits = BreakerLimits {
    error_window_ms: 10_000,
    trip_per_mille: 500,
    calls_min: 4,
    cooldown_ms: 1_000,
    cooldown_max_ms: 6_000,
    half_open_probes: 2,
    open_per_mille_max: 400,
    targets_max: 100,
};

fn table() -> BreakerTable<u8> {
    BreakerTable::new(LIMITS, 9)
}

fn trip(table: &mut BreakerTable<u8>, target: u8, now_ms: Millis) {
    (0..LIMITS.calls_min).for_each(|_| table.record(&target, false, now_ms));
}

fn until(table: &BreakerTable<u8>, target: u8) -> Millis {
    let view = table.iter(0).find(|(known, _)| **known == target).map(|(_, view)| view);
    view.and_then(|view| view.until_ms).expect("an open breaker")
}

#[test]
fn it_opens_above_the_threshold_and_not_before_enough_calls() {
    let mut table = table();
    (0..3).for_each(|_| table.record(&1, false, 0));
    assert_eq!(table.state(&1), BreakerState::Closed, "too few calls");
    table.record(&1, true, 0);
    assert_eq!(table.state(&1), BreakerState::Closed, "a success opens nothing, though three of four failed");
    table.record(&1, false, 0);
    assert_eq!(table.state(&1), BreakerState::Open);
    assert!(matches!(table.admit(&1, 0), Admission::No { retry_ms } if (1_000..=1_250).contains(&retry_ms)));

    let (mut table, half) = (self::table(), [true, false, true, false, true, false]);
    half.into_iter().for_each(|ok| table.record(&1, ok, 0));
    assert_eq!(table.state(&1), BreakerState::Closed, "half is the threshold, not above it");
}

#[test]
fn failures_expire_with_their_window() {
    let mut table = table();
    (0..3).for_each(|_| table.record(&1, false, 500));
    table.record(&1, false, 10_000);
    assert_eq!(table.state(&1), BreakerState::Closed, "the first three are ten slices old");
    (0..2).for_each(|_| table.record(&1, false, 18_000));
    table.record(&1, false, 19_500);
    assert_eq!(table.state(&1), BreakerState::Open, "four in the window");
}

#[test]
fn probes_close_it_and_a_failed_probe_opens_it_for_longer() {
    let mut table = table();
    trip(&mut table, 1, 0);
    let first = until(&table, 1);
    assert_eq!(table.admit(&1, first - 1), Admission::No { retry_ms: 1 });
    assert_eq!(
        [(); 3].map(|()| table.admit(&1, first)),
        [Admission::Probe, Admission::Probe, Admission::No { retry_ms: 1_000 }]
    );
    table.record(&1, true, first + 10);
    assert_eq!(table.state(&1), BreakerState::HalfOpen, "one of two");
    table.record(&1, false, first + 20);
    assert_eq!(table.state(&1), BreakerState::Open);
    let second = until(&table, 1) - (first + 20);
    assert!((2_000..=2_500).contains(&second), "twice the cool-down: {second}");

    let at = until(&table, 1);
    (0..2).for_each(|_| assert_eq!(table.admit(&1, at), Admission::Probe));
    (0..2).for_each(|_| table.record(&1, true, at));
    assert_eq!((table.state(&1), table.open_count(), table.opened_total()), (BreakerState::Closed, 0, 2));
}

#[test]
fn a_lost_probe_is_given_up_and_a_cancelled_one_given_back() {
    let mut table = table();
    trip(&mut table, 1, 0);
    let at = until(&table, 1);
    (0..2).for_each(|_| assert_eq!(table.admit(&1, at), Admission::Probe));
    table.cancelled(&1, at);
    assert_eq!(table.admit(&1, at), Admission::Probe);
    assert_eq!(table.admit(&1, at + 999), Admission::No { retry_ms: 1 });
    assert_eq!(table.admit(&1, at + 1_000), Admission::Probe, "both are lost");
}

#[test]
fn at_most_a_share_of_the_targets_is_open() {
    let mut table = table();
    (0..10).for_each(|target| table.record(&target, true, 0));
    (0..10).for_each(|target| (0..10).for_each(|_| table.record(&target, false, 0)));
    assert_eq!(table.open_count(), 4, "40 % of ten");
    let mut alone = self::table();
    trip(&mut alone, 1, 0);
    assert_eq!(alone.open_count(), 1, "one always may");
}

#[test]
fn the_closed_and_longest_unused_make_room() {
    let limits = BreakerLimits { targets_max: 32, ..LIMITS };
    let mut table: BreakerTable<u32> = BreakerTable::new(limits, 1);
    (0..4).for_each(|_| table.record(&0, false, 0));
    for target in 1..10_000u32 {
        table.record(&target, true, u64::from(target));
        assert!(table.len() <= 32);
    }
    assert_eq!(table.state(&0), BreakerState::Open, "an open one is never forgotten to make room");
    let known = |target| table.iter(0).any(|(known, _)| *known == target);
    assert!(known(9_999) && known(9_980) && !known(5_000));
}

/// One target as a reader of the rules would keep it: all calls ever, and the rule applied to them.
#[derive(Clone, Debug)]
struct Model {
    state: ModelState,
    calls: Vec<(u64, bool)>,
    trips: u32,
    closed_at_ms: Millis,
}

#[derive(Clone, Debug, PartialEq)]
enum ModelState {
    Closed,
    Open { until_ms: Millis },
    HalfOpen { out: u32, succeeded: u32, until_ms: Millis },
}

impl Model {
    fn window(&self, now_ms: Millis) -> (usize, usize) {
        let current = slice_of(now_ms, LIMITS.error_window_ms);
        let live = || self.calls.iter().filter(|(slice, _)| slice + SLICES as u64 > current);
        (live().count(), live().filter(|(_, ok)| !ok).count())
    }

    fn cool(&mut self, now_ms: Millis) {
        if matches!(self.state, ModelState::Open { until_ms } if now_ms >= until_ms) {
            self.state = ModelState::HalfOpen { out: 0, succeeded: 0, until_ms: now_ms };
        }
    }

    /// The jitter is the table's to choose, within a quarter; everything else is the rule's.
    fn open(&mut self, now_ms: Millis, until_ms: Millis) {
        let is_fresh = self.state == ModelState::Closed && now_ms - self.closed_at_ms >= LIMITS.cooldown_max_ms;
        self.trips = if is_fresh { 1 } else { self.trips + 1 };
        let base = (0..self.trips - 1).fold(LIMITS.cooldown_ms, |ms, _| (ms * 2).min(LIMITS.cooldown_max_ms));
        let wait = until_ms - now_ms;
        assert!(base <= wait && wait <= base + base / 4, "{wait} ms is no cool-down of {base} ms");
        self.state = ModelState::Open { until_ms };
    }
}

#[derive(Clone, Debug)]
enum Op {
    Admit(u8),
    Record(u8, bool),
    Cancel(u8),
    Roll,
    Wait(Millis),
}

fn op() -> impl Strategy<Value = Op> {
    let target = || 0u8..6;
    prop_oneof![
        4 => target().prop_map(Op::Admit),
        8 => (target(), proptest::bool::weighted(0.3)).prop_map(|(target, ok)| Op::Record(target, ok)),
        1 => target().prop_map(Op::Cancel),
        1 => Just(Op::Roll),
        3 => prop_oneof![1u64..1_200, 1u64..9_000].prop_map(Op::Wait),
    ]
}

struct Models {
    models: BTreeMap<u8, Model>,
    table: BreakerTable<u8>,
    now_ms: Millis,
}

impl Models {
    fn apply(&mut self, op: Op) {
        let now_ms = self.now_ms;
        match op {
            Op::Wait(ms) => self.now_ms += ms,
            Op::Roll => {
                self.table.roll(now_ms);
                self.models.values_mut().for_each(|model| model.cool(now_ms));
            }
            Op::Cancel(target) => {
                self.table.cancelled(&target, now_ms);
                if let Some(Model { state: ModelState::HalfOpen { out, .. }, .. }) = self.models.get_mut(&target) {
                    *out = out.saturating_sub(1);
                }
            }
            Op::Admit(target) => {
                let expected = self.admit(target);
                assert_eq!(self.table.admit(&target, now_ms), expected, "target {target}");
            }
            Op::Record(target, ok) => self.record(target, ok),
        }
        self.compare();
    }

    fn admit(&mut self, target: u8) -> Admission {
        let now_ms = self.now_ms;
        let Some(model) = self.models.get_mut(&target) else { return Admission::Yes };
        model.cool(now_ms);
        match &mut model.state {
            ModelState::Closed => Admission::Yes,
            ModelState::Open { until_ms } => Admission::No { retry_ms: *until_ms - now_ms },
            ModelState::HalfOpen { out, succeeded, until_ms } => {
                if now_ms >= *until_ms {
                    *out = 0;
                }
                if *out + *succeeded == LIMITS.half_open_probes {
                    return Admission::No { retry_ms: until_ms.saturating_sub(now_ms) };
                }
                (*out, *until_ms) = (*out + 1, now_ms + LIMITS.cooldown_ms);
                Admission::Probe
            }
        }
    }

    fn record(&mut self, target: u8, ok: bool) {
        let now_ms = self.now_ms;
        let fresh = Model { state: ModelState::Closed, calls: Vec::new(), trips: 0, closed_at_ms: 0 };
        self.models.entry(target).or_insert(fresh);
        let open = self.models.values().filter(|model| model.state != ModelState::Closed).count();
        let open_max = (self.models.len() * 4 / 10).max(1);
        self.table.record(&target, ok, now_ms);
        let model = self.models.get_mut(&target).expect("just put there");
        match &mut model.state {
            ModelState::Closed => {
                model.calls.push((slice_of(now_ms, LIMITS.error_window_ms), ok));
                let (calls, failures) = model.window(now_ms);
                if !ok && calls >= 4 && failures * 2 > calls && open < open_max {
                    model.open(now_ms, until(&self.table, target));
                }
            }
            ModelState::Open { .. } | ModelState::HalfOpen { out: 0, .. } => {}
            ModelState::HalfOpen { .. } if !ok => model.open(now_ms, until(&self.table, target)),
            ModelState::HalfOpen { out, succeeded, .. } => {
                (*out, *succeeded) = (*out - 1, *succeeded + 1);
                if *succeeded == LIMITS.half_open_probes {
                    (model.state, model.closed_at_ms) = (ModelState::Closed, now_ms);
                    model.calls.clear();
                }
            }
        }
    }

    fn compare(&self) {
        assert_eq!(self.table.len(), self.models.len());
        for (target, view) in self.table.iter(self.now_ms) {
            let model = &self.models[target];
            let expected = match model.state {
                ModelState::Closed => BreakerState::Closed,
                ModelState::Open { .. } => BreakerState::Open,
                ModelState::HalfOpen { .. } => BreakerState::HalfOpen,
            };
            assert_eq!((view.state, view.trips), (expected, model.trips), "target {target}");
            if view.state == BreakerState::Closed {
                assert_eq!((view.calls as usize, view.failures as usize), model.window(self.now_ms), "{target}");
            }
        }
        let open = self.models.values().filter(|model| model.state != ModelState::Closed).count();
        assert_eq!(self.table.open_count(), open);
        assert!(open <= (self.models.len() * 4 / 10).max(1), "{open} of {} open", self.models.len());
    }
}

proptest! {
    #[test]
    fn the_table_does_what_the_rules_say(ops in proptest::collection::vec(op(), 1..400), seed in any::<u64>()) {
        let table = BreakerTable::new(LIMITS, seed);
        let mut models = Models { models: BTreeMap::new(), table, now_ms: 0 };
        ops.into_iter().for_each(|op| models.apply(op));
    }
}
