//! Handing messages to consumers, and what consumers say of them.

use std::borrow::Cow;
use std::sync::Arc;

use ron_log::Class;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};

use super::context::ShardContext;
use super::{Fencing, Journal, Nack, Nacked, Recv, Shard, cut, lease_ended, no_message};
use crate::holders::LeaseHolder;
use crate::index::Entry;
use crate::partition::Partition;
use crate::partition::past::Past;
use crate::record::{ITEMS_MAX, Record, Stand};
use crate::types::{Content, DeadReason, Leased, Millis, PartKey, Seq, State};

/// Messages one receive may bury that were delivered too often.
const SPENT_MAX: usize = 100;
/// Milliseconds until a message that could not be read is tried again.
const UNREAD_PAUSE_MS: u64 = 1000;

impl Shard {
    /// Leases what is ready, one record for all of it; nothing ready is no error.
    pub fn recv(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        recv: Recv<'_>,
        out: &mut Vec<Leased>,
    ) -> Result<(), Error> {
        let Ok((part, context)) = self.known_part(part) else { return Ok(()) };
        let mut items = std::mem::take(&mut context.items);
        let is_due = part.next_deadline().is_some_and(|at| at <= now);
        let settled =
            if is_due { part.settle_due(context, journal, now, super::due::DUE_MAX).map(|_| ()) } else { Ok(()) };
        // What is due can wait for room; a consumer cannot, because room comes from consuming.
        let settled = settled.or_else(|error| if error.kind == Kind::Busy { Ok(()) } else { Err(error) });
        let result = settled.and_then(|()| part.lease_some(context, journal, now, &recv, &mut items, out));
        items.clear();
        context.items = items;
        context.finish(part);
        result
    }

    /// Notes who has messages that were just leased, where somebody's leases are counted.
    pub(crate) fn note_holder(&mut self, leased: &[Leased], holder: Option<&Arc<LeaseHolder>>) {
        for Leased { part, seq, .. } in leased {
            if let Some(part) = self.parts.get_mut(part) {
                part.holders.begin(*seq, holder);
            }
        }
    }

    /// Acknowledges messages by their newest leases, one record for all of them; an answer for each.
    pub fn ack(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        items: &[(Seq, u32)],
    ) -> Vec<Result<(), Error>> {
        self.ack_fenced(now, journal, part, items, Fencing::Newest)
    }

    /// As [`Shard::ack`], by the leases that `fencing` lets count.
    pub fn ack_fenced(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        items: &[(Seq, u32)],
        fencing: Fencing,
    ) -> Vec<Result<(), Error>> {
        let Ok((part, context)) = self.known_part(part) else {
            return items.iter().map(|_| Err(lease_ended())).collect();
        };
        let mut answers = Vec::with_capacity(items.len());
        for items in items.chunks(ITEMS_MAX) {
            part.ack_some(context, journal, now, (items, fencing), &mut answers);
        }
        context.finish(part);
        answers
    }

    /// A delivery failed: the message comes back after a while, or dies.
    #[expect(clippy::too_many_arguments, reason = "a lease is named by three of them")]
    pub fn nack(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        fence: u32,
        nack: Nack<'_>,
        draw: u64,
    ) -> Result<Nacked, Error> {
        let (part, context) = self.known_part(part)?;
        let entry = part.leased_entry(now, seq, fence)?;
        let reason = cut(nack.reason, limits::REASON_BYTES_MAX);
        let died = match () {
            // What cannot be buried comes back: a consumer can still end it, and room comes from that.
            () if !journal.takes(Class::Move) => None,
            () if nack.reject && part.dlq.is_some() => Some(DeadReason::Rejected),
            () if part.is_spent(&entry) && !part.is_spared(&entry) => Some(DeadReason::MaxAttempts),
            () => None,
        };
        let nacked = if let Some(why) = died {
            part.die(context, journal, now, seq, why, reason)?;
            Nacked::Died
        } else if part.is_spent(&entry) && part.is_spared(&entry) {
            part.spare(context, journal, seq)?;
            Nacked::Requeued { due_ms: now }
        } else {
            let delay_ms = nack.delay_ms.unwrap_or_else(|| part.backoff_ms(entry.attempts(), draw));
            let due_ms = now.saturating_add(delay_ms);
            context.write_step(journal, &Record::Nack { part: part.key, seq, due_ms, now_ms: now, reason })?;
            part.apply_nack(seq, (due_ms, now), reason, now);
            if due_ms <= now {
                part.go_behind(seq);
            }
            Nacked::Requeued { due_ms }
        };
        part.counts.failed += 1;
        part.delivery_ended(now, (seq, fence), false);
        context.finish(part);
        Ok(nacked)
    }

