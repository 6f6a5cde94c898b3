//! What services did for whom: counters by tenant and metric, which services add to and one reader takes.
//!
//! A service asks the [`Builder`](crate::Builder) or the [`KernelHandle`](crate::KernelHandle) for the [`Meter`] and
//! says `meter.count(tenant, "store.messages_sent", 1)`; who reads it, and what becomes of the sums, is not its
//! concern.

use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::{DefaultHashBuilder, HashTable};
use prometheus_client::metrics::counter::Counter as Metric;
use ron_cells::{Budget, Tally};

use crate::metrics::Metrics;

/// Rows that a node counts by name: pairs of a tenant and a metric.
pub const ROWS_MAX: usize = 100_000;
/// Maximum bytes of a tenant's name; longer ones count as [`OTHER`].
pub const TENANT_BYTES_MAX: usize = 256;
/// Tenant under which everything beyond the bounds is counted. No subject of a token can have this name.
pub const OTHER: &str = ron_types::names::OTHER_TENANTS;
/// Tenant of work that nobody has to prove a name for.
pub const ANONYMOUS: &str = ron_types::names::ANONYMOUS;

/// Parts of the table, so that callers on different cores seldom meet at one lock. A power of two.
const SHARDS: usize = 64;

/// Counts what services do for tenants. Clones are the same meter; the clone of a handle costs one reference.
#[derive(Clone)]
pub struct Meter {
    inner: Arc<Inner>,
}

/// One row of the meter, found once and then added to without a look-up.
#[derive(Clone)]
pub struct Counter {
    tally: Arc<Tally>,
}

struct Inner {
    /// Set once somebody reads the sums; until then nothing is counted, so that a node without a reader pays nothing.
    is_read: OnceLock<()>,
    hasher: DefaultHashBuilder,
    shards: [RwLock<HashTable<Tenant>>; SHARDS],
    /// Rows in all shards, without those of [`OTHER`].
    rows: Budget,
    /// Amounts that went to [`OTHER`].
    overflowed: Metric,
}

struct Tenant {
    name: Arc<str>,
    /// A handful for each service, so that looking along them is as quick as hashing.
    tallies: Vec<(&'static str, Arc<Tally>)>,
}

impl Meter {
    /// A meter that nobody reads yet, of at most [`ROWS_MAX`] rows.
    pub fn new(metrics: &Metrics) -> Self {
        Meter::with_rows(ROWS_MAX, metrics)
    }

    /// A meter of at most `rows_max` rows.
    pub fn with_rows(rows_max: usize, metrics: &Metrics) -> Self {
        let shards = std::array::from_fn(|_| RwLock::default());
        let (is_read, hasher, rows) = (OnceLock::new(), DefaultHashBuilder::default(), Budget::new(rows_max));
        let overflowed = metrics.meter_overflow.clone();
        Meter { inner: Arc::new(Inner { is_read, hasher, shards, rows, overflowed }) }
    }

    /// Adds to a row. The metric is `service.what`, counted in the unit that its name says.
    ///
    /// One hash, one shared lock of one shard, one addition: about 40 ns on the machine this was measured on.
    #[inline]
    pub fn count(&self, tenant: &str, metric: &'static str, amount: u64) {
        if amount > 0 && self.is_read() {
            self.inner.count(tenant, metric, amount);
        }
    }

    /// The row itself, for a caller that adds to the same one again and again. It counts also while nobody reads.
    pub fn counter(&self, tenant: &str, metric: &'static str) -> Counter {
        Counter { tally: self.inner.tally(tenant, metric) }
    }

    /// Whether anything counted is ever read.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.inner.is_read.get().is_some()
    }

    /// Begins to count: somebody will take the sums from now on. Saying so twice is saying it once.
    pub fn begin(&self) {
        self.inner.is_read.get_or_init(|| ());
    }

