//! One receive over two shards, whose caller goes at any moment: no lease is left behind, and every delivery counts.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use ron_types::Error;
use shuttle::future::{block_on, yield_now};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use svc_mailbox::receiving::{
    PendingReceive, ReceiveReply, ReceiveTerms, ReturnedLeases, Served, ShardReceive, WaitingReceivers,
};
use svc_mailbox::shard::{Send, Shard};
use svc_mailbox::types::{Dedup, Leased, Millis, PartKey, Seq, TopicId, TopicSettings};

use super::DeliveryCounts;
use crate::SCHEDULES;

const TOPIC: TopicId = TopicId(1);
const SHARDS: usize = 2;
const MESSAGES: u64 = 3;
const NOW_MS: Millis = 1_000;

/// A shard with those who wait there; partition and shard have the same number.
struct ModelShard {
    shard: Shard,
    journal: DeliveryCounts,
    receivers: WaitingReceivers,
}

/// Tells the worker of a shard that there is something to do.
#[derive(Default)]
struct WakeUp {
    /// Whether it was woken, and whether it is to end.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

/// How long a caller stays.
#[derive(Default)]
struct Patience {
    state: Mutex<(bool, Option<Waker>)>,
}

struct Node {
    shards: Vec<Mutex<ModelShard>>,
    returned: Vec<Arc<ReturnedLeases>>,
    wakes: Vec<Arc<WakeUp>>,
    /// Deliveries to somebody who was there.
    delivered: Mutex<BTreeMap<Seq, u32>>,
    /// Of the receiver that stays until everything is acknowledged.
    patient: Patience,
}

impl WakeUp {
    fn set(&self, ends: bool) {
        let mut state = self.state.lock().unwrap();
        *state = (true, state.1 || ends);
        self.changed.notify_one();
    }

    /// Waits until it is woken; whether that was the last time.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.0 = false;
        state.1
    }
}

impl Patience {
    fn end(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    /// Does something until it is done or patience ends; then it is dropped wherever it was.
    async fn while_it_lasts<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(None);
            }
            state.1 = Some(context.waker().clone());
            drop(state);
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}

impl Node {
    fn new() -> Self {
        let shard = || {
            let mut shard = Shard::new(1 << 20);
            let settings = TopicSettings { partitions: SHARDS as u16, max_attempts: 0, ..TopicSettings::default() };
            shard.settings(TOPIC, Arc::new(settings), None);
            let (journal, receivers) = (DeliveryCounts::default(), WaitingReceivers::default());
            Mutex::new(ModelShard { shard, journal, receivers })
        };
        let wakes: Vec<Arc<WakeUp>> = (0..SHARDS).map(|_| Arc::default()).collect();
        let returned = wakes.iter().map(|wake| {
            let wake = Arc::clone(wake);
            ReturnedLeases::new(move || wake.set(false))
        });
        Node {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            returned: returned.collect(),
            wakes,
            delivered: Mutex::default(),
            patient: Patience::default(),
        }
    }

    /// One turn: what came back is ended, something is done, waiting receivers are served; then the replies leave.
    fn turn(&self, index: usize, work: impl FnOnce(&mut ModelShard, &mut Vec<ReceiveReply>)) {
        let mut replies = Vec::new();
        let mut model = self.shards[index].lock().unwrap();
        for (part, seq, fence) in self.returned[index].take(usize::MAX) {
            let ModelShard { shard, journal, .. } = &mut *model;
            shard.release_lease(NOW_MS, journal, part, seq, fence).unwrap();
        }
        work(&mut model, &mut replies);
        let ModelShard { shard, journal, receivers } = &mut *model;
        let mut ready = Vec::new();
        shard.take_ready(&mut ready);
        for part in ready {
            let lease = |terms: &ReceiveTerms| lease(shard, journal, part, terms);
            receivers.serve(TOPIC, &self.returned[index], lease, |reply| replies.push(reply));
        }
        drop(model);
        // The log makes it durable, and a receiver may go meanwhile.
        thread::yield_now();
        replies.into_iter().for_each(ReceiveReply::send);
    }

    fn send(&self, seq: Seq) {
        let index = seq as usize % SHARDS;
        self.turn(index, |model, _| {
            let (part, dedup, body) = (part(index), Dedup::default(), Bytes::from_static(b"x"));
            let (group, key, delay_ms, sent_ms) = (None, None, None, NOW_MS);
            let send = Send { part, group, key, dedup, delay_ms, sent_ms, seq, body };
            model.shard.send(NOW_MS, &mut model.journal, send).expect("there is room");
        });
    }

