//! The kernel as everybody else sees it: read its status, ask it for things.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ron_cells::Monotone;
use ron_policy::TaskId;
use ron_types::limits::RUNTIME_STILL_MAX;
use ron_types::{Error, Kind};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::bus::Bus;
use crate::clock;
use crate::deadline::Deadline;
use crate::meter::Meter;
use crate::metrics::Metrics;
use crate::outages::Outages;
use crate::queue::{Payload, QueueSender};
use crate::shutdown::Stopping;
use crate::snapshot::Snapshot;
use crate::spec::{Fate, Overflow, QueueKind, QueueSpec};
use crate::status::NodeStatus;
use crate::topology::{Declared, Topology};

/// Queue of requests to the supervisor; there is only one.
pub const SUPERVISOR_INBOX: QueueSpec = QueueSpec {
    owner: "macronode",
    service: "kernel",
    name: "supervisor_inbox",
    kind: QueueKind::Mpsc,
    capacity: 256,
    bytes_max: None,
    from: "every task, admin plane",
    to: "supervisor",
    overflow: Overflow::AwaitSend,
    holds_up_writers: false,
    answer: "the asker waits up to a second, then Backpressure",
    on_restart: Fate::Kept,
    on_drain: Fate::Drained,
};

/// Maximum wait for room in the supervisor's inbox.
const INBOX_WAIT: Duration = Duration::from_secs(1);

pub(crate) enum Request {
    BootReady(TaskId),
    Drain,
    Restart { service: String, reply: oneshot::Sender<Result<(), Error>> },
    Pressure { service: &'static str, cause: &'static str, on: bool },
    Dependency { service: &'static str, name: &'static str, met: bool },
    Chaos { task: String, share: f64, order: ChaosOrder, reply: oneshot::Sender<Result<Vec<String>, Error>> },
    Stall { time: Duration },
}

impl Payload for Request {}

/// Fault that chaos injects into a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosOrder {
    /// The task panics.
    Kill,
    /// The task is never polled again.
    Freeze,
}

/// The kernel from outside. Clones are the same kernel; usable from any thread and runtime.
#[derive(Clone)]
pub struct KernelHandle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub inbox: QueueSender<Request>,
    pub status: watch::Sender<Arc<NodeStatus>>,
    pub stopping: watch::Sender<Stopping>,
    pub bus: Bus,
    pub metrics: Arc<Metrics>,
    pub meter: Meter,
    /// Set once by the builder, before anything runs.
    pub declared: OnceLock<Declared>,
    /// Kernel milliseconds of the last turn of the supervisor's loop that a timer began; 0 before the first.
    pub last_turn_ms: Monotone,
    /// Set when somebody asks for a drain, even if the supervisor does not hear of it.
    pub drain_asked: OnceLock<()>,
    pub started: Instant,
    pub notes: Mutex<Vec<Note>>,
    /// Maximum duration of a drain that begins now. This and the next are written by the supervisor's loop alone.
    pub drain_deadline: Snapshot<Duration>,
    pub outages: Snapshot<Outages>,
}