    /// Gives a lease another end, counted from now; 0 gives the message back at once, whatever its group waits for.
    pub fn extend(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        fence: u32,
        visibility_ms: u64,
    ) -> Result<Millis, Error> {
        self.extend_fenced(now, journal, part, (seq, fence), visibility_ms, Fencing::Newest)
    }

    /// As [`Shard::extend`], by a lease that `fencing` lets count: a message whose lease has ended is hidden anew.
    pub fn extend_fenced(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        (seq, fence): (Seq, u32),
        visibility_ms: u64,
        fencing: Fencing,
    ) -> Result<Millis, Error> {
        let (part, context) = self.known_part(part)?;
        let until_ms = now.saturating_add(visibility_ms.min(limits::VISIBILITY_MAX.as_millis() as u64));
        if fencing == Fencing::Newest || part.is_fifo() {
            part.leased_entry(now, seq, fence)?;
        } else {
            match part.known_lease(seq, fence)?.state() {
                State::Ready if until_ms <= now => return Ok(now),
                State::Ready | State::Delayed if until_ms > now && part.leases_left() == 0 => {
                    return Err(Error::busy("the topic's table of leases"));
                }
                _ => {}
            }
        }
        context.write_step(journal, &Record::Extend { part: part.key, seq, until_ms, now_ms: now })?;
        part.apply_extend(seq, (until_ms, now), now);
        if until_ms <= now {
            part.go_behind(seq);
        }
        context.finish(part);
        Ok(until_ms)
    }

    /// Messages of these leases could not be read: the deliveries did not happen and do not count. They come again
    /// after a pause, so that one that stays unreadable does not keep a receiver from those behind it; in a group in
    /// strict order nothing may pass it, so there the whole group goes behind the others.
    pub fn give_back_unread(
        &mut self,
        now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        items: &[(Seq, u32)],
    ) -> Result<(), Error> {
        let (part, context) = self.known_part(part)?;
        let given =
            items.iter().try_for_each(|(seq, fence)| part.give_back_unread(context, journal, now, *seq, *fence));
        context.finish(part);
        given
    }

    /// The answer with this lease never left: the delivery did not happen and does not count, also where the lease has
    /// run out and nobody has noticed yet. Nothing is left to do where it has ended already.
    pub fn release_lease(
        &mut self,
        _now: Millis,
        journal: &mut dyn Journal,
        part: PartKey,
        seq: Seq,
        fence: u32,
    ) -> Result<(), Error> {
        let Ok((part, context)) = self.known_part(part) else { return Ok(()) };
        if part.index.get(seq).is_some_and(|entry| entry.state() == State::Leased && entry.fence == fence) {
            context.write_step(journal, &Record::Unlease { part: part.key, seq })?;
            part.apply_unlease(seq);
            context.finish(part);
        }
        Ok(())
    }
}

impl Partition {
    fn lease_some(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        recv: &Recv<'_>,
        items: &mut Vec<(Seq, u32)>,
        out: &mut Vec<Leased>,
    ) -> Result<(), Error> {
        if self.settings.paused {
            return Ok(());
        }
        let visibility_ms = recv.visibility_ms.unwrap_or(self.settings.visibility_ms);
        let until_ms = now.saturating_add(visibility_ms.min(limits::VISIBILITY_MAX.as_millis() as u64));
        let (consumer, mut freed) = (cut(recv.consumer, limits::KEY_BYTES_MAX), Vec::new());
        let mut chosen = self.choose(context, journal, now, recv, until_ms, (&mut *items, &mut freed));
        if chosen.is_ok() && !items.is_empty() {
            let items = Cow::Borrowed(items.as_slice());
            let record = Record::Lease { part: self.key, until_ms, now_ms: now, consumer, items };
            chosen = context.write_step(journal, &record);
        }
        if let Err(error) = chosen {
            self.unchoose(items, &freed);
            return Err(error);
        }
        if items.is_empty() {
            return Ok(());
        }
        self.counts.delivered += items.len() as u64;
        if let Some(breaker) = &mut self.breaker {
            breaker.let_out(items);
        }
        for (seq, _) in items {
            out.extend(self.leased(context, now, *seq, consumer));
        }
        Ok(())
    }

