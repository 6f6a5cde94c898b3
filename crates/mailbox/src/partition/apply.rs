//! What each record does to a partition: the same for the shard that wrote it and for one that reads it back.

use std::sync::Arc;

use ron_log::Position;

use super::past::{Moved, Past};
use super::{Leaving, Partition};
use crate::index::Entry;
use crate::record::{Death, Memo, Stand, Taken, Whole};
use crate::types::{Dead, DeadReason, Millis, Seq, State};

/// What history says of a lease that ran out.
pub(crate) const RAN_OUT: &str = "the lease ran out";
const GIVEN_BACK: &str = "given back";
const FAILED: &str = "failed";

/// A message between two partitions.
#[derive(Clone, Debug)]
pub(crate) struct MessageInTransit {
    sent_ms: Millis,
    position: Position,
    payload_len: u32,
    fence: u32,
    group: Option<Arc<str>>,
    past: Option<Past>,
    moved: Moved,
}

impl MessageInTransit {
    /// When the message was sent.
    pub(crate) fn sent_ms(&self) -> Millis {
        self.sent_ms
    }

    /// Why the message is dead, if it is.
    pub(crate) fn dead(&self) -> Option<&Dead> {
        self.moved.dead.as_ref()
    }
}

/// A time granted at `from_ms` never lasts longer than that, whatever the clock did since.
fn granted(until_ms: Millis, from_ms: Millis, now: Millis) -> Millis {
    until_ms.min(now.saturating_add(until_ms.saturating_sub(from_ms)))
}

fn waiting(due_ms: Millis, now: Millis) -> Stand {
    if due_ms > now { Stand::Delayed(due_ms) } else { Stand::Ready }
}

impl Partition {
    pub(crate) fn apply_send(&mut self, taken: &Taken<'_>, position: Position, now: Millis) {
        let line = self.lines.line_of(taken.group);
        let entry = Entry::new(taken.seq, taken.sent_ms, position, taken.payload_len, line);
        let due_ms = granted(taken.due_ms, taken.sent_ms, now);
        self.insert(entry, waiting(due_ms, now));
        if let Some((key, until_ms)) = taken.key {
            self.apply_memo(taken.seq, Memo { key, sent_ms: taken.sent_ms, until_ms }, now);
        }
    }

    /// A lease, read back.
    pub(crate) fn apply_lease(
        &mut self,
        (seq, fence): (Seq, u32),
        (until_ms, from_ms): (Millis, Millis),
        consumer: &str,
        now: Millis,
    ) {
        let Some(entry) = self.index.get(seq) else { return };
        let attempt = entry.attempts() + 1;
        self.shift(seq, Stand::Leased(granted(until_ms, from_ms, now)), |entry| {
            entry.set_attempts(attempt);
            entry.fence = fence;
        });
        self.pasts.begin(seq, attempt, consumer, from_ms);
    }

    pub(crate) fn apply_nack(&mut self, seq: Seq, (due_ms, from_ms): (Millis, Millis), reason: &str, now: Millis) {
        self.end_try(seq, from_ms, if reason.is_empty() { FAILED } else { reason });
        self.shift(seq, waiting(granted(due_ms, from_ms, now), now), |_| ());
    }

    pub(crate) fn apply_extend(&mut self, seq: Seq, (until_ms, from_ms): (Millis, Millis), now: Millis) {
        if until_ms <= from_ms {
            self.end_try(seq, from_ms, GIVEN_BACK);
            self.shift(seq, Stand::Freed, |_| ());
        } else {
            self.shift(seq, Stand::Leased(granted(until_ms, from_ms, now)), |_| ());
        }
    }

    pub(crate) fn apply_unlease(&mut self, seq: Seq) {
        self.pasts.undo(seq);
        self.shift(seq, Stand::Ready, |entry| entry.set_attempts(entry.attempts().saturating_sub(1)));
    }

    pub(crate) fn apply_returned(&mut self, seq: Seq) {
        let Some(entry) = self.index.get(seq) else { return };
        self.end_try(seq, entry.at, RAN_OUT);
        self.shift(seq, Stand::Ready, |_| ());
    }

    pub(crate) fn apply_reschedule(&mut self, seq: Seq, (due_ms, from_ms): (Millis, Millis), now: Millis) {
        self.shift(seq, waiting(granted(due_ms, from_ms, now), now), |_| ());
    }

