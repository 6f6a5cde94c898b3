//! What a shard promises, operation by operation, and that reading its journal back gives the same state.

use ron_types::limits::mailbox as limits;

use super::*;
use crate::record::Record;
use crate::types::{Content, DeadReason, Expired, Groups, Leased, State};

mod breaker;
mod handles;
mod kept;
mod order;
mod redriven;
mod replayed;
mod scale;

const MAIN: PartKey = PartKey { topic: TopicId(1), partition: 0 };
const DEAD: PartKey = PartKey { topic: TopicId(2), partition: 0 };

/// A journal in memory that may be full.
#[derive(Default)]
struct Tape {
    records: Vec<(Position, Vec<u8>)>,
    released: Vec<Position>,
    full: bool,
    has_no_room_for_moves: bool,
}

impl Journal for Tape {
    fn append(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, Error> {
        if self.full || !self.takes(class) {
            return Err(Error::busy("the log"));
        }
        let len = (head.len() + body.len()) as u32;
        let position = Position { segment: 1, offset: self.records.len() as u32, len };
        self.records.push((position, head.to_vec()));
        Ok(position)
    }

    fn release(&mut self, position: Position) {
        self.released.push(position);
    }

    fn takes(&self, class: Class) -> bool {
        !(self.has_no_room_for_moves && class == Class::Move)
    }
}

/// A shard with one topic and its dead letters, a journal, a clock and the next number.
struct ShardDriver {
    shard: Shard,
    tape: Tape,
    now: Millis,
    seq: Seq,
    dedup: Dedup,
}

impl ShardDriver {
    fn new(settings: TopicSettings) -> Self {
        let mut shard = Shard::new(1 << 20);
        set(&mut shard, settings);
        ShardDriver { shard, tape: Tape::default(), now: 1_000_000, seq: 0, dedup: Dedup::default() }
    }

    fn fifo() -> Self {
        ShardDriver::new(TopicSettings { groups: Groups::Fifo, ..TopicSettings::default() })
    }

    fn try_send(&mut self, group: Option<&str>, key: Option<Key>, delay_ms: Option<u64>) -> Result<Sent, Error> {
        self.seq += 1;
        let body = Bytes::from(format!("body {}", self.seq));
        let (seq, sent_ms, dedup) = (self.seq, self.now, self.dedup);
        let send = Send { part: MAIN, group, key, dedup, delay_ms, sent_ms, seq, body };
        self.shard.send(self.now, &mut self.tape, send)
    }

    fn send(&mut self, group: Option<&str>) -> Seq {
        self.try_send(group, None, None).unwrap().seq
    }

    fn recv_from(&mut self, part: PartKey, max_messages: usize) -> Vec<Leased> {
        let mut out = Vec::new();
        let recv = Recv { max_messages, max_bytes: usize::MAX, visibility_ms: Some(1000), consumer: "worker" };
        self.shard.recv(self.now, &mut self.tape, part, recv, &mut out).unwrap();
        self.hand_over();
        out
    }

    fn recv(&mut self, max_messages: usize) -> Vec<Seq> {
        self.recv_from(MAIN, max_messages).iter().map(|leased| leased.seq).collect()
    }

    fn ack(&mut self, seq: Seq, fence: u32) -> Result<(), Error> {
        self.shard.ack(self.now, &mut self.tape, MAIN, &[(seq, fence)]).remove(0)
    }

    fn nack(&mut self, seq: Seq, fence: u32, delay_ms: Option<u64>, reject: bool) -> Result<Nacked, Error> {
        let nack = Nack { reason: "no luck", delay_ms, reject };
        let nacked = self.shard.nack(self.now, &mut self.tape, MAIN, seq, fence, nack, 7_000_003);
        self.hand_over();
        nacked
    }

    fn tick(&mut self) {
        self.shard.tick(self.now, &mut self.tape, &mut || 0);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        for handover in self.shard.take_outbox() {
            self.shard.adopt(self.now, handover);
        }
    }