    /// Leases messages in memory, the next in turn first; notes those that had been freed. An error may come when some
    /// are chosen already.
    fn choose(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        recv: &Recv<'_>,
        until_ms: Millis,
        (items, freed): (&mut Vec<(Seq, u32)>, &mut Vec<Seq>),
    ) -> Result<(), Error> {
        let room = recv.max_messages.min(ITEMS_MAX).min(self.leases_left() as usize);
        let (mut bytes, mut spent) = (0, 0);
        while items.len() < room
            && let Some(line) = self.lines.pick(now)
        {
            let before = self.lines.first_out(line);
            // Of a line that must stay in order one receive takes all it can: the next receive would have to wait.
            while items.len() < room
                && let Some(entry) = self.pop(line, before)
            {
                let seq = entry.seq;
                // Where it cannot be buried it is handed out once more, or it would block those behind it.
                if self.is_spent(&entry) && journal.takes(Class::Move) {
                    self.enter(seq, standing(&entry));
                    if spent == SPENT_MAX {
                        return Ok(());
                    }
                    spent += 1;
                    self.bury_spent(context, journal, now, seq)?;
                    continue;
                }
                bytes += self.bytes_in_answer(&entry);
                if bytes > recv.max_bytes && !items.is_empty() {
                    self.enter(seq, standing(&entry));
                    return Ok(());
                }
                freed.extend(entry.is_freed().then_some(seq));
                items.push((seq, self.lease_one(&entry, until_ms)));
                self.note_order(seq);
                if !self.is_fifo() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Bytes that a message adds to an answer: its body, and what is told of earlier deliveries, which may be more.
    fn bytes_in_answer(&self, entry: &Entry) -> usize {
        let past = if entry.attempts() > 0 { self.past_of(entry).map_or(0, Past::text_bytes) } else { 0 };
        let moved = if entry.is_moved() { self.moved.value(entry.seq) } else { None };
        let dead = moved.and_then(|moved| moved.dead.as_ref());
        entry.body_len() as usize + past + dead.map_or(0, |dead| dead.last_error.len())
    }

    fn lease_one(&mut self, popped: &Entry, until_ms: Millis) -> u32 {
        let fence = popped.fence.wrapping_add(1);
        if let Some(entry) = self.index.get_mut(popped.seq) {
            entry.set_attempts(popped.attempts() + 1);
            entry.fence = fence;
        }
        self.enter(popped.seq, Stand::Leased(until_ms));
        fence
    }

    /// The leases are not in the log: they never were.
    fn unchoose(&mut self, items: &[(Seq, u32)], freed: &[Seq]) {
        for (seq, fence) in items {
            let stand = if freed.contains(seq) { Stand::Freed } else { Stand::Ready };
            self.shift(*seq, stand, |entry| {
                entry.set_attempts(entry.attempts().saturating_sub(1));
                entry.fence = fence.wrapping_sub(1);
            });
        }
    }

    fn give_back_unread(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        fence: u32,
    ) -> Result<(), Error> {
        // Whoever has settled it meanwhile, or lost it to its time, has nothing to give back.
        if self.leased_entry(now, seq, fence).is_err() {
            return Ok(());
        }
        context.write_step(journal, &Record::Unlease { part: self.key, seq })?;
        self.apply_unlease(seq);
        if self.is_fifo() {
            self.go_behind(seq);
            return Ok(());
        }
        let due_ms = now + UNREAD_PAUSE_MS;
        // A pause that a crash may shorten: a step of the delivery, not data, and it must pass where the log is full.
        let pause = Record::Reschedule { part: self.key, seq, due_ms, now_ms: now };
        context.write_as(journal, Class::Step, &pause, &[])?;
        self.apply_reschedule(seq, (due_ms, now), now);
        Ok(())
    }

    /// What a consumer is told of a message just leased.
    fn leased(&mut self, context: &mut ShardContext, now: Millis, seq: Seq, consumer: &str) -> Option<Leased> {
        let entry = *self.index.get(seq)?;
        let past = self.begin_try(&entry, consumer, now);
        let earlier = past.tries.len() - 1;
        let history = past.tries[..earlier].iter().map(|one| one.attempt()).collect();
        let first_leased_ms = past.first_leased_ms;
        let body = context.hot.take(seq);
        Some(Leased {
            part: self.key,
            seq,
            sent_ms: entry.sent_ms(),
            group: self.lines.name(entry.group).cloned(),
            attempt: entry.attempts(),
            fence: entry.fence,
            leased_ms: now,
            until_ms: entry.at,
            first_leased_ms,
            history,
            dead: entry.is_moved().then(|| self.moved.value(seq)?.dead.as_deref().cloned()).flatten(),
            content: body.map_or(Content::Cold(entry.position), Content::Hot),
        })
    }

    fn ack_some(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        (items, fencing): (&[(Seq, u32)], Fencing),
        answers: &mut Vec<Result<(), Error>>,
    ) {
        let before = answers.len();
        let mut seqs = Vec::with_capacity(items.len());
        for (seq, fence) in items {
            let answer = self.check_ack(now, (*seq, *fence), fencing).and_then(|()| match seqs.binary_search(seq) {
                Ok(_) => Err(lease_ended()),
                Err(slot) => {
                    seqs.insert(slot, *seq);
                    Ok(())
                }
            });
            answers.push(answer);
        }
        if seqs.is_empty() {
            return;
        }
        let record = Record::Ack { part: self.key, seqs: Cow::Borrowed(&seqs) };
        if let Err(error) = context.write(journal, &record) {
            for answer in answers[before..].iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(error.clone());
            }
            return;
        }
        self.counts.acked += seqs.len() as u64;
        for seq in seqs {
            self.lease_ended(now, seq, true);
            self.end_try(seq, now, "");
            if let Some(leaving) = self.remove(seq) {
                journal.release(context.forget(&leaving.entry));
            }
        }
    }

    /// Late is good enough where order is not promised, as long as nobody else got the message.
    fn check_ack(&self, now: Millis, (seq, fence): (Seq, u32), fencing: Fencing) -> Result<(), Error> {
        if fencing == Fencing::Any && !self.is_fifo() {
            return self.known_lease(seq, fence).map(|_| ());
        }
        let entry = self.index.get(seq).filter(|entry| entry.fence == fence && entry.attempts() > 0);
        let in_time = |entry: &&Entry| entry.state() == State::Leased && entry.at > now;
        entry.filter(|entry| !self.is_fifo() || in_time(entry)).map(|_| ()).ok_or_else(lease_ended)
    }

    /// The message of a lease that holds.
    fn leased_entry(&self, now: Millis, seq: Seq, fence: u32) -> Result<Entry, Error> {
        let holds = |entry: &&Entry| entry.state() == State::Leased && entry.fence == fence && entry.at > now;
        self.index.get(seq).filter(holds).copied().ok_or_else(lease_ended)
    }

    /// The message of a lease that this partition gave at any time.
    fn known_lease(&self, seq: Seq, fence: u32) -> Result<Entry, Error> {
        let given_here = |entry: &&Entry| {
            // Leases of a message that came from elsewhere were given there, and ended when it left.
            let before = if entry.is_moved() { entry.fence.saturating_sub(entry.attempts()) } else { 0 };
            (before + 1..=entry.fence).contains(&fence)
        };
        self.index.get(seq).filter(given_here).copied().ok_or_else(lease_ended)
    }

    fn backoff_ms(&self, attempts: u32, draw: u64) -> u64 {
        let doublings = attempts.saturating_sub(1).min(32);
        let bound = self.settings.backoff_base_ms.saturating_mul(1 << doublings).min(self.settings.backoff_max_ms);
        draw % bound.saturating_add(1).max(1)
    }

    fn bury_spent(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
    ) -> Result<(), Error> {
        let past = self.index.get(seq).and_then(|entry| self.past_of(entry));
        let last = past.and_then(|past| past.tries.last());
        let error = last.map_or_else(String::new, |last| last.outcome.to_string());
        self.die(context, journal, now, seq, DeadReason::MaxAttempts, &error)
    }

    /// Gives a message back that would die of this delivery: it does not count, because its topic is paused.
    pub(super) fn spare(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        seq: Seq,
    ) -> Result<(), Error> {
        context.write_step(journal, &Record::Unlease { part: self.key, seq })?;
        self.apply_unlease(seq);
        Ok(())
    }

    /// A delivery is about to end; one that has ended before, and is only acknowledged now, has been counted.
    pub(super) fn lease_ended(&mut self, now: Millis, seq: Seq, good: bool) {
        if self.breaker.is_some()
            && let Some(entry) = self.index.get(seq).filter(|entry| entry.state() == State::Leased)
        {
            self.delivery_ended(now, (seq, entry.fence), good);
        }
    }

    /// Moves a message to the dead letters.
    pub(super) fn die(
        &mut self,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        reason: DeadReason,
        error: &str,
    ) -> Result<(), Error> {
        let to = self.dlq.ok_or_else(no_message)?;
        self.die_to(to, context, journal, now, seq, reason, error)
    }

    /// Moves a message to these dead letters.
    #[expect(clippy::too_many_arguments, reason = "a death is all of this")]
    pub(super) fn die_to(
        &mut self,
        to: PartKey,
        context: &mut ShardContext,
        journal: &mut dyn Journal,
        now: Millis,
        seq: Seq,
        reason: DeadReason,
        error: &str,
    ) -> Result<(), Error> {
        let from = self.key;
        let attempts = self.index.get(seq).ok_or_else(no_message)?.attempts();
        let reason = Some(reason);
        context.write(journal, &Record::Move { from, to, seq, reason, now_ms: now, attempts, error })?;
        if let Some(in_transit) = self.apply_move(seq, reason, now, attempts, error) {
            context.hand_over(to, seq, in_transit);
            self.counts.died += 1;
        }
        Ok(())
    }
}

/// How a ready message stands.
fn standing(entry: &Entry) -> Stand {
    if entry.is_freed() { Stand::Freed } else { Stand::Ready }
}
