//! The running mailbox, where only real threads meet: many make the same topic at once, topics go while messages are on
//! their way, and shards are built anew.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::Deadline;

use crate::engine::lock;
use crate::recovery::rebuild;
use crate::running::{RunningMailbox, anybody, name, soon};
use crate::shard::Shard;
use crate::types::{PartKey, TopicName, TopicSettings};
use crate::{Mailbox, MailboxOptions, Outgoing, Receive};

const SENDERS: usize = 8;
const TOPICS: usize = 300;

async fn send(mailbox: &Mailbox, topic: usize) {
    let message = Outgoing { payload: "x".into(), ..Outgoing::default() };
    mailbox.send(&anybody(), &name(&format!("topic{topic}")), message, soon()).await.expect("sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test's senders are tasks of nobody")]
async fn the_first_senders_of_a_topic_all_meet_in_one() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    for topic in 0..TOPICS {
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let mailbox = running.mailbox.clone();
                tokio::spawn(async move { send(&mailbox, topic).await })
            })
            .collect();
        for sender in senders {
            sender.await.expect("it ends");
        }
        let stats = running.mailbox.stats(&name(&format!("topic{topic}")), soon()).await.expect("it exists");
        assert_eq!(stats.total.ready, SENDERS as u64, "all that was acknowledged is in topic{topic}");
    }
    running.stop().await;
}

/// Bytes of messages that the log believes are needed.
fn bytes_live(mailbox: &Mailbox) -> u64 {
    mailbox.engine().opened().expect("open").log.usage().bytes_live
}

async fn until_nothing_is_live(mailbox: &Mailbox) {
    let looking = async {
        while bytes_live(mailbox) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = Deadline::after(Duration::from_secs(20)).run("test", looking).await;
    assert!(ended.is_ok(), "{} bytes are kept for messages that are gone", bytes_live(mailbox));
}

async fn send_to(mailbox: &Mailbox, topic: &str, messages: usize) {
    for _ in 0..messages {
        let message = Outgoing { payload: "gone soon".into(), ..Outgoing::default() };
        mailbox.send(&anybody(), &name(topic), message, soon()).await.expect("sent");
    }
}

/// Two topics whose partitions are with different shards, one for the dead letters of the other; the shard of that one.
async fn jobs_and_grave(mailbox: &Mailbox) -> usize {
    for nth in 0.. {
        let grave = format!("grave{nth}");
        let settings = TopicSettings { dlq: Some(grave.clone()), ..TopicSettings::default() };
        mailbox.create_topic(&name("jobs"), settings, soon()).await.expect("made");
        let owner = |topic: &str| {
            let topic = mailbox.engine().topics.expect(&name(topic)).expect("made").id;
            mailbox.engine().route(PartKey { topic, partition: 0 }).expect("nothing moves")
        };
        if owner("jobs") != owner(&grave) {
            return owner(&grave);
        }
        mailbox.delete_topic(&name("jobs"), soon()).await.expect("deleted");
    }
    unreachable!("some topics are apart")
}

fn grave_of(mailbox: &Mailbox) -> TopicName {
    let jobs = mailbox.topic(&name("jobs")).expect("made");
    jobs.dead_letters.expect("it names one")
}

/// A message dies; before the shard of its dead letters takes a turn, their topic goes.
async fn die_towards_a_topic_that_goes(mailbox: &Mailbox, shard: usize) {
    send_to(mailbox, "jobs", 1).await;
    let receive = Receive { visibility_ms: None, max_messages: 1, max_bytes: 1000, wait_ms: 0, consumer: "c".into() };
    let delivery = mailbox.recv(&anybody(), &name("jobs"), receive, soon()).await.expect("received").remove(0);
    let grave = grave_of(mailbox);
    let engine = Arc::clone(&mailbox.engine);
    let (held, waits) = std::sync::mpsc::sync_channel::<()>(0);
    let (is_held, until_held) = std::sync::mpsc::sync_channel::<()>(0);
    let holder = std::thread::spawn(move || {
        let slot = lock(&engine.shards[shard].shared.slot);
        is_held.send(()).expect("waited for");
        let _ = waits.recv();
        drop(slot);
    });
    until_held.recv().expect("held");
    let nacked = mailbox.nack(vec![delivery.receipt], "no", None, true, soon()).await;
    assert!(nacked[0].is_ok(), "{nacked:?}");
    let (engine, jobs) = (mailbox.engine(), name("jobs"));
    let unbury = |settings: &mut TopicSettings| {
        settings.dlq = None;
        Ok(())
    };
    engine.edit_topic(&jobs, unbury).expect("edited");
    engine.remove_topic(&grave, None).expect("nobody names it");
    assert_eq!(lock(&engine.shards[shard].shared.handovers).len(), 1, "it is on its way");
    drop(held);
    holder.join().expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_on_its_way_to_a_topic_that_has_gone_keeps_no_place_in_the_log() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    let mailbox = running.mailbox.clone();
    let shard = jobs_and_grave(&mailbox).await;
    die_towards_a_topic_that_goes(&mailbox, shard).await;
    until_nothing_is_live(&mailbox).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shard_that_is_built_anew_keeps_no_place_for_what_has_gone_meanwhile() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    let mailbox = running.mailbox.clone();
    send_to(&mailbox, "passing", 3).await;
    send_to(&mailbox, "kept", 2).await;
    let engine = Arc::clone(&mailbox.engine);
    let passing = engine.topics.expect(&name("passing")).expect("made");
    let index = engine.route(PartKey { topic: passing.id, partition: 0 }).expect("nothing moves");
    // The shard broke before it heard of it.
    engine.topics.remove(passing.id);
    let before = bytes_live(&mailbox);
    rebuild(Arc::clone(&engine), index).await.expect("built");
    let after = bytes_live(&mailbox);
    assert!(after > 0 && after * 5 <= before * 2, "{before} bytes of five messages, {after} of two");
    let stats = mailbox.stats(&name("kept"), soon()).await.expect("it is there");
    assert_eq!(stats.total.ready, 2);
    mailbox.purge(&name("kept"), soon()).await.expect("purged");
    until_nothing_is_live(&mailbox).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn topics_that_are_gone_are_forgotten_by_all_shards() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    let mailbox = running.mailbox.clone();
    let wide = TopicSettings { partitions: 16, ..TopicSettings::default() };
    for nth in 0..50 {
        let topic = format!("topic{nth}");
        mailbox.create_topic(&name(&topic), wide.clone(), soon()).await.expect("made");
        send_to(&mailbox, &topic, 5).await;
        let change = |settings: &mut TopicSettings| {
            settings.max_attempts = 9;
            Ok(())
        };
        mailbox.edit_topic(&name(&topic), change, soon()).await.expect("edited");
    }
    crate::rebalancer::rebalance(mailbox.engine(), 3).await.expect("moved");
    for nth in 0..50 {
        mailbox.delete_topic(&name(&format!("topic{nth}")), soon()).await.expect("deleted");
    }
    until_nothing_is_live(&mailbox).await;
    for (index, handle) in mailbox.engine().shards.iter().enumerate() {
        let slot = lock(&handle.shared.slot);
        let known = slot.shard.as_ref().map_or(0, Shard::topics_known) + slot.pending.topics_seen();
        assert_eq!(known, 0, "shard {index}");
    }
    running.stop().await;
}
