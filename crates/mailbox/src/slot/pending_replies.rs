//! The replies a shard owes: those that wait for the log, and those that wait for a message.

use std::collections::VecDeque;
use std::sync::Mutex;

use ron_log::{Lsn, Position};
use ron_types::{Error, Kind};

use crate::engine::{Engine, ShardNumbers, lock};
use crate::fault;
use crate::job::{Job, Turn, Work};
use crate::random;
use crate::receiving::{ClaimedMessages, ReceiveReply, ReceiveTerms, Served, ShardReceive, WaitingReceivers};
use crate::shard::{Recv, Shard};
use crate::topics::SettingsSeen;
use crate::types::{Leased, Millis, PartKey};

/// Leases that came back which one turn ends.
const RETURNED_AT_ONCE: usize = 1024;
/// Milliseconds between two walks through all receivers that wait at a shard.
const FORGET_EVERY_MS: u64 = 500;

/// What the turns of a shard keep beside its state.
#[derive(Default)]
pub(crate) struct PendingReplies {
    /// A worker lives that will send replies once the log is durable: callers may run turns of their own.
    pub is_attended: bool,
    pub(super) settings_seen: SettingsSeen,
    /// Replies that wait for the log, in the order of the records they wait for.
    waiting_for_log: VecDeque<(Lsn, Reply)>,
    /// Replies of the turn that runs.
    of_this_turn: Vec<Reply>,
    /// The newest record this shard wrote or its state was built from: no reply depends on a later one.
    pub(super) last_lsn: Lsn,
    /// The version of the routing that the last turn saw.
    pub(super) routing_version: u64,
    receivers: WaitingReceivers,
    /// Time at which those of them that are over are forgotten.
    forget_at_ms: Millis,
    /// Positions for the log to release after the turn; kept for its allocation.
    pub(super) released: Vec<Position>,
    /// Partitions that became ready in a turn; kept for its allocation.
    ready: Vec<PartKey>,
    /// The deadline that was last published.
    deadline: Option<Millis>,
    /// The turn that holds the log; it is still here if that turn panicked.
    pub unfinished: Option<UnfinishedTurn>,
}

/// A turn that has not ended: what it has done for other shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnfinishedTurn {
    /// The last record before those of the turn.
    pub began: Lsn,
    /// Messages that it moved and that their new owners were given, in the order of their records.
    pub handed_over: usize,
}

/// A reply to a caller.
pub(crate) enum Reply {
    Done(Box<dyn Work>),
    Received(ReceiveReply),
}

impl PendingReplies {
    /// Topics whose settings the shard was told.
    #[cfg(test)]
    pub fn topics_seen(&self) -> usize {
        self.settings_seen.len()
    }

    /// Whether replies wait for the log.
    pub fn any_wait_for_log(&self) -> bool {
        !self.waiting_for_log.is_empty()
    }

    /// Whether one more reply may wait: a shard owes no more than its queue would hold, so that what it has taken on
    /// and not yet answered is bounded.
    pub fn has_room(&self, engine: &Engine) -> bool {
        self.waiting_for_log.len() + self.of_this_turn.len() < engine.options.shard_capacity
    }

    /// Takes out the replies whose records are durable.
    pub fn take_durable(&mut self, durable: Lsn) -> Vec<Reply> {
        let count = self.waiting_for_log.iter().take_while(|(lsn, _)| *lsn <= durable).count();
        self.waiting_for_log.drain(..count).map(|(_, reply)| reply).collect()
    }

    /// The replies that may leave after a turn; the others wait for the turn's last record.
    pub(super) fn replies_after_turn(&mut self, durable: Lsn) -> Vec<Reply> {
        let last = self.last_lsn;
        if last <= durable && !self.any_wait_for_log() {
            return self.of_this_turn.drain(..).collect();
        }
        self.waiting_for_log.extend(self.of_this_turn.drain(..).map(|reply| (last, reply)));
        self.take_durable(durable)
    }

