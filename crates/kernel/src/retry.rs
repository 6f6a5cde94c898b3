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
    /// Names the operation in `backoff_retries_total`.
    pub op: &'static str,
    /// Why doing it twice is harmless.
    pub because: &'static str,
}

/// A random duration in `[low, high]`.
pub fn jitter(low: Duration, high: Duration) -> Duration {
    let span = high.saturating_sub(low).as_micros() as u64;
    // A fresh RandomState is seeded by the system; its hash of nothing is random enough to spread retries.
    let random = RandomState::new().build_hasher().finish();
    low + Duration::from_micros(if span == 0 { 0 } else { random % (span + 1) })
}

/// The wait before try number `tries + 1`: the first window doubled each time, up to the cap.
pub fn backoff(tries: u32) -> Duration {
    let (low, high) = limits::RETRY_JITTER;
    let factor = 1u32 << tries.saturating_sub(1).min(10);
    jitter((low * factor).min(limits::RETRY_CAP / 2), (high * factor).min(limits::RETRY_CAP))
}

impl Idempotent {
    /// Calls `attempt` up to three times, never past the deadline, as long as the error's advice allows it.
    pub async fn retry<T, F>(
        self,
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
            let wait = backoff(tries);
            let pointless =
                matches!(error.kind.retry(), Retry::No | Retry::WithNewToken) || error.kind == Kind::Timeout;
            if pointless || tries >= limits::RETRY_TRIES_MAX || deadline.remaining() <= wait {
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
            .retry(Deadline::after(Duration::from_millis(budget_ms)), &metrics, |attempt| {
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
            assert!(backoff(tries) <= limits::RETRY_CAP);
        }
        assert!(backoff(1) >= limits::RETRY_JITTER.0);
    }
}
