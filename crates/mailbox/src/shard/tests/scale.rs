//! Memory a message takes, and work that does not grow with the backlog.

use super::*;

/// A journal that keeps nothing.
struct Sink(u32);

impl Journal for Sink {
    fn append(&mut self, _: Class, head: &[u8], body: &[u8]) -> Result<Position, Error> {
        self.0 += 1;
        Ok(Position { segment: self.0 >> 16, offset: self.0, len: (head.len() + body.len()) as u32 })
    }

    fn release(&mut self, _: Position) {}
}

fn filled(count: u64) -> Shard {
    let mut shard = Shard::new(0);
    set(&mut shard, TopicSettings::default());
    let body = Bytes::from_static(b"0123456789");
    for seq in 0..count {
        let body = body.clone();
        let send =
            Send { part: MAIN, group: None, key: None, delay_ms: None, sent_ms: seq, seq, body, payload_len: 10 };
        shard.send(seq, &mut Sink(0), send).unwrap();
    }
    shard
}

#[test]
fn a_waiting_message_takes_at_most_64_bytes() {
    for count in [600_000, 1_000_000] {
        let shard = filled(count);
        let part = &shard.parts[&MAIN];
        let bytes = part.index.capacity_bytes() + part.lines.capacity_bytes();
        assert!(bytes as u64 <= 64 * count, "{} bytes a message", bytes as f64 / count as f64);
        assert_eq!((part.pasts.seqs().count(), part.moved.len(), part.keys.len()), (0, 0, 0));
    }
}

#[test]
fn a_tick_does_a_bounded_part_and_says_that_there_is_more() {
    let mut world = World::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..2500 {
        world.send(None);
    }
    assert_eq!(world.recv(2500).len(), 2500);
    world.now += 1000;
    let mut ticks = 0;
    while world.shard.next_deadline().is_some_and(|at| at <= world.now) {
        world.tick();
        ticks += 1;
        assert_eq!(world.shard.stats(MAIN).ready, 2500.min(ticks * 1000));
    }
    assert_eq!(ticks, 3);
}

/// Run by hand, optimised: the time of each step at some backlogs.
#[test]
#[ignore = "a measurement, not a check"]
fn steps_cost_the_same_at_any_backlog() {
    for count in [0, 1_000_000, 10_000_000] {
        let mut shard = filled(count);
        let (mut sink, mut out, mut now) = (Sink(0), Vec::new(), count);
        let (mut send_ns, mut recv_ns, mut ack_ns) = (0, 0, 0);
        let rounds = 500_000;
        for round in 0..rounds {
            now += u64::from(round % 50 == 0);
            let (seq, body) = (count + round, Bytes::from_static(b"0123456789"));
            let start = clock();
            let send =
                Send { part: MAIN, group: None, key: None, delay_ms: None, sent_ms: now, seq, body, payload_len: 10 };
            shard.send(now, &mut sink, send).unwrap();
            let sent = clock();
            let recv = Recv { max_messages: 1, max_bytes: 1 << 20, visibility_ms: None, consumer: "c" };
            shard.recv(now, &mut sink, MAIN, recv, &mut out).unwrap();
            let received = clock();
            let leased = out.pop().unwrap();
            shard.ack(now, &mut sink, MAIN, &[(leased.seq, leased.fence)]).remove(0).unwrap();
            let acked = clock();
            send_ns += (sent - start).as_nanos();
            recv_ns += (received - sent).as_nanos();
            ack_ns += (acked - received).as_nanos();
        }
        let each = |total: u128| total / u128::from(rounds);
        println!("backlog {count}: send {} ns, recv {} ns, ack {} ns", each(send_ns), each(recv_ns), each(ack_ns));
    }
}

#[expect(clippy::disallowed_methods, reason = "the only measure of real time here, and no decision hangs on it")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