    fn replayed(&self) -> Shard {
        let mut shard = Shard::new(0);
        for topic in [MAIN.topic, DEAD.topic] {
            let (settings, dlq) = self.shard.topics[&topic].clone();
            shard.settings(topic, settings, dlq);
        }
        for (position, head) in &self.tape.records {
            let body_len = position.len - head.len() as u32;
            shard.replay(self.now, &Record::decode(head).unwrap(), *position, body_len);
            for handover in shard.take_outbox() {
                shard.adopt(self.now, handover);
            }
        }
        shard
    }
}

fn set(shard: &mut Shard, settings: TopicSettings) {
    shard.settings(MAIN.topic, Arc::new(settings), Some(DEAD));
    shard.settings(DEAD.topic, Arc::default(), None);
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.unwrap_err().kind
}

#[test]
fn a_message_is_delivered_once_while_its_lease_holds_and_gone_when_acknowledged() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    let leased = driver.recv_from(MAIN, 10);
    assert_eq!((leased.len(), leased[0].seq, leased[0].attempt, leased[0].fence), (1, seq, 1, 1));
    assert_eq!((leased[0].until_ms, leased[0].leased_ms), (driver.now + 1000, driver.now));
    assert!(matches!(&leased[0].content, Content::Hot(body) if body == "body 1"));
    assert!(driver.recv(10).is_empty());
    assert_eq!(driver.ack(seq, 1), Ok(()));
    assert_eq!(kind(driver.ack(seq, 1)), Kind::NotFound);
    assert_eq!(driver.tape.released.len(), 1);
    assert_eq!((driver.shard.stats(MAIN).leased, driver.shard.stats(MAIN).acked, driver.shard.find(seq)), (0, 1, None));
}

#[test]
fn the_same_item_twice_in_one_call_counts_once() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    driver.recv(1);
    let answers = driver.shard.ack(driver.now, &mut driver.tape, MAIN, &[(seq, 1), (seq, 1), (seq + 1, 1)]);
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(driver.tape.released.len(), 1);
}

#[test]
fn what_is_due_is_delivered_at_its_time_without_a_tick() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let delayed = driver.try_send(None, None, Some(500)).unwrap().seq;
    driver.now += 499;
    assert!(driver.recv(1).is_empty());
    assert_eq!(driver.shard.next_deadline(), Some(driver.now + 1));
    driver.now += 1;
    assert_eq!(driver.recv(1), [delayed]);
    driver.now += 999;
    assert!(driver.recv(1).is_empty());
    driver.now += 1;
    let again = driver.recv_from(MAIN, 1).remove(0);
    assert_eq!((again.seq, again.attempt, again.fence, again.history.len()), (delayed, 2, 2, 1));
    assert_eq!((&*again.history[0].outcome, &*again.history[0].consumer), ("the lease ran out", "worker"));
    assert_eq!(again.first_leased_ms, again.history[0].leased_ms);
}

#[test]
fn a_late_acknowledgement_counts_where_nobody_else_has_the_message() {
    for (groups, accepted) in [(Groups::Fair, true), (Groups::Fifo, false)] {
        for ticks in [false, true] {
            let mut driver = ShardDriver::new(TopicSettings { groups, ..TopicSettings::default() });
            let seq = driver.send(Some("g"));
            driver.recv(1);
            driver.now += 5000;
            if ticks {
                driver.tick();
            }
            assert_eq!(driver.ack(seq, 1).is_ok(), accepted, "{groups:?} {ticks}");
        }
    }
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    driver.recv(1);
    driver.now += 5000;
    assert_eq!(driver.recv(1), [seq]);
    assert_eq!(kind(driver.ack(seq, 1)), Kind::NotFound);
    assert_eq!(driver.ack(seq, 2), Ok(()));
}

#[test]
fn a_key_known_with_the_same_payload_is_a_duplicate_and_with_another_a_conflict() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let key = Key { hash: 5, payload: 1 };
    let first = driver.try_send(None, Some(key), None).unwrap();
    driver.recv(1);
    driver.ack(first.seq, 1).unwrap();
    driver.now += limits::REPLAY_WINDOW.as_millis() as u64 - 1;
    assert_eq!(driver.try_send(None, Some(key), None), Ok(Sent { duplicate: true, ..first }));
    assert_eq!(kind(driver.try_send(None, Some(Key { payload: 2, ..key }), None)), Kind::Conflict);
    driver.now += 1;
    assert!(!driver.try_send(None, Some(Key { payload: 2, ..key }), None).unwrap().duplicate);
    driver.now += 10_000_000;
    driver.tick();
    assert_eq!(driver.shard.stats(MAIN).keys, 0);
}

