//! Who is served next: a line for each group of a partition, quiet groups before noisy ones, blocked ones not at all.
//!
//! Where groups are in strict order, a message that is out holds up those after it in its line, and a line whose
//! messages come back goes behind the lines that wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::index::{Entry, Index};
use crate::stepped::SteppedMap;
use crate::types::{Millis, Seq};

mod line;
mod memory;
mod queue;
mod table;

#[cfg(test)]
use line::Line;
use line::{LinePast, LinePlace};
use table::LineTable;

/// A group may be noisy from this many leases on.
const NOISY_LEASED_MIN: u64 = 30;
/// A group is noisy with more than one part in this many of the leases or of the processing time.
const NOISY_SHARE: u64 = 10;
/// Processing time is no measure before the consumers of a partition have spent this much together.
const NOISY_BUSY_MS_MIN: u64 = 10_000;
/// Recent processing time is that of this window and the one before.
const WINDOW_MS: Millis = 60_000;
/// Groups whose processing time is followed, unless one is heavy by itself: a group may be named by every message, and
/// those that are followed stay for up to two windows after their last message. A noisy one is among the first.
const TIMED_MAX: usize = 512;

/// The line of the messages without a group.
pub(crate) const UNGROUPED: u32 = 0;

/// All lines of one partition.
#[derive(Debug)]
pub(crate) struct GroupQueues {
    lines: LineTable,
    names: SteppedMap<Arc<str>, u32>,
    /// Bytes of the names.
    name_bytes: u64,
    /// Lines with a past.
    pasts: u64,
    /// GroupQueues with messages.
    occupied: u64,
    quiet: BTreeSet<(Seq, u32)>,
    noisy: BTreeSet<(Seq, u32)>,
    behind: BTreeSet<(Seq, u64, u32)>,
    /// Times that a message came back.
    returns: u64,
    fifo: bool,
    leased: u64,
    busy_ms: [u64; 2],
    timed: Vec<u32>,
    window_ends_ms: Millis,
    /// A line that had nothing to give has something.
    pub opened: bool,
}

impl GroupQueues {
    /// No groups yet.
    pub fn new(fifo: bool) -> Self {
        GroupQueues {
            lines: LineTable::new(),
            names: SteppedMap::default(),
            name_bytes: 0,
            pasts: 0,
            occupied: 0,
            quiet: BTreeSet::new(),
            noisy: BTreeSet::new(),
            behind: BTreeSet::new(),
            returns: 0,
            fifo,
            leased: 0,
            busy_ms: [0; 2],
            timed: Vec::new(),
            window_ends_ms: 0,
            opened: false,
        }
    }

    /// Says what groups mean.
    pub fn set_fifo(&mut self, fifo: bool, index: &Index) {
        if std::mem::replace(&mut self.fifo, fifo) == fifo {
            return;
        }
        for id in self.lines.ids() {
            self.lines[id].past.iter_mut().for_each(|past| past.out.clear());
        }
        for entry in index.from(0).filter(|entry| fifo && entry.is_out()) {
            self.past_mut(entry.group).out.insert(entry.seq);
        }
        self.lines.ids().for_each(|id| self.place(id));
    }

    /// The line of a group, made if it is new.
    pub fn line_of(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name else { return UNGROUPED };
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.lines.add();
        let name: Arc<str> = name.into();
        self.name_bytes += name.len() as u64;
        self.lines[id].name = Some(name.clone());
        self.names.insert(name, id);
        id
    }

    /// The group's name.
    pub fn name(&self, id: u32) -> Option<&Arc<str>> {
        self.lines[id].name.as_ref()
    }

    /// Groups with messages, the messages without one counting as one.
    pub fn groups(&self) -> u64 {
        self.occupied
    }

    /// One message more in the group.
    pub fn join(&mut self, id: u32) {
        let line = &mut self.lines[id];
        line.members += 1;
        self.occupied += u64::from(line.members == 1);
    }

    /// One message less in the group.
    pub fn leave(&mut self, id: u32) {
        let line = &mut self.lines[id];
        line.members -= 1;
        if line.members == 0 {
            if let Some(past) = &mut line.past {
                past.behind = (0, 0);
            }
            self.occupied -= 1;
            self.release(id);
        }
    }

    /// A message is ready; true if it went to the end of those that never came back.
    pub fn push(&mut self, id: u32, seq: Seq) -> bool {
        let line = &mut self.lines[id];
        let last = line.fresh.last().is_none_or(|last| last < seq);
        if last {
            line.fresh.push(seq);
        } else {
            self.past_mut(id).back.insert(seq);
        }
        self.place(id);
        last
    }

    /// A message is ready that its consumer gave back.
    pub fn push_freed(&mut self, id: u32, seq: Seq) {
        self.past_mut(id).freed.insert(seq);
        self.place(id);
    }

