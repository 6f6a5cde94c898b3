//! The way of a question: the cache, then the store, then a lookup that all who ask the same share.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{Deadline, clock};
use ron_store::{ContentId, Record, Store, StoreError};
use ron_types::limits::index::{PROVIDERS_MAX, STRANGERS_WAIT};
use ron_types::{Error, Kind};

use crate::driver::has_targets;
use crate::flights::{FlightKey, Leader, Waited, Waiter};
use crate::judge::known;
use crate::ports::Question;
use crate::prefetch::{Refresh, Why};
use crate::query::{Breadth, Finding, Query, What};
use crate::resolver::Job;
use crate::shared::Shared;
use crate::words::{Outcome, ResolveOptions, Source};
use crate::work::Asker;

/// Times that one caller joins or begins the lookup of its question. Who leads reads the store in its own request, and
/// may leave before that is done; those who joined then lead or join anew. Bounded, because the next leader may leave,
/// too.
const JOINS_MAX: usize = 4;

/// What a question is about, as it is shown to people.
pub(crate) type Shown = dyn std::fmt::Display + Send + Sync;

/// An answer, and where this caller has it from.
pub(crate) struct Answer {
    pub finding: Arc<Finding>,
    pub source: Source,
}

/// A question and how it is to be answered.
pub(crate) struct Asked<'a> {
    pub query: Query,
    /// What the question is about, where that is content: routers want the id, which a key does not tell.
    pub content: Option<ContentId>,
    /// What the question is about, as it is shown to people.
    pub shown: &'a Shown,
    pub breadth: Breadth,
    pub fresh: bool,
    pub deadline: Deadline,
    /// Who asks.
    pub from: Asker,
}

/// A question that was answered at once, or the lookup to wait for.
pub(crate) enum Begun {
    Known(Answer),
    UnderWay(Waiter),
}

impl Shared {
    /// By when a question is to be answered.
    pub fn deadline(&self, options: &ResolveOptions) -> Deadline {
        let longest = self.live.get().value.resolve_deadline;
        Deadline::after(options.budget.map_or(longest, |budget| budget.min(longest)))
    }

    /// Answers a question by its deadline.
    pub async fn find(&self, asked: Asked<'_>) -> Result<Answer, Error> {
        let mut joins = 1;
        loop {
            match self.find_once(&asked).await {
                Err(error) if self.may_join_again(&error, joins) => joins += 1,
                ended => return ended,
            }
        }
    }

    /// Whether a lookup that ended like this was given up by somebody else, who left, while this caller still waits.
    pub fn may_join_again(&self, error: &Error, joins: usize) -> bool {
        error.kind == Kind::Canceled && joins < JOINS_MAX && !self.kernel.is_draining()
    }

    async fn find_once(&self, asked: &Asked<'_>) -> Result<Answer, Error> {
        let mut waiter = match self.begin(asked).await? {
            Begun::Known(answer) => return Ok(answer),
            Begun::UnderWay(waiter) => waiter,
        };
        if let Some(answer) = self.end_soon(&mut waiter, asked).await {
            return answer;
        }
        match waiter.end(asked.deadline).await {
            Waited::Ended(Ok(finding)) => Ok(Answer { source: finding.source, finding }),
            Waited::Ended(Err(error)) => Err(error),
            Waited::TimedOut(partial) => {
                self.counts.deadline_hit();
                let now = clock::now();
                let finding = match partial.is_empty() {
                    true => Finding::nothing(Outcome::Unknown, now),
                    false => Finding { what: What::Providers(partial), ..Finding::nothing(Outcome::Found, now) },
                };
                Ok(Answer { finding: Arc::new(finding), source: Source::Dht })
            }
        }
    }

