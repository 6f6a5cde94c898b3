//! Clients over OAP/1 against the real node: the crate that a third party would use.

use std::time::Duration;

use bytes::Bytes;
use oap_client::{Client, Error, Event, Options, PostQuantum, Since, Subscription};
use testkit::PATIENCE_MAX;

use crate::member::{Member, network};
use crate::subscriber::Subscriber;

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
    publisher.publish("second").await.expect("sent");
    publisher.finish().await.expect("all of it is published");
    assert_eq!(hear(&mut news, 2).await, (vec![1, 2], 0));

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
    for seq in 1..=5 {
        assert_eq!(publisher.publish_acked("x").await.expect("published").seq, seq);
    }
    assert!(is_busy(publisher.publish_acked("x").await.expect_err("refused")));
    assert!(is_busy(publisher.publish_acked("x").await.expect_err("refused")), "the stream goes on");
    let answer = member.try_publish("loose", "x").await;
    assert_eq!(answer.status, 429, "{}", answer.text());
}

#[tokio::test]
async fn sixteen_sessions_share_a_node_alike() {
    let member = node("").await;
    let mut readers = tokio::task::JoinSet::new();
    let (count, bytes) = (20_000, 1_024);
    for _ in 0..16 {
        let client = member.oap_client().await;
        let mut subscription = client.subscribe("flood", Since::now()).await.expect("subscribed");
        readers.spawn(async move { hear(&mut subscription, count).await.0.len() as f64 });
    }
    let publisher = member.oap_client().await.publisher("flood").await.expect("opened");
    publisher.publish_all((0..count).map(|_| Bytes::from(vec![1; bytes]))).await.expect("sent");
    publisher.finish().await.expect("published");
    let shares = readers.join_all().await;
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
    crate::eventually("the refusal", async || {
        let refused = process.metric(r#"handshake_refusals_total{reason="post_quantum"}"#).await;
        (refused == 1.0).then_some(())
    })
    .await;
    drop(client);
}

#[tokio::test]
async fn a_node_that_dials_keeps_its_own_bounds_of_frames() {
    let pair = network(2, &[]).await;
    let mut small = Member::new();
    small.configure("[oap]\nmax_frame_bytes = \"32 KiB\"\n");
    small.knows(&pair[0].address());
    small.start().await;
    pair[0].wait_connected(&small.id).await;
    let answer = pair[0].publish("chat", vec![1; 40_000]).await;
    assert_eq!(answer["peers"][0]["outcome"], "too_large", "{answer}");
}
