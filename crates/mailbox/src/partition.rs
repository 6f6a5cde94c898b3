//! One partition: its messages, where each stands, and every step from one state to another.

use std::sync::Arc;

use crate::by_seq::BySeq;
use crate::clock::Hold;
use crate::group_queues::GroupQueues;
use crate::holders::MessageHolders;
use crate::index::{Entry, Index};
use crate::record::Stand;
use crate::timers::Deadlines;
use crate::types::{BreakerState, BreakerView, Groups, Millis, PartKey, PartStats, Seq, State, TopicSettings};

pub(crate) mod apply;
pub(crate) mod breaker;
pub(crate) mod keys;
mod memory;
pub(crate) mod past;

use breaker::{Breaker, Lease};
use keys::Keys;
use past::{Moved, Past, Pasts};

/// One partition with everything known of it, so that it can move to another shard whole.
pub struct Partition {
    pub(crate) key: PartKey,
    pub(crate) settings: Arc<TopicSettings>,
    /// Where its dead messages go.
    pub(crate) dlq: Option<PartKey>,
    pub(crate) index: Index,
    pub(crate) lines: GroupQueues,
    /// Ends of leases and delays.
    pub(crate) timers: Deadlines<Seq>,
    pub(crate) keys: Keys,
    pub(crate) pasts: Pasts,
    pub(crate) holders: MessageHolders,
    /// Messages that came from elsewhere, by the ends of the times they are kept.
    pub(crate) moved: BySeq<(Seq, Moved)>,
    /// Memory those take.
    moved_bytes: u64,
    /// Counters since the start; the rest of it is unused.
    pub(crate) counts: PartStats,
    pub(crate) keep: Keep,
    /// Only where the topic has one.
    pub(crate) breaker: Option<Box<Breaker>>,
    /// The time it is in the shard's agenda with.
    pub(crate) armed_ms: Option<Millis>,
    /// Something became ready since the shard last looked.
    pub(crate) stirred: bool,
    /// It is in the shard's list of partitions to wake waiters of.
    pub(crate) woken: bool,
    /// What it holds as the shard's totals have it.
    pub(crate) counted: Held,
    /// Newer messages delivered before the oldest ready one, and that one.
    passed: (Seq, u64),
    ready: u64,
    delayed: u64,
    leased: u64,
    bytes: u64,
}

/// Ready, delayed and leased messages, breakers that are not closed, remembered keys, and bytes of memory.
pub(crate) type Held = [u64; 6];

/// Who is kept until when. Messages are sent in order, so a cursor is enough for nearly all of them.
pub(crate) struct Keep {
    /// Those with a time of their own: they were leased when their time was over, could not be dropped, or are dated
    /// ahead of those behind them.
    pub(crate) own: Deadlines<Seq>,
    /// All messages before it have a time of their own or are leased.
    cursor: Seq,
    /// Nothing behind the cursor is over before then.
    next_ms: Millis,
    /// There was no room to bury those that are over: nobody looks before then.
    again_ms: Millis,
}

/// A message on its way out.
pub(crate) struct Leaving {
    pub entry: Entry,
    /// Its deliveries, if it had any here.
    pub past: Option<Past>,
    /// Those it had before it came, if it had none here.
    pub past_at_rest: Option<Box<Past>>,
}

impl Partition {
    /// An empty partition.
    pub(crate) fn new(key: PartKey, settings: Arc<TopicSettings>, dlq: Option<PartKey>) -> Self {
        let lines = GroupQueues::new(settings.groups == Groups::Fifo);
        let breaker = settings.breaker.map(|breaker| Box::new(Breaker::new(breaker)));
        Partition {
            key,
            settings,
            dlq: dlq.filter(|dlq| *dlq != key),
            index: Index::default(),
            lines,
            timers: Deadlines::new(),
            keys: Keys::default(),
            pasts: Pasts::default(),
            holders: MessageHolders::default(),
            moved: BySeq::default(),
            moved_bytes: 0,
            counts: PartStats::default(),
            keep: Keep::new(),
            breaker,
            armed_ms: None,
            stirred: false,
            woken: false,
            counted: Held::default(),
            passed: (0, 0),
            ready: 0,
            delayed: 0,
            leased: 0,
            bytes: 0,
        }
    }

