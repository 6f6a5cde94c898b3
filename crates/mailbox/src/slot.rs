//! What callers do at a shard, in the order in which it happens to them.
//!
//! 1. A caller asks ([`Engine::ask`]). If the shard's slot is free it runs the turn itself; otherwise its job goes to
//!    the queue `work_tx`, and the shard's worker takes up to 64 jobs in one turn.
//! 2. The turn ([`ShardSlot::turn`]) changes the pure state at once and appends a record for each change.
//! 3. The reply waits ([`PendingReplies`]) until the log has made the records it depends on durable.
//! 4. The reply leaves ([`ShardHandle::send_replies`]): at once if nothing had to be written, otherwise by the worker,
//!    which watches the log. A caller that is alone syncs its record itself ([`LoneTurn`]) and takes its reply along.

mod lone_turn;
mod pending_replies;

use std::sync::{Arc, MutexGuard, TryLockError};

use ron_log::{Durability, LoneCommit, Lsn};
use ron_types::Error;

pub(crate) use lone_turn::{LoneTurn, settle};
pub(crate) use pending_replies::{PendingReplies, Reply};

use crate::engine::{Engine, Opened, ShardHandle, SharedShard, lock};
use crate::job::{Job, LogJournal, Turn, Wake};
use crate::shard::Shard;

/// Jobs of one turn: many enough to share a commit, few enough that the log is not kept from other shards for long.
const TURN_JOBS_MAX: usize = 64;
/// Tries to take the slot before a caller leaves its job to the worker. A turn takes a few microseconds, about as long
/// as waking the worker would, so a short spin is cheaper than the queue.
const TAKE_TRIES_MAX: usize = 200;

/// The state of a shard and the replies it owes. It outlives its worker, so that the next life of the worker goes on
/// where the last one was.
#[derive(Default)]
pub(crate) struct ShardSlot {
    /// None until the log has been read.
    pub shard: Option<Shard>,
    pub pending: PendingReplies,
}

/// What a turn needs from outside the slot.
#[derive(Clone, Copy)]
pub(crate) struct TurnEnvironment<'a> {
    /// The shard's number.
    pub index: usize,
    pub engine: &'a Engine,
    pub opened: &'a Opened,
    /// Whether the one who runs the turn commits a record that is alone.
    pub settles: bool,
}

/// What a turn came to.
pub(crate) struct Turned {
    /// Replies that may be sent at once.
    pub replies: Vec<Reply>,
    /// The commit of the turn's records, if it is owed by the one who ran the turn.
    pub owed: Option<LoneCommit>,
}

impl Engine {
    /// Has a job done on a turn of its shard: here and now if the slot is free, by the worker otherwise. Busy if the
    /// worker's queue is full.
    pub fn ask(&self, index: usize, job: Job) -> Result<(), Error> {
        self.run_or_queue(index, job, false).map(drop)
    }

    /// The same for a caller that is ready to wait for the disk on its own thread: what it is given, it must
    /// [`settle`] once it has asked for everything it wants.
    pub fn ask_and_settle(self: &Arc<Self>, index: usize, job: Job) -> Result<Option<LoneTurn>, Error> {
        let owed = self.run_or_queue(index, job, true)?;
        Ok(owed.map(|commit| LoneTurn::new(Arc::clone(self), index, commit)))
    }

    fn run_or_queue(&self, index: usize, job: Job, settles: bool) -> Result<Option<LoneCommit>, Error> {
        match self.try_run(index, job, settles)? {
            Tried::Ran(owed) => Ok(owed),
            Tried::Taken(job) => self.shards[index].jobs.offer(job).map(|()| None),
        }
    }

    /// Runs the job's turn on this thread. Gives the job back if the slot is taken, if no worker lives that would send
    /// the reply later, or if as many replies wait as may.
    fn try_run(&self, index: usize, job: Job, settles: bool) -> Result<Tried, Error> {
        let opened = self.opened()?;
        let handle = &self.shards[index];
        let Some(mut slot) = handle.shared.try_take() else { return Ok(Tried::Taken(job)) };
        if !slot.pending.is_attended || !slot.pending.has_room(self) {
            return Ok(Tried::Taken(job));
        }
        let waited_before = slot.pending.any_wait_for_log();
        let environment = TurnEnvironment { index, engine: self, opened, settles };
        let Turned { replies, owed } = slot.turn(environment, Some(job), false, || None);
        let wait_now = slot.pending.any_wait_for_log();
        drop(slot);
        // The worker watches the log only while replies wait for it: it must hear of the first. Of one whose commit is
        // owed it hears later, should the reply then still wait.
        if wait_now && !waited_before && owed.is_none() {
            handle.shared.reply_waits.notify_one();
        }
        handle.send_replies(replies);
        Ok(Tried::Ran(owed))
    }
}

