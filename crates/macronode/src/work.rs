//! The work of every plane: the job, the port the HTTP plane calls, and the worker that does it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_api::{Call, Work, WorkItem};
use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::retry::Idempotent;
use ron_kernel::{Deadline, Metrics, Snapshot, TaskContext, TaskResult, clock};
use ron_types::{Error, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Config;
use crate::health::Measurement;

/// Job for a worker.
#[derive(Clone, Debug)]
pub enum Task {
    /// Job of a development route of the HTTP plane.
    Http(WorkItem),
    /// Frame of the OAP plane.
    Frame(Bytes),
}

/// One piece of work. The reply travels inside it; dropping it without a reply tells the asker that it was lost.
pub struct Job {
    task: Task,
    deadline: Deadline,
    queued: Instant,
    reply: oneshot::Sender<Result<Bytes, Error>>,
}

impl Payload for Job {
    fn bytes(&self) -> usize {
        match &self.task {
            Task::Http(WorkItem::Echo(bytes)) | Task::Frame(bytes) => bytes.len(),
            Task::Http(WorkItem::Sleep(_) | WorkItem::Burn(_)) => 0,
        }
    }
}

/// The planes' entrance to the work queue. Clones are the same entrance.
#[derive(Clone)]
pub struct WorkPort(Arc<Entrance>);

struct Entrance {
    jobs: QueueSender<Job>,
    config: Snapshot<Config>,
    metrics: Arc<Metrics>,
}

/// Echo, sleep and burn change nothing, so a job lost with its worker may be done again.
const DEV_WORK: Idempotent = Idempotent { op: "work", because: "the development routes change nothing" };

impl WorkPort {
    /// A port to this queue.
    pub fn new(jobs: QueueSender<Job>, config: Snapshot<Config>, metrics: Arc<Metrics>) -> Self {
        WorkPort(Arc::new(Entrance { jobs, config, metrics }))
    }

    /// Queues the task, or says Busy at once; then waits for the reply, no longer than the deadline.
    pub async fn ask(&self, task: Task, deadline: Deadline) -> Result<Bytes, Error> {
        deadline.run("work", self.reply_to(task, deadline)).await?
    }

    /// As [`WorkPort::ask`], for askers who are themselves ended by the deadline and need no second timer.
    async fn reply_to(&self, task: Task, deadline: Deadline) -> Result<Bytes, Error> {
        let (reply, answer) = oneshot::channel();
        self.0.jobs.offer(Job { task, deadline, queued: clock::now(), reply })?;
        match answer.await {
            Ok(result) => result,
            Err(_) => Err(Error::new(Kind::Degraded, "the worker ended while it was at work")),
        }
    }

    /// Does the work again if its worker was lost. Busy is not tried again: it is the caller's to wait out.
    async fn again_if_lost(&self, item: WorkItem, deadline: Deadline) -> Result<Bytes, Error> {
        let limits = self.0.config.get().value.retry_limits();
        let attempt = |_try| {
            let item = item.clone();
            async move {
                match self.reply_to(Task::Http(item), deadline).await {
                    Err(lost) if lost.kind == Kind::Degraded => Err(lost),
                    result => Ok(result),
                }
            }
        };
        DEV_WORK.retry(limits, deadline, &self.0.metrics, attempt).await?
    }
}

impl Work for WorkPort {
    fn submit(&self, item: WorkItem, call: Call) -> BoxFuture<'static, Result<Bytes, Error>> {
        let port = self.clone();
        async move { port.again_if_lost(item, call.deadline).await }.boxed()
    }
}

/// One life of a worker: takes jobs until it is told to stop, then works off what is still waiting.
pub async fn worker(
    context: TaskContext,
    mut jobs: QueueReceiver<Job>,
    telemetry: QueueSender<Measurement>,
    frames: FrameAnswer,
) -> TaskResult {
    context.ready().await;
    // Set up once and kept: setting them up for each wait would cost as much as a small job.
    let mut stopping = pin!(context.stopping());
    let mut heartbeat = pin!(context.heartbeat());
    while !context.is_stopping() {
        context.beat();
        let job = match jobs.try_recv() {
            Some(job) => Some(job),
            None => tokio::select! {
                biased;
                job = jobs.recv() => job,
                () = &mut stopping => break,
                () = &mut heartbeat => {
                    heartbeat.set(context.heartbeat());
                    continue;
                }
            },
        };
        let Some(job) = job else { break };
        context.beating(perform(job, &telemetry, frames)).await;
        // While the queue never runs dry nothing else here yields, and other tasks of the thread would starve.
        tokio::task::consume_budget().await;
    }
    while let Some(job) = jobs.try_recv() {
        context.beating(perform(job, &telemetry, frames)).await;
    }
    Ok(())
}

