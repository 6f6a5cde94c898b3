//! `macronode reward` as people use it: from a CSV to verified payouts, and every wrong step told.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{Outcome, run};

const USAGE: &str = "actor,quantity\nann,10\nbob,20\n0x00000000000000000000000000000000000000aa,30\nzoe,0\n";
const POLICY: &str = r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000000","weights":{"usage":"1"}}]}"#;

/// A folder with a usage file and the smallest policy.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a scratch folder");
    fs::write(folder.path().join("usage.csv"), USAGE).expect("written");
    fs::write(folder.path().join("policy.json"), POLICY).expect("written");
    folder
}

async fn reward(folder: &Path, words: &[&str]) -> Outcome {
    run(folder, &[&["reward"], words].concat()).await
}

async fn unsigned_run(folder: &Path, epoch: &str, out: &str, more: &[&str]) -> Outcome {
    let words =
        ["run", "--epoch", epoch, "--usage", "usage.csv", "--policy", "policy.json", "--out", out, "--unsigned"];
    reward(folder, &[&words, more].concat()).await
}

fn json(outcome: &Outcome) -> Value {
    outcome.expect(0, &[]);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

fn manifest(folder: &Path, out: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(out).join("run.json")).expect("a manifest")).expect("JSON")
}

/// Names in a folder, sorted; nothing if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("listed").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn from_a_csv_to_verified_payouts() {
    let folder = folder();
    let here = folder.path();
    reward(here, &["policy", "key", "me.pem", "--trust", "keys.json"]).await.expect(0, &["ed25519:"]);
    let sign = ["policy", "sign", "policy.json", "--key", "me.pem", "--out", "signed.json"];
    reward(here, &sign).await.expect(0, &["signed.json"]);
    let order = ["run", "--epoch", "2026-11", "--usage", "usage.csv", "--policy", "signed.json", "--keys", "keys.json"];
    let ran = reward(here, &[&order[..], &["--out", "payouts", "--plot"]].concat()).await;
    ran.expect(0, &["2026-11 written to payouts", "1000000", "signed by 1 key", "reward verify payouts"]);
    reward(here, &["verify", "payouts", "--usage", "usage.csv", "--keys", "keys.json"])
        .await
        .expect(0, &["verified: 2026-11", "the files given (1) are the inputs", "have signed the policy"]);
    let proof = json(&reward(here, &["proof", "payouts", "0x00000000000000000000000000000000000000aa"]).await);
    assert_eq!(proof["proofs"][0]["amount"], "500000");
    assert_eq!(proof["proofs"][0]["leaf_encoding"], serde_json::json!(["address", "uint256"]));
    let facts = manifest(here, "payouts");
    assert_eq!(proof["proofs"][0]["root"], facts["assets"][0]["roots"]["oz"]);
    assert!(facts["assets"][0]["roots"]["sum"].as_str().is_some_and(|root| root.starts_with("b3:")), "{facts}");
    let expected = [
        "allocations.ndjson",
        "allocations.parquet",
        "commitment",
        "inputs.json",
        "plot.svg",
        "policy.dsse.json",
        "policy.json",
        "run.json",
        "usage.parquet",
    ];
    assert_eq!(names(&here.join("payouts")), expected);
    assert!(fs::read_to_string(here.join("payouts/plot.svg")).expect("drawn").starts_with("<svg"));
}

#[tokio::test]
async fn the_same_run_exists_and_another_is_not_replaced() {
    let folder = folder();
    let here = folder.path();
    unsigned_run(here, "e1", "out", &["--threads", "1"]).await.expect(0, &["e1 written to out", "NOT SIGNED"]);
    let before = fs::read(here.join("out/run.json")).expect("written");
    unsigned_run(here, "e1", "out", &["--threads", "8"]).await.expect(0, &["e1 exists, byte for byte, in out"]);
    unsigned_run(here, "e2", "out", &[]).await.expect(70, &["MN0025", "holds another run"]);
    assert_eq!(fs::read(here.join("out/run.json")).expect("there"), before);
    let printed = unsigned_run(here, "e1", "again", &["--json", "--memory", "64MiB"]).await;
    assert_eq!(printed.stdout.trim_end().as_bytes(), before);
    fs::create_dir(here.join("mine")).expect("made");
    fs::write(here.join("mine/letter.txt"), "dear").expect("written");
    unsigned_run(here, "e1", "mine", &[]).await.expect(70, &["MN0025", "letter.txt"]);
    assert_eq!(names(&here.join("mine")), ["letter.txt"]);
}

