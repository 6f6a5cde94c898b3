//! Python with whole numbers and fractions divides the same epochs to the same units.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use ron_calculus::Units;
use ron_calculus::allocate::tie_hash;
use serde::{Deserialize, Serialize};

use crate::case::{Case, RUN_KEY};
use crate::random;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    asset: String,
    pool: Units,
    paid: Units,
    amounts: BTreeMap<String, Units>,
}

fn ours(case: &Case) -> Vec<Answer> {
    let totals = case.totals();
    let answer = |allocation: ron_calculus::AssetAllocation| Answer {
        asset: allocation.asset,
        pool: Units(allocation.pool),
        paid: Units(allocation.paid),
        amounts: totals.roster().iter().map(str::to_owned).zip(allocation.amounts.into_iter().map(Units)).collect(),
    };
    case.allocate().into_iter().map(answer).collect()
}

fn question(case: &Case) -> String {
    let actors: BTreeSet<&str> = case.rows.iter().map(|row| row.0.as_str()).collect();
    let ties: BTreeMap<&str, String> =
        actors.into_iter().map(|actor| (actor, tie_hash(&RUN_KEY, actor).to_hex().to_string())).collect();
    let mut value = serde_json::to_value(case).expect("an epoch is JSON");
    value["ties"] = serde_json::to_value(ties).expect("text");
    value.to_string()
}

/// Ten thousand epochs take Python half a minute, so a plain run asks for a part of them.
fn epochs() -> u64 {
    if std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1") { 10_000 } else { 1_000 }
}

#[test]
fn python_divides_the_same_epochs_to_the_same_units() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../rewarder/oracle/oracle.py");
    let mut command = Command::new("python3");
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().expect("python3 is there");
    let mut input = python.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(python.stdout.take().expect("a pipe")).lines();
    let cases: Vec<Case> = (0..epochs()).map(random::epoch).collect();
    // A few at a time: neither side then waits for the other with a full pipe.
    let mut uneven = 0;
    for batch in cases.chunks(8) {
        for case in batch {
            writeln!(input, "{}", question(case)).expect("python reads");
        }
        input.flush().expect("python reads");
        for case in batch {
            let line = answers.next().expect("an answer for each epoch").expect("text");
            let theirs: Vec<Answer> = serde_json::from_str(&line).expect("an answer");
            assert_eq!(ours(case), theirs, "{}", question(case));
            uneven += usize::from(theirs.iter().any(|answer| answer.paid.0 > 0));
        }
    }
    drop(input);
    assert!(python.wait().expect("it ends").success());
    assert!(uneven * 2 > cases.len(), "most epochs pay somebody, or nothing was tried");
}
