//! The log on a real file system, with its threads.

use ron_log::{Class, Log, LogError, LogOptions, Position, RealDisk};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 << 10, quota_bytes: 64 << 20, reserve_bytes: 1 << 20, ..LogOptions::default() }
}

fn open(path: &Path) -> (Log, ron_log::Recovery, BTreeMap<Vec<u8>, Position>) {
    let disk = Arc::new(RealDisk::open(path).unwrap());
    let mut found = BTreeMap::new();
    let (log, recovery) = Log::open(disk, options(), &mut |replayed, _| {
        found.insert(replayed.head.to_vec(), replayed.position);
    })
    .unwrap();
    (log, recovery, found)
}

fn wait(log: &Log, lsn: ron_log::Lsn) -> Result<ron_log::Lsn, LogError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(log.watch().reached(lsn))
}

#[test]
fn many_writers_share_commits_and_all_of_it_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (log, ..) = open(directory.path());
    let writer = log.start_writer().unwrap();
    assert_eq!(log.start_writer().err().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let log = log.clone();
            scope.spawn(move || {
                for turn in 0..40_u32 {
                    let head = [thread.to_be_bytes(), turn.to_be_bytes()].concat();
                    let mut appender = log.appender();
                    let position = appender.append(Class::Data, &head, &[thread as u8; 400]).unwrap();
                    let lsn = appender.lsn();
                    drop(appender);
                    assert_eq!(log.read(position).unwrap().head, head, "readable before it is durable");
                    assert!(wait(&log, lsn).unwrap() >= lsn);
                }
            });
        }
    });
    let usage = log.usage();
    assert_eq!((usage.appended, log.durable().0), (320, 320));
    assert!(usage.syncs < 320, "{} commits of 320 records: groups formed", usage.syncs);
    assert_eq!(writer.stop().unwrap().0, 320);
    drop(log);
    let (log, recovery, found) = open(directory.path());
    assert_eq!((recovery.records, recovery.torn_bytes, recovery.sealed), (320, 0, true));
    for (head, position) in &found {
        assert_eq!(log.read(*position).unwrap().body, vec![head[3]; 400]);
    }
}

#[test]
fn a_directory_belongs_to_one_opening_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    let refused = RealDisk::open(directory.path()).err().expect("locked");
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    drop(disk);
    RealDisk::open(directory.path()).unwrap();
}

#[test]
fn segments_are_retired_while_the_threads_run() {
    let directory = tempfile::tempdir().unwrap();
    let (log, ..) = open(directory.path());
    let writer = log.start_writer().unwrap();
    for turn in 0..1000_u32 {
        let position = log.appender().append(Class::Data, &turn.to_be_bytes(), &[1; 1000]).unwrap();
        log.release(position);
        if turn % 40 == 0 {
            log.flush().unwrap();
        }
        if let Some(segment) = log.reclaimable() {
            log.retire(segment).unwrap();
        }
    }
    assert_eq!(writer.stop().unwrap().0, 1000);
    let usage = log.usage();
    assert!(usage.segments <= 2, "{usage:?}");
    drop(log);
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert!(left <= 7, "lock, two manifests, active, made ahead, at most one more with its sidecar: {left}");
    let (_, recovery, _) = open(directory.path());
    assert_eq!((recovery.last.0, recovery.quarantined_records), (1000, 0));
}

#[test]
fn without_zero_filling_the_files_grow_and_recover_alike() {
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions { zero_ahead: false, sidecars: false, ..options() };
    let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
    let (log, _) = Log::open(disk.clone(), options.clone(), &mut |_, _| {}).unwrap();
    for turn in 0..200_u32 {
        log.appender().append(Class::Data, &turn.to_be_bytes(), &[1; 1000]).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    let mut seen = 0;
    let (log, recovery) = Log::open(disk, options, &mut |_, _| seen += 1).unwrap();
    assert_eq!((seen, recovery.last.0, recovery.segments_read_whole), (200, 200, recovery.segments));
    assert!(log.usage().segments > 2);
}

#[test]
fn stopping_seals() {
    let disk = ron_log::SimDisk::new(4);
    let (log, _) = Log::open(Arc::new(disk.clone()), options(), &mut |_, _| {}).unwrap();
    let writer = log.start_writer().unwrap();
    let mut appender = log.appender();
    for _ in 0..10 {
        appender.append(Class::Data, b"", b"x").unwrap();
    }
    drop(appender);
    assert_eq!(writer.stop().unwrap().0, 10);
    let found = Arc::new(disk.crash(0));
    let (_, recovery) = Log::open(found, options(), &mut |_, _| {}).unwrap();
    assert_eq!((recovery.records, recovery.sealed), (10, true));
}

#[test]
fn a_watch_ends_with_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (log, ..) = open(directory.path());
    let mut watch = log.watch();
    log.appender().append(Class::Data, b"", b"x").unwrap();
    log.flush().unwrap();
    drop(log);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(watch.changed()).map(|lsn| lsn.0), Ok(1));
    assert_eq!(runtime.block_on(watch.changed()), Err(LogError::Closed));
}
