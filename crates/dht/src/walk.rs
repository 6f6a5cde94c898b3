//! A walk through the network: asks on from node to node until the nearest ones have all answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use ron_kernel::{Deadline, clock};
use ron_lookup::{Action, Admission, Candidate, Conclusion, Event, Guards, HedgeLimits, Lookup, Verdict, shared_bits};
use ron_store::wire::{AskError, Question, Reply};
use ron_store::{Key, PeerId, Record};

use crate::handle;
use crate::shared::Shared;
use crate::words::{Hop, HopOutcome, Trace};

/// Records that a walk gathers.
const RECORDS_MAX: usize = 256;
/// Time in which one node must have answered.
const ASK_TIME_MS: u64 = 2_000;

/// A walk asks whomever it is told of: what is slow or fails is what it is there to show.
struct Unguarded;

impl Guards<PeerId> for Unguarded {
    fn admit(&mut self, _: &PeerId, _: u64) -> Admission {
        Admission::Yes
    }

    fn is_closed(&self, _: &PeerId) -> bool {
        true
    }

    fn asked(&mut self) {}

    fn take_hedge(&mut self) -> bool {
        true
    }

    fn ended(&mut self, _: &PeerId, _: Verdict, _: u64, _: u64) {}
}

/// What one node said.
type Said = (PeerId, Result<Reply, AskError>);

/// Walks until the nearest nodes have answered, or the deadline.
pub(crate) async fn walk(shared: &Arc<Shared>, question: Question, by: Deadline) -> Trace {
    let key = question.key();
    let started = clock::now();
    let nearest = shared.replication();
    let limits = HedgeLimits {
        ask_timeout_ms: ASK_TIME_MS,
        deadline_ms: by.remaining().as_millis() as u64,
        nearest,
        ..HedgeLimits::default()
    };
    let known = shared.members.nearest_candidates(&key, nearest);
    let mut lookup = Lookup::new(key.0, limits, known, 0, started.elapsed().as_nanos() as u64);
    let mut asks = FuturesUnordered::new();
    let mut aborts: HashMap<PeerId, AbortHandle> = HashMap::new();
    let mut trace = Trace {
        key,
        hops: Vec::new(),
        records: Vec::new(),
        own: 0,
        nearest: Vec::new(),
        is_converged: false,
        took: Duration::ZERO,
    };
    let mut said: HashMap<PeerId, HopOutcome> = HashMap::new();
    let mut wake_at_ms = 0;
    let mut event = Event::Start;
    'walking: loop {
        for action in lookup.step(millis_since(started), event, &mut Unguarded) {
            match action {
                Action::Ask { target, budget_ms, .. } => {
                    let (shared, question) = (Arc::clone(shared), question.clone());
                    let budget = Duration::from_millis(budget_ms);
                    let ask = async move { (target, handle::ask(&shared, target, question, budget).await) };
                    let (ask, abort) = abortable(ask);
                    aborts.insert(target, abort);
                    asks.push(ask);
                }
                Action::Cancel { target } => drop(aborts.remove(&target).map(|abort| abort.abort())),
                Action::WakeAt(at_ms) => wake_at_ms = at_ms,
                Action::Finish(finished) => {
                    trace.is_converged = finished.conclusion == Conclusion::Absent;
                    break 'walking;
                }
            }
        }
        let wait = Duration::from_millis(wake_at_ms.saturating_sub(millis_since(started)));
        event = tokio::select! {
            Some(Ok(answered)) = asks.next() => heard(shared, answered, &mut trace.records, &mut said),
            () = tokio::time::sleep(wait) => Event::Tick,
        };
    }
    trace.took = started.elapsed();
    // No network of addresses is given most copies of a record.
    trace.nearest = lookup.nearest_answered(nearest);
    draw(&mut trace, &lookup, &mut said);
    trace
}

/// The nodes nearest to a key: those that are known where all are, else those that a walk finds. Where fewer answered
/// than are wanted, known ones follow: a record is offered more than once to a node that is busy for a moment, and if
/// nobody offered it, it would have fewer copies until the next sweep.
pub(crate) async fn nearest(shared: &Arc<Shared>, key: &Key, count: usize, by: Deadline) -> Vec<PeerId> {
    if !shared.members.is_complete(shared.now_ms()) {
        let mut beside = *key;
        // Its neighbour has the same nearest nodes and no records, so that every node says whom it knows.
        beside.0[31] ^= 1;
        let trace = walk(shared, Question::Providers(beside), by).await;
        return filled_up(trace.nearest, shared.members.nearest(key, count), count);
    }
    shared.members.nearest(key, count)
}

/// The first `count` of those that answered, then of the others that are known.
fn filled_up(answered: Vec<PeerId>, known: Vec<PeerId>, count: usize) -> Vec<PeerId> {
    let mut nearest = answered;
    for peer in known {
        if !nearest.contains(&peer) {
            nearest.push(peer);
        }
    }
    nearest.truncate(count);
    nearest
}

fn millis_since(started: tokio::time::Instant) -> u64 {
    started.elapsed().as_millis() as u64
}

/// Takes what a node said. No answer satisfies a walk: it goes on to the nearest nodes.
fn heard(
    shared: &Shared,
    (target, result): Said,
    records: &mut Vec<Record>,
    said: &mut HashMap<PeerId, HopOutcome>,
) -> Event<PeerId> {
    match result {
        Ok(reply) => {
            let outcome = HopOutcome::Answered { records: reply.records.len(), closer: reply.closer.len() };
            said.insert(target, outcome);
            for record in reply.records {
                if records.len() < RECORDS_MAX && !records.contains(&record) {
                    records.push(record);
                }
            }
            let candidate = |peer: PeerId| Candidate {
                target: peer,
                position: peer.key().0,
                group: shared.members.ip_group_of(&peer),
            };
            let closer = reply.closer.into_iter().map(candidate).collect();
            Event::Answered { target, satisfactory: false, closer }
        }
        Err(error) => {
            said.insert(target, HopOutcome::Failed(error.to_string()));
            Event::Failed { target, transient: false }
        }
    }
}

fn draw(trace: &mut Trace, lookup: &Lookup<PeerId>, said: &mut HashMap<PeerId, HopOutcome>) {
    let key = trace.key;
    for ask in lookup.course().records() {
        let ended_ms = ask.end.map_or(trace.took.as_millis() as u64, |(ended_ms, _)| ended_ms);
        let silent = || HopOutcome::Failed("no answer before the walk went on".to_owned());
        trace.hops.push(Hop {
            peer: ask.target,
            step: ask.hop,
            shared_bits: shared_bits(&key.0, &ask.target.key().0),
            started: Duration::from_millis(ask.started_ms),
            took: Duration::from_millis(ended_ms.saturating_sub(ask.started_ms)),
            outcome: said.remove(&ask.target).unwrap_or_else(silent),
        });
    }
}
