//! What a walk through the files of a log says, whatever was done to them.

use super::*;
use crate::frame::MARK_LEN;
use crate::{Class, Log, LogOptions, RealDisk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small segments, so that few records fill several; the scrub is tried on the same.
pub(crate) fn options() -> LogOptions {
    let (quota_bytes, reserve_bytes) = (1 << 20, 64 << 10);
    LogOptions { segment_bytes: 4096, quota_bytes, reserve_bytes, ..LogOptions::default() }
}

pub(crate) fn open(directory: &Path) -> Log {
    let disk = Arc::new(RealDisk::open(directory).expect("free"));
    Log::open(disk, options(), &mut |_, _| {}).expect("opened").0
}

/// Thirty records over several segments, each group durable, stopped cleanly.
fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    for number in 0..30_u8 {
        log.appender().append(Class::Data, &[number; 10], &[number; 500]).expect("room");
        log.flush().expect("durable");
    }
    log.seal().expect("sealed");
    folder
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory).expect("there").map(|entry| entry.expect("there").path());
    entries.map(|path| (path.clone(), std::fs::read(path).expect("readable"))).collect()
}

/// Verifies, and sees to it that nothing was changed and that progress came to its end.
fn verified(directory: &Path) -> Result<VerifyReport, LogError> {
    let before = contents(directory);
    let mut seen = Vec::new();
    let report = verify(directory, &mut |done, total| seen.push((done, total)));
    assert_eq!(contents(directory), before, "a walk changes nothing");
    if let Some((done, total)) = seen.last().filter(|_| report.is_ok()) {
        assert_eq!(done, total);
        assert!(seen.is_sorted());
    }
    report
}

fn records(report: &VerifyReport) -> u64 {
    report.segments.iter().map(|segment| segment.records).sum()
}

/// Changes one file as if the disk had.
fn spoil(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("readable");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_clean_log_is_clean() {
    let folder = written();
    let report = verified(folder.path()).expect("readable");
    assert!(report.is_clean(), "{report:?}");
    assert!(report.segments.len() > 3, "{report:?}");
    assert_eq!(records(&report), 30);
    assert_eq!(report.segments.first().and_then(|segment| segment.first_lsn), Some(1));
    assert_eq!(report.segments.iter().filter_map(|segment| segment.last_lsn).max(), Some(30));
    assert!(report.segments.iter().all(|segment| segment.torn_bytes == 0));
}

#[test]
fn every_flipped_bit_of_a_sealed_segment_is_found() {
    let folder = written();
    let first = folder.path().join(log_name(1));
    let written_bytes = verified(folder.path()).expect("readable").segments[0].written_bytes;
    // The mark that ends a sealed segment promises nothing and may be torn.
    let records_end = usize::try_from(written_bytes).expect("small") - MARK_LEN as usize;
    for at in (128..records_end).step_by(37) {
        spoil(&first, |bytes| bytes[at] ^= 0x04);
        let report = verified(folder.path()).expect("readable");
        spoil(&first, |bytes| bytes[at] ^= 0x04);
        let segment = &report.segments[0];
        assert!(!report.is_clean(), "byte {at}");
        assert!(segment.damage.len() == 1 && segment.lost_records() <= 1, "byte {at}: {segment:?}");
        assert_eq!(records(&report) + segment.lost_records(), 30, "byte {at}");
        assert!(report.segments[1..].iter().all(SegmentReport::is_clean), "byte {at}: the damage does not spread");
    }
}

#[test]
fn a_header_and_a_missing_segment_are_named() {
    let folder = written();
    spoil(&folder.path().join(log_name(2)), |bytes| bytes[20] ^= 1);
    let report = verified(folder.path()).expect("readable");
    assert!(report.segments[1].header_damaged && !report.is_clean());
    assert_eq!(records(&report), 30, "the other copy serves");

    std::fs::remove_file(folder.path().join(log_name(2))).expect("removed");
    let report = verified(folder.path()).expect("readable");
    assert_eq!(report.missing, [2]);
    let lost: u64 = report.segments.iter().map(SegmentReport::lost_records).sum();
    assert_eq!(records(&report) + lost, 30, "what lay in it is counted as lost");
}

#[test]
fn a_torn_tail_is_no_damage() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = open(folder.path());
    let mut last = None;
    for number in 0..5_u8 {
        last = log.appender().append(Class::Data, &[number; 10], &[number; 100]).ok();
        log.flush().expect("durable");
    }
    drop(log);
    let last = last.expect("appended");
    spoil(&folder.path().join(log_name(last.segment)), |bytes| {
        let end = (last.offset + last.len) as usize;
        bytes[end - 40..].fill(0);
    });
    let report = verified(folder.path()).expect("readable");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(records(&report), 4);
    let torn: Vec<u64> = report.segments.iter().map(|segment| segment.torn_bytes).filter(|bytes| *bytes > 0).collect();
    assert_eq!(torn.len(), 1, "{report:?}");
    assert!(torn[0] <= u64::from(last.len), "{report:?}");
}

