//! Killed with SIGKILL again and again under load: the checker finds nothing lost, returned or out of order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::{Delivered, MailboxClient, MailboxError, Outgoing, Take};
use tokio::task::JoinSet;

use crate::mailbox::Dice;
use crate::mailbox::checker::{Broken, Delivery, Event, History, Key};
use crate::process::{BINARY, Process, command, run, run_arguments};
use crate::{alone, client};
use testkit::{PATIENCE_MAX as PATIENCE, eventually};

const GROUPS: u64 = 4;
const DOOMED_ATTEMPTS: u32 = 2;
/// Sends that are answered in each life.
const SENDS_MIN: usize = 20;
/// Small segments, so that they are rolled, reclaimed and made ahead while the node is killed.
const CONFIG: &str = "[mailbox]\nready_shards = 3\nsegment_bytes = \"2MiB\"\n";

/// What a sender's messages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// In lines whose order counts.
    Lines,
    /// Held back for a while.
    Later,
    /// Failed until they are dead, then moved back and acknowledged.
    Doomed,
}

impl Kind {
    fn topic(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Lines => "lines",
            Kind::Later => "later",
            Kind::Doomed => "doomed",
        }
    }
}

/// One life of the node as its clients see it.
#[derive(Clone)]
struct Life {
    api: SocketAddr,
    token: Arc<str>,
    history: Arc<History>,
}

impl Life {
    async fn client(&self) -> Option<MailboxClient> {
        MailboxClient::connect(self.api, &self.token).await.ok()
    }
}

/// Sends one message after the other; one without an answer is sent again, in the next life if need be.
struct Sender {
    kind: Kind,
    next: Key,
    bytes_max: u64,
    dice: Dice,
}

impl Sender {
    fn new(sender: u32, kind: Kind, bytes_max: u64) -> Sender {
        Sender { kind, next: Key { sender, number: 1 }, bytes_max, dice: Dice::new() }
    }

    async fn live(&mut self, life: &Life) {
        let Some(mut client) = life.client().await else { return };
        loop {
            let key = self.next;
            // The same payload each time: an idempotency key stands for one content.
            let length = key.number.wrapping_mul(0x9e37_79b9) % self.bytes_max;
            let payload = format!("{}.{}.{}", key.sender, key.number, "x".repeat(length as usize));
            let idem_key = format!("{}-{}", key.sender, key.number);
            let group = format!("g{}", key.number % GROUPS);
            let message = Outgoing {
                topic: self.kind.topic(),
                payload: payload.as_bytes(),
                idem_key: Some(&idem_key),
                group: (self.kind == Kind::Lines).then_some(group.as_str()),
                delay_ms: (self.kind == Kind::Later).then(|| self.dice.roll(0, 300)),
            };
            life.history.note(Event::Sending(key));
            match client.send(message).await {
                Ok(sent) => {
                    assert_eq!(sent.durability, "fsynced");
                    life.history.note(Event::Sent(key, sent.msg_id));
                    self.next.number += 1;
                }
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(_) => return,
            }
        }
    }
}

/// The node asked to come back later. Anything else that is not the end of a connection fails the test.
fn is_passing(error: &MailboxError) -> bool {
    match error {
        MailboxError::Call(_) => false,
        MailboxError::Refused(reply) => {
            assert!(matches!(reply.status, 429 | 503), "{error}");
            true
        }
    }
}

/// What a receiver does about a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Ack,
    Nack,
    Forget,
}

/// Receives from one topic and settles, now and then badly.
struct Receiver {
    topic: &'static str,
    failed: BTreeMap<Key, u32>,
    dice: Dice,
}

impl Receiver {
    fn new(topic: &'static str) -> Receiver {
        Receiver { topic, failed: BTreeMap::new(), dice: Dice::new() }
    }

    fn decide(&mut self, key: Key) -> Deed {
        let failed = self.failed.entry(key).or_insert(0);
        let deed = match self.topic {
            "doomed" if *failed < DOOMED_ATTEMPTS => Deed::Nack,
            "doomed" => Deed::Ack,
            _ if *failed > 0 => Deed::Ack,
            _ => match self.dice.roll(0, 24) {
                0 => Deed::Nack,
                1 => Deed::Forget,
                _ => Deed::Ack,
            },
        };
        *failed += u32::from(deed != Deed::Ack);
        deed
    }

