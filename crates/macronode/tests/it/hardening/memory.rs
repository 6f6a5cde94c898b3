//! What messages and caches take in memory is counted and bounded.

use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MailboxClient, Take, ask, eventually};

use crate::process::Process;

/// Room for some thousands of messages.
const LIMIT: u64 = 1 << 20;
const BATCH: usize = 100;

async fn started(folder: &Path, limit: u64) -> (Process, MailboxClient) {
    std::fs::write(folder.join("small.toml"), format!("[mailbox]\nmemory_bytes_max = {limit}\n")).expect("written");
    let node = Process::start(folder, &folder.join("data"), &["--config", "small.toml"]).await;
    let client = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    (node, client)
}

/// Sends messages with keys and groups of their own, which take the most; why they were refused, if they were.
async fn send_batch(client: &mut MailboxClient, round: usize) -> Result<(), Value> {
    send_batch_of(client, "t", round, |name| json!({"payload_b64": "eA==", "group": name, "idem_key": name})).await
}

async fn send_batch_of(
    client: &mut MailboxClient,
    topic: &str,
    round: usize,
    of: impl Fn(String) -> Value,
) -> Result<(), Value> {
    let message = |nth: usize| of(format!("{round}.{nth}"));
    let messages: Vec<_> = (0..BATCH).map(message).collect();
    let answer = client.post("/v1/send:batch", &json!({"topic": topic, "messages": messages})).await.expect("answered");
    let results = answer["results"].as_array().expect("a list");
    let refusals: Vec<&Value> =
        results.iter().map(|result| &result["error"]).filter(|error| !error.is_null()).collect();
    assert!(refusals.is_empty() || refusals.len() == BATCH, "a batch passes or does not: {refusals:?}");
    refusals.first().map_or(Ok(()), |refusal| Err((*refusal).clone()))
}

async fn used(node: &Process) -> u64 {
    node.metric("mailbox_memory_bytes{kind=\"used\"}").await as u64
}

#[tokio::test]
async fn rule_24_memory_for_messages_is_counted_and_sends_beyond_it_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (mut node, mut client) = started(folder.path(), LIMIT).await;
    client.topic("t", &json!({})).await.expect("made");
    assert_eq!(node.metric("mailbox_memory_bytes{kind=\"limit\"}").await as u64, LIMIT);
    let mut sent = 0;
    let refused = loop {
        assert!(sent < 100_000, "nothing bounds the memory: {} bytes are used", used(&node).await);
        match send_batch(&mut client, sent / BATCH).await {
            Ok(()) => sent += BATCH,
            Err(error) => break error,
        }
    };
    assert_eq!(refused["status"], 429, "{refused}");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("memory_bytes_max")), "{refused}");
    // The only topic there is has half of the memory.
    assert!((LIMIT / 2..LIMIT / 4 * 3).contains(&used(&node).await), "{} bytes", used(&node).await);
    assert!(sent > 500, "only {sent} messages in a mebibyte");

    // What is durable is not refused, however little memory there is for it; it comes out, and then there is room.
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0));
    let (node, mut client) = started(folder.path(), LIMIT / 4).await;
    assert_eq!(client.held("t").await.expect("answered"), sent as u64);
    assert!(used(&node).await >= LIMIT / 2);
    assert_eq!(send_batch(&mut client, 1_000_000).await.expect_err("no room")["status"], 429);
    let told = eventually("the memory as the cause", async || {
        let reply = ask(node.admin, Method::GET, "/readyz?writes", &[], "").await.expect("an answer");
        (reply.status == 503).then(|| reply.text())
    });
    let told = told.await;
    assert!(told.contains(r#""cause":"memory""#) && told.contains(r#""state":"degraded""#), "{told}");
    let take = Take { max: 100, visibility_ms: 60_000, wait_ms: 0 };
    let mut settled = 0;
    while settled < sent {
        let messages = client.recv("t", take).await.expect("received");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        assert!(!receipts.is_empty(), "{settled} of {sent} came out");
        settled += client.ack(&receipts).await.expect("answered").into_iter().filter(|is_done| *is_done).count();
    }
    // Keys are remembered for their window, so a purge it is that makes room at once.
    client.post("/v1/topics/t/purge", &json!({})).await.expect("purged");
    eventually("room", async || (used(&node).await < LIMIT / 4).then_some(())).await;
    send_batch(&mut client, 2_000_000).await.expect("there is room");
}

/// Groups without keys: acknowledging is all it takes, without a purge.
#[tokio::test]
async fn rule_24_consuming_frees_the_memory_of_groups() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let limit = 4 * LIMIT;
    let (node, mut client) = started(folder.path(), limit).await;
    client.topic("t", &json!({})).await.expect("made");
    let grouped = |name: String| json!({"payload_b64": "eA==", "group": name});
    let mut sent = 0;
    while send_batch_of(&mut client, "t", sent / BATCH, grouped).await.is_ok() {
        sent += BATCH;
        assert!(sent < 100_000, "nothing bounds the memory: {} bytes are used", used(&node).await);
    }
    assert!(sent > 1_000 && used(&node).await >= limit / 2, "{sent} messages");
    let take = Take { max: 100, visibility_ms: 60_000, wait_ms: 0 };
    let mut settled = 0;
    while settled < sent {
        let messages = client.recv("t", take).await.expect("received");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        assert!(!receipts.is_empty(), "{settled} of {sent} came out");
        settled += client.ack(&receipts).await.expect("answered").into_iter().filter(|is_done| *is_done).count();
    }
    // What is left is the recent processing time of a bounded number of groups.
    assert!(used(&node).await < limit / 8, "{} bytes for no message", used(&node).await);
    for round in 0..sent / BATCH / 4 {
        send_batch_of(&mut client, "t", 1_000_000 + round, grouped).await.expect("there is room");
    }
}

#[tokio::test]
async fn rule_24_one_topic_leaves_memory_to_others() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (node, mut client) = started(folder.path(), LIMIT).await;
    let plain = |_name: String| json!({"payload_b64": "eA=="});
    for topic in ["greedy", "honest", "late"] {
        client.topic(topic, &json!({})).await.expect("made");
    }
    let mut sent = Vec::new();
    for topic in ["greedy", "honest", "late"] {
        let mut batches = 0;
        let refused = loop {
            match send_batch_of(&mut client, topic, batches, plain).await {
                Ok(()) => batches += 1,
                Err(error) => break error,
            }
            assert!(batches < 1_000, "nothing bounds the memory of {topic}");
        };
        let detail = refused["detail"].as_str().expect("a sentence");
        assert!(refused["status"] == 429 && detail.contains("the topic takes its share"), "{refused}");
        sent.push(batches);
    }
    println!("{sent:?} batches of {BATCH} messages, {} bytes", used(&node).await);
    assert!(sent[1] * 3 > sent[0] && sent[2] * 6 > sent[0], "each newcomer finds as much as is left to each: {sent:?}");
    // Who has less than what is free may go on, whatever the others hold.
    let take = Take { max: 100, visibility_ms: 60_000, wait_ms: 0 };
    for _ in 0..sent[2] {
        let messages = client.recv("late", take).await.expect("received");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        client.ack(&receipts).await.expect("answered");
    }
    send_batch_of(&mut client, "late", 1_000_000, plain).await.expect("there is room");
}
