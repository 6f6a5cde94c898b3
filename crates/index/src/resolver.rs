//! The task `resolver`: takes lookups from the queue, drives them, ranks and caches what they find.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{Deadline, TaskContext, TaskResult, clock};
use ron_lookup::{Conclusion, Finished};
use ron_store::ContentId;
use ron_types::limits::index::ANSWER_MARGIN;
use tokio::time::sleep_until;

use crate::cache::Epoch;
use crate::driver::{Driven, drive};
use crate::flights::Leader;
use crate::ingest::Update;
use crate::judge::Judge;
use crate::query::{Breadth, Finding, Query, What};
use crate::shared::Shared;
use crate::words::{IndexEvent, LookupSummary, Outcome, Source};

/// A lookup on its way to a resolver.
pub(crate) struct Job {
    /// Dropping it tells those who wait that nobody looks any more.
    pub leader: Leader,
    /// Changes of the key when the lookup was asked for.
    pub epoch: Epoch,
    /// By when it must have ended, the wait in the queue included.
    pub deadline: Deadline,
    /// What is looked up, where that is content. Ids that differ in their codec alone share a lookup, and are the same
    /// to routers and providers, so that of whoever came first is enough.
    pub content: Option<ContentId>,
    /// What is looked up, for people.
    pub shown: String,
}

/// One resolver: one lookup at a time.
pub(crate) async fn resolver(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    loop {
        let (job, turn) = tokio::select! {
            biased;
            () = context.stopping() => break,
            taken = shared.work.take() => taken,
            () = context.heartbeat() => continue,
        };
        serve(&context, &shared, job).await;
        drop(turn);
    }
    // What waits is still answered: in time, or with the word that the node stops.
    while let Some((job, _turn)) = shared.work.try_take(true) {
        serve(&context, &shared, job).await;
    }
    Ok(())
}

/// Does a lookup, but no longer than a drain lasts.
async fn serve(context: &TaskContext, shared: &Shared, job: Job) {
    let began = clock::now();
    let is_stopped = async {
        context.stopping().await;
        sleep_until(context.stop_deadline().instant()).await;
    };
    tokio::select! {
        biased;
        () = context.beating(look_up(shared, job)) => {}
        () = is_stopped => drop(shared.kernel.metrics().tasks_canceled.at("resolver").inc()),
    }
    shared.counts.served(clock::now() - began);
}

/// Looks up, tells those who wait, and keeps what was found.
async fn look_up(shared: &Shared, job: Job) {
    let Job { leader, epoch, deadline, content, shown } = job;
    let query = leader.key().query.clone();
    let began = clock::now();
    let mut judge = Judge::new(query.question());
    // What the store holds is heard first: a network that knows nothing, or something older, takes nothing of it back.
    let now_ms = shared.unix_ms();
    if let Ok(records) = shared.stored_records(&query, now_ms).await {
        judge.hear(records, now_ms);
    }
    let progress = |judge: &Judge| {
        if let What::Providers(providers) = judge.what(&shared.ranking(), shared.unix_ms()) {
            leader.progress(providers);
        }
    };
    let (breadth, until) = (leader.key().breadth, deadline.earlier_by(ANSWER_MARGIN));
    let lookup = drive(shared, breadth, until, query.question(), content, &mut judge, progress);
    let driven = tokio::select! {
        biased;
        // Whoever asked has gone, perhaps while this waited in the queue: dropping the lookup cancels its questions.
        () = leader.abandoned() => return,
        driven = lookup => driven,
    };
    let finding = Arc::new(concluded(shared, &judge, &driven, breadth));
    let took = clock::now() - began;
    if driven.finished.deadline_hit {
        shared.counts.deadline_hit();
    }
    remember(shared, &query, &finding);
    shared.cache.keep(&query, Arc::clone(&finding), epoch).await;
    shared.probe_later(&query, content, &finding, &shown);
    if finding.outcome == Outcome::Found && !finding.reaches(Breadth::Wide) {
        shared.upgrade_later(&query, &shown);
    }
    tell(shared, shown, &finding, took);
    leader.end(Ok(finding));
}

fn concluded(shared: &Shared, judge: &Judge, driven: &Driven, breadth: Breadth) -> Finding {
    let (now, now_ms) = (clock::now(), shared.unix_ms());
    let what = judge.what(&shared.ranking(), now_ms);
    let outcome = outcome(&what, &driven.finished);
    Finding {
        expires_at: now + shared.fresh_for(&what, outcome, now_ms),
        what,
        outcome,
        open_targets: driven.finished.degraded,
        source: if driven.finished.satisfied == 0 && outcome == Outcome::Found { Source::Store } else { Source::Dht },
        course: Arc::clone(&driven.course),
        found_at: now,
        // A search for the first answer that none of the targets gave went as far as any other.
        breadth: if driven.finished.satisfied > 0 { breadth } else { Breadth::Wide },
        made: Arc::default(),
        manifest: Default::default(),
    }
}

/// How much the end of a lookup is worth. What was found goes before how the search ended.
fn outcome(what: &What, finished: &Finished) -> Outcome {
    match (what, finished.conclusion) {
        (What::Nothing, Conclusion::Absent) if finished.degraded == 0 => Outcome::Absent,
        (What::Nothing, _) if finished.degraded > 0 => Outcome::Degraded,
        (What::Nothing, _) => Outcome::Unknown,
        _ => Outcome::Found,
    }
}

/// A name that was found goes to the store, so that an older record of it never wins again.
fn remember(shared: &Shared, query: &Query, finding: &Finding) {
    let record = match (&finding.what, query) {
        (What::Name(record), _) => ron_store::Record::Name(record.clone()),
        (What::Ipns(record), _) => ron_store::Record::Ipns(record.clone()),
        _ => return,
    };
    // A full queue loses nothing that cannot be found again.
    let _ = shared.ingest.offer(Update::of_record(record, false));
}

fn tell(shared: &Shared, subject: String, finding: &Finding, took: Duration) {
    shared.counts.looked_up(finding.outcome, took);
    let summary = Arc::new(LookupSummary {
        subject,
        outcome: finding.outcome,
        open_targets: finding.open_targets,
        found: finding.count(),
        at_ms: shared.unix_ms(),
        took,
        course: Arc::clone(&finding.course),
    });
    shared.recent.push(Arc::clone(&summary));
    shared.events.publish(IndexEvent::LookedUp(summary));
}