    async fn live(&mut self, life: &Life) {
        let Some(mut client) = life.client().await else { return };
        let take = Take { max: 10, visibility_ms: 600, wait_ms: 100 };
        loop {
            match self.turn(&mut client, &life.history, take).await {
                Ok(_) => {}
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(_) => return,
            }
        }
    }

    /// One receive with everything that follows; how many messages it brought.
    async fn turn(&mut self, client: &mut MailboxClient, history: &History, take: Take) -> Result<usize, MailboxError> {
        let asked_at = history.len();
        let messages = client.recv(self.topic, take).await?;
        let keys: Vec<Key> = messages.iter().map(|message| seen(message, asked_at, history)).collect();
        let deeds: Vec<Deed> = keys.iter().map(|key| self.decide(*key)).collect();
        let with = |deed: Deed| -> Vec<(Key, &Delivered)> {
            let all = keys.iter().zip(&messages).zip(&deeds);
            all.filter(|(_, done)| **done == deed).map(|((key, message), _)| (*key, message)).collect()
        };
        let nacked = with(Deed::Nack);
        if !nacked.is_empty() {
            let receipts: Vec<&str> = nacked.iter().map(|(_, message)| message.receipt.as_str()).collect();
            client.nack(&receipts, "on purpose", Some(20)).await?;
        }
        ack(client, history, &with(Deed::Ack)).await?;
        Ok(messages.len())
    }
}

fn seen(message: &Delivered, asked_at: usize, history: &History) -> Key {
    let text = message.text();
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    let (sender, number) = (parts.next().flatten(), parts.next().flatten());
    let key = Key {
        sender: sender.and_then(|sender| sender.try_into().ok()).expect("a sender of ours"),
        number: number.expect("a number of ours"),
    };
    assert_eq!(message.idem_key, Some(format!("{}-{}", key.sender, key.number)), "payload and key belong together");
    let (msg_id, fence, group) = (message.msg_id.clone(), message.fence, message.group.clone());
    history.note(Event::Delivered(Delivery { key, msg_id, fence, group, asked_at }));
    key
}

async fn ack(
    client: &mut MailboxClient,
    history: &History,
    messages: &[(Key, &Delivered)],
) -> Result<(), MailboxError> {
    if messages.is_empty() {
        return Ok(());
    }
    let receipts: Vec<&str> = messages.iter().map(|(_, message)| message.receipt.as_str()).collect();
    for (key, _) in messages {
        history.note(Event::Acking(*key));
    }
    let results = match client.ack(&receipts).await {
        Ok(results) => results,
        Err(error) => {
            // A refusal says that nothing was done; without an answer nobody knows.
            let refused = error.status().is_some();
            messages.iter().filter(|_| refused).for_each(|(key, _)| _ = history.note(Event::AckRefused(*key)));
            return Err(error);
        }
    };
    for ((key, message), accepted) in messages.iter().zip(results) {
        history.note(if accepted { Event::Acked(*key, message.fence) } else { Event::AckRefused(*key) });
    }
    Ok(())
}

/// Moves dead letters back until the node is gone.
async fn redrive(life: &Life) {
    let Some(mut client) = life.client().await else { return };
    loop {
        tokio::time::sleep(Duration::from_millis(60)).await;
        match client.post("/v1/dlq/doomed/reprocess", &json!({})).await {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(_) => return,
        }
    }
}

async fn make_topics(node: &Process) {
    let mut client = client(node).await;
    let quick = json!({ "backoff_base_ms": 10, "backoff_max_ms": 50 });
    let doomed = json!({ "max_attempts": DOOMED_ATTEMPTS, "backoff_base_ms": 10, "backoff_max_ms": 50 });
    let unending = json!({ "max_attempts": 0, "backoff_base_ms": 10, "backoff_max_ms": 50 });
    let lines = json!({ "max_attempts": 0, "groups": "fifo" });
    for (topic, settings) in [("plain", &quick), ("lines", &lines), ("later", &unending), ("doomed", &doomed)] {
        client.topic(topic, settings).await.expect("made");
    }
}

