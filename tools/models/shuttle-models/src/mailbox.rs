//! One shard of the mailbox between a worker, a scanner and two consumers.

mod receive;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SCHEDULES;
use ron_log::{Class, Position};
use ron_types::Error;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use svc_mailbox::record::Record;
use svc_mailbox::shard::{Journal, Recv, Send, Shard};
use svc_mailbox::types::{Dedup, Groups, Leased, Millis, PartKey, Seq, TopicId, TopicSettings};

const PART: PartKey = PartKey { topic: TopicId(1), partition: 0 };
const MESSAGES: Seq = 3;
const LEASE_MS: u64 = 10;
const TICKS: u64 = 3;

/// What the records say of each message: how often it was leased, came back and was acknowledged.
#[derive(Default)]
struct DeliveryCounts {
    counts: BTreeMap<Seq, [u32; 3]>,
}

impl DeliveryCounts {
    fn count(&mut self, what: usize, seq: Seq) {
        self.counts.entry(seq).or_default()[what] += 1;
    }
}

impl Journal for DeliveryCounts {
    fn append(&mut self, _: Class, head: &[u8], _: &[u8]) -> Result<Position, Error> {
        match Record::decode(head).expect("a record that was just written can be read") {
            Record::Lease { items, .. } => items.iter().for_each(|(seq, _)| self.count(0, *seq)),
            Record::Returned { seqs, .. } => seqs.iter().for_each(|seq| self.count(1, *seq)),
            Record::Ack { seqs, .. } => seqs.iter().for_each(|seq| self.count(2, *seq)),
            _ => {}
        }
        Ok(Position { segment: 1, offset: 0, len: 1 })
    }

    fn release(&mut self, _: Position) {}
}

/// What the worker's lock guards.
struct ShardState {
    shard: Shard,
    journal: DeliveryCounts,
    now: Millis,
    /// Acknowledgements that were told to have worked.
    acked: Vec<Seq>,
}

struct ModelShard {
    state: Mutex<ShardState>,
    ready: Condvar,
}

impl ModelShard {
    fn new(groups: Groups) -> ModelShard {
        let mut shard = Shard::new(1 << 20);
        let settings = TopicSettings { groups, max_attempts: 0, ..TopicSettings::default() };
        shard.settings(PART.topic, Arc::new(settings), None);
        let state = ShardState { shard, journal: DeliveryCounts::default(), now: 1_000, acked: Vec::new() };
        ModelShard { state: Mutex::new(state), ready: Condvar::new() }
    }

    /// One turn under the lock; whoever waits is woken if something became ready, and only then.
    fn turn<R>(&self, work: impl FnOnce(&mut ShardState) -> R) -> R {
        let mut state = self.state.lock().unwrap();
        let result = work(&mut state);
        let mut ready = Vec::new();
        state.shard.take_ready(&mut ready);
        drop(state);
        if !ready.is_empty() {
            self.ready.notify_all();
        }
        result
    }

    fn send(&self, seq: Seq) {
        self.turn(|state| {
            let (body, group, dedup) = (bytes::Bytes::from_static(b"x"), Some("g"), Dedup::default());
            let (part, key, delay_ms, sent_ms) = (PART, None, None, state.now);
            let send = Send { part, group, key, dedup, delay_ms, sent_ms, seq, body };
            state.shard.send(state.now, &mut state.journal, send).expect("there is room");
        });
    }

    /// Time passes, and what is due happens.
    fn scan(&self) {
        self.turn(|state| {
            state.now += LEASE_MS;
            state.shard.tick(state.now, &mut state.journal, &mut || 0);
        });
    }

    /// The next message, waited for; none once all are acknowledged.
    fn receive(&self) -> Option<Leased> {
        let mut state = self.state.lock().unwrap();
        loop {
            if state.acked.len() as u64 == MESSAGES {
                return None;
            }
            let ShardState { shard, journal, now, .. } = &mut *state;
            let mut out = Vec::new();
            let (max_bytes, visibility_ms) = (usize::MAX, Some(LEASE_MS));
            let recv = Recv { max_messages: 1, max_bytes, visibility_ms, consumer: "c" };
            shard.recv(*now, journal, PART, recv, &mut out).expect("there is room");
            if let Some(leased) = out.pop() {
                return Some(leased);
            }
            state = self.ready.wait(state).unwrap();
        }
    }

    fn ack(&self, leased: &Leased) {
        let all_done = self.turn(|state| {
            let item = [(leased.seq, leased.fence)];
            let answers = state.shard.ack(state.now, &mut state.journal, PART, &item);
            state.acked.extend(answers[0].is_ok().then_some(leased.seq));
            // Saying it twice never works twice.
            let again = state.shard.ack(state.now, &mut state.journal, PART, &item);
            assert!(again[0].is_err(), "{} was acknowledged twice", leased.seq);
            state.acked.len() as u64 == MESSAGES
        });
        if all_done {
            self.ready.notify_all();
        }
    }

    fn consume(&self) {
        let mut fences: BTreeMap<Seq, u32> = BTreeMap::new();
        while let Some(leased) = self.receive() {
            let before = fences.insert(leased.seq, leased.fence);
            assert!(before.is_none_or(|before| before < leased.fence), "each lease has a greater number");
            thread::yield_now();
            self.ack(&leased);
        }
    }
}

fn model(groups: Groups) {
    let model = Arc::new(ModelShard::new(groups));
    let spawn = |work: fn(&ModelShard)| {
        let model = Arc::clone(&model);
        thread::spawn(move || work(&model))
    };
    let threads = [
        spawn(|model| (1..=MESSAGES).for_each(|seq| model.send(seq))),
        spawn(|model| (0..TICKS).for_each(|_| model.scan())),
        spawn(ModelShard::consume),
        spawn(ModelShard::consume),
    ];
    // A consumer that is never woken again is reported as a deadlock.
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut state = model.state.lock().unwrap();
    state.acked.sort_unstable();
    assert_eq!(state.acked, (1..=MESSAGES).collect::<Vec<_>>(), "each exactly once");
    assert_eq!(state.shard.stats(PART).held(), 0);
    for (seq, [leased, returned, acked]) in &state.journal.counts {
        // Every lease ended once: by running out, or by the acknowledgement. A late one may come after it ran out.
        let late = *returned == *leased;
        assert!(*acked == 1 && (late || returned + 1 == *leased), "{seq}: {leased} leases, {returned} ran out");
        assert!(groups == Groups::Fair || !late, "{seq}: in a line nobody is late");
    }
}

#[test]
fn recv_ack_and_expiry_of_a_fair_topic() {
    crate::check(SCHEDULES, || model(Groups::Fair));
}

#[test]
fn recv_ack_and_expiry_of_a_line() {
    crate::check(SCHEDULES, || model(Groups::Fifo));
}
