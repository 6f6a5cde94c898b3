//! Who is served when: groups in order, and tenants fairly.

use super::*;

#[test]
fn a_line_is_served_in_order_and_waits_for_what_is_out() {
    let mut driver = ShardDriver::fifo();
    for group in ["a", "b", "a", "a", "b"] {
        driver.send(Some(group));
    }
    assert_eq!(driver.recv(2), [1, 3], "one receive takes several of a group, and of one group first");
    assert_eq!(driver.recv(1), [2]);
    assert!(driver.recv(9).is_empty(), "both groups wait");
    driver.ack(1, 1).unwrap();
    driver.send(Some("a"));
    assert!(driver.recv(9).is_empty(), "one of two acknowledged is not enough, nor is a new message");
    driver.ack(3, 1).unwrap();
    assert_eq!(driver.recv(1), [4]);
    assert_eq!(driver.nack(4, 1, Some(300), false), Ok(Nacked::Requeued { due_ms: driver.now + 300 }));
    assert!(driver.recv(9).is_empty(), "a group waits for its backing off message");
    driver.now += 300;
    assert_eq!(driver.recv(9), [4, 6]);
    driver.now += 1000;
    assert_eq!(driver.recv(9), [2, 5, 4, 6], "leases ran out; the older head goes first");
}

#[test]
fn a_receive_fills_from_one_group_before_the_next() {
    let mut driver = ShardDriver::fifo();
    for group in ["a", "b", "a", "b", "a"] {
        driver.send(Some(group));
    }
    assert_eq!(driver.recv(4), [1, 3, 5, 2]);
    for seq in [1, 3] {
        driver.ack(seq, 1).unwrap();
    }
    driver.send(Some("a"));
    assert!(driver.recv(9).is_empty(), "both groups have one out");
    driver.ack(5, 1).unwrap();
    assert_eq!(driver.recv(9), [6], "all of the group are acknowledged");
}

#[test]
fn a_group_is_free_when_its_head_dies_of_too_many_deliveries() {
    let mut driver =
        ShardDriver::new(TopicSettings { groups: Groups::Fifo, max_attempts: 1, ..TopicSettings::default() });
    for _ in 0..3 {
        driver.send(Some("a"));
    }
    assert_eq!(driver.recv(1), [1]);
    driver.shard.extend(driver.now, &mut driver.tape, MAIN, 1, 1, 0).unwrap();
    assert_eq!(driver.recv(1), [2], "the head is spent: it goes to the dead letters and the next one is given");
    assert_eq!(driver.shard.find(1), Some(DEAD));
    driver.now += 1000;
    assert_eq!(driver.recv(1), [3], "so does one whose lease ran out");
}

#[test]
fn a_message_given_back_is_free_and_nothing_else() {
    let mut driver = ShardDriver::fifo();
    for _ in 0..3 {
        driver.send(Some("a"));
    }
    assert_eq!(driver.recv(2), [1, 2]);
    driver.shard.extend(driver.now, &mut driver.tape, MAIN, 1, 1, 0).unwrap();
    assert!(driver.shard.has_ready(MAIN));
    assert_eq!(driver.recv(9), [1]);
    driver.ack(1, 2).unwrap();
    assert!(driver.recv(9).is_empty());
    driver.ack(2, 1).unwrap();
    assert_eq!(driver.recv(9), [3]);
}

#[test]
fn the_dead_and_the_delayed_hold_nobody_up() {
    let mut driver = ShardDriver::fifo();
    driver.send(Some("a"));
    driver.try_send(Some("a"), None, Some(100)).unwrap();
    driver.send(Some("a"));
    assert_eq!(driver.recv(1), [1]);
    assert_eq!(driver.nack(1, 1, None, true), Ok(Nacked::Died));
    assert_eq!(driver.recv(9), [3], "the delayed one joins when its time comes");
    driver.ack(3, 1).unwrap();
    driver.now += 100;
    assert_eq!(driver.recv(9), [2]);
}

#[test]
fn messages_without_a_group_are_one_line() {
    let mut driver = ShardDriver::fifo();
    for _ in 0..3 {
        driver.send(None);
    }
    assert_eq!((driver.recv(1), driver.recv(1)), (vec![1], vec![]));
}

#[test]
fn bytes_bound_a_receive_but_not_its_first_message() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    for _ in 0..4 {
        driver.send(None);
    }
    for (max_bytes, expected) in [(0, 1), (12, 2)] {
        let mut out = Vec::new();
        let recv = Recv { max_messages: 9, max_bytes, visibility_ms: None, consumer: "c" };
        driver.shard.recv(driver.now, &mut driver.tape, MAIN, recv, &mut out).unwrap();
        assert_eq!(out.len(), expected);
    }
    assert_eq!(driver.recv(9), [4]);
}

