//! A full or damaged log recovers by consuming.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use testkit::{MailboxClient, MailboxError, Node, Outgoing, Plane, Take, eventually};

use crate::options;

const KIB: usize = 1024;
/// The smallest log a configuration allows.
const SMALL_LOG: &str = "[mailbox]\nsegment_bytes = \"2MiB\"\ndisk_bytes_max = \"16MiB\"\n";
const TAKE: Take = Take { max: 100, visibility_ms: 60_000, wait_ms: 0 };

async fn small() -> (Node, MailboxClient) {
    let node = options().config(SMALL_LOG).start().await.expect("the node starts");
    let client = MailboxClient::of(&node).await.expect("connected");
    (node, client)
}

/// Sends until it is refused or so many are sent; the ids, and the refusal.
async fn fill(
    client: &mut MailboxClient,
    topic: &str,
    bytes: usize,
    messages_max: usize,
) -> (Vec<String>, Option<MailboxError>) {
    let payload = vec![b'z'; bytes];
    let mut ids = Vec::new();
    while ids.len() < messages_max {
        match client.send(Outgoing { topic, payload: &payload, ..Outgoing::default() }).await {
            Ok(sent) => ids.push(sent.msg_id),
            Err(error) => return (ids, Some(error)),
        }
    }
    (ids, None)
}

/// The refusal of a full log: status 429, and what it says.
fn refusal(error: &MailboxError) -> String {
    let MailboxError::Refused(reply) = error else { panic!("{error}") };
    assert_eq!(reply.status, 429, "{}", reply.text());
    reply.text()
}

/// Receives everything and acknowledges it, each message by a call of its own if `one_by_one`; the ids.
async fn consume(client: &mut MailboxClient, topic: &str, one_by_one: bool) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let messages = client.recv(topic, TAKE).await.expect("receives go on");
        if messages.is_empty() {
            return ids;
        }
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        for receipts in receipts.chunks(if one_by_one { 1 } else { receipts.len() }) {
            let accepted = client.ack(receipts).await.expect("acknowledgements go on");
            assert!(accepted.into_iter().all(|accepted| accepted), "acknowledgements are always accepted");
        }
        ids.extend(messages.into_iter().map(|message| message.msg_id));
    }
}

async fn accepts_again(client: &mut MailboxClient, topic: &str) {
    let payload = vec![b'a'; 64 * KIB];
    eventually("a send is accepted again", async || {
        match client.send(Outgoing { topic, payload: &payload, ..Outgoing::default() }).await {
            Ok(_) => Some(()),
            Err(error) => {
                refusal(&error);
                None
            }
        }
    })
    .await;
}

/// Tries to change a topic's settings again and again, each time to something long; how often it was refused.
async fn edit_on_and_on(client: &mut MailboxClient, topic: &str, times: usize) -> usize {
    let mut refused = 0;
    for nth in 0..times {
        let labels = json!({ "labels": { "note": format!("{nth:06}").repeat(3 * KIB) } });
        match client.call(Method::PATCH, &format!("/v1/topics/{topic}"), &labels).await {
            Ok(_) => {}
            Err(error) => {
                refusal(&error);
                refused += 1;
            }
        }
    }
    refused
}

/// The oldest files hold what nobody consumes, so that room comes only from copying it; and the admin of one topic
/// edits its settings on and on.
#[tokio::test]
async fn rule_02_a_full_log_recovers_by_consuming_whatever_was_edited() {
    let (node, mut client) = small().await;
    client.topic("t", &json!({ "paused": true })).await.expect("made");
    let (stalled, _) = fill(&mut client, "stalled", 64 * KIB, 70).await;
    let (sent, full) = fill(&mut client, "t", 16 * KIB, 10_000).await;
    assert!(refusal(&full.expect("refused")).contains("quota"));
    assert!(edit_on_and_on(&mut client, "t", 200).await > 150, "settings count as data");
    let resumed = client.call(Method::PATCH, "/v1/topics/t", &json!({ "paused": false })).await;
    resumed.expect("a pause can be ended, or nobody could consume");
    // What is there is delivered and acknowledged, one call for each message.
    assert_eq!(consume(&mut client, "t", true).await.len(), sent.len(), "what was acknowledged comes out");
    accepts_again(&mut client, "t").await;
    // Purging and removing work as well.
    let (_, full) = fill(&mut client, "t", 16 * KIB, 10_000).await;
    refusal(&full.expect("refused"));
    client.call(Method::POST, "/v1/topics/t/purge", &Value::Null).await.expect("a purge works");
    accepts_again(&mut client, "u").await;
    let (_, full) = fill(&mut client, "u", 16 * KIB, 10_000).await;
    refusal(&full.expect("refused"));
    client.call(Method::DELETE, "/v1/topics/u", &Value::Null).await.expect("a removal works");
    accepts_again(&mut client, "t").await;
    assert_eq!(consume(&mut client, "stalled", false).await, stalled, "nothing is lost by making room");
    assert_eq!(node.metric("log_failed").await, 0.0);
}

