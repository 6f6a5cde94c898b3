//! The embedded ledger of a node: the same words from the running node and from its files.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MailboxClient, eventually};

use crate::process::{self, Process};

/// Pays 100 units to two actors; what they get is 75 and 25.
async fn pay(operator: &mut MailboxClient) {
    let policy =
        json!({"id": "demo", "ruleset": 1, "assets": [{"asset": "RON", "pool": "100", "weights": {"usage": "1"}}]});
    let body = json!({"inputs": [{"path": "usage.csv"}], "policy": policy, "unsigned": true});
    operator.post("/rewarder/epochs/e1/compute", &body).await.expect("begun");
    eventually("the epoch is settled", async || {
        let epoch = operator.get("/rewarder/epochs/e1").await.ok()?;
        (epoch["state"] == "settled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_book_is_read_from_the_node_and_from_its_files() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (data, config) = (folder.path().join("data"), folder.path().join("node.toml"));
    std::fs::write(folder.path().join("usage.csv"), "actor,quantity\nalice,3\nbob,1\n").expect("written");
    let inputs = folder.path().display().to_string();
    std::fs::write(&config, format!("[rewarder]\nunsigned_policies = true\ninputs_dir = {inputs:?}\n"))
        .expect("written");
    let config = config.display().to_string();
    let mut node = Process::start(folder.path(), &data, &["--config", &config]).await;
    let mut operator = crate::client(&node).await;
    pay(&mut operator).await;

    let refused = operator.get("/ledger/accounts/nobody").await.expect_err("unknown");
    assert_eq!(refused.status(), Some(404));
    let bad = operator.get("/ledger/accounts/bob/statement?from=9.9").await.expect_err("not ours");
    assert_eq!(bad.status(), Some(400), "{bad:?}");
    let pot = operator.get("/ledger/accounts/epoch%2Fe1").await.expect("the pot");
    assert_eq!(pot["balances"][0]["balance"], "-100");
    let recount = operator.post("/ledger/verify", &json!({})).await.expect("counted");
    assert_eq!((&recount["is_clean"], &recount["transfers"]), (&json!(true), &json!(2)), "{recount}");
    let sums = json!([{"asset": "RON", "debits": "100", "credits": "100"}]);
    assert_eq!(recount["assets"], sums);
    let right = json!({"subject": "alice", "rights": ["rewarder:ledger:alice"]});
    let minted = operator.post("/v1/tokens", &right).await.expect("minted");
    let mut alice =
        MailboxClient::connect(node.api, minted["token"].as_str().expect("a token")).await.expect("it listens");
    let own = alice.get("/ledger/accounts/alice").await.expect("her own");
    assert_eq!(own["balances"][0]["balance"], "75");
    assert_eq!(alice.get("/ledger/accounts/bob").await.expect_err("his").status(), Some(403));
    assert_eq!(alice.get("/ledger/accounts").await.expect_err("all").status(), Some(403));

    let data_text = data.display().to_string();
    let commands: [&[&str]; 5] = [
        &["ledger", "balance", "alice", "--asset", "RON"],
        &["ledger", "statement", "epoch/e1", "--limit", "1"],
        &["ledger", "statement", "epoch/e1"],
        &["ledger", "accounts"],
        &["ledger", "verify"],
    ];
    let mut online = Vec::new();
    for command in commands {
        online.push(said(folder.path(), command, &data_text).await);
    }
    assert_eq!(online[0]["balances"], json!([{"asset": "RON", "debits": "0", "credits": "75", "balance": "75"}]));
    assert_eq!((online[1]["lines"].as_array().map(Vec::len), online[1]["next"].is_string()), (Some(1), true));
    assert_eq!(online[2]["lines"].as_array().map(Vec::len), Some(2));
    assert_eq!(online[4], recount);
    node.signal(Signal::KILL);
    node.wait_exit().await;
    for (command, expected) in commands.iter().zip(&online) {
        assert_eq!(said(folder.path(), command, &data_text).await, *expected, "{command:?}");
    }
    let shown = process::run(folder.path(), &["ledger", "balance", "bob", "--data-dir", &data_text]).await;
    shown.expect(0, &["asset  balance  credits  debits", "RON    25       25       0"]);
    let unknown = process::run(folder.path(), &["ledger", "balance", "nobody", "--data-dir", &data_text]).await;
    assert!(unknown.said().contains("does not know the account nobody"), "{}", unknown.said());
}

async fn said(folder: &std::path::Path, command: &[&str], data: &str) -> Value {
    let arguments = [command, &["--json", "--data-dir", data]].concat();
    let shown = process::run(folder, &arguments).await;
    serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{}", shown.said()))
}
