//! One shard between a worker, a scanner and two consumers, under random schedules. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p svc-mailbox --test shuttle --release`; SHUTTLE_ITERATIONS sets how many.
#![cfg(shuttle)]

use std::collections::BTreeMap;
use std::sync::Arc;

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
struct SettingsSeen {
    counts: BTreeMap<Seq, [u32; 3]>,
}

impl SettingsSeen {
    fn count(&mut self, what: usize, seq: Seq) {
        self.counts.entry(seq).or_default()[what] += 1;
    }
}

impl Journal for SettingsSeen {
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
struct SharedShard {
    shard: Shard,
    journal: SettingsSeen,
    now: Millis,
    /// Acknowledgements that were told to have worked.
    acked: Vec<Seq>,
}

struct ShardHandle {
    cell: Mutex<SharedShard>,
    ready: Condvar,
}

impl ShardHandle {
    fn new(groups: Groups) -> ShardHandle {
        let mut shard = Shard::new(1 << 20);
        let settings = TopicSettings { groups, max_attempts: 0, ..TopicSettings::default() };
        shard.settings(PART.topic, Arc::new(settings), None);
        let cell = SharedShard { shard, journal: SettingsSeen::default(), now: 1_000, acked: Vec::new() };
        ShardHandle { cell: Mutex::new(cell), ready: Condvar::new() }
    }

    /// One turn under the lock; whoever waits is woken if something became ready, and only then.
    fn turn<R>(&self, work: impl FnOnce(&mut SharedShard) -> R) -> R {
        let mut cell = self.shared.lock().unwrap();
        let result = work(&mut cell);
        let mut ready = Vec::new();
        cell.shard.take_ready(&mut ready);
        drop(cell);
        if !ready.is_empty() {
            self.ready.notify_all();
        }
        result
    }

    fn send(&self, seq: Seq) {
        self.turn(|cell| {
            let (body, group, dedup) = (bytes::Bytes::from_static(b"x"), Some("g"), Dedup::default());
            let (part, key, delay_ms, sent_ms, payload_len) = (PART, None, None, cell.now, 1);
            let send = Send { part, group, key, dedup, delay_ms, sent_ms, seq, body, payload_len };
            cell.shard.send(cell.now, &mut cell.journal, send).expect("there is room");
        });
    }

    /// Time passes, and what is due happens.
    fn scan(&self) {
        self.turn(|cell| {
            cell.now += LEASE_MS;
            cell.shard.tick(cell.now, &mut cell.journal, &mut || 0);
        });
    }

    /// The next message, waited for; none once all are acknowledged.
    fn receive(&self) -> Option<Leased> {
        let mut cell = self.shared.lock().unwrap();
        loop {
            if cell.acked.len() as u64 == MESSAGES {
                return None;
            }
            let SharedShard { shard, journal, now, .. } = &mut *cell;
            let mut out = Vec::new();
            let (max_bytes, visibility_ms) = (usize::MAX, Some(LEASE_MS));
            let recv = Recv { max_messages: 1, max_bytes, visibility_ms, consumer: "c" };
            shard.recv(*now, journal, PART, recv, &mut out).expect("there is room");
            if let Some(leased) = out.pop() {
                return Some(leased);
            }
            cell = self.ready.wait(cell).unwrap();
        }
    }

    fn ack(&self, leased: &Leased) {
        let all_done = self.turn(|cell| {
            let item = [(leased.seq, leased.fence)];
            let answers = cell.shard.ack(cell.now, &mut cell.journal, PART, &item);
            cell.acked.extend(answers[0].is_ok().then_some(leased.seq));
            // Saying it twice never works twice.
            let again = cell.shard.ack(cell.now, &mut cell.journal, PART, &item);
            assert!(again[0].is_err(), "{} was acknowledged twice", leased.seq);
            cell.acked.len() as u64 == MESSAGES
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

fn check(groups: Groups) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    shuttle::check_random(move || model(groups), iterations);
}

fn model(groups: Groups) {
    let lane = Arc::new(ShardHandle::new(groups));
    let spawn = |work: fn(&ShardHandle)| {
        let lane = Arc::clone(&lane);
        thread::spawn(move || work(&lane))
    };
    let threads = [
        spawn(|lane| (1..=MESSAGES).for_each(|seq| lane.send(seq))),
        spawn(|lane| (0..TICKS).for_each(|_| lane.scan())),
        spawn(ShardHandle::consume),
        spawn(ShardHandle::consume),
    ];
    // A consumer that is never woken again is reported as a deadlock.
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut cell = lane.shared.lock().unwrap();
    cell.acked.sort_unstable();
    assert_eq!(cell.acked, (1..=MESSAGES).collect::<Vec<_>>(), "each exactly once");
    assert_eq!(cell.shard.stats(PART).held(), 0);
    for (seq, [leased, returned, acked]) in &cell.journal.counts {
        // Every lease ended once: by running out, or by the acknowledgement. A late one may come after it ran out.
        let late = *returned == *leased;
        assert!(*acked == 1 && (late || returned + 1 == *leased), "{seq}: {leased} leases, {returned} ran out");
        assert!(groups == Groups::Fair || !late, "{seq}: in a line nobody is late");
    }
}

#[test]
fn recv_ack_and_expiry_of_a_fair_topic() {
    check(Groups::Fair);
}

#[test]
fn recv_ack_and_expiry_of_a_line() {
    check(Groups::Fifo);
}