#[tokio::test]
async fn rule_02_a_used_up_quota_is_told_until_there_is_room() {
    let (node, mut client) = small().await;
    let ready = async |node: &Node| node.get(Plane::Admin, "/readyz?writes").await.expect("answered");
    assert_eq!(ready(&node).await.status, 200);
    let (_, full) = fill(&mut client, "t", 64 * KIB, 10_000).await;
    let said = refusal(&full.expect("refused"));
    assert!(said.contains("quota") && !said.contains("device"), "{said}");
    let answer =
        eventually("/readyz?writes says so", async || Some(ready(&node).await).filter(|reply| reply.status == 503))
            .await;
    assert!(answer.text().contains("log_quota"), "{}", answer.text());
    assert_eq!(node.get(Plane::Admin, "/readyz").await.expect("answered").status, 200, "reads go on");
    let told = async |reason: &str| node.metric(&format!("log_full{{reason=\"{reason}\"}}")).await;
    assert_eq!((told("quota").await, told("device").await), (1.0, 0.0));
    consume(&mut client, "t", false).await;
    eventually("writes are ready again", async || (ready(&node).await.status == 200).then_some(())).await;
    assert_eq!((told("quota").await, told("device").await), (0.0, 0.0));
}

/// A small file system of its own; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// A file that takes room and may be removed.
    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a node that is still being killed may have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A mailbox on a file system of its own that is much smaller than the quota; nothing where none can be mounted.
async fn on_small_device(folder: &std::path::Path, test: &str) -> Option<(SmallDisk, Node)> {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(folder).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("SKIP SKIP SKIP {test}: a small file system cannot be mounted by this user");
        return None;
    }
    let disk = SmallDisk(folder.to_owned());
    std::fs::write(disk.ballast(), vec![1; 8 * KIB * KIB]).expect("written");
    let config = "[mailbox]\nsegment_bytes = \"2MiB\"\ndisk_bytes_max = \"1GiB\"\n";
    // The mailbox alone: the logs of other services would take most of the small disk.
    let options = options().config(config).arg("--services").arg("http,oap,mailbox").folder(&disk.0);
    let node = options.start().await.expect("the node starts");
    Some((disk, node))
}

/// The oldest files hold what nobody consumes, and nobody makes room but those who acknowledge.
#[tokio::test]
async fn rule_02_a_full_device_recovers_by_consuming() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let Some((_disk, node)) = on_small_device(folder.path(), "rule_02_a_full_device_recovers…").await else { return };
    let mut client = MailboxClient::of(&node).await.expect("connected");
    let (stalled, refused) = fill(&mut client, "stalled", 16 * KIB, 200).await;
    assert!(refused.is_none(), "{refused:?}");
    for _ in 0..2 {
        // What is acknowledged makes room by and by: until the log has caught up, the device is full again early.
        eventually("room for more than 50 messages", async || {
            let (sent, full) = fill(&mut client, "t", 16 * KIB, 10_000).await;
            let said = refusal(&full.expect("refused"));
            assert!(said.contains("device"), "{said}");
            assert_eq!(consume(&mut client, "t", true).await.len(), sent.len());
            (sent.len() > 50).then_some(())
        })
        .await;
        accepts_again(&mut client, "t").await;
        assert_eq!(consume(&mut client, "t", true).await.len(), 1);
    }
    assert_eq!(consume(&mut client, "stalled", true).await, stalled, "nothing is lost by making room");
    assert_eq!(node.metric("log_failed").await, 0.0);
}

