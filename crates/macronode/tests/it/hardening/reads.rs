//! A message is set aside only when its bytes are wrong.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;
use testkit::{MailboxClient, Outgoing, Take, eventually};

use crate::process::Process;

const MESSAGES: usize = 12;
const SMALL_SEGMENTS: [&str; 2] = ["--config", "small.toml"];

fn segments(data_dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data_dir.join("mailbox")).expect("there");
    let mut logs: Vec<PathBuf> = files.filter_map(Result::ok).map(|file| file.path()).collect();
    logs.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.sort();
    logs
}

/// A node whose messages lie in several segments, none of them in memory or open.
async fn restarted(folder: &Path, data_dir: &Path) -> (Process, MailboxClient) {
    fs::write(folder.join("small.toml"), "[mailbox]\nsegment_bytes = \"2MiB\"\n").expect("written");
    let mut node = Process::start(folder, data_dir, &SMALL_SEGMENTS).await;
    let mut client = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    client.topic("t", &json!({ "max_attempts": 1 })).await.expect("made");
    for number in 0..MESSAGES {
        let payload = vec![b'a' + number as u8; 512 << 10];
        client.send(Outgoing { topic: "t", payload: &payload, ..Outgoing::default() }).await.expect("sent");
    }
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0));
    let node = Process::start(folder, data_dir, &SMALL_SEGMENTS).await;
    let client = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    (node, client)
}

/// A segment that cannot be opened for a while is no damage: its messages are given back, nothing is set aside, those
/// of the other segments are delivered, and all comes once the segment can be opened again.
#[tokio::test]
async fn rule_04_a_message_that_cannot_be_read_is_given_back_and_not_set_aside() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data_dir = folder.path().join("data");
    let (node, mut client) = restarted(folder.path(), &data_dir).await;
    let first = segments(&data_dir).first().expect("a segment").clone();
    let away = folder.path().join("away");
    fs::rename(&first, &away).expect("moved");

    let one = Take { max: 1, visibility_ms: 60_000, wait_ms: 0 };
    let refused = client.recv("t", one).await.expect_err("the oldest message cannot be read");
    assert_eq!(refused.status(), Some(503), "{refused}");
    let (mut given, mut refusals) = (Vec::new(), 0);
    while given.len() < 4 {
        assert!(refusals <= MESSAGES, "messages that can be read are kept back");
        match client.recv("t", one).await {
            Ok(messages) => given.extend(messages),
            Err(error) => {
                assert_eq!(error.status(), Some(503), "{error}");
                refusals += 1;
            }
        }
    }
    assert!(node.metric("mailbox_read_fail_total").await >= 1.0);
    assert_eq!(node.metric("integrity_fail_total{reason=\"delivery\"}").await, 0.0);
    assert_eq!(client.held("t").await.expect("answered"), MESSAGES as u64, "nothing is gone");

    fs::rename(&away, &first).expect("moved back");
    let all = Take { max: 10, visibility_ms: 60_000, wait_ms: 2_000 };
    eventually("every message", async || {
        given.extend(client.recv("t", all).await.unwrap_or_default());
        (given.len() == MESSAGES).then_some(())
    })
    .await;
    // One delivery is all that the topic allows: a try that failed to read would have killed the message.
    assert!(given.iter().all(|message| message.attempt == 1));
    let mut payloads: Vec<u8> = given.iter().map(|message| message.payload[0]).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (b'a'..b'a' + MESSAGES as u8).collect::<Vec<_>>());
}

/// Its sibling: bytes that are wrong are set aside at once, and the messages beside them are delivered.
#[tokio::test]
async fn rule_04_a_message_whose_bytes_are_wrong_is_set_aside() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data_dir = folder.path().join("data");
    let (node, mut client) = restarted(folder.path(), &data_dir).await;
    let first = segments(&data_dir).first().expect("a segment").clone();
    let mut bytes = fs::read(&first).expect("read");
    let second = bytes.windows(64).position(|bytes| bytes == [b'b'; 64]).expect("the second message");
    bytes[second + 100_000] ^= 4;
    fs::write(&first, bytes).expect("written");

    let all = Take { max: MESSAGES as u64, visibility_ms: 60_000, wait_ms: 0 };
    let mut given = Vec::new();
    // A receive that met nothing but the damaged message gives nothing; the next one goes on behind it.
    eventually("the messages that are whole", async || {
        given.extend(client.recv("t", all).await.expect("received"));
        (given.len() >= MESSAGES - 1).then_some(())
    })
    .await;
    assert!(given.iter().all(|message| message.payload[0] != b'b'));
    assert_eq!(node.metric("integrity_fail_total{reason=\"delivery\"}").await, 1.0);
    assert_eq!(node.metric("mailbox_read_fail_total").await, 0.0);
    assert_eq!(client.held("t.dlq").await.expect("answered"), 1);
}
