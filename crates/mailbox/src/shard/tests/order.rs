//! Who is served when: groups in order, and tenants fairly.

use super::*;

#[test]
fn a_line_is_served_in_order_and_waits_for_what_is_out() {
    let mut world = World::fifo();
    for group in ["a", "b", "a", "a", "b"] {
        world.send(Some(group));
    }
    assert_eq!(world.recv(2), [1, 3], "one receive takes several of a group, and of one group first");
    assert_eq!(world.recv(1), [2]);
    assert!(world.recv(9).is_empty(), "both groups wait");
    world.ack(1, 1).unwrap();
    world.send(Some("a"));
    assert!(world.recv(9).is_empty(), "one of two acknowledged is not enough, nor is a new message");
    world.ack(3, 1).unwrap();
    assert_eq!(world.recv(1), [4]);
    assert_eq!(world.nack(4, 1, Some(300), false), Ok(Nacked::Requeued { due_ms: world.now + 300 }));
    assert!(world.recv(9).is_empty(), "a group waits for its backing off message");
    world.now += 300;
    assert_eq!(world.recv(9), [4, 6]);
    world.now += 1000;
    assert_eq!(world.recv(9), [2, 5, 4, 6], "leases ran out; the older head goes first");
}

#[test]
fn a_receive_fills_from_one_group_before_the_next() {
    let mut world = World::fifo();
    for group in ["a", "b", "a", "b", "a"] {
        world.send(Some(group));
    }
    assert_eq!(world.recv(4), [1, 3, 5, 2]);
    for seq in [1, 3] {
        world.ack(seq, 1).unwrap();
    }
    world.send(Some("a"));
    assert!(world.recv(9).is_empty(), "both groups have one out");
    world.ack(5, 1).unwrap();
    assert_eq!(world.recv(9), [6], "all of the group are acknowledged");
}

#[test]
fn a_group_is_free_when_its_head_dies_of_too_many_deliveries() {
    let mut world = World::new(TopicSettings { groups: Groups::Fifo, max_attempts: 1, ..TopicSettings::default() });
    for _ in 0..3 {
        world.send(Some("a"));
    }
    assert_eq!(world.recv(1), [1]);
    world.shard.extend(world.now, &mut world.tape, MAIN, 1, 1, 0).unwrap();
    assert_eq!(world.recv(1), [2], "the head is spent: it goes to the dead letters and the next one is given");
    assert_eq!(world.shard.find(1), Some(DEAD));
    world.now += 1000;
    assert_eq!(world.recv(1), [3], "so does one whose lease ran out");
}

#[test]
fn a_message_given_back_is_free_and_nothing_else() {
    let mut world = World::fifo();
    for _ in 0..3 {
        world.send(Some("a"));
    }
    assert_eq!(world.recv(2), [1, 2]);
    world.shard.extend(world.now, &mut world.tape, MAIN, 1, 1, 0).unwrap();
    assert!(world.shard.has_ready(MAIN));
    assert_eq!(world.recv(9), [1]);
    world.ack(1, 2).unwrap();
    assert!(world.recv(9).is_empty());
    world.ack(2, 1).unwrap();
    assert_eq!(world.recv(9), [3]);
}

#[test]
fn the_dead_and_the_delayed_hold_nobody_up() {
    let mut world = World::fifo();
    world.send(Some("a"));
    world.try_send(Some("a"), None, Some(100)).unwrap();
    world.send(Some("a"));
    assert_eq!(world.recv(1), [1]);
    assert_eq!(world.nack(1, 1, None, true), Ok(Nacked::Died));
    assert_eq!(world.recv(9), [3], "the delayed one joins when its time comes");
    world.ack(3, 1).unwrap();
    world.now += 100;
    assert_eq!(world.recv(9), [2]);
}

#[test]
fn messages_without_a_group_are_one_line() {
    let mut world = World::fifo();
    for _ in 0..3 {
        world.send(None);
    }
    assert_eq!((world.recv(1), world.recv(1)), (vec![1], vec![]));
}

#[test]
fn bytes_bound_a_receive_but_not_its_first_message() {
    let mut world = World::new(TopicSettings::default());
    for _ in 0..4 {
        world.send(None);
    }
    for (max_bytes, expected) in [(0, 1), (12, 2)] {
        let mut out = Vec::new();
        let recv = Recv { max_messages: 9, max_bytes, visibility_ms: None, consumer: "c" };
        world.shard.recv(world.now, &mut world.tape, MAIN, recv, &mut out).unwrap();
        assert_eq!(out.len(), expected);
    }
    assert_eq!(world.recv(9), [4]);
}

#[test]
fn a_quiet_tenant_goes_before_one_that_holds_many_leases() {
    let mut world = World::new(TopicSettings::default());
    for _ in 0..100 {
        world.send(Some("noisy"));
    }
    for _ in 0..5 {
        world.send(Some("quiet"));
    }
    let seqs = world.recv(36);
    assert_eq!(seqs[..30], (1..=30).collect::<Vec<_>>(), "nobody is noisy before 30 leases");
    assert_eq!(seqs[30..], [101, 102, 103, 104, 105, 31]);
    assert_eq!(world.shard.explain(world.now, MAIN, 40).unwrap().noisy_share, Some(86));
    assert_eq!(world.shard.explain(world.now, MAIN, 101).unwrap().noisy_share, None);
    assert_eq!(world.shard.stats(MAIN).reorder_depth_max, 5);
    for seq in 1..=2 {
        world.ack(seq, 1).unwrap();
    }
    world.send(Some("quiet"));
    assert_eq!(world.recv(2), [32, 106], "with 29 leases it is quiet again, until it has 30");
}

#[test]
fn a_quiet_tenant_goes_before_one_that_takes_long() {
    let mut world = World::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..20 {
        world.send(Some("slow"));
    }
    for _ in 0..12 {
        let leased = world.recv_from(MAIN, 1).remove(0);
        world.now += 999;
        world.ack(leased.seq, leased.fence).unwrap();
    }
    world.send(Some("quick"));
    assert_eq!(world.recv(2), [21, 13]);
    world.now += 200_000;
    world.tick();
    assert_eq!(world.recv(2), [13, 14], "that was long ago");
}

#[test]
fn the_share_of_time_counts_even_for_a_tenant_with_one_message_at_a_time() {
    let mut world = World::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..12 {
        world.send(Some("slow"));
        let leased = world.recv_from(MAIN, 1).remove(0);
        world.now += 999;
        world.ack(leased.seq, leased.fence).unwrap();
    }
    world.send(Some("slow"));
    world.send(Some("quick"));
    assert_eq!(world.recv(2), [14, 13]);
}

#[test]
fn many_canceled_messages_leave_no_trace_in_their_line() {
    let mut world = World::new(TopicSettings::default());
    let first = world.send(Some("g"));
    for _ in 0..10_000 {
        let seq = world.send(Some("g"));
        world.shard.cancel(world.now, &mut world.tape, MAIN, seq).unwrap();
    }
    let last = world.send(Some("g"));
    assert_eq!(
        world.shard.explain(world.now, MAIN, last).unwrap().ahead.min(200),
        world.shard.explain(world.now, MAIN, last).unwrap().ahead
    );
    assert_eq!(world.recv(9), [first, last]);
}