#[tokio::test]
async fn bad_input_is_refused_with_the_place_and_nothing_is_written() {
    let folder = folder();
    let here = folder.path();
    let write = |name: &str, text: &str| fs::write(here.join(name), text).expect("written");
    for (text, words) in [
        ("actor,quantity\nann,-5\nbob,NaN\n", vec!["2 rows", "usage.csv", "quantity"]),
        ("actor,amount\nann,5\n", vec!["amount"]),
        ("actor,quantity\nann,340282366920938463463374607431768211456\n", vec!["1 row of", "quantity"]),
        ("actor,quantity,group\nann,1,north\n", vec!["north"]),
    ] {
        write("usage.csv", text);
        let refused = unsigned_run(here, "e1", "out", &[]).await;
        refused.expect(70, &[&["MN0025", "nothing was written"], words.as_slice()].concat());
        assert_eq!(names(&here.join("out")), [""; 0], "{text}");
    }
    write("usage.csv", USAGE);
    let order = ["run", "--epoch", "e1", "--policy", "policy.json", "--out", "out", "--usage"];
    reward(here, &[&order[..], &["usage.csv"]].concat()).await.expect(70, &["MN0025", "not signed", "--unsigned"]);
    reward(here, &[&order[..], &["nothing.csv", "--unsigned"]].concat()).await.expect(70, &["nothing.csv"]);
    reward(here, &[&order[..], &[".", "--unsigned"]].concat()).await.expect(70, &["is a folder"]);
    let twice = [&order[..], &["usage.csv", "--usage", "./usage.csv", "--unsigned"]].concat();
    reward(here, &twice).await.expect(70, &["usage.csv is named twice"]);
    unsigned_run(here, "../e", "out", &[]).await.expect(64, &["no name of an epoch"]);
    unsigned_run(here, "e1", "out", &["--pool", "XYZ=5"]).await.expect(70, &["XYZ"]);
    unsigned_run(here, "e1", "out", &["--pool", "RON=5", "--pool", "RON=6"]).await.expect(70, &["twice"]);
    unsigned_run(here, "e1", "out", &["--memory", "2GB"]).await.expect(64, &["GiB"]);
    write("policy.json", &POLICY.replace("\"pool\"", "\"pull\""));
    unsigned_run(here, "e1", "out", &[]).await.expect(70, &["pull"]);
    assert!(!here.join("out").exists());
}

#[tokio::test]
async fn no_command_removes_or_replaces_a_file_that_is_not_its_own() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("tmp-notes"), "mine").expect("written");
    let before = names(here);
    unsigned_run(here, "e1", ".", &[]).await.expect(70, &["it holds other files"]);
    // Names that a run gives its files too are the user's here.
    fs::create_dir(here.join("named")).expect("made");
    for name in ["policy.json", "usage.parquet"] {
        fs::write(here.join("named").join(name), "mine").expect("written");
    }
    unsigned_run(here, "e1", "named", &[]).await.expect(70, &["it holds other files (policy.json)"]);
    assert_eq!(fs::read_to_string(here.join("named/usage.parquet")).expect("there"), "mine");
    reward(here, &["policy", "new", "--out", "policy.json"]).await.expect(70, &["policy.json", "another content"]);
    assert_eq!(fs::read_to_string(here.join("policy.json")).expect("there"), POLICY);
    let mut after = names(here);
    after.retain(|name| name != "named");
    assert_eq!(after, before);
    // A policy that is signed in its place is what the command was asked for.
    reward(here, &["policy", "key", "me.pem"]).await.expect(0, &[]);
    let sign = ["policy", "sign", "policy.json", "--key", "me.pem", "--out", "policy.json"];
    reward(here, &sign).await.expect(0, &["policy.json"]);
    reward(here, &["policy", "check", "policy.json"]).await.expect(0, &["in an envelope"]);
}

