//! Appending: many records under one hold of the lock.

use crate::core::{Core, panicked};
use crate::error::LogError;
use crate::fault;
use crate::frame::RECORD_OVERHEAD;
use crate::gather::Gather;
use crate::lone::LoneCommit;
use crate::model::{Class, Lsn, Position, Shortage};
use crate::table::Added;
use std::sync::{Arc, MutexGuard};
use std::thread;

/// Holds the log for appending; keep it short. Dropping it wakes the writer.
///
/// While it lives, only [`crate::Log::release`], [`crate::Log::durable`] and [`crate::Log::watch`] may be called on the
/// same thread: the rest needs what it holds.
///
/// A panic of its holder after something was appended fails the log, because what the holder knows may no longer be
/// what the log says; except for an owner that [reads the log again](Appender::of_rebuilt).
pub struct Appender<'a> {
    core: &'a Arc<Core>,
    /// `None` only while dropping.
    gather: Option<MutexGuard<'a, Gather>>,
    /// Sums over the records appended to `segment` that are not yet in the table.
    added: Added,
    segment: u32,
    first_lsn: u64,
    found_no_room: bool,
    has_appended: bool,
    is_rebuilt: bool,
    /// A record has been begun: it may be in the log and not counted yet.
    is_appending: bool,
    /// The thread was unwinding already when it took the log: its panic is none of ours.
    was_panicking: bool,
}

impl<'a> Appender<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Appender<'a> {
        let gather = core.gather();
        let segment = gather.tail().segment;
        let first_lsn = gather.tail().lsn + 1;
        let added = Added::default();
        Appender {
            core,
            gather: Some(gather),
            added,
            segment,
            first_lsn,
            found_no_room: false,
            has_appended: false,
            is_rebuilt: false,
            is_appending: false,
            was_panicking: thread::panicking(),
        }
    }

    /// For an owner that, after a panic, reads from the log what it knows: the log goes on.
    #[must_use]
    pub fn of_rebuilt(mut self) -> Self {
        self.is_rebuilt = true;
        self
    }

    /// Appends a record. Its position is final at once; it is durable when [`crate::Log::durable`] reaches its number.
    pub fn append(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, LogError> {
        self.is_appending = true;
        let appended = self.append_and_count(class, head, body);
        self.is_appending = false;
        appended
    }

    fn append_and_count(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, LogError> {
        let len = u32::try_from(head.len() + body.len()).unwrap_or(u32::MAX - RECORD_OVERHEAD) + RECORD_OVERHEAD;
        let class = self.granted(class, len);
        let gather = self.gather.as_mut().expect("held until the drop");
        let appended = gather.append(class, head, body);
        self.found_no_room |= appended == Err(LogError::Full { shortage: Shortage::Device });
        let position = appended?;
        if position.segment != self.segment {
            let first_lsn = gather.tail().lsn;
            self.settle();
            self.segment = position.segment;
            self.first_lsn = first_lsn;
        }
        self.has_appended = true;
        fault::point();
        self.added.count(position.len, !body.is_empty());
        Ok(position)
    }

    /// Whether a record of this class and length would find room now.
    pub fn takes(&self, class: Class, len: u32) -> bool {
        let class = self.granted(class, len);
        self.gather.as_ref().is_some_and(|gather| gather.shortage(class, len).is_none())
    }

    /// A refusal must end by itself: what settles or moves is refused at its bound only while reclaiming has garbage
    /// to give back, which brings the log below the bound again. With nothing to gain, waiting would be for ever.
    fn granted(&self, class: Class, len: u32) -> Class {
        if !matches!(class, Class::Move | Class::Settle) {
            return class;
        }
        let Some(gather) = &self.gather else { return class };
        let (shortage, room) = (gather.shortage(class, len), gather.copy_room());
        // What moves takes as much as it frees, so that it must not use up what a full device has in reserve.
        let may_pass = |shortage: &Shortage| class == Class::Settle || *shortage == Shortage::Quota;
        let is_for_ever = |shortage: Shortage| !self.core.has_garbage(shortage, room);
        if shortage.filter(may_pass).is_some_and(is_for_ever) { Class::Copy } else { class }
    }

    /// Number of the last record appended to the log by anyone.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.gather.as_ref().map_or(0, |gather| gather.tail().lsn))
    }

    /// Lets the log go as a drop does, except that nobody is woken for a record that is alone: the caller owes its
    /// commit. Never so unless [`crate::Log::let_callers_commit`] allows it.
    pub fn finish(mut self) -> Option<LoneCommit> {
        self.let_go(true).then(|| LoneCommit::new(self.core))
    }

    /// Lets the log go and wakes the writer if there is something for it; true if that was left to the caller.
    fn let_go(&mut self, caller_commits: bool) -> bool {
        self.settle();
        let Some(mut gather) = self.gather.take() else { return false };
        let is_lost = gather.is_mid_change() || self.is_appending || self.has_appended && !self.is_rebuilt;
        if thread::panicking() && !self.was_panicking && is_lost {
            self.core.fail_holding(&mut gather, panicked());
        }
        let (mut sleeps, mut is_left) = (false, false);
        if self.has_appended {
            gather.note_appender();
            is_left = caller_commits && gather.is_lone();
            sleeps = gather.writer_sleeps;
        }
        // The lock is let go before the wake-up, so that the writer does not wake only to wait for it.
        drop(gather);
        if sleeps && !is_left {
            self.core.work.notify_one();
        }
        // Upkeep asks the disk again: space may have become free since appends were last refused.
        if self.found_no_room {
            self.core.want_upkeep();
        }
        is_left
    }

    /// Counts what was appended in the table, before anybody else can see it there.
    fn settle(&mut self) {
        let added = std::mem::take(&mut self.added);
        if added.records > 0 {
            self.core.table().add(self.segment, self.core.options.segment_bytes, self.first_lsn, added);
        }
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        self.let_go(false);
    }
}

#[cfg(test)]
mod tests;
