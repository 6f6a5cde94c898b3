//! Subscriptions over HTTP: replay, own publications, the end.

use rustix::process::Signal;

use crate::member::{Member, network};
use crate::overlay::subscriber::{Event, Subscriber};

async fn node() -> Member {
    let mut member = Member::new();
    member.start().await;
    member
}

#[tokio::test]
async fn a_subscriber_begins_where_it_asks_to() {
    let pair = network(2, &[(1, 0)]).await;
    let mut witness = Subscriber::open(&pair[1], "chat", "").await;
    for number in 1..=6 {
        pair[0].publish("chat", number.to_string()).await;
    }
    witness.messages(6).await;
    let numbers = |messages: &[Event]| messages.iter().map(Event::seq).collect::<Vec<u64>>();
    for (member, last) in pair.iter().zip([6, 8]) {
        let mut late = Subscriber::open(member, "chat", &format!("?from={}:4", pair[0].id)).await;
        let replayed = late.messages(last - 3).await;
        assert_eq!(numbers(&replayed), (4..=last as u64).collect::<Vec<_>>(), "that number included");
        pair[0].publish("chat", "next").await;
        let next = late.messages(1).await.remove(0);
        assert_eq!((next.seq(), next.payload()), (last as u64 + 1, b"next".to_vec()), "it goes on without a hole");
        witness.messages(1).await;
        let mut fresh = Subscriber::open(member, "chat", "").await;
        pair[0].publish("chat", "fresh").await;
        assert_eq!(fresh.messages(1).await[0].payload(), b"fresh", "without it nothing is replayed");
        witness.messages(1).await;
    }
}

#[tokio::test]
async fn own_publications_are_heard_unless_they_are_not_wanted() {
    let pair = network(2, &[(1, 0)]).await;
    let mut all = Subscriber::open(&pair[0], "chat", "").await;
    let mut others = Subscriber::open(&pair[0], "chat", "?own=false").await;
    pair[0].publish("chat", "own").await;
    assert_eq!(all.messages(1).await[0].payload(), b"own");
    pair[1].publish("chat", "foreign").await;
    for subscriber in [&mut all, &mut others] {
        let message = subscriber.messages(1).await.remove(0);
        assert_eq!((message.payload(), &message.data["hops"]), (b"foreign".to_vec(), &1.into()));
    }
}

#[tokio::test]
async fn lanes_do_not_mix() {
    let member = node().await;
    let mut chat = Subscriber::open(&member, "chat", "").await;
    let mut news = Subscriber::open(&member, "news", "").await;
    for lane in ["news", "chat"] {
        assert_eq!(member.publish(lane, lane).await["seq"], 1, "each lane has its own numbers");
    }
    assert_eq!(chat.messages(1).await[0].payload(), b"chat");
    assert_eq!(news.messages(1).await[0].payload(), b"news");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_told_how_much_it_lost() {
    let member = node().await;
    let mut slow = Subscriber::open(&member, "chat", "").await;
    // More than its inbox and every buffer on the way to it.
    let count = 48;
    for _ in 0..count {
        member.publish("chat", vec![7; 1_000_000]).await;
    }
    let (mut numbers, mut dropped) = (Vec::new(), 0);
    while numbers.len() as u64 + dropped < count {
        let event = slow.next().await;
        match event.kind.as_str() {
            "lagged" => dropped += event.data["dropped"].as_u64().expect("a number"),
            _ => numbers.push(event.seq()),
        }
    }
    assert!(dropped > 0 && numbers.last() == Some(&count), "{numbers:?}, {dropped} dropped");
    assert!(numbers.is_sorted_by(|before, after| before < after), "{numbers:?}");
}

#[tokio::test]
async fn a_quiet_stream_shows_that_it_is_alive() {
    let member = node().await;
    let mut quiet = Subscriber::open(&member, "chat", "").await;
    let heard = tokio::time::timeout(std::time::Duration::from_secs(20), quiet.next_or_end()).await;
    assert!(heard.is_err(), "nothing happens: {heard:?}");
    assert_eq!(quiet.comments, 1, "a comment every 15 seconds");
    member.publish("chat", "x").await;
    assert_eq!(quiet.messages(1).await[0].seq(), 1);
}

#[tokio::test]
async fn a_drain_ends_subscriptions_and_is_not_held_up() {
    let mut member = node().await;
    let mut subscriber = Subscriber::open(&member, "chat", "").await;
    member.process().signal(Signal::TERM);
    let end = subscriber.next().await;
    assert_eq!((end.kind.as_str(), &end.data["reason"]), ("end", &"draining".into()), "{end:?}");
    assert_eq!(subscriber.next_or_end().await, None);
    let status = member.process().wait_exit().await;
    assert_eq!(status.code(), Some(0), "{}", member.process().stderr());
}

#[tokio::test]
async fn a_token_that_runs_out_ends_its_subscriptions() {
    let member = node().await;
    let bearer = member.mint(&["overlay:subscribe:chat"], Some(1_000)).await;
    let mut subscriber = Subscriber::open_as(&member, &bearer, "chat", "").await.expect("allowed");
    assert_eq!(subscriber.next().await.kind, "ready");
    let end = subscriber.next().await;
    assert_eq!((end.kind.as_str(), &end.data["reason"]), ("end", &"revoked".into()), "{end:?}");
}
