//! Providers as they become known: the first is handed on before the second is found.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ron_kernel::Deadline;
use ron_store::{ContentId, PeerId, PublicKey};
use ron_types::Error;

use crate::find::{Asked, Begun};
use crate::flights::{Progress, Waiter};
use crate::query::{Breadth, Finding, Query};
use crate::shared::Shared;
use crate::words::{Outcome, RankedProvider};
use crate::work::Asker;

/// A search for providers under way.
pub struct ProviderStream {
    state: State,
    /// Providers that wait to be handed on.
    ready: VecDeque<RankedProvider>,
    /// Providers that were handed on, by who they are and who says so.
    sent: BTreeSet<(PeerId, PublicKey)>,
    left: usize,
    outcome: Option<Outcome>,
}

enum State {
    /// A lookup goes on.
    UnderWay {
        waiter: Waiter,
        search: Search,
        /// Lookups that were joined or begun so far.
        joins: usize,
    },
    /// Nothing more comes.
    Ended,
}

/// What is searched for, so that the search can go on when whoever led its lookup has left.
pub(crate) struct Search {
    pub shared: Arc<Shared>,
    pub content: ContentId,
    pub fresh: bool,
    pub deadline: Deadline,
    /// Who asks.
    pub from: Asker,
}

impl Search {
    /// Answers from the cache or the store, or joins or begins the lookup.
    pub async fn begin(&self) -> Result<Begun, Error> {
        let query = Query::Providers(self.content.key());
        let (breadth, fresh, deadline) = (Breadth::Wide, self.fresh, self.deadline);
        let (content, shown) = (Some(self.content), &self.content);
        self.shared.begin(&Asked { query, content, shown, breadth, fresh, deadline, from: self.from }).await
    }
}

impl ProviderStream {
    /// A stream of what is known already.
    pub(crate) fn of(finding: &Finding, max: usize) -> Self {
        let mut stream = ProviderStream::new(State::Ended, max);
        stream.take(&finding.providers());
        stream.outcome = Some(finding.outcome);
        stream
    }

    /// A stream of what a lookup finds until the deadline.
    pub(crate) fn under_way(waiter: Waiter, search: Search, max: usize) -> Self {
        ProviderStream::new(State::UnderWay { waiter, search, joins: 1 }, max)
    }

    fn new(state: State, max: usize) -> Self {
        ProviderStream { state, ready: VecDeque::new(), sent: BTreeSet::new(), left: max, outcome: None }
    }

    /// The next provider; none at the end. Busy or Canceled if the search never began or was broken off. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<RankedProvider>, Error> {
        loop {
            if self.left == 0 {
                self.state = State::Ended;
                self.ready.clear();
                self.outcome.get_or_insert(Outcome::Found);
            }
            if let Some(provider) = self.ready.pop_front() {
                self.left -= 1;
                return Ok(Some(provider));
            }
            let State::UnderWay { waiter, search, joins } = &mut self.state else { return Ok(None) };
            let progress = waiter.changed(search.deadline).await;
            let broken_off = progress.as_ref().and_then(|progress| progress.end.as_ref()?.as_ref().err());
            if broken_off.is_some_and(|error| search.shared.may_join_again(error, *joins)) {
                // Dropped in the middle of this, the stream finds the same end again the next time.
                match search.begin().await {
                    Ok(Begun::UnderWay(next)) => (*waiter, *joins) = (next, *joins + 1),
                    Ok(Begun::Known(answer)) => {
                        self.take(&answer.finding.providers());
                        self.end(answer.finding.outcome);
                    }
                    Err(error) => {
                        self.end(Outcome::Unknown);
                        return Err(error);
                    }
                }
                continue;
            }
            self.advance(progress)?;
        }
    }

    /// How the search ended; none before the stream did.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.filter(|_| self.ready.is_empty())
    }

    fn advance(&mut self, progress: Option<Progress>) -> Result<(), Error> {
        let Some(progress) = progress else {
            self.end(if self.sent.is_empty() { Outcome::Unknown } else { Outcome::Found });
            return Ok(());
        };
        self.take(&progress.partial);
        match progress.end {
            Some(Ok(finding)) => {
                self.take(&finding.providers());
                self.end(finding.outcome);
            }
            Some(Err(error)) => {
                self.end(Outcome::Unknown);
                return Err(error);
            }
            None => {}
        }
        Ok(())
    }

    fn end(&mut self, outcome: Outcome) {
        self.state = State::Ended;
        self.outcome = Some(outcome);
    }

    fn take(&mut self, providers: &Arc<[RankedProvider]>) {
        for provider in providers.iter() {
            if self.sent.insert((provider.record.peer, provider.record.signer)) {
                self.ready.push_back(provider.clone());
            }
        }
    }
}
