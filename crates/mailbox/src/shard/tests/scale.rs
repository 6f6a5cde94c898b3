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
    filled_with(count, |_| None, |_| None)
}

fn filled_with(count: u64, group: impl Fn(u64) -> Option<String>, key: impl Fn(u64) -> Option<Key>) -> Shard {
    let mut shard = Shard::new(0);
    set(&mut shard, TopicSettings { messages_max: u64::MAX, ..TopicSettings::default() });
    let body = Bytes::from_static(b"0123456789");
    for seq in 0..count {
        let body = body.clone();
        let group = group(seq);
        let (part, group, key, dedup, delay_ms) = (MAIN, group.as_deref(), key(seq), Dedup::default(), None);
        let send = Send { part, group, key, dedup, delay_ms, sent_ms: seq, seq, body };
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
        assert_eq!((part.pasts.len(), part.moved.len(), part.keys.len()), (0, 0, 0));
    }
}

/// Bytes that the collections of a partition take, unused room included.
fn taken(shard: &Shard) -> u64 {
    let part = &shard.parts[&MAIN];
    let parts = [part.index.capacity_bytes(), part.lines.capacity_bytes(), part.keys.capacity_bytes()];
    (parts.iter().sum::<usize>() + part.pasts.capacity_bytes()) as u64
}

/// Whoever fills a table to just after it has grown must not get twice the memory that is counted.
#[test]
fn what_is_counted_is_no_less_than_what_is_taken() {
    let keyed = |seq: u64| Some(Key { hash: u128::from(seq) << 64 | u128::from(seq), payload: seq });
    for count in [20_000, 57_400, 100_000, 115_000] {
        for (name, shard, bytes_max) in [
            ("alone", filled(count), 64),
            ("keyed", filled_with(count, |_| None, keyed), 160),
            ("in few groups", filled_with(count, |seq| Some(format!("group {}", seq % 100)), keyed), 160),
            ("each in its group", filled_with(count, |seq| Some(format!("group {seq}")), |_| None), 400),
        ] {
            let (counted, taken) = (shard.memory_bytes(), taken(&shard));
            println!("{count} messages, {name}: {} bytes counted, {} taken", counted / count, taken / count);
            assert!(counted >= taken, "{count} messages, {name}: {counted} bytes counted, {taken} taken");
            assert!(counted <= bytes_max * count, "{count} messages, {name}: {} bytes each", counted / count);
        }
    }
}

/// Counting goes up and down by the same: nothing is left when the messages are gone.
#[test]
fn what_was_counted_is_forgotten_with_the_messages() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 3, ..TopicSettings::default() });
    let empty = driver.shard.memory_bytes();
    for number in 0..50 {
        let key = Key { hash: number, payload: 1 };
        driver.try_send(Some(&format!("group {number}")), Some(key), None).unwrap();
    }
    let waiting = driver.shard.memory_bytes();
    for _ in 0..2 {
        for leased in driver.recv_from(MAIN, 50) {
            driver.nack(leased.seq, leased.fence, Some(0), false).unwrap();
        }
    }
    assert!(driver.shard.memory_bytes() > waiting + 50 * 2 * "no luck".len() as u64, "what is said of them counts");
    for (nth, leased) in driver.recv_from(MAIN, 50).into_iter().enumerate() {
        match nth % 3 {
            0 => driver.ack(leased.seq, leased.fence).unwrap(),
            1 => drop(driver.nack(leased.seq, leased.fence, None, true).unwrap()),
            _ => driver.shard.release_lease(driver.now, &mut driver.tape, MAIN, leased.seq, leased.fence).unwrap(),
        }
    }
    assert_eq!(driver.replayed().memory_bytes(), driver.shard.memory_bytes(), "read back it is the same");
    for part in [MAIN, DEAD] {
        driver.shard.purge(driver.now, &mut driver.tape, part).unwrap();
    }
    driver.send(None);
    let alone = driver.shard.memory_bytes();
    assert!(alone < empty + 2_000, "{alone} bytes for one message");
}

/// Acknowledging frees what groups took, whoever polls afterwards, and so does the purge of an empty partition.
#[test]
fn what_groups_took_is_free_when_their_messages_are_settled() {
    for purged in [false, true] {
        let mut driver = ShardDriver::new(TopicSettings::default());
        let empty = driver.shard.memory_bytes();
        for number in 0..20_000 {
            driver.try_send(Some(&format!("group {number}")), None, None).unwrap();
        }
        let full = driver.shard.memory_bytes();
        loop {
            let leased = driver.recv_from(MAIN, 100);
            if leased.is_empty() {
                break;
            }
            driver.now += 5;
            leased.into_iter().for_each(|leased| driver.ack(leased.seq, leased.fence).unwrap());
        }
        assert!(driver.shard.memory_bytes() < full / 10, "{} of {full} bytes", driver.shard.memory_bytes());
        if purged {
            assert_eq!(driver.shard.purge(driver.now, &mut driver.tape, MAIN), Ok(0));
        }
        // Two windows of processing time pass, and nobody receives.
        while let Some(at) = driver.shard.next_deadline().filter(|_| !purged) {
            driver.now = driver.now.max(at);
            driver.tick();
        }
        assert!(driver.shard.memory_bytes() < empty + 2_000, "{} bytes for none", driver.shard.memory_bytes());
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
