//! How fast each tenant may go: one token bucket for each, in a table of bounded size.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ron_types::{Error, Kind};
use tokio::time::Instant;

use crate::clock;

/// What a bucket holds at most: the units of this time. It is what a tenant may save up for a burst.
const BURST: Duration = Duration::from_secs(1);

/// Shortest time between two searches for places in a full table: each looks at every tenant.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// Shortest wait a refusal names, so that nobody comes back at once.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);

/// The rates of all tenants.
///
/// A bucket is kept as the time at which it will be full again. A full bucket is no different from one that was never
/// used, so forgetting it gives nobody anything; no other bucket is ever forgotten. A table full of tenants who are
/// all in use has no place for another one, who is told to come back.
#[derive(Debug)]
pub struct TenantRates {
    unit: &'static str,
    tenants_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// When the bucket of each tenant is full again.
    full_at: HashMap<Box<str>, Instant>,
    swept_at: Option<Instant>,
}

impl TenantRates {
    /// An empty table for this many tenants; `unit` is what is counted, as refusals name it.
    pub fn new(unit: &'static str, tenants_max: usize) -> Self {
        TenantRates { unit, tenants_max, table: Mutex::default() }
    }

    /// Takes units of a tenant that may use `per_second` of them in a second, or says when to come back. More units
    /// than a bucket holds pass when it is full, and the tenant then waits as long as they are worth.
    pub fn take(&self, tenant: &str, per_second: u64, units: u32) -> Result<(), Error> {
        let now = clock::now();
        let Some(cost) = time_of(units, per_second) else {
            return Err(Error::busy(format_args!("the rate of {tenant}, which is 0")));
        };
        let mut table = self.lock();
        if let Some(full_at) = table.full_at.get_mut(tenant) {
            return admit(full_at, now, cost).map_err(|wait| self.too_fast(tenant, per_second, wait));
        }
        if table.full_at.len() >= self.tenants_max {
            table.sweep(now);
        }
        if table.full_at.len() >= self.tenants_max {
            return Err(refused(format!("there is no room for the rate of {tenant}"), SWEEP_EVERY));
        }
        // The bucket of somebody new is full, and a full one lets everything pass.
        table.full_at.insert(tenant.into(), now + cost);
        Ok(())
    }

    fn too_fast(&self, tenant: &str, per_second: u64, wait: Duration) -> Error {
        refused(format!("{tenant} may use {per_second} {} in a second", self.unit), wait)
    }

    /// Nothing that runs under this lock panics, so that a poisoned table is whole.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets the full buckets, unless somebody has just looked for them.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_none_or(|swept_at| now.saturating_duration_since(swept_at) >= SWEEP_EVERY) {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept_at = Some(now);
        }
    }
}

/// The time in which a bucket gains this many units; none if it never does. Whole nanoseconds, not fractions of units:
/// whoever waits as long as it was told is then let in, to the nanosecond.
fn time_of(units: u32, per_second: u64) -> Option<Duration> {
    let nanos = u64::from(units) * Duration::from_secs(1).as_nanos() as u64;
    nanos.checked_div(per_second).map(Duration::from_nanos)
}

/// Takes what a cost is worth from a bucket, or says how long it takes until that much is in it.
fn admit(full_at: &mut Instant, now: Instant, cost: Duration) -> Result<(), Duration> {
    let missing = full_at.saturating_duration_since(now);
    let needed = missing + cost.min(BURST);
    if needed > BURST {
        return Err(needed - BURST);
    }
    *full_at = now + missing + cost;
    Ok(())
}

fn refused(detail: String, wait: Duration) -> Error {
    let mut error = Error::new(Kind::Busy, detail);
    error.retry_after = Some(wait.max(RETRY_AFTER_MIN));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(result: Result<(), Error>) -> Option<Duration> {
        result.err().map(|error| {
            assert_eq!(error.kind, Kind::Busy);
            error.retry_after.expect("a refusal says when to come back")
        })
    }

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn each_tenant_has_its_own_rate_and_gets_it_back_with_time() {
        let rates = TenantRates::new("messages", 10);
        assert_eq!(wait(rates.take("slow", 10, 10)), None, "a second's worth at once");
        assert_eq!(wait(rates.take("slow", 10, 1)), Some(100 * MS));
        assert_eq!(wait(rates.take("other", 10, 1)), None, "one tenant does not slow another");
        tokio::time::advance(100 * MS).await;
        assert_eq!(wait(rates.take("slow", 10, 1)), None);
        assert_eq!(wait(rates.take("slow", 10, 2)), Some(200 * MS), "a refusal takes nothing");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(wait(rates.take("slow", 10, 10)), None);
        assert_eq!(wait(rates.take("slow", 10, 1)), Some(100 * MS), "no more than a second's worth is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_as_told_is_let_in() {
        for (per_second, units) in [(1, 1), (3, 2), (7, 5), (999, 100), (1_000_003, 70_000)] {
            let rates = TenantRates::new("messages", 1);
            for _ in 0..50 {
                if let Some(wait) = wait(rates.take("t", per_second, units)) {
                    tokio::time::advance(wait).await;
                    rates.take("t", per_second, units).expect("the wait was long enough");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_bucket_holds_passes_once_and_is_paid_for() {
        let rates = TenantRates::new("messages", 10);
        assert_eq!(wait(rates.take("t", 10, 35)), None);
        assert_eq!(wait(rates.take("t", 10, 1)), Some(2600 * MS));
        tokio::time::advance(3499 * MS).await;
        assert_eq!(wait(rates.take("t", 10, 35)), Some(MS), "it needs a full bucket");
        tokio::time::advance(MS).await;
        assert_eq!(wait(rates.take("t", 10, u32::MAX)), None);
        assert!(rates.take("nothing", 0, 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_a_crowd_gives_nobody_a_new_bucket() {
        let rates = TenantRates::new("messages", 3);
        for tenant in ["a", "b", "c"] {
            rates.take(tenant, 10, 10).expect("new");
        }
        for number in 0..1000 {
            assert!(wait(rates.take(&format!("stranger{number}"), 10, 1)).is_some());
        }
        assert_eq!(rates.lock().full_at.len(), 3);
        assert_eq!(wait(rates.take("a", 10, 1)), Some(100 * MS), "its bucket is as empty as it was");
        tokio::time::advance(500 * MS).await;
        rates.take("a", 10, 5).expect("half of it is back");
        tokio::time::advance(500 * MS).await;
        rates.take("d", 10, 1).expect("those of b and c are full and forgotten");
        assert_eq!(rates.lock().full_at.len(), 2);
        assert_eq!(wait(rates.take("a", 10, 6)), Some(100 * MS), "what is in use is not forgotten");
        rates.take("b", 10, 10).expect("a full bucket was lost, a full one is made");
        assert_eq!(wait(rates.take("b", 10, 1)), Some(100 * MS));
    }
}
