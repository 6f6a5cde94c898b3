//! What a caller does, and what it gets.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oap::AppId;
use tokio::task::JoinSet;

use super::node::{MAILBOX_REQUESTS, UNFIT, connected, with_token};
use crate::{Client, Error, Event, Options, OutgoingMessage, Sent, Since};

const SECOND: Duration = Duration::from_secs(1);

fn message(body: &'static str) -> OutgoingMessage {
    OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }
}

fn payloads(events: &[Event]) -> Vec<Bytes> {
    let payload = |event: &Event| match event {
        Event::Message(message) => Some(message.payload.clone()),
        _ => None,
    };
    events.iter().filter_map(payload).collect()
}

#[tokio::test]
async fn answers_find_their_requests() {
    let (client, _node) = connected(with_token()).await;
    let mut asked = JoinSet::new();
    // More than were agreed on: the rest waits its turn.
    for number in 0..50u32 {
        let client = client.clone();
        asked.spawn(async move {
            let answer = client.request(AppId::ECHO, number.to_string()).await.expect("an answer");
            assert_eq!(answer, number.to_string());
        });
    }
    assert_eq!(asked.join_all().await.len(), 50);
    let refused = client.request(AppId(77), "").await.expect_err("nobody");
    assert!(matches!(refused, Error::Refused(refusal) if refusal.status == 404));
}

#[tokio::test]
async fn what_is_published_is_heard_once_and_in_order() {
    let (client, _node) = connected(with_token()).await;
    let mut news = client.subscribe("news", Since::now()).await.expect("subscribed");
    let mut other = client.subscribe("other", Since::now().without_own()).await.expect("subscribed");
    assert_eq!(news.node_id().as_bytes(), &[9; 32]);
    let publisher = client.publisher("news").await.expect("open");
    let expected: Vec<Bytes> = (0..1000u32).map(|number| number.to_string().into()).collect();
    for payload in &expected[..100] {
        publisher.publish(payload.clone()).await.expect("published");
    }
    publisher.publish_all(expected[100..].to_vec()).await.expect("published");
    let mut events = Vec::new();
    while events.len() < 1000 {
        news.next_batch(&mut events).await.expect("events");
    }
    assert_eq!(payloads(&events), expected);
    let numbers = events.iter().filter_map(|event| match event {
        Event::Message(message) => Some((message.epoch, message.seq)),
        _ => None,
    });
    assert!(numbers.eq((1..=1000).map(|seq| (5, seq))));
    publisher.finish().await.expect("everything was taken");
    let publisher = client.publisher("other").await.expect("open");
    publisher.publish("x").await.expect("published");
    let mut events = Vec::new();
    other.next_batch(&mut events).await.expect("events");
    assert_eq!(payloads(&events), [Bytes::from("x")], "a lane is a lane");
}

#[tokio::test]
async fn outcomes_come_in_the_order_of_publications() {
    let (client, _node) = connected(with_token()).await;
    let publisher = Arc::new(client.publisher("news").await.expect("open"));
    let first = publisher.publish_acked("a").await.expect("an outcome");
    assert_eq!((first.seq, first.epoch), (1, 5));
    publisher.publish("b").await.expect("published");
    assert_eq!(publisher.publish_acked("c").await.expect("an outcome").seq, 3);
    let mut set = JoinSet::new();
    for _ in 0..100 {
        let publisher = Arc::clone(&publisher);
        set.spawn(async move { publisher.publish_acked("x").await.expect("an outcome").seq });
    }
    let mut numbers = set.join_all().await;
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(4..104), "each has its own");
}

#[tokio::test]
async fn a_message_larger_than_a_frame_comes_whole() {
    let (client, _node) = connected(with_token()).await;
    let mut news = client.subscribe("news", Since::now()).await.expect("subscribed");
    let publisher = client.publisher("news").await.expect("open");
    // It fits the frame to the node, and not the one back with its head.
    let payload: Bytes = (0..65_536 - 38).map(|n| n as u8).collect::<Vec<u8>>().into();
    publisher.publish(payload.clone()).await.expect("published");
    publisher.publish("after").await.expect("published");
    let mut events = Vec::new();
    while events.len() < 2 {
        news.next_batch(&mut events).await.expect("events");
    }
    assert_eq!(payloads(&events), [payload, Bytes::from("after")]);
    let refused = publisher.publish(vec![0; 65_536]).await.expect_err("too large");
    assert!(matches!(refused, Error::TooLarge { len: 65_536, max: 65_498 }), "{refused}");
}