#[test]
fn a_message_dies_when_it_was_delivered_too_often() {
    for by_nack in [false, true] {
        let mut driver = ShardDriver::new(TopicSettings { max_attempts: 2, ..TopicSettings::default() });
        let seq = driver.send(Some("g"));
        for attempt in 1..=2 {
            assert_eq!(driver.recv(1), [seq]);
            let died =
                if by_nack { driver.nack(seq, attempt, Some(0), false).unwrap() == Nacked::Died } else { attempt == 2 };
            assert_eq!(died, attempt == 2);
            driver.now += 1000;
            driver.tick();
        }
        assert!(driver.recv(1).is_empty());
        assert_eq!((driver.shard.find(seq), driver.shard.stats(MAIN).died), (Some(DEAD), 1));
        let dead = driver.recv_from(DEAD, 1).remove(0);
        let about = dead.dead.unwrap();
        let said = if by_nack { "no luck" } else { "the lease ran out" };
        assert_eq!(
            (about.reason, about.attempts, about.source, &*about.last_error),
            (DeadReason::MaxAttempts, 2, MAIN, said)
        );
        assert_eq!((dead.attempt, dead.fence, dead.history.len(), dead.group.as_deref()), (1, 3, 2, Some("g")));
        assert!(driver.tape.released.is_empty());
    }
}

#[test]
fn a_message_given_back_too_often_dies_at_the_next_receive() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let seq = driver.send(None);
    driver.recv(1);
    assert_eq!(driver.shard.extend(driver.now, &mut driver.tape, MAIN, seq, 1, 0), Ok(driver.now));
    assert!(driver.recv(1).is_empty());
    assert_eq!(driver.shard.find(seq), Some(DEAD));
}

#[test]
fn a_topic_without_dead_letters_keeps_trying() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    driver.shard.settings(MAIN.topic, Arc::new(TopicSettings { max_attempts: 1, ..Default::default() }), None);
    let seq = driver.send(None);
    for fence in 1..5 {
        assert_eq!(driver.recv(1), [seq]);
        assert!(matches!(driver.nack(seq, fence, Some(0), true), Ok(Nacked::Requeued { .. })));
    }
    assert_eq!(
        kind(driver.shard.kill(driver.now, &mut driver.tape, MAIN, seq, DeadReason::Rejected, "")),
        Kind::Conflict
    );
}

#[test]
fn backoff_is_drawn_below_a_doubling_bound() {
    let mut driver = ShardDriver::new(TopicSettings { max_attempts: 0, ..TopicSettings::default() });
    let seq = driver.send(None);
    for attempt in 1..=12u32 {
        assert_eq!(driver.recv(1), [seq], "{attempt}");
        let bound = (200u64 << (attempt - 1)).min(60_000);
        let due_ms = driver.now + 7_000_003 % (bound + 1);
        assert_eq!(driver.nack(seq, attempt, None, false), Ok(Nacked::Requeued { due_ms }));
        driver.now = due_ms;
    }
}

#[test]
fn an_undone_delivery_does_not_count() {
    let mut driver = ShardDriver::fifo();
    let seq = driver.send(Some("g"));
    driver.recv(1);
    driver.shard.release_lease(driver.now, &mut driver.tape, MAIN, seq, 1).unwrap();
    assert_eq!(driver.shard.cancel(driver.now, &mut driver.tape, MAIN, 99), Err(no_message()));
    let again = driver.recv_from(MAIN, 1).remove(0);
    assert_eq!((again.attempt, again.fence, again.history.len()), (1, 2, 0));
    assert_eq!(kind(driver.ack(seq, 1)), Kind::NotFound);
}