#[test]
fn a_quiet_tenant_goes_before_one_that_holds_many_leases() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    for _ in 0..100 {
        driver.send(Some("noisy"));
    }
    for _ in 0..5 {
        driver.send(Some("quiet"));
    }
    let seqs = driver.recv(36);
    assert_eq!(seqs[..30], (1..=30).collect::<Vec<_>>(), "nobody is noisy before 30 leases");
    assert_eq!(seqs[30..], [101, 102, 103, 104, 105, 31]);
    assert_eq!(driver.shard.explain(driver.now, MAIN, 40).unwrap().noisy_share, Some(86));
    assert_eq!(driver.shard.explain(driver.now, MAIN, 101).unwrap().noisy_share, None);
    assert_eq!(driver.shard.stats(MAIN).reorder_depth_max, 5);
    for seq in 1..=2 {
        driver.ack(seq, 1).unwrap();
    }
    driver.send(Some("quiet"));
    assert_eq!(driver.recv(2), [32, 106], "with 29 leases it is quiet again, until it has 30");
}

#[test]
fn a_quiet_tenant_goes_before_one_that_takes_long() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..20 {
        driver.send(Some("slow"));
    }
    for _ in 0..12 {
        let leased = driver.recv_from(MAIN, 1).remove(0);
        driver.now += 999;
        driver.ack(leased.seq, leased.fence).unwrap();
    }
    driver.send(Some("quick"));
    assert_eq!(driver.recv(2), [21, 13]);
    driver.now += 200_000;
    driver.tick();
    assert_eq!(driver.recv(2), [13, 14], "that was long ago");
}

#[test]
fn the_share_of_time_counts_even_for_a_tenant_with_one_message_at_a_time() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..12 {
        driver.send(Some("slow"));
        let leased = driver.recv_from(MAIN, 1).remove(0);
        driver.now += 999;
        driver.ack(leased.seq, leased.fence).unwrap();
    }
    driver.send(Some("slow"));
    driver.send(Some("quick"));
    assert_eq!(driver.recv(2), [14, 13]);
}

#[test]
fn many_canceled_messages_leave_no_trace_in_their_line() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let first = driver.send(Some("g"));
    for _ in 0..10_000 {
        let seq = driver.send(Some("g"));
        driver.shard.cancel(driver.now, &mut driver.tape, MAIN, seq).unwrap();
    }
    let last = driver.send(Some("g"));
    assert_eq!(
        driver.shard.explain(driver.now, MAIN, last).unwrap().ahead.min(200),
        driver.shard.explain(driver.now, MAIN, last).unwrap().ahead
    );
    assert_eq!(driver.recv(9), [first, last]);
}

#[test]
fn a_group_goes_behind_the_others_whenever_a_message_of_it_comes_back() {
    let mut driver = ShardDriver::fifo();
    for group in ["a", "b", "c", "a"] {
        driver.send(Some(group));
    }
    assert_eq!(driver.recv(1), [1]);
    assert_eq!(driver.nack(1, 1, Some(0), false), Ok(Nacked::Requeued { due_ms: driver.now }));
    assert_eq!(driver.recv(1), [2], "after a failed delivery");
    driver.now += 1000;
    assert_eq!(driver.recv(1), [3], "after a lease that ran out");
    driver.shard.extend(driver.now, &mut driver.tape, MAIN, 3, 1, 0).unwrap();
    driver.send(Some("d"));
    assert_eq!(driver.recv(2), [1, 4], "a came back before b, and both are not passed by what was sent later");
    assert_eq!((driver.recv(1), driver.recv(1), driver.recv(1)), (vec![2], vec![3], vec![5]));
}

#[test]
fn what_is_out_holds_up_only_what_comes_after_it() {
    let mut driver = ShardDriver::fifo();
    for _ in 0..4 {
        driver.send(Some("a"));
    }
    assert_eq!(driver.recv(3), [1, 2, 3]);
    driver.shard.extend(driver.now, &mut driver.tape, MAIN, 2, 1, 5000).unwrap();
    driver.now += 1000;
    assert_eq!(driver.shard.explain(driver.now, MAIN, 4).unwrap().blocked_by, Some(1));
    assert_eq!(driver.recv(9), [1], "its time has come; the third waits for the second");
    assert_eq!(driver.shard.explain(driver.now, MAIN, 3).unwrap().blocked_by, Some(1));
    driver.ack(1, 2).unwrap();
    assert_eq!(driver.shard.explain(driver.now, MAIN, 3).unwrap().blocked_by, Some(2));
    driver.now += 4000;
    assert_eq!(driver.recv(9), [2, 3, 4]);
}
