//! The task `warmup_prefetcher`: looks up at the start what is configured, and later what is worth a second look.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use ron_kernel::coalesce::Coalesce;
use ron_kernel::{Deadline, TaskContext, TaskResult, clock};
use ron_store::{ContentId, Key, Subject};
use ron_types::limits::index::{REFRESH_AT_ONCE, WARMUP_KEYS_MAX, WARMUP_WAIT, WATCHED_LOOKED_UP_PER_SECOND};
use tokio::time::{MissedTickBehavior, interval};

use crate::find::Asked;
use crate::query::{Breadth, Query};
use crate::shared::Shared;

/// Interval at which it is asked whether the network knows somebody.
const NETWORK_ASKED_EVERY: Duration = Duration::from_millis(250);

/// A question to be looked up again among all targets, not only until the first answer; or one whose providers are to
/// be probed.
pub(crate) struct Refresh {
    pub query: Query,
    /// What it is about, where that is content.
    pub content: Option<ContentId>,
    /// What it is about, for people.
    pub shown: String,
    pub why: Why,
}

/// What a refresh is for; the greater of two does what the lesser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Nothing is looked up, and only the providers that are known are asked for proof.
    Probe,
    /// Callers were given less than there may be. It is looked up unless somebody did since, so that a key many ask for
    /// costs one lookup while its answer is remembered.
    Partial,
    /// It is looked up in any case.
    Again,
}

impl Coalesce for Refresh {
    type Key = Query;

    fn key(&self) -> Query {
        self.query.clone()
    }

    fn absorb(&mut self, newer: Self) {
        // A lookup ends with a probe, so it does for both.
        *self = Refresh { why: self.why.max(newer.why), ..newer };
    }
}

/// Looks up what is configured, then what comes.
pub(crate) async fn warmup_prefetcher(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    let mut configured = subjects(&shared).await.into_iter();
    let is_wanted = configured.len() > 0;
    tokio::select! {
        biased;
        () = context.stopping() => return Ok(()),
        () = context.beating(network_is_there(&shared)), if is_wanted => {}
        () = std::future::ready(()), if !is_wanted => {}
    }
    let mut under_way = FuturesUnordered::new();
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while under_way.len() < REFRESH_AT_ONCE {
            let Some(refresh) = configured.next() else { break };
            under_way.push(look_again(&shared, refresh, false));
        }
        let has_room = under_way.len() < REFRESH_AT_ONCE;
        tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            Some(()) = under_way.next() => {}
            refresh = shared.refresh.recv(), if has_room => under_way.push(look_again(&shared, refresh, true)),
            _ = ticks.tick() => {
                let room = REFRESH_AT_ONCE.saturating_sub(under_way.len()).min(WATCHED_LOOKED_UP_PER_SECOND);
                let watched = shared.watchers.due(room).into_iter();
                under_way.extend(watched.map(|watched| look_again(&shared, watched, true)));
            }
            () = context.heartbeat() => {}
        }
    }
}

/// Waits a while for the network to know somebody: a lookup before that would find nobody to ask.
async fn network_is_there(shared: &Shared) {
    let Some(network) = &shared.options.network else { return };
    let until = Deadline::after(WARMUP_WAIT);
    while network.nearest(&Key([0; 32]), 1).is_empty() && !until.has_passed() {
        tokio::time::sleep(NETWORK_ASKED_EVERY).await;
    }
}

/// What is configured, and what is pinned.
async fn subjects(shared: &Shared) -> Vec<Refresh> {
    let read = |text: &String| {
        let subject = text.parse::<Subject>();
        if let Err(error) = &subject {
            tracing::warn!(key = text, %error, "a key of index.warmup_keys is left out");
        }
        subject.ok()
    };
    let pinned = shared.read(|store| store.pins(None, WARMUP_KEYS_MAX)).await.unwrap_or_default();
    let configured = shared.options.warmup_keys.iter().filter_map(read);
    let refresh = |subject: Subject| {
        let (query, content) = query(shared, &subject);
        Refresh { query, content, shown: subject.to_string(), why: Why::Again }
    };
    configured.chain(pinned.into_iter().map(|(subject, _)| subject)).map(refresh).collect()
}

/// The first question about a subject, and the content that it is about.
pub(crate) fn query(shared: &Shared, subject: &Subject) -> (Query, Option<ContentId>) {
    match subject {
        Subject::Content(content) => (Query::Providers(content.key()), Some(*content)),
        Subject::Name(name) => (Query::name(name, shared.node_key()), None),
    }
}

/// `again` asks all targets past cache and store; else the usual way is taken.
async fn look_again(shared: &Shared, refresh: Refresh, again: bool) {
    match refresh.why {
        Why::Probe => return shared.probe(&refresh.query, refresh.content).await,
        Why::Partial if shared.cache.get(&refresh.query).await.is_some_and(|known| known.reaches(Breadth::Wide)) => {
            return;
        }
        Why::Partial | Why::Again => {}
    }
    let asked = Asked {
        query: refresh.query,
        content: refresh.content,
        shown: &refresh.shown,
        breadth: if again { Breadth::Wide } else { Breadth::First },
        fresh: again,
        deadline: Deadline::at(clock::now() + shared.live.get().value.resolve_deadline),
        from: None,
    };
    let query = asked.query.clone();
    match shared.find(asked).await {
        Ok(answer) if answer.finding.reaches(Breadth::Wide) => {
            shared.watchers.tell_found(&query, &answer.finding.providers());
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, subject = refresh.shown, "not looked up ahead"),
    }
}
