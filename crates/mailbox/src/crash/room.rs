//! A log that is full, or damaged: whatever was written and in whatever order it is acknowledged, there is room again,
//! and nothing acknowledged is lost. The model of the other workloads is not asked: a full log leaves steps of
//! deliveries out, so only the promises are held.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ron_log::{Class, Disk as _, LogError, SimDisk};
use ron_types::{Error, Kind};

use super::check::found_in;
use super::memory::{Memory, Promise};
use super::workloads::make_topics;
use super::world::{SEGMENT_BYTES, START_MS, World, body_of, open_as, routing};
use super::{Dice, seeds};
use crate::shard::{Key, Nack, Recv, Send};
use crate::topics::{StoredTopic, Topics};
use crate::types::{Dedup, Leased, PartKey, Seq, TopicSettings};

/// Segments of the quota.
const SEGMENTS: u64 = 12;
/// How long a lease lasts: short beside the time messages are kept, long beside that of keys.
const LEASE_MS: u64 = 60_000;
/// Bytes of a message that is sent to see whether there is room.
const PROBE_BYTES: usize = 1_500;

/// A small mailbox, and what its callers know.
struct SmallWorld {
    world: World,
    bodies: BTreeMap<Seq, Vec<u8>>,
}

/// What bounds a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Quota,
    /// The device is smaller than the quota.
    Device,
}

impl SmallWorld {
    fn new(disk: &SimDisk) -> SmallWorld {
        SmallWorld::within(disk, Bound::Quota)
    }

    fn within(disk: &SimDisk, bound: Bound) -> SmallWorld {
        let mut memory = Memory::new(START_MS);
        memory.quota_bytes = SEGMENTS * u64::from(SEGMENT_BYTES);
        if bound == Bound::Device {
            disk.limit_bytes(Some(memory.quota_bytes));
            memory.quota_bytes *= 8;
        }
        let mut world = World::begin(disk, memory).unwrap();
        make_topics(&mut world).unwrap();
        SmallWorld { world, bodies: BTreeMap::new() }
    }

    /// The answer waits for everything that is in the log by now.
    fn owe(&mut self, promise: Promise) {
        let lsn = self.world.lsn();
        self.world.memory.owe(lsn, promise);
    }

    /// Leases and keys run out, and what comes of that happens.
    fn let_time_pass(&mut self) {
        self.world.advance(LEASE_MS + 1_000);
        for index in 0..self.world.shards.len() {
            self.world.turn(index, None, |shard, journal, now| shard.tick(now, journal, &mut || 0));
        }
    }

    /// Sends a message; none if there is no room for it.
    fn send(&mut self, part: PartKey, len: usize, key: Option<u128>) -> Option<Seq> {
        self.world.seq += 1;
        let seq = self.world.seq;
        let body = Bytes::from(body_of(seq, len));
        let key = key.map(|hash| Key { hash, payload: hash as u64 });
        let sent = self.world.on_part(part, |shard, journal, now| {
            let (group, delay_ms, dedup, body) = (None, None, Dedup::Topic, body.clone());
            shard.send(now, journal, Send { part, group, key, dedup, delay_ms, sent_ms: now, seq, body })
        });
        match sent.0 {
            Ok(sent) if sent.duplicate => Some(sent.seq),
            Ok(sent) => {
                self.bodies.insert(seq, body.to_vec());
                self.owe(Promise::Sent(sent.seq));
                Some(sent.seq)
            }
            Err(error) => refused(&error),
        }
    }

    fn lease(&mut self, part: PartKey, max_messages: usize) -> Vec<Leased> {
        let (leased, _) = self.world.on_part(part, |shard, journal, now| {
            let mut out = Vec::new();
            let visibility_ms = Some(LEASE_MS);
            let recv = Recv { max_messages, max_bytes: usize::MAX, visibility_ms, consumer: "c" };
            shard.recv(now, journal, part, recv, &mut out).map(|()| out)
        });
        leased.expect("receives go on")
    }

    /// Acknowledges; where that is refused, making room must help.
    fn ack(&mut self, leased: &Leased) -> Result<(), LogError> {
        if let Err(error) = self.try_ack(leased) {
            refused::<()>(&error);
            self.make_room()?;
            let again = self.try_ack(leased);
            assert_eq!(again, Ok(()), "an acknowledgement of {} with {:?}", leased.seq, self.world.log.usage());
        }
        Ok(())
    }

