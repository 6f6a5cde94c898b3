//! The commit path of the log: many append, a writer, a flush and callers whose record is alone commit, and
//! nobody is answered early or never.
//!
//! The gathering is the real one; the locks, the sleep of the writer and its waking are as in `append`, `lone` and
//! `writer`.

use crate::{SCHEDULES, check};
use ron_log::frame::SEGMENT_HEADER_LEN;
use ron_log::gather::{Gather, Tail};
use ron_log::{Class, LogOptions};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const PRODUCERS: u64 = 3;
const RECORDS: u64 = 2;

/// Records left to their callers, over all schedules; no part of the model.
static LONE_COMMITS: AtomicUsize = AtomicUsize::new(0);

struct Core {
    committing: Mutex<()>,
    gather: Mutex<Gather>,
    work: Condvar,
    /// What the disk has, which only a sync changes.
    synced: AtomicU64,
    durable: Mutex<u64>,
    published: Condvar,
}

impl Core {
    fn new() -> Core {
        let options = LogOptions {
            segment_bytes: 1024,
            quota_bytes: 1 << 20,
            reserve_bytes: 512,
            gather_bytes_max: 4096,
            ..LogOptions::default()
        };
        let tail = Tail { segment: 1, offset: SEGMENT_HEADER_LEN, segment_bytes: 1024, lsn: 0, chain: 0 };
        let mut gather = Gather::new(7, options, tail, 0);
        gather.recent.is_allowed = true;
        Core {
            committing: Mutex::new(()),
            gather: Mutex::new(gather),
            work: Condvar::new(),
            synced: AtomicU64::new(0),
            durable: Mutex::new(0),
            published: Condvar::new(),
        }
    }

    /// Appends and wakes the writer if it sleeps, as dropping an appender does; or commits a record that is alone, as
    /// its caller does if `settles`, and gives that up as a caller that goes away does otherwise.
    fn append(&self, settles: bool) -> u64 {
        let mut gather = self.gather.lock().unwrap();
        gather.recent.pretend_lone();
        gather.append(Class::Data, b"head", &[1; 150]).unwrap();
        gather.note_appender();
        let (lsn, sleeps, is_lone) = (gather.tail().lsn, gather.writer_sleeps, gather.is_lone());
        drop(gather);
        if is_lone {
            LONE_COMMITS.fetch_add(1, Relaxed);
            self.settle(settles);
        } else if sleeps {
            self.work.notify_one();
        }
        lsn
    }

    /// As `LoneCommit` does.
    fn settle(&self, commits: bool) {
        if let (true, Ok(_committing)) = (commits, self.committing.try_lock()) {
            let is_lone = self.gather.lock().unwrap().is_lone();
            if is_lone {
                self.commit_holding();
            }
        }
        let is_owed = !self.gather.lock().unwrap().is_empty();
        if is_owed {
            self.work.notify_one();
        }
    }

    fn commit(&self) {
        let _committing = self.committing.lock().unwrap();
        self.commit_holding();
    }

    fn commit_holding(&self) {
        let taken = self.gather.lock().unwrap().take().unwrap();
        let Some(group) = taken else { return };
        // The write and the sync of each part; others run meanwhile.
        for _ in &group.parts {
            thread::yield_now();
        }
        self.synced.store(group.last_lsn, Ordering::SeqCst);
        let durable = self.gather.lock().unwrap().committed(group, Duration::ZERO);
        let mut published = self.durable.lock().unwrap();
        assert!(durable > *published, "what is durable only grows");
        *published = durable;
        drop(published);
        self.published.notify_all();
    }

    /// Sleeps until something is gathered; false when it is time to end.
    fn wait_for_records(&self) -> bool {
        let mut gather = self.gather.lock().unwrap();
        while gather.is_empty() && !gather.stopping {
            gather.writer_sleeps = true;
            gather = self.work.wait(gather).unwrap();
        }
        gather.writer_sleeps = false;
        !gather.is_empty()
    }

    /// Waits for the answer to a record.
    fn answered(&self, lsn: u64) {
        let mut durable = self.durable.lock().unwrap();
        while *durable < lsn {
            durable = self.published.wait(durable).unwrap();
        }
        drop(durable);
        assert!(self.synced.load(Ordering::SeqCst) >= lsn, "record {lsn} was answered before its group was synced");
    }

    fn stop(&self) {
        self.gather.lock().unwrap().stopping = true;
        self.work.notify_all();
    }
}

/// A lost wake-up leaves somebody waiting for ever, which the scheduler reports as a deadlock.
#[test]
fn every_record_is_answered_once_its_group_is_synced_and_not_before() {
    check(SCHEDULES, || {
        let core = Arc::new(Core::new());
        let writer = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                while core.wait_for_records() {
                    core.commit();
                }
            })
        };
        let mut callers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let core = Arc::clone(&core);
                // One of them never keeps what it offered.
                let append = move || core.answered(core.append(producer > 0));
                thread::spawn(move || (0..RECORDS).for_each(|_| append()))
            })
            .collect();
        // Somebody else may ask for a commit at any time.
        callers.push({
            let core = Arc::clone(&core);
            thread::spawn(move || core.commit())
        });
        for caller in callers {
            caller.join().unwrap();
        }
        core.stop();
        writer.join().unwrap();
        let gather = core.gather.lock().unwrap();
        assert_eq!((gather.tail().lsn, gather.is_empty()), (PRODUCERS * RECORDS, true));
    });
    assert!(LONE_COMMITS.load(Relaxed) > 0, "no schedule left a record to its caller");
}
