//! A wall clock that jumps ahead holds expiry back instead of dropping messages.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ron_kernel::clock;
use ron_log::{Class, Log, LogOptions, RealDisk};
use rustix::process::Signal;
use serde_json::json;
use svc_mailbox::envelope::{Envelope, payload_hash};
use svc_mailbox::record::{Record, Taken};
use svc_mailbox::types::{PartKey, TopicId};
use testkit::{MailboxClient, Take, eventually};

use crate::process::{Process, run};

const HOUR_MS: u64 = 3_600_000;
/// The wall clock jumps by this much between the last record and the start.
const JUMP_MS: u64 = 5 * HOUR_MS;
const MESSAGES: u64 = 20;

async fn started(folder: &Path) -> (Process, MailboxClient) {
    let node = Process::start(folder, &folder.join("data"), &[]).await;
    let client = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    (node, client)
}

async fn stop(mut node: Process) {
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
}

/// A log whose newest record is hours old: nothing else tells a start that the wall clock has jumped since.
fn write_log(folder: &Path, topic_settings: &str) {
    let disk = RealDisk::open(folder.join("data/mailbox")).expect("opened");
    let options = LogOptions { zero_ahead: true, sidecars: true, ..LogOptions::default() };
    let (log, _) = Log::open(Arc::new(disk), options, &mut |_, _| ()).expect("read");
    let append = |record: Record<'_>, body: &[u8]| {
        let mut head = Vec::new();
        record.encode(&mut head);
        log.appender().append(Class::Data, &head, body).expect("appended");
    };
    append(Record::Topic { id: TopicId(1), name: "t", settings: topic_settings }, &[]);
    let sent_ms = clock::unix_millis() - JUMP_MS;
    for seq in 1..=MESSAGES {
        let payload = Bytes::from(format!("message {seq}"));
        let envelope = Envelope { payload_hash: payload_hash(&payload), payload, ..Envelope::default() };
        let (part, body) = (PartKey { topic: TopicId(1), partition: 0 }, envelope.encode());
        let body_len = body.len() as u32;
        let taken = Taken { part, seq, sent_ms, due_ms: sent_ms, body_len, group: None, key: None };
        append(Record::Send(taken), &body);
    }
    log.seal().expect("sealed");
}

/// A node that was started once, so that its keys are there, and whose log was then written hours ago.
async fn jumped(folder: &Path) -> (Process, MailboxClient) {
    let (node, _) = started(folder).await;
    stop(node).await;
    let log = folder.join("data/mailbox");
    std::fs::remove_dir_all(&log).expect("removed");
    std::fs::create_dir(&log).expect("made");
    let settings = json!({"created_ms": 0, "settings": {"retention_ms": HOUR_MS, "expired": "drop"}});
    write_log(folder, &settings.to_string());
    started(folder).await
}

/// What `/readyz` has for the operator.
async fn notes(node: &Process) -> String {
    let mut client = testkit::Client::connect(node.admin).await.expect("the admin plane listens");
    let answer = client.request(http::Method::GET, "/readyz", &[], "").await.expect("an answer");
    testkit::notes_in(&answer.json().expect("JSON"))
}

async fn held_seconds(node: &Process) -> f64 {
    node.metric("mailbox_clock_jump_seconds{kind=\"held\"}").await
}

#[tokio::test]
async fn rule_20_a_clock_that_jumps_ahead_drops_nothing_until_an_operator_confirms() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (node, mut client) = jumped(folder.path()).await;
    // Kept for an hour, sent five hours ago by the wall clock, and there all the same: after another restart too, whose
    // newest records are from after the jump.
    let one = client.recv("t", Take { max: 1, visibility_ms: 250, wait_ms: 1_000 }).await.expect("received");
    assert_eq!(one[0].text(), "message 1");
    assert!(held_seconds(&node).await >= (JUMP_MS / 1000) as f64);
    assert!(node.stderr().contains("macronode mailbox clock confirm"), "{}", node.stderr());
    assert!(notes(&node).await.contains("macronode mailbox clock confirm"), "{}", notes(&node).await);
    stop(node).await;
    let (node, mut client) = started(folder.path()).await;
    assert!(held_seconds(&node).await >= (JUMP_MS / 1000) as f64);
    assert_eq!(client.held("t").await.expect("answered"), MESSAGES);

    let shown = run(folder.path(), &["mailbox", "clock", "--data-dir", "data"]).await;
    shown.expect(0, &["5 h", "clock confirm"]);
    run(folder.path(), &["mailbox", "clock", "confirm", "--data-dir", "data"]).await.expect(0, &["holds nothing back"]);
    eventually("expiry", async || (client.held("t").await.ok()? == 0).then_some(())).await;
    assert_eq!((held_seconds(&node).await, notes(&node).await.as_str()), (0.0, ""));
    stop(node).await;
    let (node, _) = started(folder.path()).await;
    assert_eq!(held_seconds(&node).await, 0.0, "confirmed once is confirmed");
}

#[tokio::test]
async fn rule_20_only_the_operator_confirms_the_clock() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (node, mut client) = jumped(folder.path()).await;
    let grant = json!({"subject": "tenant", "ops": ["all"], "topics": ["*"]});
    let minted = client.post("/v1/tokens", &grant).await.expect("minted");
    let token = minted["token"].as_str().expect("a token");
    let mut tenant = MailboxClient::connect(node.api, token).await.expect("connected");
    let refused =
        tenant.post("/v1/clock/confirm", &json!({})).await.expect_err("no capability stands for the operator");
    assert_eq!(refused.status(), Some(403), "{refused}");
    assert!(held_seconds(&node).await > 0.0);
    assert_eq!(client.held("t").await.expect("answered"), MESSAGES);
}