    /// Answers every waiting receiver with no messages; it asks again where its partitions are then.
    pub fn dismiss_receivers(&mut self) {
        let dismissed = self.receivers.take_all().flat_map(|receive| receive.answer(Ok(ClaimedMessages::NONE)));
        self.of_this_turn.extend(dismissed.map(Reply::Received));
    }

    /// The state broke or the log failed: callers learn by the end of their reply channel that nobody knows, and what
    /// was leased and never sent is given back, because nobody has it and nobody should wait for the lease to end.
    pub fn abandon(&mut self) {
        self.waiting_for_log.clear();
        self.of_this_turn.clear();
        self.receivers = WaitingReceivers::default();
        self.settings_seen.clear();
    }

    /// What comes before the jobs of a turn: what became of topics is learnt, messages that other shards handed over
    /// are taken in, unclaimed leases ended, and what is due is done.
    ///
    /// Topics first, and in every turn: changes of topics are written under the log's lock, which a turn holds, so
    /// nothing that the shard writes about a topic comes behind the record of its end.
    pub(super) fn before_jobs(&mut self, turn: &mut Turn<'_>, tick: bool) {
        let shared = &turn.engine.shards[turn.index].shared;
        let (changed, handovers) = (take(&shared.changed_topics), take(&shared.handovers));
        changed.into_iter().for_each(|id| turn.follow_topic(id));
        for (lsn, handover) in handovers {
            // Another shard wrote its record, and no reply may tell of it before that is durable.
            self.last_lsn = self.last_lsn.max(lsn);
            fault::point();
            if let Some(topic) = turn.engine.topics.by_id(handover.to.topic) {
                turn.tell(&topic);
                turn.shard.adopt(turn.now, handover);
            } else {
                // Its topic went while it was on its way, and the log need not keep it.
                turn.journal.release(handover.position());
            }
        }
        end_returned_leases(turn);
        if tick {
            turn.shard.tick(turn.now, turn.journal, &mut random::draw);
            // A time that is further ahead is of before the clock was set back.
            if turn.now >= self.forget_at_ms || turn.now + FORGET_EVERY_MS < self.forget_at_ms {
                self.receivers.forget_over();
                self.forget_at_ms = turn.now + FORGET_EVERY_MS;
            }
        }
    }

    pub(super) fn perform(&mut self, job: Job, turn: &mut Turn<'_>) {
        match job {
            Job::Do(mut work) => {
                work.run(turn);
                self.of_this_turn.push(Reply::Done(work));
            }
            Job::DismissReceivers(mut work) => {
                self.dismiss_receivers();
                work.run(turn);
                self.of_this_turn.push(Reply::Done(work));
            }
            Job::Recv(receive) => self.receive(receive, turn),
        }
    }

    fn receive(&mut self, receive: ShardReceive, turn: &mut Turn<'_>) {
        if receive.is_over() {
            return;
        }
        let (topic, shards) = (receive.terms().topic, receive.terms().shards);
        if let Err(error) = turn.enter_topic(topic, shards) {
            self.of_this_turn.extend(receive.answer(Err(error)).map(Reply::Received));
            return;
        }
        // First come, first served: a newcomer gets nothing while somebody who is still there waits before it.
        let served = match self.receivers.nobody_waits(topic) {
            true => receive.serve(&turn.engine.shards[turn.index].returned, |terms| lease_from_any(terms, turn)),
            false => Served::Nothing,
        };
        match served {
            Served::Over => {}
            Served::Answered(reply) => self.of_this_turn.push(Reply::Received(reply)),
            Served::Nothing if receive.terms().waits => self.wait(receive, turn),
            Served::Nothing => self.of_this_turn.extend(receive.has_nothing().map(Reply::Received)),
        }
    }

    fn wait(&mut self, receive: ShardReceive, turn: &Turn<'_>) {
        if turn.engine.routing.get().value.moving {
            // Its partitions may be about to go; it asks again where they will be.
            self.of_this_turn.extend(receive.answer(Ok(ClaimedMessages::NONE)).map(Reply::Received));
        } else {
            self.receivers.push(receive);
        }
    }

