//! The worker of one shard: does what callers could not do at once, what is due, and lets answers go when the log is
//! durable.

use std::pin::pin;
use std::sync::{Arc, MutexGuard, TryLockError};

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{TaskContext, TaskError, TaskResult};

use crate::engine::{Engine, ShardHandle, SharedShard, lock};
use crate::job::{Job, Wake};
use crate::recovery;
use crate::slot::{Reply, ShardSlot, TurnSite};

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
    let worker = Worker::attend(TurnSite { index, engine: &engine, opened })?;
    let mut stopping = pin!(context.stopping());
    let mut heartbeat = pin!(context.heartbeat());
    // What the last life left undone.
    worker.turn(None, true, &mut jobs)?;
    loop {
        context.beat();
        let (owes_answers, has_room) = worker.look()?;
        tokio::select! {
            biased;
            () = &mut stopping => break,
            // Answers first: they set callers free, who then have more to ask.
            reached = durable.changed(), if owes_answers => match reached {
                Ok(lsn) => worker.answer(|slot| slot.pending.may_leave(lsn))?,
                Err(error) => return worker.log_failed(&context, &mut jobs, &error).await,
            },
            job = jobs.recv(), if has_room => worker.turn(job, false, &mut jobs)?,
            _ = wakes.recv() => worker.turn(None, true, &mut jobs)?,
            () = worker.lane().shared.owing.notified(), if !owes_answers => {}
            () = &mut heartbeat => heartbeat.set(context.heartbeat()),
        }
    }
    worker.leave(&context, &mut jobs, &mut durable).await
}

/// A worker at its shard's slot; while it is there, callers may run turns of their own.
struct Worker<'a> {
    site: TurnSite<'a>,
}

impl<'a> Worker<'a> {
    fn attend(site: TurnSite<'a>) -> Result<Self, TaskError> {
        let worker = Worker { site };
        worker.slot()?.pending.is_attended = true;
        Ok(worker)
    }

    fn lane(&self) -> &ShardHandle {
        &self.site.engine.shards[self.site.index]
    }

    fn slot(&self) -> Result<MutexGuard<'_, ShardSlot>, TaskError> {
        self.lane().shared.slot.lock().map_err(|_| TaskError::Failed("the shard must be rebuilt".to_owned()))
    }

    /// Whether answers wait for the log, and whether more may.
    fn look(&self) -> Result<(bool, bool), TaskError> {
        let slot = self.slot()?;
        Ok((slot.pending.owes_answers(), slot.pending.has_room(self.site.engine)))
    }

    fn turn(&self, first: Option<Job>, tick: bool, jobs: &mut QueueReceiver<Job>) -> TaskResult {
        self.answer(|slot| slot.turn(self.site, first, tick, || jobs.try_recv()))
    }

    fn answer(&self, take: impl FnOnce(&mut ShardSlot) -> Vec<Reply>) -> TaskResult {
        let answers = take(&mut *self.slot()?);
        self.lane().say(answers);
        Ok(())
    }

    /// Nothing more is acknowledged; whoever waits learns that by the end of its reply.
    async fn log_failed(
        self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        error: &ron_log::LogError,
    ) -> TaskResult {
        tracing::error!(shard = self.site.index, %error, "the log has failed");
        {
            let mut slot = lock(&self.lane().shared.slot);
            slot.pending.is_attended = false;
            slot.pending.abandon();
        }
        // Whoever still asks is not to wait until its deadline: a job that is dropped ends its reply.
        let refusing = async { while jobs.recv().await.is_some() {} };
        tokio::select! {
            () = context.beating(context.stopping()) => {}
            () = refusing => context.beating(context.stopping()).await,
        }
        Ok(())
    }

    /// Works off what was admitted and waits for the log, no longer than a drain allows.
    async fn leave(
        self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        durable: &mut ron_log::Watch,
    ) -> TaskResult {
        {
            let mut slot = self.slot()?;
            slot.pending.is_attended = false;
            slot.pending.scatter();
        }
        self.turn(None, false, jobs)?;
        let deadline = context.stop_deadline();
        loop {
            while let Some(job) = jobs.try_recv() {
                self.turn(Some(job), false, jobs)?;
            }
            if !self.look()?.0 {
                return Ok(());
            }
            match deadline.run("log_commit", durable.changed()).await {
                Ok(Ok(lsn)) => self.answer(|slot| slot.pending.may_leave(lsn))?,
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        lock(&self.lane().shared.slot).pending.is_attended = false;
    }
}

impl Engine {
    /// Has a job done on its shard's turn: here and now if nobody else is at it, by the worker otherwise.
    pub fn ask(&self, index: usize, job: Job) -> Result<(), ron_types::Error> {
        match self.do_now(index, job)? {
            None => Ok(()),
            Some(job) => self.shards[index].jobs.offer(job),
        }
    }

    /// Gives the job back if the slot is taken, or if nobody is there who would let the answer go.
    fn do_now(&self, index: usize, job: Job) -> Result<Option<Job>, ron_types::Error> {
        let opened = self.opened()?;
        let lane = &self.shards[index];
        let Some(mut slot) = lane.shared.try_take() else { return Ok(Some(job)) };
        if !slot.pending.is_attended || !slot.pending.has_room(self) {
            return Ok(Some(job));
        }
        let owed_before = slot.pending.owes_answers();
        let answers = slot.turn(TurnSite { index, engine: self, opened }, Some(job), false, || None);
        let owes_now = slot.pending.owes_answers();
        drop(slot);
        if owes_now && !owed_before {
            lane.shared.owing.notify_one();
        }
        lane.say(answers);
        Ok(None)
    }
}

/// How often a caller looks whether the slot is free before it leaves its job to the worker: a turn takes a few
/// microseconds, and so does waking the worker.
const LOOKS_MAX: usize = 200;

impl SharedShard {
    fn try_take(&self) -> Option<MutexGuard<'_, ShardSlot>> {
        for _ in 0..LOOKS_MAX {
            match self.slot.try_lock() {
                Ok(slot) => return Some(slot),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }
}

impl ShardHandle {
    /// Lets answers go.
    fn say(&self, answers: Vec<Reply>) {
        let mut unclaimed = Vec::new();
        for answer in answers {
            unclaimed.append(&mut answer.say());
        }
        if !unclaimed.is_empty() {
            lock(&self.shared.slot).pending.take_back(unclaimed);
            // The next turn undoes them; a wake-up makes sure there is one, and a full queue already holds it.
            let _ = self.wakes.offer(Wake);
        }
    }
}

/// A random number, for jitter.
pub(crate) fn draw() -> u64 {
    let mut bytes = [0; 8];
    // Without entropy a backoff is merely less spread.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
