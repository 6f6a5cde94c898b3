//! Any bytes, alone or as the middle of a policy, are a refusal or a policy that reads back the same and pays no unit
//! too many, with an explanation of each amount.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use ron_calculus::{Policy, Question, Slot, Totals, allocate, explain};

/// Whole documents are seldom found by chance, so the bytes also stand where the interesting values are.
const AROUND: [(&str, &str); 5] = [
    ("", ""),
    (r#"{"id":"d","ruleset":1,"assets":[{"asset":"A","weights":{"u":"1","v":"2/3"},"#, "}]}"),
    (r#"{"id":"d","ruleset":1,"assets":[{"asset":"A","pool":"1009","weights":{"#, "}}]}"),
    (r#"{"id":"d","ruleset":1,"assets":[{"asset":"A","weights":{"u":"5"},"groups":{"#, "}}]}"),
    (r#"{"id":"d","ruleset":1,"assets":[{"asset":"A","pool":"9","weights":{"u":"1"}}],"release":{"#, "}}"),
];
const QUANTITIES: [u128; 5] = [0, 1, 7, 1 << 90, u128::MAX >> 3];
const SLOTS_MAX: usize = 8;

/// Some usage of what the policy weighs.
fn usage(policy: &Policy) -> Totals {
    let slots = policy.assets.iter().flat_map(|asset| {
        let groups = asset.groups.keys().map(|group| Some(group.clone())).chain([None]);
        groups.flat_map(|group| {
            let slot = move |metric: &String| Slot { metric: metric.clone(), group: group.clone(), asset: None };
            asset.weights.keys().map(slot)
        })
    });
    let slots: BTreeSet<Slot> = slots.take(SLOTS_MAX).collect();
    let mut totals = Totals::new(slots.into_iter().collect()).expect("sorted");
    for (number, actor) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        let quantity = |slot: usize| (slot as u16, QUANTITIES[(number + slot) % QUANTITIES.len()]);
        let entries: Vec<(u16, u128)> = (0..totals.slots().len()).map(quantity).collect();
        assert!(totals.push(actor, &entries));
    }
    totals
}

fn check(bytes: &[u8]) {
    let Ok(policy) = Policy::parse(bytes) else { return };
    let written = serde_json::to_vec(&policy).expect("written");
    assert_eq!(Policy::parse(&written).expect("what was written is read"), policy);
    if !policy.is_complete() {
        return;
    }
    let (totals, carry) = (usage(&policy), BTreeMap::new());
    let question = Question { policy: &policy, totals: &totals, run_key: &[7; 32], carry: &carry, threads: 1 };
    let Ok(allocations) = allocate(&question) else { return };
    for (asset, allocation) in policy.assets.iter().zip(&allocations) {
        assert_eq!(Some(allocation.pool), asset.total_pool());
        assert_eq!(allocation.paid, allocation.amounts.iter().sum::<u128>());
        assert!(allocation.paid <= allocation.pool);
    }
    for (place, actor) in totals.roster().iter().enumerate() {
        let explained = explain(&question, &allocations, actor).expect("what was paid is explained");
        for (asset, allocation) in explained.assets.iter().zip(&allocations) {
            assert_eq!(asset.amount.0, allocation.amounts[place], "{actor}");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    for (before, after) in AROUND {
        check(&[before.as_bytes(), bytes, after.as_bytes()].concat());
    }
});
