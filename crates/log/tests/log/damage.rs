//! Bits flip on the medium: the damage is counted and never spreads.

use crate::workload::{Heads, Memory, open};
use ron_log::{Log, LogError, SimDisk};

const HEADER_LEN: usize = 128;

/// Several sealed segments and a last one with several groups, stopped cleanly.
pub fn sealed_log() -> (SimDisk, Memory) {
    let disk = SimDisk::new(8);
    let mut memory = Memory::default();
    let (log, ..) = open(&disk).unwrap();
    for body_len in [300, 0, 900, 50, 1200, 800, 20, 1500, 900, 400, 0, 700, 350, 1400, 900, 600, 30, 200] {
        memory.append(&log, 24, body_len).unwrap();
        memory.append(&log, 6, body_len / 3).unwrap();
        memory.flush(&log).unwrap();
    }
    log.seal().unwrap();
    memory.durable = log.durable().0;
    drop(log);
    (disk.crash(1), memory)
}

fn without_sidecars(disk: &SimDisk) -> SimDisk {
    use ron_log::Disk;
    for name in disk.names().iter().filter(|name| name.ends_with(".idx")) {
        disk.remove(name).unwrap();
    }
    disk.sync_dir().unwrap();
    disk.crash(0)
}

pub fn without_manifest(disk: &SimDisk) {
    use ron_log::Disk;
    ["manifest.0", "manifest.1"].iter().for_each(|name| disk.remove(name).unwrap());
    disk.sync_dir().unwrap();
}

/// As a log was before there were manifests: these bytes of a header were zeros.
pub fn as_before_manifests(disk: &SimDisk) {
    without_manifest(disk);
    for name in log_names(disk) {
        disk.zero(&name, 28, 4);
        disk.zero(&name, 64 + 28, 4);
    }
}

pub fn log_names(disk: &SimDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.ends_with(".log")).collect()
}

/// The number of the record that has this byte, if one has.
fn record_at(memory: &Memory, name: &str, offset: usize) -> Option<u64> {
    let segment: u32 = name[..8].parse().unwrap();
    let holds = |start: u32, len: u32| (start as usize..(start + len) as usize).contains(&offset);
    let mut records = memory.written.iter();
    records
        .find(|(_, written)| {
            let position = written.position;
            position.segment == segment && holds(position.offset, position.len)
        })
        .map(|(lsn, _)| *lsn)
}

