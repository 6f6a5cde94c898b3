//! What a run leaves over is paid once, whatever is carried and corrected, in whatever order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ron_calculus::Units;
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::job::{Basis, read, settle};
use svc_rewarder::{Computed, Job, Unwatched};

use crate::changes::balances;
use crate::{Scratch, computed, units};

/// A cap leaves sixty of a hundred units over, and the next epoch pays them.
fn capped(cap: u32) -> String {
    format!(
        r#"{{"id":"p","ruleset":1,"assets":[{{"asset":"RON","pool":"100","cap":"{cap}","weights":{{"usage":"1"}}}}]}}"#
    )
}

const FOUR: &str = "actor,quantity\na,1\nb,1\nc,1\nd,1\n";

fn order(scratch: &Scratch, epoch: &str, rows: &str, policy: &str) -> Job {
    let mut job = scratch.job(&[("u.csv", rows)], policy);
    job.epoch = epoch.parse().expect("a name");
    job
}

fn correct(paid: &Computed, basis: Basis, bounds: Bounds) -> Computed {
    let correction = Correction::of(paid, [7; 32], bounds).expect("it adds up");
    let basis = Basis { correction: Some(correction), ..basis };
    settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("settled")
}

#[test]
fn a_correction_pays_nothing_that_a_later_epoch_has_carried_in() {
    let scratch = Scratch::new();
    let first = computed(&order(&scratch, "first", FOUR, &capped(10)));
    assert_eq!(first.left_over(), units("RON", 60));
    let mut job = order(&scratch, "second", FOUR, &capped(40));
    (job.carry, job.pools) = (first.left_over(), units("RON", 0));
    let second = computed(&job);
    assert_eq!(balances(&[&first, &second]).values().sum::<u128>(), 100, "all there is");

    // The cap should have been twenty: forty units more, which the second epoch has paid to others.
    let should = |pool: u128| {
        let mut job = order(&scratch, "fix", FOUR, &capped(20));
        job.pools = units("RON", pool);
        read(&job, &Unwatched).expect("read")
    };
    let refused = correct(&first, should(100), Bounds::default()).outcome.expect_err("the units are gone").to_string();
    for part in ["80 units are due from a pool of 100", "60 were left over", "--take-left-over"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    // Its owner adds forty.
    let fixed = correct(&first, should(140), Bounds::default());
    assert_eq!(balances(&[&first, &second, &fixed]).values().sum::<u128>(), 140);
    assert_eq!(fixed.left_over(), BTreeMap::new());

    // Had nobody carried them, the correction could have been told to take them up, and leaves the rest over.
    let takes = Bounds { takes_left_over: true, ..Bounds::default() };
    let fixed = correct(&first, should(100), takes);
    assert_eq!(balances(&[&first, &fixed]).values().sum::<u128>(), 80);
    assert_eq!(fixed.left_over(), units("RON", 20));
    // A correction of it keeps clear of those twenty.
    let again = correct(&fixed, should(100), Bounds::default());
    assert_eq!(
        (again.basis.correction.as_ref().expect("one").reserved.clone(), again.left_over()),
        (units("RON", 20), BTreeMap::new())
    );
    assert!(again.outcome.is_ok());
}

/// Units that were never carried into the corrected run make no correction, whatever happened before.
fn refuses_made_up(paid: &Computed, mut basis: Basis, bounds: Bounds) {
    basis.carry.entry("RON".to_owned()).or_default().0 += 1;
    basis.correction = Some(Correction::of(paid, [7; 32], bounds).expect("it adds up"));
    let made = settle(basis, 1, &Unwatched, ron_calculus::allocate);
    assert!(made.is_err(), "a unit from nowhere is divided");
}

/// Everything that happened so far.
#[derive(Default)]
struct World {
    runs: Vec<Run>,
}

struct Run {
    computed: Computed,
    /// The run that it corrects.
    corrects: Option<usize>,
    /// A correction of it is paid.
    is_corrected: bool,
    /// What it left over is carried in or taken up.
    is_spent: bool,
}

/// One thing that happens. Numbers choose among what there is.
#[derive(Clone, Debug)]
struct Step {
    is_correction: bool,
    of: usize,
    takes: bool,
    carries: bool,
    clawback_max: Option<u128>,
    pool: u128,
    cap: Option<u128>,
    rounding: &'static str,
    quantities: Vec<u64>,
}

fn step() -> impl Strategy<Value = Step> {
    let cap = prop::option::of(1_u128..30);
    let rounding = prop::sample::select(vec!["largest_remainder", "floor_carry", "floor_carry", "webster"]);
    let quantities = prop::collection::vec(0_u64..9, 1..5);
    let clawback_max = prop_oneof![3 => Just(None), 1 => (0_u128..20).prop_map(Some)];
    let choices = (any::<bool>(), any::<usize>(), any::<bool>(), any::<bool>());
    (choices, clawback_max, 0_u128..100, cap, rounding, quantities).prop_map(
        |((is_correction, of, takes, carries), clawback_max, pool, cap, rounding, quantities)| Step {
            is_correction,
            of,
            takes,
            carries,
            clawback_max,
            pool,
            cap,
            rounding,
            quantities,
        },
    )
}

impl World {
    fn choose(&self, number: usize, fits: impl Fn(&Run) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.runs.len()).filter(|index| fits(&self.runs[*index])).collect();
        (!fitting.is_empty()).then(|| fitting[number % fitting.len()])
    }

    fn job(&self, step: &Step, scratch: &Scratch) -> Job {
        let cap = step.cap.map(|cap| format!(r#""cap":"{cap}","#)).unwrap_or_default();
        let policy = format!(
            r#"{{"id":"p","ruleset":1,"assets":[{{"asset":"RON","pool":"{}",{cap}"rounding":"{}","weights":{{"usage":"1"}}}}]}}"#,
            step.pool, step.rounding
        );
        let mut rows = "actor,quantity\n".to_owned();
        for (actor, quantity) in step.quantities.iter().enumerate() {
            rows += &format!("a{actor},{quantity}\n");
        }
        order(scratch, &format!("e{}", self.runs.len()), &rows, &policy)
    }

    /// Does what the step says, if a node would let it.
    fn take(&mut self, step: &Step, scratch: &Scratch) {
        let mut job = self.job(step, scratch);
        let of = self.choose(step.of, |run| !run.is_corrected).filter(|_| step.is_correction);
        let Some(of) = of else {
            let from = self.choose(step.of, |run| !run.is_spent).filter(|_| step.carries);
            if let Some(from) = from {
                job.carry = self.runs[from].computed.left_over();
                self.runs[from].is_spent = true;
            }
            self.runs.push(Run { computed: computed(&job), corrects: None, is_corrected: false, is_spent: false });
            return;
        };
        // As a correction is made: what was carried into the run belongs to it.
        job.carry.clone_from(&self.runs[of].computed.basis.carry);
        let takes_left_over = step.takes && !self.runs[of].is_spent;
        let bounds = Bounds { clawback_max: step.clawback_max.map(Units), takes_left_over };
        let basis = read(&job, &Unwatched).expect("read");
        refuses_made_up(&self.runs[of].computed, basis.clone(), bounds);
        let fixed = correct(&self.runs[of].computed, basis, bounds);
        if fixed.outcome.is_ok() {
            let corrected = &mut self.runs[of];
            (corrected.is_corrected, corrected.is_spent) = (true, corrected.is_spent || takes_left_over);
            self.runs.push(Run { computed: fixed, corrects: Some(of), is_corrected: false, is_spent: false });
        }
    }

    /// Units of all pools: of a chain, those that its last run says there were.
    fn pools(&self) -> u128 {
        let last = self.runs.iter().filter(|run| !run.is_corrected);
        last.map(|run| run.computed.basis.policy.assets[0].pool.map_or(0, |pool| pool.0)).sum()
    }

    fn left_over(&self) -> u128 {
        let unspent = self.runs.iter().filter(|run| !run.is_spent);
        unspent.flat_map(|run| run.computed.left_over().into_values()).map(|units| units.0).sum()
    }

    /// Units that somebody was overpaid, and that a bound left with them.
    fn overpaid(&self) -> u128 {
        let last = self.runs.iter().filter(|run| !run.is_corrected && run.corrects.is_some());
        let corrected = last.filter_map(|run| run.computed.outcome.as_ref().ok()?.corrected.as_ref());
        corrected.map(|corrected| corrected.facts[0].carried.0).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn everything_paid_and_left_over_is_everything_in_the_pools(steps in prop::collection::vec(step(), 1..12)) {
        let (scratch, mut world) = (Scratch::new(), World::default());
        for step in &steps {
            world.take(step, &scratch);
            let runs: Vec<&Computed> = world.runs.iter().map(|run| &run.computed).collect();
            let paid: u128 = balances(&runs).values().sum();
            let (pools, accounted) = (world.pools(), paid + world.left_over());
            // Beyond the pools there is what the bounds of corrections left with those who were overpaid, if anything.
            prop_assert!(accounted >= pools && accounted <= pools + world.overpaid(), "{accounted} of {pools}");
        }
    }
}
