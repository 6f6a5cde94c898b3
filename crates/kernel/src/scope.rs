//! Short-lived children of a task, one per connection: bounded in number, counted, and ended with their parent.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::deadline::Deadline;
use crate::metrics::Metrics;

/// The children of one task. Dropping it aborts them all.
pub struct Children {
    kind: &'static str,
    limit: usize,
    set: JoinSet<()>,
    spawned: prometheus_client::metrics::counter::Counter,
    completed: prometheus_client::metrics::counter::Counter,
    aborted: prometheus_client::metrics::counter::Counter,
}

impl Children {
    /// At most `limit` children of this kind at once.
    pub fn new(kind: &'static str, limit: usize, metrics: &Metrics) -> Self {
        Children {
            kind,
            limit,
            set: JoinSet::new(),
            spawned: metrics.tasks_spawned.at(kind),
            completed: metrics.tasks_completed.at(kind),
            aborted: metrics.tasks_aborted.at(kind),
        }
    }

    /// Number of tasks that are alive or not yet reaped.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Starts a child; false, and nothing started, if the limit is reached.
    pub fn spawn(&mut self, child: impl Future<Output = ()> + Send + 'static) -> bool {
        self.reap();
        if self.set.len() >= self.limit {
            return false;
        }
        self.spawned.inc();
        self.set.spawn(child);
        true
    }

    /// Waits for all children until the deadline, then aborts the rest; returns how many were aborted.
    pub async fn finish(&mut self, deadline: Deadline) -> usize {
        while !self.set.is_empty() {
            match deadline.run("children", self.set.join_next()).await {
                Ok(Some(ended)) => self.count(&ended),
                Ok(None) => break,
                Err(_) => return self.abort_rest().await,
            }
        }
        0
    }

    async fn abort_rest(&mut self) -> usize {
        self.set.abort_all();
        let left = self.set.len();
        tracing::warn!(kind = self.kind, left, "children did not end in time and are aborted");
        self.aborted.inc_by(left as u64);
        let grace = Deadline::after(Duration::from_millis(100));
        while let Ok(Some(_)) = grace.run("abort", self.set.join_next()).await {}
        left
    }

    fn reap(&mut self) {
        while let Some(ended) = self.set.try_join_next() {
            self.count(&ended);
        }
    }

    fn count(&self, ended: &Result<(), tokio::task::JoinError>) {
        self.completed.inc();
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(kind = self.kind, %error, "a child panicked");
        }
    }
}
