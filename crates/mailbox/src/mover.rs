//! The mover: carries out every move that has not ended, those of different topics at the same time.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ron_kernel::Deadline;
use ron_types::Error;

use crate::events::MovedTally;
use crate::job::Turn;
use crate::mailbox::Mailbox;
use crate::mailbox::topics::place_in;
use crate::moves::{self, MoveFailure, MoveState, MoveTask, Moves};
use crate::types::{Millis, PartKey, Seq, State, Summary, TopicId};

/// Messages moved in one turn of a shard.
const STEP: usize = 100;
/// How long one step may take.
const STEP_WAIT: Duration = Duration::from_secs(10);
/// How soon a step is tried again that could not be done.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// How often a rate is looked after: the messages of so much time go together.
const PACES_PER_SECOND: u32 = 10;

/// What one step did.
struct Step {
    moved: u64,
    /// The last message looked at; none at the end of the partition.
    next: Option<Seq>,
    failure: Option<MoveFailure>,
}

/// Carries out moves for ever, at first those that a former life left undone.
pub(crate) async fn move_all(mailbox: &Mailbox) {
    mailbox.engine().until_opened().await;
    let all = &mailbox.engine().topics.moves;
    let mut running = FuturesUnordered::new();
    let mut topics: Vec<TopicId> = Vec::new();
    loop {
        for topic in all.topics_with_open() {
            if !topics.contains(&topic) {
                topics.push(topic);
                running.push(async move {
                    carry_out(mailbox, topic).await;
                    topic
                });
            }
        }
        tokio::select! {
            () = all.ordered.notified() => {}
            Some(ended) = running.next() => topics.retain(|topic| *topic != ended),
        }
    }
}

/// Carries out the open move of a topic to its end, or until the topic is gone.
async fn carry_out(mailbox: &Mailbox, topic: TopicId) {
    let (mut partition, mut after) = (0, None);
    while let Some(source) = mailbox.engine().topics.by_id(topic)
        && let Some(task) = mailbox.engine().topics.moves.open(topic)
    {
        let ended = if task.state == MoveState::Canceling {
            end(mailbox, topic, &task, MoveState::Canceled, None).await
        } else if partition == source.settings.partitions {
            end(mailbox, topic, &task, MoveState::Completed, None).await
        } else {
            let part = PartKey { topic, partition };
            match step(mailbox, part, after, &task).await {
                Ok(Step { failure: Some(failure), .. }) => {
                    end(mailbox, topic, &task, MoveState::Failed, Some(failure)).await
                }
                Ok(Step { next, moved, .. }) => {
                    after = next;
                    partition += u16::from(next.is_none());
                    pause(&mailbox.engine().topics.moves, topic, &task, moved).await;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, from = %source.name, "a step of a move is tried again");
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
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
    let (lsn, view) = engine.change_moves(&source.name, |_, tasks| moves::change(tasks, task.id, state, failure))?;
    tracing::info!(from = %view.from, id = task.id, moved = view.task.moved, ?state, "a move has ended");
    engine.durable(lsn, Deadline::after(STEP_WAIT)).await
}

/// Moves some of a partition on one turn of its shard, each message with a record of its own.
async fn step(mailbox: &Mailbox, part: PartKey, after: Option<Seq>, task: &MoveTask) -> Result<Step, Error> {
    let task = task.clone();
    let limit = task.rate_per_second.map_or(STEP, |rate| (rate / PACES_PER_SECOND).clamp(1, STEP as u32) as usize);
    let deadline = Deadline::after(STEP_WAIT);
    let moving = move |turn: &mut Turn<'_>| {
        let mut tally = MovedTally::default();
        let moved = move_some(turn, part, after, limit, &task, &mut tally);
        // Also after an error: what was moved before it stays moved.
        turn.engine.tell_of_moves(part.topic, tally);
        moved
    };
    mailbox.on_part(part, deadline, moving).await
}

fn move_some(
    turn: &mut Turn<'_>,
    part: PartKey,
    after: Option<Seq>,
    limit: usize,
    task: &MoveTask,
    tally: &mut MovedTally,
) -> Result<Step, Error> {
    // It was asked for before the hold of the log, and a canceled move must not go on behind its record.
    let still_runs = turn
        .engine
        .topics
        .moves
        .open(part.topic)
        .is_some_and(|now| now.id == task.id && now.state == MoveState::Running);
    let mut step = Step { moved: 0, next: after, failure: None };
    if !still_runs {
        return Ok(step);
    }
    let mut summaries = Vec::new();
    turn.shard.browse(part, after, limit, &mut summaries);
    let at_end = summaries.len() < limit;
    for summary in summaries {
        let seq = summary.seq;
        if may_go(turn, &summary, task.started_ms) {
            match destination(turn, &summary, task) {
                Ok(to) if to == part => {}
                Ok(to) => {
                    turn.shard.redrive(turn.now, turn.journal, part, seq, to)?;
                    step.moved += 1;
                    tally.count(to.topic);
                    turn.engine.topics.moves.count(part.topic, 1);
                }
                Err(failure) => {
                    step.failure = Some(failure);
                    return Ok(step);
                }
            }
        }
        step.next = Some(seq);
    }
    step.next = step.next.filter(|_| !at_end);
    Ok(step)
}

/// Only what was there when the move began, and is with nobody: what comes back from where it went stays.
fn may_go(turn: &Turn<'_>, summary: &Summary, started_ms: Millis) -> bool {
    let is_leased = summary.state == State::Leased && summary.due_ms.is_some_and(|until_ms| until_ms > turn.now);
    !is_leased && summary.since_ms <= started_ms
}

/// Where a message goes, or why it cannot.
fn destination(turn: &Turn<'_>, summary: &Summary, task: &MoveTask) -> Result<PartKey, MoveFailure> {
    let topics = &turn.engine.topics;
    let target = match (&task.to, &summary.dead) {
        (Some(name), _) => topics.get(name).ok_or(MoveFailure::NoDestination)?,
        (None, Some(dead)) => topics.by_id(dead.source.topic).ok_or(MoveFailure::NoDestination)?,
        (None, None) => return Err(MoveFailure::NoOrigin),
    };
    Ok(place_in(&target, summary))
}

/// Waits until so many messages are within the rate, or until the move is to end.
async fn pause(all: &Moves, topic: TopicId, task: &MoveTask, moved: u64) {
    let Some(rate) = task.rate_per_second.filter(|rate| *rate > 0) else { return };
    let mut sleeping = pin!(tokio::time::sleep(Duration::from_secs_f64(moved as f64 / f64::from(rate))));
    loop {
        let canceled = all.canceled.notified();
        if all.open(topic).is_none_or(|now| now.state != MoveState::Running) {
            return;
        }
        tokio::select! {
            () = &mut sleeping => return,
            () = canceled => {}
        }
    }
}
