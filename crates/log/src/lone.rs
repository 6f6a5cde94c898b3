//! A record that is alone: the caller that appended it commits it on its own thread, and no other thread is woken.

use crate::core::{Core, FailOnPanic};
use crate::model::Lsn;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

/// Groups in a row that had one appender each before the next one is taken for lone. Long enough that a crowd, in which
/// a sync now and then finds a single record, hardly ever gets there.
pub const LONE_GROUPS_MIN: u32 = 8;
/// A disk whose last sync took longer is waited for by the writer thread only. There a wake-up is a small part of the
/// wait, and a thread of a runtime has better things to do.
const LONE_SYNC_MAX: Duration = Duration::from_millis(2);
/// Gathered bytes that a caller writes at most; more would keep its thread for longer than the sync does.
const LONE_BYTES_MAX: usize = 64 << 10;

/// What is known of the last groups: whether one caller at a time appends, and how fast the disk is.
#[derive(Debug, Default)]
pub struct RecentGroups {
    /// Whether callers may commit at all.
    pub is_allowed: bool,
    /// Appenders that added to what is gathered now.
    appenders: u32,
    /// Groups in a row that one appender made, and during whose sync nobody came.
    lone_in_a_row: u32,
    /// Time that the last group took to be written and synced.
    sync_time: Duration,
    /// Groups that a caller committed, since the log was opened.
    pub caller_commits: u64,
}

impl RecentGroups {
    /// An appender added something, while a group was in flight or not.
    pub fn note_appender(&mut self, is_in_flight: bool) {
        self.appenders = self.appenders.saturating_add(1);
        if is_in_flight {
            self.lone_in_a_row = 0;
        }
    }

    /// What is gathered was taken.
    pub fn note_taken(&mut self) {
        self.lone_in_a_row = if self.appenders == 1 { self.lone_in_a_row.saturating_add(1) } else { 0 };
        self.appenders = 0;
    }

    /// The group that was taken is durable after this time.
    pub fn note_synced(&mut self, time: Duration) {
        self.sync_time = time;
    }

    /// Whether one appender gathered these bytes, after many groups of one appender each, on a disk that is fast.
    pub fn is_lone(&self, bytes: usize) -> bool {
        self.is_allowed
            && self.appenders == 1
            && self.lone_in_a_row >= LONE_GROUPS_MIN
            && self.sync_time <= LONE_SYNC_MAX
            && bytes <= LONE_BYTES_MAX
    }

    /// As if many groups of one appender each had gone before.
    #[cfg(any(test, feature = "shuttle"))]
    pub fn pretend_lone(&mut self) {
        self.lone_in_a_row = LONE_GROUPS_MIN;
    }
}

/// A commit that its holder owes: the writer was not woken for it. Dropping it wakes the writer.
#[must_use = "dropping it leaves the commit to the writer"]
pub struct LoneCommit {
    core: Arc<Core>,
}

impl LoneCommit {
    pub(crate) fn new(core: &Arc<Core>) -> LoneCommit {
        LoneCommit { core: Arc::clone(core) }
    }

    /// Commits on this thread, which then waits for the disk. `None` if others have appended meanwhile or the log has
    /// failed: then the writer has been woken, or nobody is needed, and a [`crate::Watch`] tells the rest.
    pub fn commit(self) -> Option<Lsn> {
        let core = &self.core;
        let _guard = FailOnPanic::new(core);
        let committing = match core.committing.try_lock() {
            Ok(committing) => committing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if !core.gather().is_lone() {
            return None;
        }
        let committed = core.commit_holding(&committing).ok()?;
        core.gather().recent.caller_commits += 1;
        Some(committed)
    }
}

impl Drop for LoneCommit {
    fn drop(&mut self) {
        // After the commit nothing is gathered, unless others came, who wake the writer themselves.
        let is_owed = !self.core.gather().is_empty();
        if is_owed {
            self.core.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
