//! Corrections on a real node: signed, brought by the command line, paid once, chained, through a kill.

use std::collections::BTreeMap;
use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Outcome, Process, run};
use crate::rewarder::service::{Caller, caller_of};

const POLICY: &str = r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000000","weights":{"usage":"1"}}]}"#;

async fn reward(folder: &Path, words: &str) -> Outcome {
    let words: Vec<&str> = std::iter::once("reward").chain(words.split(' ')).collect();
    run(folder, &words).await
}

/// What each payee has in the book of the node.
async fn balances(caller: &Caller) -> BTreeMap<String, String> {
    let mut balances = BTreeMap::new();
    for actor in ["ann", "bob", "zoe"] {
        let account = caller.get(&format!("/ledger/accounts/{actor}")).await;
        if account.status == 200 {
            let balance = account.json().expect("JSON")["balances"][0]["balance"].clone();
            balances.insert(actor.to_owned(), balance.as_str().expect("a number").to_owned());
        }
    }
    balances
}

fn expected<const N: usize>(rows: [(&str, &str); N]) -> BTreeMap<String, String> {
    rows.into_iter().map(|(actor, units)| (actor.to_owned(), units.to_owned())).collect()
}

/// A node that pays what two keys have signed, and an epoch of it that is settled and wrong.
async fn paid_wrongly(here: &Path) -> (Process, Caller) {
    for key in ["a.pem", "b.pem"] {
        reward(here, &format!("policy key {key} --trust keys.json")).await.expect(0, &[]);
    }
    let keys = std::fs::read_to_string(here.join("keys.json")).expect("there");
    std::fs::write(here.join("keys.json"), keys.replace("\"threshold\": 1", "\"threshold\": 2")).expect("written");
    std::fs::write(here.join("policy.json"), POLICY).expect("written");
    reward(here, "policy sign policy.json --key a.pem --out once.json").await.expect(0, &[]);
    reward(here, "policy sign once.json --key b.pem --out signed.json").await.expect(0, &[]);
    std::fs::write(here.join("node.toml"), "[rewarder]\ntrusted_keys = \"keys.json\"\n").expect("written");
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    let b3 = caller.upload("actor,quantity\nann,1\nbob,1\n").await;
    let with = |policy: &str| {
        let policy: Value = serde_json::from_slice(&std::fs::read(here.join(policy)).expect("there")).expect("JSON");
        json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true})
    };
    for (policy, why) in [("policy.json", "not signed"), ("once.json", "2 must")] {
        let refused = caller.compute("e1", &with(policy)).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(why), "{policy}: {}", refused.text());
    }
    let begun = caller.compute("e1", &with("signed.json")).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let epoch = caller.ended("e1").await;
    assert_eq!((&epoch["state"], &epoch["policy"]["signed"]), (&json!("settled"), &json!(true)), "{epoch}");
    (node, caller)
}

#[tokio::test]
async fn a_correction_is_signed_brought_and_paid_once_and_corrected_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let (mut node, caller) = paid_wrongly(here).await;
    assert_eq!(balances(&caller).await, expected([("ann", "500000"), ("bob", "500000")]));

    std::fs::write(here.join("should.csv"), "actor,quantity\nann,1\nbob,8\nzoe,1\n").expect("written");
    let fix = "correct data/rewarder/epochs/e1 --epoch fix-1 --usage should.csv --out fix-1 --clawback-max 100000";
    reward(here, fix).await.expect(0, &["corrects e1"]);
    let release = "release fix-1 --data-dir data";
    reward(here, release).await.expect(70, &["nobody has signed it"]);
    reward(here, "sign fix-1 --key a.pem").await.expect(0, &[]);
    reward(here, release).await.expect(70, &["2 must"]);
    reward(here, "sign fix-1 --key b.pem").await.expect(0, &[]);
    assert_eq!(caller.get("/rewarder/epochs/fix-1").await.status, 404, "nothing was taken in");
    // What is brought must be whole, and under its own signatures.
    let manifest = std::fs::read(here.join("fix-1/run.json")).expect("there");
    let commitment = blake3::hash(&manifest).to_hex().to_string();
    let body = json!({"commitment": "00".repeat(32), "corrects": "e1", "unsigned": true}).to_string();
    assert_eq!(caller.ask(Method::POST, "/rewarder/epochs/fix-1/correct", body).await.status, 404);
    let body = json!({"commitment": commitment, "corrects": "e1", "unsigned": true}).to_string();
    assert_eq!(caller.ask(Method::POST, "/rewarder/epochs/other/correct", body).await.status, 400, "another epoch");

    reward(here, release).await.expect(0, &["fix-1 is released"]);
    // The node dies while it pays, or before, or after: nobody can tell, and nobody has to.
    node.signal(Signal::KILL);
    node.wait_exit().await;
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    assert_eq!(caller.ended("fix-1").await["state"], "settled");
    let after_first = expected([("ann", "400000"), ("bob", "800000"), ("zoe", "100000")]);
    assert_eq!(balances(&caller).await, after_first, "bounded, so that ann keeps 300000 too much");
    reward(here, release).await.expect(0, &["fix-1 is released"]);
    assert_eq!(balances(&caller).await, after_first, "again pays nobody");

    // Made from the epoch, a second correction would pay the same difference again.
    let twice = "correct data/rewarder/epochs/e1 --epoch twice --usage should.csv --out twice";
    reward(here, twice).await.expect(0, &[]);
    for key in ["a.pem", "b.pem"] {
        reward(here, &format!("sign twice --key {key}")).await.expect(0, &[]);
    }
    reward(here, "release twice --data-dir data").await.expect(70, &["corrected by fix-1", "correct fix-1 instead"]);
    // Made from the first, it takes up what that one carried.
    reward(here, "correct data/rewarder/epochs/fix-1 --epoch fix-2 --out fix-2").await.expect(0, &["corrects fix-1"]);
    for key in ["a.pem", "b.pem"] {
        reward(here, &format!("sign fix-2 --key {key}")).await.expect(0, &[]);
    }
    reward(here, "release fix-2 --data-dir data").await.expect(0, &[]);
    assert_eq!(caller.ended("fix-2").await["state"], "settled");
    let entitled = expected([("ann", "100000"), ("bob", "800000"), ("zoe", "100000")]);
    assert_eq!(balances(&caller).await, entitled);
    let recount = caller.ask(Method::POST, "/ledger/verify", "{}").await.json().expect("JSON");
    assert_eq!((&recount["is_clean"], &recount["transfers"]), (&json!(true), &json!(6)), "{recount}");
}

