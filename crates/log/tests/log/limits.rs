//! Quota, reserve, memory, live bytes and retirement.

use crate::workload::{Memory, open, options};
use ron_log::{Class, Disk, Durability, Log, LogError, LogOptions, Position, RamDisk, Shortage, SimDisk};
use std::sync::Arc;

/// Appends what nobody needs until it is refused.
fn fill(log: &Log, class: Class) -> LogError {
    loop {
        let appended = log.appender().append(class, b"h", &[0; 500]);
        log.flush().unwrap();
        match appended {
            Ok(position) => log.release(position),
            Err(error) => return error,
        }
    }
}

#[test]
fn data_leaves_the_reserve_to_settling_and_retiring_makes_room() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
    let options = LogOptions { quota_bytes: 5 * 4096, reserve_bytes: 2048, ..options() };
    let (log, _) = Log::open(disk, options, &mut |_, _| {}).unwrap();
    assert_eq!(fill(&log, Class::Data), LogError::Full { shortage: Shortage::Quota });
    let usage = log.usage();
    assert!(usage.bytes_total <= usage.quota_bytes - 2048, "{usage:?}");
    log.appender().append(Class::Settle, b"ack", b"").unwrap();
    assert_eq!(fill(&log, Class::Settle), LogError::Full { shortage: Shortage::Quota });
    assert!(log.usage().bytes_total <= usage.quota_bytes);
    log.retire(1).unwrap();
    log.appender().append(Class::Data, b"h", &[0; 500]).unwrap();
    assert_eq!(log.failed(), None);
}

/// Nothing would come of waiting where nothing can be reclaimed, so that what settles is not refused there.
#[test]
fn what_settles_is_refused_only_while_reclaiming_has_something_to_give() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
    let options = LogOptions { quota_bytes: 8 * 4096, reserve_bytes: 3 * 4096, ..options() };
    let (log, _) = Log::open(disk, options, &mut |_, _| {}).unwrap();
    let fill_live = |class| loop {
        let appended = log.appender().append(class, b"h", &[0; 400]);
        log.flush().unwrap();
        if let Err(error) = appended {
            return error;
        }
    };
    let full = LogError::Full { shortage: Shortage::Quota };
    assert_eq!(fill_live(Class::Data), full);
    assert_eq!(log.usage().shortage, Some(Shortage::Quota));
    assert!(log.appender().takes(Class::Step, 500) && !log.appender().takes(Class::Data, 500));
    assert_eq!(fill_live(Class::Step), full);
    // All of it is live: moves and acks go on past their bounds, up to that of copies.
    for class in [Class::Move, Class::Settle] {
        while log.usage().bytes_total < 9 * 4096 {
            log.appender().append(class, b"h", &[0; 500]).unwrap();
            log.flush().unwrap();
        }
    }
    assert_eq!(log.reclaimable(), None, "there is nothing to gain");
    // A quarter of the reserve is garbage: it is worth waiting for.
    let mut garbage = Vec::new();
    log.replay(&mut |replayed| garbage.push(replayed.position)).unwrap();
    garbage.into_iter().rev().take(8).for_each(|position| log.release(position));
    assert_eq!(log.appender().append(Class::Settle, b"h", b""), Err(full.clone()));
    assert_eq!(log.appender().append(Class::Move, b"h", b""), Err(full));
    assert_eq!(log.reclaimable(), Some(1), "although all of it is live");
    log.appender().append(Class::Copy, b"h", &[0; 500]).unwrap();
    // What has no body may be needed as well; only the owner of the log knows.
    log.set_kept_bytes(8 * 4096);
    assert_eq!(log.reclaimable(), None);
    log.appender().append(Class::Settle, b"h", b"").unwrap();
}

