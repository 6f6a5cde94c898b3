//! How long messages and keys are kept where room or the clock fails them.

use super::*;

const DAYS_AHEAD_MS: u64 = 3 * 24 * 3600 * 1000;

fn kept_for(retention_ms: u64, expired: Expired) -> ShardDriver {
    ShardDriver::new(TopicSettings { retention_ms, expired, ..TopicSettings::default() })
}

#[test]
fn what_finds_no_room_among_the_dead_keeps_no_other_partition_from_its_time() {
    let mut driver = kept_for(10_000, Expired::DeadLetter);
    let other = PartKey { partition: 1, ..MAIN };
    let old = driver.send(None);
    driver.now += 5_000;
    let (seq, sent_ms, body) = (driver.seq + 1, driver.now, Bytes::from_static(b"later"));
    let (part, group, key, dedup, delay_ms) = (other, None, None, Dedup::default(), Some(5_500));
    let send = Send { part, group, key, dedup, delay_ms, sent_ms, seq, body };
    driver.shard.send(driver.now, &mut driver.tape, send).unwrap();
    driver.now += 6_000;
    driver.tape.has_no_room_for_moves = true;
    driver.tick();
    assert_eq!(driver.shard.stats(other).ready, 1, "its delay is over");
    assert_eq!(driver.shard.find(old), Some(MAIN));
    let again_ms = driver.shard.next_deadline().unwrap();
    assert!(again_ms > driver.now, "nobody looks again and again for room");
    driver.now = again_ms;
    driver.tape.has_no_room_for_moves = false;
    driver.tick();
    assert_eq!(driver.shard.find(old), Some(DEAD));
    assert_eq!(driver.replayed().fingerprint(driver.now), driver.shard.fingerprint(driver.now));
}

#[test]
fn a_message_of_a_clock_that_was_ahead_keeps_none_behind_it_for_longer() {
    let mut driver = kept_for(10_000, Expired::Drop);
    driver.now += DAYS_AHEAD_MS;
    let ahead = driver.send(None);
    driver.now -= DAYS_AHEAD_MS;
    driver.shard = driver.replayed();
    let seq = driver.send(None);
    driver.now += 10_000;
    driver.tick();
    assert_eq!((driver.shard.find(ahead), driver.shard.find(seq)), (Some(MAIN), None));
    driver.now += DAYS_AHEAD_MS - 10_000;
    assert_eq!(driver.shard.next_deadline(), Some(driver.now + 10_000));
    driver.now += 10_000;
    driver.tick();
    assert_eq!((driver.shard.find(ahead), driver.shard.next_deadline()), (None, None));
}

#[test]
fn a_key_of_a_clock_that_was_ahead_is_known_after_its_message_was_written_again() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let key = Some(Key { hash: 9, payload: 4 });
    driver.now += DAYS_AHEAD_MS;
    let seq = driver.try_send(None, key, None).unwrap().seq;
    driver.now -= DAYS_AHEAD_MS;
    driver.shard = driver.replayed();
    let old = driver.tape.records[0].0;
    driver.shard.relocate(driver.now, &mut driver.tape, MAIN, seq, old, b"body 1").unwrap();
    driver.tape.records.remove(0);
    driver.shard = driver.replayed();
    let window_ms = limits::REPLAY_WINDOW.as_millis() as u64;
    driver.now += window_ms - 1;
    assert!(driver.try_send(None, key, None).unwrap().duplicate);
    driver.now += 1;
    assert!(!driver.try_send(None, key, None).unwrap().duplicate);
}
