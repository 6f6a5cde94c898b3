//! Epochs whose amounts and roots are pinned: this build pays what earlier builds paid, bit for bit.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ron_calculus::Units;
use ron_calculus::tree::{oz::OzTree, sum::SumTree};
use serde::{Deserialize, Serialize};

use crate::case::Case;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Golden {
    about: String,
    #[serde(flatten)]
    case: Case,
    /// BLAKE3 of the totals.
    #[serde(default)]
    content: String,
    #[serde(default)]
    expected: Vec<Expected>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Expected {
    asset: String,
    pool: Units,
    paid: Units,
    oz: Option<String>,
    sum: String,
    amounts: BTreeMap<String, Units>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn computed(case: &Case) -> (String, Vec<Expected>) {
    let totals = case.totals();
    let roster = totals.roster();
    let one = |allocation: ron_calculus::AssetAllocation| {
        let amounts = &allocation.amounts;
        let oz = OzTree::build(roster, amounts, 2).expect("no spellings").root();
        let sum = SumTree::build(&allocation.asset, roster, amounts, 2).expect("it fits").root();
        Expected {
            pool: Units(allocation.pool),
            paid: Units(allocation.paid),
            oz: oz.map(|root| format!("0x{}", hex(&root))),
            sum: format!("b3:{}", hex(&sum.hash)),
            amounts: roster.iter().map(str::to_owned).zip(amounts.iter().copied().map(Units)).collect(),
            asset: allocation.asset,
        }
    };
    (totals.content_hash().to_hex().to_string(), case.allocate().into_iter().map(one).collect())
}

#[test]
fn golden_epochs_are_the_same_bit_for_bit() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"));
    let mut files: Vec<PathBuf> =
        folder.read_dir().expect("it is there").map(|entry| entry.expect("one").path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let golden: Golden = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (content, expected) = computed(&golden.case);
        // To pin a new epoch, write it without these two, and run this test once with MACRO_GOLDEN=write.
        if std::env::var_os("MACRO_GOLDEN").is_some_and(|value| value == "write") && golden.expected.is_empty() {
            let pinned = Golden { content, expected, ..golden };
            let text = serde_json::to_string_pretty(&pinned).expect("it is JSON");
            std::fs::write(&file, format!("{text}\n")).expect("written");
            continue;
        }
        assert_eq!((content, expected), (golden.content, golden.expected), "{}", file.display());
    }
}
