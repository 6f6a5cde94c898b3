//! The worker of one shard: does what callers could not do at once, what is due, and lets answers go when the log is
//! durable.

use std::pin::pin;
use std::sync::{Arc, MutexGuard, TryLockError};

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{TaskContext, TaskError, TaskResult};

use crate::engine::{Cell, Engine, Lane, lock};
use crate::job::{Job, Wake};
use crate::recovery;
use crate::seat::{Answer, Place, Seat};

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
    if engine.lanes[index].cell.seat.is_poisoned() {
        context.beating(recovery::rebuild(Arc::clone(&engine), index)).await?;
    }
    context.ready().await;
    let mut durable = opened.log.watch();
    let worker = Worker::attend(Place { index, engine: &engine, opened })?;
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
                Ok(lsn) => worker.answer(|seat| seat.clerk.may_leave(lsn))?,
                Err(error) => return worker.log_failed(&context, &mut jobs, &error).await,
            },
            job = jobs.recv(), if has_room => worker.turn(job, false, &mut jobs)?,
            _ = wakes.recv() => worker.turn(None, true, &mut jobs)?,
            () = worker.lane().cell.owing.notified(), if !owes_answers => {}
            () = &mut heartbeat => heartbeat.set(context.heartbeat()),
        }
    }
    worker.leave(&context, &mut jobs, &mut durable).await
}

/// A worker at its shard's seat; while it is there, callers may run turns of their own.
struct Worker<'a> {
    place: Place<'a>,
}

impl<'a> Worker<'a> {
    fn attend(place: Place<'a>) -> Result<Self, TaskError> {
        let worker = Worker { place };
        worker.seat()?.clerk.is_attended = true;
        Ok(worker)
    }

    fn lane(&self) -> &Lane {
        &self.place.engine.lanes[self.place.index]
    }

    fn seat(&self) -> Result<MutexGuard<'_, Seat>, TaskError> {
        self.lane().cell.seat.lock().map_err(|_| TaskError::Failed("the shard must be rebuilt".to_owned()))
    }

    /// Whether answers wait for the log, and whether more may.
    fn look(&self) -> Result<(bool, bool), TaskError> {
        let seat = self.seat()?;
        Ok((seat.clerk.owes_answers(), seat.clerk.has_room(self.place.engine)))
    }

    fn turn(&self, first: Option<Job>, tick: bool, jobs: &mut QueueReceiver<Job>) -> TaskResult {
        self.answer(|seat| seat.turn(self.place, first, tick, || jobs.try_recv()))
    }

    fn answer(&self, take: impl FnOnce(&mut Seat) -> Vec<Answer>) -> TaskResult {
        let answers = take(&mut *self.seat()?);
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
        tracing::error!(shard = self.place.index, %error, "the log has failed");
        {
            let mut seat = lock(&self.lane().cell.seat);
            seat.clerk.is_attended = false;
            seat.clerk.abandon();
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
            let mut seat = self.seat()?;
            seat.clerk.is_attended = false;
            seat.clerk.scatter();
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
                Ok(Ok(lsn)) => self.answer(|seat| seat.clerk.may_leave(lsn))?,
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        lock(&self.lane().cell.seat).clerk.is_attended = false;
    }
}

impl Engine {
    /// Has a job done on its shard's turn: here and now if nobody else is at it, by the worker otherwise.
    pub fn ask(&self, index: usize, job: Job) -> Result<(), ron_types::Error> {
        match self.do_now(index, job)? {
            None => Ok(()),
            Some(job) => self.lanes[index].jobs.offer(job),
        }
    }

    /// Gives the job back if the seat is taken, or if nobody is there who would let the answer go.
    fn do_now(&self, index: usize, job: Job) -> Result<Option<Job>, ron_types::Error> {
        let opened = self.opened()?;
        let lane = &self.lanes[index];
        let Some(mut seat) = lane.cell.take_seat() else { return Ok(Some(job)) };
        if !seat.clerk.is_attended || !seat.clerk.has_room(self) {
            return Ok(Some(job));
        }
        let owed_before = seat.clerk.owes_answers();
        let answers = seat.turn(Place { index, engine: self, opened }, Some(job), false, || None);
        let owes_now = seat.clerk.owes_answers();
        drop(seat);
        if owes_now && !owed_before {
            lane.cell.owing.notify_one();
        }
        lane.say(answers);
        Ok(None)
    }
}

/// How often a caller looks whether the seat is free before it leaves its job to the worker: a turn takes a few
/// microseconds, and so does waking the worker.
const LOOKS_MAX: usize = 200;

impl Cell {
    fn take_seat(&self) -> Option<MutexGuard<'_, Seat>> {
        for _ in 0..LOOKS_MAX {
            match self.seat.try_lock() {
                Ok(seat) => return Some(seat),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }
}

impl Lane {
    /// Lets answers go.
    fn say(&self, answers: Vec<Answer>) {
        let mut unclaimed = Vec::new();
        for answer in answers {
            unclaimed.append(&mut answer.say());
        }
        if !unclaimed.is_empty() {
            lock(&self.cell.seat).clerk.take_back(unclaimed);
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