    fn try_ack(&mut self, leased: &Leased) -> Result<(), Error> {
        let (part, seq, fence) = (leased.part, leased.seq, leased.fence);
        let (answers, _) =
            self.world.on_part(part, |shard, journal, now| shard.ack(now, journal, part, &[(seq, fence)]));
        let [answer] = <[_; 1]>::try_from(answers).expect("one answer");
        answer?;
        self.owe(Promise::Gone(seq));
        Ok(())
    }

    /// Says that a delivery failed; it dies if it can.
    fn fail(&mut self, leased: &Leased, reason: &str) {
        let (part, seq, fence) = (leased.part, leased.seq, leased.fence);
        let (answer, _) = self.world.on_part(part, |shard, journal, now| {
            let nack = Nack { reason, delay_ms: Some(0), reject: true };
            shard.nack(now, journal, part, seq, fence, nack, 0)
        });
        answer.expect("a consumer may always say so");
    }

    /// Changes the settings of a topic to something long; false if there is no room for it.
    fn edit(&mut self, name: &str, nth: u64) -> bool {
        let topic = self.world.topic(name);
        let labels = BTreeMap::from([("note".to_owned(), format!("{nth:08}").repeat(60))]);
        let settings = TopicSettings { labels, ..(*topic.settings).clone() };
        let stored = StoredTopic { settings, ..StoredTopic::from(&*topic) };
        match self.world.append_topic(Class::Data, topic.id, &topic.name, &stored) {
            Ok(_) => {
                self.world.topics.put(topic.id, topic.name.clone(), stored);
                true
            }
            Err(error) => refused::<()>(&error).is_some(),
        }
    }

    fn purge(&mut self, part: PartKey) {
        let held = self.held(part);
        let (purged, _) = self.world.on_part(part, |shard, journal, now| shard.purge(now, journal, part));
        purged.expect("a purge works");
        held.into_iter().for_each(|seq| self.owe(Promise::Gone(seq)));
    }

    fn held(&mut self, part: PartKey) -> Vec<Seq> {
        let mut summaries = Vec::new();
        self.world.on_part(part, |shard, _, _| shard.browse(part, None, usize::MAX, &mut summaries));
        summaries.into_iter().map(|summary| summary.seq).collect()
    }

    fn parts(&self) -> Vec<PartKey> {
        let topics = ["fair", "line", "jobs", "grave", "fair.dlq", "line.dlq"];
        topics.iter().flat_map(|name| self.world.topic(name).parts().collect::<Vec<_>>()).collect()
    }

    /// Everything there is, under new leases.
    fn lease_all(&mut self) -> Vec<Leased> {
        self.let_time_pass();
        let (mut all, mut rounds_without) = (Vec::new(), 0);
        // A round that gives nothing may have buried some, which the next one finds.
        while rounds_without < 3 {
            let given: Vec<Leased> = self.parts().into_iter().flat_map(|part| self.lease(part, 100)).collect();
            rounds_without = if given.is_empty() { rounds_without + 1 } else { 0 };
            all.extend(given);
        }
        all
    }

    /// Gives back what is worth it; panics if that does not end.
    fn make_room(&mut self) -> Result<(), LogError> {
        self.world.flush()?;
        for _ in 0..8 * SEGMENTS {
            if !self.world.compact()? {
                return Ok(());
            }
        }
        panic!("reclaiming goes on and on: {:?}", self.world.log.usage());
    }
}

/// Nothing, if it was refused because the log is full.
fn refused<T>(error: &Error) -> Option<T> {
    assert_eq!(error.kind, Kind::Busy, "{error}");
    None
}

/// Fills the log with what callers can write, until nothing more of it is taken.
fn fill(small: &mut SmallWorld, dice: &mut Dice) -> Result<(), LogError> {
    let longest = [80, 400, 2_500][dice.roll(3) as usize];
    let parts = small.parts();
    let mut refusals = 0;
    while refusals < 20 {
        let part = parts[dice.roll(4) as usize];
        let key = (dice.roll(3) == 0).then(|| u128::from(dice.roll(1 << 40)));
        refusals += u64::from(small.send(part, 8 + dice.roll(longest) as usize, key).is_none());
        match dice.roll(12) {
            0 => {
                let given = small.lease(part, 3);
                given.iter().skip(1).try_for_each(|leased| small.ack(leased))?;
            }
            1 => {
                let given = small.lease(part, 2);
                given.iter().for_each(|leased| small.fail(leased, &"no ".repeat(200)));
            }
            2 => small.world.flush()?,
            3 if dice.roll(4) == 0 => small.make_room()?,
            _ => {}
        }
    }
    small.world.flush()
}

