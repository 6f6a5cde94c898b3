//! Files that are lost, cut, too many, or of another version: told, refused, and never silently accepted.

use crate::damage::{as_before_manifests, log_names, sealed_log, without_manifest};
use crate::workload::{Memory, open, open_with, options, run};
use ron_log::{Disk, LogError, LogOptions, SimDisk};

fn segment_of(name: &str) -> u32 {
    name[..8].parse().unwrap()
}

fn contents(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.bytes_of(&name))).collect()
}

#[test]
fn a_log_of_many_segments_needs_few_descriptors() {
    let disk = SimDisk::new(3);
    disk.limit_open(Some(24));
    let options = LogOptions { segment_bytes: 1024, ..options() };
    let mut memory = Memory::default();
    memory.options = options.clone();
    let (log, ..) = open_with(&disk, &options).unwrap();
    while log.usage().segments < 300 {
        memory.append(&log, 20, 540).unwrap();
        memory.flush(&log).unwrap();
    }
    for written in memory.written.values().chain(memory.written.values().rev()) {
        log.read(written.position).unwrap();
    }
    drop(log);
    for name in disk.names().iter().filter(|name| name.ends_with(".idx")).step_by(2) {
        disk.remove(name).unwrap();
    }
    let (log, recovery) = memory.reopen(&disk, "few descriptors");
    assert_eq!(recovery.segments, 300);
    log.replay(&mut |_| {}).unwrap();
    assert!(disk.opened_at_once() <= 24, "{}", disk.opened_at_once());
}

#[test]
fn every_lost_segment_is_told_and_the_rest_is_served() {
    for keeps_sidecar in [true, false] {
        let (disk, memory) = sealed_log();
        let names = log_names(&disk);
        assert!(names.len() > 4, "{names:?}");
        for name in &names {
            let found = disk.crash(1);
            found.remove(name).unwrap();
            if !keeps_sidecar {
                let _ = found.remove(&name.replace(".log", ".idx"));
            }
            let (log, recovery, heads) = open(&found).unwrap();
            assert_eq!(recovery.segments_missing, 1, "{name}: {recovery:?}");
            let lost = memory.written.values().filter(|written| written.position.segment == segment_of(name)).count();
            assert!(recovery.quarantined_records as usize >= lost.min(1), "{name}: {recovery:?}");
            for (lsn, written) in &memory.written {
                let is_lost = written.position.segment == segment_of(name);
                let read = log.read(written.position);
                assert_eq!(read.is_err(), is_lost, "{name}: record {lsn}: {read:?}");
                assert!(is_lost || heads.contains_key(lsn), "{name}: record {lsn}");
            }
            // It goes on, is told again until it is reclaimed, and can be.
            let mut later = Memory::default();
            later.append(&log, 5, 100).unwrap();
            log.flush().unwrap();
            drop(log);
            let (log, recovery, heads) = open(&found.crash(0)).unwrap();
            assert!(recovery.has_losses() || lost == 0, "{name}: {recovery:?}");
            heads.values().for_each(|(position, _)| log.release(*position));
            while let Some(segment) = log.reclaimable() {
                log.records_of(segment, &mut |_| {}).unwrap();
                log.retire(segment).unwrap();
            }
            assert_eq!(log.usage().segments, 1, "{name}: nothing is left that cannot be reclaimed");
        }
    }
}

#[test]
fn every_cut_segment_is_told() {
    let (disk, memory) = sealed_log();
    for name in log_names(&disk) {
        for len in [0, 100, 128, 1000, 4095] {
            let found = disk.crash(1);
            found.cut(&name, len);
            let (log, recovery, _) = open(&found).unwrap();
            assert_eq!(recovery.segments_cut, 1, "{name} cut to {len}: {recovery:?}");
            for (lsn, written) in &memory.written {
                let position = written.position;
                let is_cut = position.segment == segment_of(&name) && (position.offset + position.len) as usize > len;
                assert_eq!(log.read(position).is_err(), is_cut, "{name} cut to {len}: record {lsn}");
            }
        }
    }
}

#[test]
fn no_crash_hides_the_loss_of_a_segment() {
    let whole = SimDisk::new(11);
    run(&whole, &mut Memory::default()).unwrap();
    let mut lost = 0;
    for operation in (0..whole.operations()).step_by(2) {
        let (disk, mut memory) = (SimDisk::new(11), Memory::default());
        disk.crash_at(operation);
        run(&disk, &mut memory).unwrap_err();
        for seed in 0..4 {
            let found = disk.crash(seed * (operation + 1));
            for name in log_names(&found) {
                let segment = segment_of(&name);
                let mut owed = memory.written.range(..=memory.durable);
                if segment <= memory.retired || !owed.any(|(_, written)| written.position.segment == segment) {
                    continue;
                }
                lost += 1;
                let left = found.crash(1);
                left.remove(&name).unwrap();
                left.sync_dir().unwrap();
                let is_told = match open(&left) {
                    Ok((_, recovery, _)) => recovery.has_losses(),
                    Err(error) => matches!(error, LogError::NoSegments { .. }),
                };
                assert!(is_told, "crash at {operation} ({}), seed {seed}: {name}", disk.operation(operation));
            }
        }
    }
    assert!(lost > 100, "{lost}");
}