#[tokio::test]
async fn rule_02_a_full_device_is_told_apart_and_recovers_when_room_comes_back() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let Some((disk, node)) = on_small_device(folder.path(), "rule_02_a_full_device_is_told…").await else { return };
    let mut client = MailboxClient::of(&node).await.expect("connected");
    let (sent, full) = fill(&mut client, "t", 64 * KIB, 10_000).await;
    let said = refusal(&full.expect("refused"));
    assert!(said.contains("device") && !said.contains("quota"), "{said}");
    let answer = eventually("/readyz?writes says so", async || {
        let reply = node.get(Plane::Admin, "/readyz?writes").await.expect("answered");
        (reply.status == 503).then(|| reply.text())
    })
    .await;
    assert!(answer.contains("log_device"), "{answer}");
    assert_eq!(node.metric("log_full{reason=\"device\"}").await, 1.0);
    // Nobody sends: the node notices by itself that there is room.
    std::fs::remove_file(disk.ballast()).expect("removed");
    eventually("writes are ready again", async || {
        let reply = node.get(Plane::Admin, "/readyz?writes").await.expect("answered");
        (reply.status == 200).then_some(())
    })
    .await;
    accepts_again(&mut client, "t").await;
    assert_eq!(consume(&mut client, "t", false).await.len(), sent.len() + 1);
}

/// Flips a bit of the first record with these bytes in the log's files; false if there is none.
fn flip_a_bit_of(node: &Node, marker: &[u8]) -> bool {
    let files = std::fs::read_dir(node.data_dir().join("mailbox")).expect("the log's folder");
    for path in files.filter_map(Result::ok).map(|file| file.path()).filter(|path| path.ends_with("00000001.log")) {
        let bytes = std::fs::read(&path).expect("read");
        if let Some(at) = bytes.windows(marker.len()).position(|window| window == marker) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
            file.write_all_at(&[marker[0] ^ 1], at as u64).expect("written");
            return true;
        }
    }
    false
}

/// What was damaged is in the oldest file, beside thousands of keys that must be remembered: each try to give the file
/// back used to write those again.
#[tokio::test]
async fn rule_03_damage_is_set_aside_once_and_reclaim_goes_on_without_growing() {
    let (node, mut client) = small().await;
    let marker = b"the message that a bad disk will damage";
    client.send(Outgoing { topic: "kept", payload: marker, ..Outgoing::default() }).await.expect("sent");
    client.send(Outgoing { topic: "kept", payload: b"whole", ..Outgoing::default() }).await.expect("sent");
    send_keys(&mut client, 3_000).await;
    assert!(flip_a_bit_of(&node, marker), "it is in the first file");
    consume(&mut client, "keys", false).await;
    // Enough that is done with for the first file to go.
    let (_, full) = fill(&mut client, "done", 64 * KIB, 60).await;
    assert!(full.is_none());
    let before = node.metric("log_records_total").await;
    consume(&mut client, "done", false).await;
    let first_file = node.data_dir().join("mailbox/00000001.log");
    eventually("the first file goes", async || (!first_file.exists()).then_some(())).await;
    assert_eq!(node.metric("integrity_fail_total{reason=\"reclaim\"}").await, 1.0);
    assert!(node.stderr().contains("is damaged"), "what was lost is said:\n{}", node.stderr());
    // Four looks of the keeper later it still holds: nothing is copied again and again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let written = node.metric("log_records_total").await - before;
    assert!(written < 5_000.0, "{written} records were written to keep 3,000 keys and one message");
    assert!(node.metric("log_bytes{kind=\"total\"}").await < 4e6);
    assert_eq!(node.metric("integrity_fail_total{reason=\"reclaim\"}").await, 1.0, "counted once");
    let kept = client.recv("kept", TAKE).await.expect("received");
    assert_eq!(kept.iter().map(testkit::Delivered::text).collect::<Vec<_>>(), ["whole"]);
}

async fn send_keys(client: &mut MailboxClient, keys: usize) {
    for first in (0..keys).step_by(100) {
        let message = |nth: usize| json!({ "payload_b64": "eA==", "idem_key": format!("key-{nth}") });
        let messages: Vec<Value> = (first..first + 100).map(message).collect();
        let body = json!({ "topic": "keys", "messages": messages });
        client.post("/v1/send:batch", &body).await.expect("sent");
    }
}
