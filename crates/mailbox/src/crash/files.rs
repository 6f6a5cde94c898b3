//! Files that are lost or cut, records of another version, failed syncs followed by a restart: what was acknowledged is
//! there, or its loss is told.

use std::collections::BTreeMap;

use ron_log::{Class, Disk, LogError, SimDisk};

use super::check::{check, found_in};
use super::memory::{Memory, View};
use super::world::{START_MS, World, open};
use super::{Dice, Script, seeds, survivals, workloads};
use crate::keeper::candidates_of;
use crate::topics::Topics;
use crate::types::Seq;

/// Plays a script on a disk one of whose syncs fails; what was promised until then.
fn play_until_failure(disk: &SimDisk, script: Script<'_>) -> Memory {
    let Ok(mut world) = World::new(disk) else { return Memory::new(START_MS) };
    let played = script(&mut world);
    assert!(matches!(played, Err(LogError::Failed { .. })), "{played:?}");
    world.memory
}

/// Every sync of a script fails in turn. The process starts again on the same machine, which still shows what the
/// medium never got; it promises more, and then the power goes.
fn fail_every_sync(name: &str, script: Script<'_>) {
    let disk = SimDisk::new(5);
    script(&mut World::new(&disk).unwrap()).unwrap();
    let (mut promises, step) = (0, 8 / seeds(1).min(8));
    for number in (0..disk.syncs()).step_by(step as usize) {
        let disk = SimDisk::new(5);
        disk.fail_sync(number);
        let memory = play_until_failure(&disk, script);
        let mut dice = Dice(number);
        for survival in survivals(number) {
            let what = format!("{name}: sync {number} fails, {survival:?}");
            let found = disk.restart();
            let (mut world, held) = check(&found, &memory, 2, &format!("{what}: restarted"));
            workloads::afterwards(&mut world, &mut dice).unwrap();
            let memory = world.memory;
            drop(world.log);
            promises += held + check(&found.crash_with(survival), &memory, 2, &what).1;
        }
    }
    println!("{name}: {} failed syncs, each followed by a restart, 0 lost of {promises} promises", disk.syncs());
}

#[test]
fn failed_syncs_of_sends_and_acknowledgements() {
    fail_every_sync("send and ack", &workloads::send_and_ack);
}

#[test]
fn failed_syncs_of_compaction() {
    fail_every_sync("compaction", &workloads::compaction);
}

struct Seen {
    found: BTreeMap<Seq, View>,
    unreadable: Vec<Seq>,
    has_losses: bool,
}

fn look(disk: &SimDisk) -> Seen {
    let recovered = open(disk, &Topics::default(), 2, START_MS).unwrap();
    let (found, unreadable) = found_in(&recovered, 2);
    Seen { found, unreadable, has_losses: recovered.opened.recovery.has_losses() }
}

fn filled() -> SimDisk {
    let disk = SimDisk::new(9);
    let mut world = World::new(&disk).unwrap();
    workloads::dead_letters(&mut world).unwrap();
    workloads::fill(&mut world).unwrap();
    world.log.seal().unwrap();
    drop(world);
    disk
}

/// With its sidecar, a segment still says what was settled in it: only bodies are lost, and each message that misses
/// its body is known by number.
#[test]
fn a_lost_or_cut_segment_takes_the_bodies_in_it_and_no_more() {
    let disk = filled();
    let whole = look(&disk.crash(1));
    assert!(!whole.has_losses && whole.unreadable.is_empty());
    let sidecars: Vec<String> = disk.names().into_iter().filter(|name| name.ends_with(".idx")).collect();
    assert!(sidecars.len() > 3, "{sidecars:?}");
    let mut lost = 0;
    for sidecar in &sidecars {
        let segment = sidecar.replace(".idx", ".log");
        for cut_to in [None, Some(0), Some(128), Some(700)] {
            let hit = disk.crash(1);
            match cut_to {
                None => hit.remove(&segment).unwrap(),
                Some(len) => hit.cut(&segment, len),
            }
            let seen = look(&hit);
            assert!(seen.has_losses, "{segment} {cut_to:?}: never silently accepted");
            let known = seen.found.len() + seen.unreadable.len();
            assert_eq!(known, whole.found.len(), "{segment} {cut_to:?}: every message is there or known to be lost");
            assert!(seen.found.iter().all(|(seq, view)| whole.found.get(seq) == Some(view)), "{segment} {cut_to:?}");
            lost += seen.unreadable.len();
        }
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn a_segment_lost_with_its_sidecar_is_told_wherever_it_was() {
    let disk = filled();
    for name in disk.names().into_iter().filter(|name| name.ends_with(".log")) {
        let hit = disk.crash(1);
        hit.remove(&name).unwrap();
        let _ = hit.remove(&name.replace(".log", ".idx"));
        assert!(look(&hit).has_losses, "{name}");
    }
}

#[test]
fn a_record_of_another_version_is_refused_at_the_start_and_never_reclaimed() {
    let disk = SimDisk::new(9);
    let mut world = World::new(&disk).unwrap();
    workloads::make_topics(&mut world).unwrap();
    let position = world.log.appender().append(Class::Data, &[250, 9, 9], b"of a newer version").unwrap();
    workloads::fill(&mut world).unwrap();
    let refused = candidates_of(&world.log, position.segment, 0).err();
    assert!(matches!(refused, Some(LogError::UnknownVersion { .. })), "{refused:?}");
    world.log.seal().unwrap();
    drop(world);
    for seed in 0..4 {
        let found = disk.crash(seed);
        let refused = open(&found, &Topics::default(), 2, START_MS).err();
        assert!(matches!(refused, Some(LogError::UnknownVersion { .. })), "{refused:?}");
        let name = format!("{:08}.log", position.segment);
        let bytes = found.bytes_of(&name).expect("kept");
        assert!(bytes.windows(18).any(|part| part == b"of a newer version"));
    }
}