    /// The message goes; it is to be taken in with [`Partition::apply_arrival`].
    pub(crate) fn apply_move(
        &mut self,
        seq: Seq,
        reason: Option<DeadReason>,
        now: Millis,
        attempts: u32,
        error: &str,
    ) -> Option<MessageInTransit> {
        let running = self.index.get(seq)?.state() == State::Leased;
        if running {
            self.end_try(seq, now, if error.is_empty() { FAILED } else { error });
        }
        let source = self.key;
        let group = self.group_of(seq);
        let Leaving { entry, past } = self.remove(seq)?;
        let dead = reason.map(|reason| Dead { reason, source, attempts, since_ms: now, last_error: error.into() });
        Some(MessageInTransit {
            sent_ms: entry.sent_ms(),
            position: entry.position,
            payload_len: entry.payload_len(),
            fence: entry.fence,
            group,
            past,
            moved: Moved { since_ms: now, dead },
        })
    }

    /// A message that was moved arrives.
    pub(crate) fn apply_arrival(&mut self, seq: Seq, in_transit: MessageInTransit) {
        let line = self.lines.line_of(in_transit.group.as_deref());
        let mut entry = Entry::new(seq, in_transit.sent_ms, in_transit.position, in_transit.payload_len, line);
        entry.fence = in_transit.fence;
        entry.set_moved(true);
        self.put_moved(seq, in_transit.moved);
        if let Some(past) = in_transit.past {
            self.pasts.insert(seq, past);
        }
        self.insert(entry, Stand::Ready);
    }

    /// A message as a record tells it whole; what was known of it before no longer counts.
    pub(crate) fn apply_whole(&mut self, whole: &Whole<'_>, position: Position, now: Millis) {
        let line = self.lines.line_of(whole.group);
        let mut entry = Entry::new(whole.seq, whole.sent_ms, position, whole.payload_len, line);
        entry.fence = whole.fence;
        entry.set_attempts(whole.attempts);
        if let Some(since_ms) = whole.moved_ms {
            entry.set_moved(true);
            self.put_moved(whole.seq, Moved { since_ms, dead: whole.dead.map(Dead::from) });
        }
        self.pasts.insert(whole.seq, Past::of(whole.first_leased_ms, &whole.tries));
        self.insert(
            entry,
            match whole.stand {
                Stand::Delayed(due_ms) => waiting(granted(due_ms, whole.now_ms, now), now),
                Stand::Leased(until_ms) => Stand::Leased(granted(until_ms, whole.now_ms, now)),
                ready => ready,
            },
        );
        if let Some(memo) = whole.memo {
            self.apply_memo(whole.seq, memo, now);
        }
    }

    /// Everything known of a message, as a record tells it.
    pub(crate) fn whole<'a>(&'a self, entry: &Entry, group: Option<&'a str>, now: Millis) -> Whole<'a> {
        let (past, moved) = (self.pasts.get(entry.seq), self.moved.get(&entry.seq));
        Whole {
            part: self.key,
            seq: entry.seq,
            sent_ms: entry.sent_ms(),
            now_ms: now,
            payload_len: entry.payload_len(),
            group,
            attempts: entry.attempts(),
            fence: entry.fence,
            stand: match entry.state() {
                State::Ready if entry.is_freed() => Stand::Freed,
                State::Ready => Stand::Ready,
                State::Delayed => Stand::Delayed(entry.at),
                State::Leased => Stand::Leased(entry.at),
            },
            moved_ms: moved.map(|moved| moved.since_ms),
            dead: moved.and_then(|moved| moved.dead.as_ref()).map(Death::from),
            first_leased_ms: past.map_or(0, |past| past.first_leased_ms),
            tries: past.map_or_else(Vec::new, Past::tried),
            memo: self.keys.of(now, entry.seq),
        }
    }

    /// A key is remembered.
    pub(crate) fn apply_memo(&mut self, seq: Seq, memo: Memo, now: Millis) {
        let until_ms = granted(memo.until_ms, memo.sent_ms, now);
        self.keys.insert(seq, Memo { until_ms, ..memo });
    }

    /// The name of a message's group.
    pub(crate) fn group_of(&self, seq: Seq) -> Option<Arc<str>> {
        self.lines.name(self.index.get(seq)?.group).cloned()
    }

    pub(crate) fn end_try(&mut self, seq: Seq, now: Millis, outcome: &str) {
        let busy_ms = self.pasts.end(seq, now, outcome);
        if let Some(entry) = self.index.get(seq) {
            self.lines.spend(entry.group, now, busy_ms);
        }
    }
}

impl From<Death<'_>> for Dead {
    fn from(death: Death<'_>) -> Self {
        let Death { reason, source, attempts, since_ms, last_error } = death;
        Dead { reason, source, attempts, since_ms, last_error: last_error.into() }
    }
}

impl<'a> From<&'a Dead> for Death<'a> {
    fn from(dead: &'a Dead) -> Self {
        let Dead { reason, source, attempts, since_ms, last_error } = dead;
        Death { reason: *reason, source: *source, attempts: *attempts, since_ms: *since_ms, last_error }
    }
}