    /// The end of a lookup that is quick. Where strangers' records in the store are all that is known by then, they are
    /// the answer for now, and the rest is looked for in the background: a network that is slow costs a caller no more
    /// than this, and one that answers is heard.
    async fn end_soon(&self, waiter: &mut Waiter, asked: &Asked<'_>) -> Option<Result<Answer, Error>> {
        if asked.fresh || asked.breadth == Breadth::Wide {
            return None;
        }
        let soon = Deadline::after(STRANGERS_WAIT.min(asked.deadline.remaining()));
        let partial = match waiter.end(soon).await {
            Waited::Ended(Ok(finding)) => return Some(Ok(Answer { source: finding.source, finding })),
            Waited::Ended(Err(error)) => return Some(Err(error)),
            Waited::TimedOut(partial) if partial.is_empty() => return None,
            Waited::TimedOut(partial) => partial,
        };
        let (query, content, shown) = (asked.query.clone(), asked.content, asked.shown.to_string());
        // A full queue means that it is looked for when it is asked for next.
        let _ = self.refresh.offer(Refresh { query, content, shown, why: Why::Partial });
        let found = Finding::nothing(Outcome::Found, clock::now());
        let finding = Finding { what: What::Providers(partial), source: Source::Store, ..found };
        Some(Ok(Answer { finding: Arc::new(finding), source: Source::Store }))
    }

    /// Answers a question from the cache or the store, or joins or begins its lookup.
    pub async fn begin(&self, asked: &Asked<'_>) -> Result<Begun, Error> {
        if !asked.fresh {
            let known = self.cache.get(&asked.query).await;
            if let Some(finding) = known.filter(|finding| finding.reaches(asked.breadth)) {
                self.counts.hit();
                return Ok(Begun::Known(Answer { finding, source: Source::Cache }));
            }
            self.counts.missed();
        }
        let key = FlightKey { query: asked.query.clone(), breadth: asked.breadth, fresh: asked.fresh };
        let (waiter, leader) = self.flights.join(key.clone());
        let Some(leader) = leader else {
            self.work.share(asked.from, |job| *job.leader.key() == key);
            return Ok(Begun::UnderWay(waiter));
        };
        self.lead(leader, asked).await?;
        Ok(Begun::UnderWay(waiter))
    }

