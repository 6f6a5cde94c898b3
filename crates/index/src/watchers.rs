//! Those who watch a name or some content: a bounded inbox for each, found by what changed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_kernel::clock;
use ron_store::{ContentId, ProviderRecord};
use ron_types::Error;
use ron_types::limits::index::{WATCHED_LOOKED_UP_EVERY, WATCHED_PROVIDERS_MAX, WATCHER_ITEMS_MAX, WATCHERS_MAX};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::prefetch::{Refresh, Why};
use crate::query::Query;
use crate::words::{Notice, RankedProvider};

/// All watchers of the node.
#[derive(Default)]
pub(crate) struct Watchers {
    table: Mutex<Table>,
    hasher: RandomState,
}

#[derive(Default)]
struct Table {
    by_query: HashMap<Query, Watched>,
    count: usize,
}

/// Something that is watched. The store tells what changes here; what changes elsewhere is looked up now and then.
struct Watched {
    inboxes: Vec<Arc<Inbox>>,
    /// The content that it is, if it is that.
    content: Option<ContentId>,
    /// What it is, for people.
    shown: String,
    /// When it is to be looked up again.
    due: Instant,
    /// Digests of the providers that are known, with where they are; none before the first lookup, which tells nothing:
    /// what was there before is no change.
    known: Option<HashSet<u64>>,
}

struct Inbox {
    waiting: Mutex<Waiting>,
    /// Wakes the reader; one reader, so one permit is enough.
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<Notice>,
    /// Notices that made room since the reader was last told.
    missed: u64,
}

/// The reading end. Dropping it ends the watch.
pub struct Watch {
    watchers: Arc<Watchers>,
    query: Query,
    inbox: Arc<Inbox>,
}

impl Watchers {
    /// Watches what this query is about.
    pub fn watch(self: &Arc<Self>, query: Query, content: Option<ContentId>, shown: String) -> Result<Watch, Error> {
        let inbox = Arc::new(Inbox { waiting: Mutex::default(), arrived: Notify::new() });
        let mut table = lock(&self.table);
        if table.count >= WATCHERS_MAX {
            return Err(Error::busy("the list of watchers"));
        }
        table.count += 1;
        let new = || Watched { inboxes: Vec::new(), content, shown, due: clock::now(), known: None };
        table.by_query.entry(query.clone()).or_insert_with(new).inboxes.push(Arc::clone(&inbox));
        Ok(Watch { watchers: Arc::clone(self), query, inbox })
    }

    /// Tells those who watch this query of a change. Never waits.
    pub fn tell(&self, query: &Query, notice: &Notice) {
        let inboxes = {
            let mut table = lock(&self.table);
            let Some(watched) = table.by_query.get_mut(query) else { return };
            if let (Notice::Provider { record, withdrawn: false }, Some(known)) = (notice, &mut watched.known) {
                remember(known, self.digest(record));
            }
            watched.inboxes.clone()
        };
        for inbox in inboxes {
            inbox.put(notice.clone());
        }
    }

    /// Tells those who watch this query of providers that a lookup found and that were not known before. Names that are
    /// found go to the store, which tells.
    pub fn tell_found(&self, query: &Query, providers: &[RankedProvider]) {
        let digests: HashSet<u64> = providers.iter().map(|provider| self.digest(&provider.record)).collect();
        {
            let mut table = lock(&self.table);
            let Some(watched) = table.by_query.get_mut(query) else { return };
            if watched.known.is_none() {
                watched.known = Some(digests);
                return;
            }
        }
        for provider in providers {
            let digest = self.digest(&provider.record);
            let table = lock(&self.table);
            let known = table.by_query.get(query).and_then(|watched| watched.known.as_ref());
            let is_new = known.is_some_and(|known| !known.contains(&digest));
            drop(table);
            if is_new {
                self.tell(query, &Notice::Provider { record: provider.record.clone(), withdrawn: false });
            }
        }
    }

