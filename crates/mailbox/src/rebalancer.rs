//! The rebalancer: when the number of shards changes, partitions move to their new owners without loss.
//!
//! Nothing new is taken on while it happens (callers are told Busy and come back); every shard works off its queue and
//! makes it durable; whole partitions change hands; the new routing is published.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_types::Error;
use ron_types::limits::mailbox::SHARDS_MAX;

use crate::engine::{Engine, Routing, lock};
use crate::events::Event;
use crate::job::{Job, ShardCall, Turn, Wake};
use crate::partition::Partition;
use crate::shard::Shard;
use crate::slot::ShardSlot;
use crate::topics::Topics;

/// How long a shard may take to work off its queue.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before partitions that could not be moved are moved again: callers are refused while it is tried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One life of the rebalancer.
pub(crate) async fn rebalancer(context: TaskContext, engine: Arc<Engine>) -> TaskResult {
    tokio::select! {
        _ = context.beating(engine.until_opened()) => {}
        () = context.stopping() => return Ok(()),
    }
    context.ready().await;
    let mut changes = engine.live.watch();
    loop {
        let wanted = engine.live.get().value.ready_shards.clamp(1, SHARDS_MAX);
        let current = engine.routing.get().value;
        let mut has_failed = false;
        if wanted != current.shards || current.moving {
            match context.beating(rebalance(&engine, wanted)).await {
                Ok(()) => tracing::info!(shards = wanted, "partitions have moved"),
                Err(error) => {
                    tracing::error!(%error, "partitions could not be moved; they stay where they are for now");
                    has_failed = true;
                }
            }
        }
        tokio::select! {
            () = context.stopping() => return Ok(()),
            () = context.beating(tokio::time::sleep(AGAIN_AFTER)), if has_failed => {}
            changed = context.beating(changes.changed()) => {
                if changed.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Moves every partition to the shard that owns it among `shards`.
pub(crate) async fn rebalance(engine: &Engine, shards: usize) -> Result<(), Error> {
    let before = engine.routing.get().value;
    engine.routing.publish(Routing { moving: true, ..before });
    // Every queue is worked off and every waiting receiver sent away, so that no job finds its partition gone.
    let mut quiet = Ok(());
    for index in 0..engine.shards.len() {
        quiet = quiet.and(work_off(engine, index).await);
    }
    let moved = quiet.and_then(|()| move_parts(engine, shards));
    if moved.is_err() {
        engine.routing.publish(Routing { moving: false, ..before });
    } else {
        engine.events.publish(Event::Rebalanced { shards });
    }
    moved
}

/// All shards are held at once, so partitions and routing change in one step: nobody sees one without the other.
fn move_parts(engine: &Engine, shards: usize) -> Result<(), Error> {
    let held: Result<Vec<_>, _> = engine.shards.iter().map(|handle| handle.shared.slot.lock()).collect();
    let mut held = held.map_err(|_| Error::canceled("a shard is being rebuilt"))?;
    // No topic changes or goes meanwhile: word of that would be left with those that owned its partitions before, and
    // the new owners would keep what they were given for ever.
    let opened = engine.opened()?;
    let topics_stay = opened.log.appender();
    let after = Routing { shards, moving: false };
    let mut owned: Vec<&mut Shard> = held.iter_mut().filter_map(|slot| slot.shard.as_mut()).collect();
    if owned.len() < engine.shards.len() {
        return Err(Error::canceled("a shard has not been read yet"));
    }
    // Partitions bring their times along, which must be by the same clock where they come and where they go.
    owned.iter_mut().for_each(|shard| _ = opened.bring_up_to_date(shard));
    rehouse(&mut owned, &engine.topics, after);
    held.iter_mut().for_each(|slot| slot.forget_rules());
    // Messages on their way to a partition follow it.
    let on_their_way: Vec<_> =
        engine.shards.iter().flat_map(|handle| std::mem::take(&mut *lock(&handle.shared.handovers))).collect();
    engine.routing.publish(after);
    drop(topics_stay);
    for (lsn, handover) in on_their_way {
        engine.pass_on(lsn, handover);
    }
    // What each shard holds and when it is due is another now. No turn would say so before somebody asks there.
    for (index, slot) in held.iter_mut().enumerate() {
        let ShardSlot { shard, pending } = &mut **slot;
        if let Some(shard) = shard {
            pending.publish(engine, index, shard);
        }
        // A full queue already holds a wake-up, which also serves the receivers that have come meanwhile
        // and lets go of what was left of topics that are gone.
        let _ = engine.shards[index].wakes.offer(Wake);
    }
    Ok(())
}

/// Gives every partition to the shard that owns it from now on, which is told its rules: what it heard of the topic
/// when it last had some of it may be old.
pub(crate) fn rehouse(shards: &mut [&mut Shard], topics: &Topics, after: Routing) {
    let mut homeless: Vec<(usize, Box<Partition>)> = Vec::new();
    for (index, shard) in shards.iter_mut().enumerate() {
        let leaving: Vec<_> = shard.parts().filter(|part| after.shard_of(*part) != index).collect();
        for key in leaving {
            homeless.extend(shard.take_part(key).map(|part| (after.shard_of(key), part)));
        }
    }
    for (owner, part) in homeless {
        if let Some(topic) = topics.by_id(part.key.topic) {
            topics.tell(shards[owner], &topic);
            shards[owner].put_part(part);
        } else {
            // Its topic has just gone, and word of that waits at the shard that had it.
            shards[owner].take_remains(part);
        }
    }
}

async fn work_off(engine: &Engine, index: usize) -> Result<(), Error> {
    let deadline = Deadline::after(PATIENCE);
    let (work, answer) = ShardCall::new(0, |_: &mut Turn<'_>| ());
    // Through the queue, behind everything that is in it.
    engine.shards[index].jobs.offer(Job::DismissReceivers(work))?;
    deadline.run("rebalance", answer).await?.map_err(|_| Error::canceled("the shard's worker ended"))
}

#[cfg(test)]
mod tests;
