//! The slot of a shard: its state and all that a turn needs. Whoever holds it may run a turn; answers leave once the
//! log is durable.

use std::collections::VecDeque;

use hashbrown::HashMap;
use ron_log::{Durability, Lsn, Position};
use ron_types::Error;

use crate::engine::{Engine, Opened, ShardNumbers, lock};
use crate::job::{Job, LogJournal, PendingReceive, Turn, Work};
use crate::shard::{Recv, Shard};
use crate::topics::SettingsSeen;
use crate::types::{Leased, Millis, PartKey};

/// Jobs of one turn: many enough to share a commit, few enough that the log is not kept from other shards for long.
const TURN_JOBS_MAX: usize = 64;
/// Receivers that may wait at one shard.
const WAITERS_MAX: usize = 8192;

/// A shard and its pending. It outlives its worker, so that the next life of the worker goes on where the last one was.
#[derive(Default)]
pub(crate) struct ShardSlot {
    /// None until the log has been read.
    pub shard: Option<Shard>,
    pub pending: PendingReplies,
}

/// What the turns of a shard keep beside its state.
#[derive(Default)]
pub(crate) struct PendingReplies {
    /// A worker lives that will let answers go: callers may run turns of their own.
    pub is_attended: bool,
    settings_seen: SettingsSeen,
    /// Answers that wait for the log, in the order of the records they wait for.
    answers: VecDeque<(Lsn, Reply)>,
    /// Answers of this turn.
    fresh: Vec<Reply>,
    /// The newest record this shard wrote or its state was built from: whatever it says depends on no later one.
    last: Lsn,
    /// The routing it last saw: with another, partitions have come whose records others wrote.
    routing: u64,
    waiting: HashMap<PartKey, VecDeque<Box<PendingReceive>>>,
    waiters: usize,
    /// Deliveries whose receiver had gone when they were to be handed out.
    unclaimed: Vec<Leased>,
    released: Vec<Position>,
    ready: Vec<PartKey>,
    /// What was last published.
    deadline: Option<Millis>,
}

/// Something to say to a caller.
pub(crate) enum Reply {
    Done(Box<dyn Work>),
    Delivered(Box<PendingReceive>, Result<Vec<Leased>, Error>),
}

/// Where a turn happens.
#[derive(Clone, Copy)]
pub(crate) struct TurnSite<'a> {
    pub index: usize,
    pub engine: &'a Engine,
    pub opened: &'a Opened,
}

impl ShardSlot {
    /// Takes a state that was built from the log up to its end.
    pub fn install(&mut self, shard: Shard, last: Lsn) {
        self.pending.abandon();
        self.pending.last = last;
        self.shard = Some(shard);
    }

    /// One turn: a job and what waits behind it, under one hold of the log. What may be said at once is returned.
    pub fn turn(
        &mut self,
        site: TurnSite<'_>,
        first: Option<Job>,
        tick: bool,
        mut next: impl FnMut() -> Option<Job>,
    ) -> Vec<Reply> {
        let ShardSlot { shard: Some(shard), pending } = self else { return Vec::new() };
        let TurnSite { engine, opened, .. } = site;
        let routing = engine.routing.get().version;
        if std::mem::replace(&mut pending.routing, routing) != routing {
            pending.last = opened.log.appender().lsn();
        }
        let now = opened.clock.now();
        let mut released = std::mem::take(&mut pending.released);
        let mut settings_seen = std::mem::take(&mut pending.settings_seen);
        let written = {
            let mut journal = LogJournal::new(&opened.log, &mut released);
            let mut turn = Turn {
                shard,
                journal: &mut journal,
                now,
                engine,
                index: site.index,
                settings_seen: &mut settings_seen,
            };
            pending.chores(&mut turn, tick);
            let mut job = first;
            for _ in 0..TURN_JOBS_MAX {
                let Some(taken) = job else { break };
                pending.perform(taken, &mut turn);
                job = if pending.has_room(engine) { next() } else { None };
            }
            if let Some(left) = job {
                pending.perform(left, &mut turn);
            }
            pending.serve_waiters(&mut turn);
            let moved = turn.shard.take_outbox();
            let written = journal.written();
            engine.counts.steps_unwritten(journal.unwritten);
            if !moved.is_empty() {
                engine.hand_over(written.unwrap_or(pending.last), moved);
            }
            written
        };
        pending.settings_seen = settings_seen;
        opened.log.release_all(released.drain(..));
        pending.released = released;
        pending.last = written.unwrap_or(pending.last);
        pending.publish(site, shard);
        engine.tell_of_breakers(shard.take_breaker_turns());
        let in_memory = opened.log.durability() == Durability::Ram;
        let durable = if in_memory { opened.log.settle_in_memory().unwrap_or_default() } else { opened.log.durable() };
        let last = pending.last;
        if last <= durable && !pending.owes_answers() {
            return pending.fresh.drain(..).collect();
        }
        pending.answers.extend(pending.fresh.drain(..).map(|answer| (last, answer)));
        pending.may_leave(durable)
    }
}