    fn ask(&self, index: usize, receive: ShardReceive) {
        self.turn(index, |model, replies| {
            let ModelShard { shard, journal, receivers } = model;
            let served = match receivers.nobody_waits(TOPIC) {
                true => receive.serve(&self.returned[index], |terms| lease(shard, journal, part(index), terms)),
                false => Served::Nothing,
            };
            match served {
                Served::Over => {}
                Served::Answered(reply) => replies.push(reply),
                Served::Nothing if receive.terms().waits => receivers.push(receive),
                Served::Nothing => replies.extend(receive.has_nothing()),
            }
        });
    }

    async fn receive(&self, waits: bool) -> Vec<Leased> {
        let (max_bytes, visibility_ms) = (usize::MAX, Some(1_000_000));
        let (partitions, shards, first, max_messages) = (SHARDS as u16, SHARDS, 0, 1);
        let (topic, consumer) = (TOPIC, "c".into());
        let terms = ReceiveTerms {
            topic,
            partitions,
            first,
            shards,
            max_messages,
            max_bytes,
            visibility_ms,
            consumer,
            holder: None,
            waits,
        };
        let (pending, answer) = PendingReceive::new(terms, SHARDS);
        for index in 0..SHARDS {
            self.ask(index, pending.at_shard());
            if pending.is_over() {
                break;
            }
        }
        // Its own record may have to be synced.
        yield_now().await;
        let claimed = answer.await.expect("no shard is lost").expect("there is room");
        // Bodies are read back.
        yield_now().await;
        let received = claimed.leased().to_vec();
        claimed.keep_except(&[]);
        received
    }

    /// Receives and acknowledges until patience ends.
    fn consume(&self, patience: &Patience, waits: bool) {
        while let Some(received) = block_on(patience.while_it_lasts(self.receive(waits))) {
            for leased in &received {
                self.deliver(leased);
            }
            if !waits && received.is_empty() {
                return;
            }
        }
    }

    fn deliver(&self, leased: &Leased) {
        assert_eq!(leased.attempt, 1, "{} was delivered to nobody before", leased.seq);
        let acked = {
            let mut delivered = self.delivered.lock().unwrap();
            *delivered.entry(leased.seq).or_default() += 1;
            delivered.len() as u64
        };
        self.turn(usize::from(leased.part.partition), |model, _| {
            let answers = model.shard.ack(NOW_MS, &mut model.journal, leased.part, &[(leased.seq, leased.fence)]);
            assert_eq!(answers, [Ok(())]);
        });
        if acked == MESSAGES {
            self.patient.end();
        }
    }
}

fn part(index: usize) -> PartKey {
    PartKey { topic: TOPIC, partition: index as u16 }
}

fn lease(
    shard: &mut Shard,
    journal: &mut DeliveryCounts,
    part: PartKey,
    terms: &ReceiveTerms,
) -> Result<Vec<Leased>, Error> {
    let mut leased = Vec::new();
    shard.recv(NOW_MS, journal, part, terms.recv(), &mut leased)?;
    Ok(leased)
}

fn model() {
    let node = Arc::new(Node::new());
    let spawn = |work: Box<dyn FnOnce(&Node) + std::marker::Send>| {
        let node = Arc::clone(&node);
        thread::spawn(move || work(&node))
    };
    let worker = |index: usize| {
        spawn(Box::new(move |node| {
            let mut is_last = false;
            while !is_last {
                is_last = node.wakes[index].wait();
                node.turn(index, |_, _| ());
            }
        }))
    };
    let workers: [_; SHARDS] = std::array::from_fn(worker);
    let mut threads = vec![
        spawn(Box::new(|node| (1..=MESSAGES).for_each(|seq| node.send(seq)))),
        // Whatever the others hold when they go must come to this one, or it waits forever.
        spawn(Box::new(|node| node.consume(&node.patient, true))),
    ];
    for waits in [true, false] {
        let patience = Arc::new(Patience::default());
        let going = Arc::clone(&patience);
        threads.push(spawn(Box::new(move |node| node.consume(&patience, waits))));
        threads.push(spawn(Box::new(move |_| going.end())));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    node.wakes.iter().for_each(|wake| wake.set(true));
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let delivered = node.delivered.lock().unwrap();
    assert!(delivered.values().all(|times| *times == 1) && delivered.len() as u64 == MESSAGES, "{delivered:?}");
    for (index, shard) in node.shards.iter().enumerate() {
        let model = shard.lock().unwrap();
        assert_eq!(model.shard.stats(part(index)).held(), 0, "nothing is left with anybody");
    }
}

#[test]
fn a_receive_over_several_shards_that_is_cancelled_anywhere_leaves_no_lease() {
    crate::check(SCHEDULES / 5, model);
}
