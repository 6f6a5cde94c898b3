//! The task that carries out moves: all at the same time, a step of each in turn; those that want the same messages in
//! their order.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_types::Error;
use tokio::sync::Semaphore;

use crate::engine::Engine;
use crate::events::MovedTally;
use crate::job::Turn;
use crate::mailbox::Mailbox;
use crate::mailbox::topics::place_in;
use crate::moves::{self, MoveFailure, MoveState, MoveTask, OnFailure, OrderedMove};
use crate::types::{Millis, PartKey, Seq, State, Summary, TopicId};

/// Messages of one step: few enough that a shard's other callers wait no longer than for a usual turn.
const STEP: usize = 100;
/// Steps at once. A move waits here for each of its steps, first come first served: a large one does not keep others
/// from going on, and all of them together read back only so many payloads at once.
const STEPS_AT_ONCE: usize = 8;
/// Longest time of one step.
const STEP_WAIT: Duration = Duration::from_secs(10);
/// Wait before a step that could not be done is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Steps in a second of a move with a rate: the messages of a tenth of a second go together.
const STEPS_PER_SECOND: u32 = 10;

/// What one step did.
struct Step {
    moved: u64,
    /// The last message looked at; none at the end of the partition.
    next: Option<Seq>,
    failure: Option<MoveFailure>,
}

/// One life of the reprocessor.
pub(crate) async fn dlq_reprocessor(
    context: TaskContext,
    mailbox: Mailbox,
    mut orders: QueueReceiver<OrderedMove>,
) -> TaskResult {
    context.ready().await;
    tokio::select! {
        // A move that is cut short goes on in the next life: what was moved is moved.
        () = context.stopping() => {}
        () = context.beating(carry_out_all(&mailbox, &mut orders)) => {}
    }
    Ok(())
}

/// Carries out moves for ever, at first those that a former life left undone.
async fn carry_out_all(mailbox: &Mailbox, orders: &mut QueueReceiver<OrderedMove>) {
    let engine = mailbox.engine();
    engine.until_opened().await;
    let steps = &Semaphore::new(STEPS_AT_ONCE);
    let begin = |order: OrderedMove| async move {
        carry_out(mailbox, steps, order).await;
        order
    };
    let mut in_hand = engine.topics.moves.all_open();
    let mut running: FuturesUnordered<_> = in_hand.iter().copied().map(begin).collect();
    loop {
        tokio::select! {
            Some(ended) = running.next() => in_hand.retain(|order| *order != ended),
            Some(order) = orders.recv() => {
                // The order was queued under the log's lock, before its record was written: once the lock is free,
                // the table has it or never will. What a former life left is still in the queue, too.
                drop(engine.opened().map(|opened| opened.log.appender()));
                if !in_hand.contains(&order) {
                    in_hand.push(order);
                    running.push(begin(order));
                }
            }
        }
    }
}

