//! What callers do at a shard, in the order in which it happens to them.
//!
//! 1. A caller asks ([`Engine::ask_and_settle`]). If the shard's slot is free it runs the turn itself; otherwise its
//!    job goes to the queue `work_tx`, and the shard's worker takes up to 64 jobs in one turn.
//! 2. The turn ([`ShardSlot::turn`]) changes the pure state at once and appends a record for each change.
//! 3. The reply waits ([`PendingReplies`]) until the log has made the records it depends on durable.
//! 4. The reply leaves ([`Reply::send`]): at once if nothing had to be written, otherwise by the worker,
//!    which watches the log. A caller that is alone syncs its record itself ([`LoneTurn`]) and takes its reply along.

mod lone_turn;
mod pending_replies;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

use ron_kernel::Deadline;
use ron_log::{Durability, Log, LoneCommit, Lsn, Position};
use ron_types::{Error, Kind};

pub(crate) use lone_turn::{LoneTurn, settle};
pub(crate) use pending_replies::{PendingReplies, Reply, UnfinishedTurn};

use crate::engine::{Engine, Opened, SharedShard};
use crate::fault;
use crate::job::{Job, LogJournal, Turn, Wake};
use crate::shard::Shard;

/// Jobs of one turn: many enough to share a commit, few enough that the log is not kept from other shards for long.
const TURN_JOBS_MAX: usize = 64;
/// Tries to take the slot before a caller leaves its job to the worker. A turn takes a few microseconds, about as long
/// as waking the worker would, so a short spin is cheaper than the queue.
const TAKE_TRIES_MAX: usize = 200;

