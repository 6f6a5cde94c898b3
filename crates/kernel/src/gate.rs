//! Facet permits, asked for without waiting.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use ron_types::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::deadline::Deadline;
use crate::metrics::Metrics;
use crate::spec::GateSpec;

/// The permits of one facet. Clones share them.
#[derive(Clone, Debug)]
pub struct Gate {
    spec: &'static GateSpec,
    permits: usize,
    semaphore: Arc<Semaphore>,
    busy: Counter,
    timeouts: Counter,
}

impl Gate {
    /// A gate with this many permits.
    pub(crate) fn new(spec: &'static GateSpec, permits: usize, metrics: &Metrics) -> Self {
        Gate {
            spec,
            permits,
            semaphore: Arc::new(Semaphore::new(permits)),
            busy: metrics.facet_busy.at(spec.facet),
            timeouts: metrics.facet_deadline_timeouts.at(spec.facet),
        }
    }

    /// Takes permits now or says Busy; never waits.
    pub fn try_acquire(&self, units: u32) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.semaphore).try_acquire_many_owned(units).map_err(|_| {
            self.busy.inc();
            Error::busy(format_args!("facet {}", self.spec.facet))
        })
    }

    /// Runs facet work under one permit and the caller's deadline.
    pub async fn run<F: Future>(&self, deadline: Deadline, work: F) -> Result<F::Output, Error> {
        let _permit = self.try_acquire(1)?;
        deadline.run(self.spec.facet, work).await.inspect_err(|_| {
            self.timeouts.inc();
        })
    }

    /// The declaration it was made from.
    pub fn spec(&self) -> &'static GateSpec {
        self.spec
    }

    /// Number of permits, in use or free.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Permits in use, read from the semaphore itself.
    pub fn in_flight(&self) -> usize {
        self.permits - self.semaphore.available_permits()
    }

    /// Number of refusals since the start.
    pub fn busy(&self) -> u64 {
        self.busy.get()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ron_types::Kind;

    const SEARCH: GateSpec = GateSpec { facet: "search", name: "search_qps", permits_per_cpu: 4, does: "queries" };

    #[tokio::test(start_paused = true)]
    async fn a_gate_refuses_at_once_and_counts_refusals_and_timeouts() {
        let metrics = Metrics::new();
        let gate = Gate::new(&SEARCH, 2, &metrics);
        let held = gate.try_acquire(2).expect("free");
        assert_eq!(gate.in_flight(), 2);
        assert_eq!(gate.try_acquire(1).expect_err("taken").kind, Kind::Busy);
        drop(held);
        let deadline = Deadline::after(Duration::from_millis(5));
        assert_eq!(gate.run(deadline, std::future::pending::<()>()).await.expect_err("stuck").kind, Kind::Timeout);
        assert_eq!((gate.in_flight(), gate.busy()), (0, 1));
        assert_eq!(metrics.facet_deadline_timeouts.at("search").get(), 1);
    }
}
