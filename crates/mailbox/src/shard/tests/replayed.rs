//! Reading the journal back gives the state that wrote it.

use super::*;

#[test]
fn a_lease_keeps_its_end_but_never_lasts_longer_than_it_was_given() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    driver.try_send(None, None, Some(5000)).unwrap();
    driver.recv(1);
    let until_ms = driver.now + 1000;
    for (now, expected) in [(driver.now, until_ms), (driver.now + 900, until_ms), (driver.now - 600, driver.now + 400)]
    {
        let written = std::mem::replace(&mut driver.now, now);
        let shard = driver.replayed();
        driver.now = written;
        let mut out = Vec::new();
        shard.browse(MAIN, None, 9, &mut out);
        assert_eq!((out[0].seq, out[0].due_ms), (seq, Some(expected)));
        assert_eq!(out[1].due_ms, Some(expected + 4000));
    }
}

#[test]
fn what_is_no_longer_needed_is_named() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seqs: Vec<_> = (0..4).map(|_| driver.send(None)).collect();
    driver.recv(1);
    driver.ack(seqs[0], 1).unwrap();
    driver.shard.cancel(driver.now, &mut driver.tape, MAIN, seqs[1]).unwrap();
    driver.shard.edit(driver.now, &mut driver.tape, MAIN, seqs[2], "x".into()).unwrap();
    let mut released = Vec::new();
    driver.replayed().take_released(&mut released);
    released.sort_unstable();
    driver.tape.released.sort_unstable();
    assert_eq!(released, driver.tape.released);
    assert_eq!(released.len(), 3);
}

#[test]
fn a_key_outlives_its_message_and_the_old_records() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let key = Key { hash: 9, payload: 4 };
    let seq = driver.try_send(None, Some(key), None).unwrap().seq;
    let old = driver.tape.records[0].0;
    driver.recv(1);
    driver.nack(seq, 1, None, false).unwrap();
    assert_eq!(driver.shard.find(seq), Some(DEAD));
    driver.shard.relocate(driver.now, &mut driver.tape, MAIN, seq, old, b"body 1").unwrap();
    assert_eq!(driver.tape.released, [old]);
    driver.tape.records.remove(0);
    let mut shard = driver.replayed();
    assert_eq!(shard.fingerprint(driver.now), driver.shard.fingerprint(driver.now));
    let body = Bytes::from_static(b"body");
    let send = Send {
        part: MAIN,
        group: None,
        key: Some(key),
        dedup: Dedup::default(),
        delay_ms: None,
        sent_ms: driver.now,
        seq: 50,
        body,
    };
    assert!(shard.send(driver.now, &mut driver.tape, send).unwrap().duplicate);
    assert_eq!(shard.find(seq), Some(DEAD));
}

#[test]
fn a_message_of_an_older_node_counts_with_the_bytes_it_takes() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let taken = crate::record::Taken {
        part: MAIN,
        seq: 7,
        sent_ms: driver.now,
        due_ms: driver.now,
        // Older nodes wrote the length of the payload alone.
        body_len: 5,
        group: None,
        key: None,
    };
    let position = Position { segment: 1, offset: 0, len: 5000 };
    driver.shard.replay(driver.now, &Record::Send(taken), position, 4900);
    assert_eq!(driver.shard.stats(MAIN).bytes, 4900);
    driver.shard.kill(driver.now, &mut driver.tape, MAIN, 7, DeadReason::Rejected, "").unwrap();
    driver.hand_over();
    assert_eq!((driver.shard.stats(MAIN).bytes, driver.shard.stats(DEAD).bytes), (0, 4900));
}

#[test]
fn a_part_moves_to_another_shard_whole() {
    let mut driver = ShardDriver::fifo();
    for group in ["a", "a", "b"] {
        driver.send(Some(group));
    }
    driver.recv(1);
    let before = driver.shard.fingerprint(driver.now);
    driver.shard.context.hot.put(4, Bytes::from_static(b"of another partition"));
    let part = driver.shard.take_part(MAIN).unwrap();
    assert_eq!((driver.shard.fingerprint(driver.now), driver.shard.next_deadline()), (String::new(), None));
    assert_eq!(driver.shard.context.hot.first(), Some(4), "its own bodies are no longer in memory");
    let mut other = Shard::new(0);
    set(&mut other, TopicSettings { groups: Groups::Fifo, ..TopicSettings::default() });
    other.put_part(part);
    assert_eq!(other.fingerprint(driver.now), before);
    let mut ready = Vec::new();
    other.take_ready(&mut ready);
    assert_eq!(ready, [MAIN]);
    driver.shard = other;
    assert_eq!(driver.recv(9), [3]);
    driver.now += 1000;
    assert_eq!(driver.recv(9), [1, 2, 3]);
}

#[test]
fn a_key_is_still_told_after_its_message_went_away_and_came_back() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let key = Key { hash: 9, payload: 4 };
    let seq = driver.try_send(None, Some(key), None).unwrap().seq;
    driver.recv(1);
    driver.nack(seq, 1, None, false).unwrap();
    let (sent, now) = (driver.tape.records[0].0, driver.now);
    driver.shard.relocate(now, &mut driver.tape, MAIN, seq, sent, b"body 1").unwrap();
    let remembered = driver.tape.records.last().unwrap().0;
    driver.shard.redrive(now, &mut driver.tape, DEAD, seq, MAIN, 1).unwrap();
    driver.hand_over();
    driver.shard.relocate(now, &mut driver.tape, MAIN, seq, remembered, b"").unwrap();
    driver.tape.records.retain(|(position, _)| *position != sent && *position != remembered);
    assert_eq!(driver.replayed().fingerprint(now), driver.shard.fingerprint(now));
    assert!(driver.try_send(None, Some(key), None).unwrap().duplicate);
}
