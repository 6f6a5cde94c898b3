//! Moving messages of a topic elsewhere: ordering it, looking at it, pausing and ending it. The reprocessor carries it
//! out.

use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::Mailbox;
use crate::moves::{self, IfBusy, MoveControl, MoveOrder, MoveView, OPEN_MAX, OrderedMove};
use crate::types::TopicName;

/// Messages of one page while an order is tried.
const COUNT_PAGE: usize = 256;

impl Mailbox {
    /// Orders messages of a topic to be moved. While another move of the topic is open, the order waits its turn or is
    /// refused as a conflict, as it says; Busy while as many moves are open as may be.
    pub async fn start_move(&self, order: MoveOrder, deadline: Deadline) -> Result<MoveView, Error> {
        order.check()?;
        let to_move = self.stats(&order.from, deadline).await?.total.held();
        let (lsn, view) = self.operation(|| self.write_move(order, to_move))?;
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }

    fn write_move(&self, order: MoveOrder, to_move: u64) -> Result<(ron_log::Lsn, MoveView), Error> {
        let all = &self.engine.topics.moves;
        let from = order.from.clone();
        self.engine.change_moves(&from, |topic, now, tasks| {
            if let Some(to) = &order.to {
                self.engine.topics.expect(to)?;
            }
            let must_wait = moves::open_of(tasks).is_some();
            if must_wait && order.if_busy == IfBusy::Refuse {
                return Err(Error::new(Kind::Conflict, "messages of this topic are being moved already"));
            }
            if all.all_open().len() >= OPEN_MAX {
                return Err(Error::busy(format_args!("the table of {OPEN_MAX} moves")));
            }
            let id = all.next_id(now);
            // Queued before the record is written, because a full queue refuses the order and a written order cannot
            // be refused any more. An order whose record cannot be written is not found by the one who takes it.
            self.engine.move_orders.offer(OrderedMove { topic: topic.id, id }).inspect_err(|_| {
                tracing::warn!(queue = "reproc_tx", "reproc_queue_full: a move was refused");
            })?;
            Ok(order.task(id, to_move, now, must_wait))
        })
    }

    /// Number of messages an order would move.
    pub async fn count_move(&self, order: &MoveOrder, deadline: Deadline) -> Result<u64, Error> {
        order.check()?;
        let (mut count, mut cursor) = (0, None);
        loop {
            let page = self.browse(&order.from, order.filter.clone(), cursor, COUNT_PAGE, deadline).await?;
            count += page.messages.len() as u64;
            match page.next {
                Some(next) if order.limit.is_none_or(|limit| count < limit) => cursor = Some(next),
                _ => return Ok(order.limit.map_or(count, |limit| count.min(limit))),
            }
        }
    }

    /// The moves of a topic, the newest first: those that have not ended and the last ten that have.
    pub fn moves(&self, from: &TopicName) -> Vec<MoveView> {
        let Some(topic) = self.engine.topics.get(from) else { return Vec::new() };
        let tasks = self.engine.topics.moves.of(topic.id).into_iter().rev();
        tasks.map(|task| MoveView { from: topic.name.clone(), task }).collect()
    }

    /// The moves of every topic, the newest first.
    pub fn all_moves(&self) -> Vec<MoveView> {
        let all = self.engine.topics.moves.all().into_iter();
        let named = all.filter_map(|(topic, task)| {
            let topic = self.engine.topics.by_id(topic)?;
            Some(MoveView { from: topic.name.clone(), task })
        });
        named.collect()
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
        let change = || self.engine.change_moves(from, |_, _, tasks| moves::find(tasks, id)?.controlled(control));
        let (lsn, view) = self.operation(change)?;
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }
}
