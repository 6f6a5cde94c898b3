//! Faults and too much load: shard workers killed under load, order after a failover, bounded queues that say so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Load, LoadShape, MailboxClient, MailboxError, Node, Outgoing, Plane, Take, metric_in};
use tokio::task::JoinSet;

use crate::mailbox::checker::{Broken, Delivery, Event, History, Key};
use crate::{alone, options};
use testkit::{PATIENCE_MAX as PATIENCE, eventually};

const MIB: u64 = 1024 * 1024;
/// More than five restarts of a service in a minute are a crash loop, and the node says that it is degraded.
const KILLS: usize = 7;

async fn chaos(node: &Node, order: &str) -> Vec<String> {
    let reply = node.post(Plane::Admin, &format!("/chaos/{order}"), "", &[]).await.expect("the admin plane answers");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let hit = reply.json().expect("JSON")["hit"].as_array().expect("a list").clone();
    hit.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

async fn state(node: &Node) -> (u16, String) {
    let reply = node.get(Plane::Admin, "/readyz").await.expect("the admin plane answers");
    (reply.status, reply.json().expect("JSON")["state"].as_str().expect("a word").to_owned())
}

/// The worst of one gauge over all shards.
async fn over_shards(node: &Node, gauge: &str) -> f64 {
    let scrape = node.get(Plane::Admin, "/metrics").await.expect("the admin plane answers").text();
    let of_shard = |shard: usize| metric_in(&scrape, &format!("{gauge}{{shard=\"{shard}\"}}"));
    assert!(scrape.contains(&format!("{gauge}{{shard=\"0\"}}")), "{gauge} is scraped");
    (0..8).map(of_shard).fold(0.0, f64::max)
}

/// Whether the node asked to come back; nothing else is allowed while its connections hold.
fn must_be_passing(error: &MailboxError) {
    assert!(matches!(error.status(), Some(429 | 503)), "{error}");
}

struct Crowd {
    node: Arc<Node>,
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    topic: &'static str,
    visibility_ms: u64,
}

impl Crowd {
    fn new(node: &Arc<Node>, topic: &'static str, visibility_ms: u64) -> Crowd {
        Crowd { node: Arc::clone(node), history: Arc::default(), stop: Arc::default(), topic, visibility_ms }
    }

    fn shared(&self) -> Crowd {
        let (node, history, stop) = (Arc::clone(&self.node), Arc::clone(&self.history), Arc::clone(&self.stop));
        Crowd { node, history, stop, ..*self }
    }

    /// Waits until more than so many sends were answered: there was load.
    async fn has_sent(&self, count: usize) {
        eventually("load", async || (self.history.judge().sent > count).then_some(())).await;
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sends one after the other, each until it is taken in.
    async fn send(self, sender: u32) {
        let mut client = MailboxClient::of(&self.node).await.expect("connected");
        for number in 1.. {
            if !self.goes_on() {
                return;
            }
            let (key, text) = (Key { sender, number }, format!("{sender}.{number}"));
            let message =
                Outgoing { topic: self.topic, payload: text.as_bytes(), idem_key: Some(&text), ..Outgoing::default() };
            self.history.note(Event::Sending(key));
            loop {
                match client.send(message).await {
                    Ok(sent) => {
                        self.history.note(Event::Sent(key, sent.msg_id));
                        break;
                    }
                    Err(error) => must_be_passing(&error),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Receives and acknowledges; once the crowd stops, until nothing is left.
    async fn receive(self) {
        let mut client = MailboxClient::of(&self.node).await.expect("connected");
        let mut end = None;
        loop {
            if !self.goes_on() {
                let end = *end.get_or_insert_with(|| Instant::now() + PATIENCE);
                match client.held(self.topic).await {
                    Ok(0) => return,
                    Ok(left) => assert!(Instant::now() < end, "{left} messages do not come out"),
                    Err(error) => must_be_passing(&error),
                }
            }
            let asked_at = self.history.len();
            let take = Take { max: 10, visibility_ms: self.visibility_ms, wait_ms: 100 };
            match client.recv(self.topic, take).await {
                Ok(messages) => self.settle(&mut client, asked_at, &messages).await,
                Err(error) => {
                    must_be_passing(&error);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn settle(&self, client: &mut MailboxClient, asked_at: usize, messages: &[testkit::Delivered]) {
        let mut keys = Vec::new();
        for message in messages {
            let text = message.text();
            let (sender, number) = text.split_once('.').expect("ours");
            let key = Key { sender: sender.parse().expect("ours"), number: number.parse().expect("ours") };
            let (msg_id, fence, group) = (message.msg_id.clone(), message.fence, None);
            self.history.note(Event::Delivered(Delivery { key, msg_id, fence, group, asked_at }));
            self.history.note(Event::Acking(key));
            keys.push((key, fence));
        }
        if keys.is_empty() {
            return;
        }
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        let answer = match client.post("/v1/ack", &json!({ "receipts": receipts })).await {
            Ok(answer) => answer,
            // While no worker runs the mailbox is refused as a whole: these are received again when their leases end.
            Err(error) => return must_be_passing(&error),
        };
        let results = answer["results"].as_array().expect("a list");
        for ((key, fence), result) in keys.into_iter().zip(results) {
            // A worker that ended before the answer was safe says that it does not know.
            if result["ok"] == true {
                self.history.note(Event::Acked(key, fence));
            } else if result["error"]["status"] != 503 {
                self.history.note(Event::AckRefused(key));
            }
        }
    }
}

/// The gates chaos and mailbox-order: shard workers are killed under load.
#[tokio::test]
async fn killed_shard_workers_lose_nothing_and_keep_order_and_the_probe_tells() {
    let _alone = alone().await;
    // By the restart law a worker that is hit four times waits for up to 4 s, longer than a request has by default.
    let options = options().chaos().env("MACRO_MAILBOX__READY_SHARDS", "8").env("MACRO_HTTP__REQUEST_DEADLINE", "30s");
    let node = Arc::new(options.start().await.expect("started"));
    let mut client = MailboxClient::of(&node).await.expect("connected");
    // Every shard owns some of it, so whichever worker is hit has work.
    client.topic("spread", &json!({ "partitions": 64, "max_attempts": 0 })).await.expect("made");
    let crowd = Crowd::new(&node, "spread", 500);
    let (mut senders, mut receivers) = (JoinSet::new(), JoinSet::new());
    (1..=6).for_each(|number| _ = senders.spawn(crowd.shared().send(number)));
    (0..4).for_each(|_| _ = receivers.spawn(crowd.shared().receive()));

    let mut states = vec![state(&node).await.1];
    for kill in 1..=KILLS {
        let hit = chaos(&node, "kill?task=shard_worker").await;
        assert_eq!(hit.len(), 1, "{hit:?}");
        until_restarted(&node, kill, &mut states).await;
    }
    crowd.has_sent(200).await;
    crowd.stop.store(true, Ordering::Relaxed);
    senders.join_all().await;
    receivers.join_all().await;
    let verdict = crowd.history.judge();
    let restarts = node.metric(r#"service_restarts_total{service="mailbox"}"#).await;
    let depth = over_shards(&node, "reorder_depth_max").await;
    println!("chaos: {restarts} restarts, {states:?}, reorder depth {depth}, {verdict:?}");
    assert_eq!(restarts, KILLS as f64);
    assert_eq!(verdict.broken, Broken::default());
    assert!(depth <= 32.0, "reorder depth {depth}");
    assert_eq!(states, ["ready", "degraded"], "so many restarts in a minute are a crash loop");
    if testkit::soak() {
        // It is over when its restarts have left the window of 60 s.
        let end = Instant::now() + Duration::from_secs(60) + PATIENCE;
        while state(&node).await.1 != "ready" {
            assert!(Instant::now() < end, "the node stays degraded");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// Waits until the mailbox has been restarted so often and every worker runs; notes every state of the node.
async fn until_restarted(node: &Node, restarts: usize, states: &mut Vec<String>) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, state) = state(node).await;
        assert_eq!(status, 200, "a lost worker is no reason to send everybody away: {state}");
        if states.last() != Some(&state) {
            states.push(state);
        }
        let topology = node.get(Plane::Admin, "/topology").await.expect("answers").json().expect("JSON");
        let tasks = topology["tasks"].as_array().expect("a list");
        let mut workers = tasks.iter().filter(|task| task["name"] == "shard_worker");
        let all_run = workers.all(|worker| worker["state"] == "running");
        let counted = node.metric(r#"service_restarts_total{service="mailbox"}"#).await;
        if all_run && counted >= restarts as f64 {
            return;
        }
        assert!(Instant::now() < end, "{counted} restarts: {states:?}\n{}", node.stderr());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The gate mailbox-order: one sender, one partition, its worker killed; nothing ready is passed by more than 32.
#[tokio::test]
async fn order_within_a_shard_holds_and_a_failover_disturbs_it_little() {
    let _alone = alone().await;
    let options = options().chaos().env("MACRO_MAILBOX__READY_SHARDS", "1");
    let node = Arc::new(options.start().await.expect("started"));
    let mut client = MailboxClient::of(&node).await.expect("connected");
    client.topic("ordered", &json!({ "max_attempts": 0 })).await.expect("made");
    // Without a fault, first in is first out.
    for number in 0..200 {
        let text = format!("9.{number}");
        let message = Outgoing { topic: "ordered", payload: text.as_bytes(), ..Outgoing::default() };
        client.send(message).await.expect("sent");
    }
    let mut seen = Vec::new();
    while seen.len() < 200 {
        let take = Take { max: 7, visibility_ms: 5_000, wait_ms: 1_000 };
        let messages = client.recv("ordered", take).await.expect("received");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        assert!(client.ack(&receipts).await.expect("answered").into_iter().all(|accepted| accepted));
        seen.extend(messages.iter().map(testkit::Delivered::text));
    }
    let expected: Vec<String> = (0..200).map(|number| format!("9.{number}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(over_shards(&node, "reorder_depth_max").await, 0.0);

    // Long leases: a delivery that died with its worker must not hide its messages until the lease ends.
    let crowd = Crowd::new(&node, "ordered", 4_000);
    let (mut senders, mut receivers) = (JoinSet::new(), JoinSet::new());
    senders.spawn(crowd.shared().send(1));
    (0..2).for_each(|_| _ = receivers.spawn(crowd.shared().receive()));
    let mut hits = BTreeSet::new();
    // Which of the eight workers is hit is the kernel's choice; all of them at once includes the one that matters.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        hits.extend(chaos(&node, "kill?task=shard_worker&share=1").await);
    }
    assert!(hits.contains("shard_worker[0]"), "{hits:?}");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    crowd.has_sent(100).await;
    crowd.stop.store(true, Ordering::Relaxed);
    senders.join_all().await;
    receivers.join_all().await;
    let verdict = crowd.history.judge();
    let depth = over_shards(&node, "reorder_depth_max").await;
    println!("order: reorder depth {depth}, {verdict:?}");
    assert_eq!(verdict.broken, Broken::default());
    assert!(depth <= 32.0, "reorder depth {depth}");
    assert!(verdict.passed_by_max <= 32, "receivers saw a reorder depth of {}", verdict.passed_by_max);
}

/// Takes everything out and acknowledges it, for as long as the crowd goes on and then until nothing is left; the ids.
async fn take_out(crowd: Crowd) -> BTreeSet<String> {
    let mut client = MailboxClient::of(&crowd.node).await.expect("connected");
    let mut ids = BTreeSet::new();
    loop {
        let stopped = !crowd.goes_on();
        let take = Take { max: 100, visibility_ms: crowd.visibility_ms, wait_ms: 50 };
        let messages = match client.recv(crowd.topic, take).await {
            Ok(messages) => messages,
            Err(error) => {
                must_be_passing(&error);
                continue;
            }
        };
        if messages.is_empty() && stopped {
            return ids;
        }
        let mut receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        // Acknowledgements meet the same full queue: they are told so one by one, and come again.
        while !receipts.is_empty() {
            let answer = client.post("/v1/ack", &json!({ "receipts": receipts })).await.expect("answered");
            let results = answer["results"].as_array().expect("a list");
            let refused = |result: &&serde_json::Value| result["ok"] != true;
            assert!(results.iter().filter(refused).all(|result| result["error"]["status"] == 429), "{answer}");
            let again: Vec<&str> = receipts
                .iter()
                .zip(results)
                .filter(|(_, result)| result["ok"] != true)
                .map(|(text, _)| *text)
                .collect();
            receipts = again;
        }
        for message in messages {
            assert!(ids.insert(message.msg_id.clone()), "{} came twice", message.msg_id);
        }
    }
}

/// The gate backpressure, for the mailbox: far more senders than a small shard takes.
#[tokio::test]
async fn too_many_sends_are_refused_and_none_that_was_taken_in_is_lost() {
    const CAPACITY: usize = 8;
    const CONNECTIONS: usize = 128;
    let _alone = alone().await;
    let options = options()
        .env("MACRO_MAILBOX__READY_SHARDS", "1")
        .env("MACRO_MAILBOX__SHARD_CAPACITY", CAPACITY.to_string())
        .env("MACRO_CONNECTIONS__PER_IP_MAX", "512");
    let node = Arc::new(options.start().await.expect("started"));
    let mut client = MailboxClient::of(&node).await.expect("connected");
    client.topic("busy", &json!({})).await.expect("made");
    let mut shape = LoadShape::post(CONNECTIONS, "/v1/send", r#"{"topic":"busy","payload_b64":"aGVsbG8="}"#);
    shape.headers.push(("authorization".to_owned(), format!("Bearer {}", node.token)));
    let crowd = Crowd::new(&node, "busy", 30_000);
    let taking = tokio::spawn(take_out(crowd.shared()));
    let load = Load::shaped(node.api, shape);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let steady = node.rss_bytes();
    tokio::time::sleep(Duration::from_secs(if testkit::soak() { 60 } else { 4 })).await;
    let last = node.rss_bytes();
    let report = load.stop().await;
    crowd.stop.store(true, Ordering::Relaxed);
    let taken = taking.await.expect("everything comes out");

    let growth = last as f64 / MIB as f64 - steady as f64 / MIB as f64;
    println!("busy mailbox: {:?}, {} came out, memory {growth:+.1} MiB", report.by_status, taken.len());
    assert!(report.by_status.keys().all(|status| matches!(status, 200 | 429)), "{:?}", report.samples);
    assert!(report.with_status(429) > 0, "the shard was never full: {:?}", report.by_status);
    assert_eq!(report.without_retry_after, 0, "every refusal says when to come back");
    assert_eq!((report.broken, report.truncated), (0, 0));
    assert_eq!(taken.len() as u64, report.with_status(200), "what was taken in comes out, and nothing else");
    assert!(last <= steady + 24 * MIB, "memory grew by {growth} MiB");
    let topology = node.get(Plane::Admin, "/topology").await.expect("answers").json().expect("JSON");
    let queues = topology["queues"].as_array().expect("a list");
    for queue in queues.iter().filter(|queue| queue["name"].as_str().is_some_and(|name| name.starts_with("work_tx["))) {
        assert_eq!(queue["capacity"], CAPACITY, "{queue}");
        let high_water = node.metric(&format!("queue_high_water{{queue={}}}", queue["name"])).await;
        assert!(high_water <= CAPACITY as f64, "{queue}: high water {high_water}");
    }
    assert_eq!(node.metric(r#"queue_dropped_total{queue="work_tx[0]"}"#).await, 0.0);
}
