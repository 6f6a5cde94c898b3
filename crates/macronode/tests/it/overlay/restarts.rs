//! Nodes that are killed and come back: nothing is lost without being told, ids stay, strangers stay out.

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::member::{Member, joined, network, network_with};
use crate::overlay::subscriber::Subscriber;
use testkit::eventually;

/// Numbers of an origin that a subscriber has heard of, as messages or as told gaps, up to this one.
async fn heard_up_to(subscriber: &mut Subscriber, origin: &str, last: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut messages, mut missed) = (Vec::new(), Vec::new());
    while messages.last().max(missed.last()).is_none_or(|seq| *seq < last) {
        let event = subscriber.next().await;
        match event.kind.as_str() {
            "message" if event.origin() == origin => messages.push(event.seq()),
            "gap" if event.origin() == origin => {
                let edge = |name: &str| event.data[name].as_u64().expect("a number");
                missed.extend(edge("from")..=edge("to"));
            }
            "message" | "epoch" => {}
            other => panic!("{other}: {event:?}"),
        }
    }
    (messages, missed)
}

#[tokio::test]
async fn what_was_published_while_the_middle_node_was_dead_is_recovered() {
    let mut line = network(3, &[(0, 1), (2, 1)]).await;
    let mut far = Subscriber::open(&line[2], "chat", "").await;
    for _ in 0..5 {
        line[0].publish("chat", "before").await;
    }
    assert_eq!(far.messages(5).await.last().map(|message| message.seq()), Some(5));

    line[1].end(Signal::KILL).await;
    let gone = async |node: &Member, id: &str| {
        eventually("the loss of a session", async || {
            let peer = node.peer(id).await?;
            (peer["state"] != "connected").then_some(())
        })
        .await;
    };
    gone(&line[0], &line[1].id).await;
    let lost = line[0].publish("chat", "during").await;
    assert!(lost["peers"].as_array().expect("a list").iter().all(|peer| peer["outcome"] != "sent"), "{lost}");
    for _ in 0..4 {
        line[0].publish("chat", "during").await;
    }
    let id = line[1].id.clone();
    line[1].start().await;
    line[0].wait_connected(&id).await;
    line[2].wait_connected(&id).await;
    line[0].publish("chat", "after").await;

    let origin = line[0].id.clone();
    let (messages, missed) = heard_up_to(&mut far, &origin, 11).await;
    assert_eq!((messages, missed), ((6..=11).collect(), Vec::new()), "the first node still has them all");
}

#[tokio::test]
async fn what_a_small_ring_let_go_while_the_middle_of_five_was_dead_is_told_as_a_gap() {
    let links = [(0, 1), (1, 2), (3, 2), (4, 3)];
    let mut line = network_with(5, &links, "[overlay]\nring_bytes = \"1 MiB\"\n").await;
    let mut far = Subscriber::open(&line[4], "chat", "").await;
    line[0].publish("chat", "before").await;
    assert_eq!(far.messages(1).await[0].seq(), 1);
    line[2].end(Signal::KILL).await;
    let id = line[2].id.clone();
    eventually("the loss of a session", async || {
        let peer = line[1].peer(&id).await?;
        (peer["state"] != "connected").then_some(())
    })
    .await;
    let count = 40;
    for _ in 0..count {
        line[0].publish("chat", vec![1; 60_000]).await;
    }
    line[2].start().await;
    line[1].wait_connected(&id).await;
    line[3].wait_connected(&id).await;
    line[0].publish("chat", "after").await;
    let last = count + 2;
    let (messages, missed) = heard_up_to(&mut far, &line[0].id.clone(), last).await;
    assert!(!missed.is_empty() && messages.len() > 1, "{} came, {missed:?} did not", messages.len());
    let mut all = [missed.clone(), messages].concat();
    all.sort_unstable();
    assert_eq!(all, (2..=last).collect::<Vec<_>>(), "each number came, or was told as lost, once");
    assert!(missed.iter().all(|seq| *seq < last - 1), "what the rings held came: {missed:?}");
}

#[tokio::test]
async fn an_origin_that_was_killed_keeps_its_id_and_begins_a_new_epoch() {
    let mut pair = network(2, &[(1, 0)]).await;
    let mut subscriber = Subscriber::open(&pair[1], "chat", "").await;
    let first = pair[0].publish("chat", "first life").await;
    let heard = subscriber.messages(1).await.remove(0);
    assert_eq!((heard.seq(), &heard.data["epoch"]), (1, &first["epoch"]));

    pair[0].end(Signal::KILL).await;
    pair[0].start().await;
    let id = pair[0].id.clone();
    pair[1].wait_connected(&id).await;
    let second = pair[0].publish("chat", "second life").await;
    assert_eq!((&second["origin"], &second["seq"]), (&json!(id), &json!(1)), "its numbers begin again");
    assert!(second["epoch"].as_u64() > first["epoch"].as_u64(), "{first} {second}");
    assert_ne!(second["msg_id"], first["msg_id"]);

    let epoch = subscriber.next().await;
    assert_eq!((epoch.kind.as_str(), epoch.origin(), &epoch.data["epoch"]), ("epoch", id.as_str(), &second["epoch"]));
    let heard = subscriber.messages(1).await.remove(0);
    assert_eq!((heard.seq(), heard.payload()), (1, b"second life".to_vec()));
}

