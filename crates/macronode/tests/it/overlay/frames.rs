//! Clients over OAP/1 against the real node: the crate that a third party would use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame, status};
use oap_client::{Client, Error, Event, Options, PostQuantum, Since, Subscription};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::PATIENCE_MAX;
use testkit::frames::RawSession;

use crate::member::{Member, network};
use crate::overlay::subscriber::Subscriber;

async fn node(settings: &str) -> Member {
    let mut member = Member::new();
    member.configure(settings);
    member.start().await;
    member
}

/// Events until so many messages were published, be they heard or told as dropped.
async fn hear(subscription: &mut Subscription, count: u64) -> (Vec<u64>, u64) {
    let (mut numbers, mut dropped, mut events) = (Vec::new(), 0, Vec::new());
    while numbers.len() as u64 + dropped < count {
        let next = tokio::time::timeout(PATIENCE_MAX, subscription.next_batch(&mut events)).await;
        next.expect("events in time").expect("events");
        for event in events.drain(..) {
            match event {
                Event::Message(message) => numbers.push(message.seq),
                Event::Lagged { dropped: more } => dropped += more,
                other => panic!("{other:?}"),
            }
        }
    }
    (numbers, dropped)
}

#[tokio::test]
async fn a_client_publishes_hears_and_uses_the_mailbox() {
    let mut member = Member::running("http,oap,overlay,mailbox");
    member.start().await;
    let client = member.oap_client().await;
    assert_eq!(client.facts().tls_group, "X25519MLKEM768");
    let mut news = client.subscribe("news", Since::now()).await.expect("subscribed");
    assert_eq!(news.node_id().to_string(), member.id);
    let publisher = client.publisher("news").await.expect("opened");
    let outcome = publisher.publish_acked("first").await.expect("published");
    assert_eq!((outcome.seq, outcome.origin.to_string()), (1, member.id.clone()));
    let mut heard = Vec::new();
    news.next_batch(&mut heard).await.expect("an event");
    let [Event::Message(message)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(message.msg_id(&"news".parse().expect("a name")).to_string(), outcome.msg_id);
    publisher.publish("second").await.expect("sent");
    publisher.finish().await.expect("all of it is published");
    assert_eq!(hear(&mut news, 1).await, (vec![2], 0));

    let mailbox = client.mailbox();
    let message = oap_client::OutgoingMessage { body: Bytes::from_static(b"work"), ..Default::default() };
    let sent = mailbox.send_batch("jobs", &[message]).await.expect("answered").remove(0).expect("sent");
    let received = mailbox.recv("jobs", 1, Duration::from_secs(5), None).await.expect("answered").remove(0);
    assert_eq!((&received.msg_id, &received.body[..]), (&sent.msg_id, &b"work"[..]));
    assert_eq!(mailbox.ack(&[received.receipt]).await.expect("answered"), [Ok(())]);
}

#[tokio::test]
async fn a_replay_brings_all_that_the_ring_holds_over_frames_and_over_http() {
    let member = node("").await;
    let client = member.oap_client().await;
    let publisher = client.publisher("long").await.expect("opened");
    // More than what waits for any subscriber, in number; and then in bytes.
    let (small, large) = (9_000, 14);
    publisher
        .publish_all((0..small).map(|number: u32| Bytes::from(number.to_be_bytes().to_vec())))
        .await
        .expect("sent");
    publisher.publish_all((0..large).map(|_| Bytes::from(vec![7; 1_000_000]))).await.expect("sent");
    publisher.finish().await.expect("published");
    let count = u64::from(small) + large;
    let origin = member.id.parse().expect("an id");
    let mut replay = client.subscribe("long", Since::now().and_from(origin, 1)).await.expect("subscribed");
    let heard = hear(&mut replay, count).await;
    assert!(heard.1 == 0 && heard.0.iter().copied().eq(1..=count), "{} heard, {} dropped", heard.0.len(), heard.1);

    let mut replay = Subscriber::open(&member, "long", &format!("?from={}:1", member.id)).await;
    let heard = replay.messages(count as usize).await;
    assert!(heard.iter().map(|event| event.seq()).eq(1..=count));
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_whole_events_and_is_told_how_many() {
    let member = node("").await;
    let (reader, writer) = (member.oap_client().await, member.oap_client().await);
    let mut slow = reader.subscribe("large", Since::now()).await.expect("subscribed");
    let publisher = writer.publisher("large").await.expect("opened");
    // Each is larger than a frame, and all of them than everything between the two ends.
    let (count, bytes) = (30_u64, 2_500_000);
    for number in 1..=count {
        member.publish("large", vec![number as u8; bytes]).await;
    }
    publisher.publish("the last").await.expect("sent");
    publisher.finish().await.expect("published");
    // A part that was lost would fail to be put together, or be taken for another event.
    let (numbers, dropped) = hear(&mut slow, count + 1).await;
    assert!(dropped > 0 && !numbers.is_empty(), "{numbers:?} heard, {dropped} dropped");
    assert!(numbers.is_sorted_by(|before, after| before < after), "{numbers:?}");
    assert_eq!(numbers.len() as u64 + dropped, count + 1, "events are counted, not frames");
}

/// Payloads in the order they came.
async fn payloads(subscription: &mut Subscription, count: usize) -> Vec<Bytes> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = tokio::time::timeout(PATIENCE_MAX, subscription.next_batch(&mut events)).await;
        next.expect("events in time").expect("events");
    }
    let payload_of = |event| match event {
        Event::Message(message) => message.payload,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(payload_of).collect()
}

#[tokio::test]
async fn messages_of_every_size_arrive_as_they_were_published() {
    let member = node("").await;
    let client = member.oap_client().await;
    let mut small_frames = Options::default();
    small_frames.limits.frame_bytes_max = 2048;
    let other = member.oap_client_with(small_frames).await;
    assert_eq!(other.facts().agreed.max_frame, 2048);
    // Copied, sent from where the ring holds them, put together of chunks, cut into parts.
    let sizes = [0, 1, 511, 512, 1_959, 1_960, 1_961, 2_010, 4_096, 16_383, 16_384, 65_536, 65_537, 300_000, 1_100_000];
    let message = |size: usize| Bytes::from((0..size).map(|place| (place % 251) as u8).collect::<Vec<_>>());
    let mut subscriptions = Vec::new();
    for (lane, client) in [("alone", &client), ("alone-cut", &other), ("shared", &client), ("shared", &other)] {
        subscriptions.push(client.subscribe(lane, Since::now()).await.expect("subscribed"));
    }
    for lane in ["alone", "alone-cut", "shared"] {
        for size in sizes {
            member.publish(lane, message(size)).await;
        }
    }
    for subscription in &mut subscriptions {
        let heard = payloads(subscription, sizes.len()).await;
        assert!(heard.iter().map(Bytes::len).eq(sizes), "{:?}", heard.iter().map(Bytes::len).collect::<Vec<_>>());
        assert!(heard.iter().all(|payload| *payload == message(payload.len())));
    }
}

#[tokio::test]
async fn a_publication_that_is_refused_without_an_outcome_ends_its_stream() {
    let member = node("[overlay]\nlane_messages_per_second = 1\nlane_burst = 5\n").await;
    let client = member.oap_client().await;
    let is_busy = |ended: Error| matches!(&ended, Error::Refused(refusal) if refusal.status == 429);
    let publisher = client.publisher("tight").await.expect("opened");
    publisher.publish_all((0..50).map(|_| Bytes::from_static(b"x"))).await.expect("sent");
    let ended = publisher.finish().await.expect_err("the sixth was refused");
    assert!(is_busy(ended.clone()), "{ended:?}");
    // Also to somebody who says nothing more.
    let publisher = client.publisher("tight").await.expect("opened");
    publisher.publish_all((0..50).map(|_| Bytes::from_static(b"x"))).await.expect("sent");
    let ended = tokio::time::timeout(PATIENCE_MAX, async {
        loop {
            if let Err(ended) = publisher.publish_all(std::iter::empty()).await {
                return ended;
            }
            tokio::task::yield_now().await;
        }
    });
    let ended = ended.await.expect("told in time");
    assert!(is_busy(ended.clone()), "{ended:?}");
    drop(publisher);
    // With an outcome asked for, each has its own, and the stream goes on; the session is whole all the while.
    let publisher = client.publisher("loose").await.expect("opened");
    let mut published = 0_u64;
    for turn in 1..=2 {
        // On a slow machine the lane may have room for another one meanwhile.
        let refused = loop {
            match publisher.publish_acked("x").await {
                Ok(outcome) => {
                    published += 1;
                    assert_eq!(outcome.seq, published);
                }
                Err(refused) => break refused,
            }
        };
        assert!(is_busy(refused) && published >= 5, "{published} after {turn}: the stream goes on");
    }
    testkit::eventually("a refusal over HTTP", async || {
        let answer = member.try_publish("loose", "x").await;
        assert!(matches!(answer.status, 200 | 202 | 429), "{}", answer.text());
        (answer.status == 429).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sixteen_sessions_share_a_node_alike() {
    let member = node("").await;
    // As much as the ring holds, so that there is more for each of them than it can have got when the first has all.
    let (count, bytes) = (20_000, 1_024);
    let publisher = member.oap_client().await.publisher("flood").await.expect("opened");
    publisher.publish_all((0..count).map(|_| Bytes::from(vec![1; bytes]))).await.expect("sent");
    publisher.finish().await.expect("published");
    let heard: Arc<[AtomicU64; 16]> = Arc::default();
    let (mut readers, start) = (tokio::task::JoinSet::new(), Arc::new(tokio::sync::Barrier::new(heard.len())));
    for at in 0..heard.len() {
        let (client, heard, start) = (member.oap_client().await, Arc::clone(&heard), Arc::clone(&start));
        let from = vec![(member.id.parse().expect("an id"), 1)];
        readers.spawn(async move {
            start.wait().await;
            let mut subscription = client.subscribe("flood", Since { from, own: true }).await.expect("subscribed");
            let mut events = Vec::new();
            while heard[at].load(Ordering::Relaxed) < count {
                subscription.next_batch(&mut events).await.expect("events");
                heard[at].fetch_add(events.drain(..).count() as u64, Ordering::Relaxed);
            }
        });
    }
    let first = tokio::time::timeout(PATIENCE_MAX, readers.join_next()).await;
    first.expect("in time").expect("sixteen of them").expect("it heard everything");
    let shares: Vec<f64> = heard.iter().map(|heard| heard.load(Ordering::Relaxed) as f64).collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let jain = sum * sum / (shares.len() as f64 * squares);
    assert!(jain >= 0.95, "Jain index {jain:.3}: {shares:?}");
}

#[tokio::test]
async fn key_exchanges_and_refused_handshakes_are_counted() {
    let mut member = node("[overlay]\ntls_pq = \"required\"\n").await;
    let client = member.oap_client().await;
    let address = member.address().parse().expect("an address");
    let classical = Options { post_quantum: PostQuantum::Off, ..Options::default() };
    Client::connect(&address, classical).await.expect_err("it has no such key exchange");
    let process = member.process();
    assert_eq!(process.metric(r#"tls_handshakes_total{group="X25519MLKEM768"}"#).await, 1.0);
    testkit::eventually("the refusal", async || {
        let refused = process.metric(r#"handshake_refusals_total{reason="post_quantum"}"#).await;
        (refused == 1.0).then_some(())
    })
    .await;
    drop(client);
}

#[tokio::test]
async fn a_node_whose_frames_hold_no_message_is_no_peer() {
    let mut pair = network(2, &[]).await;
    let mut small = Member::new();
    small.configure("[oap]\nmax_frame_bytes = 65962\n");
    small.knows(&pair[0].address());
    small.start().await;
    // Both sides know from what they agreed on, whoever dialled.
    for member in [&mut pair[0], &mut small] {
        testkit::eventually("the refusal", async || {
            let refused = member.process().metric(r#"handshake_refusals_total{reason="frames"}"#).await;
            (refused >= 1.0).then_some(())
        })
        .await;
    }
    assert!(pair[0].peer(&small.id).await.is_none_or(|peer| peer["state"] != "connected"));
    let mut enough = Member::new();
    enough.configure("[oap]\nmax_frame_bytes = 65963\n");
    enough.knows(&pair[0].address());
    enough.start().await;
    pair[0].wait_connected(&enough.id).await;
    // The largest frames there are, over the longest name.
    let lane = "x".repeat(80);
    let mut subscription = enough.oap_client().await.subscribe(&lane, Since::now()).await.expect("subscribed");
    let answer = pair[0].publish(&lane, vec![1; 70_000]).await;
    assert!(answer["peers"].as_array().expect("peers").iter().all(|peer| peer["outcome"] == "sent"), "{answer}");
    assert_eq!(payloads(&mut subscription, 1).await[0].len(), 70_000);
}

/// A whole request to the mailbox.
fn mailbox_request(corr: u64, op: u8, head: &Value, body: &[u8]) -> Vec<u8> {
    let head = head.to_string();
    let payload = [&[op][..], &(head.len() as u32).to_be_bytes(), head.as_bytes(), body].concat();
    Frame::request(AppId::MAILBOX, corr, Bytes::from(payload)).to_bytes().to_vec()
}

#[tokio::test]
async fn a_farewell_names_the_highest_request_that_was_begun() {
    let mut member = Member::running("http,oap,overlay,mailbox");
    member.start().await;
    let (address, token) = (member.oap, member.process().token.clone());
    let mailbox_client = member.oap_client().await;
    let (mailbox, message) = (mailbox_client.mailbox(), oap_client::OutgoingMessage::default());
    mailbox.send_batch("jobs", &[message]).await.expect("answered").remove(0).expect("sent");
    // From here on the topic has nothing to give.
    assert_eq!(mailbox.recv("jobs", 1, Duration::from_secs(5), None).await.expect("answered").len(), 1);
    let recv = json!({"topic": "jobs", "wait_ms": 20_000, "deadline_ms": 30_000});
    let send = mailbox_request(7, 1, &json!({"topic": "other", "messages": [{"len": 4}]}), b"work");
    let mut sessions = [RawSession::hello(address, &token).await, RawSession::hello(address, &token).await];
    for raw in &mut sessions {
        // The first one waits while the second, which is begun after it, is answered.
        raw.write(&[mailbox_request(41, 2, &recv, b""), send.clone()].concat()).await;
        let answer = tokio::time::timeout(PATIENCE_MAX, raw.answer()).await.expect("in time").expect("an answer");
        assert_eq!((answer.corr, answer.code), (7, status::OK));
    }
    let [mut drained, mut broken] = sessions;
    // Not by the number of the frame that breaks the rules.
    broken
        .write(
            &Frame { flags: oap::Flags::RESP, code: status::OK, ..Frame::request(AppId::ECHO, 99, Bytes::new()) }
                .to_bytes(),
        )
        .await;
    let farewell = tokio::time::timeout(PATIENCE_MAX, broken.farewell_after()).await.expect("in time");
    assert_eq!(farewell, Some((status::BAD_REQUEST, 41)));
    member.process().signal(Signal::TERM);
    let farewell = tokio::time::timeout(PATIENCE_MAX, drained.farewell_after()).await.expect("in time");
    assert_eq!(farewell, Some((status::UNAVAILABLE, 41)), "what is in flight when the node leaves was begun");
}

#[tokio::test]
async fn a_receive_that_is_cancelled_or_dropped_takes_no_message() {
    let mut member = Member::running("http,oap,overlay,mailbox");
    member.start().await;
    let client = member.oap_client().await;
    let (mailbox, wait) = (client.mailbox(), Duration::from_secs(20));
    let send = async || {
        let message = oap_client::OutgoingMessage { body: Bytes::from_static(b"work"), ..Default::default() };
        mailbox.send("jobs", message).await.expect("sent");
    };
    let receive = async || mailbox.recv("jobs", 1, wait, Some(10 * wait)).await.expect("received").remove(0);
    send().await;
    mailbox.ack(&[receive().await.receipt]).await.expect("answered").remove(0).expect("done with");
    let mut raw = RawSession::hello(member.oap, &member.process().token).await;
    let recv = json!({"topic": "jobs", "wait_ms": 20_000, "deadline_ms": 30_000});
    for corr in [41, 42] {
        let (request, cancel) = (mailbox_request(corr, 2, &recv, b""), Frame::cancel(AppId::MAILBOX, corr).to_bytes());
        if corr == 41 {
            // Begun before the other one, which is answered.
            let other = mailbox_request(7, 1, &json!({"topic": "other", "messages": [{"len": 4}]}), b"work");
            raw.write(&[request, other].concat()).await;
            assert_eq!(raw.answer().await.map(|answer| answer.corr), Some(7));
            raw.write(&cancel).await;
        } else {
            raw.write(&[&request[..], &cancel].concat()).await;
        }
        let answer = tokio::time::timeout(PATIENCE_MAX, raw.answer()).await.expect("at once").expect("an answer");
        assert_eq!((answer.corr, answer.code), (corr, status::UNAVAILABLE));
        assert!(String::from_utf8_lossy(&answer.payload).contains("E_CANCELED"), "{answer:?}");
        // There is nothing to cancel any more.
        raw.write(&cancel).await;
    }
    send().await;
    let received = receive().await;
    assert_eq!(received.attempt, 1, "no delivery went to nobody");
    mailbox.ack(&[received.receipt]).await.expect("answered").remove(0).expect("done with");
    for _ in 0..20 {
        tokio::select! {
            biased;
            received = mailbox.recv("jobs", 1, wait, None) => panic!("{received:?}"),
            () = std::future::ready(()) => {}
        }
    }
    send().await;
    let received = receive().await;
    assert_eq!(received.body, "work", "and not when a lease of nobody ends");
    mailbox.ack(&[received.receipt]).await.expect("answered").remove(0).expect("done with");
    // Nor does one whose session has ended in order.
    let leaver = member.oap_client().await;
    let leavers_mailbox = leaver.mailbox();
    let mut waiting = Box::pin(leavers_mailbox.recv("jobs", 1, wait, None));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    leavers_mailbox.ack(&["none"]).await.expect("answered, so that the receive is begun");
    leaver.close(Duration::from_secs(10)).await;
    send().await;
    assert_eq!(receive().await.attempt, 1, "who has left takes no message");
    waiting.await.expect_err("the session has ended");
}
