//! Differences have causes that add up, and corrections pay exactly the difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_calculus::Units;
use ron_ledger::Direction;
use ron_log::{Disk, RamDisk};
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::diff::{ActorDiff, Cause, Side, diff};
use svc_rewarder::job::{read, settle};
use svc_rewarder::verify::verify;
use svc_rewarder::{Computed, Intents, Job, Unwatched, artifacts};

use crate::{RICH, SMALLEST, Scratch, computed, cost, opened, units, usage};

fn signed(delta: svc_rewarder::diff::Delta) -> i128 {
    let units = i128::try_from(delta.units).expect("small");
    if delta.is_less { -units } else { units }
}

fn causes(actor: &ActorDiff) -> Vec<Cause> {
    actor.causes.iter().map(|part| part.cause).collect()
}

#[test]
fn the_causes_of_every_change_add_up() {
    let scratch = Scratch::new();
    let before = computed(&scratch.job(&[("u.csv", &usage(200))], RICH));
    let more = usage(220).replace("actor-7 é", "actor-new é");
    let policy = RICH.replace("3/7", "4/7").replace("\"777\"", "\"888\"");
    let mut job = scratch.job(&[("v.csv", &more)], &policy);
    job.epoch = "2026-12".parse().expect("an epoch");
    let after = computed(&job);
    let found = diff(&Side::of(&before), &Side::of(&after), 1000, 2);
    assert_eq!(found.causes, [Cause::Order, Cause::Input, Cause::Policy, Cause::Pool]);
    for asset in &found.assets {
        assert_eq!(asset.largest.len() as u64, asset.more + asset.less, "all are listed");
        assert!(asset.largest.windows(2).all(|pair| pair[0].delta.units >= pair[1].delta.units), "largest first");
        let sum: i128 = asset.largest.iter().map(|actor| signed(actor.delta)).sum();
        assert_eq!(sum, asset.paid_to.0 as i128 - asset.paid_from.0 as i128);
        for actor in &asset.largest {
            let parts: i128 = actor.causes.iter().map(|part| signed(part.delta)).sum();
            assert_eq!(parts, signed(actor.delta), "{actor:?}");
            assert!(!actor.causes.is_empty(), "{actor:?}");
        }
    }
    let few = diff(&Side::of(&before), &Side::of(&after), 3, 2);
    assert_eq!(few.assets[0].largest, found.assets[0].largest[..3]);
    let same = diff(&Side::of(&before), &Side::of(&before), 10, 2);
    assert!(same.causes.is_empty() && same.assets.iter().all(|asset| asset.largest.is_empty()), "{same:?}");
}

#[test]
fn a_cause_alone_is_named_alone() {
    let scratch = Scratch::new();
    let rows = "actor,quantity\nann,1\nbob,3\n";
    let before = computed(&scratch.job(&[("u.csv", rows)], SMALLEST));
    let mut job = scratch.job(&[("u.csv", rows)], SMALLEST);
    job.pools = units("RON", 2_000_000);
    let pool = computed(&job);
    let found = diff(&Side::of(&before), &Side::of(&pool), 10, 1);
    assert!(found.assets[0].largest.iter().all(|actor| causes(actor) == [Cause::Pool]), "{found:?}");
    let input = computed(&scratch.job(&[("v.csv", "actor,quantity\nann,3\nbob,1\n")], SMALLEST));
    let found = diff(&Side::of(&before), &Side::of(&input), 10, 1);
    assert!(found.assets[0].largest.iter().all(|actor| causes(actor) == [Cause::Input]), "{found:?}");
    assert_eq!(found.assets[0].largest[0].delta.to_string(), "+500000");
    assert_eq!(found.assets[0].largest[1].delta.to_string(), "-500000");
}

/// A correction of a run by an order that says how it should have been.
fn correction(paid: &Computed, job: &Job, clawback_max: Option<u128>) -> Computed {
    let mut basis = read(job, &Unwatched).expect("read");
    let bounds = Bounds { clawback_max: clawback_max.map(Units), takes_left_over: false };
    basis.correction = Some(Correction::of(paid, [7; 32], bounds).expect("it adds up"));
    settle(basis, 2, &Unwatched, ron_calculus::allocate).expect("settled")
}

/// What each actor has after all payouts of these runs.
pub fn balances(runs: &[&Computed]) -> BTreeMap<(String, String), u128> {
    let mut balances = BTreeMap::new();
    for run in runs {
        let intents = Intents::of(run);
        let mut place = 0;
        while let Some((batch, next)) = intents.batch(place, 16) {
            for entry in batch.entries {
                let balance: &mut u128 = balances.entry((batch.asset.clone(), entry.account)).or_default();
                *balance = match entry.direction {
                    Direction::Pay => *balance + entry.amount,
                    Direction::TakeBack => balance.checked_sub(entry.amount).expect("nobody goes below zero"),
                };
            }
            place = next;
        }
    }
    balances.retain(|_, balance| *balance > 0);
    balances
}