    /// Other rules hold from now on.
    pub(crate) fn set_settings(&mut self, settings: Arc<TopicSettings>, dlq: Option<PartKey>) {
        self.lines.set_fifo(settings.groups == Groups::Fifo, &self.index);
        if settings.breaker != self.settings.breaker {
            self.breaker = settings.breaker.map(|breaker| Box::new(Breaker::new(breaker)));
        }
        let keeps_otherwise = settings.retention_ms != self.settings.retention_ms;
        self.settings = settings;
        self.dlq = dlq.filter(|dlq| *dlq != self.key);
        // Looks at every message, so only where it matters.
        if keeps_otherwise {
            self.keep_anew();
        }
        self.stirred = true;
    }

    /// Something is held back because the clock jumped, or no longer.
    pub(crate) fn set_hold(&mut self, hold: Hold) {
        // Looks at every message that came from elsewhere, so only where it matters.
        if self.keys.hold() != hold {
            self.keys.set_hold(hold);
            self.keep_anew();
        }
    }

    /// The clock was set, and shows so many milliseconds more or less: what waits for a time waits as much longer as
    /// before. How long messages are kept goes by when they were sent, as it does after a restart.
    pub(crate) fn follow_clock(&mut self, by_ms: i64) {
        self.timers.shift(by_ms);
        self.index.for_each_mut(|entry| {
            if entry.state() != State::Ready {
                entry.at = entry.at.saturating_add_signed(by_ms);
            }
        });
        self.lines.shift(by_ms);
        self.keys.follow_clock(by_ms);
        self.keep.again_ms = self.keep.again_ms.saturating_add_signed(by_ms);
        if let Some(breaker) = &mut self.breaker {
            breaker.shift(by_ms);
        }
    }

    /// Messages are kept by other rules than before: every time is looked at again.
    fn keep_anew(&mut self) {
        self.keep = Keep::new();
        self.keep.next_ms = if self.index.len() > 0 { 0 } else { Millis::MAX };
        self.moved.forget_ends();
    }

    /// Its topic's groups are lines in strict order.
    pub(crate) fn is_fifo(&self) -> bool {
        self.settings.groups == Groups::Fifo
    }

    /// This partition's part of a limit of its topic.
    pub(crate) fn share(&self, limit: u64) -> u64 {
        limit.div_ceil(u64::from(self.settings.partitions.max(1)))
    }

    /// Leases it may still give.
    pub(crate) fn leases_left(&self) -> u64 {
        let left = self.share(u64::from(self.settings.inflight_max)).saturating_sub(self.leased);
        self.breaker.as_ref().map_or(left, |breaker| left.min(breaker.leases_left(&self.index)))
    }

    /// Leases it may give, if it has given all of them.
    pub(crate) fn leases_spent(&self) -> Option<u64> {
        let max = self.share(u64::from(self.settings.inflight_max));
        (self.leased >= max).then_some(max)
    }

    /// A receive would give something.
    pub(crate) fn has_ready(&self) -> bool {
        !self.settings.paused && self.lines.has_ready() && self.leases_left() > 0
    }

    /// What the shard's totals count of it.
    pub(crate) fn held(&self) -> Held {
        let breakers = u64::from(self.breaker_view().state != BreakerState::Closed);
        let keys = self.keys.len() as u64;
        [self.ready, self.delayed, self.leased, breakers, keys, self.memory_bytes()]
    }

    /// Bytes of the messages it holds, as they lie in the log.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A delivered message dies instead of coming back.
    pub(crate) fn is_spent(&self, entry: &Entry) -> bool {
        let max = self.settings.max_attempts;
        max > 0 && entry.attempts() >= max && self.dlq.is_some()
    }