    /// Delivers what has become ready to waiting receivers, first come first served.
    pub(super) fn serve_receivers(&mut self, turn: &mut Turn<'_>) {
        let mut ready = std::mem::take(&mut self.ready);
        turn.shard.take_ready(&mut ready);
        for part in ready.drain(..) {
            let home = &turn.engine.shards[turn.index].returned;
            let replies = &mut self.of_this_turn;
            let lease = |terms: &ReceiveTerms| lease(terms, part, turn);
            self.receivers.serve(part.topic, home, lease, |reply| replies.push(Reply::Received(reply)));
        }
        self.ready = ready;
    }

    /// Tells the scanner and observers what the turn changed.
    pub(crate) fn publish(&mut self, engine: &Engine, index: usize, shard: &Shard) {
        let deadline = shard.next_deadline();
        if std::mem::replace(&mut self.deadline, deadline) != deadline {
            engine.publish_deadline(index, deadline);
        }
        let totals = shard.totals();
        let numbers = ShardNumbers {
            ready: totals.ready,
            delayed: totals.delayed,
            leased: totals.leased,
            waiters: self.receivers.count() as u64,
            reorder_depth_max: totals.reorder_depth_max,
            breakers_open: shard.breakers_open(),
            memory_bytes: shard.memory_bytes(),
            key_bytes: shard.key_bytes(),
        };
        *lock(&engine.shards[index].shared.numbers) = numbers;
    }
}

impl Reply {
    /// Sends it.
    pub fn send(self) {
        match self {
            Reply::Done(work) => work.reply(),
            Reply::Received(reply) => reply.send(),
        }
    }
}

fn take<T: Default>(from: &Mutex<T>) -> T {
    std::mem::take(&mut *lock(from))
}

/// Ends leases that came back, which nobody has. Those of partitions that have moved since are their owner's.
fn end_returned_leases(turn: &mut Turn<'_>) {
    let home = &turn.engine.shards[turn.index].returned;
    let returned = home.take(RETURNED_AT_ONCE);
    if returned.is_empty() {
        return;
    }
    let routing = turn.engine.routing.get().value;
    for (place, lease) in returned.iter().enumerate() {
        let (part, seq, fence) = *lease;
        let owner = routing.shard_of(part);
        if owner != turn.index {
            turn.engine.shards[owner].returned.put([*lease]);
        } else if let Err(error) = turn.shard.release_lease(turn.now, turn.journal, part, seq, fence)
            && error.kind == Kind::Busy
        {
            // The disk is behind: a delivery to nobody must not count because of it.
            home.keep(&returned[place..]);
            return;
        }
    }
    home.wake_for_rest();
}

/// Leases from the first partition here that has something.
fn lease_from_any(terms: &ReceiveTerms, turn: &mut Turn<'_>) -> Result<Vec<Leased>, Error> {
    let (routing, index) = (turn.engine.routing.get().value, turn.index);
    let here = terms.parts().filter(|part| routing.shard_of(*part) == index);
    let room = turn.engine.lease_room(terms)?;
    for part in here {
        let leased = lease_up_to(room, terms, part, turn)?;
        if !leased.is_empty() {
            return Ok(leased);
        }
    }
    Ok(Vec::new())
}

fn lease(terms: &ReceiveTerms, part: PartKey, turn: &mut Turn<'_>) -> Result<Vec<Leased>, Error> {
    lease_up_to(turn.engine.lease_room(terms)?, terms, part, turn)
}

fn lease_up_to(room: usize, terms: &ReceiveTerms, part: PartKey, turn: &mut Turn<'_>) -> Result<Vec<Leased>, Error> {
    let mut leased = Vec::new();
    let recv = Recv { max_messages: terms.max_messages.min(room), ..terms.recv() };
    turn.shard.recv(turn.now, turn.journal, part, recv, &mut leased)?;
    turn.shard.note_holder(&leased, terms.holder.as_ref());
    Ok(leased)
}
