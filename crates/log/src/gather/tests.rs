//! The commit path alone: numbers, positions, groups and limits.

use super::*;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1024,
        quota_bytes: 4096,
        reserve_bytes: 512,
        gather_bytes_max: 2048,
        ..LogOptions::default()
    }
}

fn gather(options: LogOptions) -> Gather {
    let tail = Tail { segment: 1, offset: SEGMENT_HEADER_LEN, segment_bytes: options.segment_bytes, lsn: 0, chain: 0 };
    Gather::new(7, options, tail, 0)
}

fn commit(gather: &mut Gather) -> u64 {
    let group = gather.take().unwrap().expect("something was gathered");
    gather.committed(group, Duration::ZERO)
}

#[test]
fn positions_are_final_and_records_readable_at_every_stage() {
    let mut gather = gather(options());
    let first = gather.append(Class::Data, b"h", b"one").unwrap();
    assert_eq!((first.segment, first.offset), (1, SEGMENT_HEADER_LEN + MARK_LEN));
    assert!(gather.find(first).is_some());
    let group = gather.take().unwrap().unwrap();
    assert!(gather.take().unwrap().is_none(), "one group at a time");
    let second = gather.append(Class::Data, b"h", b"two").unwrap();
    assert_eq!(second.offset, first.offset + first.len + MARK_LEN, "the next group starts with its own mark");
    assert!(gather.find(first).is_some() && gather.find(second).is_some());
    assert_eq!(gather.committed(group, Duration::ZERO), 1);
    assert!(gather.find(first).is_none() && gather.find(second).is_some());
    assert_eq!(commit(&mut gather), 2);
    assert_eq!(gather.gathered_bytes(), 0);
}

#[test]
fn a_record_never_spans_segments() {
    let mut gather = gather(LogOptions { gather_bytes_max: 1 << 20, quota_bytes: 1 << 20, ..options() });
    let positions: Vec<Position> = (0..20).map(|_| gather.append(Class::Data, b"", &[1; 300]).unwrap()).collect();
    assert!(positions.iter().all(|position| position.offset + position.len <= 1024));
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]));
    let group = gather.take().unwrap().unwrap();
    assert_eq!(group.parts.len(), 10, "two records to a segment");
    assert!(group.parts.iter().skip(1).all(|part| part.offset == SEGMENT_HEADER_LEN));
    gather.committed(group, Duration::ZERO);
    assert_eq!(gather.durable_segment(), 10);
}

#[test]
fn the_mark_of_a_group_says_what_is_durable_when_it_is_written() {
    let mut gather = gather(options());
    gather.append(Class::Data, b"", b"1").unwrap();
    let first = gather.take().unwrap().unwrap();
    // Gathered while record 1 is on its way to the disk, but written after it is there.
    gather.append(Class::Data, b"", b"2").unwrap();
    gather.committed(first, Duration::ZERO);
    let second = gather.take().unwrap().unwrap();
    let part = &second.parts[0];
    let place = FrameAddress { seed: 7, segment: part.segment, offset: part.offset };
    let frame::Found::Whole(mark, _) = frame::look(place, &part.bytes) else { panic!("no mark") };
    assert!(mark.is_mark);
    assert_eq!((mark.lsn, mark.synced), (2, 1));
}

#[test]
fn the_idle_mark_is_what_the_next_group_starts_with() {
    let mut gather = gather(options());
    gather.append(Class::Data, b"", b"1").unwrap();
    assert!(gather.idle_mark().is_none(), "not idle");
    commit(&mut gather);
    let (segment, offset, mark) = gather.idle_mark().unwrap();
    gather.append(Class::Data, b"", b"2").unwrap();
    let group = gather.take().unwrap().unwrap();
    assert_eq!((group.parts[0].segment, group.parts[0].offset), (segment, offset));
    assert_eq!(group.parts[0].bytes[..MARK_LEN as usize], mark);
}

#[test]
fn memory_is_bounded_and_settling_may_use_twice_as_much() {
    let mut gather = gather(LogOptions { quota_bytes: 1 << 20, ..options() });
    let mut fill = |class| (0..100).take_while(|_| gather.append(class, b"", &[0; 200]).is_ok()).count();
    let data = fill(Class::Data);
    let settle = fill(Class::Settle);
    assert!((7..=9).contains(&data) && (7..=9).contains(&settle), "{data} and {settle}");
    assert_eq!(gather.append(Class::Settle, b"", &[0; 200]), Err(LogError::Busy));
    commit(&mut gather);
    gather.append(Class::Data, b"", &[0; 200]).unwrap();
}

#[test]
fn the_reserve_is_for_settling_and_retiring_makes_room() {
    let mut gather = gather(options());
    let fill = |gather: &mut Gather, class| loop {
        match gather.append(class, b"", &[0; 100]) {
            Ok(_) => drop(commit(gather)),
            Err(error) => return error,
        }
    };
    assert_eq!(fill(&mut gather, Class::Data), LogError::Full { shortage: Shortage::Quota });
    let used = gather.used_bytes();
    assert!(used <= 4096 - 512, "{used}");
    gather.append(Class::Settle, b"ack", b"").unwrap();
    commit(&mut gather);
    assert_eq!(fill(&mut gather, Class::Settle), LogError::Full { shortage: Shortage::Quota });
    assert!(gather.used_bytes() <= 4096);
    gather.retired(1024);
    gather.append(Class::Data, b"", &[0; 100]).unwrap();
}