    /// A ready message goes elsewhere: `entry` is what it was, the index already knows.
    pub fn withdraw(&mut self, entry: &Entry, index: &Index) {
        if entry.is_freed() {
            self.past_mut(entry.group).freed.remove(&entry.seq);
        } else if entry.is_fresh() {
            let line = &mut self.lines[entry.group];
            line.stale += 1;
            line.tidy(index);
        } else {
            self.past_mut(entry.group).back.remove(&entry.seq);
        }
        self.place(entry.group);
    }

    /// The line to be served next.
    pub fn pick(&mut self, now: Millis) -> Option<u32> {
        self.turn_window(now);
        loop {
            let (id, placed_noisy) = self.first_placed().or_else(|| self.noisy.first().map(|(_, id)| (*id, true)))?;
            if self.is_noisy(id) == placed_noisy {
                return Some(id);
            }
            self.place(id);
        }
    }

    /// The first line that is not noisy.
    fn first_placed(&self) -> Option<(u32, bool)> {
        let id = match (self.quiet.first(), self.behind.first()) {
            (Some((head, quiet)), Some((newest, _, behind))) => {
                if head <= newest {
                    *quiet
                } else {
                    *behind
                }
            }
            (Some((_, id)), None) | (None, Some((_, _, id))) => *id,
            (None, None) => return None,
        };
        Some((id, false))
    }

    /// The first message of a line that is out: it holds up those after it, and only those. The end of all numbers if
    /// none is, or if groups are not in strict order.
    pub fn first_out(&self, id: u32) -> Seq {
        self.lines[id].past().out.first().copied().unwrap_or(Seq::MAX)
    }

    /// A message of a line in strict order came back when `newest` was the newest message: the line goes behind all
    /// that wait, and before what is yet to be sent.
    pub fn go_behind(&mut self, id: u32, newest: Seq) {
        if !self.fifo {
            return;
        }
        self.unplace(id);
        self.returns += 1;
        self.past_mut(id).behind = (newest, self.returns);
        self.place(id);
    }

    /// Takes the first message of a line if it is before `before`, or if nothing holds it up.
    pub fn pop(&mut self, id: u32, before: Seq, index: &Index) -> Option<Seq> {
        let line = &mut self.lines[id];
        let seq = line.head(before)?;
        if line.fresh.first() == Some(seq) {
            line.fresh.pop();
            if line.stale > 0 {
                line.tidy(index);
            }
        } else if let Some(past) = &mut line.past
            && !past.back.remove(&seq)
        {
            past.freed.remove(&seq);
        }
        self.place(id);
        Some(seq)
    }

    /// One lease more in the group.
    pub fn lease(&mut self, id: u32, seq: Seq) {
        self.leased += 1;
        self.lines[id].leased += 1;
        self.go_out(id, seq);
    }

    /// One lease less in the group.
    pub fn unlease(&mut self, id: u32, seq: Seq) {
        self.leased -= 1;
        self.lines[id].leased -= 1;
        self.come_in(id, seq);
    }

    /// A message of the group waits after a failed delivery.
    pub fn back_off(&mut self, id: u32, seq: Seq) {
        self.go_out(id, seq);
    }

    /// It waits no longer.
    pub fn end_back_off(&mut self, id: u32, seq: Seq) {
        self.come_in(id, seq);
    }

    fn go_out(&mut self, id: u32, seq: Seq) {
        if self.fifo {
            self.past_mut(id).out.insert(seq);
        }
        self.place(id);
    }

    fn come_in(&mut self, id: u32, seq: Seq) {
        if self.fifo {
            self.past_mut(id).out.remove(&seq);
        }
        self.place(id);
    }

    /// A consumer spent this time on a message of the group.
    pub fn spend(&mut self, id: u32, now: Millis, busy_ms: u64) {
        self.turn_window(now);
        self.busy_ms[0] += busy_ms;
        let heavy = busy_ms * NOISY_SHARE > self.busy_ms[0];
        let line = &mut self.lines[id];
        if !line.timed && busy_ms > 0 && (heavy || self.timed.len() < TIMED_MAX) {
            line.timed = true;
            self.timed.push(id);
        }
        if line.timed {
            self.past_mut(id).busy_ms[0] += busy_ms;
        }
    }

    /// Whether any line has something to give.
    pub fn has_ready(&self) -> bool {
        !self.quiet.is_empty() || !self.noisy.is_empty() || !self.behind.is_empty()
    }

    /// The oldest message that could be given, those of lines that came back excepted: they are meant to be passed.
    pub fn oldest_ready(&self) -> Option<Seq> {
        let first = |set: &BTreeSet<(Seq, u32)>| set.first().map(|(seq, _)| *seq);
        [first(&self.quiet), first(&self.noisy)].into_iter().flatten().min()
    }

    /// The first message of a line, whether or not something holds it up.
    pub fn head(&self, id: u32) -> Option<Seq> {
        self.lines[id].head(Seq::MAX)
    }

    /// Messages before this one in its line.
    pub fn ahead(&self, id: u32, seq: Seq) -> u64 {
        let line = &self.lines[id];
        let others = line.past().back.range(..seq).count() + line.past().freed.range(..seq).count();
        (line.fresh.before(seq) + others) as u64
    }

