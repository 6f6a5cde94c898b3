//! The work of every plane: the job, the port the HTTP plane calls, and the worker that does it.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_api::frames::Answer;
use ron_api::{Call, Work, WorkItem};
use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::retry::Idempotent;
use ron_kernel::{Deadline, Metrics, Snapshot, TaskContext, TaskResult, clock};
use ron_types::{Error, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Config;
use crate::health::Measurement;

/// Begins the requests of one read of a connection, in their order; never waits.
pub type Beginning = Box<dyn FnOnce() -> Vec<Answer> + Send>;

/// What a worker does, and for whom.
enum Order {
    /// Job of a development route of the HTTP plane.
    Dev(WorkItem, oneshot::Sender<Result<Bytes, Error>>),
    /// Requests of the framed plane, and the bytes they hold on to. What they wait for once they are begun (a message,
    /// a commit to the disk) is the connection's part: a worker that waited would be missed by others.
    Frames(Unbegun, usize, oneshot::Sender<Vec<Answer>>),
}

/// Requests that are not begun yet. Whoever takes them out decides: the worker begins them, or who asked has given up,
/// and then nobody begins them any more.
#[derive(Clone)]
struct Unbegun(Arc<Mutex<Option<Beginning>>>);

/// Takes the requests back when who asked answers for them, or has gone.
struct Asking(Unbegun);

/// One piece of work. The reply travels inside it; dropping it without a reply tells the asker that it was lost.
pub struct Job {
    order: Order,
    deadline: Deadline,
    queued: Instant,
}

impl Payload for Job {
    fn bytes(&self) -> usize {
        match &self.order {
            Order::Dev(WorkItem::Echo(bytes), _) => bytes.len(),
            Order::Dev(WorkItem::Sleep(_) | WorkItem::Burn(_), _) => 0,
            Order::Frames(_, bytes, ..) => *bytes,
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

    /// Has a worker begin requests of the framed plane, or says Busy at once.
    pub async fn begin(&self, beginning: Beginning, bytes: usize) -> Result<Vec<Answer>, Error> {
        let (reply, mut begun) = oneshot::channel();
        let time = self.0.config.get().value.http.request_deadline.duration();
        let deadline = Deadline::after(time);
        let asking = Asking(Unbegun(Arc::new(Mutex::new(Some(beginning)))));
        self.0.jobs.offer(Job::new(Order::Frames(asking.0.clone(), bytes, reply), deadline))?;
        let answered = match deadline.run("work", &mut begun).await {
            // A worker has begun them in this moment. That needs no waiting, so that their answers are nearly here.
            Err(_) if asking.0.take().is_none() => Deadline::after(time).run("work", begun).await?,
            answered => answered?,
        };
        answered.map_err(|_| lost())
    }

    /// Queues the job, or says Busy at once; the asker is itself ended by the deadline and needs no second timer.
    async fn reply_to(&self, item: WorkItem, deadline: Deadline) -> Result<Bytes, Error> {
        let (reply, answer) = oneshot::channel();
        self.0.jobs.offer(Job::new(Order::Dev(item, reply), deadline))?;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Does the work again if its worker was lost. Busy is not tried again: it is the caller's to wait out.
    async fn again_if_lost(&self, item: WorkItem, deadline: Deadline) -> Result<Bytes, Error> {
        let limits = self.0.config.get().value.retry_limits();
        let attempt = |_try| {
            let item = item.clone();
            async move {
                match self.reply_to(item, deadline).await {
                    Err(lost) if lost.kind == Kind::Degraded => Err(lost),
                    result => Ok(result),
                }
            }
        };
        DEV_WORK.retry(limits, deadline, &self.0.metrics, attempt).await?
    }
}

impl Unbegun {
    fn take(&self) -> Option<Beginning> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Job {
    fn new(order: Order, deadline: Deadline) -> Self {
        Job { order, deadline, queued: clock::now() }
    }
}

fn lost() -> Error {
    Error::new(Kind::Degraded, "the worker ended while it was at work")
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
        context.beating(perform(job, &telemetry)).await;
        // While the queue never runs dry nothing else here yields, and other tasks of the thread would starve.
        tokio::task::consume_budget().await;
    }
    while let Some(job) = jobs.try_recv() {
        context.beating(perform(job, &telemetry)).await;
    }
    Ok(())
}

async fn perform(job: Job, telemetry: &QueueSender<Measurement>) {
    let started = clock::now();
    let kind = match job.order {
        Order::Frames(unbegun, _, reply) => {
            if let Some(beginning) = unbegun.take() {
                let _ = reply.send(beginning());
            }
            "frames"
        }
        Order::Dev(WorkItem::Echo(bytes), reply) => {
            let _ = reply.send(Ok(bytes));
            "echo"
        }
        Order::Dev(WorkItem::Sleep(time), reply) => {
            wanted(reply, job.deadline, sleep(time)).await;
            "sleep"
        }
        Order::Dev(WorkItem::Burn(time), reply) => {
            wanted(reply, job.deadline, burn(time, job.deadline)).await;
            "burn"
        }
    };
    let waited = started.saturating_duration_since(job.queued);
    // A full queue costs a measurement, never the work that it measures.
    let _ = telemetry.offer(Measurement { kind, waited, worked: started.elapsed() });
}

/// Runs work to its end or its deadline; leaves off if the asker has gone, because then nobody wants the answer.
async fn wanted(
    mut reply: oneshot::Sender<Result<Bytes, Error>>,
    deadline: Deadline,
    work: impl Future<Output = Result<Bytes, Error>>,
) {
    tokio::select! {
        biased;
        result = deadline.run("work", work) => drop(reply.send(result.and_then(|result| result))),
        () = reply.closed() => {}
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
            let echo = || Job::new(Order::Dev(WorkItem::Echo(Bytes::from_static(b"x")), oneshot::channel().0), until);
            while jobs.offer(echo()).is_ok() {
                fed += 1;
            }
            tokio::task::yield_now().await;
        }
        fed
    }

    /// A way to workers, and their end of the queue, on which nobody works.
    fn idle_workers() -> (WorkPort, QueueReceiver<Job>, QueueSender<Measurement>) {
        let metrics = Metrics::new();
        let mut builder = Builder::new(KernelOptions::default(), Arc::clone(&metrics));
        let (jobs, receiver) = builder.queue::<Job>(&specs::WORK);
        let (telemetry, _measurements) = builder.queue(&specs::TELEMETRY);
        (WorkPort::new(jobs, Snapshot::new(Config::default()), metrics), receiver, telemetry)
    }

    fn requests(is_begun: &Arc<Mutex<bool>>) -> Beginning {
        let is_begun = Arc::clone(is_begun);
        Box::new(move || {
            *is_begun.lock().expect("whole") = true;
            Vec::new()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_in_the_queue_are_not_begun() {
        let (port, mut jobs, telemetry) = idle_workers();
        let is_begun = Arc::new(Mutex::new(false));
        let late = port.begin(requests(&is_begun), 1).await.err().map(|error| error.kind);
        assert_eq!(late, Some(Kind::Timeout), "nobody has begun them by the deadline");
        {
            let mut gone = pin!(port.begin(requests(&is_begun), 1));
            assert!(futures_util::poll!(&mut gone).is_pending());
        }
        for _ in ["late", "gone"] {
            perform(jobs.try_recv().expect("it still waits"), &telemetry).await;
        }
        assert!(!*is_begun.lock().expect("whole"), "they were answered, or nobody is left to be answered");
        let wanted = port.begin(requests(&is_begun), 1);
        let begun = async { perform(jobs.recv().await.expect("a job"), &telemetry).await };
        assert!(tokio::join!(wanted, begun).0.is_ok() && *is_begun.lock().expect("whole"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_worker_that_never_rests_is_not_taken_for_frozen() {
        let metrics = Metrics::new();
        let mut builder = Builder::new(KernelOptions::default(), Arc::clone(&metrics));
        let (jobs, receiver) = builder.queue::<Job>(&specs::WORK);
        let (telemetry, _measurements) = builder.queue(&specs::TELEMETRY);
        builder
            .service(&specs::WORKERS)
            .task(&specs::WORKER, 1, move |context| worker(context, receiver.clone(), telemetry.clone()));
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
