//! Messages that came from another partition: what they take, and until when very many of them are kept.

use super::*;
use crate::partition::past::{Past, Try};

/// Lets messages die of one delivery each, and gives them another chance.
fn redriven(count: u64) -> ShardDriver {
    let mut driver = buried(count);
    for seq in 1..=count {
        driver.shard.redrive(driver.now, &mut driver.tape, DEAD, seq, MAIN, 7).unwrap();
    }
    driver.hand_over();
    driver
}

fn buried(count: u64) -> ShardDriver {
    let mut driver = ShardDriver::new(TopicSettings::default());
    (0..count).for_each(|_| _ = driver.send(None));
    loop {
        let leased = driver.recv_from(MAIN, 1000);
        if leased.is_empty() {
            return driver;
        }
        for one in leased {
            driver.nack(one.seq, one.fence, None, true).unwrap();
        }
    }
}

/// Bytes that the collections of a shard take, unused room included.
fn taken(shard: &Shard) -> u64 {
    let of_part = |part: &Partition| {
        let waiting = part.index.capacity_bytes() + part.lines.capacity_bytes();
        let at_rest = part.moved.iter().filter_map(|(_, moved)| moved.past.as_ref());
        let at_rest: usize = at_rest.map(|past| size_of::<Past>() + past.tries.capacity() * size_of::<Try>()).sum();
        waiting + part.pasts.capacity_bytes() + part.moved.capacity_bytes() + at_rest
    };
    let parts: usize = shard.parts.values().map(|part| of_part(part)).sum();
    (parts + shard.context.homes.capacity_bytes()) as u64
}

#[test]
fn a_redriven_message_takes_at_most_150_bytes_more_than_a_plain_one() {
    const COUNT: u64 = 20_000;
    let mut plain = ShardDriver::new(TopicSettings::default());
    (0..COUNT).for_each(|_| _ = plain.send(None));
    let plain = taken(&plain.replayed()) / COUNT;
    let redriven = redriven(COUNT).replayed();
    let (counted, taken) = (redriven.memory_bytes() / COUNT, taken(&redriven) / COUNT);
    assert!(taken <= counted, "{counted} counted, {taken} taken");
    assert!(taken <= plain + 150, "{taken} bytes, {plain} of a plain one");
}

#[test]
fn another_retention_of_very_many_dead_letters_is_followed_in_bounded_steps() {
    const COUNT: u64 = 20_000;
    let mut driver = buried(COUNT);
    let keep_for = |driver: &mut ShardDriver, retention_ms| {
        let settings = TopicSettings { retention_ms, ..TopicSettings::default() };
        driver.shard.settings(DEAD.topic, Arc::new(settings), None);
    };
    let held = |driver: &ShardDriver| driver.shard.stats(DEAD).held();
    driver.now += 10_000;
    keep_for(&mut driver, 20_000);
    let mut ticks = 0;
    while driver.shard.next_deadline().is_some_and(|at| at <= driver.now) {
        driver.tick();
        ticks += 1;
        assert!(ticks < 100 && held(&driver) == COUNT, "none is old enough");
    }
    assert_eq!(driver.shard.next_deadline(), Some(driver.now + 10_000));
    keep_for(&mut driver, 10_000);
    let leased = driver.recv_from(DEAD, 1).remove(0);
    let mut left = held(&driver);
    while driver.shard.next_deadline().is_some_and(|at| at <= driver.now) {
        driver.tick();
        assert!(left - held(&driver) <= due::DUE_MAX as u64 + 300, "{} in one step", left - held(&driver));
        left = held(&driver);
    }
    assert_eq!((left, driver.shard.stats(DEAD).expired), (1, COUNT - 1), "what is with a consumer stays for now");
    driver.now = leased.until_ms;
    driver.tick();
    driver.tick();
    assert_eq!((held(&driver), driver.shard.stats(DEAD).expired), (0, COUNT));
}