    /// Takes all sums: each amount is shown to one take. Rows that nothing was added to, and whose [`Counter`]s are all
    /// gone, are forgotten, so that the bound is on those that are active.
    pub fn take(&self, visit: &mut dyn FnMut(&str, &'static str, u64)) {
        self.inner.shards.iter().for_each(|shard| self.inner.take(&mut write(shard), visit));
    }

    /// Rows held now.
    pub fn rows(&self) -> usize {
        let tenants =
            |shard: &RwLock<HashTable<Tenant>>| read(shard).iter().map(|row| row.tallies.len()).sum::<usize>();
        self.inner.shards.iter().map(tenants).sum()
    }
}

impl Counter {
    /// Adds to the row.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.tally.add(amount);
    }
}

impl Inner {
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Tenant>> {
        // The table below uses the high and the low bits; these are in the middle.
        &self.shards[(hash >> 24) as usize % SHARDS]
    }

    fn count(&self, tenant: &str, metric: &'static str, amount: u64) {
        let hash = self.hasher.hash_one(tenant);
        // Added under the lock: a take that forgets rows cannot come between the look-up and the addition.
        if let Some(tally) = find(&read(self.shard(hash)), hash, tenant, metric) {
            tally.add(amount);
            return;
        }
        self.tally(tenant, metric).add(amount);
    }

    /// Finds or makes a row. While the caller holds it, it is not forgotten.
    fn tally(&self, tenant: &str, metric: &'static str) -> Arc<Tally> {
        let hash = self.hasher.hash_one(tenant);
        let mut table = write(self.shard(hash));
        if let Some(tally) = find(&table, hash, tenant, metric) {
            return Arc::clone(tally);
        }
        let is_other = tenant == OTHER;
        let is_refused = !is_other && (tenant.len() > TENANT_BYTES_MAX || !self.reserve());
        if is_refused {
            drop(table);
            self.overflowed.inc();
            return self.tally(OTHER, metric);
        }
        let tally = Arc::new(Tally::new());
        let added = (metric, Arc::clone(&tally));
        match table.find_mut(hash, |row| *row.name == *tenant) {
            Some(row) => row.tallies.push(added),
            None => {
                let row = Tenant { name: tenant.into(), tallies: vec![added] };
                table.insert_unique(hash, row, |row| self.hasher.hash_one(&*row.name));
            }
        }
        tally
    }

    fn reserve(&self) -> bool {
        self.rows.try_take(1).map(ron_cells::Share::keep).is_some()
    }

    fn take(&self, table: &mut HashTable<Tenant>, visit: &mut dyn FnMut(&str, &'static str, u64)) {
        table.retain(|row| {
            let (name, before) = (Arc::clone(&row.name), row.tallies.len());
            row.tallies.retain_mut(|(metric, tally)| {
                let sum = tally.take();
                if sum > 0 {
                    visit(&name, metric, sum);
                }
                // Whoever still has a reference may add to it later; `get_mut` also sees what the last one added.
                sum > 0 || Arc::get_mut(tally).is_none_or(|tally| tally.sum() > 0)
            });
            if &*name != OTHER {
                self.rows.give_back(before - row.tallies.len());
            }
            !row.tallies.is_empty()
        });
    }
}

fn find<'a>(table: &'a HashTable<Tenant>, hash: u64, tenant: &str, metric: &'static str) -> Option<&'a Arc<Tally>> {
    let row = table.find(hash, |row| *row.name == *tenant)?;
    row.tallies.iter().find(|(name, _)| *name == metric).map(|(_, tally)| tally)
}

fn read(shard: &RwLock<HashTable<Tenant>>) -> RwLockReadGuard<'_, HashTable<Tenant>> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<HashTable<Tenant>>) -> RwLockWriteGuard<'_, HashTable<Tenant>> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SENT: &str = "store.messages_sent";
    const BYTES: &str = "store.bytes_sent";

    fn meter(rows_max: usize) -> (Meter, Arc<Metrics>) {
        let metrics = Metrics::new();
        let meter = Meter::with_rows(rows_max, &metrics);
        meter.begin();
        (meter, metrics)
    }