#[test]
fn a_log_that_is_opened_with_a_much_lower_quota_settles_and_shrinks() {
    let disk = SimDisk::new(2);
    let options = |segments: u64| LogOptions { quota_bytes: segments * 4096, reserve_bytes: 3 * 4096, ..options() };
    let open = |segments| Log::open(Arc::new(disk.clone()), options(segments), &mut |_, _| {}).unwrap().0;
    let log = open(60);
    let mut kept = Vec::new();
    while log.usage().segments < 50 {
        kept.push(log.appender().append(Class::Data, b"h", &[1; 500]).unwrap());
        log.flush().unwrap();
    }
    drop(log);
    let log = open(8);
    assert_eq!(log.usage().shortage, Some(Shortage::Quota));
    log.appender().append(Class::Settle, b"ack", b"").expect("nothing would be given back otherwise");
    log.release_all(kept.into_iter());
    while let Some(segment) = log.reclaimable() {
        log.appender().append(Class::Copy, b"mark", b"").expect("its segment goes next");
        log.retire(segment).unwrap();
    }
    let usage = log.usage();
    assert!(usage.bytes_total < usage.quota_bytes && usage.shortage.is_none(), "{usage:?}");
}

#[test]
fn the_fuller_the_log_the_sooner_it_is_gone_through() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
    let options = LogOptions { quota_bytes: 20 * 4096, reserve_bytes: 4 * 4096, ..options() };
    let (log, _) = Log::open(disk, options, &mut |_, _| {}).unwrap();
    let append = |is_needed: bool| {
        let position = log.appender().append(Class::Data, b"h", &[0; 400]).unwrap();
        log.flush().unwrap();
        if !is_needed {
            log.release(position);
        }
    };
    append(true);
    // One in three is garbage, spread over all segments.
    let mut begun_at = None;
    for number in 0.. {
        append(number % 3 != 0);
        let usage = log.usage();
        if log.reclaimable().is_some() {
            begun_at = Some(usage.bytes_total);
        }
        if begun_at.is_some() || usage.shortage.is_some() {
            break;
        }
    }
    let (begun_at, data_bytes_max) = (begun_at.expect("before data is refused"), 16 * 4096);
    assert!((data_bytes_max / 4 * 3..data_bytes_max / 5 * 4).contains(&begun_at), "{begun_at} of {data_bytes_max}");
}

#[test]
fn what_waits_in_memory_is_bounded() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
    let options = LogOptions { gather_bytes_max: 4096, ..options() };
    let (log, _) = Log::open(disk, options, &mut |_, _| {}).unwrap();
    let mut appender = log.appender();
    while appender.append(Class::Data, b"", &[0; 100]).is_ok() {}
    assert_eq!(appender.append(Class::Data, b"", &[0; 100]), Err(LogError::Busy));
    appender.append(Class::Settle, b"", &[0; 100]).unwrap();
    drop(appender);
    assert!(log.usage().gathered_bytes <= 8192);
    log.flush().unwrap();
    assert_eq!(log.usage().gathered_bytes, 0);
    log.appender().append(Class::Data, b"", &[0; 100]).unwrap();
}

#[test]
fn bad_options_are_refused() {
    let good = options;
    for bad in [
        LogOptions { segment_bytes: 512, ..good() },
        LogOptions { segment_bytes: u32::MAX, ..good() },
        LogOptions { reserve_bytes: good().quota_bytes, ..good() },
        LogOptions { gather_bytes_max: 100, ..good() },
    ] {
        let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
        assert!(matches!(Log::open(disk, bad, &mut |_, _| {}).err(), Some(LogError::Options(_))));
    }
}

#[test]
fn only_the_oldest_sealed_segment_may_go_and_only_when_it_is_worth_it() {
    let disk = SimDisk::new(2);
    let (log, ..) = open(&disk).unwrap();
    let mut memory = Memory::default();
    for _ in 0..20 {
        memory.append(&log, 4, 800).unwrap();
        memory.flush(&log).unwrap();
    }
    assert_eq!(log.reclaimable(), None, "all of it is live");
    assert_eq!(log.retire(2), Err(LogError::NotOldest { segment: 2 }));
    let positions: Vec<Position> = memory.written.values().map(|written| written.position).collect();
    positions.iter().filter(|position| position.segment == 1).for_each(|position| log.release(*position));
    assert_eq!(log.reclaimable(), Some(1), "nothing in it is live");
    let copy = memory.append(&log, 4, 800).unwrap();
    log.retire(1).unwrap();
    assert_eq!(log.durable().0, 21, "a copy made before is durable before the original goes");
    log.release(copy);
    let active = copy.segment;
    assert_eq!(log.read(positions[0]), Err(LogError::Gone { segment: 1 }));
    assert_eq!(log.reclaimable(), None);
    let later: Vec<Position> = positions.iter().copied().filter(|position| position.segment > 2).collect();
    later.iter().for_each(|position| log.release(*position));
    assert_eq!(log.reclaimable(), Some(2), "less than half of the log is live");
    assert!(matches!(log.retire(2), Err(LogError::StillNeeded { segment: 2, .. })), "its records were not copied");
    positions.iter().filter(|position| position.segment == 2).for_each(|position| log.release(*position));
    for segment in 2..active {
        log.retire(segment).unwrap();
    }
    assert_eq!(log.reclaimable(), None, "the active one stays");
    assert_eq!(log.retire(active), Err(LogError::NotOldest { segment: active }));
}

