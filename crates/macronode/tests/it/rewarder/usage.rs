//! The node's own usage: counted by tenant on every surface, kept through a kill, sealed once for each epoch.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MailboxClient, Node, Outgoing, SqsKey, Take, eventually};

use crate::options;
use crate::process::{self, Process};

const TAKE: Take = Take { max: 10, visibility_ms: 60_000, wait_ms: 0 };

async fn usage(operator: &mut MailboxClient) -> Value {
    operator.get("/rewarder/usage").await.expect("answered")
}

/// Quantities by actor and metric, without the service's name.
fn quantities(usage: &Value) -> BTreeMap<(String, String), u64> {
    let rows = usage["rows"].as_array().expect("rows").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    rows.map(|row| {
        let metric = text(&row["metric"]).strip_prefix("mailbox.").expect("of the mailbox").to_owned();
        ((text(&row["actor"]), metric), text(&row["quantity"]).parse().expect("a number"))
    })
    .collect()
}

fn expected<const N: usize>(rows: [(&str, &str, u64); N]) -> BTreeMap<(String, String), u64> {
    rows.into_iter().map(|(actor, metric, quantity)| ((actor.to_owned(), metric.to_owned()), quantity)).collect()
}

async fn client_of(node: &Node, operator: &mut MailboxClient, subject: &str) -> MailboxClient {
    let grant = json!({"subject": subject, "rights": ["mailbox:*:*"]});
    let minted = operator.post("/v1/tokens", &grant).await.expect("minted");
    MailboxClient::connect(node.api, minted["token"].as_str().expect("a token")).await.expect("it listens")
}

