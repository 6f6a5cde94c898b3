//! Retries with jittered backoff, only where the call site declares that doing it twice is harmless.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use ron_types::error::Retry;
use ron_types::{Error, Kind, limits};

use crate::deadline::Deadline;
use crate::metrics::Metrics;

/// A declaration by the call site that the operation may be done twice. There is no other way to get a retry.
#[derive(Clone, Copy, Debug)]
pub struct Idempotent {
    /// Label of the operation in `backoff_retries_total`.
    pub op: &'static str,
    /// Reason why doing the operation twice is harmless.
    pub because: &'static str,
}

/// Number and pace of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// The first wait is drawn from this window.
    pub first_wait: (Duration, Duration),
    /// Maximum wait between two tries.
    pub cap: Duration,
    /// Tries in all, the first one included.
    pub tries_max: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        RetryLimits { first_wait: limits::RETRY_JITTER, cap: limits::RETRY_CAP, tries_max: limits::RETRY_TRIES_MAX }
    }
}

/// A random duration in `[low, high]`.
pub fn jitter(low: Duration, high: Duration) -> Duration {
    let span = high.saturating_sub(low).as_micros() as u64;
    // A fresh RandomState is seeded by the system; its hash of nothing is random enough to spread retries.
    let random = RandomState::new().build_hasher().finish();
    low + Duration::from_micros(if span == 0 { 0 } else { random % (span + 1) })
}

impl RetryLimits {
    /// The wait before try number `tries + 1`: the first window doubled each time, up to the cap.
    pub fn wait(&self, tries: u32) -> Duration {
        let (low, high) = self.first_wait;
        let factor = 1u32 << tries.saturating_sub(1).min(10);
        jitter((low * factor).min(self.cap / 2), (high * factor).min(self.cap))
    }
}

impl Idempotent {
    /// Calls `attempt` again within the limits, never past the deadline, as long as the error's advice allows it.
    pub async fn retry<T, F>(
        self,
        limits: RetryLimits,
        deadline: Deadline,
        metrics: &Metrics,
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = 1;
        loop {
            let error = match attempt(tries).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = limits.wait(tries);
            let pointless =
                matches!(error.kind.retry(), Retry::No | Retry::WithNewToken) || error.kind == Kind::Timeout;
            if pointless || tries >= limits.tries_max || deadline.remaining() <= wait {
                return Err(error);
            }
            metrics.backoff_retries.at(self.op).inc();
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Idempotent = Idempotent { op: "read", because: "a read changes nothing" };

    async fn tries_until(kind: Kind, budget_ms: u64) -> u32 {
        let metrics = Metrics::new();
        let mut seen = 0;
        let result: Result<(), Error> = READ
            .retry(RetryLimits::default(), Deadline::after(Duration::from_millis(budget_ms)), &metrics, |attempt| {
                seen = attempt;
                async move { Err(Error::new(kind, "no")) }
            })
            .await;
        assert_eq!(result.expect_err("never succeeds").kind, kind);
        assert_eq!(metrics.backoff_retries.at("read").get(), u64::from(seen - 1));
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn tries_are_bounded_by_count_deadline_and_advice() {
        assert_eq!(tries_until(Kind::Busy, 10_000).await, limits::RETRY_TRIES_MAX);
        assert_eq!(tries_until(Kind::Busy, 10).await, 1, "no time left to wait");
        assert_eq!(tries_until(Kind::Schema, 10_000).await, 1, "the same request fails again");
    }

    #[test]
    fn the_wait_grows_within_its_cap() {
        for tries in 1..40 {
            assert!(RetryLimits::default().wait(tries) <= limits::RETRY_CAP);
        }
        assert!(RetryLimits::default().wait(1) >= limits::RETRY_JITTER.0);
    }
}
