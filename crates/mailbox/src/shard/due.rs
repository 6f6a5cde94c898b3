//! What happens by itself when its time comes: leases and delays end, messages and keys are kept no longer.

use std::borrow::Cow;

use ron_log::Class;
use ron_types::{Error, Kind};

use super::context::ShardContext;
use super::{Journal, Shard};
use crate::clock::Hold;
use crate::partition::Partition;
use crate::partition::apply::RAN_OUT;
use crate::record::{Record, Stand};
use crate::types::{DeadReason, Expired, Millis, Seq, State};

/// Messages one call settles at most.
pub(super) const DUE_MAX: usize = 1000;
/// Milliseconds until messages that found no room among the dead letters are looked at again.
const NO_ROOM_PAUSE_MS: Millis = 1000;

impl Shard {
    /// Does what is due, at most a bounded part of it: then [`Shard::next_deadline`] is still not after `now`.
    pub fn tick(&mut self, now: Millis, journal: &mut dyn Journal, _draw: &mut dyn FnMut() -> u64) {
        if self.hold != Hold::NONE && !self.hold.is_on(now) {
            self.hold_back(Hold::NONE);
        }
        let mut left = DUE_MAX;
        while left > 0 {
            let Some((at, key)) = self.context.agenda.due(now).next() else { return };
            let Some(part) = self.parts.get_mut(&key) else {
                self.context.agenda.clear(at, key);
                continue;
            };
            let settled = part.settle_due(&mut self.context, journal, now, left);
            self.context.arm(part);
            self.context.finish(part);
            // Without the log nothing more can be settled; it is still due at the next tick.
            let Ok(settled) = settled else { return };
            left = left.saturating_sub(settled.max(1));
        }
    }
}

impl Partition {
    /// Settles what is due, up to `max` of each sort; returns the number settled. Bounded, because callers wait for the
    /// turn to end.
    pub(super) fn settle_due(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        max: usize,
    ) -> Result<usize, Error> {
        if let Some(breaker) = &mut self.breaker {
            self.stirred |= breaker.end_pause(now);
        }
        if self.lines.deadline().is_some_and(|at| at <= now) {
            self.lines.forget_past(now);
        }
        let ended = self.end_waits(context, journal, now, max)?;
        let (overdue, looked) = self.overdue(now, max);
        if !overdue.is_empty()
            && let Err(error) = self.expire(context, journal, now, &overdue)
        {
            // What has to wait for room must keep no other partition from what is due there.
            let pause_ms = if error.kind == Kind::Busy { NO_ROOM_PAUSE_MS } else { 0 };
            self.retry_overdue(&overdue, now + pause_ms);
            if error.kind != Kind::Busy {
                return Err(error);
            }
        }
        Ok(ended + looked + self.keys.sweep(now, max))
    }

    /// Ends delays and leases whose time has come.
    fn end_waits(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        max: usize,
    ) -> Result<usize, Error> {
        let due: Vec<_> = self.timers.due(now).take(max).collect();
        let mut returned: Vec<Seq> = Vec::new();
        let mut back: Vec<Seq> = Vec::new();
        for (_, seq) in &due {
            let Some(entry) = self.index.get(*seq).copied() else { continue };
            match entry.state() {
                // Where it cannot be buried its lease ends like any other: it may be delivered once more.
                State::Leased if self.is_spent(&entry) && (self.is_spared(&entry) || journal.takes(Class::Move)) => {
                    if self.is_spared(&entry) {
                        self.spare(context, journal, *seq)?;
                    } else {
                        self.die(context, journal, now, *seq, DeadReason::MaxAttempts, RAN_OUT)?;
                    }
                    self.counts.failed += 1;
                    self.delivery_ended(now, (*seq, entry.fence), false);
                }
                State::Leased => {
                    returned.push(*seq);
                    back.push(*seq);
                }
                _ => {
                    self.shift(*seq, Stand::Ready, |_| ());
                    back.extend(entry.is_backing_off().then_some(*seq));
                }
            }
        }
        if !returned.is_empty() {
            context.write_step(journal, &Record::Returned { part: self.key, seqs: Cow::Borrowed(&returned) })?;
            self.counts.failed += returned.len() as u64;
            for seq in returned {
                self.lease_ended(now, seq, false);
                self.apply_returned(seq);
            }
        }
        back.into_iter().for_each(|seq| self.go_behind(seq));
        Ok(due.len())
    }

    /// Moves messages to the dead letters or drops them, as the topic says; the dead are dropped.
    fn expire(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        overdue: &[Seq],
    ) -> Result<(), Error> {
        let buries = self.settings.expired == Expired::DeadLetter && self.dlq.is_some();
        let mut dropped: Vec<Seq> = Vec::new();
        for seq in overdue {
            let dead = self.moved.value(*seq).is_some_and(|moved| moved.dead.is_some());
            if buries && !dead {
                self.die(context, journal, now, *seq, DeadReason::Expired, "")?;
            } else {
                dropped.push(*seq);
            }
        }
        if !dropped.is_empty() {
            context.write(journal, &Record::Expired { part: self.key, seqs: Cow::Borrowed(&dropped) })?;
            self.counts.expired += dropped.len() as u64;
        }
        for seq in dropped {
            if let Some(leaving) = self.remove(seq) {
                journal.release(context.forget(&leaving.entry));
            }
        }
        Ok(())
    }
}
