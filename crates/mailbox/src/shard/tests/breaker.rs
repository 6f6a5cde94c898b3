//! The breaker: when it opens, what it holds back, how it closes.

use super::*;
use crate::types::{BreakerSettings, BreakerState, BreakerView};

const BREAKER: BreakerSettings =
    BreakerSettings { failing_percent: 50, window_ms: 40_000, deliveries_min: 4, pause_ms: 5_000 };

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ack,
    Nack,
    /// The lease runs out.
    Lapse,
    /// The consumer gives the message back.
    GiveBack,
    /// The answer with the lease never left.
    Undone,
}
use End::{Ack, GiveBack, Lapse, Nack as Fail, Undone};

fn settings() -> TopicSettings {
    TopicSettings { breaker: Some(BREAKER), max_attempts: 3, ..TopicSettings::default() }
}

fn world_of(settings: TopicSettings, messages: usize) -> ShardDriver {
    let mut driver = ShardDriver::new(settings);
    for _ in 0..messages {
        driver.send(None);
    }
    driver
}

impl ShardDriver {
    fn breaker(&self) -> BreakerView {
        self.shard.stats(MAIN).breaker
    }

    fn end(&mut self, lease: &Leased, end: End) {
        let (seq, fence) = (lease.seq, lease.fence);
        match end {
            Ack => self.ack(seq, fence).unwrap(),
            Fail => drop(self.nack(seq, fence, Some(0), false).unwrap()),
            GiveBack => drop(self.shard.extend(self.now, &mut self.tape, MAIN, seq, fence, 0).unwrap()),
            Undone => self.shard.release_lease(self.now, &mut self.tape, MAIN, seq, fence).unwrap(),
            Lapse => {
                self.now = lease.until_ms;
                self.tick();
            }
        }
    }

    /// Delivers one message, which ends like this.
    fn deliver(&mut self, end: End) {
        let lease = self.recv_from(MAIN, 1).pop().expect("something to deliver");
        self.end(&lease, end);
    }

    /// Opens the breaker with just as many failures as it takes.
    fn open(&mut self) {
        let leased = self.recv_from(MAIN, BREAKER.deliveries_min as usize);
        leased.iter().for_each(|lease| self.end(lease, Fail));
        assert_eq!(self.breaker().state, BreakerState::Open);
    }

    fn end_pause(&mut self) {
        self.now = self.breaker().until_ms.expect("it is open");
        self.tick();
        assert_eq!(self.breaker().state, BreakerState::HalfOpen);
    }

    fn woken(&mut self) -> bool {
        let mut ready = Vec::new();
        self.shard.take_ready(&mut ready);
        ready.contains(&MAIN)
    }

    fn dead(&self) -> u64 {
        self.shard.stats(DEAD).ready
    }
}

#[test]
fn it_opens_when_more_than_the_share_fails_of_enough_deliveries() {
    for (ends, is_open) in [
        (&[Fail; 3][..], false),
        (&[Fail; 4], true),
        (&[Lapse; 4], true),
        (&[Fail, Lapse, Ack, Ack], false),
        (&[Fail, Fail, Ack, Ack, Fail], true),
        (&[Fail, Fail, Fail, Ack], true),
        (&[Ack; 30], false),
        (&[Fail, Fail, Fail, GiveBack, GiveBack, Undone], false),
    ] {
        let mut driver = world_of(settings(), 40);
        ends.iter().for_each(|end| driver.deliver(*end));
        assert_eq!(driver.breaker().state == BreakerState::Open, is_open, "{ends:?}");
        assert_eq!(driver.shard.breakers_open(), u64::from(is_open), "{ends:?}");
        let turns = driver.shard.take_breaker_turns();
        assert_eq!(turns.len(), usize::from(is_open), "{ends:?}");
        for turn in turns {
            let failing = ends.iter().filter(|end| matches!(end, Fail | Lapse)).count() as u64;
            assert_eq!((turn.part, turn.failing, turn.deliveries), (MAIN, failing, ends.len() as u64), "{ends:?}");
            assert_eq!(turn.view, driver.breaker());
        }
        assert!(driver.shard.take_breaker_turns().is_empty(), "told once");
    }
}

