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

/// Epochs that both divide.
const EPOCHS: u64 = 10_000;
/// Python processes, each with its part of the epochs.
const PROCESSES: usize = 2;

#[test]
fn python_divides_the_same_epochs_to_the_same_units() {
    let part = |part: usize| (part as u64..EPOCHS).step_by(PROCESSES).map(random::epoch).collect();
    let parts: [Vec<Case>; PROCESSES] = std::array::from_fn(part);
    let paying: usize = std::thread::scope(|scope| {
        let compared = parts.each_ref().map(|cases| scope.spawn(|| compare(cases)));
        compared.map(|part| part.join().expect("they agree")).into_iter().sum()
    });
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>() as u64, EPOCHS);
    assert!(paying as u64 * 2 > EPOCHS, "most epochs pay somebody, or nothing was tried");
}

/// Compares epochs one by one with one Python process; gives the number of those that pay somebody.
fn compare(cases: &[Case]) -> usize {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../rewarder/oracle/oracle.py");
    let mut command = Command::new("python3");
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().expect("python3 is there");
    let mut input = python.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(python.stdout.take().expect("a pipe")).lines();
    let mut paying = 0;
    std::thread::scope(|scope| {
        // Questions go on while answers are compared, so that neither side waits with a full pipe.
        scope.spawn(move || {
            for case in cases {
                writeln!(input, "{}", question(case)).expect("python reads");
            }
        });
        for case in cases {
            let line = answers.next().expect("an answer for each epoch").expect("text");
            let theirs: Vec<Answer> = serde_json::from_str(&line).expect("an answer");
            assert_eq!(ours(case), theirs, "{}", question(case));
            paying += usize::from(theirs.iter().any(|answer| answer.paid.0 > 0));
        }
    });
    assert!(answers.next().is_none() && python.wait().expect("it ends").success());
    paying
}