#[tokio::test]
async fn a_correction_that_does_not_begin_from_what_was_paid_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    std::fs::write(here.join("node.toml"), crate::rewarder::service::UNSIGNED).expect("written");
    std::fs::write(here.join("policy.json"), POLICY).expect("written");
    std::fs::write(here.join("usage.csv"), "actor,quantity\nann,1\nbob,1\n").expect("written");
    std::fs::write(here.join("other.csv"), "actor,quantity\nann,3\nbob,1\n").expect("written");
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    let policy: Value = serde_json::from_str(POLICY).expect("JSON");
    let held = json!({"id": "held", "ruleset": 1, "assets": policy["assets"], "release": {"by_hand": true}});
    let b3 = caller.upload("actor,quantity\nann,1\nbob,1\n").await;
    for (epoch, policy) in [("e1", &policy), ("held", &held)] {
        let body = json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true});
        assert_eq!(caller.compute(epoch, &body).await.status, 202);
        caller.ended(epoch).await;
    }
    // A run of the same name that this node has never paid.
    reward(here, "run --epoch e1 --usage other.csv --policy policy.json --unsigned --out forged").await.expect(0, &[]);
    reward(here, "correct forged --epoch fix --usage usage.csv --out fix").await.expect(0, &[]);
    let told = reward(here, "release fix --data-dir data").await;
    told.expect(70, &["not signed"]);
    reward(here, "release fix --unsigned --data-dir data").await.expect(70, &["E_DUPLICATE", "the run of e1 here has"]);
    reward(here, "correct data/rewarder/epochs/held --epoch fix-held --usage other.csv --out fix-held")
        .await
        .expect(0, &[]);
    reward(here, "release fix-held --unsigned --data-dir data").await.expect(70, &["held is held"]);
    // The right run, but with other amounts paid before: computed again, it is another correction.
    reward(here, "correct data/rewarder/epochs/e1 --epoch lies --usage other.csv --out lies").await.expect(0, &[]);
    let path = here.join("lies");
    let paid = std::fs::read_to_string(path.join("paid.ndjson")).expect("there").replace("500000", "400000");
    let mut manifest: Value =
        serde_json::from_slice(&std::fs::read(path.join("run.json")).expect("there")).expect("JSON");
    manifest["artifacts"]["paid.ndjson"] = json!(format!("b3:{}", blake3::hash(paid.as_bytes()).to_hex()));
    let text = manifest.to_string();
    std::fs::write(path.join("paid.ndjson"), paid).expect("written");
    std::fs::write(path.join("commitment"), format!("b3:{}\n", blake3::hash(text.as_bytes()).to_hex()))
        .expect("written");
    std::fs::write(path.join("run.json"), text).expect("written");
    let told = reward(here, "release lies --unsigned --data-dir data").await;
    told.expect(70, &["does not begin from what e1 and those before it have paid"]);
    assert_eq!(balances(&caller).await, expected([("ann", "500000"), ("bob", "500000")]), "nobody was paid");
    let left = std::fs::read_dir(here.join("data/rewarder/epochs")).expect("there").count();
    assert_eq!(left, 2, "nothing of them was kept");
}

