//! One node that looks things up: drives the real lookup in virtual time and believes only what verifies.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use ron_lookup::{
    Action, BreakerLimits, BreakerTable, Candidate, Event, Finished, HedgeBudget, HedgeLimits, Lookup, Millis,
    Position, TargetGuards,
};
use ron_store::Record;

use super::world::{Answer, REPLICAS, World};

/// A node that asks, with what it has learnt about others.
#[derive(Clone, Debug)]
pub struct Client {
    /// Number of the node.
    pub node: u32,
    /// Breakers, budget and latencies.
    pub guards: TargetGuards<u32, ()>,
    /// The client's own time: its lookups follow each other.
    now_ms: Millis,
    lookups: u64,
}

/// What a lookup brought.
#[derive(Clone, Debug)]
pub struct Sought {
    /// How it ended.
    pub finished: Finished,
    /// The best record that verified.
    pub best: Option<Arc<Record>>,
    /// Duration in virtual time.
    pub took_ms: Millis,
    /// Nodes to place a record at, nearest to the key first.
    pub answered: Vec<u32>,
}

impl Sought {
    /// What is known after a second look: the better record of both, and the end of the first, whose answer was given.
    pub fn upgraded(self, wide: Sought) -> Sought {
        Sought { best: better(self.best, wide.best), ..self }
    }
}

/// A reply on its way: the event for the lookup, and the best record in it that is valid and about the key.
struct Reply {
    target: u32,
    event: Event<u32>,
    record: Option<Arc<Record>>,
}

/// Replies on their way to one lookup.
#[derive(Default)]
struct Replies {
    coming: BinaryHeap<Reverse<(Millis, u64)>>,
    replies: BTreeMap<u64, Reply>,
    in_flight: BTreeMap<u32, u64>,
    asks: u64,
}

impl Client {
    /// A client that knows nothing yet.
    pub fn new(node: u32, now_ms: Millis) -> Self {
        let breakers = BreakerTable::new(BreakerLimits::default(), u64::from(node));
        Client { node, guards: TargetGuards::new(breakers, HedgeBudget::default(), |_| ()), now_ms, lookups: 0 }
    }

    /// Looks a key up; `quorum` satisfactory answers end it.
    pub fn look_up(&mut self, world: &mut World, key: Position, quorum: usize) -> Sought {
        self.run(world, key, quorum, true)
    }

    /// Finds the nodes nearest to a key, whatever they keep.
    pub fn find_nearest(&mut self, world: &mut World, key: Position) -> Sought {
        self.run(world, key, 1, false)
    }

    fn run(&mut self, world: &mut World, key: Position, quorum: usize, wants_records: bool) -> Sought {
        let limits = HedgeLimits { quorum, ..HedgeLimits::default() }.paced(&self.guards.latency, &());
        let start_ms = self.now_ms.max(world.now_ms);
        self.lookups += 1;
        let seed = u64::from(self.node) << 32 | self.lookups;
        let candidates = world.first_candidates(self.node, &key);
        let mut lookup = Lookup::new(key, limits, candidates, start_ms, seed);
        let (mut replies, mut best): (_, Option<Arc<Record>>) = (Replies::default(), None);
        let (mut now_ms, mut event) = (start_ms, Event::Start);
        loop {
            let (mut wake_at_ms, mut finished) = (Millis::MAX, None);
            for action in lookup.step(now_ms, event, &mut self.guards) {
                match action {
                    Action::Ask { target, .. } => {
                        let answer = world.ask(self.node, target, &key);
                        let reply = self.judge(answer, target, &key, now_ms, wants_records);
                        replies.send(target, now_ms, reply);
                    }
                    Action::Cancel { target } => {
                        replies.in_flight.remove(&target);
                    }
                    Action::WakeAt(at_ms) => wake_at_ms = at_ms,
                    Action::Finish(end) => finished = Some(end),
                }
            }
            if let Some(finished) = finished {
                self.now_ms = now_ms + 5;
                let answered = lookup.nearest_answered(REPLICAS);
                return Sought { finished, best, took_ms: now_ms - start_ms, answered };
            }
            let record;
            (now_ms, event, record) = replies.next(wake_at_ms);
            best = better(best, record);
        }
    }

    /// Turns an answer into a reply; with a record that is not valid or not about the key it is a failure.
    fn judge(
        &self,
        answer: Answer,
        target: u32,
        key: &Position,
        now_ms: Millis,
        wants_records: bool,
    ) -> Option<(Millis, Reply)> {
        let (after_ms, event, record) = match answer {
            Answer::Nothing => return None,
            Answer::Refused { after_ms } => (after_ms, Event::Failed { target, transient: false }, None),
            Answer::Records { after_ms, records, closer } => {
                let is_valid = |record: &Arc<Record>| record.key().0 == *key && record.verify(now_ms).is_ok();
                let is_honest = records.iter().all(is_valid);
                let record =
                    records.into_iter().filter(|_| wants_records).fold(None, |best, record| better(best, Some(record)));
                let is_other = |candidate: &Candidate<u32>| candidate.target != self.node;
                let closer = closer.into_iter().filter(is_other).collect();
                if is_honest {
                    (after_ms, Event::Answered { target, satisfactory: record.is_some(), closer }, record)
                } else {
                    (after_ms, Event::Failed { target, transient: false }, None)
                }
            }
        };
        Some((after_ms, Reply { target, event, record }))
    }
}

/// The record that takes the place of the other.
fn better(one: Option<Arc<Record>>, other: Option<Arc<Record>>) -> Option<Arc<Record>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.supersedes(&one) { other } else { one }),
        (one, other) => one.or(other),
    }
}

impl Replies {
    fn send(&mut self, target: u32, now_ms: Millis, reply: Option<(Millis, Reply)>) {
        self.asks += 1;
        self.in_flight.insert(target, self.asks);
        if let Some((after_ms, reply)) = reply {
            self.coming.push(Reverse((now_ms + after_ms, self.asks)));
            self.replies.insert(self.asks, reply);
        }
    }

    /// The next reply that is still awaited, or the wake-up.
    fn next(&mut self, wake_at_ms: Millis) -> (Millis, Event<u32>, Option<Arc<Record>>) {
        while let Some(Reverse((at_ms, ask))) = self.coming.peek().copied() {
            if at_ms > wake_at_ms {
                break;
            }
            self.coming.pop();
            if let Some(Reply { target, event, record }) = self.replies.remove(&ask)
                && self.in_flight.get(&target) == Some(&ask)
            {
                self.in_flight.remove(&target);
                return (at_ms, event, record);
            }
        }
        (wake_at_ms, Event::Tick, None)
    }
}