    /// Ends a lookup from the store if that knows the answer, and else has a resolver do it. The lookup has all the
    /// time there is: others with more of it than whoever came first may join.
    ///
    /// Who provides something is known for certain only where this node or its operator says so. What strangers put
    /// into the store is a part of the answer: anybody may put a record there, and it must not silence those that the
    /// network and the routers know. So they are asked as for any other key; a node keeps the records of few.
    async fn lead(&self, leader: Leader, asked: &Asked<'_>) -> Result<(), Error> {
        let (content, shown) = (asked.content, asked.shown);
        let deadline = Deadline::after(self.live.get().value.resolve_deadline);
        let query = leader.key().query.clone();
        let epoch = self.cache.epoch(&query);
        let mut partial = None;
        if !leader.key().fresh {
            match self.find_stored(&query).await {
                Ok(Some(finding)) if self.is_whole(&finding, &query, content) => {
                    let finding = Arc::new(finding);
                    self.cache.keep(&query, Arc::clone(&finding), epoch).await;
                    leader.end(Ok(Arc::clone(&finding)));
                    self.upgrade_later(&query, shown);
                    self.probe_later(&query, content, &finding, shown);
                    return Ok(());
                }
                Ok(Some(finding)) => {
                    leader.progress(finding.providers());
                    partial = Some(finding);
                }
                Ok(None) => {}
                Err(error) => {
                    leader.end(Err(error.clone()));
                    return Err(error);
                }
            }
        }
        let job = Job { leader, epoch, deadline, content, shown: shown.to_string() };
        self.counts.arrived();
        let Err((job, error)) = self.work.offer(asked.from, job) else { return Ok(()) };
        // Everybody who shares the lookup is told of a full queue, or gets what there is.
        match partial {
            Some(finding) => job.leader.end(Ok(Arc::new(finding))),
            None => {
                job.leader.end(Err(error.clone()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether what the store knows is all that can be found out: this node or its operator says who provides it, or
    /// there is nobody else to ask. Names and peers sign for themselves, and what is newer is looked for later.
    fn is_whole(&self, finding: &Finding, query: &Query, content: Option<ContentId>) -> bool {
        let own = self.node_key();
        match &finding.what {
            What::Providers(providers) => {
                providers.iter().any(|provider| provider.record.signer == own)
                    || !has_targets(self, &query.question(), content)
            }
            _ => true,
        }
    }

    /// Records of the store that answer a query.
    pub async fn stored_records(&self, query: &Query, now_ms: u64) -> Result<Vec<Record>, Error> {
        let question = query.question();
        self.read(move |store| stored(store, &question, now_ms)).await
    }

    /// What the store knows.
    async fn find_stored(&self, query: &Query) -> Result<Option<Finding>, Error> {
        let now_ms = self.unix_ms();
        let what = known(self.stored_records(query, now_ms).await?, &self.ranking(), now_ms);
        if matches!(what, What::Nothing) {
            return Ok(None);
        }
        let now = clock::now();
        let expires_at = now + self.fresh_for(&what, Outcome::Found, now_ms);
        let found = Finding::nothing(Outcome::Found, now);
        Ok(Some(Finding { what, source: Source::Store, expires_at, ..found }))
    }

    /// A name of somebody else that the store, or the first of the targets, answered may have a newer record: it is
    /// looked for in the background.
    pub fn upgrade_later(&self, query: &Query, shown: &Shown) {
        let is_foreign = match query {
            Query::Name { owner, .. } => *owner != self.node_key(),
            Query::Ipns(_) => true,
            Query::Providers(_) | Query::Peer(_) => false,
        };
        if is_foreign {
            // A full queue means that it is looked for when it is asked for next.
            let (query, shown) = (query.clone(), shown.to_string());
            let _ = self.refresh.offer(Refresh { query, content: None, shown, why: Why::Again });
        }
    }

    /// Time for which an answer may be used without asking again.
    pub fn fresh_for(&self, what: &What, outcome: Outcome, now_ms: u64) -> Duration {
        let live = self.live.get();
        let live = &live.value;
        let until = |expires_ms: u64| Duration::from_millis(expires_ms.saturating_sub(now_ms)).min(live.cache_ttl);
        match what {
            What::Nothing if outcome == Outcome::Absent => live.absent_ttl,
            What::Nothing => live.unknown_ttl,
            What::Providers(providers) => {
                until(providers.iter().map(|provider| provider.record.expires_ms).min().unwrap_or(now_ms))
            }
            What::Name(record) => until(record.expires_ms),
            What::Peer(record) => until(record.expires_ms),
            What::Ipns(record) => {
                let own = record.ttl_ns().map_or(Duration::MAX, Duration::from_nanos);
                until(record.validity_ms()).min(own)
            }
        }
    }

    /// Keeps nothing of what was found about a query, because it changed.
    pub async fn forget(&self, query: &Query) {
        self.cache.forget(query).await;
    }
}

/// Records of the store that answer a question.
pub(crate) fn stored(store: &Store, question: &Question, now_ms: u64) -> Result<Vec<Record>, StoreError> {
    Ok(match question {
        Question::Providers(key) => {
            store.providers(key, now_ms, PROVIDERS_MAX)?.into_iter().map(Record::Provider).collect()
        }
        Question::Name { owner, label } => {
            store.name_or_withdrawal(owner, label, now_ms)?.map(Record::Name).into_iter().collect()
        }
        Question::Ipns(name) => store.ipns(name, now_ms)?.map(Record::Ipns).into_iter().collect(),
        Question::Peer(peer) => store.peer(peer, now_ms)?.map(Record::Peer).into_iter().collect(),
    })
}
