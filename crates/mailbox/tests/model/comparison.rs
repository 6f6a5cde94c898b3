//! Two shards, their journal and the reference queue, driven by the same steps and compared after each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ron_types::Kind;
use svc_mailbox::record::Record;
use svc_mailbox::shard::{Fencing, Key, Nack, Nacked, Recv, Send, Shard};
use svc_mailbox::types::{
    Content, DeadReason, Dedup, Expired, Groups, Millis, PartKey, Seq, State, Summary, TopicId, TopicSettings,
};

use crate::journal::{Tape, Written};
use crate::reference::{End, Known, Message, Reference, Rules, Stand};
use crate::steps::Step;

const fn part(topic: u32, partition: u16) -> PartKey {
    PartKey { topic: TopicId(topic), partition }
}

/// Fair with dead letters; in order with dead letters, two partitions; fair without; the dead letters.
pub const PARTS: [PartKey; 5] = [part(1, 0), part(2, 0), part(2, 1), part(3, 0), DEAD];
const DEAD: PartKey = part(9, 0);

fn rules_of(part: PartKey) -> Rules {
    let base = TopicSettings {
        max_attempts: 3,
        replay_window_ms: 100_000,
        retention_ms: 300_000,
        backoff_max_ms: 2_000,
        ..TopicSettings::default()
    };
    let settings = match part.topic.0 {
        1 => base,
        2 => TopicSettings { groups: Groups::Fifo, partitions: 2, expired: Expired::Drop, ..base },
        3 => base,
        _ => TopicSettings { retention_ms: 500_000, ..base },
    };
    Rules { settings, dlq: (part.topic.0 < 3).then_some(DEAD) }
}

/// The shard that owns a partition, so that messages move within shards and between them.
fn owner(part: PartKey) -> usize {
    usize::from(part.topic.0 == 2 && part.partition == 1 || part == DEAD)
}

fn fencing(any: bool) -> Fencing {
    if any { Fencing::Any } else { Fencing::Newest }
}

fn new_shards() -> [Shard; 2] {
    // One serves bodies from memory, the other always from the journal.
    let mut shards = [Shard::new(1000), Shard::new(0)];
    for shard in &mut shards {
        for part in PARTS {
            let rules = rules_of(part);
            shard.settings(part.topic, Arc::new(rules.settings), rules.dlq);
        }
    }
    shards
}

pub fn replayed(records: &[Written], now: Millis) -> [Shard; 2] {
    let mut shards = new_shards();
    for written in records {
        let record = Record::decode(&written.head).expect("the journal holds only records");
        let part = record.part().expect("every record here is of a partition");
        shards[owner(part)].replay(now, &record, written.position, written.body.len() as u32);
        hand_over(&mut shards, now);
    }
    shards
}

fn hand_over(shards: &mut [Shard; 2], now: Millis) -> Vec<Seq> {
    let mut moved = Vec::new();
    for shard in 0..2 {
        for handover in shards[shard].take_outbox() {
            moved.push(handover.seq);
            shards[owner(handover.to)].adopt(now, handover);
        }
    }
    moved
}

pub fn browse(shards: &[Shard; 2]) -> Vec<Summary> {
    let mut out = Vec::new();
    PARTS.into_iter().for_each(|part| shards[owner(part)].browse(part, None, usize::MAX, &mut out));
    out
}

pub struct Comparison {
    pub shards: [Shard; 2],
    pub tape: Tape,
    pub now: Millis,
    pub reference: Reference,
    seq: Seq,
    /// A number that was passed over, and when.
    spare: Option<(Seq, Millis)>,
    /// Every lease ever given.
    leases: Vec<(PartKey, Seq, u32)>,
}

