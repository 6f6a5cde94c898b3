//! The page's scripts against the code of the node: the same hashes, and the same verdict on every proof.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use ron_calculus::tree::{oz, sum};
use ron_calculus::{Policy, Question, Roster, Slot, Totals};
use serde_json::{Value, json};
use svc_rewarder::hashing::{b3, hex0x};
use tiny_keccak::{Hasher as _, Keccak};

use super::*;

/// What the scripts say to these cases: lines about what differs, and their number; none without Node.
fn compared(cases: &[Value]) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rewarder/page/agree.mjs");
    let mut node = Command::new("node").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut lines = String::new();
    for case in cases {
        writeln!(lines, "{case}").expect("a text grows");
    }
    let mut input = node.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = node.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads everything");
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).expect("text"))
}

fn check(cases: &[Value], expected: usize) {
    match compared(cases) {
        Some(said) => assert_eq!(said, format!("{expected} cases\n")),
        None => println!("SKIPPED: there is no node to run the scripts"),
    }
}

fn keccak256(bytes: &[u8]) -> [u8; 32] {
    let (mut keccak, mut hash) = (Keccak::v256(), [0; 32]);
    keccak.update(bytes);
    keccak.finalize(&mut hash);
    hash
}

#[test]
fn hashes_are_the_same_around_every_edge() {
    // Blocks of 64 and 136 bytes, chunks of 1024, trees of up to nine of them.
    let near = |edge: usize| edge.saturating_sub(1)..=edge + 1;
    let lengths =
        (0..=140).chain(near(192)).chain(near(272)).chain(near(408)).chain((1..=9).flat_map(|n| near(n * 1024)));
    let cases: Vec<Value> = lengths
        .map(|length| {
            let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let keccak = hex0x(&keccak256(&bytes)).split_off(2);
            let blake3 = blake3::hash(&bytes).to_hex().to_string();
            json!({"kind": "hash", "length": length, "blake3": blake3, "keccak": keccak})
        })
        .collect();
    check(&cases, 2 * cases.len());
}

const ASSET: &str = "RON";

/// Payees of all kinds: addresses, texts of every length around a word, texts beyond ASCII, some unpaid.
fn payees(count: usize) -> (Roster, Vec<u128>) {
    let name = |place: usize| match place % 4 {
        0 => format!("0x{:039x}A", place),
        1 => format!("{}-{place}", "x".repeat(place % 70)),
        2 => format!("zoë/{place} <b>\u{1F600}"),
        _ => format!("plain-{place}"),
    };
    let mut names: Vec<String> = (0..count).map(name).collect();
    names.sort();
    let mut roster = Roster::default();
    names.iter().for_each(|name| assert!(roster.push(name)));
    let amounts = (0..count).map(|place| if place % 5 == 3 { 0 } else { (place as u128 + 1) << (place % 100) });
    (roster, amounts.collect())
}

fn oz_case(name: &str, root: &str, actor: &str, amount: u128, proof: &[String], ok: bool) -> Value {
    let amount = amount.to_string();
    json!({"kind": "oz", "name": name, "root": root, "actor": actor, "amount": amount, "proof": proof, "ok": ok})
}

#[test]
fn proofs_for_contracts_are_judged_alike() {
    let mut cases = Vec::new();
    for count in [1, 2, 3, 7, 8, 33, 100] {
        let (roster, amounts) = payees(count);
        let tree = oz::OzTree::build(&roster, &amounts, 1).expect("built");
        let root = hex0x(&tree.root().expect("somebody is paid"));
        for (place, amount) in amounts.iter().copied().enumerate().filter(|(_, amount)| *amount > 0) {
            let actor = roster.get(place);
            let proof: Vec<String> = tree.proof(actor, amount).expect("paid").iter().map(|hash| hex0x(hash)).collect();
            cases.push(oz_case(actor, &root, actor, amount, &proof, true));
            cases.push(oz_case("another amount", &root, actor, amount + 1, &proof, false));
            cases.push(oz_case("another actor", &root, &format!("{actor}x"), amount, &proof, false));
            cases.push(oz_case("another root", &hex0x(&[7; 32]), actor, amount, &proof, false));
            if let [first, rest @ ..] = &proof[..] {
                cases.push(oz_case("a sibling is missing", &root, actor, amount, rest, false));
                let large = [&[first.to_uppercase().replace("0X", "0x")], rest].concat();
                let is_same = large == proof;
                cases.push(oz_case("large digits", &root, actor, amount, &large, is_same));
            }
        }
    }
    check(&cases, cases.len());
}

/// A case whose verdict is that of the node's own code.
fn sum_case(name: &str, root: &sum::SumNode, actor: &str, amount: u128, proof: &sum::SumProof) -> Value {
    let ok = sum::verify(root, ASSET, actor, proof) == Some(amount);
    json!({"kind": "sum", "name": name, "root": b3(&root.hash), "rootSum": root.sum.to_string(), "asset": ASSET,
        "actor": actor, "amount": amount.to_string(), "proof": proof, "ok": ok})
}

/// Proofs that are bent a little, each in its own way.
fn bent(path: &sum::SumPath) -> Vec<(&'static str, sum::SumPath)> {
    let changed = |name, change: &dyn Fn(&mut sum::SumPath)| {
        let mut path = path.clone();
        change(&mut path);
        (name, path)
    };
    let mut all = vec![
        changed("another index", &|path| path.index ^= 1),
        changed("more leaves", &|path| path.leaves += 1),
        changed("an index beyond the leaves", &|path| path.index = path.leaves),
        changed("another amount", &|path| path.amount.0 += 1),
        changed("nothing", &|path| path.amount.0 = 0),
        changed("one sibling more", &|path| path.siblings.push(("00".repeat(32), ron_calculus::Units(0)))),
    ];
    if !path.siblings.is_empty() {
        all.push(changed("one sibling less", &|path| drop(path.siblings.pop())));
        all.push(changed("a sum that wraps", &|path| path.siblings[0].1.0 = u128::MAX));
        all.push(changed("another sum", &|path| path.siblings[0].1.0 ^= 1));
        all.push(changed("large digits", &|path| path.siblings[0].0 = path.siblings[0].0.to_uppercase()));
        all.push(changed("siblings in another order", &|path| path.siblings.reverse()));
    }
    all
}

