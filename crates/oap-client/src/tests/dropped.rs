//! What becomes of calls that are dropped: at the node, and for those who come after them.

use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame};

use super::node::{CANCELLED, OLD, PUBLISHERS, UNNACKABLE, connected, with_token};
use crate::{Client, Error, OutgoingMessage, Since};

const SECOND: Duration = Duration::from_secs(1);

fn message(body: &'static str) -> OutgoingMessage {
    OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }
}

/// Begins a call, and drops it as soon as it has to wait.
async fn begin_and_drop<T>(call: impl Future<Output = T>) {
    let mut call = Box::pin(call);
    assert!(futures_util::poll!(&mut call).is_pending(), "nothing comes in no time");
}

/// A number that the node tells through its echo.
async fn number_of(client: &Client, what: &'static str) -> u64 {
    let answer = client.request(AppId::ECHO, what).await.expect("an answer");
    String::from_utf8_lossy(&answer).parse().expect("a number")
}

/// Asks until the node tells this number.
async fn becomes(client: &Client, what: &'static str, expected: u64) {
    for _ in 0..1000 {
        if number_of(client, what).await == expected {
            return;
        }
    }
    panic!("{what} did not become {expected}");
}

/// Nothing more finds room until there is some again. A frame more makes sure of it.
fn fill(client: &Client) {
    client.0.outbox.set_frames_max(1);
    let _ = client.0.outbox.push(u64::MAX, Frame::request(AppId::ECHO, u64::MAX, ""));
}

fn make_room(client: &Client) {
    client.0.outbox.set_frames_max(1000);
}

#[tokio::test]
async fn a_receive_that_is_dropped_is_cancelled() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    // More than may be in flight: each leaves its place to the next.
    for number in 1..=50 {
        begin_and_drop(mailbox.recv("jobs", 1, 20 * SECOND, None)).await;
        becomes(&client, CANCELLED, number).await;
    }
    mailbox.send("jobs", message("job")).await.expect("sent");
    let received = mailbox.recv("jobs", 1, 20 * SECOND, None).await.expect("received");
    assert_eq!(received[0].body, "job", "nobody else has taken it");
}

#[tokio::test]
async fn sends_that_are_dropped_while_the_node_does_not_answer_are_kept_nowhere() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    // Nothing leaves, so that nothing is answered.
    fill(&client);
    let mut first = Box::pin(mailbox.send("jobs", message("first")));
    assert!(futures_util::poll!(&mut first).is_pending());
    for _ in 0..100 {
        begin_and_drop(mailbox.send("jobs", message("dropped"))).await;
        begin_and_drop(mailbox.send("others", message("dropped"))).await;
    }
    assert_eq!(client.0.gather.waiting(), 0);
    make_room(&client);
    first.await.expect("sent");
    mailbox.send("jobs", message("last")).await.expect("sent");
    let received = mailbox.recv("jobs", 10, SECOND, None).await.expect("received");
    let bodies: Vec<&[u8]> = received.iter().map(|message| &message.body[..]).collect();
    assert_eq!(bodies, [&b"first"[..], b"last"]);
}

#[tokio::test]
async fn a_cancel_that_finds_no_room_is_sent_when_there_is_some() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    let mut receiving = Box::pin(mailbox.recv("jobs", 1, 20 * SECOND, None));
    assert!(futures_util::poll!(&mut receiving).is_pending());
    // The node has it.
    assert_eq!(number_of(&client, CANCELLED).await, 0);
    fill(&client);
    drop(receiving);
    make_room(&client);
    becomes(&client, CANCELLED, 1).await;
}

#[tokio::test]
async fn a_receive_that_is_dropped_before_it_is_sent_is_not_sent() {
    let (client, _node) = connected(with_token()).await;
    fill(&client);
    begin_and_drop(client.mailbox().recv("jobs", 1, 20 * SECOND, None)).await;
    make_room(&client);
    client.mailbox().send("jobs", message("job")).await.expect("sent");
    assert_eq!(client.mailbox().recv("jobs", 1, SECOND, None).await.expect("received").len(), 1);
    assert_eq!(number_of(&client, CANCELLED).await, 0, "there is nothing to cancel");
}

