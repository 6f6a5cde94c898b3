//! The node's own accounting: what services did for each tenant, kept through restarts and sealed as usage files.
//!
//! Services count through the kernel's [`Meter`]. Once a second, and when the node drains, the task here takes the sums
//! and writes the totals that changed; a process that is killed loses at most what was counted since. A seal gives all
//! totals since the last one to an epoch, as a file that a reward run can read.

mod book;
mod file;
mod record;
mod store;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ron_kernel::spec::TaskSpec;
use ron_kernel::{Deadline, Meter, TaskContext, TaskError, TaskResult};
use ron_log::{Disk, LogError};
use ron_policy::Phase;
use ron_types::{Error, Kind};

pub use book::FILE_BYTES_MAX;
pub use record::UsageSeal;
use store::Store;

use crate::epoch::EpochId;
pub use store::UsageError;

/// Time between two savings of what was counted: the most that a killed process loses.
pub const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Sealed files that are kept where nobody says otherwise.
pub const FILES_KEPT: usize = 64;
/// Exit code of a process that leaves because of its disk.
const FAILED_DISK: u8 = 70;
/// Pauses between warnings that the log refuses rows, in savings.
const WARN_EVERY: u32 = 60;

/// Keeps what the kernel's meter counts.
pub static USAGE_METER: TaskSpec = TaskSpec {
    owner: "svc-rewarder",
    name: "usage_meter",
    count: "1",
    // After the services that count have ended their work, so that their last counts are taken too.
    phase: Phase::Flush,
    heartbeat: Some(Duration::from_secs(5)),
    does: "takes what services counted for each tenant, each second and at the end, and makes the totals durable",
};

/// Opens the disk that the usage log is on; called when the task starts, because it may wait.
pub type OpenDisk = dyn Fn() -> std::io::Result<Arc<dyn Disk>> + Send + Sync;

/// The usage meter from outside. Clones are the same meter.
#[derive(Clone)]
pub struct UsageMeter {
    inner: Arc<Inner>,
}

struct Inner {
    meter: Meter,
    open_disk: Box<OpenDisk>,
    files_kept: usize,
    /// None until the log is read. Held while waiting for the disk, so only blocking threads lock it.
    store: Mutex<Option<Store>>,
}

/// One page of the rows since the last seal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsagePage {
    /// Actor, metric and quantity, in the order of a usage file.
    pub rows: Vec<(String, String, u128)>,
    /// Actor after which the next page begins; none if this is the last page.
    pub next: Option<String>,
    /// Rows on all pages.
    pub rows_total: u64,
    /// Epochs sealed before, newest first; at most a hundred.
    pub sealed: Vec<UsageSeal>,
}

/// Epochs shown with a page.
const SEALED_SHOWN: usize = 100;

impl UsageMeter {
    /// A usage meter that begins to count now, and to keep what it counts once its task runs.
    pub fn new(meter: Meter, open_disk: Box<OpenDisk>, files_kept: usize) -> UsageMeter {
        meter.begin();
        UsageMeter { inner: Arc::new(Inner { meter, open_disk, files_kept, store: Mutex::default() }) }
    }

    /// Seals everything counted since the last seal as the usage of this epoch: durable when this returns. The same
    /// epoch again is the same file. `as_actor` gives all rows to one actor.
    pub async fn seal(
        &self,
        epoch: EpochId,
        as_actor: Option<String>,
        deadline: Deadline,
    ) -> Result<UsageSeal, UsageError> {
        let meter = self.inner.meter.clone();
        let sealed = self.with(deadline, move |store| {
            store.collect(&meter);
            store.seal(&epoch, as_actor.as_deref())
        });
        sealed.await?
    }

    /// Seals what was counted for one tenant since its rows were last sealed, like [`UsageMeter::seal`]; the rows of
    /// others stay as they are.
    pub async fn seal_own(
        &self,
        epoch: EpochId,
        tenant: String,
        as_actor: Option<String>,
        deadline: Deadline,
    ) -> Result<UsageSeal, UsageError> {
        let meter = self.inner.meter.clone();
        let sealed = self.with(deadline, move |store| {
            store.collect(&meter);
            store.seal_own(&epoch, &tenant, as_actor.as_deref())
        });
        sealed.await?
    }

    /// The sealed file of an epoch.
    pub async fn file(&self, epoch: EpochId, deadline: Deadline) -> Result<(UsageSeal, Bytes), UsageError> {
        self.with(deadline, move |store| store.file(epoch.as_str())).await?
    }

