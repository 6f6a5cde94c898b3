//! The worker of one shard: takes jobs, lets the core decide, writes records, and answers once they are durable.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use ron_kernel::queue::{QueueReceiver, QueueSender};
use ron_kernel::{TaskContext, TaskError, TaskResult};
use ron_log::{Durability, Lsn, Position};
use ron_types::Error;

use crate::engine::{Engine, Opened, ShardNumbers, lock};
use crate::job::{Job, LogJournal, Turn, Wake, Wanted, Work};
use crate::recovery;
use crate::shard::{Recv, Shard};
use crate::topics::Told;
use crate::words::{Leased, PartKey};

/// Jobs of one turn: many enough to share a commit, few enough that the log is not kept from other shards for long.
const TURN_JOBS_MAX: usize = 64;
/// Receivers that may wait at one shard.
const WAITERS_MAX: usize = 8192;

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
    if engine.lanes[index].cell.shard.is_poisoned() {
        context.beating(recovery::rebuild(Arc::clone(&engine), index)).await?;
    }
    context.ready().await;
    let mut worker = Worker::new(index, &engine, opened);
    let mut durable = opened.log.watch();
    let mut stopping = pin!(context.stopping());
    let mut heartbeat = pin!(context.heartbeat());
    // What the last life left undone.
    worker.turn(None, true, &mut jobs)?;
    loop {
        context.beat();
        tokio::select! {
            biased;
            () = &mut stopping => break,
            // Answers first: they set callers free, who then have more to ask.
            reached = durable.changed(), if worker.owes_answers() => match reached {
                Ok(lsn) => worker.answer(lsn),
                Err(error) => return worker.log_failed(&context, &mut jobs, &error).await,
            },
            job = jobs.recv() => worker.turn(job, false, &mut jobs)?,
            _ = wakes.recv() => worker.turn(None, true, &mut jobs)?,
            () = &mut heartbeat => heartbeat.set(context.heartbeat()),
        }
    }
    worker.leave(&context, &mut jobs, &mut durable).await
}

struct Worker<'a> {
    index: usize,
    engine: &'a Engine,
    opened: &'a Opened,
    told: Told,
    /// Answers that wait for the log, in the order of the records they wait for.
    answers: VecDeque<(Lsn, Answer)>,
    /// Answers of this turn.
    fresh: Vec<Answer>,
    /// The newest record this shard wrote or its state was built from: whatever it says depends on no later one.
    last: Lsn,
    /// The routing it last saw: with another, partitions have come whose records others wrote.
    routing: u64,
    waiting: HashMap<PartKey, VecDeque<Wanted>>,
    waiters: usize,
    /// Deliveries whose receiver had gone when they were to be handed out.
    unclaimed: Vec<Leased>,
    released: Vec<Position>,
    ready: Vec<PartKey>,
    ram: bool,
}

enum Answer {
    Done(Box<dyn Work>),
    Delivered(Wanted, Result<Vec<Leased>, Error>),
}

impl<'a> Worker<'a> {
    fn new(index: usize, engine: &'a Engine, opened: &'a Opened) -> Self {
        Worker {
            index,
            engine,
            opened,
            told: Told::new(),
            answers: VecDeque::new(),
            fresh: Vec::new(),
            last: opened.log.appender().lsn(),
            routing: engine.routing.get().version,
            waiting: HashMap::new(),
            waiters: 0,
            unclaimed: std::mem::take(&mut *lock(&engine.lanes[index].cell.unclaimed)),
            released: Vec::new(),
            ready: Vec::new(),
            ram: opened.log.durability() == Durability::Ram,
        }
    }