#[tokio::test]
async fn what_an_epoch_left_over_is_paid_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    std::fs::write(here.join("node.toml"), crate::rewarder::service::UNSIGNED).expect("written");
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    // A cap of 100 leaves 800 of the 1000 units over.
    let capped = |cap: &str| {
        json!({"id": "demo", "ruleset": 1,
               "assets": [{"asset": "RON", "pool": "1000", "cap": cap, "weights": {"usage": "1"}}]})
    };
    std::fs::write(here.join("raised.json"), capped("300").to_string()).expect("written");
    // The same shares each time, by the usage of each epoch.
    let mut used = Vec::new();
    for quantity in 1..=3 {
        used.push(caller.upload(&format!("actor,quantity\nann,{quantity}\nbob,{quantity}\n")).await);
    }
    let order = |number: usize, from: Option<&str>| {
        let mut order = json!({"inputs": [{"b3": used[number - 1]}], "policy": capped("100"), "unsigned": true});
        if let Some(from) = from {
            order["carry_from"] = json!(from);
        }
        order
    };
    for (number, epoch, from) in [(1, "e1", None), (2, "e2", Some("e1"))] {
        assert_eq!(caller.compute(epoch, &order(number, from)).await.status, 202);
        assert_eq!(caller.ended(epoch).await["state"], "settled");
    }
    let correct = |of: &str, epoch: &str, more: &str| {
        format!("correct data/rewarder/epochs/{of} --epoch {epoch} --policy raised.json --unsigned --out {epoch}{more}")
    };
    // The units of e1 are in the pool of e2, so that its correction cannot have them.
    let told = reward(here, &correct("e1", "fix-1", "")).await;
    told.expect(70, &["600 units are due from a pool of 1000", "800 were left over", "nothing was written"]);
    reward(here, &correct("e1", "fix-1", " --take-left-over")).await.expect(0, &[]);
    let told = reward(here, "release fix-1 --unsigned --data-dir data").await;
    told.expect(70, &["E_DUPLICATE", "what e1 left over was carried into e2"]);
    // Nobody has carried those of e2: its correction takes up what it needs, and leaves the rest over.
    reward(here, &correct("e2", "fix-2", " --take-left-over")).await.expect(0, &["left over", "1200"]);
    reward(here, "release fix-2 --unsigned --data-dir data").await.expect(0, &["fix-2 is released"]);
    assert_eq!(caller.ended("fix-2").await["state"], "settled");
    assert_eq!(balances(&caller).await, expected([("ann", "400"), ("bob", "400")]));
    let refused = caller.compute("e3", &order(3, Some("e2"))).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("taken up by its correction fix-2; carry from fix-2"), "{}", refused.text());
    assert_eq!(caller.compute("e3", &order(3, Some("fix-2"))).await.status, 202);
    let third = caller.ended("e3").await;
    assert_eq!(third["state"], "settled", "{third}");
    let manifest = caller.get("/rewarder/epochs/e3/artifacts/run.json").await.json().expect("JSON");
    assert_eq!((&manifest["carry"]["RON"], &manifest["assets"][0]["pool"]), (&json!("1200"), &json!("2200")));
}

#[tokio::test]
async fn a_held_epoch_is_rejected_and_the_right_run_is_paid_under_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    std::fs::write(here.join("node.toml"), crate::rewarder::service::UNSIGNED).expect("written");
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    let policy: Value = serde_json::from_str(POLICY).expect("JSON");
    let by_hand = json!({"id": "demo", "ruleset": 1, "assets": policy["assets"], "release": {"by_hand": true}});
    let order = async |rows: &str, policy: &Value| {
        let b3 = caller.upload(rows).await;
        caller.compute("e1", &json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true})).await.status
    };
    assert_eq!(order("actor,quantity\nann,1\n", &by_hand).await, 202);
    assert_eq!(caller.ended("e1").await["state"], "held");
    assert_eq!(order("actor,quantity\nbob,1\n", &policy).await, 409, "while it is held");
    let reject = "reject e1 --reason wrong-month --data-dir data";
    reward(here, reject).await.expect(0, &["e1 is rejected"]);
    reward(here, reject).await.expect(0, &["e1 is rejected"]);
    let dead = caller.ended("e1").await;
    assert_eq!((&dead["state"], &dead["quarantine"]["reason"]), (&json!("quarantined"), &json!("rejected")), "{dead}");
    reward(here, "release e1 --data-dir data").await.expect(70, &["wrong-month"]);
    assert_eq!(order("actor,quantity\nbob,1\n", &policy).await, 202);
    assert_eq!(caller.ended("e1").await["state"], "held", "a person has the last word");
    reward(here, "release e1 --data-dir data").await.expect(0, &["e1 is released"]);
    assert_eq!(caller.ended("e1").await["state"], "settled");
    assert_eq!(balances(&caller).await, expected([("bob", "1000000")]));
    reward(here, reject).await.expect(70, &["settled"]);
}
