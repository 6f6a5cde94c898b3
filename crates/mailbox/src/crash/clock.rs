//! A wall clock that is set back or forward expires nothing wrongly, within a run or across a restart.

use std::time::Duration;

use bytes::Bytes;
use ron_log::SimDisk;

use super::memory::Memory;
use super::workloads::settings;
use super::world::{START_MS, TestMessage, World, open, routing};
use crate::clock::{ClockReading, Hold, Steady};
use crate::shard::{Key, Send};
use crate::topics::Topics;
use crate::types::{Dedup, Expired, Millis, State, TopicSettings};

const HOUR_MS: Millis = 3600 * 1000;
const LEASE_MS: u64 = 30_000;

#[tokio::test(start_paused = true)]
async fn within_a_run_only_the_monotonic_clock_moves_it() {
    for (wall_ms, newest_ms) in [(START_MS, 0), (START_MS, START_MS + HOUR_MS), (START_MS + HOUR_MS, START_MS)] {
        // The wall clock is asked once, before the start; whatever it does afterwards is not seen.
        let clock = Steady::start(wall_ms, newest_ms);
        let start_ms = wall_ms.max(newest_ms);
        assert_eq!(clock.now(), start_ms);
        tokio::time::advance(Duration::from_millis(1234)).await;
        assert_eq!(clock.now(), start_ms + 1234);
        assert_eq!(clock.instant(start_ms + 1234), ron_kernel::clock::now());
    }
}

/// A lease, a delayed message, a remembered key, messages kept for half an hour and for two hours; then the power goes.
fn stopped() -> (SimDisk, Memory) {
    let disk = SimDisk::new(4);
    let mut world = World::new(&disk).unwrap();
    let kept = |retention_ms| TopicSettings { retention_ms, replay_window_ms: 2 * HOUR_MS, ..settings() };
    world.put_topic("leased", kept(100 * HOUR_MS));
    world.put_topic("short", TopicSettings { expired: Expired::Drop, ..kept(HOUR_MS / 2) });
    world.put_topic("long", TopicSettings { expired: Expired::Drop, ..kept(2 * HOUR_MS) });
    for topic in ["short", "long"] {
        world.send(topic, TestMessage { key: Some(1), ..TestMessage::default() });
    }
    world.advance(600_000);
    world.send("leased", TestMessage::default());
    let leased = world.part("leased", 0);
    assert_eq!(world.recv(leased, 1, LEASE_MS), [3]);
    world.send("leased", TestMessage { delay_ms: 60_000, ..TestMessage::default() });
    world.flush().unwrap();
    (disk.crash(0), world.memory)
}

/// The mailbox after a restart at this time of the wall clock, and what its own clock says.
fn restarted(disk: &SimDisk, memory: &Memory, wall_ms: Millis) -> World {
    let topics = Topics::default();
    let recovered = open(disk, &topics, 2, wall_ms).unwrap();
    let mut memory = memory.clone();
    memory.now = recovered.opened.clock.now();
    World::resume(recovered, topics, routing(2), memory)
}

/// Whatever the mailbox holds of a topic now: numbers, states and the times they end.
fn held(world: &World, topic: &str) -> Vec<(u64, State, Option<Millis>)> {
    let part = world.part(topic, 0);
    let mut out = Vec::new();
    world.shards[world.routing.shard_of(part)].shard.browse(part, None, 10, &mut out);
    out.iter().map(|one| (one.seq, one.state, one.due_ms)).collect()
}

