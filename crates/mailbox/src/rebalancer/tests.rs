//! What holds after partitions have moved, and what becomes of a move that fails.

use bytes::Bytes;
use ron_log::SimDisk;

use super::*;
use crate::running::{RunningMailbox, name, soon};
use crate::shard::Send;
use crate::stage::Stage;
use crate::types::{Dedup, Millis, PartKey, TopicName, TopicSettings};
use crate::{LiveOptions, MailboxOptions};

const MESSAGES: usize = 60;

impl RunningMailbox {
    fn wanted(&self, ready_shards: usize) {
        self.live.publish(LiveOptions { ready_shards, ..LiveOptions::default() });
    }

    async fn until_shards(&self, shards: usize) {
        let mut routing = self.engine().routing.watch();
        let moved = async {
            loop {
                let now = self.engine().routing.get().value;
                if now.shards == shards && !now.moving {
                    return;
                }
                routing.changed().await.expect("the mailbox runs");
            }
        };
        soon().run("test", moved).await.expect("the partitions move");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_move_all_shards_say_what_they_hold_and_when_it_is_due() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    running.create("leased", TopicSettings { partitions: 16, ..TopicSettings::default() }).await;
    running.create("later", TopicSettings { partitions: 16, ..TopicSettings::default() }).await;
    for _ in 0..MESSAGES {
        running.send("leased", 0).await;
        running.send("later", 600_000).await;
    }
    let mut leased = 0;
    while leased < MESSAGES {
        leased += running.recv("leased", 0).await.len();
    }
    let engine = running.engine();
    for shards in [8, 1, 3] {
        running.wanted(shards);
        running.until_shards(shards).await;
        for (index, handle) in engine.shards.iter().enumerate() {
            let slot = lock(&handle.shared.slot);
            let shard = slot.shard.as_ref().expect("it is open");
            let (totals, numbers) = (shard.totals(), *lock(&handle.shared.numbers));
            let said = (numbers.leased, numbers.delayed, engine.deadlines.borrow()[index]);
            let next = shard.next_deadline().unwrap_or(Millis::MAX);
            assert_eq!(said, (totals.leased, totals.delayed, next), "shard {index} of {shards}");
        }
        assert_eq!(engine.leased(), MESSAGES as u64, "{shards} shards");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_fails_is_tried_again_by_itself() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    let engine = running.engine();
    let (mut versions, before) = (engine.routing.watch(), engine.routing.get().version);
    // A shard that cannot be moved, because it is not there.
    let shard = lock(&engine.shards[7].shared.slot).shard.take();
    running.wanted(5);
    // Two versions later the partitions were on the move, and are no longer: where they were.
    let failed = versions.wait_for(|version| *version >= before + 2);
    soon().run("test", failed).await.expect("in time").expect("the mailbox runs");
    assert_ne!(engine.routing.get().value.shards, 5);
    lock(&engine.shards[7].shared.slot).shard = shard;
    running.until_shards(5).await;
    running.create("t", TopicSettings::default()).await;
    running.send("t", 0).await;
    assert_eq!(running.recv("t", 10_000).await.len(), 1);
    running.stop().await;
}

/// A message in each partition of each topic.
fn fill(stage: &Stage, topics: &[TopicName], partitions: u16) {
    for topic in topics {
        let first = stage.make_topic(topic.as_str(), TopicSettings { partitions, ..TopicSettings::default() });
        for partition in 0..partitions {
            let part = PartKey { partition, ..first };
            let seq = stage.engine().numbers.next();
            let sent = stage.on_part(part, move |turn| {
                let (group, key, dedup, delay_ms) = (None, None, Dedup::Topic, None);
                let (now, body) = (turn.now, Bytes::from_static(b"x"));
                turn.shard.send(now, turn.journal, Send { part, group, key, dedup, delay_ms, sent_ms: now, seq, body })
            });
            sent.expect("there is room");
        }
    }
}

/// Whatever the moment in which a topic goes, every shard lets go of what it has of it.
#[tokio::test]
async fn a_topic_that_goes_while_partitions_move_is_gone_everywhere() {
    const ROUNDS: u32 = 12;
    for round in 0..ROUNDS {
        let stage = Stage::open(Arc::new(SimDisk::new(1)), MailboxOptions::default(), 1);
        let topics: Vec<TopicName> = (0..10).map(|number| name(&format!("t{number}"))).collect();
        fill(&stage, &topics, 64);
        let engine = stage.engine();
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| move_parts(engine, SHARDS_MAX));
            // All shards are held from soon after this on to the end of the move.
            while engine.shards[0].shared.slot.try_lock().is_ok() && !moving.is_finished() {}
            for topic in &topics {
                (0..round * 10_000).for_each(|_| std::hint::spin_loop());
                engine.remove_topic(topic, None).expect("nobody uses it");
            }
            moving.join().expect("no panic").expect("all shards are there");
        });
        for index in 0..SHARDS_MAX {
            let left = stage.turn(index, |turn| turn.shard.parts().count()).expect("the shard is free");
            assert_eq!(left, 0, "partitions of topics that are gone, at shard {index} in round {round}");
        }
    }
}
