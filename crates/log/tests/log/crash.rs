//! The power goes at every operation of a script, and the disk comes back in several ways.

use crate::workload::{Memory, run};
use ron_log::SimDisk;

const SURVIVALS: u64 = 8;

/// The script with the power going at one operation.
fn crashed_at(operation: u64, mut memory: Memory) -> (SimDisk, Memory) {
    let disk = SimDisk::new(11);
    disk.crash_at(operation);
    let result = run(&disk, &mut memory);
    assert_eq!(result.is_err(), disk.has_crashed(), "operation {operation}: {result:?}");
    (disk, memory)
}

fn script_operations(mut memory: Memory) -> u64 {
    let disk = SimDisk::new(11);
    run(&disk, &mut memory).expect("nothing fails");
    let names = disk.names();
    let has_sidecars = names.iter().any(|name| name.ends_with(".idx"));
    assert_eq!(has_sidecars, memory.options.sidecars, "the script makes sidecars: {names:?}");
    assert!(!names.contains(&"00000001.log".to_owned()), "the script retires: {names:?}");
    disk.operations()
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash_point() {
    crash_everywhere(&Memory::default(), 80);
}

#[test]
fn nor_without_zero_filling_and_sidecars() {
    crash_everywhere(&Memory::plain(), 60);
}

fn crash_everywhere(memory: &Memory, operations_min: u64) {
    let operations = script_operations(memory.clone());
    assert!(operations > operations_min, "{operations}");
    for operation in 0..operations {
        let (disk, memory) = crashed_at(operation, memory.clone());
        for seed in 0..SURVIVALS {
            let what = format!("crash at {operation} ({}), survival {seed}", disk.operation(operation));
            let mut memory = memory.clone();
            let found = disk.crash(seed * (operation + 1));
            let (log, _) = memory.reopen(&found, &what);
            // The log goes on, over the end of a segment, and survives another crash.
            for body_len in [10, 1800, 1700, 900] {
                memory.append(&log, 12, body_len).unwrap();
            }
            memory.flush(&log).unwrap();
            memory.append(&log, 9, 40).unwrap();
            let again = found.crash(seed + 1);
            drop(log);
            memory.reopen(&again, &format!("{what}, then again"));
        }
    }
}

#[test]
fn recovery_may_crash_at_any_point_too() {
    for operation in 0..script_operations(Memory::default()) {
        let (disk, memory) = crashed_at(operation, Memory::default());
        for survival in [1, 2, 3, 6] {
            let seed = survival * (operation + 1);
            let whole = disk.crash(seed);
            memory.clone().reopen(&whole, "uninterrupted");
            for step in 0..whole.operations() {
                let found = disk.crash(seed);
                found.crash_at(step);
                assert!(crate::workload::open(&found).is_err());
                let what = format!("crash at {operation}, survival {seed}, recovery crashed at {step}");
                memory.clone().reopen(&found.crash(step), &what);
            }
        }
    }
}

#[test]
fn a_clean_stop_is_known_and_costs_nothing() {
    let disk = SimDisk::new(3);
    let mut memory = Memory::default();
    run(&disk, &mut memory).unwrap();
    let (_log, recovery) = memory.reopen(&disk.crash(0), "clean stop, then the power went");
    assert!(recovery.sealed);
    assert_eq!(recovery.torn_bytes, 0);
    let (_log, recovery) = memory.reopen(&disk, "clean stop");
    assert!(recovery.sealed);
    assert_eq!(recovery.segments_read_whole, 1, "the last one only; the sidecars tell the rest");
}

#[test]
fn torn_bytes_are_kept_and_stale_ones_never_come_back() {
    let mut torn = 0;
    for seed in 2..60 {
        let disk = SimDisk::new(5);
        let mut memory = Memory::default();
        let (log, ..) = crate::workload::open(&disk).unwrap();
        memory.append(&log, 4, 100).unwrap();
        memory.flush(&log).unwrap();
        for _ in 0..6 {
            memory.append(&log, 4, 500).unwrap();
        }
        // The group is written and its sync never comes.
        disk.crash_at(disk.operations() + 1);
        memory.flush(&log).unwrap_err();
        let found = disk.crash(seed);
        let (log, recovery) = memory.reopen(&found, "torn");
        if recovery.torn_bytes > 0 {
            torn += 1;
            let saved = found.names().into_iter().find(|name| name.starts_with("torn-00000001-")).expect("saved");
            assert_eq!(found.bytes_of(&saved).unwrap().len() as u64, recovery.torn_bytes);
        }
        drop(log);
        let (_, again) = memory.reopen(&found.crash(0), "after the cut");
        assert_eq!(again.torn_bytes, 0, "the zeros behind the cut are durable");
    }
    assert!(torn > 10, "{torn} of 58 were torn");
}

#[test]
fn numbers_never_go_back_even_if_only_an_emptied_segment_is_left() {
    let mut emptied = 0;
    for seed in 2..80 {
        let disk = SimDisk::new(5);
        let mut memory = Memory::default();
        let (log, ..) = crate::workload::open(&disk).unwrap();
        for _ in 0..4 {
            memory.append(&log, 4, 800).unwrap();
            memory.flush(&log).unwrap();
        }
        // The next group goes to the second segment only, and is torn.
        memory.append(&log, 4, 2000).unwrap();
        disk.crash_at(disk.operations() + 1);
        memory.flush(&log).unwrap_err();
        let found = disk.crash(seed);
        let (log, recovery) = memory.reopen(&found, "torn");
        memory.written.values().for_each(|written| log.release(written.position));
        if log.retire(1).is_err() {
            continue;
        }
        emptied += u32::from(recovery.last.0 == 4);
        memory.retired = 1;
        drop(log);
        let left = found.crash(0);
        let (log, _) = memory.reopen(&left, &format!("seed {seed}: the first segment is gone"));
        for _ in 0..3 {
            memory.append(&log, 4, 1500).unwrap();
            memory.flush(&log).unwrap();
        }
        memory.reopen(&left.crash(1), &format!("seed {seed}: rolled on"));
    }
    assert!(emptied > 10, "{emptied}");
}

#[test]
fn a_torn_idle_mark_at_the_end_of_a_segment_is_no_damage() {
    // The mark starts at 200 + body_len; somewhere here it lies across two sectors.
    for body_len in (3350..3400).step_by(3) {
        let disk = SimDisk::new(5);
        let mut memory = Memory::default();
        let (log, ..) = crate::workload::open(&disk).unwrap();
        memory.append(&log, 4, body_len).unwrap();
        memory.flush(&log).unwrap();
        // The next group does not fit: the first segment is never synced again.
        memory.append(&log, 4, 1500).unwrap();
        memory.flush(&log).unwrap();
        drop(log);
        for seed in 2..10 {
            memory.clone().reopen(&disk.crash(seed), &format!("body of {body_len}, survival {seed}"));
        }
    }
}
