//! Moving all messages of a topic elsewhere: ordering it, looking at it, ending it. The mover carries it out.

use ron_kernel::Deadline;
use ron_types::Error;

use super::Mailbox;
use crate::moves::{self, MoveOrder, MoveState, MoveTask, MoveView, RUNNING_MAX};
use crate::types::TopicName;

impl Mailbox {
    /// Begins to move the messages of a topic; a conflict while another move of that topic has not ended.
    pub async fn start_move(&self, order: MoveOrder, deadline: Deadline) -> Result<MoveView, Error> {
        let to_move = self.stats(&order.from, deadline).await?.total.held();
        let all = &self.engine.topics.moves;
        let (lsn, view) = self.engine.change_moves(&order.from, |now, tasks| {
            if let Some(to) = &order.to {
                self.engine.topics.expect(to)?;
                if *to == order.from {
                    return Err(Error::schema("to: messages cannot be moved to the topic that holds them"));
                }
            }
            if all.topics_with_open().len() >= RUNNING_MAX {
                return Err(Error::busy(format_args!("the table of {RUNNING_MAX} moves")));
            }
            let task = MoveTask {
                id: all.next_id(now),
                to: order.to.clone(),
                rate_per_second: order.rate_per_second,
                state: MoveState::Running,
                moved: 0,
                to_move,
                failure: None,
                started_ms: now,
            };
            moves::begin(tasks, task)
        })?;
        all.ordered.notify_one();
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }

    /// The moves of a topic, the newest first: the last ten are remembered.
    pub fn moves(&self, from: &TopicName) -> Vec<MoveView> {
        let Some(topic) = self.engine.topics.get(from) else { return Vec::new() };
        self.engine
            .topics
            .moves
            .of(topic.id)
            .into_iter()
            .rev()
            .map(|task| MoveView { from: topic.name.clone(), task })
            .collect()
    }

    /// Wants a move to end: what was moved stays moved. A conflict if it has ended.
    pub async fn cancel_move(&self, from: &TopicName, id: u64, deadline: Deadline) -> Result<MoveView, Error> {
        let canceled = self.engine.change_moves(from, |_, tasks| moves::change(tasks, id, MoveState::Canceling, None));
        let (lsn, view) = canceled?;
        self.engine.topics.moves.canceled.notify_waiters();
        self.engine.durable(lsn, deadline).await?;
        Ok(view)
    }
}