    fn taken(meter: &Meter) -> BTreeMap<(String, &'static str), u64> {
        let mut rows = BTreeMap::new();
        meter.take(&mut |tenant, metric, sum| *rows.entry((tenant.to_owned(), metric)).or_insert(0) += sum);
        rows
    }

    fn row(tenant: &str, metric: &'static str, sum: u64) -> ((String, &'static str), u64) {
        ((tenant.to_owned(), metric), sum)
    }

    #[test]
    fn sums_are_taken_once_and_idle_rows_are_forgotten() {
        let (meter, _) = meter(10);
        meter.count("a", SENT, 2);
        meter.count("a", SENT, 3);
        meter.count("a", BYTES, 70);
        meter.count("b", SENT, 1);
        meter.count("b", SENT, 0);
        assert_eq!(taken(&meter), BTreeMap::from([row("a", SENT, 5), row("a", BYTES, 70), row("b", SENT, 1)]));
        assert_eq!(meter.rows(), 3, "they were active");
        assert_eq!(taken(&meter), BTreeMap::new());
        assert_eq!(meter.rows(), 0, "nothing was added since");
    }

    #[test]
    fn a_counter_keeps_its_row() {
        let (meter, _) = meter(10);
        let counter = meter.counter("a", SENT);
        assert_eq!(taken(&meter), BTreeMap::new());
        counter.add(4);
        assert_eq!(taken(&meter), BTreeMap::from([row("a", SENT, 4)]));
        counter.add(5);
        drop(counter);
        assert_eq!(taken(&meter), BTreeMap::from([row("a", SENT, 5)]));
        assert_eq!((taken(&meter), meter.rows()), (BTreeMap::new(), 0));
    }

    #[test]
    fn nothing_is_counted_for_nobody() {
        let metrics = Metrics::new();
        let meter = Meter::new(&metrics);
        meter.count("a", SENT, 2);
        assert_eq!((meter.rows(), meter.is_read()), (0, false));
        meter.begin();
        meter.count("a", SENT, 2);
        assert_eq!(taken(&meter), BTreeMap::from([row("a", SENT, 2)]));
    }

    #[test]
    fn what_is_beyond_the_bounds_is_counted_together() {
        let (meter, metrics) = meter(2);
        let long = "x".repeat(TENANT_BYTES_MAX + 1);
        for tenant in ["a", "b", "c", "d", &long, "a"] {
            meter.count(tenant, SENT, 1);
        }
        assert_eq!(taken(&meter), BTreeMap::from([row("a", SENT, 2), row("b", SENT, 1), row(OTHER, SENT, 3)]));
        assert_eq!(metrics.meter_overflow.get(), 3);
        // Two takes later the rows are free for others.
        taken(&meter);
        meter.count("c", SENT, 1);
        assert_eq!(taken(&meter), BTreeMap::from([row("c", SENT, 1)]));
    }

    #[test]
    fn counting_and_taking_at_once_loses_nothing() {
        const ADDED: u64 = 20_000;
        let (meter, _) = meter(ROWS_MAX);
        let mut rows: BTreeMap<String, u64> = BTreeMap::new();
        std::thread::scope(|scope| {
            let adders: Vec<_> = (0..4)
                .map(|thread| {
                    let meter = meter.clone();
                    scope.spawn(move || {
                        for number in 0..ADDED {
                            // Names come, go and come again, so that rows are forgotten and made anew.
                            meter.count(&format!("t{}", (number / 16 + thread) % 50), SENT, 1);
                        }
                    })
                })
                .collect();
            while adders.iter().any(|adder| !adder.is_finished()) {
                meter.take(&mut |tenant, _, sum| *rows.entry(tenant.to_owned()).or_insert(0) += sum);
            }
        });
        meter.take(&mut |tenant, _, sum| *rows.entry(tenant.to_owned()).or_insert(0) += sum);
        assert_eq!(rows.values().sum::<u64>(), 4 * ADDED);
    }
}