    /// The share of the leases a noisy group holds, in percent.
    pub fn noisy_share(&self, id: u32) -> Option<u8> {
        let share = u64::from(self.lines[id].leased) * 100 / self.leased.max(1);
        self.is_noisy(id).then_some(share as u8)
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let of_past =
            |past: &LinePast| size_of::<LinePast>() + (past.back.len() + past.out.len()) * 2 * size_of::<Seq>();
        let of_line = |line: &Line| line.fresh.capacity_bytes() + line.past.as_deref().map_or(0, of_past);
        let queues: usize = self.lines.ids().map(|id| of_line(&self.lines[id])).sum();
        // Each name stands once, with two counts before it, and is pointed to from its line and from the table.
        let names = self.name_bytes as usize + self.names.len() * 16;
        let table = self.names.allocation_size();
        let places = (self.quiet.len() + self.noisy.len()) * size_of::<(Seq, u32)>() * 2;
        queues + names + table + places + self.lines.capacity_bytes()
    }

    fn is_noisy(&self, id: u32) -> bool {
        if self.fifo || id == UNGROUPED {
            return false;
        }
        let line = &self.lines[id];
        let leased = u64::from(line.leased);
        let busy_ms: u64 = self.busy_ms.iter().sum();
        leased >= NOISY_LEASED_MIN && leased * NOISY_SHARE > self.leased
            || busy_ms >= NOISY_BUSY_MS_MIN && line.past().busy_ms.iter().sum::<u64>() * NOISY_SHARE > busy_ms
    }

    /// Puts a line where it belongs among those to be served.
    fn place(&mut self, id: u32) {
        let wanted = self.wanted_place(id);
        let placed = self.lines[id].placed;
        if placed == wanted {
            return;
        }
        self.unplace(id);
        self.lines[id].placed = wanted;
        match wanted {
            Some(LinePlace::Quiet(head)) => drop(self.quiet.insert((head, id))),
            Some(LinePlace::Noisy(head)) => drop(self.noisy.insert((head, id))),
            Some(LinePlace::Behind(newest, nth)) => drop(self.behind.insert((newest, nth, id))),
            None => return,
        }
        self.opened |= placed.is_none();
    }

    fn wanted_place(&self, id: u32) -> Option<LinePlace> {
        let line = &self.lines[id];
        let head = line.head(self.first_out(id))?;
        let (newest, nth) = line.past().behind;
        Some(match () {
            () if self.fifo && head <= newest => LinePlace::Behind(newest, nth),
            () if self.is_noisy(id) => LinePlace::Noisy(head),
            () => LinePlace::Quiet(head),
        })
    }

    /// Takes a line out of those to be served.
    fn unplace(&mut self, id: u32) {
        match self.lines[id].placed.take() {
            Some(LinePlace::Quiet(head)) => drop(self.quiet.remove(&(head, id))),
            Some(LinePlace::Noisy(head)) => drop(self.noisy.remove(&(head, id))),
            Some(LinePlace::Behind(newest, nth)) => drop(self.behind.remove(&(newest, nth, id))),
            None => {}
        }
    }

    /// The past of a line, made if it has none.
    fn past_mut(&mut self, id: u32) -> &mut LinePast {
        let past = &mut self.lines[id].past;
        self.pasts += u64::from(past.is_none());
        past.get_or_insert_default()
    }

    /// The clock was set, and shows so many milliseconds more or less.
    pub fn shift(&mut self, by_ms: i64) {
        self.window_ends_ms = self.window_ends_ms.saturating_add_signed(by_ms);
    }

    fn turn_window(&mut self, now: Millis) {
        if now < self.window_ends_ms {
            return;
        }
        let skipped = now >= self.window_ends_ms + WINDOW_MS;
        self.window_ends_ms = now + WINDOW_MS;
        let turn = |busy_ms: &mut [u64; 2]| *busy_ms = [0, if skipped { 0 } else { busy_ms[0] }];
        turn(&mut self.busy_ms);
        for id in std::mem::take(&mut self.timed) {
            let line = &mut self.lines[id];
            if let Some(past) = &mut line.past {
                turn(&mut past.busy_ms);
            }
            line.timed = line.past().busy_ms != [0; 2];
            if line.timed {
                self.timed.push(id);
            }
            self.place(id);
            self.release(id);
        }
    }

    /// Forgets a group without messages, once its processing time is no longer recent.
    fn release(&mut self, id: u32) {
        let line = &self.lines[id];
        if line.members > 0 || line.timed || id == UNGROUPED {
            return;
        }
        let line = self.lines.remove(id);
        debug_assert!(line.placed.is_none() && line.leased == 0 && line.past().out.is_empty());
        self.pasts -= u64::from(line.past.is_some());
        if let Some(name) = line.name {
            self.name_bytes -= name.len() as u64;
            self.names.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests;
