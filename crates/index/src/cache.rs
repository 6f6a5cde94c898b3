//! Answers kept in memory: bounded by bytes, each with its own time, never older than what is known to have changed.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as WallInstant};

use moka::Expiry;
use moka::future::Cache;
use ron_kernel::clock;

use crate::query::{Finding, Query};

/// Changes are counted by so many parts of the keys.
const EPOCHS: usize = 1024;

/// The cache of answers.
pub(crate) struct Answers {
    cache: Cache<Query, Arc<Finding>>,
    /// Changes of the keys that fall to each part. An answer found before a change is not kept after it.
    epochs: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// Number of changes of a key when somebody began to look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// Each answer has its own time. The cache's own clock only frees memory; [`Answers::get`] goes by the runtime's clock,
/// which tests can pause.
struct OwnTime;

impl Expiry<Query, Arc<Finding>> for OwnTime {
    fn expire_after_create(&self, _: &Query, finding: &Arc<Finding>, _: WallInstant) -> Option<Duration> {
        Some(finding.fresh_for(finding.found_at))
    }

    fn expire_after_update(
        &self,
        _: &Query,
        finding: &Arc<Finding>,
        _: WallInstant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(finding.fresh_for(finding.found_at))
    }
}

impl Answers {
    /// An empty cache of about so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let cache = Cache::builder()
            .max_capacity(bytes_max as u64)
            .weigher(|_, finding: &Arc<Finding>| finding.weight())
            .expire_after(OwnTime)
            .build();
        let epochs = (0..EPOCHS).map(|_| AtomicU64::new(0)).collect();
        Answers { cache, epochs, hasher: RandomState::new() }
    }

    /// The answer, while its time lasts.
    pub async fn get(&self, query: &Query) -> Option<Arc<Finding>> {
        let finding = self.cache.get(query).await?;
        if finding.expires_at > clock::now() {
            return Some(finding);
        }
        self.cache.invalidate(query).await;
        None
    }

    /// To be asked before one begins to look for an answer that is to be kept.
    pub fn epoch(&self, query: &Query) -> Epoch {
        Epoch(self.slot(query).load(Ordering::Acquire))
    }

    /// Keeps an answer, unless its key changed since `epoch` or it may not be used twice.
    pub async fn keep(&self, query: &Query, finding: Arc<Finding>, epoch: Epoch) {
        if finding.expires_at <= finding.found_at || self.epoch(query) != epoch {
            return;
        }
        self.cache.insert(query.clone(), finding).await;
        // A change may have come between the look and the insertion.
        if self.epoch(query) != epoch {
            self.cache.invalidate(query).await;
        }
    }

    /// Forgets an answer because something about it changed.
    pub async fn forget(&self, query: &Query) {
        self.slot(query).fetch_add(1, Ordering::AcqRel);
        self.cache.invalidate(query).await;
    }

    /// Forgets everything; gives how many answers there were.
    pub async fn purge(&self) -> u64 {
        self.cache.run_pending_tasks().await;
        let entries = self.cache.entry_count();
        for epoch in &self.epochs {
            epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.cache.invalidate_all();
        self.cache.run_pending_tasks().await;
        entries
    }

    /// Frees the memory of answers whose time is over.
    pub async fn tidy(&self) {
        self.cache.run_pending_tasks().await;
    }

    /// Answers, and about the bytes they take.
    pub fn size(&self) -> (u64, u64) {
        (self.cache.entry_count(), self.cache.weighted_size())
    }

    fn slot(&self, query: &Query) -> &AtomicU64 {
        &self.epochs[self.hasher.hash_one(query) as usize % EPOCHS]
    }
}

#[cfg(test)]
mod tests {
    use ron_store::Key;

    use super::*;
    use crate::words::Outcome;

    fn absent(fresh_for: Duration) -> Arc<Finding> {
        let now = clock::now();
        Arc::new(Finding { expires_at: now + fresh_for, ..Finding::nothing(Outcome::Absent, now) })
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_lasts_as_long_as_it_says() {
        let (answers, query) = (Answers::new(1 << 20), Query::Providers(Key([1; 32])));
        answers.keep(&query, absent(Duration::from_secs(15)), answers.epoch(&query)).await;
        tokio::time::advance(Duration::from_millis(14_999)).await;
        assert!(answers.get(&query).await.is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(answers.get(&query).await.is_none());
    }

    #[tokio::test]
    async fn an_answer_found_before_a_change_is_not_kept_after_it() {
        let (answers, query) = (Answers::new(1 << 20), Query::Providers(Key([1; 32])));
        let began = answers.epoch(&query);
        answers.forget(&query).await;
        answers.keep(&query, absent(Duration::from_secs(15)), began).await;
        assert!(answers.get(&query).await.is_none());
        answers.keep(&query, absent(Duration::from_secs(15)), answers.epoch(&query)).await;
        assert!(answers.get(&query).await.is_some());
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_a_purge_leaves_nothing() {
        let weight = u64::from(absent(Duration::ZERO).weight());
        let answers = Answers::new(weight as usize * 10);
        for number in 0..100 {
            let query = Query::Providers(Key([number; 32]));
            answers.keep(&query, absent(Duration::from_secs(15)), answers.epoch(&query)).await;
        }
        answers.tidy().await;
        assert!(answers.size().0 <= 10 && answers.size().1 <= weight * 10, "{:?}", answers.size());
        assert!(answers.purge().await > 0);
        assert_eq!(answers.size(), (0, 0));
    }
}
