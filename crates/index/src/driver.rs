//! Drives one lookup: does what the state machine says, and tells it what came of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::Deadline;
use ron_lookup::{Action, AskEnd, Candidate, Conclusion, Event, Finished, Guards as _, HedgeLimits, Lookup, Verdict};
use ron_store::{ContentId, PeerId};
use ron_types::limits::lookup::{CLOSER_MAX, NEAREST};
use tokio::time::{Instant, sleep_until};

use crate::judge::{Judge, Worth};
use crate::ports::{AskError, Network, Question, Reply, TargetClass, TargetId};
use crate::query::Breadth;
use crate::shared::Shared;
use crate::words::AskView;

/// A lookup that has ended.
pub(crate) struct Driven {
    pub finished: Finished,
    pub course: Arc<[AskView]>,
}

/// A lookup under way. Dropped before its end, it drops its questions, which cancels them at the targets.
struct Drive<'a> {
    shared: &'a Shared,
    question: Question,
    content: Option<ContentId>,
    lookup: Lookup<TargetId>,
    asks: Vec<Ask>,
    wake_at: Instant,
}

struct Ask {
    target: TargetId,
    started_ms: u64,
    answer: BoxFuture<'static, Result<Reply, AskError>>,
}

/// Looks a question up until the deadline; `found` hears of every reply that holds something new. Routers are asked for
/// `content`, whose id the key of a question about providers does not tell.
pub(crate) async fn drive(
    shared: &Shared,
    breadth: Breadth,
    deadline: Deadline,
    question: Question,
    content: Option<ContentId>,
    judge: &mut Judge,
    mut found: impl FnMut(&Judge),
) -> Driven {
    let candidates = candidates(shared, &question, content);
    if candidates.is_empty() {
        return nobody_to_ask(shared);
    }
    let limits = hedge_limits(shared, breadth, deadline, &candidates);
    let lookup = Lookup::new(question.key().0, limits, candidates, shared.now_ms(), shared.draw());
    let mut drive = Drive { shared, question, content, lookup, asks: Vec::new(), wake_at: deadline.instant() };
    let mut event = Event::Start;
    loop {
        if let Some(finished) = drive.step(event) {
            return Driven { finished, course: drive.course() };
        }
        event = match drive.next().await {
            None => Event::Tick,
            Some((target, Ok(reply))) => {
                let worth = judge.hear(reply.records, shared.unix_ms());
                if worth == Worth::Satisfactory {
                    found(judge);
                }
                answered(shared, target, worth, &reply.closer)
            }
            Some((target, Err(error))) => Event::Failed { target, transient: may_pass(error) },
        };
    }
}

impl Drive<'_> {
    /// Tells the state machine and does what it says; the end, if it was that.
    fn step(&mut self, event: Event<TargetId>) -> Option<Finished> {
        let now_ms = self.shared.now_ms();
        // The lock of the guards is held for the decision alone, not while targets are asked.
        let actions = self.lookup.step(now_ms, event, &mut self.shared.targets.guards());
        let mut end = None;
        for action in actions {
            match action {
                Action::Ask { target, budget_ms, .. } => {
                    let answer = self.ask(&target, Duration::from_millis(budget_ms));
                    self.asks.push(Ask { target, started_ms: now_ms, answer });
                }
                Action::Cancel { target } => self.asks.retain(|ask| ask.target != target),
                Action::WakeAt(at_ms) => self.wake_at = self.shared.instant_of(at_ms),
                Action::Finish(finished) => end = Some(finished),
            }
        }
        end
    }

    fn ask(&self, target: &TargetId, budget: Duration) -> BoxFuture<'static, Result<Reply, AskError>> {
        let question = self.question.clone();
        let options = &self.shared.options;
        match target {
            TargetId::Peer(peer) => match &options.network {
                Some(network) => network.ask(peer, question, budget),
                None => Box::pin(std::future::ready(Err(AskError::Unreachable))),
            },
            TargetId::Upstream(name) => match options.upstreams.iter().find(|upstream| upstream.name() == &**name) {
                Some(upstream) => match self.shared.upstream_question(&question, self.content) {
                    Some(question) => upstream.ask(question, budget),
                    None => Box::pin(std::future::ready(Err(AskError::Unsupported))),
                },
                None => Box::pin(std::future::ready(Err(AskError::Unreachable))),
            },
        }
    }

    /// The next answer; none when it is time to look again.
    async fn next(&mut self) -> Option<(TargetId, Result<Reply, AskError>)> {
        let asks = &mut self.asks;
        // A handful at most, so that polling all of them costs less than keeping track of who woke up.
        let answer = poll_fn(|cx| {
            for place in 0..asks.len() {
                if let Poll::Ready(answer) = asks[place].answer.as_mut().poll(cx) {
                    return Poll::Ready((asks.swap_remove(place).target, answer));
                }
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = sleep_until(self.wake_at) => None,
        }
    }

    fn course(&self) -> Arc<[AskView]> {
        let course = self.lookup.course();
        let took_ms = course.took_ms().unwrap_or_default();
        let view = |ask: &ron_lookup::AskRecord<TargetId>| {
            let (ended_ms, end) = ask.end.unwrap_or((took_ms, AskEnd::Cancelled));
            AskView {
                target: ask.target.clone(),
                started: Duration::from_millis(ask.started_ms),
                ended: Duration::from_millis(ended_ms),
                hedge: ask.hedge,
                hop: ask.hop,
                end,
                breaker: ask.breaker,
            }
        };
        course.records().iter().map(view).collect()
    }
}

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        if self.lookup.is_finished() || self.asks.is_empty() {
            return;
        }
        // Given up from outside: probes that are out must be sent again by somebody else.
        let now_ms = self.shared.now_ms();
        let mut guards = self.shared.targets.guards();
        for ask in &self.asks {
            guards.ended(&ask.target, Verdict::Cancelled, now_ms.saturating_sub(ask.started_ms), now_ms);
        }
    }
}

