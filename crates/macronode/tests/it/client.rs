//! The Rust client on the real process: what many tasks send, receive and acknowledge through one of them, also while
//! the node is killed.

use std::collections::HashSet;
use std::time::Duration;

use macronode_client::{Durability, Error, Mailbox, Message, Options, Receive};
use ron_kernel::Deadline;
use rustix::process::Signal;
use testkit::{Node, PATIENCE_MAX, Plane, own_address};

use crate::options;
use tokio::task::JoinSet;

use crate::process::{BINARY, Process, command, run_arguments};

async fn connect(node: &Node) -> Mailbox {
    let token = std::fs::read_to_string(node.data_dir().join("operator.token")).expect("a token");
    let options = Options::new(format!("http://{}", node.address(Plane::Api)), token);
    Mailbox::connect(options).await.expect("the node listens")
}

/// Takes everything and acknowledges it, from eight tasks.
async fn drain(mailbox: &Mailbox, topic: &'static str) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let mailbox = mailbox.clone();
        tasks.spawn(async move {
            let mut seen = Vec::new();
            loop {
                let messages = mailbox.receive(topic, Receive::up_to(10)).await.expect("received");
                if messages.is_empty() {
                    return seen;
                }
                for message in messages {
                    mailbox.ack(&message.receipt).await.expect("acknowledged");
                    seen.push(String::from_utf8(message.payload.to_vec()).expect("text"));
                }
            }
        });
    }
    tasks.join_all().await.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_a_client_and_each_has_its_own_answer() {
    let node = options().start().await.expect("a node");
    let mailbox = connect(&node).await;
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let mailbox = mailbox.clone();
        tasks.spawn(async move {
            for number in 0..20 {
                let sent = mailbox.send("orders", format!("{task}-{number}")).await.expect("sent");
                assert_eq!((sent.durability, sent.duplicate), (Durability::Fsynced, false));
            }
        });
    }
    tasks.join_all().await;
    let seen = drain(&mailbox, "orders").await;
    let expected: HashSet<String> = (0..64).flat_map(|task| (0..20).map(move |n| format!("{task}-{n}"))).collect();
    assert_eq!((seen.len(), seen.into_iter().collect::<HashSet<_>>()), (expected.len(), expected));
    let requests = node.metric(r#"request_latency_seconds_count{endpoint="/v1/send:batch",method="POST"}"#).await;
    assert!(requests > 0.0 && requests < 1280.0, "{requests} requests carried 1280 sends");
}

#[tokio::test]
async fn a_message_is_all_that_was_given() {
    let node = options().start().await.expect("a node");
    let mailbox = connect(&node).await;
    let message = Message {
        idem_key: Some("k1".to_owned()),
        attrs: [("colour".to_owned(), "red".to_owned())].into(),
        group: Some("g".to_owned()),
        ..Message::new("hello")
    };
    let first = mailbox.send("orders", message.clone()).await.expect("sent");
    let again = mailbox.send("orders", message.clone()).await.expect("sent");
    assert_eq!((again.msg_id, again.duplicate), (first.msg_id.clone(), true));
    let other = mailbox.send("orders", Message { payload: "other".into(), ..message.clone() }).await;
    assert_eq!(other.expect_err("another payload").code(), Some("E_DUPLICATE"));

    let hour = Duration::from_secs(3600);
    let received = mailbox.receive("orders", Receive::up_to(10).holding(hour)).await.expect("received");
    let [delivery] = &received[..] else { panic!("{received:?}") };
    assert_eq!((&delivery.msg_id, &delivery.payload, delivery.attempt), (&first.msg_id, &message.payload, 1));
    assert_eq!(
        (&delivery.attrs, &delivery.group, &delivery.idem_key),
        (&message.attrs, &message.group, &message.idem_key)
    );
    mailbox.extend(&delivery.receipt, hour).await.expect("extended");
    mailbox.nack(&delivery.receipt, "not now", Some(Duration::ZERO)).await.expect("given back");
    let again = mailbox.receive("orders", Receive::up_to(10).waiting(Duration::from_secs(5))).await.expect("received");
    assert_eq!(again.first().map(|delivery| delivery.attempt), Some(2), "{again:?}");
    let late = mailbox.ack(&delivery.receipt).await.expect_err("its lease is over");
    assert!(matches!(late, Error::Refused { status: 400..500, .. }), "{late}");
    mailbox.ack(&again[0].receipt).await.expect("acknowledged");
}