#[test]
fn a_message_can_be_changed_until_somebody_has_seen_it() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let (first, second) = (driver.send(None), driver.send(None));
    let (now, tape) = (driver.now, &mut driver.tape);
    assert_eq!(driver.shard.edit(now, tape, MAIN, first, "other".into()), Ok(()));
    assert_eq!(driver.shard.reschedule(now, tape, MAIN, first, now + 50), Ok(()));
    assert_eq!(kind(driver.shard.reschedule(now, tape, MAIN, first, now * 9999)), Kind::Schema);
    assert_eq!(driver.shard.cancel(now, tape, MAIN, second), Ok(()));
    assert_eq!(tape.released.len(), 2);
    assert!(driver.recv(2).is_empty());
    driver.now += 50;
    let leased = driver.recv_from(MAIN, 2).remove(0);
    assert!(matches!(&leased.content, Content::Hot(body) if body == "other"));
    let (now, tape) = (driver.now, &mut driver.tape);
    assert_eq!(kind(driver.shard.cancel(now, tape, MAIN, first)), Kind::Conflict);
    assert_eq!(kind(driver.shard.edit(now, tape, MAIN, first, "x".into())), Kind::Conflict);
    assert_eq!(kind(driver.shard.reschedule(now, tape, MAIN, first, now)), Kind::Conflict);
    assert_eq!(driver.shard.stats(MAIN).bytes, 5);
}

#[test]
fn a_change_is_made_to_the_body_it_was_made_from_or_not_at_all() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let seq = driver.send(None);
    let (now, tape) = (driver.now, &mut driver.tape);
    let (_, read_at) = driver.shard.unseen(MAIN, seq).unwrap();
    let mut change = |read_at, body: &'static str, due_ms| {
        let changed = driver.shard.change(now, tape, (MAIN, seq), read_at, Some(body.into()), due_ms);
        changed.map(|summary| summary.map(|summary| summary.due_ms)).map_err(|error| error.kind)
    };
    assert_eq!(change(read_at, "first", Some(u64::MAX)), Err(Kind::Schema));
    assert_eq!(change(read_at, "first", Some(now + 50)), Ok(Some(Some(now + 50))));
    assert_eq!(change(read_at, "second", None), Ok(None), "it was made of what is gone");
    assert_eq!((tape.records.len(), tape.released.len()), (2, 1), "one record for body and time");
    assert_eq!(driver.replayed().fingerprint(now), driver.shard.fingerprint(now));
    driver.now += 50;
    let leased = driver.recv_from(MAIN, 1).remove(0);
    assert!(matches!(&leased.content, Content::Hot(body) if body == "first"));
    assert_eq!(
        driver.shard.unseen(MAIN, seq).map(drop),
        Err(Error::new(Kind::Conflict, "the message was already delivered"))
    );
}

#[test]
fn quotas_refuse_and_inflight_waits() {
    let settings = TopicSettings { messages_max: 6, partitions: 2, inflight_max: 4, ..TopicSettings::default() };
    let mut driver = ShardDriver::new(settings.clone());
    for _ in 0..3 {
        driver.send(None);
    }
    assert_eq!(kind(driver.try_send(None, None, None)), Kind::Busy);
    assert_eq!(driver.recv(3), [1, 2]);
    assert!(!driver.shard.has_ready(MAIN));
    let mut ready = Vec::new();
    driver.shard.take_ready(&mut ready);
    ready.clear();
    assert_eq!(driver.ack(1, 1), Ok(()));
    assert!(driver.shard.has_ready(MAIN));
    assert_eq!(driver.recv(3), [3]);

    let mut driver = ShardDriver::new(TopicSettings { bytes_max: 10, ..settings });
    assert_eq!(kind(driver.try_send(None, None, None)), Kind::Busy);
    assert_eq!(kind(driver.try_send(Some(&"g".repeat(129)), None, None)), Kind::Schema);
    assert_eq!(kind(driver.try_send(None, None, Some(u64::MAX))), Kind::Schema);
}