#[tokio::test]
async fn a_run_takes_no_pool_in_place_of_a_signed_one() {
    let folder = folder();
    let here = folder.path();
    reward(here, &["policy", "key", "me.pem", "--trust", "keys.json"]).await.expect(0, &[]);
    let sign = ["policy", "sign", "policy.json", "--key", "me.pem", "--out", "signed.json"];
    reward(here, &sign).await.expect(0, &[]);
    let order = ["run", "--epoch", "e1", "--usage", "usage.csv", "--out", "out", "--policy", "signed.json"];
    let run_with = async |pool: &str| {
        let words = ["--keys", "keys.json", "--pool", pool];
        reward(here, &[&order[..], &words].concat()).await
    };
    run_with("RON=9000000").await.expect(70, &["signed as 1000000"]);
    assert!(!here.join("out").exists());
    run_with("RON=1000000").await.expect(0, &[]);
}

#[tokio::test]
async fn a_wrongly_signed_policy_is_refused() {
    let folder = folder();
    let here = folder.path();
    for key in ["me", "you"] {
        let (pem, list) = (format!("{key}.pem"), format!("{key}.json"));
        reward(here, &["policy", "key", &pem, "--trust", &list]).await.expect(0, &[]);
    }
    let sign = ["policy", "sign", "policy.json", "--key", "me.pem", "--out", "signed.json"];
    reward(here, &sign).await.expect(0, &[]);
    let order = ["run", "--epoch", "e1", "--usage", "usage.csv", "--out", "out", "--policy", "signed.json"];
    let run_with = async |more: &[&str]| reward(here, &[&order[..], more].concat()).await;
    run_with(&["--keys", "you.json"]).await.expect(70, &["MN0025", "0 of the trusted keys have signed"]);
    run_with(&["--unsigned"]).await.expect(70, &["no trusted keys"]);
    reward(here, &["policy", "check", "signed.json", "--keys", "me.json"]).await.expect(0, &["1 trusted keys"]);
    let again = ["policy", "sign", "signed.json", "--key", "you.pem", "--out", "both.json"];
    reward(here, &again).await.expect(0, &[]);
    let both = fs::read_to_string(here.join("me.json")).expect("keys");
    let you = fs::read_to_string(here.join("you.json")).expect("keys");
    let mut list: Value = serde_json::from_str(&both).expect("JSON");
    let you: Value = serde_json::from_str(&you).expect("JSON");
    list["keys"].as_array_mut().expect("keys").push(you["keys"][0].clone());
    list["threshold"] = 2.into();
    fs::write(here.join("two.json"), list.to_string()).expect("written");
    run_with(&["--keys", "two.json"]).await.expect(70, &["1 of the trusted keys have signed this; 2 must"]);
    reward(here, &["policy", "check", "both.json", "--keys", "two.json"]).await.expect(0, &["2 trusted keys"]);
    let text = fs::read_to_string(here.join("signed.json")).expect("signed");
    let mut envelope: Value = serde_json::from_str(&text).expect("JSON");
    let payload = envelope["payload"].as_str().expect("text").replacen("eyJpZCI6ImRlbW8i", "eyJpZCI6ImRlbW9v", 1);
    assert_ne!(envelope["payload"], payload.as_str());
    envelope["payload"] = payload.into();
    fs::write(here.join("signed.json"), envelope.to_string()).expect("written");
    run_with(&["--keys", "me.json"]).await.expect(70, &["0 of the trusted keys have signed"]);
    assert!(!here.join("out").exists());
}

#[tokio::test]
async fn a_changed_run_does_not_verify() {
    let folder = folder();
    let here = folder.path();
    unsigned_run(here, "e1", "out", &[]).await.expect(0, &[]);
    reward(here, &["verify", "out"]).await.expect(0, &["verified: e1", "was not signed"]);
    let path = here.join("out/allocations.ndjson");
    let text = fs::read_to_string(&path).expect("lines").replace("166667", "166668");
    fs::write(&path, text).expect("written");
    reward(here, &["verify", "out"]).await.expect(70, &["NOT VERIFIED", "allocations.ndjson has the hash"]);
    let failed = reward(here, &["verify", "out", "--json"]).await;
    assert_eq!(failed.code, Some(70));
    assert_eq!(serde_json::from_str::<Value>(&failed.stdout).expect("JSON")["verified"], false);
    fs::write(here.join("out/run.json"), "{}").expect("written");
    reward(here, &["verify", "out"]).await.expect(70, &["MN0026", "run.json"]);
    reward(here, &["verify", "nowhere"]).await.expect(70, &["MN0025", "nowhere"]);
}

