//! Records that are alone: their callers commit them, and everything else stays as it is.

use ron_log::{Class, Log, LogError, LogOptions, LoneCommit, Lsn, SimDisk};
use std::sync::Arc;

fn open(disk: &SimDisk) -> (Log, ron_log::Recovery, Vec<Vec<u8>>) {
    let (segment_bytes, quota_bytes, reserve_bytes) = (64 << 10, 8 << 20, 1 << 20);
    let options = LogOptions { segment_bytes, quota_bytes, reserve_bytes, ..LogOptions::default() };
    let mut found = Vec::new();
    let (log, recovery) =
        Log::open(Arc::new(disk.clone()), options, &mut |replayed, _| found.push(replayed.head.to_vec())).unwrap();
    (log, recovery, found)
}

fn append(log: &Log, head: &[u8]) -> (Lsn, Option<LoneCommit>) {
    let mut appender = log.appender();
    appender.append(Class::Data, head, b"body").unwrap();
    (appender.lsn(), appender.finish())
}

fn wait(log: &Log, lsn: Lsn) -> Result<Lsn, LogError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(log.watch().reached(lsn))
}

/// Appends one record after the other until one is left to this thread. The writer falls asleep some time after it has
/// published, so that no number of records is sure to be enough.
fn append_until_lone(log: &Log) -> (Lsn, LoneCommit) {
    loop {
        match append(log, b"before") {
            (lsn, Some(owed)) => return (lsn, owed),
            (lsn, None) => drop(wait(log, lsn).unwrap()),
        }
    }
}

#[test]
fn a_lone_record_is_durable_when_its_caller_has_committed_it() {
    let disk = SimDisk::new(1);
    let (log, ..) = open(&disk);
    let writer = log.start_writer().unwrap();
    log.let_callers_commit(true);
    let (lsn, owed) = append_until_lone(&log);
    assert!(log.durable() < lsn, "nobody was woken for it");
    let syncs = disk.syncs();
    assert_eq!(owed.commit(), Some(lsn));
    assert_eq!((log.durable(), disk.syncs()), (lsn, syncs + 1));
    let (_, recovery, found) = open(&disk.crash(0));
    assert_eq!((recovery.last, found.len() as u64), (lsn, lsn.0), "a crash right after it loses nothing");
    assert_eq!(writer.stop().unwrap(), lsn);
}

#[test]
fn what_a_caller_owes_and_drops_the_writer_does() {
    let (log, ..) = open(&SimDisk::new(2));
    let writer = log.start_writer().unwrap();
    log.let_callers_commit(true);
    let (lsn, owed) = append_until_lone(&log);
    drop(owed);
    assert_eq!(wait(&log, lsn), Ok(lsn));
    writer.stop().unwrap();
}

#[test]
fn whoever_comes_meanwhile_has_the_writer_do_both() {
    let (log, ..) = open(&SimDisk::new(3));
    let writer = log.start_writer().unwrap();
    log.let_callers_commit(true);
    let (lsn, owed) = append_until_lone(&log);
    let (second, owed_too) = append(&log, b"second");
    assert!(owed_too.is_none());
    assert_eq!(wait(&log, second), Ok(second));
    assert!(lsn < second && owed.commit().is_none());
    writer.stop().unwrap();
}

#[test]
fn a_stop_does_not_wait_for_what_a_caller_owes() {
    let disk = SimDisk::new(4);
    let (log, ..) = open(&disk);
    let writer = log.start_writer().unwrap();
    log.let_callers_commit(true);
    let (lsn, owed) = append_until_lone(&log);
    assert_eq!(writer.stop().unwrap(), lsn);
    assert!(owed.commit().is_none());
    let (_, recovery, _) = open(&disk.crash(0));
    assert_eq!((recovery.last, recovery.sealed), (lsn, true));
}

#[test]
fn a_sync_that_fails_for_a_caller_ends_the_log_for_all() {
    let disk = SimDisk::new(5);
    let (log, ..) = open(&disk);
    let writer = log.start_writer().unwrap();
    log.let_callers_commit(true);
    let (lsn, owed) = append_until_lone(&log);
    disk.fail_sync(disk.syncs());
    assert_eq!(owed.commit(), None);
    let error = log.failed().expect("the log has failed");
    assert_eq!(wait(&log, lsn), Err(error.clone()), "nobody is told that it is durable");
    assert_eq!(log.appender().append(Class::Settle, b"", b""), Err(error.clone()));
    assert_eq!(writer.stop(), Err(error));
}

#[test]
fn nobody_commits_who_was_not_allowed_to() {
    let (log, ..) = open(&SimDisk::new(6));
    let writer = log.start_writer().unwrap();
    for _ in 0..100 {
        let (lsn, owed) = append(&log, b"x");
        assert!(owed.is_none());
        wait(&log, lsn).unwrap();
    }
    writer.stop().unwrap();
}
