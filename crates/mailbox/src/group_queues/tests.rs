//! GroupQueues in order, fair and blocked.

use super::*;

fn line(lines: &mut GroupQueues, name: &str, seqs: &[Seq]) -> u32 {
    let id = lines.line_of(Some(name));
    for seq in seqs {
        lines.join(id);
        lines.push(id, *seq);
    }
    id
}

#[test]
fn a_group_without_messages_is_forgotten() {
    let mut lines = GroupQueues::new(false);
    let index = Index::default();
    for round in 0..1000 {
        let id = line(&mut lines, &format!("g{round}"), &[round]);
        assert_eq!((lines.pick(0), lines.pop(id, Seq::MAX, &index)), (Some(id), Some(round)));
        lines.leave(id);
    }
    assert_eq!((lines.lines.len(), lines.names.len(), lines.groups()), (1, 0, 0));
}

#[test]
fn followed_groups_are_bounded() {
    let mut lines = GroupQueues::new(false);
    for round in 0..3 * TIMED_MAX as u64 {
        let id = lines.line_of(Some(&format!("g{round}")));
        lines.join(id);
        lines.spend(id, 1000, 5);
        lines.leave(id);
    }
    assert_eq!((lines.timed.len(), lines.names.len()), (TIMED_MAX, TIMED_MAX));
    lines.turn_window(1_000_000);
    assert_eq!((lines.timed.len(), lines.names.len()), (0, 0));
}

fn entry(seq: Seq, group: u32) -> Entry {
    let mut entry = Entry::new(seq, 0, ron_log::Position { segment: 1, offset: 0, len: 1 }, 1, group);
    entry.set_fresh(true);
    entry
}

#[test]
fn groups_that_are_gone_give_their_room_back_whichever_are_left() {
    for left in [None, Some(0), Some(4321), Some(9999)] {
        let (mut lines, mut index) = (GroupQueues::new(false), Index::default());
        let empty = lines.memory_bytes();
        for seq in 0..10_000 {
            let id = line(&mut lines, &format!("g{seq}"), &[seq]);
            index.insert(entry(seq, id));
        }
        let full = lines.memory_bytes();
        for seq in (0..10_000).filter(|seq| Some(*seq) != left) {
            let entry = index.remove(seq).expect("it is there");
            lines.withdraw(&entry, &index);
            lines.leave(entry.group);
        }
        let (counted, taken) = (lines.memory_bytes(), lines.capacity_bytes() as u64);
        assert!(counted < empty + full / 100, "{left:?}: {counted} of {full} bytes are left");
        // A small table of names stays, as everywhere.
        assert!(taken <= counted + 2048, "{left:?}: {taken} bytes taken, {counted} counted");
        let Some(seq) = left else {
            assert!(!lines.has_ready());
            continue;
        };
        let id = lines.line_of(Some(&format!("g{seq}")));
        assert_eq!((lines.pick(0), index.get(seq).map(|entry| entry.group)), (Some(id), Some(id)));
        assert_eq!(lines.pop(id, Seq::MAX, &index), Some(seq));
        let other = line(&mut lines, "other", &[20_000]);
        assert!(other != id && lines.pick(0) == Some(other));
    }
}

#[test]
fn the_oldest_first_message_goes_first_and_blocked_groups_are_not_asked() {
    let mut lines = GroupQueues::new(true);
    let index = Index::default();
    let late = line(&mut lines, "late", &[5, 6]);
    let early = line(&mut lines, "early", &[4, 7]);
    assert_eq!((lines.pick(0), lines.oldest_ready()), (Some(early), Some(4)));
    lines.pop(early, Seq::MAX, &index);
    lines.lease(early, 4);
    assert_eq!((lines.first_out(early), lines.pick(0), lines.pop(early, 4, &index)), (4, Some(late), None));
    lines.push_freed(early, 4);
    assert_eq!((lines.pick(0), lines.pop(early, 4, &index)), (Some(early), Some(4)));
    lines.pop(late, Seq::MAX, &index);
    lines.back_off(late, 5);
    assert!(!lines.has_ready());
    lines.set_fifo(false, &index);
    assert_eq!((lines.pick(0), lines.ahead(late, 7)), (Some(late), 1));
}
