//! A node whose book was restored from an older copy, or lost, and one that finds the data of a version before.

use std::fs;
use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{ask, eventually};

use crate::process::{Process, run};
use crate::rewarder::service::{Caller, UNSIGNED, body, caller_of, usage};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("there") {
        let entry = entry.expect("read");
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => assert!(fs::copy(entry.path(), to).is_ok()),
        }
    }
}

async fn start(here: &Path) -> (Process, Caller) {
    let node = Process::start(here, &here.join("data"), &["--config", "node.toml"]).await;
    let caller = caller_of(&node);
    (node, caller)
}

async fn end(mut node: Process) {
    node.signal(Signal::TERM);
    node.wait_exit().await;
}

async fn begin(caller: &Caller, epoch: &str, number: usize) {
    let b3 = caller.upload(&usage(300, number)).await;
    assert_eq!(caller.compute(epoch, &body(&b3)).await.status, 202);
}

/// Units that left the pot of an epoch.
async fn paid(caller: &Caller, epoch: &str) -> Value {
    let pot = caller.get(&format!("/ledger/accounts/epoch%2F{epoch}")).await;
    pot.json().expect("JSON")["balances"][0]["debits"].clone()
}

#[tokio::test]
async fn a_book_from_an_older_copy_is_noticed_everywhere_and_sent_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    fs::write(here.join("node.toml"), UNSIGNED).expect("written");
    let (node, caller) = start(here).await;
    begin(&caller, "e1", 1).await;
    assert_eq!(caller.ended("e1").await["state"], "settled");
    end(node).await;
    copy(&here.join("data/rewarder/ledger"), &here.join("older"));
    let (node, caller) = start(here).await;
    begin(&caller, "e2", 2).await;
    assert_eq!(caller.ended("e2").await["state"], "settled");
    end(node).await;
    fs::remove_dir_all(here.join("data/rewarder/ledger")).expect("removed");
    copy(&here.join("older"), &here.join("data/rewarder/ledger"));

    let missing = "epoch e2 is settled, and payouts of it are missing";
    run(here, &["ledger", "verify", "--data-dir", "data"]).await.expect(70, &[missing, "NOT good"]);
    let free = ["--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    let doctor = [&["doctor", "--json", "--config", "node.toml", "--data-dir", "data"][..], &free[..]].concat();
    let said = run(here, &doctor).await;
    assert!(said.stdout.contains(missing) && said.stdout.contains("ledger resend"), "{}", said.stdout);

    let (node, caller) = start(here).await;
    begin(&caller, "e3", 3).await;
    eventually("the node says what is wrong", async || {
        let ready = ask(node.admin, Method::GET, "/readyz", &[], "").await.ok()?.json().ok()?;
        ready["notes"].to_string().contains("lacks payouts of epochs that are settled: e2").then_some(())
    })
    .await;
    let stats = caller.get("/rewarder/stats").await.json().expect("JSON");
    assert_eq!(stats["missing_in_ledger"], json!(["e2"]), "{stats}");
    run(here, &["ledger", "verify", "--data-dir", "data"]).await.expect(70, &[missing]);
    assert_eq!(paid(&caller, "e3").await, Value::Null, "nothing more is booked");
    run(here, &["ledger", "resend", "--data-dir", "data"]).await.expect(0, &["sent again: e2"]);
    assert_eq!(caller.ended("e3").await["state"], "settled");
    for epoch in ["e1", "e2", "e3"] {
        assert_eq!(paid(&caller, epoch).await, "1000003", "{epoch}");
    }
    run(here, &["ledger", "resend", "--data-dir", "data"]).await.expect(0, &["everything that is settled"]);
    run(here, &["ledger", "verify", "--data-dir", "data"]).await.expect(0, &["the book is good"]);
    let recount = caller.ask(Method::POST, "/ledger/verify", "{}").await.json().expect("JSON");
    assert_eq!((&recount["is_clean"], &recount["transfers"]), (&json!(true), &json!(900)), "{recount}");
}

#[tokio::test]
async fn the_data_directory_of_a_version_before_is_served_and_corrected() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    fs::write(here.join("node.toml"), UNSIGNED).expect("written");
    // The keys of a node lie beside its data.
    end(start(here).await.0).await;
    fs::remove_dir_all(here.join("data/rewarder")).expect("removed");
    let before = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rewarder/tests/data/before");
    copy(&before, &here.join("data/rewarder"));
    // The zeros at the end of the book's segments are left out of the copy.
    for number in 1..=2 {
        let segment = here.join(format!("data/rewarder/ledger/{number:08}.log"));
        fs::File::options().write(true).open(segment).expect("there").set_len(32 << 20).expect("room");
    }
    let (_node, caller) = start(here).await;
    let states =
        [("e1", "settled"), ("e2", "settled"), ("fix", "settled"), ("held", "held"), ("broken", "quarantined")];
    for (epoch, state) in states {
        let found = caller.get(&format!("/rewarder/epochs/{epoch}")).await.json().expect("JSON");
        assert_eq!(found["state"], state, "{found}");
        run(here, &["reward", "verify", &format!("data/rewarder/epochs/{epoch}")]).await.expect(0, &[]);
    }
    let recount = caller.ask(Method::POST, "/ledger/verify", "{}").await.json().expect("JSON");
    assert_eq!(recount["is_clean"], true, "{recount}");
    let proof = caller.get("/rewarder/epochs/e2/proof/new").await;
    assert_eq!(proof.status, 200, "{}", proof.text());
    run(here, &["reward", "release", "held", "--data-dir", "data"]).await.expect(0, &["held is released"]);
    assert_eq!(caller.ended("held").await["state"], "settled");
    let rows = (0..30).map(|number| format!("p{number:02},{}\n", number * number + 1));
    let rows: String = rows.chain(["newer,600\n".to_owned()]).collect();
    fs::write(here.join("should.csv"), format!("actor,quantity\n{rows}")).expect("written");
    let words = "reward correct data/rewarder/epochs/e2 --epoch fix-2 --usage should.csv --out fix-2 --take-left-over";
    run(here, &words.split(' ').collect::<Vec<_>>()).await.expect(0, &["corrects e2"]);
    run(here, &["reward", "release", "fix-2", "--unsigned", "--data-dir", "data"]).await.expect(0, &[]);
    assert_eq!(caller.ended("fix-2").await["state"], "settled");
}