#[test]
fn what_is_kept_too_long_goes_to_the_dead_letters_and_from_there_away() {
    for (expired, home) in [(Expired::DeadLetter, Some(DEAD)), (Expired::Drop, None)] {
        let mut driver = ShardDriver::new(TopicSettings { retention_ms: 10_000, expired, ..TopicSettings::default() });
        let leased = driver.send(None);
        driver.recv(1);
        let seq = driver.send(None);
        driver.now += 9_999;
        driver.shard.extend(driver.now, &mut driver.tape, MAIN, leased, 1, 60_000).unwrap_err();
        driver.tick();
        let again = driver.recv_from(MAIN, 1).remove(0);
        driver.shard.extend(driver.now, &mut driver.tape, MAIN, leased, again.fence, 60_000).unwrap();
        driver.now += 1;
        driver.tick();
        assert_eq!((driver.shard.find(seq), driver.shard.find(leased)), (home, Some(MAIN)), "a lease protects");
        driver.now += 60_000;
        driver.tick();
        assert_eq!(driver.shard.find(leased), home);
        driver.now += limits::RETENTION.as_millis() as u64;
        driver.tick();
        assert_eq!((driver.shard.find(seq), driver.shard.find(leased)), (None, None));
        assert_eq!(driver.tape.released.len(), 2);
        let dropped = if home.is_some() { DEAD } else { MAIN };
        assert_eq!(driver.shard.stats(dropped).expired, 2);
    }
}

#[test]
fn a_redriven_message_starts_anew_and_is_kept_from_then() {
    let mut driver = ShardDriver::new(TopicSettings { retention_ms: 10_000, ..TopicSettings::default() });
    let seq = driver.send(Some("g"));
    driver.now += 10_000;
    driver.tick();
    assert_eq!(driver.shard.find(seq), Some(DEAD));
    let dead = driver.recv_from(DEAD, 1).remove(0);
    assert_eq!(kind(driver.shard.redrive(driver.now, &mut driver.tape, DEAD, seq, MAIN, 1)), Kind::Conflict);
    driver.now = dead.until_ms;
    driver.shard.redrive(driver.now, &mut driver.tape, DEAD, seq, MAIN, 1).unwrap();
    driver.hand_over();
    driver.now += 9_000;
    let again = driver.recv_from(MAIN, 1).remove(0);
    assert_eq!((again.attempt, again.fence, again.dead, again.group.as_deref()), (1, 2, None, Some("g")));
}

#[test]
fn a_purge_takes_everything_and_forgets_the_keys() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let key = Some(Key { hash: 1, payload: 1 });
    driver.try_send(None, key, None).unwrap();
    driver.send(Some("g"));
    driver.try_send(None, None, Some(100)).unwrap();
    driver.recv(1);
    assert_eq!(driver.shard.purge(driver.now, &mut driver.tape, MAIN), Ok(3));
    assert_eq!(driver.tape.released.len(), 3);
    assert_eq!(driver.shard.next_deadline(), None);
    assert!(!driver.try_send(None, key, None).unwrap().duplicate);
    assert_eq!(driver.recv(9), [4]);
}

#[test]
fn a_purge_read_back_has_forgotten_the_keys_of_what_was_settled_and_moved_too() {
    let mut driver = ShardDriver::fifo();
    for hash in 1..=3 {
        driver.try_send(Some("g"), Some(Key { hash, payload: 1 }), None).unwrap();
    }
    assert_eq!(driver.recv(2), [1, 2]);
    driver.ack(1, 1).unwrap();
    driver.nack(2, 1, None, true).unwrap();
    assert_eq!(driver.shard.purge(driver.now, &mut driver.tape, MAIN), Ok(1));
    assert!(!driver.try_send(Some("g"), Some(Key { hash: 3, payload: 2 }), None).unwrap().duplicate);
    driver.shard = driver.replayed();
    for (hash, is_known) in [(1, false), (2, false), (3, true)] {
        let sent = driver.try_send(Some("g"), Some(Key { hash, payload: 2 }), None).unwrap();
        assert_eq!(sent.duplicate, is_known, "{hash}");
    }
    assert_eq!(driver.shard.find(2), Some(DEAD), "dead letters are not the topic's");
    assert_eq!(driver.recv(9), [4, 5, 6], "the group waits for nothing that was purged");
}

#[test]
fn a_key_alone_decides_where_payloads_do_not_count() {
    let mut driver = ShardDriver::fifo();
    let key = |payload| Some(Key { hash: 1, payload });
    let first = driver.try_send(None, key(1), None).unwrap();
    assert_eq!(kind(driver.try_send(None, key(2), None)), Kind::Conflict);
    for dedup in [Dedup::Topic, Dedup::Group] {
        driver.dedup = dedup;
        let again = driver.try_send(Some("other"), key(2), None).unwrap();
        assert_eq!((again.seq, again.sent_ms, again.duplicate), (first.seq, first.sent_ms, true));
    }
}

