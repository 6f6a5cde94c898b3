//! Memory that groups take, and when groups without messages are forgotten.

use std::sync::Arc;

use super::GroupQueues;
use super::line::{Line, LinePast};
use crate::types::{Millis, Seq};

/// A group: its line, its first block, its place among those to be served, and the counts before its name.
const LINE_BYTES: u64 = (size_of::<Line>() + 4 * size_of::<Seq>() + size_of::<(Seq, u32)>() * 2 + 16) as u64;
/// The entry of a name in a hash table.
const NAME_BYTES: u64 = ((size_of::<(Arc<str>, u32)>() + 1) * 16 / 7) as u64;

/// The past of a group, and the first node of a tree in it.
const PAST_BYTES: u64 = (size_of::<LinePast>() + 16 * size_of::<Seq>()) as u64;

impl GroupQueues {
    /// Bytes of memory its groups take, beside what each of their messages takes.
    pub fn memory_bytes(&self) -> u64 {
        let lines = self.lines.len() as u64 * LINE_BYTES + self.lines.spare_bytes() as u64;
        lines + self.names.room() as u64 * NAME_BYTES + self.name_bytes + self.pasts * PAST_BYTES
    }

    /// When groups without messages are forgotten although nobody receives.
    pub fn deadline(&self) -> Option<Millis> {
        (self.occupied == 0 && !self.timed.is_empty()).then_some(self.window_ends_ms)
    }

    /// Forgets groups whose processing time is no longer recent.
    pub fn forget_past(&mut self, now: Millis) {
        self.turn_window(now);
    }
}
