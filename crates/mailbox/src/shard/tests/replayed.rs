//! Reading the journal back gives the state that wrote it.

use super::*;

#[test]
fn a_lease_keeps_its_end_but_never_lasts_longer_than_it_was_given() {
    let mut world = World::new(TopicSettings::default());
    let seq = world.send(None);
    world.try_send(None, None, Some(5000)).unwrap();
    world.recv(1);
    let until_ms = world.now + 1000;
    for (now, expected) in [(world.now, until_ms), (world.now + 900, until_ms), (world.now - 600, world.now + 400)] {
        let written = std::mem::replace(&mut world.now, now);
        let shard = world.replayed();
        world.now = written;
        let mut out = Vec::new();
        shard.browse(MAIN, None, 9, &mut out);
        assert_eq!((out[0].seq, out[0].due_ms), (seq, Some(expected)));
        assert_eq!(out[1].due_ms, Some(expected + 4000));
    }
}

#[test]
fn what_is_no_longer_needed_is_named() {
    let mut world = World::new(TopicSettings::default());
    let seqs: Vec<_> = (0..4).map(|_| world.send(None)).collect();
    world.recv(1);
    world.ack(seqs[0], 1).unwrap();
    world.shard.cancel(world.now, &mut world.tape, MAIN, seqs[1]).unwrap();
    world.shard.edit(world.now, &mut world.tape, MAIN, seqs[2], "x".into(), 1).unwrap();
    let mut released = Vec::new();
    world.replayed().take_released(&mut released);
    released.sort_unstable();
    world.tape.released.sort_unstable();
    assert_eq!(released, world.tape.released);
    assert_eq!(released.len(), 3);
}

#[test]
fn a_key_outlives_its_message_and_the_old_records() {
    let mut world = World::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let key = Key { hash: 9, payload: 4 };
    let seq = world.try_send(None, Some(key), None).unwrap().seq;
    let old = world.tape.records[0].0;
    world.recv(1);
    world.nack(seq, 1, None, false).unwrap();
    assert_eq!(world.shard.find(seq), Some(DEAD));
    world.shard.relocate(world.now, &mut world.tape, MAIN, seq, old, b"body 1").unwrap();
    assert_eq!(world.tape.released, [old]);
    world.tape.records.remove(0);
    let mut shard = world.replayed();
    assert_eq!(shard.fingerprint(world.now), world.shard.fingerprint(world.now));
    let body = Bytes::from_static(b"body");
    let send = Send {
        part: MAIN,
        group: None,
        key: Some(key),
        dedup: Dedup::default(),
        delay_ms: None,
        sent_ms: world.now,
        seq: 50,
        body,
        payload_len: 4,
    };
    assert!(shard.send(world.now, &mut world.tape, send).unwrap().duplicate);
    assert_eq!(shard.find(seq), Some(DEAD));
}

#[test]
fn a_part_moves_to_another_shard_whole() {
    let mut world = World::fifo();
    for group in ["a", "a", "b"] {
        world.send(Some(group));
    }
    world.recv(1);
    let before = world.shard.fingerprint(world.now);
    let part = world.shard.take_part(MAIN).unwrap();
    assert_eq!((world.shard.fingerprint(world.now), world.shard.next_deadline()), (String::new(), None));
    let mut other = Shard::new(0);
    set(&mut other, TopicSettings { groups: Groups::Fifo, ..TopicSettings::default() });
    other.put_part(part);
    assert_eq!(other.fingerprint(world.now), before);
    let mut ready = Vec::new();
    other.take_ready(&mut ready);
    assert_eq!(ready, [MAIN]);
    world.shard = other;
    assert_eq!(world.recv(9), [3]);
    world.now += 1000;
    assert_eq!(world.recv(9), [1, 2, 3]);
}

#[test]
fn a_key_is_still_told_after_its_message_went_away_and_came_back() {
    let mut world = World::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let key = Key { hash: 9, payload: 4 };
    let seq = world.try_send(None, Some(key), None).unwrap().seq;
    world.recv(1);
    world.nack(seq, 1, None, false).unwrap();
    let (sent, now) = (world.tape.records[0].0, world.now);
    world.shard.relocate(now, &mut world.tape, MAIN, seq, sent, b"body 1").unwrap();
    let remembered = world.tape.records.last().unwrap().0;
    world.shard.redrive(now, &mut world.tape, DEAD, seq, MAIN).unwrap();
    world.hand_over();
    world.shard.relocate(now, &mut world.tape, MAIN, seq, remembered, b"").unwrap();
    world.tape.records.retain(|(position, _)| *position != sent && *position != remembered);
    assert_eq!(world.replayed().fingerprint(now), world.shard.fingerprint(now));
    assert!(world.try_send(None, Some(key), None).unwrap().duplicate);
}
