//! Lookups under way: however many ask for one key, one looks, and all of them get what it finds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_kernel::Deadline;
use ron_types::Error;
use tokio::sync::watch;

use crate::query::{Breadth, Finding, Query};
use crate::words::RankedProvider;

/// What callers are told of a lookup that nobody ends.
const GIVEN_UP: &str = "the lookup was given up before it ended";

/// All lookups under way.
#[derive(Default)]
pub(crate) struct Flights {
    table: Mutex<HashMap<FlightKey, Arc<Flight>>>,
}

/// Callers with equal keys share a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlightKey {
    pub query: Query,
    pub breadth: Breadth,
    /// Whether it goes past the store: who wants that cannot share with who does not.
    pub fresh: bool,
}

struct Flight {
    key: FlightKey,
    progress: watch::Sender<Progress>,
}

/// How far a lookup has come.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    /// Providers known so far.
    pub partial: Arc<[RankedProvider]>,
    /// Set once, at the end.
    pub end: Option<Result<Arc<Finding>, Error>>,
}

/// One caller of a lookup. A lookup that loses its last caller is given up.
pub(crate) struct Waiter {
    progress: watch::Receiver<Progress>,
}

/// What a caller's wait led to.
pub(crate) enum Waited {
    /// The lookup ended.
    Ended(Result<Arc<Finding>, Error>),
    /// The caller's time was over first; this was known by then.
    TimedOut(Arc<[RankedProvider]>),
}

/// The right and the duty to end a lookup. Dropped before that, it tells the callers that nobody looks any more.
pub(crate) struct Leader {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    has_ended: bool,
}

impl Flights {
    /// Joins the lookup of this key; whoever comes first leads it.
    pub fn join(self: &Arc<Self>, key: FlightKey) -> (Waiter, Option<Leader>) {
        let mut table = self.lock();
        if let Some(flight) = table.get(&key) {
            let mut progress = flight.progress.subscribe();
            // What is known so far is news to whoever joins.
            progress.mark_changed();
            return (Waiter { progress }, None);
        }
        let flight = Arc::new(Flight { key: key.clone(), progress: watch::Sender::new(Progress::default()) });
        table.insert(key, Arc::clone(&flight));
        let waiter = Waiter { progress: flight.progress.subscribe() };
        (waiter, Some(Leader { flights: Arc::clone(self), flight, has_ended: false }))
    }

    /// Lookups under way.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FlightKey, Arc<Flight>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(table: &mut HashMap<FlightKey, Arc<Flight>>, flight: &Arc<Flight>) {
        if table.get(&flight.key).is_some_and(|other| Arc::ptr_eq(other, flight)) {
            table.remove(&flight.key);
        }
    }
}

impl Leader {
    /// What is looked for.
    pub fn key(&self) -> &FlightKey {
        &self.flight.key
    }

    /// Tells the callers what is known so far.
    pub fn progress(&self, partial: Arc<[RankedProvider]>) {
        self.flight.progress.send_modify(|progress| progress.partial = partial);
    }

    /// Ends the lookup: whoever asks from now on begins a new one.
    pub fn end(mut self, result: Result<Arc<Finding>, Error>) {
        self.has_ended = true;
        Flights::remove(&mut self.flights.lock(), &self.flight);
        self.flight.progress.send_modify(|progress| progress.end = Some(result));
    }

    /// Resolves when the last caller has gone. The lookup is then out of the table: nobody can join it any more.
    pub async fn abandoned(&self) {
        loop {
            self.flight.progress.closed().await;
            let mut table = self.flights.lock();
            // A caller may have joined since the last one left; they do so under this lock.
            if self.flight.progress.receiver_count() == 0 {
                Flights::remove(&mut table, &self.flight);
                return;
            }
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.has_ended {
            Flights::remove(&mut self.flights.lock(), &self.flight);
            let error = Error::canceled(GIVEN_UP);
            self.flight.progress.send_modify(|progress| progress.end = Some(Err(error)));
        }
    }
}

impl Waiter {
    /// The end of the lookup, or what is known when the caller's time is over.
    pub async fn end(&mut self, deadline: Deadline) -> Waited {
        // The leader ends a flight before it goes, so the channel never closes without an end.
        let has_ended = async {
            let progress = self.progress.wait_for(|progress| progress.end.is_some()).await;
            progress.ok().and_then(|progress| progress.end.clone())
        };
        match deadline.run("resolve", has_ended).await {
            Ok(end) => Waited::Ended(end.unwrap_or_else(|| Err(Error::canceled(GIVEN_UP)))),
            Err(_) => Waited::TimedOut(Arc::clone(&self.progress.borrow().partial)),
        }
    }

    /// What is known when it next differs from what this caller has seen; none when the time is over. Cancel-safe.
    pub async fn changed(&mut self, deadline: Deadline) -> Option<Progress> {
        match deadline.run("resolve", self.progress.changed()).await {
            Ok(Ok(())) => Some(self.progress.borrow_and_update().clone()),
            Ok(Err(_)) => {
                let mut last = self.progress.borrow().clone();
                last.end.get_or_insert_with(|| Err(Error::canceled(GIVEN_UP)));
                Some(last)
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ron_kernel::clock;
    use ron_store::Key;

    use super::*;
    use crate::words::Outcome;

    fn key() -> FlightKey {
        FlightKey { query: Query::Providers(Key([7; 32])), breadth: Breadth::First, fresh: false }
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_all_get_its_end() {
        let flights = Arc::new(Flights::default());
        let (mut first, leader) = flights.join(key());
        let (mut second, nobody) = flights.join(key());
        assert!(nobody.is_none());
        leader.expect("the first leads").end(Ok(Arc::new(Finding::nothing(Outcome::Absent, clock::now()))));
        for waiter in [&mut first, &mut second] {
            let Waited::Ended(Ok(finding)) = waiter.end(Deadline::after(Duration::ZERO)).await else { panic!("ended") };
            assert_eq!(finding.outcome, Outcome::Absent);
        }
        assert_eq!(flights.len(), 0);
        assert!(flights.join(key()).1.is_some(), "what ended is not joined");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_goes_tells_its_callers() {
        let flights = Arc::new(Flights::default());
        let (mut waiter, leader) = flights.join(key());
        drop(leader);
        let Waited::Ended(Err(error)) = waiter.end(Deadline::after(Duration::from_secs(1))).await else { panic!() };
        assert_eq!((error.kind, flights.len()), (ron_types::Kind::Canceled, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_without_callers_is_abandoned_but_not_one_that_was_joined_again() {
        let flights = Arc::new(Flights::default());
        let (waiter, leader) = flights.join(key());
        let leader = leader.expect("the first leads");
        let second = flights.join(key()).0;
        drop(waiter);
        let soon = Deadline::after(Duration::from_secs(1));
        assert!(soon.run("wait", leader.abandoned()).await.is_err(), "somebody still waits");
        drop(second);
        leader.abandoned().await;
        assert_eq!(flights.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_whose_time_is_over_gets_what_is_known() {
        let flights = Arc::new(Flights::default());
        let (mut waiter, _leader) = flights.join(key());
        let began = clock::now();
        let Waited::TimedOut(partial) = waiter.end(Deadline::after(Duration::from_millis(70))).await else { panic!() };
        assert_eq!((partial.len(), clock::now() - began), (0, Duration::from_millis(70)));
    }
}