#[tokio::test]
async fn work_is_counted_for_whom_it_was_done() {
    let node = options().amnesia().config("[auth]\nsqs = \"off\"\n").start().await.expect("started");
    let mut operator = MailboxClient::of(&node).await.expect("it listens");
    let (mut alice, mut bob) =
        (client_of(&node, &mut operator, "alice").await, client_of(&node, &mut operator, "bob").await);
    let keyed = Outgoing { topic: "t", payload: b"12345", idem_key: Some("k"), ..Outgoing::default() };
    alice.send(keyed).await.expect("sent");
    assert!(alice.send(keyed).await.expect("answered").duplicate, "and not counted twice");
    let batch = json!({"topic": "t", "messages": [{"payload_b64": "aGk="}, {"payload_b64": "aGkh"}]});
    alice.post("/v1/send:batch", &batch).await.expect("sent");
    let taken = bob.recv("t", TAKE).await.expect("received");
    assert_eq!(taken.len(), 3);
    let receipts: Vec<&str> = taken.iter().map(|message| message.receipt.as_str()).collect();
    assert_eq!(bob.ack(&receipts[..2]).await.expect("answered"), [true, true]);
    assert_eq!(bob.ack(&receipts[..1]).await.expect("answered"), [false], "acknowledged once");
    // Somebody who signs nothing.
    let key = SqsKey::new("anybody", "anything");
    let url = format!("http://{}/000000000000/q", node.api);
    assert_eq!(key.call(node.api, "CreateQueue", r#"{"QueueName":"q"}"#).await.status, 200);
    let send = json!({"QueueUrl": url, "MessageBody": "four"}).to_string();
    assert_eq!(key.call(node.api, "SendMessage", &send).await.status, 200);
    let received = key.call(node.api, "ReceiveMessage", &json!({"QueueUrl": url}).to_string()).await;
    let handle = received.json().expect("json")["Messages"][0]["ReceiptHandle"].clone();
    let delete = json!({"QueueUrl": url, "ReceiptHandle": handle}).to_string();
    assert_eq!(key.call(node.api, "DeleteMessage", &delete).await.status, 200);
    let counted = quantities(&usage(&mut operator).await);
    let rows = [
        ("alice", "messages_sent", 3),
        ("alice", "bytes_sent", 10),
        ("bob", "messages_received", 3),
        ("bob", "bytes_received", 10),
        ("bob", "messages_acknowledged", 2),
        ("anonymous", "messages_sent", 1),
        ("anonymous", "bytes_sent", 4),
        ("anonymous", "messages_received", 1),
        ("anonymous", "bytes_received", 4),
        ("anonymous", "messages_acknowledged", 1),
    ];
    assert_eq!(counted, expected(rows));
    let page = operator.get("/rewarder/usage?limit=1").await.expect("answered");
    assert_eq!((page["next"].as_str(), page["rows_total"].as_u64()), (Some("alice"), Some(10)));
    // Only who may read everything sees what others did.
    assert_eq!(alice.get("/rewarder/usage").await.expect_err("refused").status(), Some(403));
    assert_eq!(alice.post("/rewarder/usage/seal", &json!({"epoch": "e"})).await.expect_err("no").status(), Some(403));
}

#[tokio::test]
async fn a_right_on_own_epochs_seals_own_rows() {
    let node = options().amnesia().start().await.expect("started");
    let mut operator = MailboxClient::of(&node).await.expect("it listens");
    let grant = |subject: &str, right: &str| json!({"subject": subject, "rights": ["mailbox:*:*", right]});
    let mint = async |operator: &mut MailboxClient, subject: &str, right: &str| {
        let minted = operator.post("/v1/tokens", &grant(subject, right)).await.expect("minted");
        MailboxClient::connect(node.api, minted["token"].as_str().expect("a token")).await.expect("it listens")
    };
    let mut alice = mint(&mut operator, "alice", "rewarder:compute:alice-*").await;
    let mut keeper = mint(&mut operator, "keeper", "rewarder:compute:*").await;
    for tenant in [&mut alice, &mut keeper] {
        tenant.send(Outgoing { topic: "t", payload: b"12345", ..Outgoing::default() }).await.expect("sent");
    }
    let own = alice.post("/rewarder/usage/seal", &json!({"epoch": "alice-1"})).await.expect("sealed");
    assert_eq!((own["tenant"].as_str(), own["rows"].as_u64()), (Some("alice"), Some(2)), "{own}");
    let refused = alice.post("/rewarder/usage/seal", &json!({"epoch": "2026-11"})).await.expect_err("refused");
    assert_eq!(refused.status(), Some(403));
    let all = keeper.post("/rewarder/usage/seal", &json!({"epoch": "2026-11"})).await.expect("sealed");
    assert_eq!((all.get("tenant"), all["rows"].as_u64()), (None, Some(2)), "{all}");
    for subject in ["anonymous", "operator", "epoch/2026-11"] {
        let refused = operator.post("/v1/tokens", &grant(subject, "rewarder:compute:*")).await.expect_err("refused");
        assert_eq!(refused.status(), Some(400), "{subject}");
        let seal = json!({"epoch": "other", "as": subject});
        assert_eq!(keeper.post("/rewarder/usage/seal", &seal).await.expect_err("no").status(), Some(400), "{subject}");
    }
}

#[tokio::test]
async fn what_was_saved_outlives_a_kill_and_is_sealed_once() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let mut node = Process::start(folder.path(), &data, &[]).await;
    let mut operator = crate::client(&node).await;
    operator.send(Outgoing { topic: "t", payload: b"12345", ..Outgoing::default() }).await.expect("sent");
    let before = usage(&mut operator).await["rows"].clone();
    assert_eq!(before.as_array().map(Vec::len), Some(2), "{before}");
    // Saved within a second or so: the log of usage has grown by then.
    let log = data.join("rewarder").join("usage");
    let recorded = || {
        std::fs::read_dir(&log).ok()?.flatten().find_map(|entry| {
            let bytes = std::fs::read(entry.path()).ok()?;
            bytes.windows(18).any(|window| window == b"mailbox.bytes_sent").then_some(())
        })
    };
    eventually("the rows are on the disk", async || recorded()).await;
    node.signal(Signal::KILL);
    node.wait_exit().await;

    let mut node = Process::start(folder.path(), &data, &[]).await;
    let mut operator = crate::client(&node).await;
    assert_eq!(usage(&mut operator).await["rows"], before, "nothing was lost, nothing doubled");
    let seal = json!({"epoch": "2026-11", "as": "node-7"});
    let sealed = operator.post("/rewarder/usage/seal", &seal).await.expect("sealed");
    assert_eq!(sealed["rows"], 2);
    assert_eq!(usage(&mut operator).await["rows_total"], 0);
    let other = json!({"epoch": "2026-11"});
    assert_eq!(operator.post("/rewarder/usage/seal", &other).await.expect_err("refused").status(), Some(409));
    node.signal(Signal::KILL);
    node.wait_exit().await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut operator = crate::client(&node).await;
    assert_eq!(operator.post("/rewarder/usage/seal", &seal).await.expect("sealed"), sealed, "the same file");
    let data = data.display().to_string();
    let shown = process::run(folder.path(), &["reward", "usage", "show", "2026-11", "--data-dir", &data]).await;
    let lines = shown.stdout.lines().skip(1);
    let actors: Vec<&str> = lines.map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(actors, ["node-7", "node-7"], "{}", shown.said());
    let b3 = format!("b3:{}", blake3::hash(shown.stdout.as_bytes()).to_hex());
    assert_eq!(sealed["b3"], b3.as_str());
    process::run(folder.path(), &["reward", "usage", "show", "--data-dir", &data])
        .await
        .expect(0, &["nothing was counted since the last seal", "2026-11"]);
    process::run(folder.path(), &["reward", "usage", "seal", "2026-12", "--data-dir", &data])
        .await
        .expect(0, &["2026-12 is sealed: 0 rows"]);
    drop(node);
}

#[tokio::test]
async fn a_drain_saves_what_was_counted_last() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let mut node = Process::start(folder.path(), &data, &[]).await;
    let mut operator = crate::client(&node).await;
    for _ in 0..20 {
        operator.send(Outgoing { topic: "t", payload: b"12345", ..Outgoing::default() }).await.expect("sent");
    }
    node.signal(Signal::TERM);
    node.wait_exit().await;
    let node = Process::start(folder.path(), &data, &[]).await;
    let counted = quantities(&usage(&mut crate::client(&node).await).await);
    let sums: Vec<u64> = counted.values().copied().collect();
    assert_eq!(sums, [100, 20], "{counted:?}");
}