impl PendingReplies {
    /// Whether somebody waits for the log.
    pub fn owes_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether one more answer may wait: a shard owes no more than its queue would hold, so that what it has taken on
    /// and not yet answered is bounded.
    pub fn has_room(&self, engine: &Engine) -> bool {
        self.answers.len() + self.fresh.len() < engine.options.shard_capacity
    }

    /// Answers whose records are durable.
    pub fn may_leave(&mut self, durable: Lsn) -> Vec<Reply> {
        let count = self.answers.iter().take_while(|(lsn, _)| *lsn <= durable).count();
        self.answers.drain(..count).map(|(_, answer)| answer).collect()
    }

    /// Deliveries that found nobody: the next turn undoes them.
    pub fn take_back(&mut self, unclaimed: Vec<Leased>) {
        self.unclaimed.extend(unclaimed);
    }

    /// Sends waiting receivers away.
    pub fn scatter(&mut self) {
        let waiting = self.waiting.drain().flat_map(|(_, line)| line);
        self.fresh.extend(waiting.map(|wanted| Reply::Delivered(wanted, Ok(Vec::new()))));
        self.waiters = 0;
    }

    /// The state broke: whoever waits learns by the end of its reply that nobody knows, and what was leased and never
    /// handed out is undone, because nobody has it and nobody should wait for the lease to end.
    pub fn abandon(&mut self) {
        let answers = self.answers.drain(..).map(|(_, answer)| answer).chain(self.fresh.drain(..));
        let leased = answers.filter_map(|answer| match answer {
            Reply::Delivered(_, Ok(leased)) => Some(leased),
            _ => None,
        });
        self.unclaimed.extend(leased.flatten());
        self.waiting.clear();
        self.waiters = 0;
        self.settings_seen.clear();
    }

    /// What is done before the jobs: moved messages taken in, unclaimed deliveries undone, what is due.
    fn chores(&mut self, turn: &mut Turn<'_>, tick: bool) {
        let adopted = std::mem::take(&mut *lock(&turn.engine.shards[turn.index].shared.adopted));
        for (_, handover) in adopted {
            if let Some(topic) = turn.engine.topics.by_id(handover.to.topic) {
                turn.tell(&topic);
                turn.shard.adopt(turn.now, handover);
            }
        }
        for leased in self.unclaimed.drain(..) {
            turn.shard.release_lease(turn.now, turn.journal, leased.part, leased.seq, leased.fence);
        }
        if tick {
            turn.shard.tick(turn.now, turn.journal, &mut crate::worker::draw);
            self.forget_gone();
        }
    }

    fn perform(&mut self, job: Job, turn: &mut Turn<'_>) {
        match job {
            Job::Do(mut work) => {
                work.run(turn);
                self.fresh.push(Reply::Done(work));
            }
            Job::Scatter(mut work) => {
                self.scatter();
                work.run(turn);
                self.fresh.push(Reply::Done(work));
            }
            Job::Recv(wanted) => self.receive(wanted, turn),
        }
    }