    /// Rows since the last seal, after this actor; about `rows` of them, because an actor's rows stay together.
    pub async fn page(&self, after: Option<String>, rows: usize, deadline: Deadline) -> Result<UsagePage, UsageError> {
        let meter = self.inner.meter.clone();
        let page = self.with(deadline, move |store| {
            store.collect(&meter);
            let (page, next) = store.page(after.as_deref(), rows);
            let owned = page.iter().map(|row| (row.actor.to_owned(), row.metric.to_owned(), row.quantity));
            let (rows, next) = (owned.collect(), next.map(str::to_owned));
            UsagePage {
                rows,
                next,
                rows_total: store.book().rows() as u64,
                sealed: store.sealed().take(SEALED_SHOWN).cloned().collect(),
            }
        });
        page.await
    }

    /// Works on the store on a thread that may wait for the disk. Work that outlasts the deadline is done all the same.
    async fn with<R: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&mut Store) -> R + Send + 'static,
    ) -> Result<R, UsageError> {
        let inner = Arc::clone(&self.inner);
        let working = tokio::task::spawn_blocking(move || {
            let mut store = inner.store.lock().unwrap_or_else(PoisonError::into_inner);
            store.as_mut().map(work)
        });
        let done = deadline.run("usage_meter", working).await;
        done.ok().and_then(Result::ok).flatten().ok_or(UsageError::NotReady)
    }

    /// Opens the log, if a former life of the task has not. Blocks.
    pub fn open(&self) -> TaskResult {
        let Inner { open_disk, files_kept, store, .. } = &*self.inner;
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            // Tried again, with growing pauses: a device that is full at the start may have room later, and what is
            // counted is not worth the node.
            let unusable = |detail: String| TaskError::Failed(format!("usage log: {detail}"));
            let disk = open_disk().map_err(|error| unusable(error.to_string()))?;
            let (opened, found) = Store::open(disk, *files_kept).map_err(|error| unusable(error.to_string()))?;
            if found.has_losses() {
                tracing::error!(?found, "records of the usage log are lost or damaged; the rest is kept");
            }
            tracing::info!(rows = opened.book().rows(), sealed = opened.sealed().count(), "the usage log is read");
            *store = Some(opened);
        }
        Ok(())
    }

    async fn save(&self) -> Result<(), LogError> {
        let meter = self.inner.meter.clone();
        // Not bound by a deadline: the task beats meanwhile, and a disk that never answers is what the heartbeat of
        // the runtime cannot help with either.
        let inner = Arc::clone(&self.inner);
        let saved = tokio::task::spawn_blocking(move || {
            let mut store = inner.store.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(store) = store.as_mut() else { return Ok(()) };
            store.collect(&meter);
            store.save()
        });
        saved.await.unwrap_or(Err(LogError::Closed))
    }

    /// Marks the clean end of the log.
    async fn close(&self) -> Result<(), LogError> {
        self.save().await?;
        let inner = Arc::clone(&self.inner);
        let sealed = tokio::task::spawn_blocking(move || {
            let store = inner.store.lock().unwrap_or_else(PoisonError::into_inner);
            store.as_ref().map_or(Ok(()), |store| store.log().seal().map(drop))
        });
        sealed.await.unwrap_or(Err(LogError::Closed))
    }
}

/// One life of the task.
pub async fn usage_meter(context: TaskContext, usage: UsageMeter) -> TaskResult {
    let opener = usage.clone();
    let opened = context.beating(tokio::task::spawn_blocking(move || opener.open())).await;
    opened.map_err(|_| TaskError::Failed("the usage log was not opened".to_owned()))??;
    context.ready().await;
    let mut refused = 0_u32;
    loop {
        let is_stopping = tokio::select! {
            biased;
            () = context.stopping() => true,
            () = context.beating(tokio::time::sleep(SAVE_EVERY)) => false,
        };
        let saved = if is_stopping { usage.close().await } else { context.beating(usage.save()).await };
        match saved {
            Ok(()) => refused = 0,
            Err(error @ (LogError::Full { .. } | LogError::Busy)) => {
                if refused.is_multiple_of(WARN_EVERY) {
                    tracing::warn!(%error, "totals of usage stay in memory until the log takes them");
                }
                refused = refused.saturating_add(1);
            }
            Err(error) => return Err(TaskError::Fatal { code: FAILED_DISK, detail: format!("usage log: {error}") }),
        }
        if is_stopping {
            return Ok(());
        }
    }
}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Error {
        let kind = match &error {
            UsageError::BadActor => Kind::Schema,
            UsageError::Reserved(_) => Kind::Forbidden,
            UsageError::SealedOtherwise { .. } | UsageError::SealedForOthers(_) => Kind::Conflict,
            UsageError::Unknown(_) | UsageError::Forgotten(_) => Kind::NotFound,
            UsageError::NotReady => Kind::Degraded,
            UsageError::Log(LogError::Full { .. } | LogError::Busy) => Kind::Busy,
            UsageError::Log(LogError::Corrupt { .. }) => Kind::Integrity,
            UsageError::Log(_) => Kind::Degraded,
        };
        Error::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests;