fn check_rest(memory: &Memory, log: &Log, found: &Heads, lost: Option<u64>, what: &str) {
    for (lsn, written) in &memory.written {
        assert_eq!(found.contains_key(lsn), Some(*lsn) != lost, "{what}: record {lsn}");
        if Some(*lsn) != lost {
            assert_eq!(log.read(written.position).unwrap().body, written.body, "{what}: record {lsn}");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_costs_one_record_at_most() {
    let (disk, memory) = sealed_log();
    let disk = without_sidecars(&disk);
    let mut quarantined = 0;
    for name in log_names(&disk) {
        for offset in HEADER_LEN..4096 {
            let bit = (offset % 8) as u8;
            let hit = record_at(&memory, &name, offset);
            // Every byte of the fields of a frame, a sample of the rest: the first and the last are always among them.
            let is_near_field = |at: usize| record_at(&memory, &name, at) != hit;
            let is_sampled = offset % 37 == 0 || is_near_field(offset - 40) || is_near_field(offset + 4);
            if !is_sampled || (hit.is_none() && offset % 4 != 0) {
                continue;
            }
            let damaged = disk.crash(0);
            damaged.flip_bit(&name, offset, bit);
            let (log, recovery, found) = open(&damaged).unwrap();
            let what = format!("{name} at {offset}: {recovery:?}");
            check_rest(&memory, &log, &found, hit, &what);
            assert_eq!(recovery.quarantined_records, u64::from(hit.is_some()), "{what}");
            if hit.is_some() {
                quarantined += 1;
                assert_eq!(recovery.torn_bytes, 0, "{what}: it had been acknowledged");
                assert!(damaged.names().iter().any(|name| name.starts_with("bad-")), "{what}: bytes are kept");
            }
        }
    }
    assert!(quarantined > 1000, "{quarantined}");
}

#[test]
fn the_log_goes_on_behind_damage() {
    let (disk, mut memory) = sealed_log();
    let last = log_names(&disk).into_iter().rfind(|name| record_at(&memory, name, 300).is_some()).unwrap();
    let lost = record_at(&memory, &last, 300);
    disk.flip_bit(&last, 300, 1);
    let (log, ..) = open(&disk).unwrap();
    for _ in 0..10 {
        memory.append(&log, 3, 700).unwrap();
        memory.flush(&log).unwrap();
    }
    drop(log);
    for seed in 0..4 {
        let (log, recovery, found) = open(&disk.crash(seed)).unwrap();
        check_rest(&memory, &log, &found, lost, "after going on");
        assert_eq!(recovery.quarantined_records, 1, "{recovery:?}");
    }
}

#[test]
fn without_a_clean_stop_only_the_very_last_group_can_be_taken_for_torn() {
    let disk = SimDisk::new(8);
    let mut memory = Memory::default();
    let (log, ..) = open(&disk).unwrap();
    for _ in 0..6 {
        memory.append(&log, 5, 200).unwrap();
        memory.flush(&log).unwrap();
    }
    drop(log);
    for (lsn, written) in &memory.written {
        let offset = written.position.offset as usize + 50;
        // The power went: the idle mark behind the last group was never synced.
        let cut = disk.crash(0);
        cut.flip_bit("00000001.log", offset, 0);
        let (_, recovery, found) = open(&cut).unwrap();
        assert_eq!(found.len(), 5, "record {lsn}");
        let is_last = *lsn == 6;
        assert_eq!((recovery.quarantined_records == 0, recovery.torn_bytes > 0), (is_last, is_last), "record {lsn}");
        // Only the process died: the mark is there, and vouches for the last group too.
        let killed = disk.crash(1);
        killed.flip_bit("00000001.log", offset, 0);
        let (_, recovery, _) = open(&killed).unwrap();
        assert_eq!((recovery.quarantined_records, recovery.torn_bytes), (1, 0), "record {lsn}");
    }
}

#[test]
fn lost_sectors_are_counted_by_the_numbers() {
    let (disk, memory) = sealed_log();
    let disk = without_sidecars(&disk);
    for name in log_names(&disk).iter().take(2) {
        for offset in (512..4096).step_by(512) {
            let lost = memory.written.values().filter(|written| {
                let position = written.position;
                format!("{:08}.log", position.segment) == *name
                    && (position.offset as usize) < offset + 512
                    && (position.offset + position.len) as usize > offset
            });
            let lost = lost.count() as u64;
            let damaged = disk.crash(0);
            damaged.zero(name, offset, 512);
            let (_, recovery, found) = open(&damaged).unwrap();
            assert_eq!(
                found.len() as u64 + recovery.quarantined_records,
                memory.written.len() as u64,
                "{name} {offset}"
            );
            assert!(recovery.quarantined_records <= lost, "{name} {offset}: {recovery:?}");
        }
    }
}

#[test]
fn behind_a_sidecar_damage_is_found_by_reading_and_by_scrubbing() {
    let (disk, memory) = sealed_log();
    let name = &log_names(&disk)[1];
    let hit = record_at(&memory, name, 600).unwrap();
    let position = memory.written[&hit].position;
    disk.flip_bit(name, 600, 3);
    let (log, recovery, found) = open(&disk).unwrap();
    assert_eq!((found.len(), recovery.quarantined_records), (memory.written.len(), 0), "the sidecar is whole");
    assert_eq!(log.read(position), Err(LogError::Corrupt { position }));
    let mut scrub = log.scrub_segment(position.segment).unwrap();
    while scrub.read_piece().unwrap() > 0 {}
    let report = scrub.finish().unwrap();
    let [stretch] = &report.stretches[..] else { panic!("{report:?}") };
    assert_eq!((stretch.damage.first.0, stretch.damage.records), (hit, 1));
    assert_eq!(stretch.records[0].head, memory.written[&hit].head, "the sidecar knows what was there");
}

#[test]
fn a_bad_or_missing_sidecar_is_made_again() {
    let (disk, mut memory) = sealed_log();
    let sidecars: Vec<String> = disk.names().into_iter().filter(|name| name.ends_with(".idx")).collect();
    assert!(sidecars.len() >= 3);
    disk.flip_bit(&sidecars[1], 70, 0);
    let (log, recovery) = memory.reopen(&disk, "bad sidecar");
    assert_eq!(recovery.segments_read_whole, 2, "that one and the last");
    drop(log);
    let (_, recovery) = memory.reopen(&disk, "sidecar made again");
    assert_eq!(recovery.segments_read_whole, 1);
    let bare = without_sidecars(&disk);
    let (_, recovery) = memory.reopen(&bare, "no sidecars");
    assert_eq!(recovery.segments_read_whole, recovery.segments);
}

#[test]
fn segment_headers_are_mended_and_their_loss_is_survived() {
    let (disk, mut memory) = sealed_log();
    let names = log_names(&disk);
    disk.flip_bit(&names[0], 3, 0);
    disk.zero(&names[1], 0, HEADER_LEN);
    let (log, recovery) = memory.reopen(&disk, "headers");
    assert_eq!(recovery.headers_damaged, 2);
    drop(log);
    let (_, recovery) = memory.reopen(&disk, "mended");
    assert_eq!(recovery.headers_damaged, 0);
    // The manifest knows the secret too.
    let bare = disk.crash(0);
    names.iter().for_each(|name| bare.zero(name, 0, HEADER_LEN));
    let (_, recovery) = memory.reopen(&bare, "only the manifest is left");
    assert_eq!(recovery.headers_damaged, u32::try_from(names.len()).unwrap());
    without_manifest(&disk);
    let before: Vec<_> = names
        .iter()
        .map(|name| {
            disk.zero(name, 0, HEADER_LEN);
            disk.bytes_of(name)
        })
        .collect();
    let refused = open(&disk).err();
    assert!(matches!(refused, Some(LogError::NoHeader { .. })), "{refused:?}");
    let after: Vec<_> = names.iter().map(|name| disk.bytes_of(name)).collect();
    assert_eq!(before, after, "nothing was touched");
}

#[test]
fn a_segment_missing_in_the_middle_is_counted() {
    use ron_log::Disk;
    let (disk, memory) = sealed_log();
    let gone = memory.written.values().filter(|written| written.position.segment == 2).count();
    disk.remove("00000002.log").unwrap();
    disk.remove("00000002.idx").unwrap();
    let (log, recovery, found) = open(&disk).unwrap();
    assert_eq!((recovery.segments_missing, recovery.quarantined_records), (1, gone as u64));
    assert_eq!(found.len() + gone, memory.written.len());
    assert_eq!(log.usage().segments, recovery.segments);
    found.values().for_each(|(position, _)| log.release(*position));
    log.retire(1).unwrap();
    log.retire(2).unwrap();
}

#[test]
fn a_sidecar_never_hides_records_that_came_after_it() {
    let (disk, mut memory) = sealed_log();
    let last = memory.written.values().last().unwrap().position.segment;
    // A disaster takes all of the last segment, so that one with a sidecar is written to again; nothing tells of it.
    as_before_manifests(&disk);
    disk.zero(&format!("{last:08}.log"), HEADER_LEN, 4096 - HEADER_LEN);
    memory.written.retain(|_, written| written.position.segment < last);
    memory.durable = *memory.written.keys().last().unwrap();
    let (log, _) = memory.reopen(&disk, "after the disaster");
    memory.append(&log, 3, 5).unwrap();
    memory.flush(&log).unwrap();
    memory.append(&log, 3, 3600).unwrap();
    memory.flush(&log).unwrap();
    drop(log);
    memory.reopen(&disk.crash(0), "and after going on");
}