    fn receive(&mut self, wanted: Box<PendingReceive>, turn: &mut Turn<'_>) {
        if wanted.reply.is_closed() {
            return;
        }
        if let Err(error) = turn.enter(wanted.part) {
            self.fresh.push(Reply::Delivered(wanted, Err(error)));
            return;
        }
        // Whoever came first is served first, if still there.
        let nobody_waits = match self.waiting.get_mut(&wanted.part) {
            None => true,
            Some(line) => {
                let gone = line.iter().take_while(|first| first.reply.is_closed()).count();
                line.drain(..gone);
                self.waiters -= gone;
                line.is_empty()
            }
        };
        let delivered = if nobody_waits { deliver(&wanted, turn) } else { Ok(Vec::new()) };
        match delivered {
            Ok(leased) if leased.is_empty() && wanted.waits => self.wait(wanted, turn),
            delivered => self.fresh.push(Reply::Delivered(wanted, delivered)),
        }
    }

    fn wait(&mut self, wanted: Box<PendingReceive>, turn: &Turn<'_>) {
        if turn.engine.routing.get().value.moving {
            // Its partition may be about to go; it asks again where that will be.
            self.fresh.push(Reply::Delivered(wanted, Ok(Vec::new())));
            return;
        }
        if self.waiters >= WAITERS_MAX {
            self.forget_gone();
        }
        if self.waiters >= WAITERS_MAX {
            let busy = Err(Error::busy(format_args!("the line of waiting receivers at shard {}", turn.index)));
            self.fresh.push(Reply::Delivered(wanted, busy));
            return;
        }
        self.waiters += 1;
        self.waiting.entry(wanted.part).or_default().push_back(wanted);
    }

    /// Hands what has become ready to those who wait, first come first served.
    fn serve_waiters(&mut self, turn: &mut Turn<'_>) {
        let mut ready = std::mem::take(&mut self.ready);
        turn.shard.take_ready(&mut ready);
        for part in ready.drain(..) {
            let Some(line) = self.waiting.get_mut(&part) else { continue };
            while let Some(wanted) = line.pop_front() {
                if wanted.reply.is_closed() {
                    self.waiters -= 1;
                    continue;
                }
                match deliver(&wanted, turn) {
                    Ok(leased) if leased.is_empty() => {
                        line.push_front(wanted);
                        break;
                    }
                    delivered => {
                        self.waiters -= 1;
                        self.fresh.push(Reply::Delivered(wanted, delivered));
                    }
                }
            }
            if line.is_empty() {
                self.waiting.remove(&part);
            }
        }
        self.ready = ready;
    }

    fn forget_gone(&mut self) {
        self.waiting.retain(|_, line| {
            line.retain(|wanted| !wanted.reply.is_closed());
            !line.is_empty()
        });
        self.waiters = self.waiting.values().map(VecDeque::len).sum();
    }

    /// Tells the scanner and whoever looks what has changed.
    fn publish(&mut self, site: TurnSite<'_>, shard: &Shard) {
        let deadline = shard.next_deadline();
        if std::mem::replace(&mut self.deadline, deadline) != deadline {
            site.engine.publish_deadline(site.index, deadline);
        }
        let totals = shard.totals();
        let numbers = ShardNumbers {
            ready: totals.ready,
            delayed: totals.delayed,
            leased: totals.leased,
            waiters: self.waiters as u64,
            reorder_depth_max: totals.reorder_depth_max,
            breakers_open: shard.breakers_open(),
        };
        *lock(&site.engine.shards[site.index].shared.numbers) = numbers;
    }
}

impl Reply {
    /// Says it; deliveries that found nobody come back.
    pub fn say(self) -> Vec<Leased> {
        match self {
            Reply::Done(work) => work.answer(),
            Reply::Delivered(wanted, delivered) => {
                if let Err(Ok(unclaimed)) = wanted.reply.send(delivered) {
                    return unclaimed;
                }
            }
        }
        Vec::new()
    }
}

fn deliver(wanted: &PendingReceive, turn: &mut Turn<'_>) -> Result<Vec<Leased>, Error> {
    let recv = Recv {
        max_messages: wanted.max_messages,
        max_bytes: wanted.max_bytes,
        visibility_ms: wanted.visibility_ms,
        consumer: &wanted.consumer,
    };
    let mut leased = Vec::new();
    turn.shard.recv(turn.now, turn.journal, wanted.part, recv, &mut leased)?;
    Ok(leased)
}
