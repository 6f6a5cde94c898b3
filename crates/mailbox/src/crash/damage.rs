//! Bits that flip in sealed segments: what they hit is counted, and nothing else is any different.

use std::collections::{BTreeMap, BTreeSet};

use ron_log::{Disk, Position, SimDisk};

use super::Dice;
use super::check::found_in;
use super::memory::View;
use super::workloads;
use super::world::{START_MS, World, open};
use crate::record::Record;
use crate::topics::Topics;
use crate::types::{Seq, TopicId};

/// A record of a sealed segment, and the messages it speaks of.
struct Target {
    position: Position,
    of: BTreeSet<Seq>,
    topic: Option<TopicId>,
    /// The message whose newest body it holds.
    body_of: Option<Seq>,
}

fn targets(disk: &SimDisk) -> Vec<Target> {
    let recovered = open(&disk.crash(1), &Topics::default(), 1, START_MS).unwrap();
    let log = recovered.opened.log;
    let mut all = Vec::new();
    log.replay(&mut |replayed| {
        let record = Record::decode(replayed.head).unwrap();
        let (topic, of): (_, Vec<Seq>) = match &record {
            Record::Topic { id, .. } | Record::TopicGone { id } => (Some(*id), Vec::new()),
            Record::Lease { items, .. } => (None, items.iter().map(|item| item.0).collect()),
            Record::Ack { seqs, .. } | Record::Expired { seqs, .. } | Record::Returned { seqs, .. } => {
                (None, seqs.to_vec())
            }
            Record::Nack { seq, .. } | Record::Extend { seq, .. } | Record::Move { seq, .. } => (None, vec![*seq]),
            Record::Cancel { seq, .. } | Record::Reschedule { seq, .. } => (None, vec![*seq]),
            Record::Mark { .. } => (None, Vec::new()),
            Record::Purge { .. } => panic!("the script purges nothing: that would speak of everything"),
            other => (None, other.keeps().map(|(_, seq)| seq).into_iter().collect()),
        };
        let body_of = of.first().copied().filter(|_| replayed.body_len > 0);
        all.iter_mut().filter(|old: &&mut Target| old.body_of == body_of).for_each(|old| old.body_of = None);
        all.push(Target { position: replayed.position, of: of.into_iter().collect(), topic, body_of });
    })
    .unwrap();
    let last = all.iter().map(|target| target.position.segment).max().unwrap_or(0);
    all.retain(|target| target.position.segment < last);
    all
}

struct Seen {
    found: BTreeMap<Seq, View>,
    unreadable: Vec<Seq>,
    quarantined: u64,
    topics: Topics,
}

fn look(disk: &SimDisk) -> Seen {
    let topics = Topics::default();
    let recovered = open(disk, &topics, 2, START_MS).unwrap();
    let (found, unreadable) = found_in(&recovered, 2);
    Seen { found, unreadable, quarantined: recovered.opened.recovery.quarantined_records, topics }
}

fn damaged(disk: &SimDisk, position: Position, dice: &mut Dice) -> SimDisk {
    let hit = disk.crash(1);
    let offset = position.offset + dice.roll(u64::from(position.len)) as u32;
    hit.flip_bit(&format!("{:08}.log", position.segment), offset as usize, dice.roll(8) as u8);
    hit
}

fn script(world: &mut World) {
    workloads::dead_letters(world).unwrap();
    workloads::fill(world).unwrap();
    world.log.seal().unwrap();
}

#[test]
fn a_flipped_bit_takes_one_record_and_no_other() {
    let disk = SimDisk::new(9);
    script(&mut World::new(&disk).unwrap());
    let whole = look(&disk.crash(1));
    assert_eq!((whole.quarantined, whole.unreadable.len()), (0, 0));
    let targets = targets(&disk);
    assert!(targets.len() > 40, "{} records are sealed", targets.len());
    let mut dice = Dice(3);
    for target in &targets {
        let hit = damaged(&disk, target.position, &mut dice);
        // With its sidecar the segment is not read at the start: the damage shows when the body is.
        let with_sidecars = look(&hit);
        assert_eq!(with_sidecars.quarantined, 0);
        let hurt = target.body_of.filter(|seq| whole.found.contains_key(seq));
        assert_eq!(with_sidecars.unreadable, Vec::from_iter(hurt), "{:?}", target.position);
        same_but_for(&whole, &with_sidecars, target);
        // Without, it is counted, and the rest goes on.
        let hit = damaged(&disk, target.position, &mut dice);
        hit.names().iter().filter(|name| name.ends_with(".idx")).for_each(|name| hit.remove(name).unwrap());
        let read = look(&hit);
        assert_eq!((read.quarantined, read.unreadable.len()), (1, 0), "{:?}", target.position);
        same_but_for(&whole, &read, target);
    }
}

fn same_but_for(whole: &Seen, read: &Seen, target: &Target) {
    let seqs: BTreeSet<Seq> = whole.found.keys().chain(read.found.keys()).copied().collect();
    for seq in seqs.difference(&target.of) {
        assert_eq!(whole.found.get(seq), read.found.get(seq), "{seq}, by a bit in {:?}", target.position);
    }
    // Every message can be reached, also if it was the record of its topic that was hit.
    for (seq, view) in &read.found {
        let topic = read.topics.by_id(view.part.topic);
        assert!(topic.is_some(), "{seq} is in no topic, by a bit in {:?} of {:?}", target.position, target.topic);
    }
}
