//! Memory that groups take: how much, and giving it back when they are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::line::{Line, LinePast};
use super::{GroupQueues, UNGROUPED};
use crate::index::Index;
use crate::types::{Millis, Seq};

/// A group: its line with the room that a growing list keeps, its first block, its place among those to be served, and
/// its name's entry in a hash table and the counts before the name.
const LINE_BYTES: u64 = (size_of::<Line>() * 9 / 8
    + 4 * size_of::<Seq>()
    + size_of::<(Seq, u32)>() * 2
    + (size_of::<(Arc<str>, u32)>() + 1) * 16 / 7
    + 16) as u64;

/// What a line without a group still takes: its place in the list, in the list of free ones and in the table of names,
/// which shrink together when the groups are renumbered.
const FREE_LINE_BYTES: u64 =
    (size_of::<Line>() * 9 / 8 + 2 * size_of::<u32>() + (size_of::<(Arc<str>, u32)>() + 1) * 16 / 7) as u64;
/// So many free lines are not worth renumbering the others.
const FREE_MIN: usize = 64;

/// The past of a group, and the first node of a tree in it.
const PAST_BYTES: u64 = (size_of::<LinePast>() + 16 * size_of::<Seq>()) as u64;

impl GroupQueues {
    /// Bytes of memory its groups take, beside what each of their messages takes.
    pub fn memory_bytes(&self) -> u64 {
        let (free, all) = (self.free.len() as u64, self.lines.len() as u64);
        (all - free) * LINE_BYTES + free * FREE_LINE_BYTES + self.name_bytes + self.pasts * PAST_BYTES
    }

    /// When groups without messages are forgotten although nobody receives.
    pub fn deadline(&self) -> Option<Millis> {
        (self.occupied == 0 && !self.timed.is_empty()).then_some(self.window_ends_ms)
    }

    /// Forgets groups whose processing time is no longer recent.
    pub fn forget_past(&mut self, now: Millis) {
        self.turn_window(now);
    }

    /// Gives back the room of groups that are gone, once most are: the others get new numbers, from 0 without gaps, in
    /// their messages too. Renumbering looks at every message and every line, so it waits until as many groups have
    /// gone as that costs; what may be kept meanwhile is less than what the messages and groups that are here take.
    pub fn shrink(&mut self, index: &mut Index) {
        let free = self.free.len();
        if free < FREE_MIN || free * 2 < self.lines.len() || free * 4 < index.len() {
            return;
        }
        let mut ids = vec![UNGROUPED; self.lines.len()];
        let mut kept = Vec::with_capacity(self.lines.len() - free);
        for (id, line) in std::mem::take(&mut self.lines).into_iter().enumerate() {
            if id == UNGROUPED as usize || line.name.is_some() {
                ids[id] = kept.len() as u32;
                kept.push(line);
            }
        }
        self.lines = kept;
        self.free = Vec::new();
        let renumber = |id: &mut u32| *id = ids[*id as usize];
        self.names.values_mut().for_each(renumber);
        self.names.shrink_to_fit();
        self.timed.iter_mut().for_each(renumber);
        self.timed.shrink_to_fit();
        let renumbered = |set: &mut BTreeSet<(Seq, u32)>| {
            *set = std::mem::take(set).into_iter().map(|(head, id)| (head, ids[id as usize])).collect();
        };
        renumbered(&mut self.quiet);
        renumbered(&mut self.noisy);
        let behind = std::mem::take(&mut self.behind).into_iter();
        self.behind = behind.map(|(newest, nth, id)| (newest, nth, ids[id as usize])).collect();
        index.for_each_mut(|entry| renumber(&mut entry.group));
    }
}