#[test]
fn a_log_in_use_is_left_alone() {
    let folder = written();
    let log = open(folder.path());
    assert_eq!(verify(folder.path(), &mut |_, _| {}), Err(LogError::InUse));
    drop(log);
    assert!(verify(folder.path(), &mut |_, _| {}).is_ok());
}

#[test]
fn no_log_and_no_header() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    assert_eq!(verified(folder.path()), Ok(VerifyReport::default()));
    let nowhere = verify(&folder.path().join("none"), &mut |_, _| {});
    assert!(matches!(nowhere, Err(LogError::Io { kind: io::ErrorKind::NotFound, .. })), "{nowhere:?}");
    std::fs::write(folder.path().join(log_name(1)), [7; 300]).expect("written");
    assert_eq!(verified(folder.path()), Err(LogError::NoHeader { segments: 1 }));
}

#[test]
fn lost_files_at_the_ends_are_named_and_so_is_a_cut_one() {
    let folder = written();
    let numbers: Vec<u32> = list(folder.path()).expect("readable").iter().map(|file| file.segment).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    for gone in [first, last - 1, last] {
        let path = folder.path().join(log_name(gone));
        let bytes = std::fs::read(&path).expect("readable");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(verified(folder.path()).expect("readable").missing, [gone]);
        assert_eq!(survey(folder.path()).expect("readable").missing, [gone]);
        std::fs::write(&path, &bytes[..bytes.len() - 10]).expect("cut");
        let report = verified(folder.path()).expect("readable");
        let is_told = report.segments.iter().any(|found| (found.segment, found.cut_bytes) == (gone, 10));
        assert!(!report.is_clean() && is_told, "{report:?}");
        assert_eq!(survey(folder.path()).expect("readable").cut, [gone]);
        std::fs::write(&path, bytes).expect("restored");
        assert!(verified(folder.path()).expect("readable").is_clean());
    }
}

#[test]
fn a_lost_manifest_a_lost_end_and_another_version_are_told() {
    let folder = written();
    let last = list(folder.path()).expect("readable").iter().rev().map(|file| file.path.clone()).nth(1).expect("many");
    let before = std::fs::read(&last).expect("readable");
    spoil(&last, |bytes| bytes[128..].fill(0));
    let report = verified(folder.path()).expect("readable");
    assert!(report.lost_at_end > 0, "{report:?}");
    spoil(&last, |bytes| {
        bytes.copy_from_slice(&before);
        (bytes[8], bytes[72]) = (9, 9);
    });
    assert!(matches!(verified(folder.path()), Err(LogError::UnknownVersion { .. })));
    std::fs::write(&last, before).expect("restored");
    manifest::NAMES.iter().for_each(|name| std::fs::remove_file(folder.path().join(name)).expect("removed"));
    assert!(verified(folder.path()).expect("readable").manifest_lost);
}