#[test]
fn live_bytes_survive_a_restart_and_the_visitor_may_release() {
    let disk = SimDisk::new(2);
    let (log, ..) = open(&disk).unwrap();
    let mut memory = Memory::default();
    for body_len in [100, 0, 200, 300] {
        memory.append(&log, 4, body_len).unwrap();
    }
    memory.flush(&log).unwrap();
    let live = log.usage().bytes_live;
    let lens: Vec<u64> = memory.written.values().map(|written| u64::from(written.position.len)).collect();
    assert_eq!(live, lens[0] + lens[2] + lens[3], "a record without a body is not live");
    drop(log);
    let again: Arc<dyn Disk> = Arc::new(disk);
    let (log, _) = Log::open(again, options(), &mut |replayed, live| {
        if replayed.body_len == 200 {
            live.release(replayed.position);
        }
    })
    .unwrap();
    assert_eq!(log.usage().bytes_live, live - lens[2]);
    assert_eq!(log.usage().records, 4);
}

#[test]
fn replay_shows_everything_in_order_durable_or_not() {
    let disk = SimDisk::new(2);
    let (log, ..) = open(&disk).unwrap();
    let mut memory = Memory::default();
    for _ in 0..30 {
        memory.append(&log, 7, 400).unwrap();
    }
    let mut seen = Vec::new();
    log.replay(&mut |replayed| seen.push((replayed.lsn.0, replayed.head.to_vec()))).unwrap();
    let expected: Vec<(u64, Vec<u8>)> =
        memory.written.iter().map(|(lsn, written)| (*lsn, written.head.clone())).collect();
    assert_eq!(seen, expected);
    memory.append(&log, 7, 400).unwrap();
    let mut count = 0;
    for segment in 1..=memory.written.values().last().unwrap().position.segment {
        log.records_of(segment, &mut |_| count += 1).unwrap();
    }
    assert_eq!(count, 31);
}

#[test]
fn a_log_in_memory_says_so_and_frees_what_is_retired() {
    let disk = Arc::new(RamDisk::new());
    let options = LogOptions { segment_bytes: 1 << 20, quota_bytes: 64 << 20, ..LogOptions::default() };
    let options = LogOptions { reserve_bytes: 1 << 20, ..options };
    let (log, _) = Log::open(disk.clone(), options, &mut |_, _| {}).unwrap();
    assert_eq!(log.durability(), Durability::Ram);
    let mut positions = Vec::new();
    for turn in 0..5000_u32 {
        let body = vec![turn as u8; 1000];
        positions.push(log.appender().append(Class::Data, &turn.to_le_bytes(), &body).unwrap());
        if turn % 50 == 0 {
            log.flush().unwrap();
        }
    }
    log.flush().unwrap();
    for (turn, position) in positions.iter().enumerate().step_by(97) {
        assert_eq!(log.read(*position).unwrap().body, vec![turn as u8; 1000]);
    }
    let full = disk.bytes();
    while let Some(segment) = {
        positions.iter().for_each(|p| log.release(*p));
        log.reclaimable()
    } {
        log.retire(segment).unwrap();
    }
    assert!(full > 4 << 20 && disk.bytes() <= 1 << 20, "{full} then {}", disk.bytes());
}