#[test]
fn sum_proofs_are_judged_alike() {
    let (mut cases, mut refused) = (Vec::new(), 0);
    for count in [0, 1, 2, 3, 4, 5, 9, 34, 70] {
        let (roster, amounts) = payees(count);
        let tree = sum::SumTree::build(ASSET, &roster, &amounts, 1).expect("built");
        let root = tree.root();
        for actor in roster.iter().chain(["", "0", "zzz", "plain-", "\u{10FFFF}"]) {
            let amount = roster.find(actor).map_or(0, |place| amounts[place]);
            let proof = tree.prove(&roster, &amounts, actor);
            cases.push(sum_case(actor, &root, actor, amount, &proof));
            cases.push(sum_case("another actor", &root, &format!("{actor}\u{1}"), amount, &proof));
            cases.push(sum_case("an amount that is not proven", &root, actor, amount + 1, &proof));
            match proof {
                sum::SumProof::Paid { leaf } => cases.extend(bent(&leaf).into_iter().map(|(name, leaf)| {
                    let amount = leaf.amount.0;
                    sum_case(name, &root, actor, amount, &sum::SumProof::Paid { leaf })
                })),
                sum::SumProof::Unpaid { before, after } => {
                    let shifted = sum::SumProof::Unpaid { before: before.clone(), after: before.clone() };
                    cases.push(sum_case("not neighbours", &root, actor, 0, &shifted));
                    cases.push(sum_case(
                        "no neighbours",
                        &root,
                        actor,
                        0,
                        &sum::SumProof::Unpaid { before: None, after: None },
                    ));
                    cases.extend(after.iter().flat_map(bent).map(|(name, after)| {
                        let after = Some(after);
                        sum_case(name, &root, actor, 0, &sum::SumProof::Unpaid { before: before.clone(), after })
                    }));
                }
            }
        }
        refused += cases.iter().filter(|case| case["ok"] == false).count();
    }
    assert!(refused > cases.len() / 2, "most of them are bent");
    check(&cases, cases.len());
}

#[test]
fn explanations_add_up_in_the_page_too() {
    let policy = r#"{"id":"p","ruleset":1,"assets":[
        {"asset":"A","pool":"1000003","weights":{"m":"2/3","n":"5"},"cap":"90000"},
        {"asset":"B","pool":"77","weights":{"n":"1"},"minimum":"3"},
        {"asset":"C","pool":"1000000000000000000000000000","weights":{"m":"1"},"rounding":"webster"},
        {"asset":"D","pool":"12345","weights":{"m":"1"},"rounding":"floor_carry"}]}"#;
    let policy = Policy::parse(policy.as_bytes()).expect("a policy");
    let slot = |metric: &str| Slot { metric: metric.to_owned(), group: None, asset: None };
    let mut totals = Totals::new(vec![slot("m"), slot("n")]).expect("sorted");
    for place in 0..60_u128 {
        assert!(totals.push(&format!("a{place:02}"), &[(0, place * place * 7919), (1, place % 11)]));
    }
    let (run_key, carry) = ([9; 32], BTreeMap::new());
    let question = Question { policy: &policy, totals: &totals, run_key: &run_key, carry: &carry, threads: 1 };
    let allocations = ron_calculus::allocate(&question).expect("divided");
    let mut cases = Vec::new();
    for actor in totals.roster().iter() {
        let explained = ron_calculus::explain(&question, &allocations, actor).expect("explained");
        for asset in explained.assets {
            let name = format!("{actor} in {}", asset.asset);
            cases.extend(asset.pools.iter().map(|pool| json!({"kind": "pool", "name": name, "pool": pool})));
        }
    }
    assert!(cases.len() > 100);
    check(&cases, cases.len());
}

#[test]
fn browsers_get_the_page_and_programs_the_data() {
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
    for (accept, expected) in [
        (Some(browser), true),
        (Some("text/html"), true),
        (Some("TEXT/HTML; q=0.5, */*"), true),
        (Some("application/json;q=0.4, text/html;q=0.5"), true),
        (Some("application/json, text/html"), true),
        (Some("application/json, text/html;q=0.9"), false),
        (Some("text/html;q=0"), false),
        (Some("text/html;q=two"), false),
        (Some("application/json"), false),
        (Some("*/*"), false),
        (Some(""), false),
        (None, false),
    ] {
        let value = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
        assert_eq!(is_wanted(&HeaderMap::from_iter(value)), expected, "{accept:?}");
    }
}

#[test]
fn the_page_asks_for_files_that_exist_and_for_nothing_elsewhere() {
    let texts = FILES.files.iter().map(|(.., text)| *text).chain([FILES.html]);
    for text in texts {
        for (at, _) in text.match_indices("/rewarder/page/").chain(text.match_indices("from \"./")) {
            let name = text[at..].split('"').find(|part| part.contains('.')).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            assert!(FILES.files.iter().any(|(file, ..)| *file == name), "{name}");
        }
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"] {
            assert!(!text.contains(markup), "{markup}");
        }
    }
    assert!(!FILES.html.contains("<script>") && !FILES.html.contains("<style") && !FILES.html.contains("http"));
}
