//! The gates of single messages: one effective delivery, back in time when nobody acknowledged, final when one did.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{BoundResult, MailboxClient, Node, Outgoing, Sent, Take, bound, percentile};
use tokio::task::JoinSet;

use crate::mailbox::Dice;
use crate::{alone, options};

const PRODUCERS: usize = 24;
const KEYS: usize = 12;
const TAKE: Take = Take { max: 100, visibility_ms: 5_000, wait_ms: 0 };

fn unix_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1e3
}

/// Every producer sends every key, in an order of its own.
async fn produce(api: std::net::SocketAddr, token: String, number: usize) -> Vec<(usize, Sent)> {
    let mut client = MailboxClient::connect(api, &token).await.expect("connected");
    let mut answers = Vec::new();
    for step in 0..KEYS {
        let key = (step + number) % KEYS;
        let (payload, idem_key) = (format!("payload {key}"), format!("key-{key}"));
        let message =
            Outgoing { topic: "once", payload: payload.as_bytes(), idem_key: Some(&idem_key), ..Outgoing::default() };
        answers.push((key, client.send(message).await.expect("sent")));
    }
    answers
}

async fn produce_together(node: &Node) -> Vec<(usize, Sent)> {
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        producers.spawn(produce(node.api, node.token.clone(), number));
    }
    producers.join_all().await.into_iter().flatten().collect()
}

/// The gate mailbox-once.
#[tokio::test]
async fn many_producers_with_one_key_make_one_delivery() {
    let node = options().start().await.expect("started");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    client.topic("once", &serde_json::json!({ "partitions": 4 })).await.expect("made");
    let answers = produce_together(&node).await;
    assert_eq!(answers.len(), PRODUCERS * KEYS);
    for key in 0..KEYS {
        let of_key = || answers.iter().filter(|(of, _)| *of == key).map(|(_, sent)| sent);
        let ids: BTreeSet<&str> = of_key().map(|sent| sent.msg_id.as_str()).collect();
        assert_eq!(ids.len(), 1, "key {key} has one id: {ids:?}");
        assert_eq!(of_key().filter(|sent| !sent.duplicate).count(), 1, "key {key} was taken in once");
    }
    let clash = Outgoing { topic: "once", payload: b"other", idem_key: Some("key-0"), ..Outgoing::default() };
    let clash = client.send(clash).await.expect_err("another payload under a known key");
    assert_eq!(clash.status(), Some(409), "{clash}");

    let mut delivered = Vec::new();
    while delivered.len() < KEYS {
        // A lease that ended before the last message has come would bring the first again.
        let take = Take { visibility_ms: 60_000, wait_ms: 20_000, ..TAKE };
        let more = client.recv("once", take).await.expect("received");
        assert!(!more.is_empty(), "{} of {KEYS} messages came", delivered.len());
        delivered.extend(more);
    }
    let payloads: BTreeSet<String> = delivered.iter().map(testkit::Delivered::text).collect();
    assert_eq!((payloads.len(), delivered.len()), (KEYS, KEYS), "each message is delivered once");
    let receipts: Vec<&str> = delivered.iter().map(|message| message.receipt.as_str()).collect();
    assert!(client.ack(&receipts).await.expect("answered").into_iter().all(|accepted| accepted));
    // Acknowledged and gone, the keys are still known.
    assert!(produce_together(&node).await.iter().all(|(_, sent)| sent.duplicate));
    assert_eq!(client.held("once").await.expect("counted"), 0);
}