/// Takes everything out of every topic and acknowledges it.
async fn take_out_everything(node: &Process, history: &History) {
    let mut client = client(node).await;
    let topics = ["plain", "plain.dlq", "lines", "later", "doomed", "doomed.dlq"];
    let end = Instant::now() + PATIENCE;
    loop {
        let mut left = 0;
        for topic in topics {
            left += client.held(topic).await.expect("counted");
            let asked_at = history.len();
            let take = Take { max: 100, visibility_ms: 5_000, wait_ms: 0 };
            let messages = client.recv(topic, take).await.expect("received");
            let messages: Vec<_> = messages.iter().map(|message| (seen(message, asked_at, history), message)).collect();
            ack(&mut client, history, &messages).await.expect("acknowledged");
        }
        if left == 0 {
            return;
        }
        assert!(Instant::now() < end, "{left} messages do not come out");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Lets everybody work for a while, then kills the node in mid-work.
async fn one_life(
    node: &mut Process,
    history: &Arc<History>,
    senders: &mut Vec<Sender>,
    receivers: &mut Vec<Receiver>,
    lasts: Duration,
) {
    let life = Life { api: node.api, token: node.token.as_str().into(), history: Arc::clone(history) };
    let (mut sending, mut receiving, mut moving) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for mut sender in senders.drain(..) {
        let life = life.clone();
        sending.spawn(async move {
            sender.live(&life).await;
            sender
        });
    }
    for mut receiver in receivers.drain(..) {
        let life = life.clone();
        receiving.spawn(async move {
            receiver.live(&life).await;
            receiver
        });
    }
    moving.spawn(async move { redrive(&life).await });
    let before = history.judge().sent;
    tokio::time::sleep(lasts).await;
    // On a slow machine a life takes longer than that: a kill is to meet a node at work.
    eventually("load", async || (history.judge().sent > before + SENDS_MIN).then_some(())).await;
    node.signal(Signal::KILL);
    node.wait_exit().await;
    senders.extend(sending.join_all().await);
    receivers.extend(receiving.join_all().await);
    moving.join_all().await;
}

/// Kills a node that has just been started and may be reading its log.
async fn stillborn(folder: &Path, arguments: &[String], lasts: Duration) {
    let mut prepared = command(BINARY, folder);
    prepared.args(arguments);
    let mut node = Process::spawn(prepared, folder);
    tokio::time::sleep(lasts).await;
    node.signal(Signal::KILL);
    node.wait_exit().await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_node_is_killed_again_and_again() {
    let _alone = alone().await;
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    let config = here.join("macronode.toml");
    std::fs::write(&config, CONFIG).expect("written");
    let more = ["--config", config.to_str().expect("text")];
    let arguments = [run_arguments(&data), more.map(str::to_owned).to_vec()].concat();
    let history = Arc::new(History::default());
    let kinds =
        [(Kind::Plain, 300), (Kind::Plain, 16_000), (Kind::Lines, 300), (Kind::Later, 2_000), (Kind::Doomed, 99)];
    let mut senders: Vec<Sender> =
        (1..).zip(kinds).map(|(number, (kind, bytes_max))| Sender::new(number, kind, bytes_max)).collect();
    let mut receivers: Vec<Receiver> = ["plain", "lines", "lines", "later", "doomed"].map(Receiver::new).into();
    let mut dice = Dice::new();

    let rounds = if testkit::soak() { 200 } else { 8 };
    for round in 0..rounds {
        let mut node = Process::start(here, &data, &more).await;
        if round == 0 {
            make_topics(&node).await;
        }
        let lasts = Duration::from_millis(dice.roll(50, 400));
        one_life(&mut node, &history, &mut senders, &mut receivers, lasts).await;
        if round % 4 == 3 {
            stillborn(here, &arguments, Duration::from_millis(dice.roll(10, 150))).await;
        }
    }
    let mut node = Process::start(here, &data, &more).await;
    let damaged = node.metric(r#"integrity_fail_total{reason="recovery"}"#).await;
    take_out_everything(&node, &history).await;
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());

    let verdict = history.judge();
    println!("kill -9, {rounds} rounds: {verdict:?}");
    assert_eq!(verdict.broken, Broken::default());
    assert_eq!(damaged, 0.0, "a kill damages no record");
    assert!(verdict.duplicated > 0, "messages did come again: {verdict:?}");
    run(here, &["mailbox", "verify", "--data-dir", data.to_str().expect("text")]).await.expect(0, &[]);
}