#[test]
fn without_room_for_a_segment_those_made_ahead_are_for_what_frees_room() {
    let full = LogError::Full { shortage: Shortage::Device };
    let mut gather = gather(LogOptions { quota_bytes: 1 << 16, ..options() });
    gather.set_room(4, 0);
    gather.append(Class::Data, b"", &[0; 500]).unwrap();
    assert_eq!(gather.append(Class::Data, b"", &[0; 100]), Err(full.clone()), "the rest is for settling");
    gather.append(Class::Settle, b"", &[0; 100]).unwrap();
    commit(&mut gather);
    for class in [Class::Data, Class::Step, Class::Move] {
        assert_eq!(gather.append(class, b"", &[0; 550]), Err(full.clone()), "{class:?} may not begin the reserve");
    }
    gather.append(Class::Settle, b"", &[0; 700]).unwrap();
    for class in [Class::Data, Class::Step, Class::Move] {
        assert_eq!(gather.append(class, b"", b"fits"), Err(full.clone()), "nor go on in it");
    }
    commit(&mut gather);
    assert_eq!(gather.append(Class::Settle, b"", &[0; 700]), Err(full.clone()), "the rest is for copies");
    for segment in [3, 4] {
        assert_eq!(gather.append(Class::Copy, b"", &[0; 700]).unwrap().segment, segment);
        commit(&mut gather);
    }
    assert_eq!(gather.append(Class::Copy, b"", &[0; 700]), Err(full));
    gather.append(Class::Settle, b"", b"fits").unwrap();
    // Upkeep knows the segments by their files: those that were begun are no longer ahead.
    gather.set_room(7, 1);
    assert_eq!((gather.available, gather.failed()), (4, None));
    gather.append(Class::Data, b"", &[0; 500]).unwrap();
}

#[test]
fn one_group_begins_no_more_segments_than_the_device_has_room_for() {
    let mut gather = gather(LogOptions { quota_bytes: 1 << 20, gather_bytes_max: 1 << 20, ..options() });
    gather.set_room(2, 7);
    let full = LogError::Full { shortage: Shortage::Device };
    let appended = std::iter::repeat_with(|| gather.append(Class::Data, b"", &[0; 500])).take(100);
    let refused = appended.filter_map(Result::err).next();
    assert_eq!(refused, Some(full));
    assert_eq!((gather.tail().segment, gather.available), (6, RESERVE_SEGMENTS));
    // Two of those that are begun have no file yet: they take of what the device has room for.
    gather.set_room(4, 4);
    assert_eq!(gather.available, 2);
}

#[test]
fn without_room_and_without_a_reserve_nothing_rolls_and_nothing_fails() {
    let full = LogError::Full { shortage: Shortage::Device };
    let mut gather = gather(options());
    gather.set_room(1, 0);
    assert_eq!(gather.append(Class::Data, b"", b"1"), Err(full.clone()));
    gather.append(Class::Settle, b"", &[0; 500]).unwrap();
    commit(&mut gather);
    for class in [Class::Settle, Class::Copy] {
        assert_eq!(gather.append(class, b"", &[0; 700]), Err(full.clone()));
    }
    gather.append(Class::Settle, b"", b"fits").unwrap();
    assert_eq!((gather.tail().segment, gather.failed()), (1, None));
}

#[test]
fn a_record_has_a_longest_length() {
    let mut gather = gather(options());
    let longest = 1024 - (SEGMENT_HEADER_LEN + MARK_LEN + RECORD_OVERHEAD) as usize;
    assert!(matches!(gather.append(Class::Copy, b"", &vec![0; longest + 1]), Err(LogError::TooLarge { .. })));
    let data = longest - COPY_GROWTH_MAX as usize;
    assert!(matches!(gather.append(Class::Data, b"", &vec![0; data + 1]), Err(LogError::TooLarge { .. })));
    gather.append(Class::Data, b"", &vec![0; data]).unwrap();
    let position = gather.append(Class::Copy, b"", &vec![0; longest]).unwrap();
    assert_eq!((position.segment, position.offset + position.len), (2, 1024));
    assert!(matches!(gather.append(Class::Data, &[0; 65_536], b""), Err(LogError::TooLarge { .. })));
}

#[test]
fn failure_is_for_ever() {
    let mut gather = gather(options());
    gather.append(Class::Data, b"", b"1").unwrap();
    let error = gather.fail(LogError::failed("testing", &std::io::Error::other("first")));
    assert_eq!(gather.fail(LogError::failed("testing", &std::io::Error::other("second"))), error);
    assert_eq!(gather.append(Class::Settle, b"", b"2"), Err(error.clone()));
    assert_eq!(gather.take().unwrap_err(), error);
    assert!(gather.idle_mark().is_none());
}

#[test]
fn buffers_serve_again() {
    let mut gather = gather(options());
    for _ in 0..10 {
        gather.append(Class::Data, b"", &[0; 20]).unwrap();
        commit(&mut gather);
        assert_eq!(gather.spare.len(), 1);
    }
    let capacity = gather.spare[0].capacity();
    gather.append(Class::Data, b"", &[0; 20]).unwrap();
    assert_eq!(gather.parts[0].bytes.capacity(), capacity);
}