#[tokio::test]
async fn what_a_node_that_knows_no_cancels_sends_to_nobody_is_given_back() {
    for topic in [OLD, UNNACKABLE] {
        let (client, _node) = connected(with_token()).await;
        let mailbox = client.mailbox();
        for _ in 0..3 {
            begin_and_drop(mailbox.recv(topic, 1, 20 * SECOND, None)).await;
        }
        mailbox.send(topic, message("job")).await.expect("sent");
        let received = mailbox.recv(topic, 1, 20 * SECOND, None).await.expect("received, with the chain unbroken");
        assert_eq!(received[0].body, "job", "{topic}");
    }
}

#[tokio::test]
async fn an_answer_that_was_here_when_its_call_was_dropped_is_given_back() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    mailbox.send("jobs", message("job")).await.expect("sent");
    let mut receiving = Box::pin(mailbox.recv("jobs", 1, SECOND, None));
    assert!(futures_util::poll!(&mut receiving).is_pending());
    // Answered after the receive: the messages are here, and nobody has looked.
    client.request(AppId::ECHO, "x").await.expect("an answer");
    drop(receiving);
    let received = mailbox.recv("jobs", 1, 20 * SECOND, None).await.expect("received, with the chain unbroken");
    assert_eq!(received[0].body, "job");
}

#[tokio::test]
async fn a_chained_batch_that_is_dropped_leaves_the_chain_whole() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    mailbox.send_batch_chained("jobs", &[message("a")]).await.expect("sent");
    begin_and_drop(mailbox.send_batch_chained("jobs", &[message("b")])).await;
    mailbox.send_batch_chained("jobs", &[message("c")]).await.expect("it continues the one that was dropped");
    fill(&client);
    begin_and_drop(mailbox.send_batch_chained("jobs", &[message("never sent")])).await;
    make_room(&client);
    mailbox.send_batch_chained("jobs", &[message("d")]).await.expect("it continues the last one that was sent");
    let received = mailbox.recv("jobs", 10, SECOND, None).await.expect("received");
    let bodies: Vec<&[u8]> = received.iter().map(|message| &message.body[..]).collect();
    assert_eq!(bodies, [b"a", b"b", b"c", b"d"]);
}

#[tokio::test]
async fn a_lane_that_never_opened_is_not_ended() {
    let (client, _node) = connected(with_token()).await;
    let long = "x".repeat(100_000);
    assert!(matches!(client.publisher(&long).await, Err(Error::TooLarge { .. })));
    assert!(matches!(client.subscribe(&long, Since::now()).await, Err(Error::TooLarge { .. })));
    fill(&client);
    let (mut publishing, mut subscribing) =
        (Box::pin(client.publisher("news")), Box::pin(client.subscribe("news", Since::now())));
    assert!(futures_util::poll!(&mut publishing).is_pending() && futures_util::poll!(&mut subscribing).is_pending());
    make_room(&client);
    drop((publishing, subscribing));
    assert_eq!(client.request(AppId::ECHO, "x").await.expect("the session goes on"), "x");
}

#[tokio::test]
async fn a_finish_that_is_dropped_while_it_waits_ends_its_stream() {
    let (client, _node) = connected(with_token()).await;
    // More than may be in flight.
    for _ in 0..20 {
        let publisher = client.publisher("news").await.expect("open");
        publisher.publish_acked("x").await.expect("published");
        fill(&client);
        begin_and_drop(publisher.finish()).await;
        make_room(&client);
    }
    let publisher = client.publisher("news").await.expect("open");
    publisher.publish_all([Bytes::from_static(b"x")]).await.expect("published");
    begin_and_drop(publisher.finish()).await;
    becomes(&client, PUBLISHERS, 0).await;
}