#[test]
fn a_lease_of_no_time_is_over_at_once_and_counts() {
    for (groups, late_ack) in [(Groups::Fair, true), (Groups::Fifo, false)] {
        let mut driver = ShardDriver::new(TopicSettings { groups, max_attempts: 0, ..TopicSettings::default() });
        let seqs = [driver.send(Some("g")), driver.send(Some("g"))];
        for attempt in 1..=3 {
            let mut out = Vec::new();
            let recv = Recv { max_messages: 9, max_bytes: usize::MAX, visibility_ms: Some(0), consumer: "c" };
            driver.shard.recv(driver.now, &mut driver.tape, MAIN, recv, &mut out).unwrap();
            let given: Vec<_> = out.iter().map(|leased| (leased.seq, leased.attempt, leased.until_ms)).collect();
            assert_eq!(given, seqs.map(|seq| (seq, attempt, driver.now)), "each once, in order");
        }
        assert_eq!(driver.replayed().fingerprint(driver.now), driver.shard.fingerprint(driver.now));
        driver.tick();
        assert_eq!(driver.ack(seqs[0], 3).is_ok(), late_ack, "{groups:?}");
        assert!(driver.ack(seqs[1], 2).is_err(), "somebody else has had it since");
    }
}

#[test]
fn a_full_log_changes_nothing() {
    let mut driver = ShardDriver::fifo();
    let (first, second) = (driver.send(Some("g")), driver.send(Some("g")));
    driver.recv(1);
    let other = driver.send(None);
    let before = driver.shard.fingerprint(driver.now);
    driver.tape.full = true;
    let (now, tape) = (driver.now, &mut driver.tape);
    let mut out = Vec::new();
    let recv = Recv { max_messages: 9, max_bytes: 100, visibility_ms: None, consumer: "c" };
    assert_eq!(kind(driver.shard.recv(now, tape, MAIN, recv, &mut out)), Kind::Busy);
    assert_eq!(kind(driver.shard.ack(now, tape, MAIN, &[(first, 1)]).remove(0)), Kind::Busy);
    assert_eq!(kind(driver.shard.extend(now, tape, MAIN, first, 1, 5)), Kind::Busy);
    assert_eq!(kind(driver.shard.cancel(now, tape, MAIN, second)), Kind::Busy);
    assert_eq!(kind(driver.shard.edit(now, tape, MAIN, other, "x".into())), Kind::Busy);
    assert_eq!(kind(driver.shard.purge(now, tape, MAIN)), Kind::Busy);
    assert_eq!(kind(driver.shard.release_lease(now, tape, MAIN, first, 1)), Kind::Busy);
    assert_eq!(kind(driver.nack(first, 1, None, true)), Kind::Busy);
    assert_eq!(kind(driver.try_send(None, None, None)), Kind::Busy);
    driver.shard.tick(now + 2000, &mut driver.tape, &mut || 0);
    assert_eq!((driver.shard.fingerprint(now), out.len()), (before, 0));
    assert!(driver.shard.next_deadline() <= Some(now + 2000));
}

#[test]
fn an_error_in_the_middle_of_choosing_gives_back_what_was_chosen() {
    let mut driver = ShardDriver::new(TopicSettings::default());
    let (fresh, spent) = (driver.send(Some("fresh")), driver.send(Some("spent")));
    driver.recv(2);
    driver.shard.release_lease(driver.now, &mut driver.tape, MAIN, fresh, 1).unwrap();
    driver.nack(spent, 1, Some(0), false).unwrap();
    // Delivered as often as it may be by now: the next receive buries it, behind the one that it gives.
    set(&mut driver.shard, TopicSettings { max_attempts: 1, ..TopicSettings::default() });
    let before = driver.shard.fingerprint(driver.now);
    driver.tape.full = true;
    let mut out = Vec::new();
    let recv = Recv { max_messages: 9, max_bytes: 100, visibility_ms: None, consumer: "c" };
    assert_eq!(kind(driver.shard.recv(driver.now, &mut driver.tape, MAIN, recv, &mut out)), Kind::Busy);
    assert_eq!((driver.shard.fingerprint(driver.now), out.len()), (before, 0));
    driver.tape.full = false;
    let given = driver.recv_from(MAIN, 9);
    assert_eq!(given.iter().map(|leased| (leased.seq, leased.attempt)).collect::<Vec<_>>(), [(fresh, 1)]);
    assert_eq!(driver.recv_from(DEAD, 9).len(), 1);
}

