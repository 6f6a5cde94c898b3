//! What may happen while the log is being tidied: messages and partitions change hands, topics are told behind them.

use ron_log::SimDisk;

use super::check::check;
use super::workloads::{make_topics, settings};
use super::world::{TestMessage, World, routing};
use crate::moves::MoveOrder;
use crate::types::{PartKey, Seq, TopicSettings};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A message in the oldest segment, which is worth reclaiming.
fn old_message(world: &mut World, topic: &str) -> Seq {
    let old = world.send(topic, TestMessage { len: 200, ..TestMessage::default() });
    for _ in 0..12 {
        world.send("fair", TestMessage { len: 1_800, ..TestMessage::default() });
        world.flush().unwrap();
        let given = world.recv(world.part("fair", 0), 1, 60_000);
        given.into_iter().for_each(|seq| world.ack(seq));
    }
    world.flush().unwrap();
    assert!(world.log.reclaimable().is_some(), "there is something to reclaim");
    old
}

fn owner(world: &World, part: PartKey) -> usize {
    world.routing.shard_of(part)
}

/// The number of shards for which `first` is with an earlier shard than `second`.
fn shards_in_order(first: PartKey, second: PartKey) -> usize {
    let is_so = |shards: &usize| routing(*shards).shard_of(first) < routing(*shards).shard_of(second);
    (2..=8).find(is_so).expect("some number of shards parts them")
}

#[test]
fn a_message_that_dies_between_the_questions_is_not_lost_with_its_segment() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    let (grave, jobs) = (world.part("grave", 0), world.part("jobs", 0));
    world.rebalance(shards_in_order(grave, jobs)).unwrap();
    let old = old_message(&mut world, "jobs");
    assert_eq!(world.recv(jobs, 1, 600_000), [old]);
    let asked_last = owner(&world, jobs);
    let mut has_died = false;
    while world
        .compact_with(&mut |world, index| {
            // The shard of the grave has been asked, the one that has the message has not.
            if index == asked_last && !has_died {
                world.nack(old, 0, true);
                has_died = true;
            }
        })
        .unwrap()
    {}
    assert!(has_died);
    let (world, _) = check(&disk.crash(0), &world.memory, 2, "died while the segment was given back");
    assert_eq!(world.held(grave), [old]);
}

#[test]
fn a_partition_that_moves_between_the_questions_is_not_lost_with_its_segment() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    let jobs = world.part("jobs", 0);
    let shards = (2..=8).find(|shards| routing(*shards).shard_of(jobs) > 0).expect("some number of shards");
    world.rebalance(shards).unwrap();
    let key = Some(5);
    world.send("jobs", TestMessage { key, ..TestMessage::default() });
    let settled = world.recv(jobs, 1, 1_000);
    settled.into_iter().for_each(|seq| world.ack(seq));
    let old = old_message(&mut world, "jobs");
    let mut has_moved = false;
    while world
        .compact_with(&mut |world, index| {
            if index == 1 && !has_moved {
                world.rebalance(1).unwrap();
                has_moved = true;
            }
        })
        .unwrap()
    {}
    assert!(has_moved);
    let (mut world, _) = check(&disk.crash(0), &world.memory, 2, "moved while the segment was given back");
    assert_eq!(world.held(jobs), [old]);
    // The key of a settled message is known too; the send asserts it.
    world.send("jobs", TestMessage { key, ..TestMessage::default() });
}

#[test]
fn rules_written_again_behind_the_messages_hold_from_the_start() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    world.put_topic("long", TopicSettings { retention_ms: 14 * DAY_MS, dlq: Some("grave".to_owned()), ..settings() });
    let long = world.part("long", 0);
    old_message(&mut world, "fair");
    let kept = world.send("long", TestMessage::default());
    world.flush().unwrap();
    assert!(world.compact().unwrap(), "the topics are written again");
    let mut memory = world.memory;
    // Longer than a topic keeps messages that says nothing about it.
    memory.now += 5 * DAY_MS;
    let (mut world, _) = check(&disk.crash(0), &memory, 2, "topics behind their messages");
    // Nobody has asked for the topic yet, so nobody has told the shard its rules again.
    world.tick();
    assert_eq!(world.recv(long, 1, 1_000), [kept]);
    world.nack(kept, 0, true);
    world.flush().unwrap();
    let (world, _) = check(&disk.crash(0), &memory, 2, "reopened");
    assert_eq!(world.held(long), [kept]);
}

#[test]
fn numbers_are_never_given_out_again_although_every_record_of_them_is_gone() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    old_message(&mut world, "fair");
    let given = world.recv(world.part("fair", 0), 10, 60_000);
    given.into_iter().for_each(|seq| world.ack(seq));
    world.flush().unwrap();
    for _ in 0..40 {
        // Records without a body fill the last segment that tells of sends.
        world.put_topic("fair", settings());
        world.flush().unwrap();
    }
    while world.compact().unwrap() {}
    assert_eq!(world.log.usage().segments, 1);
    check(&disk.crash(0), &world.memory, 2, "only rules are left");
}

#[test]
fn the_number_of_a_topic_that_is_gone_is_never_given_again_although_every_record_of_it_is_gone() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    world.put_topic("passing", settings());
    let gone = world.topic("passing").id;
    world.remove_topic("passing");
    world.flush().unwrap();
    old_message(&mut world, "brief");
    while world.compact().unwrap() {}
    for _ in 0..2 {
        let (again, _) = check(&disk.crash(0), &world.memory, 2, "the topic and its end are compacted away");
        world = again;
        let planned = world.topics.plan_new(&"next".parse().unwrap(), settings(), None).unwrap().expect("new");
        assert!(planned.id > gone, "{:?} was {gone:?}'s", planned.id);
    }
}

#[test]
fn moves_of_a_topic_that_is_gone_are_forgotten_although_the_record_that_made_it_went_before_them() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    world.put_topic("passing", settings());
    let gone = world.topic("passing").id;
    old_message(&mut world, "brief");
    let order = MoveOrder::all_of("passing".parse().unwrap());
    world.change_moves(gone, |_, id| order.task(id, 0, 1, false));
    world.remove_topic("passing");
    world.flush().unwrap();
    assert!(world.compact().unwrap(), "the segment of the topics goes, that of the move stays");
    let (world, _) = check(&disk.crash(0), &world.memory, 2, "the topic is compacted away, its move is not");
    assert_eq!(world.topics.moves.topics(), [], "nobody can end them, and they would be written again for ever");
}

#[test]
fn a_shard_learns_the_rules_of_the_partitions_it_gets() {
    let disk = SimDisk::new(1);
    let mut world = World::new(&disk).unwrap();
    make_topics(&mut world).unwrap();
    let fair = world.part("fair", 0);
    let apart = (2..=8).find(|shards| routing(*shards).shard_of(fair) > 0).expect("some number of shards");
    world.rebalance(apart).unwrap();
    let kept = world.send("fair", TestMessage::default());
    world.rebalance(1).unwrap();
    world.put_topic("fair", TopicSettings { retention_ms: 10 * DAY_MS, ..settings() });
    // Back to a shard that has heard only of the old rules.
    world.rebalance(apart).unwrap();
    world.advance(DAY_MS);
    world.tick();
    assert_eq!(world.recv(fair, 1, 1_000), [kept]);
}