#[test]
fn an_acknowledgement_after_the_lease_ran_out_does_not_count_again() {
    let mut driver = world_of(settings(), 10);
    let late = driver.recv_from(MAIN, 2);
    driver.end(&late[0], Lapse);
    late.iter().for_each(|late| driver.ack(late.seq, late.fence).unwrap());
    (0..2).for_each(|_| driver.deliver(Fail));
    assert_eq!(driver.breaker().state, BreakerState::Open, "two ran out, two failed: four of four");
}

#[test]
fn what_ended_longer_ago_than_the_window_does_not_count() {
    for (pause, is_open) in [(0, true), (BREAKER.window_ms / 2, true), (BREAKER.window_ms, false)] {
        let mut driver = world_of(settings(), 10);
        (0..3).for_each(|_| driver.deliver(Fail));
        driver.now += pause;
        driver.deliver(Fail);
        assert_eq!(driver.breaker().state == BreakerState::Open, is_open, "{pause}");
    }
}

#[test]
fn without_a_setting_it_never_opens() {
    let mut driver = world_of(TopicSettings { breaker: None, ..settings() }, 40);
    (0..100).for_each(|_| driver.deliver(Fail));
    assert_eq!((driver.breaker(), driver.shard.breakers_open()), (BreakerView::default(), 0));
    assert!(driver.dead() > 30 && driver.shard.take_breaker_turns().is_empty());
}

#[test]
fn while_it_is_open_nothing_goes_out_and_nothing_dies() {
    for (end, tries_left) in [(Fail, 1), (Lapse, 1), (Ack, 0), (Fail, 0), (Lapse, 0)] {
        let mut driver = world_of(TopicSettings { max_attempts: 1 + tries_left, ..settings() }, 20);
        let leased = driver.recv_from(MAIN, 10);
        let (openers, others) = leased.split_at(4);
        openers.iter().for_each(|lease| driver.end(lease, Fail));
        assert_eq!(driver.breaker().state, BreakerState::Open);
        driver.woken();
        let dead = driver.dead();
        assert_eq!(dead, if tries_left == 0 { 4 } else { 0 });

        others.iter().for_each(|other| driver.end(other, end));
        assert!(driver.recv(10).is_empty() && !driver.shard.has_ready(MAIN) && !driver.woken(), "{end:?}");
        let stats = driver.shard.stats(MAIN);
        let acked = if end == Ack { 6 } else { 0 };
        assert_eq!((stats.leased, stats.ready + stats.delayed, stats.acked), (0, 20 - dead - acked, acked), "{end:?}");
        assert_eq!(driver.dead(), dead, "{end:?}: a failure now kills nothing");
        assert_eq!(driver.replayed().fingerprint(driver.now), driver.shard.fingerprint(driver.now), "{end:?}");
        assert_eq!(driver.breaker().until_ms, Some(1_000_000 + BREAKER.pause_ms), "{end:?}: the pause is as it was");
    }
}

#[test]
fn a_rejected_message_dies_whatever_the_breaker_says() {
    let mut driver = world_of(settings(), 10);
    let last = driver.recv_from(MAIN, 1).remove(0);
    driver.open();
    assert_eq!(driver.nack(last.seq, last.fence, None, true), Ok(Nacked::Died));
    assert_eq!(driver.dead(), 1);
}

#[test]
fn leases_of_before_can_be_prolonged_while_it_is_open() {
    let mut driver = world_of(settings(), 10);
    let lease = driver.recv_from(MAIN, 1).remove(0);
    driver.open();
    let until = driver.shard.extend(driver.now, &mut driver.tape, MAIN, lease.seq, lease.fence, 90_000).unwrap();
    assert_eq!(until, driver.now + 90_000);
    assert_eq!(driver.shard.stats(MAIN).leased, 1);
}