    /// How its breaker stands; closed if it has none.
    pub(crate) fn breaker_view(&self) -> BreakerView {
        self.breaker.as_ref().map_or_else(BreakerView::default, |breaker| breaker.view())
    }

    /// A failed delivery does not kill this message: its topic is paused because too many fail.
    pub(crate) fn is_spared(&self, entry: &Entry) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| breaker.spares(entry))
    }

    /// A delivery ended, well or not.
    pub(crate) fn delivery_ended(&mut self, now: Millis, lease: Lease, good: bool) {
        if let Some(breaker) = &mut self.breaker {
            self.stirred |= breaker.count(now, lease, good);
        }
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let breaker = self.breaker.as_ref().and_then(|breaker| breaker.deadline());
        let others = [self.timers.first(), self.keys.deadline(), self.lines.deadline(), breaker];
        let kept_ms = self.keep.deadline(self.moved.first_end());
        let next_ms = others.into_iter().flatten().fold(kept_ms, Millis::min);
        (next_ms < Millis::MAX).then_some(next_ms)
    }

    /// Counts of what the partition holds and has done.
    pub(crate) fn stats(&self) -> PartStats {
        PartStats {
            ready: self.ready,
            delayed: self.delayed,
            leased: self.leased,
            bytes: self.bytes,
            groups: self.lines.groups(),
            keys: self.keys.len() as u64,
            oldest_ms: self.index.first().map_or(0, Entry::sent_ms),
            breaker: self.breaker_view(),
            ..self.counts
        }
    }

    /// Takes a message in.
    pub(crate) fn insert(&mut self, entry: Entry, stand: Stand) {
        self.lines.join(entry.group);
        self.bytes += u64::from(entry.body_len());
        self.index.insert(entry);
        // What came from elsewhere is kept by its own time.
        if !entry.is_moved() {
            self.keep.cursor = self.keep.cursor.min(entry.seq);
            self.keep.next_ms = self.keep.next_ms.min(self.kept_until(&entry));
        }
        self.enter(entry.seq, stand);
    }

    /// Takes a message out.
    pub(crate) fn remove(&mut self, seq: Seq) -> Option<Leaving> {
        let entry = *self.index.get(seq)?;
        self.leave(&entry);
        if !self.keep.own.is_empty() {
            self.keep.own.clear(self.kept_until(&entry), seq);
        }
        self.index.remove(seq);
        self.lines.leave(entry.group);
        self.bytes -= u64::from(entry.body_len());
        let moved = if entry.is_moved() { self.moved.remove(seq) } else { None };
        let past_at_rest = moved.and_then(|(_, moved)| {
            self.moved_bytes -= moved.memory_bytes();
            moved.past
        });
        self.holders.forget(seq);
        let past = if past_at_rest.is_none() { self.pasts.remove(seq) } else { None };
        Some(Leaving { entry, past, past_at_rest })
    }

    /// Notes how a message came from another partition.
    pub(crate) fn put_moved(&mut self, seq: Seq, moved: Moved) {
        if let Some((_, old)) = self.moved.remove(seq) {
            self.moved_bytes -= old.memory_bytes();
        }
        self.moved_bytes += moved.memory_bytes();
        let until_ms = moved.kept_until(self.keys.hold(), self.settings.retention_ms);
        self.moved.insert((seq, moved), until_ms);
    }

    /// What is known of a message's deliveries.
    pub(crate) fn past_of(&self, entry: &Entry) -> Option<&Past> {
        let moved = if entry.is_moved() { self.moved.value(entry.seq) } else { None };
        moved.and_then(|moved| moved.past.as_deref()).or_else(|| self.pasts.get(entry.seq))
    }

    /// A message comes to stand elsewhere, after `change` was made to it.
    pub(crate) fn shift(&mut self, seq: Seq, stand: Stand, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.index.get(seq).copied() else { return };
        self.leave(&entry);
        if let Some(entry) = self.index.get_mut(seq) {
            change(entry);
        }
        if entry.state() == State::Leased && self.was_passed_over(&entry) {
            self.keep.own.set(self.kept_until(&entry), seq);
        }
        self.enter(seq, stand);
    }

    /// A message has another length.
    pub(crate) fn resize(&mut self, seq: Seq, body_len: u32) {
        if let Some(entry) = self.index.get_mut(seq) {
            self.bytes -= u64::from(entry.body_len());
            entry.set_body_len(body_len);
            self.bytes += u64::from(entry.body_len());
        }
    }

    /// Takes the first message of a line, one before `before` unless nothing holds it up; it then stands nowhere until
    /// it enters a state.
    pub(crate) fn pop(&mut self, line: u32, before: Seq) -> Option<Entry> {
        let seq = self.lines.pop(line, before, &self.index)?;
        let entry = self.index.get_mut(seq).expect("a line holds only messages of the index");
        let popped = *entry;
        entry.set_fresh(false);
        entry.set_freed(false);
        self.ready -= 1;
        Some(popped)
    }

    /// A message that stands nowhere comes to stand there.
    pub(crate) fn enter(&mut self, seq: Seq, stand: Stand) {
        let entry = self.index.get_mut(seq).expect("only a message of the index enters a state");
        let line = entry.group;
        entry.at = 0;
        match stand {
            Stand::Ready => {
                entry.set_state(State::Ready);
                entry.set_fresh(self.lines.push(line, seq));
                self.ready += 1;
                self.stirred = true;
            }
            Stand::Freed => {
                entry.set_state(State::Ready);
                entry.set_freed(true);
                self.lines.push_freed(line, seq);
                self.ready += 1;
                self.stirred = true;
            }
            Stand::Delayed(due_ms) => {
                entry.set_state(State::Delayed);
                entry.at = due_ms;
                self.timers.set(due_ms, seq);
                self.delayed += 1;
                if entry.is_backing_off() {
                    self.lines.back_off(line, seq);
                }
            }
            Stand::Leased(until_ms) => {
                entry.set_state(State::Leased);
                entry.at = until_ms;
                self.timers.set(until_ms, seq);
                self.leased += 1;
                self.holders.set_leased(seq, true);
                self.lines.lease(line, seq);
            }
        }
    }

    /// A message came back: its group waits behind the groups that wait now, so that one that fails again and again
    /// does not keep the others from being served. Memory only: after a restart the oldest heads go first again.
    pub(crate) fn go_behind(&mut self, seq: Seq) {
        let Some(group) = self.index.get(seq).map(|entry| entry.group) else { return };
        let newest = self.index.last().map_or(0, |last| last.seq);
        self.lines.go_behind(group, newest);
    }

    /// Counts that a message was delivered although older ones were ready.
    pub(crate) fn note_order(&mut self, seq: Seq) {
        let Some(oldest) = self.lines.oldest_ready().filter(|oldest| *oldest < seq) else { return };
        let depth = if self.passed.0 == oldest { self.passed.1 + 1 } else { 1 };
        self.passed = (oldest, depth);
        self.counts.reorder_depth_max = self.counts.reorder_depth_max.max(depth);
    }

    /// Until when a message is kept.
    pub(crate) fn kept_until(&self, entry: &Entry) -> Millis {
        let moved = if entry.is_moved() { self.moved.value(entry.seq) } else { None };
        let since_ms = moved.map_or_else(|| entry.sent_ms(), |moved| moved.since_ms);
        self.keys.hold().end_of(since_ms, since_ms.saturating_add(self.settings.retention_ms))
    }

    /// About `max` messages of each sort that were kept long enough; leased ones wait until the lease ends. Also the
    /// work that it was to find them, counted in messages.
    pub(crate) fn overdue(&mut self, now: Millis, max: usize) -> (Vec<Seq>, usize) {
        let mut out = Vec::new();
        if now < self.keep.again_ms {
            return (out, 0);
        }
        let own: Vec<_> = self.keep.own.due(now).take(max).collect();
        for (at, seq) in own {
            self.keep.own.clear(at, seq);
            if self.index.get(seq).is_some_and(|entry| entry.state() != State::Leased) {
                out.push(seq);
            }
        }
        let Partition { moved, index, keys, settings, .. } = self;
        let end_of = |(_, moved): &(Seq, Moved)| moved.kept_until(keys.hold(), settings.retention_ms);
        let work = moved.show_ended(now, max, end_of, |(seq, _)| {
            if index.get(*seq).is_some_and(|entry| entry.state() != State::Leased) {
                out.push(*seq);
            }
        });
        if self.keep.next_ms <= now {
            self.scan(now, max, &mut out);
        }
        // What could not be dropped may be found in both ways.
        out.sort_unstable();
        out.dedup();
        let work = work.max(out.len());
        (out, work)
    }

    /// A message that was leased when its time was over is not looked for again.
    fn was_passed_over(&self, entry: &Entry) -> bool {
        match entry.is_moved() {
            true => self.moved.was_shown(entry.seq, self.kept_until(entry)),
            false => entry.seq < self.keep.cursor,
        }
    }

    /// Messages that were overdue are still here: they will be seen again, but not before `again_ms`.
    pub(crate) fn retry_overdue(&mut self, seqs: &[Seq], again_ms: Millis) {
        self.keep.again_ms = again_ms;
        for seq in seqs {
            if let Some(entry) = self.index.get(*seq) {
                self.keep.own.set(self.kept_until(entry), *seq);
            }
        }
    }

    fn scan(&mut self, now: Millis, max: usize, out: &mut Vec<Seq>) {
        self.keep.next_ms = Millis::MAX;
        for (steps, entry) in self.index.from(self.keep.cursor).enumerate() {
            let until_ms =
                self.keys.hold().end_of(entry.sent_ms(), entry.sent_ms().saturating_add(self.settings.retention_ms));
            // Sent by a clock that was ahead and has been set right since: it must not keep those behind it for longer.
            let is_ahead = entry.sent_ms() > now && until_ms > now;
            if steps >= max || !entry.is_moved() && until_ms > now && !is_ahead {
                self.keep.next_ms = if steps >= max { now } else { until_ms };
                self.keep.cursor = entry.seq;
                return;
            }
            if entry.is_moved() {
                continue;
            }
            if is_ahead {
                self.keep.own.set(until_ms, entry.seq);
            } else if entry.state() != State::Leased {
                out.push(entry.seq);
            }
        }
        self.keep.cursor = self.index.last().map_or(0, |last| last.seq + 1);
    }

    /// A message stands nowhere for a moment.
    fn leave(&mut self, entry: &Entry) {
        match entry.state() {
            State::Ready => {
                let place = self.index.get_mut(entry.seq).expect("only a message of the index leaves a state");
                place.set_fresh(false);
                place.set_freed(false);
                self.lines.withdraw(entry, &self.index);
                self.ready -= 1;
            }
            State::Delayed => {
                self.timers.clear(entry.at, entry.seq);
                self.delayed -= 1;
                if entry.is_backing_off() {
                    self.lines.end_back_off(entry.group, entry.seq);
                }
            }
            State::Leased => {
                self.timers.clear(entry.at, entry.seq);
                // Where no more leases were allowed, what is ready waited for this one to end.
                self.stirred |= self.leases_left() == 0;
                self.leased -= 1;
                self.holders.set_leased(entry.seq, false);
                self.lines.unlease(entry.group, entry.seq);
            }
        }
    }
}

impl Keep {
    fn new() -> Self {
        Keep { own: Deadlines::new(), cursor: 0, next_ms: Millis::MAX, again_ms: 0 }
    }

    /// When a message may be over, the first that came from elsewhere included; the end of time if none ever is.
    fn deadline(&self, of_moved: Option<Millis>) -> Millis {
        match [self.own.first(), of_moved].into_iter().flatten().fold(self.next_ms, Millis::min) {
            Millis::MAX => Millis::MAX,
            next_ms => next_ms.max(self.again_ms),
        }
    }
}
