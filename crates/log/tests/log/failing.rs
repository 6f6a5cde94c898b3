//! A disk that gives errors: the log stops acknowledging for ever, and what it promised stays.

use crate::workload::{Memory, open, options, run};
use ron_log::{Class, Disk, Log, LogError, Shortage, SimDisk};
use std::sync::Arc;

/// Runs the script on a disk that fails somewhere; returns whether it failed while the log was open.
fn check(disk: &SimDisk, what: &str) {
    let mut memory = Memory::default();
    let error = run(disk, &mut memory).expect_err(what);
    assert!(matches!(error, LogError::Failed { .. } | LogError::Io { .. }), "{what}: {error}");
    for seed in 0..4 {
        memory.clone().reopen(&disk.crash(seed), &format!("{what}, survival {seed}"));
    }
}

#[test]
fn every_write_in_turn_fails() {
    let disk = SimDisk::new(1);
    run(&disk, &mut Memory::default()).unwrap();
    for number in 0..disk.writes() {
        let disk = SimDisk::new(1);
        disk.fail_write(number);
        check(&disk, &format!("write {number} fails"));
    }
}

#[test]
fn every_sync_in_turn_fails() {
    let disk = SimDisk::new(1);
    run(&disk, &mut Memory::default()).unwrap();
    for number in 0..disk.syncs() {
        let disk = SimDisk::new(1);
        disk.fail_sync(number);
        check(&disk, &format!("sync {number} fails"));
    }
}

/// Goes on after a failure without a loss of power, then the power goes: nothing that was promised since may be gone.
fn restart_then_cut(disk: &SimDisk, mut memory: Memory, what: &str) {
    let found = disk.restart();
    let (log, _) = memory.reopen(&found, &format!("{what}, restarted"));
    for seed in 0..4 {
        memory.clone().reopen(&found.crash(seed), &format!("{what}, restarted, survival {seed}"));
    }
    for body_len in [300, 2000, 1700] {
        memory.append(&log, 7, body_len).unwrap();
        memory.flush(&log).unwrap();
    }
    drop(log);
    for seed in 0..4 {
        memory.clone().reopen(&found.crash(seed), &format!("{what}, gone on, survival {seed}"));
    }
}

#[test]
fn what_a_failed_sync_left_in_memory_is_written_again_before_it_is_trusted() {
    let disk = SimDisk::new(1);
    run(&disk, &mut Memory::default()).unwrap();
    for number in 0..disk.syncs() {
        let (disk, mut memory) = (SimDisk::new(1), Memory::default());
        disk.fail_sync(number);
        run(&disk, &mut memory).unwrap_err();
        restart_then_cut(&disk, memory, &format!("sync {number} fails"));
    }
}

#[test]
fn so_is_what_a_recovery_wrote_whose_sync_failed() {
    let whole = SimDisk::new(1);
    run(&whole, &mut Memory::default()).unwrap();
    let mut failures = 0;
    for operation in (0..whole.operations()).step_by(5) {
        let (disk, mut memory) = (SimDisk::new(1), Memory::default());
        disk.crash_at(operation);
        run(&disk, &mut memory).unwrap_err();
        for survival in [1, 2, 5] {
            let seed = survival * (operation + 1);
            let uninterrupted = disk.crash(seed);
            drop(open(&uninterrupted).unwrap());
            for number in 0..uninterrupted.syncs() {
                let found = disk.crash(seed);
                found.fail_sync(number);
                assert!(open(&found).is_err());
                failures += 1;
                let what = format!("crash at {operation}, survival {seed}, sync {number} of the recovery fails");
                restart_then_cut(&found, memory.clone(), &what);
            }
        }
    }
    assert!(failures > 200, "{failures}");
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_reads_go_on() {
    let disk = SimDisk::new(1);
    let mut memory = Memory::default();
    let (log, ..) = open(&disk).unwrap();
    let kept = memory.append(&log, 3, 50).unwrap();
    memory.flush(&log).unwrap();
    let mut watch = log.watch();
    let lost = memory.append(&log, 3, 60).unwrap();
    disk.fail_sync(disk.syncs());
    let error = log.flush().unwrap_err();
    assert!(matches!(error, LogError::Failed { .. }));
    let operations = disk.operations();
    for _ in 0..3 {
        assert_eq!(log.flush(), Err(error.clone()));
        assert_eq!(log.appender().append(Class::Settle, b"", b""), Err(error.clone()));
    }
    assert_eq!(disk.operations(), operations, "the same pages are never tried again");
    assert_eq!((log.durable().0, log.failed()), (1, Some(error.clone())));
    let told = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(watch.changed());
    assert_eq!(told, Err(error));
    assert!(log.read(kept).is_ok() && log.read(lost).is_ok(), "reads go on");
}

#[test]
fn a_disk_that_fills_up_refuses_and_recovers_when_room_comes_back() {
    let disk = SimDisk::new(1);
    let mut memory = Memory::default();
    let (log, ..) = open(&disk).unwrap();
    memory.append(&log, 3, 50).unwrap();
    memory.flush(&log).unwrap();
    disk.limit_bytes(Some(5 * 4096));
    let full = loop {
        match memory.append(&log, 3, 700) {
            Ok(_) => memory.flush(&log).unwrap(),
            Err(error) => break error,
        };
    };
    assert_eq!((full, log.failed()), (LogError::Full { shortage: Shortage::Device }, None), "refused at the door");
    assert!(memory.written.len() > 4);
    memory.reopen(&disk.crash(0), "full");
    disk.limit_bytes(None);
    memory.flush(&log).unwrap();
    memory.append(&log, 3, 700).unwrap();
    memory.flush(&log).unwrap();
}

#[test]
fn a_disk_has_one_log() {
    let disk = SimDisk::new(1);
    let (log, ..) = open(&disk).unwrap();
    let again: Arc<dyn Disk> = Arc::new(disk.clone());
    assert_eq!(Log::open(again, options(), &mut |_, _| {}).err(), Some(LogError::InUse));
    let watch = log.watch();
    drop(log);
    open(&disk).unwrap();
    drop(watch);
}

/// Takes away what a recovery would have to make again.
fn without(disk: &SimDisk, is_taken: impl Fn(&str) -> bool) {
    for name in disk.names().iter().filter(|name| is_taken(name)) {
        disk.remove(name).unwrap();
    }
    disk.sync_dir().unwrap();
}

/// Heads of what a start finds, and of what it finds again once there is room.
fn heads(disk: &SimDisk) -> Result<(Vec<Vec<u8>>, Log), LogError> {
    let mut heads = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) = Log::open(disk, options(), &mut |replayed, _| heads.push(replayed.head.to_vec()))?;
    Ok((heads, log))
}