/// Carries out a move once its turn has come, to its end or until the topic is gone.
async fn carry_out(mailbox: &Mailbox, steps: &Semaphore, order: OrderedMove) {
    let OrderedMove { topic, id } = order;
    let all = &mailbox.engine().topics.moves;
    let (mut partition, mut after) = (0, None);
    let mut has_begun = false;
    loop {
        // Listens before it looks, so that no change between the two is missed.
        let changed = all.changed.notified();
        let Some(source) = mailbox.engine().topics.by_id(topic) else { return };
        let Some(task) = all.get(topic, id).filter(|task| !task.state.has_ended()) else { return };
        let is_held = task.state == MoveState::Waiting && task.must_wait(&all.of(topic));
        if is_held || task.state == MoveState::Paused {
            changed.await;
            continue;
        }
        if !std::mem::replace(&mut has_begun, true) {
            all.start_pass(topic, id);
        }
        let done = match task.state {
            MoveState::Waiting => begin(mailbox, topic, &task).await,
            MoveState::Canceling => end(mailbox, topic, &task, MoveState::Canceled, None).await,
            _ if task.is_at_limit() || partition == source.settings.partitions => {
                end(mailbox, topic, &task, MoveState::Completed, None).await
            }
            _ => match step(mailbox, steps, PartKey { topic, partition }, after, &task).await {
                Ok(Step { failure: Some(failure), .. }) => {
                    end(mailbox, topic, &task, MoveState::Failed, Some(failure)).await
                }
                Ok(Step { next, moved, .. }) => {
                    after = next;
                    partition += u16::from(next.is_none());
                    keep_rate(mailbox, order, &task, moved).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = done {
            tracing::debug!(%error, from = %source.name, "a step of a move is tried again");
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// Writes down that the turn of a waiting move has come: only what is there now is moved, or was when it first began.
async fn begin(mailbox: &Mailbox, topic: TopicId, task: &MoveTask) -> Result<(), Error> {
    let engine = mailbox.engine();
    let Some(source) = engine.topics.by_id(topic) else { return Ok(()) };
    let mut to_move = 0;
    for part in source.parts() {
        let held = move |turn: &mut Turn<'_>| Ok(turn.shard.stats(part).held());
        to_move += mailbox.on_part_unpermitted(part, Deadline::after(STEP_WAIT), held).await?;
    }
    let (lsn, _) = engine.change_moves(&source.name, |_, now, tasks| {
        let task = moves::find(tasks, task.id)?;
        // An operator, or another move, may have been quicker.
        if task.state != MoveState::Waiting || task.must_wait(tasks) {
            return Ok(task);
        }
        let was_begun = task.started_ms > 0;
        let (started_ms, to_move) = if was_begun { (task.started_ms, task.to_move) } else { (now, to_move) };
        Ok(MoveTask { state: MoveState::Running, started_ms, to_move, ..task })
    })?;
    engine.durable(lsn, Deadline::after(STEP_WAIT)).await
}

/// Writes down that a move has ended.
async fn end(
    mailbox: &Mailbox,
    topic: TopicId,
    task: &MoveTask,
    state: MoveState,
    failure: Option<MoveFailure>,
) -> Result<(), Error> {
    let engine = mailbox.engine();
    let Some(source) = engine.topics.by_id(topic) else { return Ok(()) };
    let ended = engine.change_moves(&source.name, |_, _, tasks| Ok(moves::find(tasks, task.id)?.ended(state, failure)));
    let (lsn, view) = ended?;
    tracing::info!(from = %view.from, id = task.id, moved = view.task.moved, ?state, "a move has ended");
    engine.durable(lsn, Deadline::after(STEP_WAIT)).await
}

/// Looks at some messages of a partition and moves those that are meant, each with a record of its own. Two turns of
/// the shard: between them the filter may read payloads back from the disk, which no turn may wait for.
async fn step(
    mailbox: &Mailbox,
    steps: &Semaphore,
    part: PartKey,
    after: Option<Seq>,
    task: &MoveTask,
) -> Result<Step, Error> {
    // Never closed. Held for this step only: who waits for a rate, a turn or an operator holds none.
    let _turn = steps.acquire().await;
    let at_rate = task.rate_per_second.map_or(STEP, |rate| (rate / STEPS_PER_SECOND).clamp(1, STEP as u32) as usize);
    let browse = move |turn: &mut Turn<'_>| {
        let mut summaries = Vec::new();
        turn.shard.browse(part, after, at_rate, &mut summaries);
        Ok(summaries)
    };
    let summaries = mailbox.on_part_unpermitted(part, Deadline::after(STEP_WAIT), browse).await?;
    let next = summaries.last().map(|last| last.seq).filter(|_| summaries.len() == at_rate);
    let looked_at = summaries.len() as u64;
    let meant = mailbox.matching(part, summaries, task).await?;
    let task = task.clone();
    let work = move |turn: &mut Turn<'_>| {
        let mut tally = MovedTally::default();
        let moved = move_some(turn, part, &meant, &task, looked_at, &mut tally);
        // Also after an error: what was moved before it stays moved.
        turn.engine.tell_of_moves(part.topic, tally);
        moved
    };
    let (moved, failure) = mailbox.on_part_unpermitted(part, Deadline::after(STEP_WAIT), work).await?;
    Ok(Step { moved, next, failure })
}

/// Moves messages on one turn; how many, and the failure that ends the move.
fn move_some(
    turn: &mut Turn<'_>,
    part: PartKey,
    meant: &[Seq],
    task: &MoveTask,
    looked_at: u64,
    tally: &mut MovedTally,
) -> Result<(u64, Option<MoveFailure>), Error> {
    let moves = &turn.engine.topics.moves;
    let (mut moved, mut failures) = (0, Vec::new());
    for seq in meant {
        // Asked anew for each, under the hold of the log: a move that was paused or canceled must not go on behind the
        // record that says so.
        if !moves.may_go_on(part.topic, task.id) {
            break;
        }
        // It may have gone since it was looked at.
        let Some(summary) = turn.shard.summary_of(part, *seq).filter(|summary| may_go(turn.now, summary, task)) else {
            continue;
        };
        match destination(turn.engine, &summary, task) {
            Ok(to) if to == part => {}
            Ok(to) => {
                turn.shard.redrive(turn.now, turn.journal, part, *seq, to, task.id)?;
                moves.count(part.topic, task.id);
                tally.count(to.topic);
                moved += 1;
            }
            Err(failure) if task.on_failure == OnFailure::Stop => return Ok((moved, Some(failure))),
            Err(failure) => failures.push(failure),
        }
    }
    moves.count_seen(part.topic, task.id, looked_at, &failures);
    Ok((moved, None))
}

/// Only what was there when the move began and is with no consumer: what comes back from where it went stays. What is
/// dated ahead came when a former run's clock was, and so before any move of this one.
fn may_go(now: Millis, summary: &Summary, task: &MoveTask) -> bool {
    let is_leased = summary.state == State::Leased && summary.due_ms.is_some_and(|until_ms| until_ms > now);
    !is_leased && (summary.since_ms <= task.started_ms || summary.since_ms > now)
}

/// Where a message goes, or why it cannot.
fn destination(engine: &Engine, summary: &Summary, task: &MoveTask) -> Result<PartKey, MoveFailure> {
    let topics = &engine.topics;
    let target = match (&task.to, task.to_id, &summary.dead) {
        (Some(_), Some(id), _) => topics.by_id(id),
        (Some(name), None, _) => topics.get(name),
        (None, _, Some(dead)) => topics.by_id(dead.source.topic),
        (None, _, None) => return Err(MoveFailure::NoOrigin),
    };
    Ok(place_in(&*target.ok_or(MoveFailure::NoDestination)?, summary))
}

/// Waits until `moved` messages are within the rate, or until the move is paused or ended.
async fn keep_rate(mailbox: &Mailbox, order: OrderedMove, task: &MoveTask, moved: u64) {
    let Some(rate) = task.rate_per_second.filter(|rate| *rate > 0) else { return };
    let all = &mailbox.engine().topics.moves;
    let mut sleeping = pin!(tokio::time::sleep(Duration::from_secs_f64(moved as f64 / f64::from(rate))));
    loop {
        let changed = all.changed.notified();
        if all.get(order.topic, order.id).is_none_or(|now| now.state != MoveState::Running) {
            return;
        }
        tokio::select! {
            () = &mut sleeping => return,
            () = changed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::MoveOrder;
    use crate::types::Content;

    #[test]
    fn what_was_there_before_the_move_may_go_also_where_a_clock_has_dated_it_ahead() {
        const STARTED_MS: Millis = 1_000_000;
        let task = MoveOrder::all_of("dead".parse().expect("a name")).task(1, 9, STARTED_MS, false);
        let goes = |now, since_ms, state, due_ms| {
            let part = PartKey { topic: TopicId(1), partition: 0 };
            let content = Content::Hot(Default::default());
            let (seq, sent_ms, group, attempts, dead) = (1, 1, None, 0, None);
            let summary = Summary { part, seq, sent_ms, since_ms, group, attempts, state, due_ms, dead, content };
            may_go(now, &summary, &task)
        };
        let now = STARTED_MS + 500;
        assert!(goes(now, STARTED_MS, State::Ready, None));
        assert!(!goes(now, STARTED_MS + 1, State::Ready, None), "it came later");
        assert!(goes(now, now + 3 * 24 * 3_600_000, State::Ready, None), "the clock was days ahead, and is right now");
        assert!(!goes(now, STARTED_MS, State::Leased, Some(now + 1)), "it is with a consumer");
        assert!(goes(now, STARTED_MS, State::Leased, Some(now)));
    }
}
