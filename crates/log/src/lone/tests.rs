//! When a record is taken for lone.

use super::*;
use crate::frame::SEGMENT_HEADER_LEN;
use crate::gather::{Gather, Tail};
use crate::model::{Class, LogOptions};

const QUICK: Duration = Duration::from_micros(100);

/// A log that callers may commit to, with so much of its segment used.
fn gather(segment_bytes: u32, offset: u32) -> Gather {
    let options = LogOptions { segment_bytes, gather_bytes_max: 1 << 20, ..LogOptions::default() };
    let tail = Tail { segment: 1, offset, segment_bytes, lsn: 0, chain: 0 };
    let mut gather = Gather::new(7, options, tail, 0);
    gather.writer_sleeps = true;
    gather.recent.is_allowed = true;
    gather
}

/// One appender with a record of so many bytes.
fn append(gather: &mut Gather, bytes: usize) {
    gather.append(Class::Data, b"", &vec![1; bytes]).unwrap();
    gather.note_appender();
}

fn commit(gather: &mut Gather, sync_time: Duration) {
    let group = gather.take().unwrap().expect("something was gathered");
    gather.committed(group, sync_time);
}

/// A record of so many bytes after groups of one record each; whether it is lone.
fn after(groups: u32, sync_time: Duration, bytes: usize) -> (Gather, bool) {
    let mut gather = gather(1 << 20, SEGMENT_HEADER_LEN);
    for _ in 0..groups {
        append(&mut gather, 1);
        commit(&mut gather, sync_time);
    }
    append(&mut gather, bytes);
    let is_lone = gather.is_lone();
    (gather, is_lone)
}

#[test]
fn a_record_is_lone_after_many_that_were() {
    assert!(!after(LONE_GROUPS_MIN - 1, QUICK, 1).1);
    assert!(after(LONE_GROUPS_MIN, QUICK, 1).1);
    assert!(!after(LONE_GROUPS_MIN, LONE_SYNC_MAX + QUICK, 1).1, "a slow disk is the writer's");
    assert!(!after(LONE_GROUPS_MIN, QUICK, LONE_BYTES_MAX).1, "so is a large record");
}

#[test]
fn a_second_appender_ends_it_before_the_group_is_taken() {
    let (mut gather, is_lone) = after(LONE_GROUPS_MIN, QUICK, 1);
    assert!(is_lone);
    append(&mut gather, 1);
    assert!(!gather.is_lone());
    commit(&mut gather, QUICK);
    append(&mut gather, 1);
    assert!(!gather.is_lone(), "a group of two appenders begins the count anew");
}

#[test]
fn an_appender_that_comes_during_a_sync_ends_it() {
    let (mut gather, _) = after(LONE_GROUPS_MIN, QUICK, 1);
    let group = gather.take().unwrap().unwrap();
    append(&mut gather, 1);
    assert!(!gather.is_lone(), "a group is in flight");
    gather.committed(group, QUICK);
    assert!(!gather.is_lone(), "two callers take turns: the writer lets them share");
}

#[test]
fn the_writer_keeps_what_it_is_awake_for_and_what_begins_a_segment() {
    let unless = |change: fn(&mut Gather)| {
        let (mut gather, is_lone) = after(LONE_GROUPS_MIN, QUICK, 1);
        change(&mut gather);
        is_lone && !gather.is_lone()
    };
    assert!(unless(|gather| gather.writer_sleeps = false));
    assert!(unless(|gather| gather.stopping = true));
    assert!(unless(|gather| gather.recent.is_allowed = false));
    for (offset, segment, is_lone) in [(500, 1, true), (900, 2, false)] {
        let mut gather = gather(1024, offset);
        gather.recent.pretend_lone();
        append(&mut gather, 100);
        assert_eq!((gather.tail().segment, gather.is_lone()), (segment, is_lone), "a segment may have to be made");
    }
}