/// A sentence for the operator while it holds.
type Note = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl KernelHandle {
    /// Adds a sentence that an operator should read though the node is well; asked whenever `/readyz` is, on the thread
    /// of the admin plane, so that it must not wait for anything.
    pub fn add_note(&self, note: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.lock_notes().push(Box::new(note));
    }

    /// The sentences that hold now.
    pub fn notes(&self) -> Vec<String> {
        self.lock_notes().iter().filter_map(|note| note()).collect()
    }

    fn lock_notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.inner.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the kernel was made: the time policy thinks in.
    pub fn now_ms(&self) -> u64 {
        clock::now().saturating_duration_since(self.inner.started).as_millis() as u64
    }

    /// Current status of the node. The supervisor cannot say that it is stuck, so that this says it.
    pub fn status(&self) -> Arc<NodeStatus> {
        let status = Arc::clone(&self.inner.status.borrow());
        match self.stands_still() {
            Some(time) => Arc::new(status.standing_still(time)),
            None => status,
        }
    }

    /// Time since the runtime last turned, if that is longer than one that turns ever takes.
    pub fn stands_still(&self) -> Option<Duration> {
        let has_begun = self.inner.last_turn_ms.get() > 0;
        Some(self.last_turn_age()).filter(|age| has_begun && *age > RUNTIME_STILL_MAX)
    }

    /// Whether somebody has asked for a drain, even if nothing of the kernel turns.
    pub fn is_drain_asked(&self) -> bool {
        self.inner.drain_asked.get().is_some()
    }

    /// Receiver of every new status.
    pub fn watch_status(&self) -> watch::Receiver<Arc<NodeStatus>> {
        self.inner.status.subscribe()
    }

    /// Receiver of the progress of a shutdown.
    pub fn watch_stopping(&self) -> watch::Receiver<Stopping> {
        self.inner.stopping.subscribe()
    }

    /// True from the moment a drain was asked for.
    pub fn is_draining(&self) -> bool {
        self.inner.stopping.borrow().draining
    }

    /// The kernel's event bus.
    pub fn bus(&self) -> &Bus {
        &self.inner.bus
    }

    /// The kernel's metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// The usage meter: what was done for whom.
    pub fn meter(&self) -> &Meter {
        &self.inner.meter
    }

    /// Services, tasks, queues and gates with their live numbers.
    pub fn topology(&self) -> Topology {
        static EMPTY: OnceLock<Declared> = OnceLock::new();
        let declared = self.inner.declared.get().unwrap_or_else(|| EMPTY.get_or_init(Declared::default));
        declared.topology(&self.status(), self.inner.drain_deadline.get().value)
    }

    /// Time since the supervisor's loop last turned.
    pub fn last_turn_age(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.inner.last_turn_ms.get()))
    }

    /// Services that are not to be asked now. Whoever passes requests on to a service looks here first.
    pub fn outages(&self) -> &Snapshot<Outages> {
        &self.inner.outages
    }

    /// Asks for a drain. Asking twice is asking once.
    pub async fn drain(&self) -> Result<(), Error> {
        self.inner.drain_asked.get_or_init(|| ());
        self.ask(Request::Drain).await
    }

    /// Restarts every task of a service and forgets its crash loop.
    pub async fn restart_service(&self, service: &str) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Restart { service: service.to_owned(), reply }).await?;
        answer.await.map_err(|_| Error::canceled("the supervisor is gone"))?
    }

    /// Says that something bounded of a service is under pressure, or no longer is.
    pub async fn pressure(&self, service: &'static str, cause: &'static str, on: bool) -> Result<(), Error> {
        self.ask(Request::Pressure { service, cause, on }).await
    }

    /// Says whether an outside condition of a service holds.
    pub async fn dependency(&self, service: &'static str, name: &'static str, met: bool) -> Result<(), Error> {
        self.ask(Request::Dependency { service, name, met }).await
    }

    /// Chaos: does `order` to a share of the running instances of a task (at least one); returns whom it hit.
    pub async fn chaos(&self, task: &str, share: f64, order: ChaosOrder) -> Result<Vec<String>, Error> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::schema(format!("share is {share}; it must be above 0 and at most 1")));
        }
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Chaos { task: task.to_owned(), share, order, reply }).await?;
        answer.await.map_err(|_| Error::canceled("the supervisor is gone"))?
    }

    /// Chaos: keeps all threads of the runtime from turning for this time.
    pub async fn stall(&self, time: Duration) -> Result<(), Error> {
        self.ask(Request::Stall { time }).await
    }

    pub(crate) async fn boot_ready(&self, task: TaskId) {
        if let Err(error) = self.ask(Request::BootReady(task)).await {
            // Without this notice the service would never be ready; the task's end makes the supervisor try again.
            tracing::error!(%error, "the supervisor did not take a readiness notice");
        }
    }

    async fn ask(&self, request: Request) -> Result<(), Error> {
        self.inner.inbox.send(request, Deadline::after(INBOX_WAIT)).await.map_err(|error| match error.kind {
            Kind::Canceled => Error::canceled("the supervisor has ended"),
            _ => error,
        })
    }
}