/// How far from the end of its lease each message came back, in milliseconds; negative is too early.
async fn measure(api: std::net::SocketAddr, token: String, topic: String, samples: usize) -> Vec<f64> {
    let mut client = MailboxClient::connect(api, &token).await.expect("connected");
    let mut dice = Dice::new();
    let message = Outgoing { topic: &topic, payload: b"again", ..Outgoing::default() };
    client.send(message).await.expect("sent");
    let mut off_ms = Vec::new();
    let mut visibility_ms = 300;
    let mut leased = client.recv(&topic, Take { visibility_ms, ..TAKE }).await.expect("received");
    for _ in 0..samples {
        assert_eq!(leased.len(), 1, "the message came");
        let explained = client.get(&format!("/v1/messages/{}", leased[0].msg_id)).await.expect("explained");
        // One that ended before it was looked at is as late as can be.
        let until_ms = explained["lease"]["until_ts"].as_f64().unwrap_or(f64::NEG_INFINITY);
        visibility_ms = dice.roll(250, 400);
        leased = client.recv(&topic, Take { max: 1, visibility_ms, wait_ms: 20_000 }).await.expect("received");
        off_ms.push(unix_ms() - until_ms);
    }
    off_ms
}

/// The gate mailbox-visibility.
#[tokio::test]
async fn a_message_nobody_acknowledged_is_back_at_the_end_of_its_lease() {
    const LANES: usize = 3;
    const SAMPLES_EACH: usize = 10;
    let alone = alone().await;
    let node = options().start().await.expect("started");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    for lane in 0..LANES {
        let endless = serde_json::json!({ "max_attempts": 0 });
        client.topic(&format!("lane-{lane}"), &endless).await.expect("made");
    }
    alone.measure("visibility", async || ends_of_leases(&node, &mut client, (LANES, SAMPLES_EACH)).await).await;
}

/// Leases in so many lanes, so many in each.
async fn ends_of_leases(node: &Node, client: &mut MailboxClient, (lane_count, samples): (usize, usize)) -> BoundResult {
    let mut p95 = f64::NAN;
    // The disk may have other things to do; a node that is late by itself is late every time.
    for _ in 0..3 {
        let mut lanes = JoinSet::new();
        for lane in 0..lane_count {
            lanes.spawn(measure(node.api, node.token.clone(), format!("lane-{lane}"), samples));
        }
        let off_ms: Vec<f64> = lanes.join_all().await.into_iter().flatten().collect();
        let earliest = off_ms.iter().copied().fold(f64::INFINITY, f64::min);
        // A lease is a promise: it never ends early, whatever the machine does. One millisecond is rounding.
        assert!(earliest >= -1.0, "{earliest} ms before its lease ended");
        let mut distances: Vec<f64> = off_ms.iter().map(|off| off.abs()).collect();
        p95 = percentile(&mut distances, 0.95);
        let (p50, worst) = (percentile(&mut distances, 0.5), percentile(&mut distances, 1.0));
        println!("visibility: {} samples, p50 {p50:.1}, p95 {p95:.1}, max {worst:.1} ms off", distances.len());
        if p95 <= 50.0 {
            break;
        }
        for lane in 0..lane_count {
            client.post(&format!("/v1/topics/lane-{lane}/purge"), &serde_json::Value::Null).await.expect("emptied");
        }
    }
    bound(p95 <= 50.0, || format!("p95 is {p95} ms from the end of the lease"))
}

/// The other half of the gate mailbox-visibility: an acknowledgement is final.
#[tokio::test]
async fn an_acknowledgement_is_final() {
    let node = options().start().await.expect("started");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    client.send(Outgoing { topic: "t", payload: b"once", ..Outgoing::default() }).await.expect("sent");
    let take = Take { max: 1, visibility_ms: 2_000, wait_ms: 0 };
    let leased = client.recv("t", take).await.expect("received");
    assert_eq!(client.ack(&[&leased[0].receipt]).await.expect("answered"), [true]);
    assert_eq!(client.ack(&[&leased[0].receipt]).await.expect("answered"), [false], "twice is an error");
    let extended = client.extend(&[&leased[0].receipt], 1_000).await.expect("answered");
    assert!(extended[0]["error"].is_object(), "{extended:?}");
    // Well past the end of the lease nothing comes back.
    let nothing = client.recv("t", Take { wait_ms: 2_500, ..take }).await.expect("answered");
    assert!(nothing.is_empty(), "{nothing:?}");
    assert_eq!(client.held("t").await.expect("counted"), 0);
}
