//! What outlives a kill: keys, receive counts, order, leases, delays, dead letters, topics and their settings.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::{Delivered, MailboxClient, Outgoing, Take};

use crate::client;
use crate::process::Process;

const LONG: Take = Take { max: 10, visibility_ms: 60_000, wait_ms: 0 };

async fn killed(mut node: Process) {
    node.signal(Signal::KILL);
    node.wait_exit().await;
}

fn message<'a>(topic: &'a str, payload: &'a str) -> Outgoing<'a> {
    Outgoing { topic, payload: payload.as_bytes(), ..Outgoing::default() }
}

fn texts(messages: &[Delivered]) -> Vec<String> {
    messages.iter().map(Delivered::text).collect()
}

async fn one(client: &mut MailboxClient, topic: &str) -> Delivered {
    let mut messages = client.recv(topic, Take { max: 1, ..LONG }).await.expect("received");
    assert_eq!(messages.len(), 1, "{topic} has a message");
    messages.remove(0)
}

#[tokio::test]
async fn keys_and_receive_counts_outlive_a_kill() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let keyed = Outgoing { idem_key: Some("k"), ..message("keyed", "first") };
    let first = mailbox.send(keyed).await.expect("sent");
    // Settled messages leave their key behind.
    let settled = Outgoing { idem_key: Some("settled"), ..message("keyed", "gone") };
    let gone = mailbox.send(settled).await.expect("sent");
    let both = mailbox.recv("keyed", LONG).await.expect("received");
    assert_eq!(texts(&both), ["first", "gone"]);
    assert_eq!(mailbox.ack(&[&both[1].receipt]).await.expect("answered"), [true]);
    let nacked = mailbox.nack(&[&both[0].receipt], "not yet", Some(0)).await.expect("answered");
    assert_eq!(nacked[0]["ok"], true);
    mailbox.send(message("counted", "twice")).await.expect("sent");
    assert_eq!(one(&mut mailbox, "counted").await.attempt, 1);
    killed(node).await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    for (again, before) in [(keyed, first), (settled, gone)] {
        let again = mailbox.send(again).await.expect("sent");
        assert_eq!((again.duplicate, again.msg_id), (true, before.msg_id), "the key is remembered");
    }
    let other = mailbox.send(Outgoing { payload: b"another", ..keyed }).await.expect_err("refused");
    assert_eq!(other.status(), Some(409), "{other}");
    let second = one(&mut mailbox, "keyed").await;
    assert_eq!((second.text().as_str(), second.attempt), ("first", 2));
    assert_eq!(second.raw["history"][0]["outcome"], "not yet", "{}", second.raw);
    assert_eq!(mailbox.held("keyed").await.expect("counted"), 1, "a duplicate is no message");
    // A lease from before the kill still stands: the message is not given to anybody else.
    let nothing = mailbox.recv("counted", LONG).await.expect("answered");
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[tokio::test]
async fn lines_stay_in_order_and_blocked_and_leases_hold_across_a_kill() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    mailbox.topic("lines", &json!({ "groups": "fifo" })).await.expect("made");
    for number in 0..6 {
        for group in ["a", "b"] {
            let payload = format!("{group}{number}");
            let in_line = Outgoing { group: Some(group), ..message("lines", &payload) };
            mailbox.send(in_line).await.expect("sent");
        }
    }
    let leased = mailbox.recv("lines", Take { max: 2, ..LONG }).await.expect("received");
    assert_eq!(texts(&leased), ["a0", "a1"]);
    killed(node).await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let others = mailbox.recv("lines", LONG).await.expect("received");
    assert_eq!(texts(&others), ["b0", "b1", "b2", "b3", "b4", "b5"], "only the other line moves");
    let receipts: Vec<&str> = leased.iter().map(|message| message.receipt.as_str()).collect();
    let extended = mailbox.extend(&receipts[..1], 60_000).await.expect("answered");
    assert_eq!(extended[0]["ok"], true, "a lease from before the kill can be prolonged: {extended:?}");
    assert_eq!(mailbox.ack(&receipts).await.expect("answered"), [true, true], "and acknowledged");
    assert_eq!(mailbox.ack(&receipts).await.expect("answered"), [false, false], "once");
    killed(node).await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let rest = mailbox.recv("lines", LONG).await.expect("received");
    assert_eq!(texts(&rest), ["a2", "a3", "a4", "a5"], "the line goes on where it was");
}

#[tokio::test]
async fn dead_letters_delays_and_topics_outlive_a_kill() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let settings = json!({ "max_attempts": 1, "visibility_ms": 1234, "partitions": 3, "labels": { "team": "blue" } });
    let made = mailbox.topic("mortal", &settings).await.expect("made");
    mailbox.send(message("mortal", "poison")).await.expect("sent");
    let poison = one(&mut mailbox, "mortal").await;
    let died = mailbox.nack(&[&poison.receipt], "cannot be parsed", None).await.expect("answered");
    assert_eq!(died[0]["dead"], true, "{died:?}");
    let held_back = Instant::now();
    mailbox.send(Outgoing { delay_ms: Some(4_000), ..message("late", "in time") }).await.expect("sent");
    killed(node).await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    assert_eq!(mailbox.get("/v1/topics/mortal").await.expect("there"), made);
    let listed = mailbox.get("/v1/dlq/mortal").await.expect("listed");
    let dead = &listed["messages"][0]["dead"];
    assert_eq!(listed["messages"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        (&dead["reason"], &dead["source"], &dead["attempts"], &dead["last_error"]),
        (&"max_attempts".into(), &"mortal".into(), &1.into(), &"cannot be parsed".into())
    );
    assert_eq!(listed["messages"][0]["msg_id"], poison.msg_id, "a message keeps its id");
    let moved = mailbox.post("/v1/dlq/mortal/reprocess", &json!({})).await.expect("ordered");
    assert_eq!(moved["task"]["from"], "mortal.dlq");
    let back = mailbox.recv("mortal", Take { wait_ms: 10_000, ..LONG }).await.expect("received");
    assert_eq!((texts(&back), back[0].attempt), (vec!["poison".to_owned()], 1), "moved back, it starts anew");
    killed(node).await;

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    assert_eq!(mailbox.held("mortal.dlq").await.expect("counted"), 0, "moved back once and for all");
    assert_eq!(mailbox.held("mortal").await.expect("counted"), 1);
    let late = mailbox.recv("late", Take { wait_ms: 10_000, ..LONG }).await.expect("received");
    let after = held_back.elapsed();
    assert_eq!(texts(&late), ["in time"]);
    assert!(after >= Duration::from_millis(3_990), "delivered after {after:?}");
}