#[test]
fn a_start_on_a_full_device_serves_what_one_with_room_would() {
    let whole = SimDisk::new(1);
    run(&whole, &mut Memory::default()).unwrap();
    let mut starts = 0;
    for operation in (0..whole.operations()).step_by(7) {
        let disk = SimDisk::new(1);
        disk.crash_at(operation);
        run(&disk, &mut Memory::default()).unwrap_err();
        for (nth, survival) in [1, 2, 5].into_iter().enumerate() {
            let seed = survival * (operation + 1);
            let found = |limited: bool| {
                let found = disk.crash(seed);
                match (operation as usize + nth) % 4 {
                    0 => without(&found, |name| name.ends_with(".idx")),
                    1 => without(&found, |name| name.starts_with("manifest")),
                    2 => cut_last_segment(&found),
                    _ => {}
                }
                if limited {
                    let names = found.names();
                    let bytes = names.iter().filter_map(|name| found.bytes_of(name)).map(|bytes| bytes.len() as u64);
                    found.limit_bytes(Some(bytes.sum()));
                    found.limit_names(Some(names.len()));
                }
                found
            };
            // A log that was never begun needs room.
            if !found(false).names().iter().any(|name| name.ends_with(".log")) {
                continue;
            }
            let what = format!("crash at {operation}, survival {seed}");
            let Ok((expected, _)) = heads(&found(false)) else { continue };
            let full = found(true);
            let (seen, log) = heads(&full).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(seen, expected, "{what}");
            // With room again it goes on, and the next start misses nothing.
            full.limit_bytes(None);
            full.limit_names(None);
            log.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
            log.appender().append(Class::Data, b"after", &[7; 700]).unwrap_or_else(|error| panic!("{what}: {error}"));
            log.seal().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(log);
            let (again, _) = heads(&full.crash(0)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(again[..expected.len()], expected[..], "{what}");
            assert_eq!(again[expected.len()..], [b"after".to_vec()], "{what}");
            starts += 1;
        }
    }
    assert!(starts > 50, "{starts}");
}

/// The names of files find room on a full device more often than their bytes do.
#[test]
fn a_manifest_that_finds_no_room_keeps_no_segment_from_going() {
    let disk = SimDisk::new(1);
    let mut memory = Memory::default();
    let (log, ..) = open(&disk).unwrap();
    while log.usage().segments < 5 {
        memory.append(&log, 3, 900).unwrap();
        memory.flush(&log).unwrap();
    }
    log.seal().unwrap();
    drop(log);
    let disk = disk.crash(0);
    without(&disk, |name| name.starts_with("manifest"));
    let bytes = disk.names().into_iter().filter_map(|name| disk.bytes_of(&name)).map(|bytes| bytes.len() as u64);
    disk.limit_bytes(Some(bytes.sum()));
    let (log, ..) = open(&disk).unwrap();
    memory.written.values().for_each(|written| log.release(written.position));
    let mut retired = 0;
    while let Some(segment) = log.reclaimable() {
        log.retire(segment).unwrap_or_else(|error| panic!("segment {segment}: {error}"));
        retired += 1;
    }
    assert!(retired > 3 && log.failed().is_none(), "{retired}: {:?}", log.failed());
    log.appender().append(Class::Settle, b"after", b"").unwrap();
    log.seal().unwrap();
    drop(log);
    let (_, recovery, found) = open(&disk.crash(0)).unwrap();
    assert!(!recovery.has_losses(), "a false alarm: {recovery:?}");
    assert_eq!(found.values().last().map(|(_, head)| head.as_slice()), Some(&b"after"[..]));
}

/// The last segment with records loses its end, as a careless copy loses it.
fn cut_last_segment(disk: &SimDisk) {
    let written =
        |name: &String| disk.bytes_of(name).is_some_and(|bytes| bytes.iter().skip(200).any(|byte| *byte != 0));
    if let Some(last) = disk.names().into_iter().filter(|name| name.ends_with(".log")).rfind(written) {
        let bytes = disk.bytes_of(&last).expect("it was listed");
        let end = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        disk.cut(&last, end);
    }
}