#[tokio::test]
async fn a_token_that_does_not_open_says_so() {
    let node = options().start().await.expect("a node");
    let mailbox = Mailbox::connect(Options::new(format!("http://{}", node.address(Plane::Api)), "wrong")).await;
    let refused = mailbox.expect("it listens").send("orders", "x").await.expect_err("a wrong token");
    assert!(matches!(refused, Error::Refused { status: 401, .. }), "{refused}");
}

/// The node of this folder, at this address.
async fn start_at(folder: &std::path::Path, data: &std::path::Path, api: std::net::SocketAddr) -> Process {
    let arguments = run_arguments(data);
    let place = arguments.iter().position(|argument| argument == "--api").expect("it has an address") + 1;
    let mut command = command(BINARY, folder);
    for (number, argument) in arguments.iter().enumerate() {
        command.arg(if number == place { api.to_string() } else { argument.clone() });
    }
    let mut node = Process::spawn(command, folder);
    node.locate(data).await;
    node.wait_ready().await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_with_keys_outlast_a_kill_and_are_there_once() {
    const TASKS: usize = 16;
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let api = own_address();
    let mut node = start_at(folder.path(), &data, api).await;
    let patient =
        Options { patience: Duration::from_secs(30), ..Options::new(format!("http://{api}"), node.token.clone()) };
    let mailbox = Mailbox::connect(patient).await.expect("the node listens");
    let (sent, mut seen) = tokio::sync::watch::channel(0);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (mailbox, sent) = (mailbox.clone(), sent.clone());
        tasks.spawn(async move {
            for number in 0..100 {
                let text = format!("{task}-{number}");
                let message = Message { idem_key: Some(text.clone()), ..Message::new(text) };
                mailbox.send("orders", message).await.expect("sent, now or after the kill");
                sent.send_modify(|sent| *sent += 1);
            }
        });
    }
    for kill in 1..=2 {
        seen.wait_for(|sent| *sent >= kill * 400).await.expect("the tasks run");
        node.signal(Signal::KILL);
        node.wait_exit().await;
        node = start_at(folder.path(), &data, api).await;
    }
    tasks.join_all().await;
    let received = drain(&mailbox, "orders").await;
    let expected: HashSet<String> = (0..TASKS).flat_map(|task| (0..100).map(move |n| format!("{task}-{n}"))).collect();
    assert_eq!((received.len(), received.into_iter().collect::<HashSet<_>>()), (expected.len(), expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_a_consumer_and_nothing_is_lost_by_a_kill() {
    const MESSAGES: usize = 400;
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (data, api) = (folder.path().join("data"), own_address());
    let mut node = start_at(folder.path(), &data, api).await;
    let patient =
        Options { patience: Duration::from_secs(30), ..Options::new(format!("http://{api}"), node.token.clone()) };
    let mailbox = Mailbox::connect(patient).await.expect("the node listens");
    let sends = (0..MESSAGES).map(|number| mailbox.send("orders", number.to_string()));
    futures_util::future::try_join_all(sends).await.expect("sent");

    // A lease that is lost with its node ends soon.
    let consumer = mailbox.consumer("orders", Receive::up_to(20).holding(Duration::from_secs(2)));
    let (seen, mut watched) = tokio::sync::watch::channel((HashSet::new(), HashSet::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (mailbox, consumer, seen) = (mailbox.clone(), consumer.clone(), seen.clone());
        tasks.spawn(async move {
            loop {
                let message = consumer.next().await.expect("a message, now or after the kill");
                seen.send_modify(|(delivered, acked)| {
                    assert!(!acked.contains(&message.payload), "delivered after its acknowledgement");
                    delivered.insert(message.payload.clone());
                });
                if mailbox.ack(&message.receipt).await.is_ok() {
                    seen.send_modify(|(_, acked)| assert!(acked.insert(message.payload), "acknowledged twice"));
                }
            }
        });
    }
    watched.wait_for(|(_, acked)| acked.len() >= MESSAGES / 4).await.expect("the tasks run");
    node.signal(Signal::KILL);
    node.wait_exit().await;
    node = start_at(folder.path(), &data, api).await;
    let all = watched.wait_for(|(delivered, _)| delivered.len() == MESSAGES);
    Deadline::after(PATIENCE_MAX).run("every message", all).await.expect("in time").expect("the tasks run");
    tasks.shutdown().await;
    drop(node);
}
