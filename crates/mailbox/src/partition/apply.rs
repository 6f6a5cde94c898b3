//! What each record does to a partition: the same for the shard that wrote it and for one that reads it back.

use std::sync::Arc;

use ron_log::Position;
use ron_types::limits::mailbox::RETENTION_MAX;

use super::past::{Moved, Past};
use super::{Leaving, Partition};
use crate::index::Entry;
use crate::record::{Death, Memo, Stand, Taken, Whole};
use crate::types::{Dead, DeadReason, Millis, Seq, State};

/// What history says of a lease that ran out.
pub(crate) const RAN_OUT: &str = "the lease ran out";
/// Longest time for which a topic may remember a key, in milliseconds.
const WINDOW_MS_MAX: Millis = RETENTION_MAX.as_millis() as Millis;
const GIVEN_BACK: &str = "given back";
const FAILED: &str = "failed";

/// A message between two partitions.
#[derive(Clone, Debug)]
pub(crate) struct MessageInTransit {
    sent_ms: Millis,
    position: Position,
    body_len: u32,
    fence: u32,
    group: Option<Arc<str>>,
    moved: Moved,
}

impl MessageInTransit {
    /// When the message was sent.
    pub(crate) fn sent_ms(&self) -> Millis {
        self.sent_ms
    }

    /// Where the message's body is.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Why the message is dead, if it is.
    pub(crate) fn dead(&self) -> Option<&Dead> {
        self.moved.dead.as_deref()
    }
}

/// A time granted at `from_ms` never lasts longer than that, whatever the clock did since.
pub(super) fn granted(until_ms: Millis, from_ms: Millis, now: Millis) -> Millis {
    until_ms.min(now.saturating_add(until_ms.saturating_sub(from_ms)))
}

/// How a message stands that may be delivered from then on.
pub(crate) fn waiting(due_ms: Millis, now: Millis) -> Stand {
    if due_ms > now { Stand::Delayed(due_ms) } else { Stand::Ready }
}

impl Partition {
    /// A message was taken in. How long its body is, the log says: records of older nodes tell the payload's length.
    pub(crate) fn apply_send(&mut self, taken: &Taken<'_>, (position, body_len): (Position, u32), now: Millis) {
        let line = self.lines.line_of(taken.group);
        let entry = Entry::new(taken.seq, taken.sent_ms, position, body_len, line);
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
        let Some(mut entry) = self.index.get(seq).copied() else { return };
        let attempt = entry.attempts() + 1;
        entry.set_attempts(attempt);
        self.shift(seq, Stand::Leased(granted(until_ms, from_ms, now)), |entry| {
            entry.set_attempts(attempt);
            entry.fence = fence;
        });
        self.begin_try(&entry, consumer, from_ms);
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
        let Leaving { entry, past, past_at_rest } = self.remove(seq)?;
        let past = past.map(Box::new).or(past_at_rest);
        let dead = reason.map(|reason| Dead { reason, source, attempts, since_ms: now, last_error: error.into() });
        Some(MessageInTransit {
            sent_ms: entry.sent_ms(),
            position: entry.position,
            body_len: entry.body_len(),
            fence: entry.fence,
            group,
            moved: Moved { since_ms: now, dead: dead.map(Box::new), past },
        })
    }

    /// A message that was moved arrives.
    pub(crate) fn apply_arrival(&mut self, seq: Seq, in_transit: MessageInTransit) {
        let line = self.lines.line_of(in_transit.group.as_deref());
        let mut entry = Entry::new(seq, in_transit.sent_ms, in_transit.position, in_transit.body_len, line);
        entry.fence = in_transit.fence;
        entry.set_moved(true);
        self.put_moved(seq, in_transit.moved);
        self.insert(entry, Stand::Ready);
    }

    /// A message as a record tells it whole; what was known of it before no longer counts.
    pub(crate) fn apply_whole(&mut self, whole: &Whole<'_>, (position, body_len): (Position, u32), now: Millis) {
        let line = self.lines.line_of(whole.group);
        let mut entry = Entry::new(whole.seq, whole.sent_ms, position, body_len, line);
        entry.fence = whole.fence;
        entry.set_attempts(whole.attempts);
        let past = self.pasts.told(whole.first_leased_ms, &whole.tries);
        if let Some(since_ms) = whole.moved_ms {
            entry.set_moved(true);
            let (is_ready, dead) = (matches!(whole.stand, Stand::Ready), whole.dead.map(|dead| Box::new(dead.into())));
            let (at_rest, past) = if is_ready { (past.at_rest(), None) } else { (None, Some(past)) };
            self.put_moved(whole.seq, Moved { since_ms, dead, past: at_rest });
            past.into_iter().for_each(|past| self.pasts.insert(whole.seq, past));
        } else {
            self.pasts.insert(whole.seq, past);
        }
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
        let (past, moved) = (self.past_of(entry), self.moved.value(entry.seq));
        Whole {
            part: self.key,
            seq: entry.seq,
            sent_ms: entry.sent_ms(),
            now_ms: now,
            body_len: entry.body_len(),
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
            dead: moved.and_then(|moved| moved.dead.as_deref()).map(Death::from),
            first_leased_ms: past.map_or(0, |past| past.first_leased_ms),
            tries: past.map_or_else(Vec::new, Past::tried),
            memo: self.keys.of(now, entry.seq),
        }
    }

    /// A key is remembered.
    pub(crate) fn apply_memo(&mut self, seq: Seq, memo: Memo, now: Millis) {
        // A clock that was ahead dated the message, and the end was set anew once the clock was right again.
        let is_set_anew = memo.until_ms < memo.sent_ms;
        let from_ms = if is_set_anew { memo.until_ms.saturating_sub(WINDOW_MS_MAX) } else { memo.sent_ms };
        let until_ms = granted(memo.until_ms, from_ms, now);
        self.keys.insert(seq, Memo { until_ms, ..memo });
    }

    /// The name of a message's group.
    pub(crate) fn group_of(&self, seq: Seq) -> Option<Arc<str>> {
        self.lines.name(self.index.get(seq)?.group).cloned()
    }

    /// A delivery of a message begins: its last lease is in its entry.
    pub(crate) fn begin_try(&mut self, entry: &Entry, consumer: &str, now: Millis) -> &Past {
        // What is known of earlier deliveries elsewhere changes from now on.
        if entry.is_moved()
            && let Some(past) = self.moved.value_mut(entry.seq).and_then(|moved| moved.past.take())
        {
            self.moved_bytes -= past.bytes_at_rest();
            self.pasts.insert(entry.seq, *past);
        }
        self.pasts.begin(entry.seq, entry.attempts(), consumer, now)
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