#[test]
fn a_lost_end_is_told_after_a_clean_stop() {
    let (disk, memory) = sealed_log();
    let last = *memory.written.keys().last().unwrap();
    let position = memory.written[&last].position;
    let name = format!("{:08}.log", position.segment);
    // The last record and the mark behind it, as if they had never been written.
    disk.zero(&name, position.offset as usize, 4096 - position.offset as usize);
    let (log, recovery, heads) = open(&disk).unwrap();
    assert_eq!((recovery.quarantined_records, recovery.torn_bytes), (1, 0), "{recovery:?}");
    assert_eq!((heads.len() + 1, recovery.last.0), (memory.written.len(), last));
    log.appender().append(ron_log::Class::Data, b"", b"new").unwrap();
    assert_eq!(log.flush().unwrap().0, last + 1, "a number is never used twice");
    drop(log);
    let (_, recovery, _) = open(&disk.crash(0)).unwrap();
    assert_eq!(recovery.quarantined_records, 1, "told as long as the place is there: {recovery:?}");
}

#[test]
fn a_lost_manifest_is_told_and_one_of_an_older_version_is_not_missed() {
    let (disk, mut memory) = sealed_log();
    let lost = disk.crash(1);
    without_manifest(&lost);
    let (_, recovery, heads) = open(&lost).unwrap();
    assert!(recovery.manifest_lost && recovery.has_losses(), "{recovery:?}");
    assert_eq!(heads.len(), memory.written.len());
    let (_, recovery, _) = open(&lost).unwrap();
    assert!(!recovery.manifest_lost, "it was made again");
    as_before_manifests(&disk);
    let (log, recovery) = memory.reopen(&disk, "a log without a manifest");
    assert_eq!(recovery.headers_damaged, 0);
    drop(log);
    disk.remove(&log_names(&disk)[0]).unwrap();
    let (_, recovery, _) = open(&disk).unwrap();
    assert_eq!(recovery.segments_missing, 1, "from now on it has one");
    without_manifest(&disk);
    let (_, recovery, _) = open(&disk).unwrap();
    assert!(recovery.manifest_lost, "and its loss is told");
}

#[test]
fn nothing_is_begun_anew_beside_a_manifest_of_something_else() {
    let (disk, _) = sealed_log();
    let empty = disk.crash(1);
    for name in empty.names().iter().filter(|name| !name.starts_with("manifest")) {
        empty.remove(name).unwrap();
    }
    let before = contents(&empty);
    let refused = open(&empty).err();
    assert!(matches!(refused, Some(LogError::NoSegments { .. })), "{refused:?}");
    assert_eq!(contents(&empty), before);
    let other = SimDisk::new(99);
    drop(open(&other).unwrap());
    for name in ["manifest.0", "manifest.1"] {
        let bytes = other.bytes_of(name).unwrap();
        disk.create(name).unwrap().write_at(0, &bytes).unwrap();
    }
    let before = contents(&disk);
    assert_eq!(open(&disk).err(), Some(LogError::ForeignManifest));
    assert_eq!(contents(&disk), before);
}

#[test]
fn another_version_is_refused_and_not_touched() {
    let (disk, _) = sealed_log();
    let names = log_names(&disk);
    let version_of = |disk: &SimDisk, name: &str, at: usize, byte: u8| disk.overwrite(name, at, &[byte]);
    type Change<'a> = (&'a str, Box<dyn Fn(&SimDisk) + 'a>);
    let changes: Vec<Change<'_>> = vec![
        ("a header", Box::new(|disk| [8, 72].iter().for_each(|at| version_of(disk, &names[1], *at, 2)))),
        (
            "the last header",
            Box::new(|disk| [8, 72].iter().for_each(|at| version_of(disk, &names[names.len() - 1], *at, 9))),
        ),
        ("a sidecar", Box::new(|disk| version_of(disk, "00000002.idx", 7, 2))),
        ("a manifest", Box::new(|disk| version_of(disk, "manifest.0", 12, 2))),
        ("the other manifest", Box::new(|disk| version_of(disk, "manifest.1", 12, 8 | 4))),
    ];
    for (what, change) in changes {
        let found = disk.crash(1);
        change(&found);
        let before = contents(&found);
        let refused = open(&found).err();
        let Some(LogError::UnknownVersion { .. }) = &refused else { panic!("{what}: {refused:?}") };
        assert!(refused.is_some_and(|error| error.to_string().contains("start the version that wrote it")), "{what}");
        assert_eq!(contents(&found), before, "{what}");
    }
}
