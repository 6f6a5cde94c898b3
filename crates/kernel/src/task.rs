//! What a supervised task is given, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_cells::Monotone;
use ron_policy::{ExitReason, Phase, TaskId};
use tokio::sync::watch;

use crate::deadline::Deadline;
use crate::handle::KernelHandle;
use crate::shutdown::Stopping;
use crate::spec::TaskSpec;

/// Error that ends one life of a task.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It could not be set up; on the first start this ends the process with the code.
    #[error("cannot start: {detail}")]
    Init {
        /// The process exit code that says why.
        code: u8,
        /// One sentence for the operator.
        detail: String,
    },
    /// Going on would do harm: the node drains and the process ends with the code.
    #[error("cannot go on: {detail}")]
    Fatal {
        /// The process exit code that says why.
        code: u8,
        /// One sentence for the operator.
        detail: String,
    },
    /// Failure while running; the task is restarted.
    #[error("{0}")]
    Failed(String),
}

impl From<ron_types::Error> for TaskError {
    fn from(error: ron_types::Error) -> Self {
        TaskError::Failed(error.to_string())
    }
}

/// Result of one life of a task; `Ok` while nobody asked it to stop counts as an exit like any other.
pub type TaskResult = Result<(), TaskError>;

/// Makes the future of one life of a task.
pub(crate) type Factory = Arc<dyn Fn(TaskContext) -> BoxFuture<'static, TaskResult> + Send + Sync>;

/// Order from the kernel to one task instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// End in an orderly way: this instance is to be restarted.
    Stop,
    /// Chaos: the task is never polled again.
    Freeze,
    /// Chaos: panic at the next await.
    Panic,
}

/// The kernel's side of one running task instance.
pub(crate) struct Control {
    pub order: watch::Sender<Order>,
    /// Milliseconds of kernel time of the last beat.
    pub beat: Arc<Monotone>,
    /// The beat that policy was last told of.
    pub told: u64,
}

/// Everything one life of a task is given. Cheap to clone.
#[derive(Clone)]
pub struct TaskContext {
    pub(crate) id: TaskId,
    pub(crate) spec: &'static TaskSpec,
    pub(crate) phase: Phase,
    pub(crate) handle: KernelHandle,
    pub(crate) stopping: watch::Receiver<Stopping>,
    pub(crate) order: watch::Receiver<Order>,
    pub(crate) beat: Arc<Monotone>,
}

impl TaskContext {
    /// Name of the task.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    /// Number of this instance within its pool, from 0.
    pub fn instance(&self) -> u16 {
        self.id.instance
    }

    /// Handle of the kernel.
    pub fn kernel(&self) -> &KernelHandle {
        &self.handle
    }

    /// Says that this task is set up and serving. Until then its service is not ready.
    pub async fn ready(&self) {
        self.beat();
        self.handle.boot_ready(self.id).await;
    }

    /// Says that the task's loop still turns.
    pub fn beat(&self) {
        self.beat.raise(self.handle.now_ms());
    }

    /// Beats three times in each heartbeat, for ever: a branch for the task's `select!`. Each call beats once.
    pub async fn heartbeat(&self) {
        self.beat();
        match self.spec.heartbeat {
            Some(heartbeat) => tokio::time::sleep(heartbeat / 3).await,
            None => std::future::pending().await,
        }
    }

    /// Runs work that may outlast a heartbeat, beating meanwhile; the work must have its own deadline.
    pub async fn beating<F: Future>(&self, work: F) -> F::Output {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = self.heartbeat() => {}
            }
        }
    }

    /// True once this task is to end.
    pub fn is_stopping(&self) -> bool {
        *self.order.borrow() == Order::Stop || self.stopping.borrow().covers(self.id.service, self.phase)
    }

    /// Resolves when this task is to end: stop taking new work, finish what is in hand, return. Cancel-safe.
    pub async fn stopping(&self) {
        let (mut stopping, mut order) = (self.stopping.clone(), self.order.clone());
        // A closed channel means the kernel is gone, which is a reason to stop as well.
        tokio::select! {
            _ = stopping.wait_for(|stopping| stopping.covers(self.id.service, self.phase)) => {}
            _ = order.wait_for(|order| *order == Order::Stop) => {}
        }
    }

    /// By when this task must have ended once it is stopping: a little before the kernel aborts it.
    pub fn stop_deadline(&self) -> Deadline {
        let stopping = self.stopping.borrow();
        let margin = Duration::from_millis(50);
        stopping
            .deadline
            .map_or_else(|| Deadline::after(RESTART_GRACE - margin), |deadline| deadline.earlier_by(margin))
    }
}

/// Maximum time an instance that is to be restarted has to end by itself.
pub(crate) const RESTART_GRACE: Duration = Duration::from_secs(2);

/// One life of a task, obeying chaos orders at its awaits.
pub(crate) async fn live(context: TaskContext, factory: Factory) -> TaskResult {
    let mut order = context.order.clone();
    let name = context.name();
    let life = factory(context);
    tokio::pin!(life);
    let ordered = async {
        let order = order.wait_for(|order| matches!(order, Order::Freeze | Order::Panic)).await;
        order.map(|order| *order)
    };
    tokio::select! {
        biased;
        Ok(order) = ordered => match order {
            Order::Panic => panic!("chaos: {name} killed"),
            _ => std::future::pending().await,
        },
        result = &mut life => result,
    }
}

/// Exit reason that the join of a task stands for.
pub(crate) fn exit_reason(joined: Result<TaskResult, tokio::task::JoinError>) -> ExitReason {
    match joined {
        Ok(Ok(())) => ExitReason::Clean,
        Ok(Err(TaskError::Init { code, detail })) => ExitReason::Init { code, detail },
        Ok(Err(TaskError::Fatal { code, detail })) => ExitReason::Fatal { code, detail },
        Ok(Err(TaskError::Failed(detail))) => ExitReason::Error(detail),
        Err(error) if error.is_panic() => ExitReason::Panic(panic_text(error.into_panic().as_ref())),
        Err(_) => ExitReason::Killed,
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic without a message".to_owned())
}
