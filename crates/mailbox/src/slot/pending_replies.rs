//! The replies a shard owes: those that wait for the log, and those that wait for a message.

use std::collections::VecDeque;

use hashbrown::HashMap;
use ron_log::{Lsn, Position};
use ron_types::Error;

use super::TurnEnvironment;
use crate::engine::{Engine, ShardNumbers, lock};
use crate::job::{Job, PendingReceive, Turn, Work};
use crate::random;
use crate::shard::{Recv, Shard};
use crate::topics::SettingsSeen;
use crate::types::{Leased, Millis, PartKey};

/// Maximum receivers that wait at one shard: each costs memory, and a connection somewhere.
const RECEIVERS_MAX: usize = 8192;

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
    /// Receivers waiting for a message, in the order in which they came.
    receivers: HashMap<PartKey, VecDeque<Box<PendingReceive>>>,
    /// Receivers in all those queues, so that counting them does not cost a walk.
    receivers_count: usize,
    /// Deliveries whose receiver had gone when they were to be sent.
    unclaimed: Vec<Leased>,
    /// Positions for the log to release after the turn; kept for its allocation.
    pub(super) released: Vec<Position>,
    /// Partitions that became ready in a turn; kept for its allocation.
    ready: Vec<PartKey>,
    /// The deadline that was last published.
    deadline: Option<Millis>,
}

/// A reply to a caller.
pub(crate) enum Reply {
    Done(Box<dyn Work>),
    Delivered(Box<PendingReceive>, Result<Vec<Leased>, Error>),
}

impl PendingReplies {
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

    /// Takes deliveries that found no receiver: the next turn ends their leases.
    pub fn take_back(&mut self, unclaimed: Vec<Leased>) {
        self.unclaimed.extend(unclaimed);
    }

    /// Answers every waiting receiver with no messages; it asks again where its partition is then.
    pub fn dismiss_receivers(&mut self) {
        let receivers = self.receivers.drain().flat_map(|(_, queue)| queue);
        self.of_this_turn.extend(receivers.map(|receive| Reply::Delivered(receive, Ok(Vec::new()))));
        self.receivers_count = 0;
    }

    /// The state broke or the log failed: callers learn by the end of their reply channel that nobody knows, and what
    /// was leased and never sent is given back, because nobody has it and nobody should wait for the lease to end.
    pub fn abandon(&mut self) {
        let replies = self.waiting_for_log.drain(..).map(|(_, reply)| reply).chain(self.of_this_turn.drain(..));
        let leased = replies.filter_map(|reply| match reply {
            Reply::Delivered(_, Ok(leased)) => Some(leased),
            _ => None,
        });
        self.unclaimed.extend(leased.flatten());
        self.receivers.clear();
        self.receivers_count = 0;
        self.settings_seen.clear();
    }

