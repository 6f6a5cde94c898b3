//! What was promised and what could have come of it: the reference queue after every step, and who was answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ron_log::Lsn;

use super::reference::{Message, Reference, Stand};
use crate::moves::MoveTask;
use crate::types::{DeadReason, Millis, PartKey, Seq, State, TopicId, TopicSettings};

/// Everything that a recovery has to bring back.
#[derive(Clone)]
pub struct Model {
    pub reference: Reference,
    pub topics: BTreeMap<String, (TopicId, TopicSettings)>,
    /// What is being moved out of topics and what was.
    pub moves: BTreeMap<TopicId, Vec<MoveTask>>,
    /// What is said of each dead message.
    pub errors: BTreeMap<Seq, String>,
}

impl Model {
    pub fn new() -> Self {
        let reference = Reference::new(BTreeMap::new());
        Model { reference, topics: BTreeMap::new(), moves: BTreeMap::new(), errors: BTreeMap::new() }
    }

    /// A message as it must be found.
    pub fn view(&self, seq: Seq) -> Option<View> {
        let message = self.reference.messages.iter().find(|message| message.seq == seq)?;
        Some(View::of(message, self.errors.get(&seq)))
    }
}

/// A message as far as anybody was told of it.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    pub part: PartKey,
    pub group: Option<String>,
    pub body: Vec<u8>,
    pub attempts: u32,
    pub state: State,
    pub due_ms: Option<Millis>,
    pub dead: Option<(DeadReason, u32, String)>,
}

impl View {
    fn of(message: &Message, error: Option<&String>) -> View {
        let (state, due_ms) = match message.stand {
            Stand::Ready | Stand::Freed => (State::Ready, None),
            Stand::Delayed(due_ms) => (State::Delayed, Some(due_ms)),
            Stand::Leased(until_ms) => (State::Leased, Some(until_ms)),
        };
        let dead = message.dead.map(|(reason, attempts)| (reason, attempts, error.cloned().unwrap_or_default()));
        let Message { part, attempts, .. } = *message;
        View { part, group: message.group.clone(), body: message.body.clone(), attempts, state, due_ms, dead }
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let View { part, group, body, attempts, state, due_ms, dead } = self;
        write!(formatter, "{part:?} {group:?} {} bytes, {attempts} tries, {state:?} {due_ms:?} {dead:?}", body.len())
    }
}

/// Something a caller is told once the log is durable up to its record.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// The message is taken in.
    Sent(Seq),
    /// The message is gone for good.
    Gone(Seq),
    /// A topic of this number is made.
    Made(TopicId),
    /// Anything else.
    Other,
}

/// The promises, apart from any model: what was said must be so.
#[derive(Clone, Default)]
pub struct Ledger {
    /// Sends that were answered.
    pub sent: BTreeSet<Seq>,
    /// Messages that somebody asked to be gone, answered or not.
    pub maybe_gone: BTreeSet<Seq>,
    /// Messages of which somebody was told that they are gone.
    pub gone: BTreeSet<Seq>,
    /// The highest number of a topic that somebody was told of.
    pub topic_max: u32,
}

impl Ledger {
    fn give(&mut self, promise: Promise) {
        match promise {
            Promise::Sent(seq) => drop(self.sent.insert(seq)),
            Promise::Gone(seq) => drop(self.gone.insert(seq)),
            Promise::Made(id) => self.topic_max = self.topic_max.max(id.0),
            Promise::Other => {}
        }
    }

    /// Holds what was found against what was promised; how many promises that were.
    pub fn check(&self, found: &BTreeMap<Seq, View>, what: &str) -> usize {
        for seq in self.sent.difference(&self.maybe_gone) {
            assert!(found.contains_key(seq), "{what}: {seq} was acknowledged and is lost");
        }
        for seq in &self.gone {
            assert!(!found.contains_key(seq), "{what}: {seq} was acknowledged as gone and is back");
        }
        self.sent.len() + self.gone.len()
    }

    /// After a recovery: what is there is durable, what is not never comes back.
    pub fn rebase(&mut self, found: &BTreeMap<Seq, View>) {
        self.gone.extend(self.sent.iter().filter(|seq| !found.contains_key(seq)));
        self.sent = found.keys().copied().collect();
        self.maybe_gone.clear();
    }
}

/// What the world outside remembers when the power goes.
#[derive(Clone)]
pub struct Memory {
    /// The state after the record of each number, in order.
    pub past: Vec<(u64, Model)>,
    pub ledger: Ledger,
    owed: VecDeque<(Lsn, Promise)>,
    /// Somebody was told something that depends on this record.
    pub answered: u64,
    /// The highest number any message got.
    pub seq_max: Seq,
    pub now: Millis,
    /// Quota of the log, as the node is configured.
    pub quota_bytes: u64,
}

impl Memory {
    pub fn new(now: Millis) -> Self {
        let (past, quota_bytes) = (vec![(0, Model::new())], 4 << 20);
        Memory { past, ledger: Ledger::default(), owed: VecDeque::new(), answered: 0, seq_max: 0, now, quota_bytes }
    }

    /// After a recovery: it goes on from here.
    pub fn resume(&self, lsn: u64, model: Model, found: &BTreeMap<Seq, View>) -> Memory {
        let mut ledger = self.ledger.clone();
        ledger.rebase(found);
        Memory { past: vec![(lsn, model)], ledger, owed: VecDeque::new(), answered: lsn, ..self.clone() }
    }

    pub fn owe(&mut self, lsn: Lsn, promise: Promise) {
        if let Promise::Gone(seq) = promise {
            self.ledger.maybe_gone.insert(seq);
        }
        self.owed.push_back((lsn, promise));
    }

    /// Lets every answer go whose records are durable, as the worker does. Shards answer each on their own.
    pub fn answer(&mut self, durable: Lsn) {
        for (lsn, promise) in std::mem::take(&mut self.owed) {
            if lsn <= durable {
                self.answered = self.answered.max(lsn.0);
                self.ledger.give(promise);
            } else {
                self.owed.push_back((lsn, promise));
            }
        }
    }

    /// What a log that ends with this record may say: the state after it, or, where a step wrote several records, for
    /// each message a state before, amid or after the step.
    pub fn candidates(&self, lsn: u64) -> Vec<Model> {
        let after = self.past.partition_point(|(of, _)| *of <= lsn);
        let (exact, before) = (self.past[after - 1].0 == lsn, &self.past[after - 1].1);
        let next = self.past.get(after).map(|(lsn, _)| *lsn).filter(|_| !exact);
        let amid = self.past[after..].iter().take_while(|(lsn, _)| Some(*lsn) == next).map(|(_, model)| model);
        let mut candidates: Vec<Model> = std::iter::once(before).chain(amid).cloned().collect();
        candidates.iter_mut().for_each(|model| model.reference.restart(self.now));
        candidates
    }
}
