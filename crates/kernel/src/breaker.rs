//! A circuit breaker: opens on the rolling error rate, tries again with single probes after a cool-down.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use ron_types::{Error, Kind};
use tokio::time::Instant;

use crate::clock;
use crate::metrics::Metrics;

/// Thresholds of a circuit breaker: when it opens and when it lets a probe through.
#[derive(Clone, Copy, Debug)]
pub struct BreakerLimits {
    /// Number of most recent outcomes that are judged.
    pub window: usize,
    /// Fewer outcomes than this never open it.
    pub calls_min: usize,
    /// Share of failures that opens it.
    pub failure_share: f32,
    /// Time between opening and the first probe.
    pub cool_down: Duration,
}

/// Circuit breaker of one call target.
#[derive(Debug)]
pub struct Breaker {
    target: &'static str,
    limits: BreakerLimits,
    opened: Counter,
    state: Mutex<Circuit>,
}

#[derive(Debug)]
enum Circuit {
    Closed {
        outcomes: VecDeque<bool>,
    },
    Open {
        until: Instant,
    },
    /// One probe is out; everybody else is refused until it comes back or its time is over.
    Probing {
        until: Instant,
    },
}

impl Breaker {
    /// A closed breaker for `target`, which labels its metrics.
    pub fn new(target: &'static str, limits: BreakerLimits, metrics: &Metrics) -> Self {
        let state = Mutex::new(Circuit::Closed { outcomes: VecDeque::with_capacity(limits.window) });
        Breaker { target, limits, opened: metrics.circuit_open.at(target), state }
    }

    /// Calls the target unless the circuit is open, and learns from the outcome.
    pub async fn call<T, F>(&self, operation: F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.admit()?;
        let result = operation.await;
        // A refusal that is the caller's own fault says nothing about the target.
        let failed = matches!(&result, Err(e) if !matches!(e.kind, Kind::Schema | Kind::NotFound | Kind::Conflict));
        self.learn(!failed);
        result
    }

    /// Whether calls are refused now.
    pub fn is_open(&self) -> bool {
        !matches!(*self.state(), Circuit::Closed { .. })
    }

    fn admit(&self) -> Result<(), Error> {
        let mut state = self.state();
        let now = clock::now();
        match *state {
            Circuit::Closed { .. } => Ok(()),
            Circuit::Open { until } | Circuit::Probing { until } if now >= until => {
                *state = Circuit::Probing { until: now + self.limits.cool_down };
                Ok(())
            }
            Circuit::Open { until } | Circuit::Probing { until } => {
                let mut error = Error::new(Kind::OpenCircuit, format!("{} keeps failing", self.target));
                error.retry_after = Some(until.saturating_duration_since(now));
                Err(error)
            }
        }
    }

    fn learn(&self, ok: bool) {
        let mut state = self.state();
        let opens = match &mut *state {
            Circuit::Closed { outcomes } => {
                if outcomes.len() == self.limits.window {
                    outcomes.pop_front();
                }
                outcomes.push_back(ok);
                let failures = outcomes.iter().filter(|ok| !**ok).count();
                outcomes.len() >= self.limits.calls_min
                    && failures as f32 >= self.limits.failure_share * outcomes.len() as f32
            }
            Circuit::Probing { .. } if ok => {
                *state = Circuit::Closed { outcomes: VecDeque::with_capacity(self.limits.window) };
                false
            }
            Circuit::Probing { .. } => true,
            Circuit::Open { .. } => false,
        };
        if opens {
            *state = Circuit::Open { until: clock::now() + self.limits.cool_down };
            self.opened.inc();
        }
    }

    fn state(&self) -> MutexGuard<'_, Circuit> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits =
        BreakerLimits { window: 10, calls_min: 4, failure_share: 0.5, cool_down: Duration::from_secs(5) };

    async fn call(breaker: &Breaker, ok: bool) -> Option<Kind> {
        let outcome = if ok { Ok(()) } else { Err(Error::timeout("rpc")) };
        breaker.call(async { outcome }).await.err().map(|error| error.kind)
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_on_failures_probes_once_and_closes_on_success() {
        let metrics = Metrics::new();
        let breaker = Breaker::new("ledger", LIMITS, &metrics);
        for ok in [true, true, false] {
            call(&breaker, ok).await;
        }
        assert!(!breaker.is_open(), "too few calls to judge");
        assert_eq!(call(&breaker, false).await, Some(Kind::Timeout));
        assert_eq!(call(&breaker, true).await, Some(Kind::OpenCircuit), "open: not even tried");
        tokio::time::advance(LIMITS.cool_down).await;
        assert_eq!(call(&breaker, false).await, Some(Kind::Timeout), "the probe fails");
        assert_eq!(call(&breaker, true).await, Some(Kind::OpenCircuit));
        tokio::time::advance(LIMITS.cool_down).await;
        assert_eq!(call(&breaker, true).await, None, "the probe succeeds");
        assert!(!breaker.is_open());
        assert_eq!(metrics.circuit_open.at("ledger").get(), 2);
    }
}
