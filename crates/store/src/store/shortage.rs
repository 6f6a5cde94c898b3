//! What keeps the store from taking more: told for as long as it lasts, not only to those who were refused.

use super::{Bounds, Counts};

/// Reasons why the store refuses what the node or its publishers want kept. What strangers are refused is none of them:
/// anybody could have it said then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortages {
    /// Damage was found: nothing is written until the next start.
    pub damaged: bool,
    /// The last write failed: the disk is full, or fails.
    pub disk: bool,
    /// There was no room for a record that this node signed, and there still is none.
    pub records: bool,
    /// There was no room for a document, and there still is none.
    pub documents: bool,
}

/// What was refused since there was room last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// Whether the last write failed.
    pub(super) disk: bool,
    /// Bytes of the smallest record of this node that was refused.
    pub(super) record_bytes: Option<usize>,
    /// Bytes of documents at or below which the document that was refused would fit.
    pub(super) documents_level: Option<usize>,
}

impl Refused {
    /// Takes up what one batch refused.
    pub(super) fn add(&mut self, other: Refused) {
        let least = |one: Option<usize>, other: Option<usize>| one.into_iter().chain(other).min();
        self.record_bytes = least(self.record_bytes, other.record_bytes);
        self.documents_level = least(self.documents_level, other.documents_level);
    }

    /// Forgets what would find room by now.
    pub(super) fn update(&mut self, bounds: &Bounds, counts: &Counts) {
        let is_full = |bytes: &usize| {
            let records = counts.providers + counts.others;
            records >= bounds.records_max || counts.records_bytes + bytes > bounds.records_bytes_max
        };
        self.record_bytes = self.record_bytes.filter(is_full);
        self.documents_level = self.documents_level.filter(|level| counts.manifests_bytes > *level);
    }
}
