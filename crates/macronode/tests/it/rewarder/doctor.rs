//! What `macronode doctor` and `macronode top` say of a rewarder whose epochs, ledger and files are not all well.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Postgres, PostgresStart};

use crate::process::{Process, run};
use crate::rewarder::service::{Caller, UNSIGNED, caller_of, usage, write_settings};

/// Two spellings of one address, which is one payee: such an epoch pays nobody.
const TWICE: &str = "actor,quantity
0x00000000000000000000000000000000000000Aa,5
0x00000000000000000000000000000000000000aa,5
";

async fn compute(caller: &Caller, epoch: &str, usage: &str, release: Value) -> Value {
    let b3 = caller.upload(usage).await;
    let assets = json!([{"asset": "RON", "pool": "1000", "weights": {"usage": "1"}}]);
    let policy = json!({"id": "demo", "ruleset": 1, "assets": assets, "release": release});
    let begun = caller.compute(epoch, &json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true})).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    caller.ended(epoch).await["state"].clone()
}

/// The findings about this, as `level: finding (advice)`.
async fn findings(folder: &std::path::Path, what: &str) -> Vec<String> {
    let free = ["--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    let config = folder.join("macronode.toml").display().to_string();
    let data = folder.join("data").display().to_string();
    let own = ["doctor", "--json", "--config", &config, "--data-dir", &data];
    let told = run(folder, &[&own[..], &free[..]].concat()).await;
    let report: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let found = report["findings"].as_array().expect("a list").iter().filter(|finding| finding["what"] == what);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found.map(|one| format!("{}: {} ({})", text(&one["level"]), text(&one["finding"]), text(&one["advice"]))).collect()
}

fn has(findings: &[String], level: &str, words: &[&str]) {
    let fits = |finding: &&String| finding.starts_with(level) && words.iter().all(|word| finding.contains(word));
    assert!(findings.iter().any(|finding| fits(&finding)), "{level} {words:?} is missing in {findings:#?}");
}

#[tokio::test]
async fn epochs_that_need_a_person_are_found_by_doctor_and_shown_by_top() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    std::fs::write(here.join("macronode.toml"), UNSIGNED).expect("written");
    let config = here.join("macronode.toml").display().to_string();
    let mut node = Process::start(here, &data, &["--config", &config]).await;
    let caller = caller_of(&node);
    assert_eq!(compute(&caller, "e1", &usage(3, 0), json!({})).await, "settled");
    assert_eq!(compute(&caller, "e2", &usage(3, 1), json!({"by_hand": true})).await, "held");
    assert_eq!(compute(&caller, "e3", TWICE, json!({})).await, "quarantined");

    let stats = caller.get("/rewarder/stats").await.json().expect("JSON");
    assert_eq!(stats["epochs"], json!({"held": 1, "released": 0, "settled": 1, "quarantined": 1}), "{stats}");
    let back = caller.get("/rewarder/epochs?last_first=true&limit=2").await.json().expect("JSON");
    assert_eq!((&back["epochs"][0]["epoch"], &back["next"]), (&json!("e3"), &json!("e2")), "{back}");
    let first = caller.get("/rewarder/epochs?last_first=true&after=e2").await.json().expect("JSON");
    assert_eq!((&first["epochs"][0]["epoch"], &first["next"]), (&json!("e1"), &Value::Null), "{first}");

    let data_dir = data.display().to_string();
    let top = run(here, &["top", "--once", "--interval", "100ms", "--data-dir", &data_dir]).await;
    top.expect(0, &["3 epochs", "0 computing, 1 held, 0 released, 1 settled, 1 quarantined", "e3     quarantined"]);
    let grant = json!({"subject": "queues", "rights": ["mailbox:*:*"]});
    let minted = caller.ask(http::Method::POST, "/v1/tokens", grant.to_string()).await.json().expect("JSON");
    let token = minted["token"].as_str().expect("a token");
    let top = run(here, &["top", "--once", "--interval", "100ms", "--data-dir", &data_dir, "--token", token]).await;
    top.expect(0, &["epochs not shown", "this token may not read every epoch"]);
    has(&findings(here, "epochs").await, "ok", &["a node has the seal log open"]);
    node.signal(Signal::TERM);
    node.wait_exit().await;

    let found = findings(here, "epochs").await;
    has(&found, "ok", &["3 sealed: 1 held, 0 released, 1 settled, 1 quarantined"]);
    has(&found, "warn", &["quarantined: e3", "paid nobody", "under another id"]);
    has(&found, "warn", &["held: e2", "reward release"]);
    has(&findings(here, "book").await, "ok", &["segments"]);
    has(&findings(here, "ledger").await, "ok", &["embedded"]);
    std::fs::write(data.join("rewarder/ledger/DAMAGED"), "3 records damaged\n").expect("written");
    has(&findings(here, "book").await, "warn", &["3 records damaged", "books nothing", "restore"]);
    let log = std::fs::read_dir(data.join("rewarder/log")).expect("there").flatten().map(|entry| entry.path());
    for file in log.filter(|path| path.extension().is_some_and(|end| end == "log")) {
        std::fs::remove_file(file).expect("removed");
    }
    let found = findings(here, "epochs").await;
    assert!(found.iter().any(|finding| !finding.starts_with("ok")), "a lost log is told: {found:?}");
}

#[tokio::test]
async fn inputs_keys_and_ledgers_that_cannot_be_used_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let configure = |lines: &str| std::fs::write(here.join("macronode.toml"), format!("[rewarder]\n{lines}"));
    let closed = testkit::own_address();
    let address = format!("host={} port={} user=u dbname=d", closed.ip(), closed.port());
    write_settings(&here.join("ledger.toml"), format!("address = {address:?}\n"));
    let settings =
        format!("ledger = \"postgres\"\nledger_settings = {:?}\n", here.join("ledger.toml").display().to_string());

    configure("inputs_dir = \"/nowhere/inputs\"\ntrusted_keys = \"/nowhere/keys\"\n").expect("written");
    has(&findings(here, "inputs_dir").await, "warn", &["/nowhere/inputs", "only uploads"]);
    has(&findings(here, "trusted_keys").await, "fail", &["/nowhere/keys", "does not start"]);
    configure("ledger = \"postgres\"\n").expect("written");
    has(&findings(here, "ledger").await, "fail", &["ledger_settings", "does not start"]);
    configure(&settings).expect("written");
    has(&findings(here, "ledger").await, "warn", &["payouts wait until it answers", "ledger.toml"]);

    std::fs::set_permissions(here.join("ledger.toml"), std::fs::Permissions::from_mode(0o644)).expect("for everybody");
    has(&findings(here, "ledger").await, "fail", &["others can read it", "does not start"]);

    let quiet = ["fsync=off", "log_min_messages=fatal"].map(str::to_owned).to_vec();
    let server = Postgres::start(&PostgresStart { settings: quiet, identity: None }).expect("a server");
    write_settings(&here.join("ledger.toml"), format!("address = {:?}\n", server.over_tcp()));
    for _ in 0..2 {
        has(&findings(here, "ledger").await, "ok", &["PostgreSQL answers, without our tables"]);
    }
    let http = format!("ledger = \"http\"\nledger_settings = {:?}\n", here.join("http.toml").display().to_string());
    write_settings(&here.join("http.toml"), format!("base = \"http://{closed}/\"\n"));
    configure(&http).expect("written");
    has(&findings(here, "ledger").await, "warn", &["payouts wait until it answers", "http.toml"]);
}
