//! Those who watch a name or some content: a bounded inbox for each, found by what changed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_types::Error;
use ron_types::limits::index::{WATCHER_ITEMS_MAX, WATCHERS_MAX};
use tokio::sync::Notify;

use crate::query::Query;
use crate::words::Notice;

/// All watchers of the node.
#[derive(Default)]
pub(crate) struct Watchers {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_query: HashMap<Query, Vec<Arc<Inbox>>>,
    count: usize,
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
    pub fn watch(self: &Arc<Self>, query: Query) -> Result<Watch, Error> {
        let inbox = Arc::new(Inbox { waiting: Mutex::default(), arrived: Notify::new() });
        let mut table = lock(&self.table);
        if table.count >= WATCHERS_MAX {
            return Err(Error::busy("the list of watchers"));
        }
        table.count += 1;
        table.by_query.entry(query.clone()).or_default().push(Arc::clone(&inbox));
        Ok(Watch { watchers: Arc::clone(self), query, inbox })
    }

    /// Tells those who watch this query of a change. Never waits.
    pub fn tell(&self, query: &Query, notice: &Notice) {
        let inboxes = lock(&self.table).by_query.get(query).cloned().unwrap_or_default();
        for inbox in inboxes {
            inbox.put(notice.clone());
        }
    }

    /// Number of watchers.
    pub fn len(&self) -> usize {
        lock(&self.table).count
    }

    /// Notices in the fullest inbox.
    pub fn deepest(&self) -> usize {
        let table = lock(&self.table);
        table.by_query.values().flatten().map(|inbox| lock(&inbox.waiting).changes.len()).max().unwrap_or(0)
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
        if let Some(inboxes) = table.by_query.get_mut(&self.query) {
            inboxes.retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            if inboxes.is_empty() {
                table.by_query.remove(&self.query);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ron_store::{ContentId, Key};

    use super::*;

    fn query(number: u8) -> Query {
        Query::Providers(Key([number; 32]))
    }

    fn change(number: u8) -> Notice {
        Notice::Manifest(ContentId::blake3([number; 32]))
    }

    #[tokio::test]
    async fn a_watcher_hears_its_own_subject_and_what_it_missed() {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watchers.watch(query(1)).expect("room");
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
        let held: Vec<_> = (0..WATCHERS_MAX).map(|number| watchers.watch(query(number as u8)).expect("room")).collect();
        assert!(watchers.watch(query(2)).is_err());
        drop(held);
        assert!(watchers.watch(query(2)).is_ok());
    }
}