    /// What comes before the jobs of a turn: messages that other shards handed over are taken in, unclaimed leases
    /// ended, and what is due is done.
    pub(super) fn before_jobs(&mut self, turn: &mut Turn<'_>, tick: bool) {
        let handovers = std::mem::take(&mut *lock(&turn.engine.shards[turn.index].shared.handovers));
        for (_, handover) in handovers {
            if let Some(topic) = turn.engine.topics.by_id(handover.to.topic) {
                turn.tell(&topic);
                turn.shard.adopt(turn.now, handover);
            }
        }
        for leased in self.unclaimed.drain(..) {
            turn.shard.release_lease(turn.now, turn.journal, leased.part, leased.seq, leased.fence);
        }
        if tick {
            turn.shard.tick(turn.now, turn.journal, &mut random::draw);
            self.forget_gone_receivers();
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

    fn receive(&mut self, receive: Box<PendingReceive>, turn: &mut Turn<'_>) {
        if receive.reply.is_closed() {
            return;
        }
        if let Err(error) = turn.enter(receive.part) {
            self.of_this_turn.push(Reply::Delivered(receive, Err(error)));
            return;
        }
        // First come, first served: a newcomer gets nothing while somebody who is still there waits before it.
        let nobody_waits = match self.receivers.get_mut(&receive.part) {
            None => true,
            Some(queue) => {
                let gone = queue.iter().take_while(|first| first.reply.is_closed()).count();
                queue.drain(..gone);
                self.receivers_count -= gone;
                queue.is_empty()
            }
        };
        let delivered = if nobody_waits { lease(&receive, turn) } else { Ok(Vec::new()) };
        match delivered {
            Ok(leased) if leased.is_empty() && receive.waits => self.wait(receive, turn),
            delivered => self.of_this_turn.push(Reply::Delivered(receive, delivered)),
        }
    }

    fn wait(&mut self, receive: Box<PendingReceive>, turn: &Turn<'_>) {
        if turn.engine.routing.get().value.moving {
            // Its partition may be about to go; it asks again where that will be.
            self.of_this_turn.push(Reply::Delivered(receive, Ok(Vec::new())));
            return;
        }
        // The walk is paid only when the table seems full: receivers that have gone are usually met at their turn.
        if self.receivers_count >= RECEIVERS_MAX {
            self.forget_gone_receivers();
        }
        if self.receivers_count >= RECEIVERS_MAX {
            let busy = Err(Error::busy(format_args!("the line of waiting receivers at shard {}", turn.index)));
            self.of_this_turn.push(Reply::Delivered(receive, busy));
            return;
        }
        self.receivers_count += 1;
        self.receivers.entry(receive.part).or_default().push_back(receive);
    }

    /// Delivers what has become ready to waiting receivers, first come first served.
    pub(super) fn serve_receivers(&mut self, turn: &mut Turn<'_>) {
        let mut ready = std::mem::take(&mut self.ready);
        turn.shard.take_ready(&mut ready);
        for part in ready.drain(..) {
            let Some(queue) = self.receivers.get_mut(&part) else { continue };
            while let Some(receive) = queue.pop_front() {
                if receive.reply.is_closed() {
                    self.receivers_count -= 1;
                    continue;
                }
                match lease(&receive, turn) {
                    Ok(leased) if leased.is_empty() => {
                        queue.push_front(receive);
                        break;
                    }
                    delivered => {
                        self.receivers_count -= 1;
                        self.of_this_turn.push(Reply::Delivered(receive, delivered));
                    }
                }
            }
            if queue.is_empty() {
                self.receivers.remove(&part);
            }
        }
        self.ready = ready;
    }

    fn forget_gone_receivers(&mut self) {
        self.receivers.retain(|_, queue| {
            queue.retain(|receive| !receive.reply.is_closed());
            !queue.is_empty()
        });
        self.receivers_count = self.receivers.values().map(VecDeque::len).sum();
    }

    /// Tells the scanner and observers what the turn changed.
    pub(super) fn publish(&mut self, environment: TurnEnvironment<'_>, shard: &Shard) {
        let TurnEnvironment { engine, index, .. } = environment;
        let deadline = shard.next_deadline();
        if std::mem::replace(&mut self.deadline, deadline) != deadline {
            engine.publish_deadline(index, deadline);
        }
        let totals = shard.totals();
        let numbers = ShardNumbers {
            ready: totals.ready,
            delayed: totals.delayed,
            leased: totals.leased,
            waiters: self.receivers_count as u64,
            reorder_depth_max: totals.reorder_depth_max,
            breakers_open: shard.breakers_open(),
            memory_bytes: shard.memory_bytes(),
        };
        *lock(&engine.shards[index].shared.numbers) = numbers;
    }
}

impl Reply {
    /// Sends it; a delivery that found no receiver comes back.
    pub fn send(self) -> Vec<Leased> {
        match self {
            Reply::Done(work) => work.reply(),
            Reply::Delivered(receive, delivered) => {
                if let Err(Ok(unclaimed)) = receive.reply.send(delivered) {
                    return unclaimed;
                }
            }
        }
        Vec::new()
    }
}

fn lease(receive: &PendingReceive, turn: &mut Turn<'_>) -> Result<Vec<Leased>, Error> {
    let recv = Recv {
        max_messages: receive.max_messages,
        max_bytes: receive.max_bytes,
        visibility_ms: receive.visibility_ms,
        consumer: &receive.consumer,
    };
    let mut leased = Vec::new();
    turn.shard.recv(turn.now, turn.journal, receive.part, recv, &mut leased)?;
    Ok(leased)
}
