//! A turn whose records are alone in the log: the caller that ran it syncs them and takes its reply along.

use std::sync::Arc;

use ron_log::LoneCommit;

use super::Reply;
use crate::engine::{Engine, lock};

/// Settles what a caller was given when it asked; nothing to do where its record is not alone.
///
/// First everybody who is ready on this thread gets its turn: their records then share the sync, which goes to the
/// writer if there are any. No lock and no permit is held meanwhile.
pub(crate) async fn settle(lone: Option<LoneTurn>) {
    if let Some(lone) = lone {
        tokio::task::yield_now().await;
        lone.commit();
    }
}

/// Owes the commit of a turn's records, and a word to the shard's worker if the reply is not taken along. Dropping it
/// leaves both to others, as if the caller had never offered.
#[must_use = "settle it"]
pub(crate) struct LoneTurn {
    engine: Arc<Engine>,
    index: usize,
    /// `None` once it has been tried.
    commit: Option<LoneCommit>,
}

impl LoneTurn {
    pub(super) fn new(engine: Arc<Engine>, index: usize, commit: LoneCommit) -> LoneTurn {
        LoneTurn { engine, index, commit: Some(commit) }
    }

    /// Waits for the disk on this thread, unless others have come by now, and sends the replies that waited for it.
    fn commit(mut self) {
        let Some(durable) = self.commit.take().and_then(LoneCommit::commit) else { return };
        let handle = &self.engine.shards[self.index];
        // A broken slot is rebuilt from the log by its worker, and its callers are told that nobody knows.
        let Ok(mut slot) = handle.shared.slot.lock() else { return };
        let replies = slot.pending.take_durable(durable);
        drop(slot);
        replies.into_iter().for_each(Reply::send);
    }
}

impl Drop for LoneTurn {
    fn drop(&mut self) {
        // The writer first: the worker only watches it.
        drop(self.commit.take());
        let shared = &self.engine.shards[self.index].shared;
        // Also those count that came meanwhile: they saw this reply wait and took it that the worker knows.
        if lock(&shared.slot).pending.any_wait_for_log() {
            shared.reply_waits.notify_one();
        }
    }
}