/// What became of a job that wanted its turn at once.
enum Tried {
    Ran(Option<LoneCommit>),
    /// The slot is taken; here is the job.
    Taken(Job),
}

impl SharedShard {
    /// The slot, if it is free within a short spin; never if it must be rebuilt first.
    fn try_take(&self) -> Option<MutexGuard<'_, ShardSlot>> {
        for _ in 0..TAKE_TRIES_MAX {
            match self.slot.try_lock() {
                Ok(slot) => return Some(slot),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }
}

impl ShardHandle {
    /// Sends replies. A delivery whose receiver has gone is given back to the shard, which ends the lease on its next
    /// turn: nobody has the message, so nobody should wait for the lease to run out.
    pub fn send_replies(&self, replies: Vec<Reply>) {
        let mut unclaimed = Vec::new();
        for reply in replies {
            unclaimed.append(&mut reply.send());
        }
        if !unclaimed.is_empty() {
            lock(&self.shared.slot).pending.take_back(unclaimed);
            // A wake-up makes sure that there is a next turn; a full queue already holds one.
            let _ = self.wakes.offer(Wake);
        }
    }
}

impl ShardSlot {
    /// Takes a state that was built from the log up to its end.
    pub fn install(&mut self, shard: Shard, last: Lsn) {
        self.pending.abandon();
        self.pending.last_lsn = last;
        self.shard = Some(shard);
    }

    /// One turn: what is due if `tick`, a job, and the jobs behind it, under one hold of the log.
    pub fn turn(
        &mut self,
        environment: TurnEnvironment<'_>,
        first: Option<Job>,
        tick: bool,
        next: impl FnMut() -> Option<Job>,
    ) -> Turned {
        let ShardSlot { shard: Some(shard), pending } = self else {
            return Turned { replies: Vec::new(), owed: None };
        };
        let TurnEnvironment { engine, opened, .. } = environment;
        // With another routing, partitions have come whose records other shards wrote: replies depend on those, too.
        let routing = engine.routing.get().version;
        if std::mem::replace(&mut pending.routing_version, routing) != routing {
            pending.last_lsn = opened.log.appender().lsn();
        }
        let mut released = std::mem::take(&mut pending.released);
        let (written, owed) = write_turn(environment, shard, pending, &mut released, (first, tick), next);
        // After the turn, because the turn holds the log's lock and releasing takes it again.
        opened.log.release_all(released.drain(..));
        pending.released = released;
        pending.last_lsn = written.unwrap_or(pending.last_lsn);
        pending.publish(environment, shard);
        engine.tell_of_breakers(shard.take_breaker_turns());
        // A log in memory has no writer thread: whoever wrote last says that it is as safe as it gets.
        let in_memory = opened.log.durability() == Durability::Ram;
        let durable = if in_memory { opened.log.settle_in_memory().unwrap_or_default() } else { opened.log.durable() };
        Turned { replies: pending.replies_after_turn(durable), owed }
    }
}

/// The part of a turn that holds the log's lock; the number of the last record, if any was written, and the commit that
/// is owed for it.
fn write_turn(
    environment: TurnEnvironment<'_>,
    shard: &mut Shard,
    pending: &mut PendingReplies,
    released: &mut Vec<ron_log::Position>,
    (first, tick): (Option<Job>, bool),
    mut next: impl FnMut() -> Option<Job>,
) -> (Option<Lsn>, Option<LoneCommit>) {
    let TurnEnvironment { engine, opened, index, settles } = environment;
    let now = opened.clock.now();
    let mut settings_seen = std::mem::take(&mut pending.settings_seen);
    let mut journal = LogJournal::new(&opened.log, released);
    let mut turn = Turn { shard, journal: &mut journal, now, engine, index, settings_seen: &mut settings_seen };
    pending.before_jobs(&mut turn, tick);
    let mut job = first;
    for _ in 0..TURN_JOBS_MAX {
        let Some(taken) = job else { break };
        pending.perform(taken, &mut turn);
        job = if pending.has_room(engine) { next() } else { None };
    }
    // Already taken from the queue when the last one was done.
    if let Some(left) = job {
        pending.perform(left, &mut turn);
    }
    pending.serve_receivers(&mut turn);
    let moved = turn.shard.take_outbox();
    let written = journal.written();
    engine.counts.steps_unwritten(journal.unwritten);
    if !moved.is_empty() {
        engine.hand_over(written.unwrap_or(pending.last_lsn), moved);
    }
    let owed = journal.finish(settles);
    pending.settings_seen = settings_seen;
    (written, owed)
}