impl Comparison {
    pub fn new() -> Self {
        let rules: BTreeMap<_, _> = PARTS.into_iter().map(|part| (part, rules_of(part))).collect();
        let (reference, tape) = (Reference::new(rules), Tape::default());
        Comparison { shards: new_shards(), tape, now: 1_000_000, reference, seq: 0, spare: None, leases: Vec::new() }
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { part, group, key, payload, delay_ms, late } => {
                let seq = self.next_seq(late);
                self.send(PARTS[part], seq, group, key, payload, delay_ms);
            }
            Step::Recv { part, max, visibility_ms } => self.recv(PARTS[part], max, visibility_ms),
            Step::Ack { nth, any } => self.ack(nth, fencing(any)),
            Step::Nack { nth, delay_ms, reject, draw } => self.nack(nth, delay_ms, reject, draw),
            Step::Extend { nth, visibility_ms, any } => self.extend(nth, visibility_ms, fencing(any)),
            Step::Unlease { nth } => self.unlease(nth),
            Step::Cancel { nth } => self.change(
                nth,
                |shard, now, tape, message| shard.cancel(now, tape, message.part, message.seq),
                |reference, _, seq| reference.end(seq, End::Canceled),
            ),
            Step::Reschedule { nth, delay_ms } => self.change(
                nth,
                |shard, now, tape, message| {
                    shard.reschedule(
                        now,
                        tape,
                        message.part,
                        message.seq,
                        (now + delay_ms).min(message.since_ms + 300_000),
                    )
                },
                |reference, now, seq| {
                    let message =
                        reference.messages.iter_mut().find(|message| message.seq == seq).expect("it is there");
                    let due_ms = (now + delay_ms).min(message.since_ms + 300_000);
                    message.stand = if due_ms > now { Stand::Delayed(due_ms) } else { Stand::Ready };
                },
            ),
            Step::Edit { nth, payload } => {
                let body = vec![b'e'; payload];
                let edited = body.clone();
                self.change(
                    nth,
                    move |shard, now, tape, message| {
                        shard.edit(now, tape, message.part, message.seq, body.clone().into())
                    },
                    move |reference, _, seq| {
                        let message =
                            reference.messages.iter_mut().find(|message| message.seq == seq).expect("it is there");
                        message.body = edited.clone();
                    },
                );
            }
            Step::Kill { nth } => self.kill(nth),
            Step::Redrive { nth, to } => self.redrive(nth, PARTS[to]),
            Step::Purge { part } => self.purge(PARTS[part]),
            Step::Tick => self.tick(),
            Step::Advance { ms } => self.now += ms,
            Step::Compact => self.compact(),
            Step::Restart { tick } => self.restart(tick),
        }
        self.check_held(&self.shards, &self.reference);
        assert_eq!(self.tape.live.len(), self.reference.messages.len(), "bodies needed");
        for Message { part, seq, stand, .. } in &self.reference.messages {
            let (here, there) = (&self.shards[owner(*part)], &self.shards[1 - owner(*part)]);
            assert_eq!((here.find(*seq), there.find(*seq)), (Some(*part), None));
            if let Stand::Delayed(at) | Stand::Leased(at) = stand {
                assert!(here.next_deadline().is_some_and(|next_ms| next_ms <= *at), "{seq} will be forgotten");
            }
        }
    }

    /// Numbers mostly rise; two senders at the same time may come in the other order.
    fn next_seq(&mut self, late: bool) -> Seq {
        match self.spare.take() {
            Some((spare, sent_ms)) if late && sent_ms == self.now => spare,
            _ => {
                self.seq += 2;
                self.spare = Some((self.seq - 1, self.now));
                self.seq
            }
        }
    }

    fn send(&mut self, part: PartKey, seq: Seq, group: usize, key: Option<u128>, payload: usize, delay_ms: u64) {
        let now = self.now;
        let group = [None, Some("a"), Some("b")][group];
        let body = vec![b'm'; payload];
        let key = key.map(|hash| Key { hash, payload: payload as u64 });
        // Keys with an odd number stand for whatever comes with them.
        let dedup = if key.is_some_and(|key| key.hash % 2 == 1) { Dedup::Topic } else { Dedup::Payload };
        let send = Send {
            part,
            group,
            key,
            dedup,
            delay_ms: Some(delay_ms),
            sent_ms: now,
            seq,
            body: Bytes::from(body.clone()),
        };
        let sent = self.shards[owner(part)].send(now, &mut self.tape, send);
        if let Some((key, known)) = key.and_then(|key| Some((key, self.reference.known(now, part, key.hash)?))) {
            if dedup == Dedup::Topic || known.payload == key.payload {
                let sent = sent.expect("a duplicate is answered");
                assert_eq!((sent.seq, sent.duplicate), (known.seq, true));
            } else {
                assert_eq!(sent.expect_err("another payload is refused").kind, Kind::Conflict);
            }
            return;
        }
        let sent = sent.expect("a new message is taken in");
        assert_eq!((sent.seq, sent.sent_ms, sent.duplicate), (seq, now, false));
        let stand = if delay_ms > 0 { Stand::Delayed(now + delay_ms) } else { Stand::Ready };
        let group = group.map(str::to_owned);
        let message = Message::new(part, seq, group, body, now, stand);
        let place = self.reference.messages.partition_point(|other| other.seq < seq);
        self.reference.messages.insert(place, message);
        if let Some(Key { hash, payload }) = key {
            self.reference.keys.push(Known { part, hash, payload, seq, until_ms: now + 100_000 });
        }
    }

    fn recv(&mut self, part: PartKey, max: usize, visibility_ms: u64) {
        let now = self.now;
        let mut out = Vec::new();
        let recv = Recv { max_messages: max, max_bytes: usize::MAX, visibility_ms: Some(visibility_ms), consumer: "c" };
        self.shards[owner(part)].recv(now, &mut self.tape, part, recv, &mut out).expect("the journal has room");
        let mut moved: BTreeSet<Seq> = hand_over(&mut self.shards, now).into_iter().collect();
        for seq in self.reference.settle(now, part) {
            assert!(moved.remove(&seq), "{seq} should have left");
        }
        let given: Vec<Seq> = out.iter().map(|leased| leased.seq).collect();
        if self.reference.is_fifo(part) {
            let (expected, buried) = self.reference.fifo_order(part, max);
            assert_eq!((&given, &moved), (&expected, &buried.into_iter().collect()));
        }
        for seq in &moved {
            let message = self.reference.get(part, *seq).expect("only what was here is buried").clone();
            assert!(self.reference.is_spent(&message), "{seq} was buried too early");
            self.reference.die(now, *seq, DeadReason::MaxAttempts);
        }
        self.check_fair(part, max, &given);
        for leased in out {
            assert!(!self.reference.ended.contains_key(&leased.seq), "{} was delivered after its end", leased.seq);
            let message = self.reference.get(part, leased.seq).expect("only what is here is delivered");
            message.attempts += 1;
            message.fence += 1;
            message.stand = Stand::Leased(now + visibility_ms);
            assert_eq!((leased.attempt, leased.fence), (message.attempts, message.fence));
            assert_eq!(leased.group.as_deref(), message.group.as_deref());
            assert_eq!(
                leased.history.last().map_or(0, |last| last.outcome.len().min(1)),
                usize::from(!leased.history.is_empty())
            );
            let body = match leased.content {
                Content::Hot(body) => body.to_vec(),
                Content::Cold(position) => self.tape.body(position).to_vec(),
            };
            assert_eq!(body, message.body);
            self.leases.push((part, leased.seq, leased.fence));
        }
    }

    /// Whoever is noisy: of each group the oldest go first, and nothing is left while there is room.
    fn check_fair(&self, part: PartKey, max: usize, given: &[Seq]) {
        if self.reference.is_fifo(part) {
            return;
        }
        let groups = self.reference.deliverable(part);
        let total: usize = groups.values().map(Vec::len).sum();
        assert_eq!(given.len(), max.min(total));
        for ready in groups.values() {
            let of_group: Vec<Seq> = given.iter().copied().filter(|seq| ready.contains(seq)).collect();
            assert_eq!(of_group, ready[..of_group.len()]);
        }
    }

    fn lease(&self, nth: usize) -> Option<(PartKey, Seq, u32)> {
        // Most leases that matter are recent.
        let recent = self.leases.len().min(12);
        (recent > 0).then(|| self.leases[self.leases.len() - 1 - nth % recent])
    }

    fn ack(&mut self, nth: usize, fencing: Fencing) {
        let Some((part, seq, fence)) = self.lease(nth) else { return };
        let (now, lease) = (self.now, (seq, fence));
        let answers = self.shards[owner(part)].ack_fenced(now, &mut self.tape, part, &[lease, lease], fencing);
        assert_eq!(answers[0].is_ok(), self.reference.may_ack(now, part, lease, fencing), "{:?}", answers[0]);
        assert!(answers[1].is_err());
        if answers[0].is_ok() {
            self.reference.end(seq, End::Acked);
        }
    }

    fn nack(&mut self, nth: usize, delay_ms: Option<u64>, reject: bool, draw: u64) {
        let Some((part, seq, fence)) = self.lease(nth) else { return };
        let now = self.now;
        let nack = Nack { reason: "no", delay_ms, reject };
        let answer = self.shards[owner(part)].nack(now, &mut self.tape, part, seq, fence, nack, draw);
        hand_over(&mut self.shards, now);
        let Some(message) = self.reference.leased(now, part, seq, fence).cloned() else {
            assert_eq!(answer.expect_err("the lease has ended").kind, Kind::NotFound);
            return;
        };
        let rejected = reject && self.reference.rules[&part].dlq.is_some();
        match answer.expect("the lease holds") {
            Nacked::Died => {
                assert!(rejected || self.reference.is_spent(&message));
                let reason = if rejected { DeadReason::Rejected } else { DeadReason::MaxAttempts };
                self.reference.die(now, seq, reason);
            }
            Nacked::Requeued { due_ms } => {
                assert!(!rejected && !self.reference.is_spent(&message));
                // Held back by an older receipt after a redrive, it may be leased without a delivery.
                let bound = (200 << message.attempts.saturating_sub(1).min(10)).min(2000);
                assert!(delay_ms.map_or(due_ms <= now + bound, |delay_ms| due_ms == now + delay_ms));
                let stand = if due_ms > now { Stand::Delayed(due_ms) } else { Stand::Ready };
                self.reference.get(part, seq).expect("it is there").stand = stand;
                if due_ms <= now {
                    self.reference.go_behind(part, seq);
                }
            }
        }
    }

    fn extend(&mut self, nth: usize, visibility_ms: u64, fencing: Fencing) {
        let Some((part, seq, fence)) = self.lease(nth) else { return };
        let (now, lease) = (self.now, (seq, fence));
        let shard = &mut self.shards[owner(part)];
        let answer = shard.extend_fenced(now, &mut self.tape, part, lease, visibility_ms, fencing);
        let message = match fencing {
            Fencing::Any if !self.reference.is_fifo(part) => self.reference.known_lease(part, seq, fence),
            _ => self.reference.leased(now, part, seq, fence),
        };
        let Some(message) = message else {
            assert_eq!(answer.expect_err("the lease has ended").kind, Kind::NotFound);
            return;
        };
        assert_eq!(answer, Ok(now + visibility_ms));
        if visibility_ms > 0 {
            message.stand = Stand::Leased(now + visibility_ms);
        } else if matches!(message.stand, Stand::Leased(_) | Stand::Delayed(_)) {
            message.stand = Stand::Freed;
            self.reference.go_behind(part, seq);
        }
    }

    fn unlease(&mut self, nth: usize) {
        let Some((part, seq, fence)) = self.lease(nth) else { return };
        self.shards[owner(part)].release_lease(self.now, &mut self.tape, part, seq, fence).expect("the tape has room");
        let is_leased = |message: &&mut Message| message.fence == fence && matches!(message.stand, Stand::Leased(_));
        // Also a lease that has run out and was not settled yet.
        if let Some(message) = self.reference.get(part, seq).filter(is_leased) {
            // Held back by an older receipt after a delivery that never was, it may be leased without one.
            message.attempts = message.attempts.saturating_sub(1);
            message.stand = Stand::Ready;
        }
    }

    fn message(&self, nth: usize) -> Option<Message> {
        let count = self.reference.messages.len();
        (count > 0).then(|| self.reference.messages[nth % count].clone())
    }

    /// A change that is allowed before the first delivery.
    fn change(
        &mut self,
        nth: usize,
        change: impl Fn(&mut Shard, Millis, &mut Tape, &Message) -> Result<(), ron_types::Error>,
        applied: impl Fn(&mut Reference, Millis, Seq),
    ) {
        let Some(message) = self.message(nth) else { return };
        let shard = &mut self.shards[owner(message.part)];
        let answer = change(shard, self.now, &mut self.tape, &message);
        if message.attempts > 0 {
            assert_eq!(answer.expect_err("somebody has seen it").kind, Kind::Conflict);
        } else {
            answer.expect("nobody has seen it");
            applied(&mut self.reference, self.now, message.seq);
        }
    }

    fn kill(&mut self, nth: usize) {
        let Some(Message { part, seq, .. }) = self.message(nth) else { return };
        let shard = &mut self.shards[owner(part)];
        let answer = shard.kill(self.now, &mut self.tape, part, seq, DeadReason::Integrity, "bad bytes");
        hand_over(&mut self.shards, self.now);
        if self.reference.rules[&part].dlq.is_none() {
            assert_eq!(answer.expect_err("there is nowhere to go").kind, Kind::Conflict);
        } else {
            answer.expect("it is there");
            self.reference.die(self.now, seq, DeadReason::Integrity);
        }
    }

    fn redrive(&mut self, nth: usize, to: PartKey) {
        let dead: Vec<_> = self.reference.messages.iter().filter(|message| message.part == DEAD).cloned().collect();
        if dead.is_empty() {
            return;
        }
        let message = &dead[nth % dead.len()];
        let answer = self.shards[owner(DEAD)].redrive(self.now, &mut self.tape, DEAD, message.seq, to, 1);
        hand_over(&mut self.shards, self.now);
        let held = matches!(message.stand, Stand::Leased(until_ms) if until_ms > self.now);
        assert_eq!(answer.is_err(), held || to == DEAD);
        if answer.is_ok() {
            self.reference.get(DEAD, message.seq).expect("it is there").dead = None;
            self.reference.arrive(self.now, message.seq, to);
        }
    }

    fn purge(&mut self, part: PartKey) {
        let purged = self.shards[owner(part)].purge(self.now, &mut self.tape, part).expect("the journal has room");
        let here: Vec<Seq> =
            self.reference.messages.iter().filter(|message| message.part == part).map(|message| message.seq).collect();
        assert_eq!(purged, here.len() as u64);
        here.into_iter().for_each(|seq| self.reference.end(seq, End::Purged));
        self.reference.keys.retain(|known| known.part != part);
    }

    fn tick(&mut self) {
        for _ in 0..3 {
            for shard in &mut self.shards {
                shard.tick(self.now, &mut self.tape, &mut || 0);
                assert!(shard.next_deadline().is_none_or(|at| at > self.now));
            }
            hand_over(&mut self.shards, self.now);
        }
        self.reference.settle_all(self.now);
    }

    fn compact(&mut self) {
        let Some(segment) = self.tape.oldest() else { return };
        let old: Vec<Written> =
            self.tape.records.iter().filter(|written| written.position.segment == segment).cloned().collect();
        for written in old {
            let record = Record::decode(&written.head).expect("the journal holds only records");
            let Some((part, seq)) = record.keeps() else { continue };
            for shard in &mut self.shards {
                let (position, body) = (written.position, &written.body);
                shard.relocate(self.now, &mut self.tape, part, seq, position, body).expect("the journal has room");
            }
        }
        self.tape.drop_segment(segment);
    }

    fn restart(&mut self, tick: bool) {
        if tick {
            self.tick();
        }
        let before = self.shards.each_ref().map(|shard| shard.fingerprint(self.now));
        self.shards = replayed(&self.tape.records, self.now);
        self.reference.restart(self.now);
        if tick {
            let after = self.shards.each_ref().map(|shard| shard.fingerprint(self.now));
            assert_eq!(before, after, "reading the journal back gives another state");
        }
    }

    /// The shards hold exactly what the reference holds, message by message.
    pub fn check_held(&self, shards: &[Shard; 2], reference: &Reference) {
        let held = browse(shards);
        assert_eq!(held.len(), reference.messages.len());
        for summary in &held {
            let told = |message: &&Message| message.part == summary.part && message.seq == summary.seq;
            let message =
                reference.messages.iter().find(told).unwrap_or_else(|| panic!("{} is not known", summary.seq));
            let (state, due_ms) = match message.stand {
                Stand::Ready | Stand::Freed => (State::Ready, None),
                Stand::Delayed(due_ms) => (State::Delayed, Some(due_ms)),
                Stand::Leased(until_ms) => (State::Leased, Some(until_ms)),
            };
            let dead = summary.dead.as_ref().map(|dead| (dead.reason, dead.attempts));
            assert_eq!(
                (summary.state, summary.due_ms, summary.attempts, dead),
                (state, due_ms, message.attempts, message.dead),
                "{}",
                summary.seq
            );
        }
        for part in PARTS {
            let stats = shards[owner(part)].stats(part);
            let here = || reference.messages.iter().filter(|message| message.part == part);
            let count = |stand: fn(Stand) -> bool| here().filter(|message| stand(message.stand)).count() as u64;
            let leased = count(|stand| matches!(stand, Stand::Leased(_)));
            let delayed = count(|stand| matches!(stand, Stand::Delayed(_)));
            assert_eq!(
                (stats.leased, stats.delayed, stats.ready),
                (leased, delayed, here().count() as u64 - leased - delayed)
            );
            assert_eq!(stats.bytes, here().map(|message| message.body.len() as u64).sum::<u64>());
            let groups: BTreeSet<_> = here().map(|message| &message.group).collect();
            assert_eq!(stats.groups, groups.len() as u64);
            if !reference.deliverable(part).is_empty() {
                assert!(shards[owner(part)].has_ready(part));
            }
        }
    }
}