#[test]
fn a_freed_message_stays_free_where_its_lease_cannot_be_written() {
    let mut driver = ShardDriver::fifo();
    let (first, second) = (driver.send(Some("g")), driver.send(Some("g")));
    assert_eq!(driver.recv(2), [first, second]);
    driver.shard.extend(driver.now, &mut driver.tape, MAIN, second, 1, 0).unwrap();
    let before = driver.shard.fingerprint(driver.now);
    driver.tape.full = true;
    let recv = Recv { max_messages: 9, max_bytes: 100, visibility_ms: None, consumer: "c" };
    assert_eq!(kind(driver.shard.recv(driver.now, &mut driver.tape, MAIN, recv, &mut Vec::new())), Kind::Busy);
    assert_eq!(driver.shard.fingerprint(driver.now), before);
    driver.tape.full = false;
    assert_eq!(driver.recv(9), [second], "although the one before it is out");
}

#[test]
fn waiters_hear_of_a_lease_that_ends_where_no_more_were_allowed() {
    let mut driver = ShardDriver::new(TopicSettings { inflight_max: 1, ..TopicSettings::default() });
    let first = driver.send(None);
    driver.send(None);
    assert_eq!((driver.recv(2), driver.recv(2)), (vec![first], vec![]));
    let mut ready = Vec::new();
    driver.shard.take_ready(&mut ready);
    ready.clear();
    driver.ack(first, 1).unwrap();
    driver.shard.take_ready(&mut ready);
    assert_eq!(ready, [MAIN]);
}

#[test]
fn waiters_hear_of_everything_that_becomes_deliverable() {
    let mut driver = ShardDriver::fifo();
    let mut ready = Vec::new();
    let mut woken = |driver: &mut ShardDriver| {
        ready.clear();
        driver.shard.take_ready(&mut ready);
        !ready.is_empty()
    };
    let first = driver.send(Some("g"));
    assert!(woken(&mut driver) && !woken(&mut driver));
    driver.recv(1);
    driver.send(Some("g"));
    assert!(!woken(&mut driver), "the group waits");
    driver.ack(first, 1).unwrap();
    assert!(woken(&mut driver), "the group is free");
    driver.recv(1);
    driver.now += 1000;
    driver.tick();
    assert!(woken(&mut driver), "the lease ran out");
    set(&mut driver.shard, TopicSettings { paused: true, ..TopicSettings::default() });
    assert!(!woken(&mut driver) && !driver.shard.has_ready(MAIN) && driver.recv(1).is_empty());
    set(&mut driver.shard, TopicSettings::default());
    assert!(woken(&mut driver) && driver.recv(1).len() == 1);
}

#[test]
fn a_message_says_why_it_is_not_delivered() {
    let mut driver = ShardDriver::fifo();
    let seqs: Vec<Seq> = (0..3).map(|_| driver.send(Some("g"))).collect();
    let leased = driver.recv(1);
    let explain = |driver: &ShardDriver, seq| driver.shard.explain(driver.now, MAIN, seq).unwrap();
    let third = explain(&driver, seqs[2]);
    assert_eq!((third.blocked_by, third.ahead, third.summary.state), (Some(leased[0]), 1, State::Ready));
    let first = explain(&driver, seqs[0]);
    assert_eq!(first.lease.map(|(attempt, until)| (attempt.number, until)), Some((1, driver.now + 1000)));
    assert_eq!((first.blocked_by, first.summary.due_ms), (None, Some(driver.now + 1000)));
    driver.ack(leased[0], 1).unwrap();
    assert_eq!(explain(&driver, seqs[2]).blocked_by, Some(seqs[1]));
    let mut out = Vec::new();
    driver.shard.browse(MAIN, Some(seqs[1]), 5, &mut out);
    assert_eq!(out.iter().map(|summary| summary.seq).collect::<Vec<_>>(), [seqs[2]]);
}
