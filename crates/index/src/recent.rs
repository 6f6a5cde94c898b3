//! The last lookups, for the page that draws them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ron_types::limits::index::RECENT_MAX;

use crate::words::LookupSummary;

/// A ring of the last lookups.
#[derive(Default)]
pub(crate) struct Recent {
    ring: Mutex<VecDeque<Arc<LookupSummary>>>,
}

impl Recent {
    /// Notes one; the oldest makes room.
    pub fn push(&self, summary: Arc<LookupSummary>) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_front(summary);
        ring.truncate(RECENT_MAX);
    }

    /// All of them, newest first.
    pub fn all(&self) -> Vec<Arc<LookupSummary>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Forgets them.
    pub fn clear(&self) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
