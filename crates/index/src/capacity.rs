//! Whether there are enough resolvers: M >= ceil(lambda * E[service] / 0.7), over the last minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ron_kernel::clock;
use ron_types::limits::index::CAPACITY_WINDOW_S;
use tokio::time::Instant;

use crate::words::Capacity;

/// Share of their time that resolvers may be busy before waiting lookups pile up.
const UTILISATION_MAX: f64 = 0.7;

/// Sums since the start, as they were at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Lookups that came to the pool.
    pub arrived: u64,
    /// Lookups that a resolver was done with.
    pub served: u64,
    /// Microseconds resolvers had with them.
    pub service_us: u64,
    /// Answers out of the cache.
    pub hits: u64,
}

/// Sums of the last minute, one for each second.
pub(crate) struct LoadWindow {
    samples: Mutex<VecDeque<(Instant, Sums)>>,
}

impl LoadWindow {
    /// Begins now.
    pub fn new() -> Self {
        LoadWindow { samples: Mutex::new(VecDeque::from([(clock::now(), Sums::default())])) }
    }

    /// Notes the sums; the janitor does so once a second.
    pub fn sample(&self, sums: Sums) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back((clock::now(), sums));
        if samples.len() > CAPACITY_WINDOW_S {
            samples.pop_front();
        }
    }

    /// The rule, from the oldest sample to now.
    pub fn capacity(&self, now: Sums, workers: usize) -> Capacity {
        let oldest = self.samples.lock().unwrap_or_else(PoisonError::into_inner).front().copied();
        let (began, then) = oldest.unwrap_or_else(|| (clock::now(), now));
        let seconds = clock::now().saturating_duration_since(began).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let (lambda, hits) = (rate(now.arrived, then.arrived), rate(now.hits, then.hits));
        let served = now.served.saturating_sub(then.served);
        let service_us = now.service_us.saturating_sub(then.service_us);
        let service_s = if served == 0 { 0.0 } else { service_us as f64 / served as f64 / 1e6 };
        Capacity { lambda, service_s, hits, workers, workers_wanted: workers_wanted(lambda, service_s) }
    }
}

fn workers_wanted(lambda: f64, service_s: f64) -> usize {
    ((lambda * service_s / UTILISATION_MAX).ceil() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_rule_is_that_of_the_seed() {
        assert_eq!(workers_wanted(0.0, 0.0), 1);
        assert_eq!(workers_wanted(1000.0, 0.045), 65, "1000 * 0.045 / 0.7 = 64.3");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_minute_counts() {
        let load = LoadWindow::new();
        let mut sums = Sums::default();
        for _ in 0..200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            sums.arrived += 10;
            sums.served += 10;
            sums.service_us += 1_000_000;
            load.sample(sums);
        }
        let capacity = load.capacity(sums, 4);
        assert!((capacity.lambda - 10.0).abs() < 0.2, "{capacity:?}");
        assert!((capacity.service_s - 0.1).abs() < 1e-9 && capacity.workers_wanted == 2, "{capacity:?}");
    }
}
