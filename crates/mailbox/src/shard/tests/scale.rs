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
        let (part, group, key, dedup, delay_ms) = (MAIN, None, None, Dedup::default(), None);
        let send = Send { part, group, key, dedup, delay_ms, sent_ms: seq, seq, body, payload_len: 10 };
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
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    for _ in 0..2500 {
        driver.send(None);
    }
    assert_eq!(driver.recv(2500).len(), 2500);
    driver.now += 1000;
    let mut ticks = 0;
    while driver.shard.next_deadline().is_some_and(|at| at <= driver.now) {
        driver.tick();
        ticks += 1;
        assert_eq!(driver.shard.stats(MAIN).ready, 2500.min(ticks * 1000));
    }
    assert_eq!(ticks, 3);
}
