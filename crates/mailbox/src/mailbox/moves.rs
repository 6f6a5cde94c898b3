//! Moving messages of a topic elsewhere: ordering it, looking at it, pausing and ending it. The reprocessor carries it
//! out.

use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::Mailbox;
use crate::job::Turn;
use crate::moves::{
    self, IfBusy, MoveControl, MoveOrder, MoveState, MoveTask, MoveView, OPEN_MAX, OPEN_OF_SUBJECT_MAX,
    OPEN_OF_TOPIC_MAX, OrderedMove,
};
use crate::types::{Millis, TopicId, TopicName};

/// Moves looked at for one page, because each may have to be asked about.
const LOOK_MAX: usize = 1000;
/// Messages of one look at a shard while an order is tried.
const COUNT_STEP: usize = 256;

impl Mailbox {
    /// Orders messages of a topic to be moved. While another move wants the same messages, the order waits its turn or
    /// is refused as a conflict, as it says; Busy while as many moves are open as may be.
    pub async fn start_move(&self, order: MoveOrder, deadline: Deadline) -> Result<MoveView, Error> {
        order.check()?;
        let to_move = self.stats(&order.from, deadline).await?.total.held();
        let (lsn, view) = self.operation(|| self.write_move(order, to_move))?;
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }

    fn write_move(&self, order: MoveOrder, to_move: u64) -> Result<(ron_log::Lsn, MoveView), Error> {
        let from = order.from.clone();
        self.engine.change_moves(&from, |topic, now, tasks| {
            let (if_busy, id) = (order.if_busy, self.engine.topics.moves.next_id(now));
            let task = self.planned_move(order, (id, now), to_move, tasks)?;
            if task.state == MoveState::Waiting && if_busy == IfBusy::Refuse {
                return Err(Error::new(Kind::Conflict, "messages of this topic are being moved already"));
            }
            self.check_room_for_move(tasks, task.ordered_by.as_deref())?;
            // Queued before the record is written, because a full queue refuses the order and a written order cannot
            // be refused any more. An order whose record cannot be written is not found by the one who takes it.
            self.engine.move_orders.offer(OrderedMove { topic: topic.id, id }).inspect_err(|_| {
                tracing::warn!(queue = "reproc_tx", "reproc_queue_full: a move was refused");
            })?;
            Ok(task)
        })
    }

    /// The move of an order, its topics found and its turn known.
    fn planned_move(
        &self,
        order: MoveOrder,
        (id, now): (u64, Millis),
        to_move: u64,
        others: &[MoveTask],
    ) -> Result<MoveTask, Error> {
        let number_of = |name: &TopicName| self.engine.topics.expect(name).map(|topic| topic.id);
        let to_id = order.to.as_ref().map(number_of).transpose()?;
        let origins = order.origins.as_deref().map(|origins| origins.iter().map(number_of).collect());
        let origins: Option<Vec<TopicId>> = origins.transpose()?;
        let waiting = MoveTask { to_id, origins, ..order.task(id, to_move, now, true) };
        Ok(match waiting.must_wait(others) {
            true => waiting,
            false => MoveTask { state: MoveState::Running, started_ms: now, ..waiting },
        })
    }

    fn check_room_for_move(&self, of_topic: &[MoveTask], subject: Option<&str>) -> Result<(), Error> {
        let open = of_topic.iter().filter(|task| !task.state.has_ended()).count();
        if open >= OPEN_OF_TOPIC_MAX {
            return Err(Error::busy(format_args!("the topic's table of {OPEN_OF_TOPIC_MAX} moves")));
        }
        let of_subject = subject.map_or(0, |subject| self.engine.topics.moves.open_of(subject));
        if of_subject >= OPEN_OF_SUBJECT_MAX {
            return Err(Error::busy(format_args!("your share of {OPEN_OF_SUBJECT_MAX} moves")));
        }
        if self.engine.topics.moves.open() >= OPEN_MAX {
            return Err(Error::busy(format_args!("the table of {OPEN_MAX} moves")));
        }
        Ok(())
    }

    /// Number of messages an order would move.
    pub async fn count_move(&self, order: &MoveOrder, deadline: Deadline) -> Result<u64, Error> {
        order.check()?;
        let source = self.engine.topics.expect(&order.from)?;
        let task = self.planned_move(order.clone(), (0, 0), 0, &[])?;
        let limit = order.limit.unwrap_or(u64::MAX);
        let mut count = 0;
        for part in source.parts() {
            let (mut after, mut at_end) = (None, false);
            while !at_end && count < limit {
                let browse = move |turn: &mut Turn<'_>| {
                    let mut summaries = Vec::new();
                    turn.shard.browse(part, after, COUNT_STEP, &mut summaries);
                    Ok(summaries)
                };
                let summaries = self.on_part(part, deadline, browse).await?;
                at_end = summaries.len() < COUNT_STEP;
                after = summaries.last().map(|last| last.seq);
                count += self.matching(part, summaries, &task).await?.len() as u64;
            }
        }
        Ok(count.min(limit))
    }

    /// The moves of a topic, the newest first: those that have not ended and the last ten that have.
    pub fn moves(&self, from: &TopicName) -> Vec<MoveView> {
        let Some(topic) = self.engine.topics.get(from) else { return Vec::new() };
        let tasks = self.engine.topics.moves.of(topic.id).into_iter().rev();
        tasks.map(|task| MoveView { from: topic.name.clone(), task }).collect()
    }

    /// Some moves of all topics that are to be shown, the newest first: those before the one of this number, if it is
    /// given. Also the number to go on before, if there are more.
    pub fn page_of_moves(
        &self,
        before: Option<u64>,
        limit: usize,
        is_shown: impl Fn(&TopicName) -> bool,
    ) -> (Vec<MoveView>, Option<u64>) {
        let topics = &self.engine.topics;
        let (mut views, mut last) = (Vec::new(), None);
        let looked_through = topics.moves.before(before.unwrap_or(u64::MAX), LOOK_MAX + 1);
        for (looked_at, OrderedMove { topic, id }) in looked_through.into_iter().enumerate() {
            if views.len() >= limit || looked_at >= LOOK_MAX {
                return (views, last);
            }
            last = Some(id);
            let from = topics.by_id(topic).map(|topic| topic.name.clone()).filter(&is_shown);
            if let Some((from, task)) = from.zip(topics.moves.get(topic, id)) {
                views.push(MoveView { from, task });
            }
        }
        (views, None)
    }

    /// The move of this number.
    pub fn find_move(&self, id: u64) -> Result<MoveView, Error> {
        let moves = &self.engine.topics.moves;
        let found = moves.topic_of(id).and_then(|topic| self.engine.topics.by_id(topic));
        let topic = found.ok_or_else(|| moves::no_move(id))?;
        let task = moves.get(topic.id, id).ok_or_else(|| moves::no_move(id))?;
        Ok(MoveView { from: topic.name.clone(), task })
    }

    /// Pauses, resumes or ends a move: what was moved stays moved. A conflict if it has ended.
    pub async fn control_move(
        &self,
        from: &TopicName,
        id: u64,
        control: MoveControl,
        deadline: Deadline,
    ) -> Result<MoveView, Error> {
        let controlled = |tasks: &[MoveTask]| moves::find(tasks, id)?.controlled(control, tasks);
        let change = || self.engine.change_moves(from, |_, _, tasks| controlled(tasks));
        let (lsn, view) = self.operation(change)?;
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }
}