#[test]
fn the_end_of_the_pause_is_a_deadline_that_wakes_whoever_waits() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    driver.woken();
    let until = driver.now + BREAKER.pause_ms;
    assert_eq!(
        driver.breaker(),
        BreakerView { state: BreakerState::Open, opened_ms: Some(driver.now), until_ms: Some(until) }
    );
    driver.send(None);
    driver.now = until - 1;
    driver.tick();
    assert_eq!(driver.shard.next_deadline(), Some(until));
    assert!(!driver.woken() && driver.recv(10).is_empty());
    driver.now = until;
    driver.tick();
    assert!(driver.woken());
    assert_eq!(driver.breaker().state, BreakerState::HalfOpen);
    assert_eq!(driver.recv(10).len(), 1, "one at a time");
    assert!(!driver.woken() && driver.recv(10).is_empty());
}

#[test]
fn a_receive_needs_no_tick_to_see_that_the_pause_is_over() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    driver.now += BREAKER.pause_ms;
    assert_eq!(driver.recv(10).len(), 1);
}

#[test]
fn the_message_let_out_decides() {
    for (end, state, goes_out) in [
        (Ack, BreakerState::Closed, 9),
        (Fail, BreakerState::Open, 0),
        (Lapse, BreakerState::Open, 0),
        (GiveBack, BreakerState::HalfOpen, 1),
        (Undone, BreakerState::HalfOpen, 1),
    ] {
        let mut driver = world_of(settings(), 10);
        driver.open();
        driver.end_pause();
        driver.shard.take_breaker_turns();
        driver.woken();
        driver.deliver(end);
        assert_eq!(driver.breaker().state, state, "{end:?}");
        assert_eq!(driver.woken(), goes_out > 0, "{end:?}: whoever waits is woken if there is something to get");
        let turned: Vec<_> = driver.shard.take_breaker_turns().iter().map(|turn| turn.view.state).collect();
        assert_eq!(turned, if state == BreakerState::HalfOpen { vec![] } else { vec![state] }, "{end:?}");
        assert_eq!(driver.recv(20).len(), goes_out, "{end:?}");
        if end == Fail {
            assert_eq!(driver.breaker().until_ms, Some(driver.now + BREAKER.pause_ms), "the whole pause again");
        }
    }
}

#[test]
fn a_message_let_out_that_goes_elsewhere_makes_room_for_another() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    driver.end_pause();
    let probe = driver.recv(1)[0];
    driver.woken();
    driver.shard.kill(driver.now, &mut driver.tape, MAIN, probe, DeadReason::Integrity, "damaged").unwrap();
    assert!(driver.woken());
    assert_eq!((driver.breaker().state, driver.recv(10).len()), (BreakerState::HalfOpen, 1));
}

#[test]
fn a_journal_without_room_takes_no_chance_away() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    driver.end_pause();
    driver.tape.full = true;
    let recv = Recv { max_messages: 1, max_bytes: 9, visibility_ms: None, consumer: "worker" };
    assert!(driver.shard.recv(driver.now, &mut driver.tape, MAIN, recv, &mut Vec::new()).is_err());
    driver.tape.full = false;
    assert_eq!(driver.recv(10).len(), 1);
}

#[test]
fn counting_starts_anew_once_it_is_closed() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    driver.end_pause();
    driver.deliver(Ack);
    (0..3).for_each(|_| driver.deliver(Fail));
    assert_eq!(driver.breaker().state, BreakerState::Closed);
    driver.deliver(Fail);
    assert_eq!(driver.breaker().state, BreakerState::Open);
}

#[test]
fn what_went_out_before_it_opened_does_not_decide() {
    for end in [Ack, Fail] {
        let mut driver = world_of(settings(), 10);
        let before = driver.recv_from(MAIN, 1).remove(0);
        driver.shard.extend(driver.now, &mut driver.tape, MAIN, before.seq, before.fence, 60_000).unwrap();
        driver.open();
        driver.end_pause();
        driver.end(&before, end);
        assert_eq!(driver.breaker().state, BreakerState::HalfOpen, "{end:?}");
    }
}

#[test]
fn another_setting_closes_it_and_the_same_does_not() {
    let other = BreakerSettings { pause_ms: 6_000, ..BREAKER };
    for (changed, state) in [
        (TopicSettings { visibility_ms: 1, ..settings() }, BreakerState::Open),
        (TopicSettings { breaker: None, ..settings() }, BreakerState::Closed),
        (TopicSettings { breaker: Some(other), ..settings() }, BreakerState::Closed),
    ] {
        let mut driver = world_of(settings(), 10);
        driver.open();
        driver.woken();
        set(&mut driver.shard, changed);
        let closed = state == BreakerState::Closed;
        assert_eq!((driver.breaker().state, driver.woken(), driver.recv(10).is_empty()), (state, closed, !closed));
        assert_eq!(driver.shard.breakers_open(), u64::from(!closed));
    }
}