    fn owes_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// One turn: the first job and what waits behind it, under one hold of the log.
    fn turn(&mut self, first: Option<Job>, tick: bool, jobs: &mut QueueReceiver<Job>) -> TaskResult {
        let (engine, opened) = (self.engine, self.opened);
        let cell = &engine.lanes[self.index].cell;
        let mut shard = cell.shard.lock().map_err(|_| TaskError::Failed("the shard must be rebuilt".to_owned()))?;
        let Some(shard) = shard.as_mut() else { return Ok(()) };
        let routing = engine.routing.get().version;
        if std::mem::replace(&mut self.routing, routing) != routing {
            self.last = opened.log.appender().lsn();
        }
        let now = opened.clock.now();
        let mut released = std::mem::take(&mut self.released);
        let mut told = std::mem::take(&mut self.told);
        let written = {
            let mut journal = LogJournal::new(&opened.log, &mut released);
            self.chores(shard, &mut journal, &mut told, tick, now);
            let mut job = first;
            for _ in 0..TURN_JOBS_MAX {
                let Some(next) = job else { break };
                self.perform(next, shard, &mut journal, &mut told, now);
                job = jobs.try_recv();
            }
            if let Some(left) = job {
                self.perform(left, shard, &mut journal, &mut told, now);
            }
            self.serve_waiters(shard, &mut journal, now);
            let written = journal.written();
            engine.counts.steps_unwritten(journal.unwritten);
            let moved = shard.take_outbox();
            if !moved.is_empty() {
                engine.hand_over(written.unwrap_or(self.last), moved);
            }
            written
        };
        self.told = told;
        for position in released.drain(..) {
            opened.log.release(position);
        }
        self.released = released;
        self.last = written.unwrap_or(self.last);
        engine.publish_deadline(self.index, shard.next_deadline());
        self.publish(shard);
        let last = self.last;
        self.answers.extend(self.fresh.drain(..).map(|answer| (last, answer)));
        let durable = if self.ram { opened.log.flush().unwrap_or_default() } else { opened.log.durable() };
        self.answer(durable);
        Ok(())
    }

    /// What is done before the jobs: moved messages taken in, unclaimed deliveries undone, what is due.
    fn chores(&mut self, shard: &mut Shard, journal: &mut LogJournal<'_>, told: &mut Told, tick: bool, now: u64) {
        let adopted = std::mem::take(&mut *lock(&self.engine.lanes[self.index].cell.adopted));
        let mut turn = Turn { shard, journal, now, engine: self.engine, index: self.index, told };
        for (_, handover) in adopted {
            if let Some(topic) = self.engine.topics.by_id(handover.to.topic) {
                turn.tell(&topic);
                turn.shard.adopt(now, handover);
            }
        }
        for leased in self.unclaimed.drain(..) {
            shard.release_lease(now, journal, leased.part, leased.seq, leased.fence);
        }
        if tick {
            shard.tick(now, journal, &mut draw);
            self.forget_gone();
        }
    }

    fn perform(&mut self, job: Job, shard: &mut Shard, journal: &mut LogJournal<'_>, told: &mut Told, now: u64) {
        match job {
            Job::Do(mut work) => {
                self.run(work.as_mut(), shard, journal, told, now);
                self.fresh.push(Answer::Done(work));
            }
            Job::Scatter(mut work) => {
                for wanted in self.waiting.drain().flat_map(|(_, line)| line) {
                    self.fresh.push(Answer::Delivered(wanted, Ok(Vec::new())));
                }
                self.waiters = 0;
                self.run(work.as_mut(), shard, journal, told, now);
                self.fresh.push(Answer::Done(work));
            }
            Job::Recv(wanted) => self.receive(*wanted, shard, journal, told, now),
        }
    }

    fn run(&self, work: &mut dyn Work, shard: &mut Shard, journal: &mut LogJournal<'_>, told: &mut Told, now: u64) {
        work.run(&mut Turn { shard, journal, now, engine: self.engine, index: self.index, told });
    }

    fn receive(&mut self, wanted: Wanted, shard: &mut Shard, journal: &mut LogJournal<'_>, told: &mut Told, now: u64) {
        if wanted.reply.is_closed() {
            return;
        }
        let mut turn = Turn { shard, journal, now, engine: self.engine, index: self.index, told };
        if let Err(error) = turn.enter(wanted.part) {
            self.fresh.push(Answer::Delivered(wanted, Err(error)));
            return;
        }
        let line = self.waiting.get(&wanted.part);
        // Whoever came first is served first.
        let nobody_waits = line.is_none_or(VecDeque::is_empty);
        let delivered = if nobody_waits { deliver(&wanted, shard, journal, now) } else { Ok(Vec::new()) };
        match delivered {
            Ok(leased) if leased.is_empty() && wanted.waits => self.wait(wanted),
            delivered => self.fresh.push(Answer::Delivered(wanted, delivered)),
        }
    }

    fn wait(&mut self, wanted: Wanted) {
        if self.waiters >= WAITERS_MAX {
            self.forget_gone();
        }
        if self.waiters >= WAITERS_MAX {
            let busy = Err(Error::busy(format_args!("the line of waiting receivers at shard {}", self.index)));
            self.fresh.push(Answer::Delivered(wanted, busy));
            return;
        }
        self.waiters += 1;
        self.waiting.entry(wanted.part).or_default().push_back(wanted);
    }