#[tokio::test]
async fn a_subscriber_that_comes_back_is_told_of_the_new_life_and_gets_all_of_it() {
    let mut pair = network(2, &[(1, 0)]).await;
    let mut witness = Subscriber::open(&pair[1], "chat", "").await;
    for _ in 0..10 {
        pair[0].publish("chat", "first life").await;
    }
    witness.messages(10).await;
    pair[0].end(Signal::KILL).await;
    pair[0].start().await;
    let id = pair[0].id.clone();
    pair[1].wait_connected(&id).await;
    let from = format!("?from={id}:11");
    // At the node itself, which knows nothing of its former life, before it has published anything.
    let mut early = Subscriber::open(&pair[0], "chat", &from).await;
    let mut epoch = Value::Null;
    for _ in 0..3 {
        epoch = pair[0].publish("chat", "second life").await["epoch"].take();
    }
    assert_eq!(witness.next().await.kind, "epoch");
    witness.messages(3).await;
    let [mut at_itself, mut at_other] =
        [Subscriber::open(&pair[0], "chat", &from).await, Subscriber::open(&pair[1], "chat", &from).await];
    for subscriber in [&mut early, &mut at_itself, &mut at_other] {
        let told = subscriber.next().await;
        assert_eq!((told.kind.as_str(), told.origin(), &told.data["epoch"]), ("epoch", id.as_str(), &epoch));
        let numbers: Vec<u64> = subscriber.messages(3).await.iter().map(|message| message.seq()).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }
}

/// Publishes messages of 60 kB one after the other, each when the last was heard; how many found no credit.
async fn talk(from: &Member, subscriber: &mut Subscriber, count: usize) -> usize {
    let mut busy = 0;
    for _ in 0..count {
        let published = from.publish("chat", vec![1; 60_000]).await;
        let peers = published["peers"].as_array().expect("a list");
        busy += peers.iter().filter(|peer| peer["outcome"] == "busy").count();
        // A node that begins anew is given what others still hold as well.
        loop {
            let event = subscriber.next().await;
            if event.kind == "message" && Some(event.seq()) == published["seq"].as_u64() {
                break;
            }
        }
    }
    busy
}

#[tokio::test]
async fn messages_flow_on_when_an_engine_begins_anew_under_a_session() {
    let members = vec![Member::new(), Member::new().with_argument("--chaos")];
    let mut pair = joined(members, &[(1, 0)]).await;
    // More than the credit of a lane, so that what was consumed is told.
    let mut subscriber = Subscriber::open(&pair[1], "chat", "").await;
    assert_eq!(talk(&pair[0], &mut subscriber, 150).await, 0);
    let before = pair[1].process().metric("session_open_total").await;
    let hit = pair[1].process().control("/chaos/kill?task=gossip_engine&share=1").await.json().expect("JSON");
    assert_eq!(hit["hit"].as_array().map(Vec::len), Some(4), "every engine: {hit}");
    eventually("the end of the subscription", async || {
        let event = subscriber.next_or_end().await;
        event.is_none_or(|event| event.kind == "end").then_some(())
    })
    .await;
    pair[1].process().wait_ready().await;
    let mut subscriber = Subscriber::open(&pair[1], "chat", "").await;
    // What was on its way may be lost, and is waited for once.
    talk(&pair[0], &mut subscriber, 150).await;
    assert_eq!(talk(&pair[0], &mut subscriber, 150).await, 0, "it flows as before");
    assert_eq!(pair[1].process().metric("session_open_total").await, before, "in the same session");
}

#[tokio::test]
async fn a_node_with_another_key_than_the_one_named_is_never_connected() {
    let (mut liar, mut caller) = (Member::new(), Member::new());
    let expected = Member::new();
    liar.start().await;
    caller.knows(&format!("{}@{}", expected.id, liar.oap));
    caller.start().await;
    // It has been tried when it waits for the next try.
    eventually("a try that failed", async || {
        let peer = caller.peer(&expected.id).await.expect("it stays configured");
        assert_ne!(peer["state"], "connected", "{peer}");
        (peer["state"] == "backoff").then_some(())
    })
    .await;
    assert!(caller.peer(&liar.id).await.is_none(), "nobody is trusted by address");
    assert_eq!(liar.peers().await, Vec::<Value>::new());

    let reply = caller.ask(Method::POST, "/overlay/peers", &json!({"node_id": liar.id, "addr": liar.oap})).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    caller.wait_connected(&liar.id).await;
}

#[tokio::test]
async fn a_forgetful_node_has_its_key_in_memory_only() {
    let start = async || {
        let options = testkit::Node::options_for(crate::process::BINARY).amnesia();
        options.arg("--services").arg("http,oap,overlay").start().await.expect("a node")
    };
    let id_of = async |node: &testkit::Node| {
        let bearer = format!("Bearer {}", node.token);
        let headers = [("authorization", bearer.as_str())];
        let reply = testkit::ask(node.api, Method::GET, "/overlay/peers", &headers, "").await.expect("an answer");
        reply.json().expect("JSON")["node_id"].as_str().expect("an id").to_owned()
    };
    let (first, second) = (start().await, start().await);
    assert!(!first.data_dir().exists(), "nothing is written");
    assert_ne!(id_of(&first).await, id_of(&second).await);
    assert_eq!(id_of(&first).await, id_of(&first).await);
}
