//! The reader of policies: a refusal, or a policy that reads back the same, pays no unit too many and explains each.

use std::collections::{BTreeMap, BTreeSet};

use ron_calculus::policy::{AssetPolicy, ReleaseLimits, Rounding, Ties, Weight};
use ron_calculus::{Policy, Question, Slot, Totals, Units, allocate, explain};

use crate::{Seed, Target};

/// Targets of the crate.
pub const TARGETS: [Target; 1] =
    [Target { name: "calculus_policy", body: policy, is_read: is_policy, seeds: policy_seeds }];

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

/// Any bytes, alone or as the middle of a policy.
pub fn policy(bytes: &[u8]) {
    documents(bytes).for_each(|document| check(&document));
}

fn documents(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    AROUND.into_iter().map(move |(before, after)| [before.as_bytes(), bytes, after.as_bytes()].concat())
}

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

/// No bytes at all leave the last document around them a policy, which says nothing about them.
fn is_policy(bytes: &[u8]) -> bool {
    !bytes.is_empty() && documents(bytes).any(|document| Policy::parse(&document).is_ok())
}

fn policy_seeds() -> Vec<Seed> {
    let weight = |metric: &str, numerator, denominator| (metric.to_owned(), Weight { numerator, denominator });
    let plain = AssetPolicy {
        asset: "credits".to_owned(),
        pool: Some(Units(1009)),
        groups: BTreeMap::new(),
        weights: BTreeMap::from([weight("storage", 1, 1), weight("traffic", 3, 7)]),
        cap: Some(Units(700)),
        minimum: Some(Units(5)),
        rounding: Rounding::LargestRemainder,
        ties: Ties::Hash,
    };
    let groups = [("north", 40), ("south", 60)].map(|(group, pool)| (group.to_owned(), Units(pool)));
    let grouped = AssetPolicy {
        asset: "tokens".to_owned(),
        pool: None,
        groups: BTreeMap::from(groups),
        cap: None,
        minimum: None,
        rounding: Rounding::Webster,
        ties: Ties::Id,
        ..plain.clone()
    };
    let carried = AssetPolicy { pool: Some(Units(u128::MAX >> 8)), rounding: Rounding::FloorCarry, ..plain.clone() };
    let release = ReleaseLimits {
        total_max: BTreeMap::from([("credits".to_owned(), Units(2000))]),
        change_percent_max: Some(50),
        new_payees_max: Some(10),
        ..ReleaseLimits::default()
    };
    let written = |assets: Vec<AssetPolicy>, release| {
        let policy = Policy { id: "monthly".to_owned(), ruleset: 1, assets, release };
        serde_json::to_vec(&policy).expect("a policy is written")
    };
    vec![
        ("plain.seed", written(vec![plain.clone()], None)),
        ("groups.seed", written(vec![grouped.clone()], None)),
        ("released.seed", written(vec![plain.clone(), grouped], Some(release))),
        ("carried.seed", written(vec![carried], None)),
        ("weights-alone.seed", inside(&plain.weights)),
    ]
}

/// What stands between the braces of an object.
fn inside(object: &BTreeMap<String, Weight>) -> Vec<u8> {
    let text = serde_json::to_vec(object).expect("weights are written");
    text[1..text.len() - 1].to_vec()
}
