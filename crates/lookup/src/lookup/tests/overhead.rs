//! What hedging costs over a hundred thousand lookups: little when all is well, never more than its budget.

use super::*;
use crate::Chance;

const LOOKUPS: u64 = 100_000;
/// Lookups of the costlier cases; the simulator runs more of them.
const LOOKUPS_FEW: u64 = 15_000;

/// Shares of asks in percent by what happens to them.
struct World {
    black_holes: u64,
    slow: u64,
    absent: u64,
}

/// Runs lookups one after another on a network of 60 targets whose answers take 5 to 60 ms, a few of them 100 to 300.
fn overhead(world: &World, lookups: u64, seed: u64) -> (f64, Guarded) {
    let mut chance = Chance::new(seed);
    let breakers = BreakerTable::new(BreakerLimits::default(), seed);
    let mut guards: Guarded = TargetGuards::new(breakers, HedgeBudget::default(), |_| ());
    let mut now_ms = 0;
    for lookup in 0..lookups {
        let limits = limits().paced(&guards.latency, &());
        let first = 1 + chance.between(0, 40) as u32;
        let is_absent = chance.between(0, 99) < world.absent;
        let machine = Lookup::new(position(0), limits, first_candidates(first..=first + 19), now_ms, lookup);
        let run = drive(machine, now_ms, limits, &mut guards, |target, _| {
            if u64::from(target) % 100 < world.black_holes {
                return Reply::Silence;
            }
            let is_slow = chance.between(0, 99) < world.slow;
            let after_ms = if is_slow { chance.between(100, 300) } else { chance.between(5, 60) };
            if is_absent { Reply::empty(after_ms) } else { Reply::found(after_ms) }
        });
        now_ms += run.took_ms + 1;
        let (asks, hedges) = guards.budget.counts();
        assert!(hedges * 10 <= asks + 20, "{hedges} hedges for {asks} asks");
    }
    let (asks, hedges) = guards.budget.counts();
    (hedges as f64 / asks as f64, guards)
}

#[test]
fn a_healthy_network_costs_less_than_five_percent_more() {
    for (case, absent, lookups) in [("found", 0, LOOKUPS), ("mixed", 30, LOOKUPS_FEW)] {
        let (share, guards) = overhead(&World { black_holes: 0, slow: 1, absent }, lookups, 3);
        println!("{case}: {share:.4}, hedge after {} ms", guards.latency.hedge_after_ms(&()));
        assert!(share <= 0.05, "{case}: {share}");
        assert!(share > 0.0001, "a hedge that never happens is no hedge: {share}");
    }
}

#[test]
fn a_sick_network_costs_at_most_the_budget() {
    for (case, world) in [
        ("black holes", World { black_holes: 30, slow: 5, absent: 50 }),
        ("all slow", World { black_holes: 0, slow: 60, absent: 0 }),
        ("all gone", World { black_holes: 100, slow: 0, absent: 0 }),
    ] {
        let (share, _) = overhead(&world, LOOKUPS_FEW, 5);
        println!("{case}: {share:.4}");
        assert!(share <= 0.10, "{case}: {share}");
    }
}
