//! Measures the division of a pool and its trees: `cargo run --release -p ron-calculus --example speed -- 1000000 2`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock of the system")]

use std::collections::BTreeMap;
use std::time::Instant;

use ron_calculus::tree::{oz::OzTree, sum::SumTree};
use ron_calculus::{Policy, Question, Slot, Totals, allocate, explain};

const RULES: [(&str, &str); 5] = [
    ("largest remainder, products of 128 bits", r#""pool":"1000000000000000007""#),
    ("largest remainder, products of 256 bits", r#""pool":"1000000000000000000000000007""#),
    ("cap and minimum", r#""pool":"1000000000000000007","cap":"1500000000000","minimum":"500000000000""#),
    ("floor and carry", r#""pool":"1000000000000000007","rounding":"floor_carry""#),
    ("webster", r#""pool":"1000000000000000007","rounding":"webster""#),
];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (actors, threads) = (arguments.next().unwrap_or(1_000_000), arguments.next().unwrap_or(2));
    let totals = totals(actors);
    println!("{actors} actors, {threads} threads");
    let carry = BTreeMap::new();
    for (name, fields) in RULES {
        let policy =
            format!(r#"{{"id":"speed","ruleset":1,"assets":[{{"asset":"RON","weights":{{"usage":"1"}},{fields}}}]}}"#);
        let policy = Policy::parse(policy.as_bytes()).expect("a policy");
        let question = Question { policy: &policy, totals: &totals, run_key: &[7; 32], carry: &carry, threads };
        let allocations = timed(name, || allocate(&question).expect("no breach"));
        if fields == RULES[0].1 {
            let (roster, amounts) = (totals.roster(), &allocations[0].amounts);
            let oz = timed("tree of OpenZeppelin", || OzTree::build(roster, amounts, threads).expect("a tree"));
            timed("all proofs of it", || {
                roster.iter().zip(amounts).filter_map(|(actor, amount)| oz.proof(actor, *amount)).count()
            });
            drop(oz);
            timed("sum tree", || SumTree::build("RON", roster, amounts, threads).expect("a tree").root());
            timed("explanation of one", || explain(&question, &allocations, roster.get(actors / 2)).expect("one"));
        }
    }
}

/// Ids like addresses and quantities of up to 2^62, the same in every run.
fn totals(actors: usize) -> Totals {
    let slot = Slot { metric: "usage".to_owned(), group: None, asset: None };
    let mut totals = Totals::new(vec![slot]).expect("one slot");
    for index in 0..actors as u64 {
        let quantity = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
        assert!(
            totals.push(&format!("0x{:040x}", u128::from(index) << 64 | u128::from(quantity)), &[(0, quantity.into())])
        );
    }
    totals
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    println!("{name:>42}: {:.0} ms", started.elapsed().as_secs_f64() * 1000.0);
    result
}
