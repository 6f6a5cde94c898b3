//! Deadlines: made once at the edge, carried inside the job, obeyed by every wait.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ron_types::Error;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use crate::clock;

/// The moment by which an answer must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `budget` from now.
    pub fn after(budget: Duration) -> Self {
        Deadline(clock::now() + budget)
    }

    /// The deadline at `instant`.
    pub fn at(instant: Instant) -> Self {
        Deadline(instant)
    }

    /// Time left; zero once the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(clock::now())
    }

    /// Whether no time is left.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// The earlier of two deadlines.
    pub fn sooner(self, other: Deadline) -> Deadline {
        self.min(other)
    }

    /// The deadline `margin` before this one.
    pub fn earlier_by(self, margin: Duration) -> Deadline {
        Deadline(self.0.checked_sub(margin).unwrap_or(self.0))
    }

    /// The instant of the deadline, for timers.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Waits for `future` no longer than the deadline; `op` names the wait in the error and in `io_timeouts_total`.
    pub fn run<F: Future>(self, op: &'static str, future: F) -> impl Future<Output = Result<F::Output, Error>> {
        wait(op, future, move || self.0)
    }
}

/// Waits for `future` no longer than this, reckoned from when it is first found to need waiting for; else the same as
/// [`Deadline::run`].
pub fn within<F: Future>(
    budget: Duration,
    op: &'static str,
    future: F,
) -> impl Future<Output = Result<F::Output, Error>> {
    wait(op, future, move || clock::now() + budget)
}

async fn wait<F: Future>(op: &'static str, future: F, until: impl Fn() -> Instant) -> Result<F::Output, Error> {
    let mut future = pin!(future);
    // Most waits are over when they begin, and do without a timer.
    let mut timer = pin!(None);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if timer.is_none() {
            // A future that has used up its share of the thread must not keep its deadline from being seen.
            timer.set(Some(unconstrained(sleep_until(until()))));
        }
        let elapsed = timer.as_mut().as_pin_mut().expect("it was set").poll(cx);
        elapsed.map(|()| Err(Error::timeout(op)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use ron_types::Kind;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_the_deadline_and_names_its_operation() {
        let deadline = Deadline::after(Duration::from_secs(2));
        let error = deadline.run("read", std::future::pending::<()>()).await.expect_err("nothing comes");
        assert_eq!(error.kind, Kind::Timeout);
        assert!(error.detail.contains("read"));
        assert!(deadline.has_passed());
        let began = clock::now();
        let error = within(Duration::from_secs(3), "write", std::future::pending::<()>()).await.expect_err("nor here");
        assert_eq!((error.kind, clock::now() - began), (Kind::Timeout, Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_passes_through() {
        assert_eq!(Deadline::after(Duration::from_secs(1)).run("read", async { 7 }).await, Ok(7));
    }
}
