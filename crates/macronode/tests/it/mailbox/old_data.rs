//! A data directory of an older version opens, and what it holds is served: tests/old_data says which, and how it was
//! made.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::read::GzDecoder;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MailboxClient, Outgoing, Take, eventually};

use crate::client;
use crate::process::Process;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/old_data");

/// Unpacks the files below a folder, each of which is compressed by itself.
fn unpack(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).expect("ours");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            unpack(&path, &to.join(path.file_name().expect("a name")));
            continue;
        }
        let unpacked = to.join(path.file_stem().expect("a name"));
        let mut packed = GzDecoder::new(fs::File::open(&path).expect("there"));
        std::io::copy(&mut packed, &mut fs::File::create(&unpacked).expect("made")).expect("unpacked");
        fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o600)).expect("ours");
    }
}

/// Whatever was said before is said still; there may be more.
fn assert_still_said(old: &Value, new: &Value, at: &str) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                assert_still_said(value, new.get(name).unwrap_or(&Value::Null), &format!("{at}.{name}"));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            assert_eq!(old.len(), new.len(), "{at}: {old:?} {new:?}");
            old.iter().zip(new).for_each(|(old, new)| assert_still_said(old, new, at));
        }
        _ => assert_eq!(old, new, "{at}"),
    }
}

/// What the old version said that it holds.
fn held_before() -> Value {
    let mut held: Value =
        serde_json::from_slice(&fs::read(Path::new(FOLDER).join("held.json")).expect("there")).expect("JSON");
    let of_topics = held["messages"].as_object_mut().expect("topics").values_mut();
    for message in of_topics.flat_map(|messages| messages.as_array_mut().expect("messages")) {
        let message = message.as_object_mut().expect("a message");
        // Leases and delays of then are over.
        ["state", "due_ts"].iter().for_each(|field| drop(message.remove(*field)));
    }
    held
}

async fn started(folder: &Path) -> (Process, MailboxClient) {
    let node = Process::start(folder, &folder.join("data"), &[]).await;
    let mailbox = client(&node).await;
    (node, mailbox)
}

/// Takes so many messages; their payloads, each with the number of its delivery.
async fn take(mailbox: &mut MailboxClient, topic: &str, count: usize) -> Vec<(String, u64)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let wait = Take { max: 10, visibility_ms: 600_000, wait_ms: 10_000 };
        let messages = mailbox.recv(topic, wait).await.expect("received");
        assert!(!messages.is_empty(), "{topic}: {taken:?}");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        assert!(mailbox.ack(&receipts).await.expect("answered").iter().all(|acknowledged| *acknowledged));
        taken.extend(messages.iter().map(|message| (message.text(), message.attempt)));
    }
    let nothing = mailbox.recv(topic, Take { max: 1, visibility_ms: 1_000, wait_ms: 0 }).await.expect("answered");
    assert!(nothing.is_empty(), "{topic}: {nothing:?}");
    taken
}

fn texts(taken: &[(String, u64)]) -> Vec<&str> {
    taken.iter().map(|(text, _)| text.as_str()).collect()
}

async fn assert_held(mailbox: &mut MailboxClient, held: &Value) {
    let topics = mailbox.get("/v1/topics?limit=100").await.expect("listed");
    assert_still_said(&held["topics"], &topics["topics"], "topics");
    for (topic, before) in held["messages"].as_object().expect("topics") {
        let browsed = mailbox.post(&format!("/v1/topics/{topic}/browse"), &json!({"limit": 100})).await;
        assert_still_said(before, &browsed.expect("looked at")["messages"], topic);
    }
    for (what, path) in [("access_keys", "/v1/sqs/keys"), ("tasks", "/v1/dlq/tasks")] {
        assert_still_said(&held[what], &mailbox.get(path).await.expect("listed"), what);
    }
    for (key, msg_id) in held["idempotency_keys"].as_object().expect("keys") {
        let message = Outgoing { topic: "keyed", payload: key.as_bytes(), idem_key: Some(key), ..Outgoing::default() };
        let again = mailbox.send(message).await.expect("sent");
        assert_eq!((again.duplicate, json!(again.msg_id)), (true, msg_id.clone()), "the key is remembered");
    }
}

async fn assert_delivered(mailbox: &mut MailboxClient) {
    let plain: BTreeMap<String, u64> = take(mailbox, "plain", 7).await.into_iter().collect();
    let expected = [("delayed", 1), ("plain 4", 2), ("plain 5", 2), ("plain 6", 1), ("plain 7", 1), ("plain 8", 1)];
    let expected: BTreeMap<String, u64> =
        expected.into_iter().chain([("plain 9", 1)]).map(|(text, attempt)| (text.to_owned(), attempt)).collect();
    assert_eq!(plain, expected);

    let lines = take(mailbox, "lines", 8).await;
    for group in ["a", "b"] {
        let of_group: Vec<_> = texts(&lines).into_iter().filter(|text| text.starts_with(group)).collect();
        assert_eq!(of_group, [0, 1, 2, 3].map(|number| format!("{group}{number}")), "in their order");
    }
    let mut wide: Vec<String> = take(mailbox, "wide", 9).await.into_iter().map(|(text, _)| text).collect();
    wide.sort();
    assert_eq!(wide, (0..9).map(|number| format!("wide {number}")).collect::<Vec<_>>());
    for (topic, text) in [("keyed", "waiting"), ("source", "raised"), ("changed", "after")] {
        assert_eq!(take(mailbox, topic, 1).await, [(text.to_owned(), 1)], "{topic}");
    }
    assert_eq!(take(mailbox, "mortal", 2).await.len(), 2);
    let large = take(mailbox, "large", 10).await;
    assert!(large.iter().all(|(text, _)| text.starts_with("large 15") && text.len() > 65_000), "{}", large.len());

    let change = json!({"paused": false});
    mailbox.call(http::Method::PATCH, "/v1/topics/paused", &change).await.expect("changed");
    assert_eq!(texts(&take(mailbox, "paused", 1).await), ["nobody gets it"]);
}

#[tokio::test]
async fn a_data_directory_of_an_older_version_opens_and_what_it_holds_is_served() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    unpack(&Path::new(FOLDER).join("data"), &folder.path().join("data"));
    let held = held_before();
    let (mut node, mut mailbox) = started(folder.path()).await;
    assert_held(&mut mailbox, &held).await;
    assert!(!node.stderr().contains("damaged"), "{}", node.stderr());
    // What this version has written beside it is read as well.
    node.signal(Signal::KILL);
    node.wait_exit().await;
    let (_node, mut mailbox) = started(folder.path()).await;
    assert_held(&mut mailbox, &held).await;
    assert_delivered(&mut mailbox).await;

    let gone = mailbox.get("/v1/topics/removed").await.expect_err("refused");
    assert_eq!(gone.status(), Some(404), "{gone}");
    mailbox.topic("new", &json!({})).await.expect("made");
    for (topic, count) in [("new", 0), ("new.dlq", 0), ("purged", 0), ("mortal.dlq", 2), ("graves", 1)] {
        assert_eq!(mailbox.held(topic).await.expect("counted"), count, "{topic}");
    }
    for topic in ["mortal", "source"] {
        mailbox.post(&format!("/v1/dlq/{topic}/reprocess"), &json!({})).await.expect("ordered");
    }
    for (topic, count) in [("mortal", 2), ("source", 1)] {
        eventually("the redrive", async || (mailbox.held(topic).await.ok()? == count).then_some(())).await;
        assert_eq!(take(&mut mailbox, topic, count as usize).await.len(), count as usize, "{topic}");
    }
}