#[test]
fn a_correction_leaves_everyone_with_what_they_should_have() {
    let scratch = Scratch::new();
    let paid = computed(&scratch.job(&[("u.csv", &usage(100))], RICH));
    let should = usage(110).replace("actor-4 é", "actor-4b é");
    let mut job = scratch.job(&[("v.csv", &should)], RICH);
    job.epoch = "2026-11-fix".parse().expect("an epoch");
    let fixed = correction(&paid, &job, None);
    let payouts = fixed.outcome.as_ref().expect("it adds up");
    let corrected = payouts.corrected.as_ref().expect("a correction");
    assert!(corrected.take_back.iter().flatten().any(|units| *units > 0));
    let mut expected = BTreeMap::new();
    for allocation in &payouts.entitled {
        for (place, actor) in fixed.basis.totals.roster().iter().enumerate() {
            expected.insert((allocation.asset.clone(), actor.to_owned()), allocation.amounts[place]);
        }
    }
    expected.retain(|_, amount| *amount > 0);
    assert_eq!(balances(&[&paid, &fixed]), expected);
    for facts in &corrected.facts {
        assert_eq!(facts.carried, Units(0));
        assert_eq!(facts.paid_before.0 + facts.pay.0 - facts.take_back.0, facts.entitled.0);
    }
    assert_ne!(fixed.run_key, paid.run_key);
}

#[test]
fn a_clawback_is_bounded_and_the_rest_is_carried() {
    let scratch = Scratch::new();
    let paid = computed(&scratch.job(&[("u.csv", "actor,quantity\nann,1\nbob,1\n")], SMALLEST));
    let mut job = scratch.job(&[("v.csv", "actor,quantity\nann,3\nbob,1\n")], SMALLEST);
    job.epoch = "fix".parse().expect("an epoch");
    let fixed = correction(&paid, &job, Some(100_000));
    let corrected = fixed.outcome.as_ref().expect("it adds up").corrected.as_ref().expect("a correction");
    let facts = &corrected.facts[0];
    assert_eq!((facts.pay, facts.take_back, facts.carried), (Units(250_000), Units(100_000), Units(150_000)));
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    let seal = artifacts::write(&fixed, &*disk, 2, &Unwatched).expect("written");
    assert_eq!(seal.manifest.intents[0].taken_back, Units(100_000));
    let run = opened(&disk);
    let found = verify(&run, &[], &cost(1), &Unwatched).expect("compared");
    assert!(found.is_clean(), "{found:?}");
    let loaded = run.load().expect("whole");
    assert_eq!(Intents::of(&loaded.computed).tallies(), Intents::of(&fixed).tallies());
    assert_eq!(loaded.explain("bob").expect("explained").assets[0].amount, Units(250_000), "what bob is entitled to");
}

#[test]
fn a_correction_of_a_correction_begins_from_what_both_have_paid() {
    let scratch = Scratch::new();
    let rows = |ann: u32, bob: u32| format!("actor,quantity\nann,{ann}\nbob,{bob}\nzoe,1\n");
    let order = |epoch: &str, content: &str| {
        let mut job = scratch.job(&[(&format!("{epoch}.csv"), content)], SMALLEST);
        job.epoch = epoch.parse().expect("an epoch");
        job
    };
    let paid = computed(&order("e1", "actor,quantity\nann,1\nbob,1\n"));
    // Bounded: ann keeps some of what she should not have, and it is carried.
    let first = correction(&paid, &order("fix-1", &rows(1, 8)), Some(100_000));
    let carried = |run: &Computed| {
        let payouts = run.outcome.as_ref().expect("it adds up");
        payouts.corrected.as_ref().expect("a correction").facts[0].carried
    };
    assert_eq!(carried(&first), Units(300_000));
    // The second finds the carried units as paid, and takes them back.
    let second = correction(&first, &order("fix-2", &rows(1, 8)), None);
    assert_eq!(carried(&second), Units(0));
    let facts = &second.outcome.as_ref().expect("it adds up").corrected.as_ref().expect("a correction").facts[0];
    assert_eq!((facts.paid_before, facts.take_back, facts.pay), (Units(1_300_000), Units(300_000), Units(0)));
    let third = correction(&second, &order("fix-3", &rows(8, 1)), None);
    let has = |runs: &[&Computed], actor: &str| balances(runs).get(&("RON".to_owned(), actor.to_owned())).copied();
    assert_eq!(has(&[&paid, &first, &second], "ann"), Some(100_000));
    assert_eq!(has(&[&paid, &first, &second, &third], "ann"), Some(800_000));
    assert_eq!(has(&[&paid, &first, &second, &third], "bob"), Some(100_000));
    assert_eq!(has(&[&paid, &first, &second, &third], "zoe"), Some(100_000));
    let keys = [&paid, &first, &second, &third].map(|run| run.run_key);
    assert!((1..4).all(|place| !keys[..place].contains(&keys[place])), "each pays under keys of its own");
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    artifacts::write(&second, &*disk, 2, &Unwatched).expect("written");
    let found = verify(&opened(&disk), &[], &cost(1), &Unwatched).expect("compared");
    assert!(found.is_clean(), "{found:?}");
}

#[test]
fn nothing_to_correct_pays_nobody() {
    let scratch = Scratch::new();
    let rows = "actor,quantity\na,1\nb,1\nc,1\n";
    let paid = computed(&scratch.job(&[("u.csv", rows)], SMALLEST));
    let mut job = scratch.job(&[("u.csv", rows)], SMALLEST);
    job.epoch = "fix".parse().expect("an epoch");
    let fixed = correction(&paid, &job, None);
    assert!(Intents::of(&fixed).batch(0, 10).is_none(), "equals stay in their order");
}

#[test]
fn a_correction_that_forgets_an_asset_is_refused() {
    let scratch = Scratch::new();
    let paid = computed(&scratch.job(&[("u.csv", &usage(10))], RICH));
    let mut job = scratch.job(&[("v.csv", &usage(10))], SMALLEST);
    job.epoch = "fix".parse().expect("an epoch");
    let breach = correction(&paid, &job, None).outcome.expect_err("refused").to_string();
    assert!(breach.contains("USDC was paid"), "{breach}");
}