#[test]
fn it_goes_with_its_partition_and_is_forgotten_by_a_restart_and_a_purge() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    let part = driver.shard.take_part(MAIN).unwrap();
    assert_eq!(driver.shard.breakers_open(), 0);
    driver.shard.put_part(part);
    assert_eq!((driver.shard.breakers_open(), driver.breaker().state), (1, BreakerState::Open));
    driver.tick();
    assert_eq!(driver.shard.next_deadline(), Some(driver.now + BREAKER.pause_ms));
    assert_eq!(driver.replayed().stats(MAIN).breaker, BreakerView::default());
    driver.shard.purge(driver.now, &mut driver.tape, MAIN).unwrap();
    assert_eq!((driver.shard.breakers_open(), driver.breaker()), (0, BreakerView::default()));
}

#[test]
fn it_is_said_of_a_message_that_it_waits_for_the_breaker() {
    let mut driver = world_of(settings(), 10);
    driver.open();
    assert_eq!(driver.shard.explain(driver.now, MAIN, 10).unwrap().breaker, driver.breaker());
}

#[test]
fn lines_in_order_go_on_whatever_becomes_of_the_message_let_out() {
    for end in [Ack, Fail, Lapse, GiveBack, Undone] {
        let mut driver = ShardDriver::new(TopicSettings { groups: Groups::Fifo, ..settings() });
        for group in ["a", "b", "a", "b", "a", "c"] {
            driver.send(Some(group));
        }
        // One of a line is still out when the pause ends, and runs out later.
        let before = driver.recv_from(MAIN, 1).remove(0);
        driver.shard.extend(driver.now, &mut driver.tape, MAIN, before.seq, before.fence, 60_000).unwrap();
        let leased: Vec<_> = (0..5).flat_map(|_| driver.recv_from(MAIN, 9)).collect();
        leased.iter().for_each(|lease| driver.end(lease, Fail));
        (leased.len()..4).for_each(|_| driver.deliver(Fail));
        assert_eq!(driver.breaker().state, BreakerState::Open);
        let mut rounds = 0;
        let mut acked = Vec::new();
        while driver.shard.stats(MAIN).leased + driver.shard.stats(MAIN).ready + driver.shard.stats(MAIN).delayed > 0 {
            rounds += 1;
            assert!(rounds < 100, "{end:?}: {:?}", driver.breaker());
            driver.now = driver.shard.next_deadline().filter(|at| *at > driver.now).unwrap_or(driver.now);
            driver.tick();
            let Some(probe) = driver.recv_from(MAIN, 1).pop() else { continue };
            // The first one let out ends like this, the others well.
            let end = if acked.is_empty() && rounds < 5 { end } else { Ack };
            driver.end(&probe, end);
            if end == Ack {
                acked.push(probe.seq);
            }
        }
        let of_a: Vec<_> = acked.iter().filter(|seq| [1, 3, 5].contains(*seq)).collect();
        assert!(of_a.is_sorted() && acked.len() as u64 + driver.dead() == 6, "{end:?}: {acked:?}");
    }
}

#[test]
fn a_message_that_always_fails_is_dead_in_the_end_and_the_next_one_is_tried() {
    let mut driver = world_of(settings(), 10);
    let mut pauses = 0;
    while driver.breaker().state != BreakerState::Closed || pauses == 0 {
        match driver.recv_from(MAIN, 1).pop() {
            // Only the first four are poison.
            Some(lease) => driver.end(&lease, if lease.seq <= 4 { Fail } else { Ack }),
            None => {
                pauses += 1;
                assert!(pauses < 20);
                driver.end_pause();
            }
        }
    }
    assert_eq!(driver.dead(), 4, "they had their three deliveries each");
    assert_eq!(driver.shard.stats(MAIN).acked, 1);
}
