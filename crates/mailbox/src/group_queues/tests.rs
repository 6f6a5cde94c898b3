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
    assert_eq!((lines.lines.len(), lines.names.len(), lines.groups()), (2, 0, 0));
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