/// Time after which upkeep asks a shard again whose queue is full.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

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
    /// worker's queue is full. For a caller that is ready to wait for the disk on its own thread: what it is given, it
    /// must [`settle`] once it has asked for everything it wants.
    pub fn ask_and_settle(self: &Arc<Self>, index: usize, job: Job) -> Result<Option<LoneTurn>, Error> {
        match self.try_run(index, job, true)? {
            Tried::Ran(owed) => Ok(owed.map(|commit| LoneTurn::new(Arc::clone(self), index, commit))),
            Tried::Taken(job) => self.shards[index].jobs.offer(job).map(|()| None),
        }
    }

    /// The same for upkeep, which waits for no disk and has time: instead of being refused it asks again until the
    /// deadline.
    pub async fn ask_when_free(&self, index: usize, job: Job, deadline: Deadline) -> Result<(), Error> {
        let mut job = job;
        loop {
            let Tried::Taken(taken) = self.try_run(index, job, false)? else { return Ok(()) };
            job = match self.shards[index].jobs.offer_or_return(taken) {
                Ok(()) => return Ok(()),
                Err((refused, error)) if error.kind == Kind::Busy && !deadline.has_passed() => refused,
                Err((_, error)) => return Err(error),
            };
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
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
        let environment = TurnEnvironment { index, engine: self, opened, settles };
        // A panic ends the turn and not its caller, who may be anybody. The slot goes with it, so that its lock is
        // poisoned, and the worker, once woken, has it rebuilt.
        let turned = catch_unwind(AssertUnwindSafe(move || {
            let waited_before = slot.pending.any_wait_for_log();
            let turned = slot.turn(environment, Some(job), false, || None);
            (turned, !waited_before && slot.pending.any_wait_for_log())
        }));
        let Ok((Turned { replies, owed }, is_first_to_wait)) = turned else {
            let _ = handle.wakes.offer(Wake);
            return Err(Error::canceled("the turn at its shard ended early"));
        };
        // The worker watches the log only while replies wait for it: it must hear of the first. Of one whose commit is
        // owed it hears later, should the reply then still wait.
        if is_first_to_wait && owed.is_none() {
            handle.shared.reply_waits.notify_one();
        }
        replies.into_iter().for_each(Reply::send);
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

impl ShardSlot {
    /// Takes a state that was built from the log up to its end.
    pub fn install(&mut self, shard: Shard, last: Lsn) {
        self.pending.abandon();
        self.pending.last_lsn = last;
        self.pending.unfinished = None;
        self.shard = Some(shard);
    }

    /// Forgets what topics the shard has been told of, because partitions have come and gone.
    pub fn forget_rules(&mut self) {
        self.pending.settings_seen.clear();
        if let Some(shard) = &mut self.shard {
            shard.forget_rules();
        }
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
        let TurnEnvironment { engine, opened, index, .. } = environment;
        // With another routing, partitions have come whose records other shards wrote: replies depend on those, too.
        let routing = engine.routing.get().version;
        if std::mem::replace(&mut pending.routing_version, routing) != routing {
            pending.last_lsn = opened.log.appender().lsn();
        }
        let mut released = Released { log: &opened.log, positions: std::mem::take(&mut pending.released) };
        let had_remains = shard.has_remains();
        let (written, owed) = write_turn(environment, shard, pending, &mut released.positions, (first, tick), next);
        // After the turn, because the turn holds the log's lock and releasing takes it again.
        fault::point();
        pending.released = released.give_back();
        fault::point();
        pending.last_lsn = written.unwrap_or(pending.last_lsn);
        pending.publish(engine, environment.index, shard);
        if shard.has_remains() && !had_remains {
            // The worker lets go of them; a full queue already holds a wake-up.
            let _ = engine.shards[index].wakes.offer(Wake);
        }
        engine.tell_of_breakers(shard.take_breaker_turns());
        fault::point();
        // A log in memory has no writer thread: whoever wrote last says that it is as safe as it gets.
        let in_memory = opened.log.durability() == Durability::Ram;
        let durable = if in_memory { opened.log.settle_in_memory().unwrap_or_default() } else { opened.log.durable() };
        Turned { replies: pending.replies_after_turn(durable), owed }
    }
}

/// Places in the log that a turn no longer needs. They are given back also where the turn breaks: the records that say
/// so are written, and the shard that is built from them knows nothing of these places.
struct Released<'a> {
    log: &'a Log,
    positions: Vec<Position>,
}

impl Released<'_> {
    /// Gives the places back; the emptied list may be used again.
    fn give_back(&mut self) -> Vec<Position> {
        self.log.release_all(self.positions.drain(..));
        std::mem::take(&mut self.positions)
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The part of a turn that holds the log's lock; the number of the last record, if any was written, and the commit that
/// is owed for it.
fn write_turn(
    environment: TurnEnvironment<'_>,
    shard: &mut Shard,
    pending: &mut PendingReplies,
    released: &mut Vec<Position>,
    (first, tick): (Option<Job>, bool),
    mut next: impl FnMut() -> Option<Job>,
) -> (Option<Lsn>, Option<LoneCommit>) {
    let TurnEnvironment { engine, opened, index, settles } = environment;
    let mut settings_seen = std::mem::take(&mut pending.settings_seen);
    let mut journal = LogJournal::new(&opened.log, released);
    // The clock is set while the log is held, so what this turn writes is all by one time.
    let now = opened.bring_up_to_date(shard);
    pending.unfinished = Some(UnfinishedTurn { began: journal.last(), handed_over: 0 });
    let mut turn = Turn { shard, journal: &mut journal, now, engine, index, settings_seen: &mut settings_seen };
    pending.before_jobs(&mut turn, tick);
    let mut job = first;
    for _ in 0..TURN_JOBS_MAX {
        let Some(taken) = job else { break };
        fault::point();
        pending.perform(taken, &mut turn);
        job = if pending.has_room(engine) { next() } else { None };
    }
    // Already taken from the queue when the last one was done.
    if let Some(left) = job {
        pending.perform(left, &mut turn);
    }
    pending.serve_receivers(&mut turn);
    fault::point();
    let moved = turn.shard.take_outbox();
    let written = journal.written();
    engine.counts.steps_unwritten(journal.unwritten);
    for handover in moved {
        fault::point();
        engine.hand_over(written.unwrap_or(pending.last_lsn), handover);
        pending.unfinished.as_mut().expect("set when the turn began").handed_over += 1;
    }
    fault::point();
    let owed = journal.finish(settles);
    pending.unfinished = None;
    pending.settings_seen = settings_seen;
    (written, owed)
}

#[cfg(test)]
mod tests;
