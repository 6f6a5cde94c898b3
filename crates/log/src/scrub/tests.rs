//! What a scrub of a log in use finds, and what it must not take for damage.

use super::*;
use crate::core::log_name;
use crate::verify::tests::{open, options};
use crate::{Class, RamDisk};
use std::path::Path;

/// Appends records with heads and bodies of their number, each in a group of its own.
fn fill(log: &Log, records: u8) -> Vec<Position> {
    let append = |number: u8| {
        let position = log.appender().append(Class::Data, &[number; 10], &[number; 500]).expect("room");
        log.flush().expect("durable");
        position
    };
    (0..records).map(append).collect()
}

fn check(log: &Log, segment: u32) -> Result<SegmentFindings, LogError> {
    let mut scrub = log.scrub_segment(segment)?;
    while scrub.read_piece()? > 0 {}
    scrub.finish()
}

fn check_all(log: &Log) -> Vec<SegmentFindings> {
    log.settled_segments().into_iter().map(|span| check(log, span.segment).expect("there")).collect()
}

fn damage(found: &[SegmentFindings]) -> Vec<&StretchFinding> {
    found.iter().flat_map(|segment| &segment.stretches).collect()
}

/// Changes a file under the open log, as a bad disk would.
fn spoil(directory: &Path, segment: u32, change: impl FnOnce(&mut Vec<u8>)) {
    let path = directory.join(log_name(segment));
    let mut bytes = std::fs::read(&path).expect("readable");
    change(&mut bytes);
    // The log holds the file open, so it must stay the same file.
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(path).expect("there"),
        &bytes,
        0,
    )
    .expect("written");
}

#[test]
fn a_clean_log_is_clean_to_its_last_settled_record() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    fill(&log, 30);
    log.appender().append(Class::Data, b"gathered", b"not yet on the disk").expect("room");
    let found = check_all(&log);
    assert!(found.len() > 3 && damage(&found).is_empty(), "{found:?}");
    assert!(found.iter().all(|segment| !segment.header_damaged));
    assert_eq!(found.iter().map(|segment| segment.records).sum::<u64>(), 30, "the one in memory is not settled");
}

#[test]
fn memory_is_checked_like_a_disk() {
    let (log, _) = Log::open(Arc::new(RamDisk::default()), options(), &mut |_, _| {}).expect("opened");
    fill(&log, 30);
    let found = check_all(&log);
    assert!(found.len() > 3 && damage(&found).is_empty(), "{found:?}");
    assert_eq!(found.iter().map(|segment| segment.records).sum::<u64>(), 30);
}

#[test]
fn a_flipped_bit_is_found_in_every_record_and_named_by_its_head() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    let positions = fill(&log, 30);
    for (number, position) in positions.iter().enumerate() {
        let at = (position.offset + position.len - 100) as usize;
        spoil(folder.path(), position.segment, |bytes| bytes[at] ^= 0x10);
        let found = check_all(&log);
        spoil(folder.path(), position.segment, |bytes| bytes[at] ^= 0x10);
        let [stretch] = damage(&found)[..] else { panic!("record {number}: {found:?}") };
        let Damage { segment, offset, records, first, .. } = stretch.damage;
        assert_eq!((segment, offset, records), (position.segment, position.offset, 1), "record {number}");
        assert_eq!(first, Lsn(number as u64 + 1));
        let named = DamagedRecord { position: *position, head: vec![number as u8; 10] };
        assert_eq!(stretch.records, [named], "record {number}, in a sealed segment or in the open one");
    }
    assert!(damage(&check_all(&log)).is_empty(), "and all is well again");
}

#[test]
fn an_end_that_was_wiped_out_is_missed() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    let positions = fill(&log, 30);
    let in_first = positions.iter().filter(|position| position.segment == 1).count() as u64;
    let second = positions[1];
    spoil(folder.path(), 1, |bytes| bytes[second.offset as usize..].fill(0));
    let found = check_all(&log);
    assert_eq!(found[0].records, 1);
    let [stretch] = damage(&found)[..] else { panic!("{found:?}") };
    assert_eq!((stretch.damage.segment, stretch.damage.records), (1, in_first - 1));
    assert_eq!(stretch.damage.first, Lsn(2));

    let open_one = positions.last().expect("thirty").segment;
    spoil(folder.path(), open_one, |bytes| bytes[SEGMENT_START..].fill(0));
    let in_open = positions.iter().filter(|position| position.segment == open_one).count() as u64;
    let found = check(&log, open_one).expect("there");
    assert_eq!((found.records, found.stretches[0].damage.records), (0, in_open));
}

/// First byte behind the header of a segment.
const SEGMENT_START: usize = crate::frame::SEGMENT_HEADER_LEN as usize;

#[test]
fn a_bad_header_and_a_short_or_missing_file_are_found() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    let positions = fill(&log, 30);
    spoil(folder.path(), 2, |bytes| bytes[20] ^= 1);
    let found = check(&log, 2).expect("there");
    assert!(found.header_damaged && found.stretches.is_empty(), "{found:?}");

    let path = folder.path().join(log_name(3));
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("there");
    file.set_len(200).expect("cut");
    let in_third = positions.iter().filter(|position| position.segment == 3).count() as u64;
    let found = check(&log, 3).expect("there");
    assert_eq!(found.stretches.iter().map(|stretch| stretch.damage.records).sum::<u64>(), in_third);

    // A file cut while it is being read.
    let mut scrub = log.scrub_segment(2).expect("there");
    let path = folder.path().join(log_name(2));
    std::fs::OpenOptions::new().write(true).open(path).expect("there").set_len(10).expect("cut");
    while scrub.read_piece().expect("still in the log") > 0 {}
    let in_second = positions.iter().filter(|position| position.segment == 2).count() as u64;
    let found = scrub.finish().expect("still in the log");
    assert_eq!(found.stretches.iter().map(|stretch| stretch.damage.records).sum::<u64>(), in_second);
    assert!(found.header_damaged);
}

#[test]
fn a_segment_given_back_under_a_scrub_is_no_damage() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    let positions = fill(&log, 30);
    let spans = log.settled_segments();
    let mut scrub = log.scrub_segment(1).expect("there");
    assert!(scrub.read_piece().expect("readable") > 0);
    log.release_all(positions.into_iter());
    log.retire(1).expect("nothing in it is needed");
    assert_eq!(scrub.finish().map(drop), Err(LogError::Gone { segment: 1 }));
    log.retire(2).expect("nothing in it is needed");
    assert_eq!(check(&log, 2).map(drop), Err(LogError::Gone { segment: 2 }));
    assert!(spans[2..].iter().all(|span| check(&log, span.segment).is_ok_and(|found| found.stretches.is_empty())));
    assert_eq!(check(&log, 99).map(drop), Err(LogError::Gone { segment: 99 }));
}

#[test]
fn a_scrub_sees_only_what_was_settled_when_it_began() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    fill(&log, 2);
    let mut scrub = log.scrub_segment(1).expect("there");
    fill(&log, 3);
    while scrub.read_piece().expect("readable") > 0 {}
    let found = scrub.finish().expect("there");
    assert_eq!((found.records, found.stretches.len()), (2, 0), "{found:?}");
}