#[tokio::test]
async fn proofs_and_explanations_are_for_everyone() {
    let folder = folder();
    let here = folder.path();
    unsigned_run(here, "e1", "out", &[]).await.expect(0, &[]);
    let lines = reward(here, &["proofs", "out", "--format", "oz"]).await;
    lines.expect(0, &[]);
    let lines: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3, "who gets nothing has no leaf");
    assert!(lines.iter().all(|line| line["proof"].as_array().is_some_and(|proof| !proof.is_empty())), "{lines:?}");
    reward(here, &["proofs", "out", "--format", "sum", "--out", "p.ndjson"]).await.expect(0, &["3 proofs"]);
    let absent = json(&reward(here, &["proof", "out", "zoe", "--format", "sum"]).await);
    assert_eq!(absent["proofs"][0]["proof"]["kind"], "unpaid");
    reward(here, &["proof", "out", "zoe", "--format", "zip"]).await.expect(64, &["oz and sum"]);
    reward(here, &["proof", "out", "zoe", "--asset", "XYZ"]).await.expect(70, &["does not pay XYZ"]);
    reward(here, &["explain", "out", "bob"]).await.expect(0, &["bob gets 333333", "score     20 of"]);
    let nobody = json(&reward(here, &["explain", "out", "nobody", "--json"]).await);
    assert_eq!(nobody["assets"][0]["why_zero"], "not_in_usage");
}

#[tokio::test]
async fn changes_are_compared_tried_and_corrected() {
    let folder = folder();
    let here = folder.path();
    unsigned_run(here, "e1", "one", &[]).await.expect(0, &[]);
    fs::write(here.join("usage.csv"), USAGE.replace("ann,10", "ann,40")).expect("written");
    unsigned_run(here, "e2", "two", &["--pool", "RON=2000000"]).await.expect(0, &[]);
    reward(here, &["diff", "one", "two"]).await.expect(0, &["e1 -> e2", "usage", "pool", "ann"]);
    let same = json(&reward(here, &["diff", "one", "one", "--json"]).await);
    assert_eq!(same["assets"][0]["more"], 0);
    let trial = reward(here, &["whatif", "one", "--pool", "RON=500000", "--top", "1"]).await;
    trial.expect(0, &["draft demo", "1000000 -> 500000 paid", "nothing was written", "2 smaller changes"]);
    let fix = ["correct", "one", "--epoch", "e1-fix", "--usage", "usage.csv", "--out", "fix"];
    reward(here, &fix).await.expect(0, &["corrects e1", "take back"]);
    reward(here, &["verify", "fix"]).await.expect(0, &["verified: e1-fix"]);
    let facts = manifest(here, "fix");
    let corrected = &facts["corrects"]["assets"][0];
    assert_eq!((&corrected["pay"], &corrected["take_back"]), (&"277778".into(), &"277778".into()), "{facts}");
    let bounded =
        ["correct", "one", "--epoch", "fix2", "--usage", "usage.csv", "--out", "fix2", "--clawback-max", "1000"];
    reward(here, &bounded).await.expect(0, &[]);
    assert_eq!(manifest(here, "fix2")["corrects"]["assets"][0]["take_back"], "2000");
    let wrong = ["correct", "one", "--epoch", "e1", "--usage", "usage.csv", "--out", "fix3"];
    reward(here, &wrong).await.expect(70, &["an epoch of its own"]);
    // A correction is corrected from what both have paid, and what was carried is taken back by it.
    let again = ["correct", "fix2", "--epoch", "fix3", "--out", "fix3"];
    reward(here, &again).await.expect(0, &["corrects fix2"]);
    let facts = manifest(here, "fix3")["corrects"]["assets"][0].clone();
    assert_eq!((&facts["paid_before"], &facts["take_back"]), (&"1275778".into(), &"275778".into()), "{facts}");
    assert_eq!((&facts["pay"], &facts["carried"]), (&"0".into(), &"0".into()), "{facts}");
    reward(here, &["correct", "fix2", "--epoch", "e1", "--out", "x"]).await.expect(70, &["an epoch of its own"]);
    reward(here, &["policy", "key", "k.pem", "--trust", "keys.json"]).await.expect(0, &[]);
    reward(here, &["sign", "fix3", "--key", "k.pem"]).await.expect(0, &["correction.dsse.json"]);
    reward(here, &["verify", "fix3"]).await.expect(0, &["verified: fix3"]);
    reward(here, &["sign", "one", "--key", "k.pem"]).await.expect(70, &["is no correction"]);
    fs::write(here.join("fix3/paid.ndjson"), "").expect("written");
    reward(here, &["sign", "fix3", "--key", "k.pem"]).await.expect(70, &["is not signed", "paid.ndjson"]);
    unsigned_run(here, "e3", "three", &["--carry-from", "one"]).await.expect(0, &[]);
}