    /// Up to `max` of what is watched whose time has come to be looked up again, the longest due first.
    pub fn due(&self, max: usize) -> Vec<Refresh> {
        let now = clock::now();
        let mut table = lock(&self.table);
        let mut due: Vec<_> = table.by_query.iter_mut().filter(|(_, watched)| watched.due <= now).collect();
        due.sort_unstable_by_key(|(_, watched)| watched.due);
        let refresh = |(query, watched): (&Query, &mut Watched)| {
            watched.due = now + WATCHED_LOOKED_UP_EVERY;
            let (query, content, shown) = (query.clone(), watched.content, watched.shown.clone());
            Refresh { query, content, shown, why: Why::Again }
        };
        due.into_iter().take(max).map(refresh).collect()
    }

    /// Who provides, and where. That a record was signed anew, or by another router, is no change to whoever watches.
    fn digest(&self, record: &ProviderRecord) -> u64 {
        self.hasher.hash_one((&record.peer, &record.signer, &record.addrs, &record.protocols))
    }

    /// Number of watchers.
    pub fn len(&self) -> usize {
        lock(&self.table).count
    }

    /// Notices in the fullest inbox.
    pub fn deepest(&self) -> usize {
        let table = lock(&self.table);
        table
            .by_query
            .values()
            .flat_map(|watched| &watched.inboxes)
            .map(|inbox| lock(&inbox.waiting).changes.len())
            .max()
            .unwrap_or(0)
    }
}

impl Inbox {
    fn put(&self, notice: Notice) {
        {
            let mut waiting = lock(&self.waiting);
            if waiting.changes.len() >= WATCHER_ITEMS_MAX {
                waiting.changes.pop_front();
                waiting.missed += 1;
            }
            waiting.changes.push_back(notice);
        }
        self.arrived.notify_one();
    }

    /// Loss is told where it happened: before the oldest change that is left.
    fn take(&self) -> Option<Notice> {
        let mut waiting = lock(&self.waiting);
        match std::mem::take(&mut waiting.missed) {
            0 => waiting.changes.pop_front(),
            missed => Some(Notice::Missed(missed)),
        }
    }
}

impl Watch {
    /// The next change. Cancel-safe.
    pub async fn next(&mut self) -> Notice {
        loop {
            if let Some(notice) = self.inbox.take() {
                return notice;
            }
            self.inbox.arrived.notified().await;
        }
    }

    /// A change that waits already.
    pub fn try_next(&mut self) -> Option<Notice> {
        self.inbox.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = lock(&self.watchers.table);
        table.count -= 1;
        if let Some(watched) = table.by_query.get_mut(&self.query) {
            watched.inboxes.retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            if watched.inboxes.is_empty() {
                table.by_query.remove(&self.query);
            }
        }
    }
}

/// Keeps a digest. Where there are too many, what is known begins anew with it: a change may be told twice then.
fn remember(known: &mut HashSet<u64>, digest: u64) {
    if known.len() >= WATCHED_PROVIDERS_MAX {
        known.clear();
    }
    known.insert(digest);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ron_store::{ContentId, Key};

    use super::*;

    fn watch(watchers: &Arc<Watchers>, query: Query) -> Result<Watch, Error> {
        watchers.watch(query, None, String::new())
    }

    fn query(number: u8) -> Query {
        Query::Providers(Key([number; 32]))
    }

    fn change(number: u8) -> Notice {
        Notice::Manifest(ContentId::blake3([number; 32]))
    }

    #[tokio::test]
    async fn a_watcher_hears_its_own_subject_and_what_it_missed() {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watch(&watchers, query(1)).expect("room");
        watchers.tell(&query(2), &change(9));
        for number in 0..WATCHER_ITEMS_MAX as u8 + 3 {
            watchers.tell(&query(1), &change(number));
        }
        assert_eq!(watchers.deepest(), WATCHER_ITEMS_MAX);
        assert_eq!(watch.next().await, Notice::Missed(3));
        assert_eq!(watch.next().await, change(3));
        drop(watch);
        assert_eq!((watchers.len(), lock(&watchers.table).by_query.len()), (0, 0));
    }

    #[test]
    fn watchers_are_bounded() {
        let watchers = Arc::new(Watchers::default());
        let held: Vec<_> =
            (0..WATCHERS_MAX).map(|number| watch(&watchers, query(number as u8)).expect("room")).collect();
        assert!(watch(&watchers, query(2)).is_err());
        drop(held);
        assert!(watch(&watchers, query(2)).is_ok());
    }
}
