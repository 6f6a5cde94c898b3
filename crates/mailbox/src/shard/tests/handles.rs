//! Receipts of older leases, and leases whose message could not be read.

use super::*;

fn ack_any(driver: &mut ShardDriver, seq: Seq, fence: u32) -> Result<(), Error> {
    driver.shard.ack_fenced(driver.now, &mut driver.tape, MAIN, &[(seq, fence)], Fencing::Any).remove(0)
}

fn extend_any(driver: &mut ShardDriver, seq: Seq, fence: u32, visibility_ms: u64) -> Result<Millis, Error> {
    driver.shard.extend_fenced(driver.now, &mut driver.tape, MAIN, (seq, fence), visibility_ms, Fencing::Any)
}

#[test]
fn any_lease_settles_where_order_is_not_kept_and_only_the_newest_where_it_is() {
    for (groups, accepted) in [(Groups::Fair, true), (Groups::Fifo, false)] {
        let mut driver = ShardDriver::new(TopicSettings { groups, ..TopicSettings::default() });
        let seq = driver.send(None);
        for _ in 0..3 {
            assert_eq!(driver.recv(1), [seq]);
            driver.now += 1000;
        }
        driver.tick();
        assert_eq!(extend_any(&mut driver, seq, 2, 5000).is_ok(), accepted, "{groups:?}: its time is over");
        assert_eq!(driver.recv(1).is_empty(), accepted, "it is hidden anew");
        for wrong in [0, 9] {
            assert_eq!(kind(ack_any(&mut driver, seq, wrong)), Kind::NotFound, "no such lease was given");
        }
        assert_eq!(kind(driver.ack(seq, 1)), Kind::NotFound, "whoever asks for the newest gets the newest");
        assert_eq!(ack_any(&mut driver, seq, 1).is_ok(), accepted, "{groups:?}");
        assert_eq!(driver.shard.find(seq).is_none(), accepted);
        assert_eq!(driver.replayed().fingerprint(driver.now), driver.shard.fingerprint(driver.now));
    }
}

#[test]
fn leases_of_before_a_message_died_end_nothing_after_its_return() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    driver.recv(1);
    assert_eq!(driver.nack(seq, 1, None, true), Ok(Nacked::Died));
    driver.shard.redrive(driver.now, &mut driver.tape, DEAD, seq, MAIN, 1).unwrap();
    driver.hand_over();
    assert_eq!(kind(ack_any(&mut driver, seq, 1)), Kind::NotFound);
    let again = driver.recv_from(MAIN, 1).remove(0);
    assert_eq!((kind(ack_any(&mut driver, seq, 1)), again.fence), (Kind::NotFound, 2));
    assert_eq!(ack_any(&mut driver, seq, 2), Ok(()));
}

#[test]
fn hiding_a_message_anew_takes_one_of_the_leases_that_are_allowed() {
    let mut driver = ShardDriver::new(TopicSettings { inflight_max: 1, ..TopicSettings::default() });
    let (first, second) = (driver.send(None), driver.send(None));
    assert_eq!(driver.recv(1), [first]);
    driver.nack(first, 1, Some(100), false).unwrap();
    assert_eq!(driver.recv(1), [second]);
    assert_eq!(kind(extend_any(&mut driver, first, 1, 60_000)), Kind::Busy);
    driver.ack(second, 1).unwrap();
    assert_eq!(extend_any(&mut driver, first, 1, 60_000), Ok(driver.now + 60_000));
    driver.now += 100;
    assert!(driver.recv(1).is_empty(), "hidden, although its pause is over");
    assert_eq!(driver.shard.stats(MAIN).leased, 1);
    driver.nack(first, 1, Some(60_000), false).unwrap();
    assert_eq!(extend_any(&mut driver, first, 1, 0), Ok(driver.now));
    assert_eq!(driver.recv(1), [first], "shown, although it has to wait after a failed delivery");
}

#[test]
fn what_could_not_be_read_comes_again_later_and_the_try_does_not_count() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let (first, second) = (driver.send(None), driver.send(None));
    for round in 1..=3 {
        assert_eq!(driver.recv(1), [first]);
        driver.shard.give_back_unread(driver.now, &mut driver.tape, MAIN, &[(first, round), (first, 99)]).unwrap();
        assert_eq!(driver.recv(1), if round == 1 { vec![second] } else { vec![] }, "it keeps nobody from those behind");
        assert_eq!(driver.replayed().fingerprint(driver.now), driver.shard.fingerprint(driver.now));
        driver.ack(second, 1).ok();
        driver.now += 1000;
    }
    let leased = driver.recv_from(MAIN, 1).remove(0);
    assert_eq!((leased.seq, leased.attempt, leased.history.len()), (first, 1, 0));
}

#[test]
fn what_could_not_be_read_keeps_its_place_in_a_strict_order() {
    let mut driver = ShardDriver::fifo();
    for group in ["a", "a", "b"] {
        driver.send(Some(group));
    }
    assert_eq!(driver.recv(1), [1]);
    driver.shard.give_back_unread(driver.now, &mut driver.tape, MAIN, &[(1, 1)]).unwrap();
    assert_eq!(driver.recv(9), [3, 1, 2], "its group goes behind the others, and nothing passes it in its group");
}
