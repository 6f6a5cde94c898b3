//! Receives over several partitions: what is leased to a receiver that has gone comes back at once, and one receive
//! takes one waiting place.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::poll;
use ron_types::limits::mailbox as limits;
use svc_mailbox::Fencing;

use super::*;

const PARTITIONS: u16 = 8;

/// Hidden for longer than any test lasts: what is leased to nobody is not seen again by its lease running out.
async fn create(running: &RunningMailbox, topic: &str, settings: TopicSettings) {
    let settings = TopicSettings { visibility_ms: 600_000, ..settings };
    running.mailbox.create_topic(&name(topic), settings, soon()).await.expect("made");
}

fn waiting() -> Receive {
    Receive { wait_ms: 15_000, visibility_ms: None, ..once() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_messages_that_become_due_together_each_is_delivered_once() {
    const MESSAGES: usize = 80;
    let running = RunningMailbox::start(LogLocation::Memory).await;
    create(&running, "wide", TopicSettings { partitions: PARTITIONS, ..TopicSettings::default() }).await;
    for n in 0..MESSAGES {
        let delay_ms = Some(400);
        let message = Outgoing { payload: n.to_string().into(), delay_ms, ..Outgoing::default() };
        running.send_as("wide", message).await;
    }
    let consume = async || {
        let mut seen = Vec::new();
        // The shortest wait that can see the end: once all are acknowledged nothing comes any more.
        loop {
            let deliveries = running.recv_as("wide", Receive { max_messages: 10, wait_ms: 2_000, ..waiting() }).await;
            if deliveries.is_empty() {
                return seen;
            }
            for delivery in &deliveries {
                running.ack(delivery).await;
                seen.push((delivery.msg_id.to_string(), delivery.attempt));
            }
        }
    };
    let seen = futures_util::future::join_all([consume(), consume(), consume()]).await.concat();
    assert!(seen.iter().all(|(_, attempt)| *attempt == 1), "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), MESSAGES, "each is delivered");
    let stats = running.mailbox.stats(&name("wide"), soon()).await.expect("counted");
    assert_eq!((stats.total.held(), stats.total.delivered), (0, MESSAGES as u64));
    assert_eq!(running.stop().await, 0);
}

/// Receives with a caller that goes after so many polls; says whether it got something first.
async fn receive_and_go(running: &RunningMailbox, polls: usize, meanwhile: impl AsyncFnOnce()) -> Option<Delivery> {
    let (by, topic) = (anybody(), name("t"));
    let mut receiving = pin!(running.mailbox.recv(&by, &topic, waiting(), soon()));
    for _ in 0..polls {
        if let std::task::Poll::Ready(received) = poll!(&mut receiving) {
            return received.expect("received").pop();
        }
        tokio::task::yield_now().await;
    }
    // The message may be on its way to the receiver, and is with nobody when that is dropped.
    meanwhile().await;
    None
}

async fn check(location: LogLocation, settings: TopicSettings) {
    let running = RunningMailbox::start(location).await;
    create(&running, "t", settings).await;
    let send = async || {
        let group = Some("g".to_owned());
        running.send_as("t", Outgoing { group, payload: "x".into(), ..Outgoing::default() }).await;
    };
    for polls in 1..6 {
        let early = receive_and_go(&running, polls, &send).await;
        assert!(early.is_none(), "nothing was sent yet");
        let gone = receive_and_go(&running, polls, async || {}).await;
        let delivery = match gone {
            Some(delivery) => delivery,
            None => running.recv_as("t", waiting()).await.pop().expect("it is given back"),
        };
        assert_eq!((delivery.attempt, delivery.history.len()), (1, 0), "after {polls} polls");
        running.ack(&delivery).await;
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_is_dropped_anywhere_leaves_no_lease_behind() {
    for partitions in [1, PARTITIONS] {
        for groups in [Groups::Fair, Groups::Fifo] {
            let folder = tempfile::tempdir().expect("a folder");
            for location in [LogLocation::Memory, on_disk(folder.path())] {
                check(location, TopicSettings { partitions, groups, ..TopicSettings::default() }).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_of_a_wide_topic_takes_one_waiting_place() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    create(&running, "wide", TopicSettings { partitions: 64, ..TopicSettings::default() }).await;
    create(&running, "other", TopicSettings::default()).await;
    let (by, wide, other) = (anybody(), name("wide"), name("other"));
    let mut polls: Vec<_> = (0..1_000).map(|_| Box::pin(running.mailbox.recv(&by, &wide, waiting(), soon()))).collect();
    // Often enough for each to have asked everybody.
    for _ in 0..3 {
        for poll in &mut polls {
            assert!(poll!(poll).is_pending(), "it waits");
            tokio::task::yield_now().await;
        }
    }
    let mut receiving = Box::pin(running.mailbox.recv(&by, &other, waiting(), soon()));
    assert!(poll!(&mut receiving).is_pending(), "there is a place for one more");
    running.send("other", "x").await;
    assert_eq!(receiving.await.expect("received").len(), 1);
    running.send("wide", "x").await;
    let (received, _, rest) = futures_util::future::select_all(polls).await;
    assert_eq!(received.expect("received").len(), 1);
    drop(rest);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_that_a_bound_of_leases_is_reached() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    create(&running, "t", TopicSettings { inflight_max: 1, ..TopicSettings::default() }).await;
    running.send("t", "first").await;
    let second = running.send("t", "second").await.msg_id;
    let verdict = async || running.mailbox.explain(second, soon()).await.expect("it is there").verdict;
    let delivery = running.recv("t", 10).await.remove(0);
    assert!(running.recv("t", 10).await.is_empty());
    assert!(verdict().await.contains("as many messages in flight as it may, 1 for each partition"));
    running.ack(&delivery).await;
    assert!(verdict().await.starts_with("nothing holds it"));
    let other = running.send("other", "x").await.msg_id;
    assert_eq!(running.recv("other", 1).await[0].msg_id, other);
    running.live.publish(LiveOptions { global_inflight: 1, ..LiveOptions::default() });
    assert!(verdict().await.contains("the node has as many messages in flight as it may, 1"));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_cannot_take_all_waiting_places() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    create(&running, "t", TopicSettings::default()).await;
    let (greedy, other, topic) = (Subject::named("greedy"), Subject::named("other"), name("t"));
    let mut polls = Vec::new();
    let error = loop {
        let mut receiving = Box::pin(running.mailbox.recv(&greedy, &topic, waiting(), soon()));
        match poll!(&mut receiving) {
            std::task::Poll::Pending => polls.push(receiving),
            std::task::Poll::Ready(refused) => break refused.expect_err("its share is taken"),
        }
        assert!(polls.len() <= limits::RECEIVERS_MAX / 2, "half of all places");
    };
    assert_eq!(error.kind, Kind::Busy);
    assert!(error.detail.starts_with("greedy has ") && error.detail.contains("waiting receives"), "{error}");
    let mut receiving = Box::pin(running.mailbox.recv(&other, &topic, waiting(), soon()));
    assert!(poll!(&mut receiving).is_pending(), "there is a place for somebody else");
    drop(polls);
    running.send("t", "x").await;
    assert_eq!(receiving.await.expect("received").len(), 1, "those before it have gone");
    let again = Box::pin(running.mailbox.recv(&greedy, &topic, waiting(), soon()));
    assert!(poll!(again).is_pending(), "places are given back");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_cannot_hold_all_leases_of_the_node() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.live.publish(LiveOptions { global_inflight: 40, ..LiveOptions::default() });
    for topic in ["greedy", "other"] {
        create(&running, topic, TopicSettings { partitions: 4, ..TopicSettings::default() }).await;
        for n in 0..60 {
            running.send(topic, &n.to_string()).await;
        }
    }
    let take = async |by: Subject, topic: &str| {
        let (topic, mut all) = (name(topic), Vec::new());
        loop {
            let receive = Receive { max_messages: 3, wait_ms: 0, ..waiting() };
            match running.mailbox.recv(&by, &topic, receive, soon()).await {
                Ok(deliveries) => all.extend(deliveries),
                Err(error) => return (all, error),
            }
        }
    };
    let greedy = || Subject::named("greedy");
    let (held, error) = take(greedy(), "greedy").await;
    assert_eq!((held.len(), error.kind), (20, Kind::Busy));
    assert_eq!(
        error.detail,
        "greedy has 20 of the 40 leases (`mailbox.global_inflight`) of this node, which is its share while 20 are free; \
         acknowledge messages, give some back or take them for a shorter time"
    );
    assert_eq!(take(Subject::named("other"), "other").await.0.len(), 10, "somebody else has leases");
    let (acked, nacked) = held.split_at(5);
    for delivery in acked {
        running.ack(delivery).await;
    }
    let receipts = nacked[..5].iter().map(|delivery| delivery.receipt).collect();
    running.mailbox.nack(receipts, "later", Some(60_000), false, soon()).await.remove(0).expect("given back");
    assert_eq!(take(greedy(), "greedy").await.0.len(), 5, "15 of 30 that others do not have");
    running.mailbox.purge(&name("greedy"), soon()).await.expect("purged");
    let (operators, error) = take(anybody(), "other").await;
    assert_eq!(operators.len(), 30, "no share bounds the operator");
    assert!(error.detail.starts_with("all 40 leases (`mailbox.global_inflight`) of this node are taken"), "{error}");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_hidden_anew_counts_for_whom_it_was_delivered_to() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.live.publish(LiveOptions { global_inflight: 4, ..LiveOptions::default() });
    create(&running, "t", TopicSettings::default()).await;
    for n in 0..4 {
        running.send("t", &n.to_string()).await;
    }
    let (by, topic) = (Subject::named("tenant"), name("t"));
    let receive = || Receive { visibility_ms: Some(0), wait_ms: 0, ..waiting() };
    let mut seen = Vec::new();
    for _ in 0..2 {
        let delivery = running.mailbox.recv(&by, &topic, receive(), soon()).await.expect("received").remove(0);
        let hidden = running.mailbox.extend_fenced(vec![delivery.receipt], 60_000, Fencing::Any, soon()).await;
        hidden[0].as_ref().expect("it is hidden anew");
        seen.push(delivery.msg_id);
    }
    assert_ne!(seen[0], seen[1]);
    let error = running.mailbox.recv(&by, &topic, receive(), soon()).await.expect_err("it holds its share");
    assert!(error.detail.starts_with("tenant has 2 of the 4 leases"), "{error}");
    assert_eq!(running.stop().await, 0);
}