fn answered(shared: &Shared, target: TargetId, worth: Worth, closer: &[PeerId]) -> Event<TargetId> {
    match worth {
        Worth::Forged => {
            shared.counts.forged();
            tracing::debug!(%target, "a target answered with records that do not hold");
            Event::Failed { target, transient: false }
        }
        Worth::Satisfactory | Worth::Empty => {
            // A router's idea of who is near concerns another network.
            let closer = if target.class() == TargetClass::Peer { closer } else { &[] };
            let closer = closer.iter().take(CLOSER_MAX).filter(|peer| **peer != shared.node_peer());
            let closer = closer.map(|peer| candidate(shared, peer)).collect();
            Event::Answered { target, satisfactory: worth == Worth::Satisfactory, closer }
        }
    }
}

fn candidate(shared: &Shared, peer: &PeerId) -> Candidate<TargetId> {
    let group = shared.options.network.as_ref().and_then(|network| network.group(peer));
    Candidate { target: TargetId::Peer(*peer), position: peer.key().0, group }
}

/// Whether a lookup would have anybody to ask.
pub(crate) fn has_targets(shared: &Shared, question: &Question, content: Option<ContentId>) -> bool {
    let (options, own) = (&shared.options, shared.node_peer());
    let has_routers = !options.upstreams.is_empty() && shared.upstream_question(question, content).is_some();
    let has_peers = |network: &Arc<dyn Network>| network.nearest(&question.key(), 2).iter().any(|peer| *peer != own);
    has_routers || options.network.as_ref().is_some_and(has_peers)
}

fn candidates(shared: &Shared, question: &Question, content: Option<ContentId>) -> Vec<Candidate<TargetId>> {
    let (options, key) = (&shared.options, question.key());
    let upstream = |name: &str| Candidate::new(TargetId::Upstream(name.into()), key.0);
    // A question that routers cannot be asked is no failure of theirs.
    let routers = shared.upstream_question(question, content).map_or(&[][..], |_| &options.upstreams);
    let mut candidates: Vec<_> = routers.iter().map(|router| upstream(router.name())).collect();
    if let Some(network) = &options.network {
        let peers = network.nearest(&key, NEAREST);
        let others = peers.iter().filter(|peer| **peer != shared.node_peer());
        candidates.extend(others.map(|peer| candidate(shared, peer)));
    }
    candidates
}

/// The end of a lookup that has nobody to ask: where everybody is known, and nobody is there, nobody has it.
fn nobody_to_ask(shared: &Shared) -> Driven {
    let knows_all = shared.options.network.as_ref().is_none_or(|network| network.complete());
    let conclusion = if knows_all { Conclusion::Absent } else { Conclusion::Unknown };
    let finished = Finished { conclusion, satisfied: 0, degraded: 0, failed: 0, hops: 0, deadline_hit: false };
    Driven { finished, course: Arc::default() }
}

fn hedge_limits(
    shared: &Shared,
    breadth: Breadth,
    deadline: Deadline,
    candidates: &[Candidate<TargetId>],
) -> HedgeLimits {
    let live = shared.live.get();
    let live = &live.value;
    let classes = [TargetClass::Peer, TargetClass::Upstream];
    let has = |class: &TargetClass| candidates.iter().any(|candidate| candidate.target.class() == *class);
    let classes: Vec<TargetClass> = classes.into_iter().filter(has).collect();
    let millis = |time: Duration| time.as_millis() as u64;
    let paced = shared.targets.pace(&classes, millis(live.hedge_after));
    HedgeLimits {
        alpha: live.alpha,
        beta: live.beta,
        deadline_ms: millis(deadline.remaining()),
        quorum: if breadth == Breadth::First { 1 } else { usize::MAX },
        retries_max: live.retry_max,
        retry_jitter_ms: (millis(live.retry_jitter.0), millis(live.retry_jitter.1)),
        ..paced
    }
}

/// Whether asking the same target again may help.
fn may_pass(error: AskError) -> bool {
    match error {
        AskError::Unreachable | AskError::Closed | AskError::Busy => true,
        AskError::TimedOut | AskError::Refused | AskError::Malformed | AskError::Unsupported => false,
    }
}