#[tokio::test]
async fn files_that_are_broken_or_bombs_are_refused_and_nothing_is_written() {
    let folder = folder();
    let here = folder.path();
    unsigned_run(here, "e1", "one", &[]).await.expect(0, &[]);
    let whole = fs::read(here.join("one/usage.parquet")).expect("there");
    let mut turned = whole.clone();
    // The length of the footer stands before the last four bytes.
    let place = whole.len() - 8;
    turned[place..place + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let packed = |text: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, text).expect("packed");
        packer.finish().expect("packed")
    };
    let csv = packed(USAGE.as_bytes());
    let mut broken: Vec<(&str, Vec<u8>, &str)> = vec![
        ("cut.parquet", whole[..whole.len() / 2].to_vec(), "cut.parquet"),
        ("no-tail.parquet", whole[..whole.len() - 1].to_vec(), "no-tail.parquet"),
        ("junk.parquet", [b"PAR1".as_slice(), &[7; 500], b"PAR1"].concat(), "junk.parquet"),
        ("footer.parquet", turned, "footer.parquet"),
        ("cut.csv.gz", csv[..csv.len() - 9].to_vec(), "cut.csv.gz"),
    ];
    if testkit::soak() {
        // Two gibibytes of rows in a few megabytes, at the limits that a person's own run has.
        let rows = packed(format!("{},1\n", "x".repeat(1000)).repeat(1 << 14).as_bytes());
        broken.push(("bomb.csv.gz", [packed(b"actor,quantity\n"), rows.repeat(130)].concat(), "unpack"));
    }
    for (name, bytes, word) in broken {
        fs::write(here.join(name), bytes).expect("written");
        let words = ["run", "--epoch", "e2", "--usage", name, "--policy", "policy.json", "--out", "two", "--unsigned"];
        reward(here, &words).await.expect(70, &["MN0025", word]);
        assert_eq!(names(&here.join("two")), Vec::<String>::new(), "{name}: nothing is written");
    }
}

#[tokio::test]
async fn policies_are_made_and_checked() {
    let folder = folder();
    let here = folder.path();
    let made = reward(here, &["policy", "new", "--id", "p", "--asset", "USDC", "--weight", "bytes=3/7"]).await;
    fs::write(here.join("new.json"), &made.stdout).expect("written");
    reward(here, &["policy", "check", "new.json"]).await.expect(0, &["USDC 1000000", "nobody has signed"]);
    reward(here, &["policy", "new", "--weight", "bytes=x"]).await.expect(70, &["x"]);
    reward(here, &["policy", "check", "usage.csv"]).await.expect(70, &["MN0025", "usage.csv"]);
    reward(here, &["policy", "sign", "usage.csv", "--key", "k.pem"]).await.expect(70, &["MN0025"]);
    let first = reward(here, &["policy", "key", "k.pem"]).await;
    assert_eq!(reward(here, &["policy", "key", "k.pem"]).await.stdout, first.stdout, "a key is never replaced");
    fs::write(here.join("junk.pem"), "junk").expect("written");
    reward(here, &["policy", "key", "junk.pem"]).await.expect(70, &["PRIVATE KEY"]);
    reward(here, &["release", "a b"]).await.expect(70, &["neither an epoch nor the folder"]);
    reward(here, &["release", "e1", "--data-dir", "none"]).await.expect(70, &["MN00"]);
}