#[tokio::test]
async fn refusals_say_why() {
    let (client, _node) = connected(with_token()).await;
    let Err(Error::Refused(refusal)) = client.subscribe("forbidden", Since::now()).await else { panic!("refused") };
    assert_eq!((refusal.status, refusal.code.as_str()), (403, "forbidden"));
    assert_eq!(refusal.retry_after, Some(Duration::from_millis(7)));
    let publisher = client.publisher("forbidden").await.expect("not known yet");
    let refused = publisher.publish_acked("x").await.expect_err("refused");
    assert!(matches!(&refused, Error::Refused(refusal) if refusal.status == 403), "{refused}");
    assert!(matches!(publisher.publish("x").await, Err(Error::Refused(_))), "and so is everything after");
    let (client, _node) = connected(Options::default()).await;
    let refused = client.request(AppId::ECHO, "x").await.expect_err("no token");
    assert!(matches!(&refused, Error::Refused(refusal) if refusal.status == 401), "{refused}");
}

#[tokio::test]
async fn the_mailbox_sends_receives_and_settles() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    let sent = mailbox.send_batch("jobs", &[message("a"), message("b")]).await.expect("sent");
    let ids: Vec<String> = sent.into_iter().map(|sent| sent.expect("taken").msg_id).collect();
    assert_eq!(ids, ["id-0", "id-1"]);
    let sent = mailbox.send_batch_chained("jobs", &[message("c")]).await.expect("sent");
    assert_eq!(sent.len(), 1);
    let received = mailbox.recv("jobs", 2, SECOND, None).await.expect("received");
    let bodies: Vec<&[u8]> = received.iter().map(|message| &message.body[..]).collect();
    assert_eq!(bodies, [b"a", b"b"]);
    assert_eq!(mailbox.recv("jobs", 2, SECOND, Some(SECOND)).await.expect("received").len(), 1);
    let outcomes = mailbox.ack(&["receipt", "stale"]).await.expect("an answer");
    assert_eq!(outcomes[0], Ok(()));
    assert_eq!(outcomes[1].as_ref().expect_err("too late").status, 409);
    assert_eq!(mailbox.extend(&["receipt"], SECOND).await.expect("an answer"), [Ok(1000)]);
    assert_eq!(mailbox.nack(&["receipt"], "later").await.expect("an answer"), [Ok(())]);
}

#[tokio::test]
async fn a_body_that_changed_on_the_way_is_not_handed_out() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    mailbox.send_batch("jobs", &[message("fine"), message("damaged")]).await.expect("sent");
    let damaged = mailbox.recv("jobs", 2, SECOND, None).await.expect_err("damaged");
    assert!(matches!(damaged, Error::Integrity(_)), "{damaged}");
}

