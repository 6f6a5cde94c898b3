//! The life of a shard's worker: it runs turns for jobs that callers had to queue and for what is due, and sends the
//! replies that waited for the log. What callers do at the same shard stands in `slot.rs`.

use std::pin::pin;
use std::sync::{Arc, MutexGuard};

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{TaskContext, TaskError, TaskResult};

use crate::engine::{Engine, ShardHandle, lock};
use crate::job::{Job, Wake};
use crate::recovery;
use crate::shard::Shard;
use crate::slot::{Reply, ShardSlot, TurnEnvironment};
use crate::specs;

/// One life of a shard's worker.
pub(crate) async fn shard_worker(
    context: TaskContext,
    engine: Arc<Engine>,
    mut jobs: QueueReceiver<Job>,
    mut wakes: QueueReceiver<Wake>,
) -> TaskResult {
    let index = usize::from(context.instance());
    let opened = tokio::select! {
        opened = context.beating(engine.until_opened()) => opened,
        () = context.stopping() => return Ok(()),
    };
    if engine.shards[index].shared.slot.is_poisoned() {
        context.beating(recovery::rebuild(Arc::clone(&engine), index)).await?;
    }
    context.ready().await;
    let mut durable = opened.log.watch();
    let worker = Worker::attend(TurnEnvironment { index, engine: &engine, opened, settles: false })?;
    let mut stopping = pin!(context.stopping());
    let mut heartbeat = pin!(context.heartbeat());
    // What the last life left undone.
    worker.turn(None, true, &mut jobs)?;
    loop {
        context.beat();
        // Below, what is always ready keeps the rest from its turn; a full queue must not keep what is due from its.
        if take_wakes(&mut wakes) {
            let job = if worker.look()?.has_room { jobs.try_recv() } else { None };
            worker.turn(job, true, &mut jobs)?;
        }
        let ShardLook { replies_wait, has_room, has_remains } = worker.look()?;
        let has_remains = has_remains && worker.let_go()?;
        tokio::select! {
            biased;
            () = &mut stopping => break,
            // Replies first: they set callers free, who then have more to ask.
            reached = durable.changed(), if replies_wait => match reached {
                Ok(lsn) => worker.send(|slot| slot.pending.take_durable(lsn))?,
                Err(error) => return worker.log_failed(&context, &mut jobs, &error).await,
            },
            job = jobs.recv(), if has_room => worker.turn(job, false, &mut jobs)?,
            _ = wakes.recv() => worker.turn(None, true, &mut jobs)?,
            () = worker.handle().shared.reply_waits.notified(), if !replies_wait => {}
            // The next step, after a word with everybody else on this thread.
            () = tokio::task::yield_now(), if has_remains => {}
            () = &mut heartbeat => heartbeat.set(context.heartbeat()),
        }
    }
    worker.leave(&context, &mut jobs, &mut durable).await
}

/// Takes the wake-ups that wait, because one turn does what all of them ask for; whether there were any.
fn take_wakes(wakes: &mut QueueReceiver<Wake>) -> bool {
    let waiting = specs::requeue_capacity(usize::MAX);
    std::iter::from_fn(|| wakes.try_recv()).take(waiting).count() > 0
}

/// What a worker finds at its shard's slot.
struct ShardLook {
    /// Replies wait for the log.
    replies_wait: bool,
    /// One more may.
    has_room: bool,
    /// Something is left of partitions that were emptied.
    has_remains: bool,
}

/// A worker at its shard's slot; while it is there, callers may run turns of their own.
struct Worker<'a> {
    environment: TurnEnvironment<'a>,
}

impl<'a> Worker<'a> {
    fn attend(environment: TurnEnvironment<'a>) -> Result<Self, TaskError> {
        let worker = Worker { environment };
        worker.slot()?.pending.is_attended = true;
        Ok(worker)
    }

    fn handle(&self) -> &ShardHandle {
        &self.environment.engine.shards[self.environment.index]
    }

    fn slot(&self) -> Result<MutexGuard<'_, ShardSlot>, TaskError> {
        self.handle().shared.slot.lock().map_err(|_| TaskError::Failed("the shard must be rebuilt".to_owned()))
    }

    fn look(&self) -> Result<ShardLook, TaskError> {
        let slot = self.slot()?;
        Ok(ShardLook {
            replies_wait: slot.pending.any_wait_for_log(),
            has_room: slot.pending.has_room(self.environment.engine),
            has_remains: slot.shard.as_ref().is_some_and(Shard::has_remains),
        })
    }

    /// Lets go of a step of what emptied partitions held; whether there is more.
    fn let_go(&self) -> Result<bool, TaskError> {
        let mut released = Vec::new();
        let (husks, has_more) = {
            let mut slot = self.slot()?;
            let Some(shard) = &mut slot.shard else { return Ok(false) };
            shard.let_go(&mut |position| released.push(position));
            (shard.take_husks(), shard.has_remains())
        };
        self.environment.opened.log.release_all(released.into_iter());
        if !husks.is_empty() {
            // Millions of small allocations: too long for a thread that others share.
            drop(tokio::task::spawn_blocking(move || drop(husks)));
        }
        Ok(has_more)
    }

    fn turn(&self, first: Option<Job>, tick: bool, jobs: &mut QueueReceiver<Job>) -> TaskResult {
        self.send(|slot| slot.turn(self.environment, first, tick, || jobs.try_recv()).replies)
    }

    /// Sends the replies that `take` finds at the slot, once the slot is free again: a receiver that wakes up may
    /// want it at once.
    fn send(&self, take: impl FnOnce(&mut ShardSlot) -> Vec<Reply>) -> TaskResult {
        let replies = take(&mut *self.slot()?);
        replies.into_iter().for_each(Reply::send);
        Ok(())
    }

    /// Nothing more is acknowledged: callers that wait learn it by the end of their reply channel.
    async fn log_failed(
        self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        error: &ron_log::LogError,
    ) -> TaskResult {
        tracing::error!(shard = self.environment.index, %error, "the log has failed");
        {
            let mut slot = lock(&self.handle().shared.slot);
            slot.pending.is_attended = false;
            slot.pending.abandon();
        }
        // A job that is dropped ends its reply channel, so a caller that still asks need not wait for its deadline.
        let refusing = async { while jobs.recv().await.is_some() {} };
        tokio::select! {
            () = context.beating(context.stopping()) => {}
            () = refusing => context.beating(context.stopping()).await,
        }
        Ok(())
    }

    /// Does the jobs that were admitted and waits for the log, no longer than the drain's deadline.
    async fn leave(
        self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        durable: &mut ron_log::Watch,
    ) -> TaskResult {
        {
            let mut slot = self.slot()?;
            slot.pending.is_attended = false;
            slot.pending.dismiss_receivers();
        }
        self.turn(None, false, jobs)?;
        let deadline = context.stop_deadline();
        loop {
            while let Some(job) = jobs.try_recv() {
                self.turn(Some(job), false, jobs)?;
            }
            // Replies found receivers gone; in the next life their leases would have to run out.
            let mut returned = usize::MAX;
            while (1..returned).contains(&self.handle().returned.count()) {
                returned = self.handle().returned.count();
                self.turn(None, false, jobs)?;
            }
            if !self.look()?.replies_wait {
                return Ok(());
            }
            match deadline.run("log_commit", durable.changed()).await {
                Ok(Ok(lsn)) => self.send(|slot| slot.pending.take_durable(lsn))?,
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        lock(&self.handle().shared.slot).pending.is_attended = false;
    }
}

#[cfg(test)]
mod tests;