#[tokio::test(start_paused = true)]
async fn set_back_across_a_restart_no_lease_outlasts_its_grant_and_nothing_is_lost() {
    let (disk, memory) = stopped();
    let newest_ms = memory.now;
    let mut world = restarted(&disk, &memory, newest_ms - HOUR_MS);
    assert_eq!(world.now, newest_ms, "time goes on from the newest record");
    world.tick();
    assert_eq!(
        held(&world, "leased"),
        [(3, State::Leased, Some(newest_ms + LEASE_MS)), (4, State::Delayed, Some(newest_ms + 60_000))]
    );
    assert_eq!((held(&world, "short").len(), held(&world, "long").len()), (1, 1));
    // The keys are known; the sends assert it.
    world.send("short", TestMessage { key: Some(1), ..TestMessage::default() });
    world.send("long", TestMessage { key: Some(1), ..TestMessage::default() });
    world.advance(LEASE_MS);
    world.tick();
    assert_eq!(held(&world, "leased")[0], (3, State::Ready, None), "granted for so long and no longer");
    world.advance(LEASE_MS);
    assert_eq!(world.recv(world.part("leased", 0), 2, LEASE_MS), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn set_forward_across_a_restart_leases_end_and_only_what_is_over_its_time_goes() {
    let (disk, memory) = stopped();
    let mut world = restarted(&disk, &memory, memory.now + HOUR_MS);
    assert_eq!(world.now, memory.now + HOUR_MS);
    world.tick();
    // At least once: the lease is over, the message comes again, and nothing is gone but what an hour makes too old.
    assert_eq!(held(&world, "leased"), [(3, State::Ready, None), (4, State::Ready, None)]);
    assert_eq!((held(&world, "short").len(), held(&world, "long").len()), (0, 1));
    world.send("long", TestMessage { key: Some(1), ..TestMessage::default() });
    let given = world.recv(world.part("leased", 0), 2, LEASE_MS);
    assert_eq!(given, [3, 4]);
    given.into_iter().for_each(|seq| world.ack(seq));
}

#[tokio::test(start_paused = true)]
async fn set_back_again_and_again_time_never_goes_back() {
    let (disk, memory) = stopped();
    let mut memory = memory;
    let mut last_ms = memory.now;
    for _ in 0..3 {
        let mut world = restarted(&disk, &memory, last_ms - HOUR_MS);
        assert!(world.now >= last_ms);
        world.advance(1_000);
        world.send("leased", TestMessage::default());
        world.flush().unwrap();
        last_ms = world.now;
        memory = world.memory;
    }
}

/// A delayed message and a lease of a clock that is days ahead; then the power goes.
fn stopped_days_ahead() -> (SimDisk, Memory, Millis) {
    let (disk, memory) = stopped();
    let right_ms = memory.now;
    let mut world = restarted(&disk, &memory, right_ms + 3 * 24 * HOUR_MS);
    let leased = world.part("leased", 0);
    world.advance(600_000);
    assert_eq!(world.recv(leased, 1, LEASE_MS), [3]);
    world.send("leased", TestMessage { delay_ms: 60_000, ..TestMessage::default() });
    world.flush().unwrap();
    (disk.crash(0), world.memory, right_ms)
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_days_ahead_and_is_right_again_dates_right_on_the_same_log() {
    let (disk, memory, right_ms) = stopped_days_ahead();
    let start_ms = right_ms + 600_000;
    let mut world = restarted(&disk, &memory, start_ms);
    assert_eq!(world.now, start_ms, "time goes on from the clock that is right, not from the one that was ahead");
    tick(&mut world);
    let all = held(&world, "leased");
    assert_eq!(all[0], (3, State::Leased, Some(start_ms + LEASE_MS)), "granted for so long, from now on");
    let delayed = all.iter().filter(|one| one.1 == State::Delayed).map(|one| one.2).collect::<Vec<_>>();
    assert!(delayed.iter().all(|due_ms| *due_ms <= Some(start_ms + 60_000)), "{delayed:?}");
    assert_eq!(kept(&world), (1, 1), "nothing is lost");

    // What is written now is by the right clock, and the next start knows the one from the other.
    world.send("leased", TestMessage { delay_ms: 3 * HOUR_MS, ..TestMessage::default() });
    world.flush().unwrap();
    let (disk, memory) = (disk.crash(0), world.memory);
    let again_ms = start_ms + HOUR_MS;
    let mut world = restarted(&disk, &memory, again_ms);
    tick(&mut world);
    assert_eq!(world.now, again_ms);
    let due = held(&world, "leased").into_iter().filter_map(|one| one.2);
    let due: Vec<_> = due.filter(|due_ms| *due_ms > again_ms + 60_000).collect();
    assert_eq!(due, [start_ms + 3 * HOUR_MS], "not a moment earlier, and nothing else waits for long");
}

/// The clock is set back by so much while the node runs.
fn set_back(world: &mut World, by_ms: Millis) {
    let before = ClockReading { now_ms: world.now, anchor_ms: START_MS + 100 * 24 * HOUR_MS };
    let after = ClockReading { now_ms: before.now_ms - by_ms, anchor_ms: before.anchor_ms - by_ms };
    (world.now, world.memory.now) = (after.now_ms, after.now_ms);
    for handle in &mut world.shards {
        assert!(!handle.shard.follow_clock(before) && handle.shard.follow_clock(after));
        handle.shard.hold_back(Hold::NONE);
    }
}

#[tokio::test(start_paused = true)]
async fn set_back_while_it_runs_leases_and_delays_last_as_long_as_before() {
    let (disk, memory) = stopped();
    let days_ms = 3 * 24 * HOUR_MS;
    let mut world = restarted(&disk, &memory, memory.now + days_ms);
    world.advance(600_000);
    tick(&mut world);
    assert_eq!(world.recv(world.part("leased", 0), 1, LEASE_MS), [3]);
    world.send("leased", TestMessage { delay_ms: 60_000, ..TestMessage::default() });
    set_back(&mut world, days_ms);
    let start_ms = world.now;
    let all = held(&world, "leased");
    assert_eq!((all[0], all[2].1), ((3, State::Leased, Some(start_ms + LEASE_MS)), State::Delayed));
    assert_eq!(all[2].2, Some(start_ms + 60_000));
    world.advance(LEASE_MS - 1);
    tick(&mut world);
    assert_eq!(held(&world, "leased")[0].1, State::Leased);
    world.advance(1);
    tick(&mut world);
    assert_eq!(held(&world, "leased")[0].1, State::Ready);
    assert_eq!(kept(&world), (1, 1), "nothing is lost");

    // The next start has records of both clocks, the wrong one's within the hour that is believed: it dates right.
    world.send("leased", TestMessage::default());
    world.flush().unwrap();
    let (disk, memory) = (disk.crash(0), world.memory);
    let again_ms = start_ms + days_ms - HOUR_MS / 2;
    let world = restarted(&disk, &memory, again_ms);
    assert_eq!(world.now, again_ms);
}

#[tokio::test(start_paused = true)]
async fn what_is_dated_ahead_does_not_keep_what_comes_later_from_expiring() {
    let (disk, memory) = stopped();
    let days_ms = 3 * 24 * HOUR_MS;
    let mut world = restarted(&disk, &memory, memory.now + days_ms);
    world.send("short", TestMessage::default());
    set_back(&mut world, days_ms);
    world.send("short", TestMessage::default());
    assert_eq!(held(&world, "short").len(), 3);
    world.advance(HOUR_MS / 2 + 1);
    tick(&mut world);
    let left: Vec<_> = held(&world, "short").into_iter().map(|one| one.0).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    world.advance(days_ms);
    tick(&mut world);
    assert_eq!(held(&world, "short").len(), 0, "kept by its own date");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_hours_behind_for_one_run_expires_nothing_when_it_is_right_again() {
    let (disk, memory) = stopped();
    let right_ms = memory.now;
    let mut world = restarted(&disk, &memory, right_ms - 8 * HOUR_MS);
    assert_eq!(world.now, right_ms - 8 * HOUR_MS);
    world.send("short", TestMessage::default());
    world.flush().unwrap();
    let (disk, memory) = (disk.crash(0), world.memory);
    let mut world = restarted(&disk, &memory, right_ms + 60_000);
    tick(&mut world);
    assert_eq!(kept(&world), (2, 1), "kept for half an hour, of which a minute has passed");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_has_lost_its_time_is_not_believed_against_the_log() {
    let (disk, memory) = stopped();
    let newest_ms = memory.now;
    let mut world = restarted(&disk, &memory, 60_000);
    assert_eq!(world.now, newest_ms, "time goes on from the newest record, not from 1970");
    world.send("long", TestMessage::default());
    world.flush().unwrap();
    // The clock is right at the next start: what was sent meanwhile is not taken for older than it is.
    let (disk, memory) = (disk.crash(0), world.memory);
    let mut world = restarted(&disk, &memory, newest_ms + 60_000);
    assert_eq!(world.now, newest_ms + 60_000);
    tick(&mut world);
    world.advance(HOUR_MS + HOUR_MS / 2);
    tick(&mut world);
    assert_eq!(kept(&world), (0, 2), "kept for two hours, of which more than one has passed");
}

/// What is due happens, whatever the reference would say: it knows no hold.
fn tick(world: &mut World) {
    for index in 0..world.shards.len() {
        world.turn(index, None, |shard, journal, now| shard.tick(now, journal, &mut || 0));
    }
}

/// Messages of the topics that keep for half an hour and for two hours.
fn kept(world: &World) -> (usize, usize) {
    (held(world, "short").len(), held(world, "long").len())
}

#[tokio::test(start_paused = true)]
async fn set_forward_by_hours_across_restarts_nothing_expires_that_had_time_left() {
    let (disk, memory) = stopped();
    let jumped_ms = memory.now + 5 * HOUR_MS;
    let mut world = restarted(&disk, &memory, jumped_ms);
    tick(&mut world);
    assert_eq!((world.now, kept(&world)), (jumped_ms, (1, 1)), "both are too old by the wall clock alone");
    world.send("leased", TestMessage::default());
    world.flush().unwrap();
    // The newest record is from after the jump now, and the hold is known all the same.
    let (disk, memory) = (disk.crash(0), world.memory);
    for (minutes, expected) in [(1, (1, 1)), (19, (1, 1)), (21, (0, 1))] {
        let mut world = restarted(&disk, &memory, jumped_ms + minutes * 60_000);
        tick(&mut world);
        assert_eq!(kept(&world), expected, "after {minutes} minutes: ten of thirty had passed before the power went");
    }
    let mut world = restarted(&disk, &memory, jumped_ms);
    world.advance(20 * 60_000 - 1);
    tick(&mut world);
    assert_eq!(kept(&world), (1, 1));
    world.advance(1);
    tick(&mut world);
    assert_eq!(kept(&world), (0, 1), "time that has really passed counts");
}

#[tokio::test(start_paused = true)]
async fn a_jump_is_believed_after_a_day_and_when_it_is_confirmed() {
    for confirmed in [false, true] {
        let (disk, memory) = stopped();
        let mut world = restarted(&disk, &memory, memory.now + 110 * HOUR_MS);
        world.advance(24 * HOUR_MS - 1);
        tick(&mut world);
        assert_eq!(held(&world, "leased").len(), 2, "kept for a hundred hours, of which none has passed");
        if confirmed {
            world.shards.iter_mut().for_each(|one| one.shard.hold_back(Hold::NONE));
        } else {
            let wakes = world.shards.iter().filter_map(|one| one.shard.next_deadline()).min();
            assert_eq!(wakes, Some(world.now + 1), "somebody is woken when the day is over");
            world.advance(1);
        }
        tick(&mut world);
        assert_eq!(held(&world, "leased").len(), 0, "confirmed: {confirmed}");
        tick(&mut world);
        let wakes = world.shards.iter().filter_map(|one| one.shard.next_deadline()).min();
        assert!(wakes.is_none_or(|at| at > world.now), "nobody is woken for what is over");
    }
}

/// Sends with a key; whether it was known.
fn is_duplicate(world: &mut World, key: u128) -> bool {
    world.seq += 1;
    let (part, seq, now) = (world.part("long", 0), world.seq, world.now);
    let key = Some(Key { hash: key, payload: key as u64 });
    let (group, delay_ms, dedup, body) = (None, Some(0), Dedup::default(), Bytes::from_static(b"body"));
    let send = Send { part, group, key, dedup, delay_ms, sent_ms: now, seq, body };
    world.on_part(part, |shard, journal, now| shard.send(now, journal, send)).0.unwrap().duplicate
}

#[tokio::test(start_paused = true)]
async fn keys_live_as_long_as_they_had_left_and_new_ones_no_longer_than_ever() {
    let (disk, memory) = stopped();
    // The clock may be right: then whoever sends the same again after hours must not be taken for a duplicate for long.
    let mut world = restarted(&disk, &memory, memory.now + 20 * HOUR_MS);
    assert!(is_duplicate(&mut world, 1), "it had nearly two hours left");
    assert!(!is_duplicate(&mut world, 2));
    world.advance(2 * HOUR_MS - 600_000 - 1);
    assert!(is_duplicate(&mut world, 1) && is_duplicate(&mut world, 2));
    world.advance(1);
    assert!(!is_duplicate(&mut world, 1));
    world.advance(600_000);
    assert!(!is_duplicate(&mut world, 2), "sent after the jump, so by the clock as it is");
}