/// Behaviour of a worker that gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAnswer {
    /// Development: the frame comes back as it is.
    Echo,
    /// No service on this node speaks frames yet.
    Nobody,
}

async fn perform(mut job: Job, telemetry: &QueueSender<Measurement>, frames: FrameAnswer) {
    let started = clock::now();
    let (kind, result) = match job.task {
        Task::Http(WorkItem::Echo(bytes)) => ("echo", Some(Ok(bytes))),
        Task::Frame(bytes) => ("frame", Some(answer_frame(bytes, frames))),
        Task::Http(WorkItem::Sleep(time)) => ("sleep", wanted(&mut job.reply, job.deadline, sleep(time)).await),
        Task::Http(WorkItem::Burn(time)) => {
            ("burn", wanted(&mut job.reply, job.deadline, burn(time, job.deadline)).await)
        }
    };
    if let Some(result) = result {
        let _ = job.reply.send(result);
    }
    let waited = started.saturating_duration_since(job.queued);
    // A full queue costs a measurement, never the work that it measures.
    let _ = telemetry.offer(Measurement { kind, waited, worked: started.elapsed() });
}

/// Runs work to its end or its deadline; none if the asker has gone, because then nobody wants the answer.
async fn wanted(
    reply: &mut oneshot::Sender<Result<Bytes, Error>>,
    deadline: Deadline,
    work: impl Future<Output = Result<Bytes, Error>>,
) -> Option<Result<Bytes, Error>> {
    tokio::select! {
        biased;
        result = deadline.run("work", work) => Some(result.and_then(|result| result)),
        () = reply.closed() => None,
    }
}

async fn sleep(time: Duration) -> Result<Bytes, Error> {
    tokio::time::sleep(time).await;
    Ok(Bytes::new())
}

/// Keeps a core busy, on a thread where that hurts nobody; stops at the deadline because it cannot be aborted.
async fn burn(time: Duration, deadline: Deadline) -> Result<Bytes, Error> {
    let until = Deadline::after(time).sooner(deadline);
    let burned = tokio::task::spawn_blocking(move || {
        let mut state = 0_u64;
        while !until.has_passed() {
            state = std::hint::black_box(state.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
    });
    burned.await.map_err(|_| Error::new(Kind::Degraded, "the computation ended early"))?;
    Ok(Bytes::new())
}

fn answer_frame(frame: Bytes, answer: FrameAnswer) -> Result<Bytes, Error> {
    match answer {
        FrameAnswer::Echo => Ok(frame),
        FrameAnswer::Nobody => Err(Error::new(Kind::NotFound, "no service on this node speaks frames yet")),
    }
}

#[cfg(test)]
mod tests {
    use ron_kernel::{Builder, KernelOptions};

    use super::*;
    use crate::specs;

    /// Fills the queue again and again, so that its one worker never finds it empty.
    async fn keep_full(jobs: &QueueSender<Job>, time: Duration) -> u64 {
        let until = Deadline::after(time);
        let mut fed = 0;
        while !until.has_passed() {
            let echo = || Job {
                task: Task::Http(WorkItem::Echo(Bytes::from_static(b"x"))),
                deadline: until,
                queued: clock::now(),
                reply: oneshot::channel().0,
            };
            while jobs.offer(echo()).is_ok() {
                fed += 1;
            }
            tokio::task::yield_now().await;
        }
        fed
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_worker_that_never_rests_is_not_taken_for_frozen() {
        let metrics = Metrics::new();
        let mut builder = Builder::new(KernelOptions::default(), Arc::clone(&metrics));
        let (jobs, receiver) = builder.queue::<Job>(&specs::WORK);
        let (telemetry, _measurements) = builder.queue(&specs::TELEMETRY);
        builder.service(&specs::WORKERS).task(&specs::WORKER, 1, move |context| {
            worker(context, receiver.clone(), telemetry.clone(), FrameAnswer::Nobody)
        });
        let kernel = builder.build().expect("a valid plan");
        let handle = kernel.handle();
        let heartbeat = specs::WORKER.heartbeat.expect("workers beat");
        let feeding = async {
            handle.watch_status().wait_for(|status| status.is_ready()).await.expect("the kernel lives");
            let fed = keep_full(&jobs, heartbeat + Duration::from_secs(1)).await;
            handle.drain().await.expect("the supervisor listens");
            fed
        };
        let (report, fed) = tokio::join!(kernel.run(), feeding);
        assert!(fed > 10_000, "there was work: {fed}");
        assert_eq!(report.code, 0);
        assert_eq!(metrics.service_restarts.at("workers").get(), 0);
    }
}
