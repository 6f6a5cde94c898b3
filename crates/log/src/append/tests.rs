//! Panics under the lock of the log: told to everybody, or harmless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::disk::Disk;
use crate::{Class, Log, LogError, LogOptions, SimDisk, fault};

fn open(disk: &SimDisk) -> Log {
    let options =
        LogOptions { segment_bytes: 2048, quota_bytes: 1 << 20, reserve_bytes: 8192, ..LogOptions::default() };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Log::open(disk, options, &mut |_, _| {}).unwrap().0
}

/// Whether the log tells everybody that it has failed; otherwise it must go on.
fn has_failed(log: &Log) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let Some(error) = log.failed() else {
        let before = log.appender().lsn();
        log.appender().append(Class::Data, b"after", &[2; 100]).expect("the log goes on");
        assert_eq!(log.flush().expect("the log goes on").0, before.0 + 1);
        return false;
    };
    // A future that is not told would wait for ever.
    assert_eq!(runtime.block_on(log.failure()), error);
    assert_eq!(runtime.block_on(log.watch().changed()), Err(error.clone()));
    assert_eq!(log.appender().append(Class::Settle, b"", b""), Err(error.clone()));
    assert_eq!(log.flush(), Err(error));
    true
}

/// Heads of the records that a restart finds, none of them damaged.
fn found(disk: &SimDisk, seed: u64) -> Vec<Vec<u8>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.crash(seed));
    let mut heads = Vec::new();
    let options =
        LogOptions { segment_bytes: 2048, quota_bytes: 1 << 20, reserve_bytes: 8192, ..LogOptions::default() };
    let (_, recovery) = Log::open(disk, options, &mut |replayed, _| heads.push(replayed.head.to_vec())).unwrap();
    assert_eq!(recovery.quarantined_records, 0);
    heads
}

#[test]
fn a_panic_under_the_lock_of_the_log_is_told_to_everybody_or_does_no_harm() {
    let (mut failures, mut points) = (0, 0);
    loop {
        let disk = SimDisk::new(3);
        let log = open(&disk);
        log.appender().append(Class::Data, b"before", &[1; 100]).unwrap();
        log.flush().unwrap();
        fault::plant(points);
        let worked = catch_unwind(AssertUnwindSafe(|| {
            for head in [b"1", b"2", b"3"] {
                // The third begins another segment.
                let mut appender = log.appender().of_rebuilt();
                appender.append(Class::Data, head, &[1; 700]).unwrap();
                appender.append(Class::Settle, head, b"").unwrap();
                drop(appender);
                log.flush().unwrap();
            }
        }));
        let is_over = fault::take_out();
        assert_eq!(worked.is_ok(), is_over);
        failures += u32::from(has_failed(&log));
        drop(log);
        for seed in 0..4 {
            assert_eq!(found(&disk, seed)[0], b"before", "panic at {points}, survival {seed}");
        }
        if is_over {
            break;
        }
        points += 1;
    }
    assert!(points > 20 && failures > 20, "{failures} failures at {points} points");
}

#[test]
fn who_reads_the_log_again_may_panic_and_who_does_not_may_not() {
    for (is_rebuilt, appends, fails) in
        [(true, true, false), (true, false, false), (false, true, true), (false, false, false)]
    {
        let disk = SimDisk::new(3);
        let log = open(&disk);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut appender = if is_rebuilt { log.appender().of_rebuilt() } else { log.appender() };
            if appends {
                appender.append(Class::Data, b"half", &[1; 100]).unwrap();
            }
            panic!("its holder knows half of it");
        }));
        assert!(panicked.is_err());
        let failed = log.failed();
        assert_eq!(failed.is_some(), fails, "{is_rebuilt} {appends}: {failed:?}");
        assert!(failed.is_none_or(|error| matches!(error, LogError::Failed { .. })));
        assert_eq!(has_failed(&log), fails);
        if !fails {
            assert_eq!(found(&disk, 0).len(), usize::from(appends) + 1, "what was appended is in the log");
        }
    }
}