    /// Hands what has become ready to those who wait, first come first served.
    fn serve_waiters(&mut self, shard: &mut Shard, journal: &mut LogJournal<'_>, now: u64) {
        let mut ready = std::mem::take(&mut self.ready);
        shard.take_ready(&mut ready);
        for part in ready.drain(..) {
            let Some(line) = self.waiting.get_mut(&part) else { continue };
            while let Some(wanted) = line.pop_front() {
                if wanted.reply.is_closed() {
                    self.waiters -= 1;
                    continue;
                }
                match deliver(&wanted, shard, journal, now) {
                    Ok(leased) if leased.is_empty() => {
                        line.push_front(wanted);
                        break;
                    }
                    delivered => {
                        self.waiters -= 1;
                        self.fresh.push(Answer::Delivered(wanted, delivered));
                    }
                }
            }
            if line.is_empty() {
                self.waiting.remove(&part);
            }
        }
        self.ready = ready;
    }

    fn forget_gone(&mut self) {
        self.waiting.retain(|_, line| {
            line.retain(|wanted| !wanted.reply.is_closed());
            !line.is_empty()
        });
        self.waiters = self.waiting.values().map(VecDeque::len).sum();
    }

    /// Lets every answer go whose records are durable.
    fn answer(&mut self, durable: Lsn) {
        while self.answers.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            match self.answers.pop_front() {
                Some((_, Answer::Done(work))) => work.answer(),
                Some((_, Answer::Delivered(wanted, delivered))) => {
                    if let Err(Ok(unclaimed)) = wanted.reply.send(delivered) {
                        self.unclaimed.extend(unclaimed);
                    }
                }
                None => break,
            }
        }
        if !self.unclaimed.is_empty() {
            // The next turn undoes them; a wake-up makes sure there is one, and a full queue already holds it.
            let _ = self.wakes().offer(Wake);
        }
    }

    fn wakes(&self) -> &QueueSender<Wake> {
        &self.engine.lanes[self.index].wakes
    }

    fn publish(&self, shard: &Shard) {
        let totals = shard.totals();
        let numbers = ShardNumbers {
            ready: totals.ready,
            delayed: totals.delayed,
            leased: totals.leased,
            waiters: self.waiters as u64,
            reorder_depth_max: totals.reorder_depth_max,
        };
        *lock(&self.engine.lanes[self.index].cell.numbers) = numbers;
    }

    /// Nothing more is acknowledged; whoever waits learns that by the end of its reply.
    async fn log_failed(
        mut self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        error: &ron_log::LogError,
    ) -> TaskResult {
        tracing::error!(shard = self.index, unanswered = self.answers.len(), %error, "the log has failed");
        self.answers.clear();
        self.waiting.clear();
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
        mut self,
        context: &TaskContext,
        jobs: &mut QueueReceiver<Job>,
        durable: &mut ron_log::Watch,
    ) -> TaskResult {
        for wanted in self.waiting.drain().flat_map(|(_, line)| line) {
            let _ = wanted.reply.send(Ok(Vec::new()));
        }
        while let Some(job) = jobs.try_recv() {
            self.turn(Some(job), false, jobs)?;
        }
        let deadline = context.stop_deadline();
        while self.owes_answers() {
            match deadline.run("log_commit", durable.changed()).await {
                Ok(Ok(lsn)) => self.answer(lsn),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(())
    }
}

impl Drop for Worker<'_> {
    /// What was leased and never handed out is left to the next life, which undoes it: nobody has it, so nobody should
    /// wait for the lease to end.
    fn drop(&mut self) {
        let answers = self.answers.drain(..).map(|(_, answer)| answer).chain(self.fresh.drain(..));
        let leased = answers.filter_map(|answer| match answer {
            Answer::Delivered(_, Ok(leased)) => Some(leased),
            _ => None,
        });
        self.unclaimed.extend(leased.flatten());
        lock(&self.engine.lanes[self.index].cell.unclaimed).append(&mut self.unclaimed);
    }
}

fn deliver(wanted: &Wanted, shard: &mut Shard, journal: &mut LogJournal<'_>, now: u64) -> Result<Vec<Leased>, Error> {
    let recv = Recv {
        max_messages: wanted.max_messages,
        max_bytes: wanted.max_bytes,
        visibility_ms: wanted.visibility_ms,
        consumer: &wanted.consumer,
    };
    let mut leased = Vec::new();
    shard.recv(now, journal, wanted.part, recv, &mut leased)?;
    Ok(leased)
}

/// A random number, for jitter.
pub(crate) fn draw() -> u64 {
    let mut bytes = [0; 8];
    // Without entropy a backoff is merely less spread.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