#[tokio::test]
async fn an_answer_that_is_given_up_does_not_disturb_the_next() {
    let (client, _node) = connected(with_token()).await;
    for _ in 0..5 {
        tokio::select! {
            biased;
            _ = client.request(AppId::ECHO, "given up") => panic!("no answer comes in no time"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(client.request(AppId::ECHO, "x").await.expect("an answer"), "x");
}

#[tokio::test]
async fn everybody_learns_that_the_session_ended() {
    let (client, _node) = connected(with_token()).await;
    let mut news = client.subscribe("news", Since::now()).await.expect("subscribed");
    let publisher = client.publisher("news").await.expect("open");
    let left = client.request(AppId::ECHO, "leave").await.expect_err("the node leaves");
    assert!(matches!(left, Error::Closed(_)), "{left}");
    assert_eq!(client.farewell().expect("a farewell").reason, "bye");
    assert!(matches!(news.next_batch(&mut Vec::new()).await, Err(Error::Closed(_))));
    assert!(matches!(publisher.publish("x").await, Err(Error::Closed(_))));
    assert!(matches!(publisher.finish().await, Err(Error::Closed(_))));
    assert!(matches!(client.request(AppId::ECHO, "x").await, Err(Error::Closed(_))));
    assert!(matches!(client.subscribe("news", Since::now()).await, Err(Error::Closed(_))));
}

#[tokio::test]
async fn closing_lets_out_what_was_published() {
    let (client, mut node) = connected(with_token()).await;
    let publisher = client.publisher("news").await.expect("open");
    publisher.publish_all((0..100).map(|_| Bytes::from_static(&[7; 1000]))).await.expect("published");
    drop(publisher);
    client.close(5 * SECOND).await;
    node.join_next().await.expect("the node").expect("it kept the rules to the end");
    assert!(matches!(client.request(AppId::ECHO, "x").await, Err(Error::Closed(_))));
}

async fn mailbox_requests(client: &Client) -> u64 {
    let answer = client.request(AppId::ECHO, MAILBOX_REQUESTS).await.expect("an answer");
    String::from_utf8_lossy(&answer).parse().expect("a number")
}

/// Sends of as many tasks at once, to two topics, with their outcomes in order.
async fn send_at_once(client: &Client, bodies: Vec<String>) -> Vec<Result<Sent, Error>> {
    let send = |(number, body): (usize, String)| {
        let mailbox = client.mailbox();
        async move {
            let message = OutgoingMessage { body: body.into(), ..OutgoingMessage::default() };
            mailbox.send(["orders", "invoices"][number % 2], message).await
        }
    };
    futures_util::future::join_all(bodies.into_iter().enumerate().map(send)).await
}

#[tokio::test]
async fn sends_of_many_tasks_share_requests_and_each_has_its_own_outcome() {
    let (client, _node) = connected(with_token()).await;
    let outcomes = send_at_once(&client, (0..300).map(|number| format!("body {number}")).collect()).await;
    let ids: HashSet<String> = outcomes.into_iter().map(|sent| sent.expect("sent").msg_id).collect();
    assert_eq!(ids.len(), 300);
    // The first leaves alone, and the others gather behind it.
    assert_eq!(mailbox_requests(&client).await, 3);
    // One after the other, nobody waits for company.
    for _ in 0..3 {
        client.mailbox().send("orders", message("alone")).await.expect("sent");
    }
    assert_eq!(mailbox_requests(&client).await, 6);
}

#[tokio::test]
async fn what_is_wrong_with_one_send_is_told_to_no_other() {
    let (client, _node) = connected(with_token()).await;
    let bodies = (0..40).map(|number| if number == 7 { UNFIT.to_owned() } else { format!("body {number}") });
    for (number, outcome) in send_at_once(&client, bodies.collect()).await.into_iter().enumerate() {
        match outcome {
            Err(Error::Refused(refusal)) => assert_eq!((number, refusal.status), (7, 400)),
            outcome => assert!(outcome.is_ok() && number != 7, "{number}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_send_that_is_given_up_while_it_waits_is_not_sent() {
    let (client, _node) = connected(with_token()).await;
    let mailbox = client.mailbox();
    let mut given_up = Box::pin(mailbox.send("orders", message("given up")));
    {
        let mut first = Box::pin(mailbox.send("orders", message("first")));
        assert!(futures_util::poll!(&mut first).is_pending(), "it is on its way");
        assert!(futures_util::poll!(&mut given_up).is_pending(), "it waits behind the first");
        drop(given_up);
        first.await.expect("sent");
    }
    mailbox.send("orders", message("last")).await.expect("sent");
    let received = mailbox.recv("orders", 10, SECOND, None).await.expect("received");
    let bodies: Vec<&[u8]> = received.iter().map(|message| &message.body[..]).collect();
    assert_eq!(bodies, [&b"first"[..], b"last"]);
}

#[tokio::test]
async fn sends_that_wait_when_the_session_ends_are_told() {
    let (client, node) = connected(with_token()).await;
    let sends = send_at_once(&client, (0..20).map(|number| format!("body {number}")).collect());
    let mut sends = Box::pin(sends);
    assert!(futures_util::poll!(&mut sends).is_pending());
    drop(node);
    for outcome in sends.await {
        assert!(matches!(outcome, Err(Error::Closed(_))), "{outcome:?}");
    }
}