/// What a tenant and the admin of a topic can write again and again without anything going away.
fn abuse(small: &mut SmallWorld, dice: &mut Dice) -> Result<(), LogError> {
    let (fair, dead) = (small.world.part("fair", 0), small.world.part("fair.dlq", 0));
    let empty = small.world.part("brief", 0);
    for nth in 0..120 {
        small.edit("fair", nth);
        for leased in small.lease(fair, 2) {
            small.fail(&leased, &"it fails and fails ".repeat(50));
        }
        if let Some(seq) = dice.pick(&small.held(dead)) {
            let (moved, _) =
                small.world.on_part(dead, |shard, journal, now| shard.redrive(now, journal, dead, seq, fair, 1));
            moved.unwrap_or_else(|error| refused(&error).unwrap_or_default());
        }
        small.purge(empty);
        if nth % 8 == 0 {
            small.make_room()?;
        }
    }
    small.world.flush()
}

/// Acknowledges everything in some order, one message at a time; then there is room.
fn consume(small: &mut SmallWorld, dice: &mut Dice) -> Result<(), LogError> {
    let mut leased = small.lease_all();
    match dice.roll(3) {
        0 => leased.sort_by_key(|one| std::cmp::Reverse(one.seq)),
        1 => leased.sort_by_key(|one| one.seq),
        _ => leased.sort_by_key(|one| one.seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    }
    // Often, rarely or not before all is acknowledged.
    let looks = [2, 40, u64::MAX][dice.roll(3) as usize];
    for one in leased {
        // Damaged, and gone with its segment since it was received.
        if small.world.lost.contains(&one.seq) {
            continue;
        }
        small.ack(&one)?;
        if dice.roll(looks) == 0 {
            small.make_room()?;
        }
    }
    small.let_time_pass();
    small.make_room()?;
    let usage = small.world.log.usage();
    assert!(usage.bytes_total < 3 * u64::from(SEGMENT_BYTES) && usage.shortage.is_none(), "{usage:?}");
    let line = small.world.part("line", 0);
    assert!(small.send(line, PROBE_BYTES, None).is_some(), "all is done with: {usage:?}");
    small.world.flush()
}

/// Opens what a power cut left; promises hold, and the callers go on with what they find.
fn restart(disk: &SimDisk, memory: &Memory, bodies: &BTreeMap<Seq, Vec<u8>>, what: &str) -> SmallWorld {
    let topics = Topics::default();
    let recovered = open_as(disk, &topics, 2, memory).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (found, unreadable) = found_in(&recovered, 2);
    assert!(unreadable.is_empty(), "{what}: the bodies of {unreadable:?} cannot be read");
    memory.ledger.check(&found, what);
    for (seq, view) in &found {
        assert_eq!(Some(&view.body), bodies.get(seq), "{what}: the body of {seq}");
    }
    let mut memory = memory.clone();
    memory.ledger.rebase(&found);
    let world = World::resume(recovered, topics, routing(2), memory);
    SmallWorld { world, bodies: bodies.clone() }
}

fn full_and_consumed(small: &mut SmallWorld, dice: &mut Dice) -> Result<(), LogError> {
    fill(small, dice)?;
    abuse(small, dice)?;
    consume(small, dice)
}

fn every_sequence_ends_with_room(bound: Bound) {
    for seed in 0..seeds(12) {
        let disk = SimDisk::new(seed);
        let mut dice = Dice(seed.wrapping_mul(91) + 5);
        let mut small = SmallWorld::within(&disk, bound);
        for _ in 0..2 {
            full_and_consumed(&mut small, &mut dice).unwrap();
        }
        assert!(small.world.lost.is_empty());
    }
}

#[test]
fn every_sequence_of_acknowledgements_ends_with_room() {
    every_sequence_ends_with_room(Bound::Quota);
}

#[test]
fn every_sequence_of_acknowledgements_ends_with_room_on_a_full_device() {
    every_sequence_ends_with_room(Bound::Device);
}

/// Something happens to the disk somewhere in all that, also amid a relocation in a full log; then everything is
/// consumed after all.
fn recovers_by_consuming(bound: Bound, fails: bool) {
    let seen = |seed: u64| {
        let disk = SimDisk::new(seed);
        full_and_consumed(&mut SmallWorld::within(&disk, bound), &mut Dice(seed)).unwrap();
        (disk.operations(), disk.syncs())
    };
    for seed in 0..seeds(2) {
        let (operations, syncs) = seen(seed);
        let mut dice = Dice(seed ^ 0xabc);
        for nth in 0..24 {
            let disk = SimDisk::new(seed);
            let mut small = SmallWorld::within(&disk, bound);
            if fails {
                disk.fail_sync(disk.syncs() + dice.roll(syncs - disk.syncs()));
            } else {
                disk.crash_at(disk.operations() + dice.roll(operations - disk.operations()));
            }
            let played = full_and_consumed(&mut small, &mut Dice(seed));
            assert_eq!(played.is_err(), disk.has_crashed() || fails, "{played:?}");
            let SmallWorld { world, bodies } = small;
            let memory = world.memory;
            drop(world.log);
            let survival = super::survivals(dice.roll(1_000))[dice.roll(6) as usize];
            let what = format!("{bound:?}, {seed}, {nth}, {survival:?}");
            // After an error the machine goes on, with what it believes to be on the disk; or the power goes too.
            let goes_on = fails && nth % 2 == 0;
            let found = if goes_on { disk.restart() } else { disk.crash_with(survival) };
            let mut small = restart(&found, &memory, &bodies, &what);
            consume(&mut small, &mut dice).unwrap();
        }
    }
}

#[test]
fn a_full_log_that_lost_its_power_recovers_by_consuming() {
    recovers_by_consuming(Bound::Quota, false);
}

#[test]
fn a_full_device_that_lost_its_power_recovers_by_consuming() {
    recovers_by_consuming(Bound::Device, false);
}

#[test]
fn a_full_log_whose_sync_failed_recovers_by_consuming() {
    recovers_by_consuming(Bound::Quota, true);
}

#[test]
fn a_full_device_whose_sync_failed_recovers_by_consuming() {
    recovers_by_consuming(Bound::Device, true);
}

/// A file of a full log is lost or cut while nobody runs: what was in it is gone, and the rest can be consumed.
#[test]
fn a_full_log_that_lost_a_segment_recovers_by_consuming() {
    for seed in 0..seeds(8) {
        for bound in [Bound::Quota, Bound::Device] {
            let disk = SimDisk::new(seed);
            let mut dice = Dice(seed.wrapping_mul(7) + 11);
            let mut small = SmallWorld::within(&disk, bound);
            fill(&mut small, &mut dice).unwrap();
            let SmallWorld { world, bodies } = small;
            let memory = world.memory;
            let sealed: Vec<u32> = world.log.settled_segments().iter().map(|span| span.segment).collect();
            drop(world.log);
            let hit = sealed[..sealed.len() - 1][dice.roll(sealed.len() as u64 - 1) as usize];
            let name = format!("{hit:08}.log");
            if dice.roll(2) == 0 {
                disk.remove(&name).unwrap();
            } else {
                disk.cut(&name, dice.roll(u64::from(SEGMENT_BYTES)) as usize);
            }
            let found = disk.restart();
            let topics = Topics::default();
            let recovered = open_as(&found, &topics, 2, &memory).unwrap();
            assert!(recovered.opened.recovery.has_losses(), "{bound:?}, {seed}: {hit} is told");
            let (views, _) = found_in(&recovered, 2);
            for (seq, view) in &views {
                assert_eq!(Some(&view.body), bodies.get(seq), "{bound:?}, {seed}: {seq} is whole");
            }
            let world = World::resume(recovered, topics, routing(2), memory);
            consume(&mut SmallWorld { world, bodies }, &mut dice).unwrap();
        }
    }
}

/// Bodies that are damaged go with their segments, are told once, and keep nothing else from going.
#[test]
fn damaged_bodies_never_keep_a_segment() {
    for seed in 0..seeds(12) {
        let disk = SimDisk::new(seed);
        let mut dice = Dice(seed.wrapping_mul(17) + 3);
        let mut small = SmallWorld::new(&disk);
        fill(&mut small, &mut dice).unwrap();
        let damaged = damage(&mut small, &disk, &mut dice);
        let leased = small.lease_all();
        let (kept, done): (Vec<&Leased>, Vec<&Leased>) = leased.iter().partition(|one| one.seq % 7 == 0);
        done.into_iter().try_for_each(|one| small.ack(one)).unwrap();
        small.make_room().unwrap();
        let kept: BTreeSet<Seq> = kept.into_iter().map(|one| one.seq).collect();
        let lost: BTreeSet<Seq> = small.world.lost.iter().copied().collect();
        assert_eq!(lost.len(), small.world.lost.len(), "each is told once");
        assert!(lost.iter().all(|seq| damaged.contains(seq) && kept.contains(seq)), "{lost:?} of {damaged:?}");
        // A look that has nothing to gain writes nothing.
        let appended = small.world.log.usage().appended;
        assert!(!small.world.compact().unwrap());
        assert_eq!(small.world.log.usage().appended, appended);
        assert!(small.send(small.world.part("line", 0), PROBE_BYTES, None).is_some());
        small.world.flush().unwrap();
        still_there(&small, &disk, &kept, &lost, &damaged);
    }
}

/// The power goes while what is whole is copied away from what is damaged; no more is lost by it, and the segments go.
#[test]
fn damage_and_a_power_cut_cost_what_was_damaged() {
    for seed in 0..seeds(6) {
        for nth in 0..4 {
            let disk = SimDisk::new(seed);
            let mut dice = Dice(seed.wrapping_mul(29) + nth);
            let mut small = SmallWorld::new(&disk);
            fill(&mut small, &mut Dice(seed)).unwrap();
            let damaged = damage(&mut small, &disk, &mut dice);
            let leased = small.lease_all();
            leased.iter().filter(|one| one.seq % 5 > 1).try_for_each(|one| small.ack(one)).unwrap();
            small.world.flush().unwrap();
            disk.crash_at(disk.operations() + dice.roll(60));
            assert_eq!(small.make_room().is_err(), disk.has_crashed());
            let SmallWorld { world, bodies } = small;
            let memory = world.memory;
            drop(world.log);
            let found = disk.crash_with(super::survivals(dice.roll(1_000))[dice.roll(6) as usize]);
            let topics = Topics::default();
            let recovered = open_as(&found, &topics, 2, &memory).unwrap();
            let (views, _) = found_in(&recovered, 2);
            for seq in memory.ledger.sent.difference(&memory.ledger.maybe_gone).filter(|seq| !damaged.contains(seq)) {
                assert_eq!(views.get(seq).map(|view| &view.body), bodies.get(seq), "{seed}, {nth}: {seq} is whole");
            }
            let gone: Vec<&Seq> = memory.ledger.gone.iter().filter(|seq| views.contains_key(seq)).collect();
            assert!(gone.is_empty(), "{seed}, {nth}: {gone:?} were acknowledged as gone and are back");
            let world = World::resume(recovered, topics, routing(2), memory);
            consume(&mut SmallWorld { world, bodies }, &mut dice).unwrap();
        }
    }
}

/// Flips a bit in every fifth record with a body that lies in a sealed segment; the messages that are hit.
fn damage(small: &mut SmallWorld, disk: &SimDisk, dice: &mut Dice) -> BTreeSet<Seq> {
    let mut hit = BTreeSet::new();
    let mut places = Vec::new();
    let active = small.world.log.settled_segments().last().map_or(0, |span| span.segment);
    small
        .world
        .log
        .replay(&mut |replayed| {
            let record = crate::record::Record::decode(replayed.head).unwrap();
            if let Some((_, seq)) =
                record.keeps().filter(|_| replayed.body_len > 0 && replayed.position.segment < active)
            {
                places.push((seq, replayed.position));
            }
        })
        .unwrap();
    for (seq, position) in places.into_iter().step_by(5) {
        let offset = position.offset + dice.roll(u64::from(position.len)) as u32;
        disk.flip_bit(&format!("{:08}.log", position.segment), offset as usize, dice.roll(8) as u8);
        hit.insert(seq);
    }
    hit
}

/// What was kept and is whole is found by a restart; what was lost is not.
fn still_there(
    small: &SmallWorld,
    disk: &SimDisk,
    kept: &BTreeSet<Seq>,
    lost: &BTreeSet<Seq>,
    damaged: &BTreeSet<Seq>,
) {
    let recovered = open_as(&disk.crash(0), &Topics::default(), 2, &small.world.memory).unwrap();
    let (found, _) = found_in(&recovered, 2);
    for seq in kept.difference(damaged) {
        assert_eq!(found.get(seq).map(|view| &view.body), small.bodies.get(seq), "{seq} is whole");
    }
    assert!(lost.iter().all(|seq| !found.contains_key(seq)), "what was lost does not come back");
}
