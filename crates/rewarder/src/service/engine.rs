//! What every part of the live rewarder shares: the seal log, the folders, the ledger, and the runs on their way.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::bus::Broadcast;
use ron_kernel::gate::Gate;
use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::{Deadline, KernelHandle, Snapshot};
use ron_ledger::LedgerError;
use ron_types::limits::rewarder::REFUSALS_KEPT;
use ron_types::{Error, Kind};
use ron_usage::{BadRow, InputError};
use serde::Serialize;
use tokio::sync::{Notify, OnceCell, oneshot};

use super::ledger_port::PayoutLedger;
use super::reads::LoadedRuns;
use super::request::Prepared;
use super::room::{ArtifactRoom, CountedFolder};
use super::settled::SettledCheck;
use super::shares::{RunShare, RunShares};
use crate::config::PageAccess;
use crate::folders::Folders;
use crate::inputs::{InputPin, Inputs};
use crate::job::{Computed, Divide, Job, RunError, Stage, Watch};
use crate::keys::TrustedKeys;
use crate::metrics::Counts;
use crate::sealed::SealedRun;
use crate::store::{EpochRow, EpochStatus, Store};
use crate::usage_meter::UsageMeter;

/// Opens the ledger; called until it succeeds.
pub type LedgerOpener = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn PayoutLedger>, LedgerError>> + Send + Sync>;

/// Opens the disk of the seal log.
pub type DiskOpener = Arc<dyn Fn() -> std::io::Result<Arc<dyn ron_log::Disk>> + Send + Sync>;

/// What is fixed while the node runs.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Disk of the seal log.
    pub disk: DiskOpener,
    /// Folders of artifacts.
    pub folders: Arc<dyn Folders>,
    /// Uploaded inputs.
    pub inputs: Arc<Inputs>,
    /// Folder below which requests may name files.
    pub inputs_dir: Option<PathBuf>,
    /// Folder for what does not fit into memory; none in amnesia mode.
    pub spill: Option<PathBuf>,
    /// The node's own usage.
    pub usage: UsageMeter,
    /// Keys that policies must be signed with.
    pub trusted: Option<TrustedKeys>,
    /// The ledger.
    pub ledger: LedgerOpener,
    /// Nothing outlives the process.
    pub is_amnesia: bool,
    /// Runs computed at once.
    pub compute_workers: usize,
    /// Memory of one run.
    pub run_memory_bytes: u64,
    /// Threads of one run.
    pub run_threads: usize,
    /// Permits of the gate `reward_reads`.
    pub read_permits: usize,
    /// Payouts in one call to the ledger.
    pub batch_entries: usize,
    /// Divides the pools: [`ron_calculus::allocate()`], or what a test puts in its place.
    pub divide: Divide,
}

impl ServiceOptions {
    /// Bytes that artifacts in memory may take: as much again as the runs.
    pub(crate) fn artifacts_memory_max(&self) -> u64 {
        self.run_memory_bytes.saturating_mul(self.compute_workers.max(1) as u64)
    }
}

/// What a reload may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// Largest body of a request to compute.
    pub body_bytes_max: usize,
    /// Tries of one call to the ledger.
    pub rpc_attempts_max: u32,
    /// Length of an epoch.
    pub epoch_duration: Duration,
    /// Bytes that uploads may take.
    pub inputs_bytes_max: u64,
    /// Policies that nobody signed are taken if the request says so.
    pub unsigned_policies: bool,
    /// Bytes that the artifacts of epochs may take.
    pub epochs_bytes_max: u64,
    /// Time after which the artifacts of settled epochs are removed; zero: never.
    pub artifacts_kept_for: Duration,
    /// Who may read settled epochs.
    pub page: PageAccess,
}

/// Something that happened to an epoch, for observers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RewardEvent {
    /// Id of the epoch.
    pub epoch: String,
    /// What it is now.
    pub status: EpochStatus,
}

/// Shared by the handle and every task of the rewarder.
pub(crate) struct Engine {
    pub options: ServiceOptions,
    pub live: Snapshot<LiveOptions>,
    pub kernel: KernelHandle,
    pub requests: QueueSender<Asked>,
    pub work: QueueSender<Ticket>,
    pub results: QueueSender<Computation>,
    pub intents: QueueSender<Payable>,
    pub events: Broadcast<RewardEvent>,
    pub reads: Gate,
    pub counts: Counts,
    pub loaded_runs: LoadedRuns,
    pub run_shares: RunShares,
    flights: Mutex<BTreeMap<String, Arc<Flight>>>,
    refusals: Mutex<VecDeque<Arc<Refusal>>>,
    /// Runs whose worker or writer died before they were sealed; the next worker takes them first.
    returned: Mutex<Vec<Arc<Flight>>>,
    has_returned: Notify,
    /// Bytes of the artifacts of all epochs.
    pub room: Arc<ArtifactRoom>,
    /// Held while a folder of artifacts is removed or begun, so that no removal that comes late takes the next run's.
    changing_folders: Mutex<()>,
    store: OnceLock<Store>,
    is_opening: Notify,
    ledger: OnceCell<Arc<dyn PayoutLedger>>,
    /// What the usage of epochs is known by whose rows do not say it, by commitment: one entry for each such row.
    pub usage_of_before: Mutex<BTreeMap<String, Vec<String>>>,
    /// What was found when the ledger was asked about the epochs that are settled.
    pub settled: Mutex<SettledCheck>,
}

/// A request on its way to the scheduler.
pub(crate) struct Asked {
    pub prepared: Prepared,
    pub reply: oneshot::Sender<Result<Begun, Error>>,
}

impl Payload for Asked {
    fn bytes(&self) -> usize {
        let document = self.prepared.document.envelope.as_ref().map_or(0, Vec::len);
        let document = document + self.prepared.signatures.as_ref().map_or(0, Vec::len);
        let files: usize = self.prepared.files.iter().map(|file| file.name.len() + 256).sum();
        // What the policy takes once it is parsed is in the share of runs that its caller has.
        document + files + 4096
    }
}

/// Answer of the scheduler to a request that is fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The run was begun.
    Started,
    /// The epoch was computed before, from the same inputs.
    Exists,
}

/// A run that is on its way: accepted and not sealed.
pub(crate) struct Flight {
    pub job: Job,
    /// What each file must hash to.
    pub pins: Vec<Option<[u8; 32]>>,
    pub request: [u8; 32],
    pub deadline: Deadline,
    pub carried_from: Option<String>,
    pub is_payable: bool,
    /// Commitment of the run that had this name before and was rejected.
    pub replaces: Option<String>,
    /// A correction that was made elsewhere and is computed again, in place of the files of the job.
    pub correction: Option<Arc<SealedRun>>,
    /// The signatures under the correction, which are kept beside it.
    pub signatures: Option<Vec<u8>>,
    /// Keep the uploads that it reads until it is over.
    _kept: Vec<Arc<InputPin>>,
    /// Share of its caller in the runs that wait.
    _share: Option<Arc<RunShare>>,
    progress: Mutex<Progress>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Part of the run: `waiting`, `reading`, `dividing`, `rooting` or `writing`.
    pub stage: &'static str,
    /// Done of the part.
    pub done: u64,
    /// All of the part.
    pub of: u64,
}

/// A run that was not sealed because of what came in, or because time or the disk ran out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Id of the epoch.
    pub epoch: String,
    /// Why.
    pub reason: String,
    /// Bad rows in all files.
    #[serde(skip_serializing_if = "is_zero")]
    pub bad_rows: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_bad_rows: Vec<BadRow>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The right to work on a run. Dropped before the run is over, it gives the run back, so that no death of a task loses
/// one; whoever computes it again comes to the same bytes.
pub(crate) struct Ticket {
    pub flight: Arc<Flight>,
    /// Weak, because tickets wait in queues that the engine holds.
    engine: Weak<Engine>,
    /// Whether a drop gives the run back: from when a worker has taken it until it is over.
    is_held: bool,
}

impl Payload for Ticket {}

/// A run that was computed, or why it was not.
pub(crate) struct Computation {
    pub ticket: Ticket,
    pub outcome: Result<Box<Computed>, RunError>,
    /// Told when the run is sealed or given up: a worker holds only one run in memory.
    pub written: oneshot::Sender<()>,
}

impl Payload for Computation {}

/// An epoch whose payouts may leave: a wake-up, the seal log knows the rest.
pub(crate) struct Payable;

impl Payload for Payable {}

/// The queues' sending ends, as they are made.
pub(crate) struct Queues {
    pub requests: QueueSender<Asked>,
    pub work: QueueSender<Ticket>,
    pub results: QueueSender<Computation>,
    pub intents: QueueSender<Payable>,
}

impl Engine {
    pub fn new(
        options: ServiceOptions,
        live: Snapshot<LiveOptions>,
        kernel: KernelHandle,
        queues: Queues,
        events: Broadcast<RewardEvent>,
        reads: Gate,
    ) -> Engine {
        let Queues { requests, work, results, intents } = queues;
        Engine {
            options,
            live,
            kernel,
            requests,
            work,
            results,
            intents,
            events,
            reads,
            counts: Counts::default(),
            loaded_runs: LoadedRuns::default(),
            run_shares: RunShares::default(),
            flights: Mutex::default(),
            refusals: Mutex::default(),
            returned: Mutex::default(),
            has_returned: Notify::new(),
            room: Arc::default(),
            changing_folders: Mutex::default(),
            store: OnceLock::new(),
            is_opening: Notify::new(),
            ledger: OnceCell::new(),
            usage_of_before: Mutex::default(),
            settled: Mutex::default(),
        }
    }

    /// The seal log, or a refusal while it is being read.
    pub fn store(&self) -> Result<&Store, Error> {
        self.store.get().ok_or_else(|| Error::new(Kind::Degraded, "the rewarder is still reading its log"))
    }

    /// Says that the seal log is read; only the first time counts.
    pub fn set_store(&self, store: Store) {
        let _ = self.store.set(store);
        self.is_opening.notify_waiters();
    }

    /// Resolves once the seal log is read.
    pub async fn until_opened(&self) -> &Store {
        loop {
            let opening = self.is_opening.notified();
            if let Some(store) = self.store.get() {
                return store;
            }
            opening.await;
        }
    }

    /// The ledger, once it is open.
    pub async fn ledger(&self) -> Result<Arc<dyn PayoutLedger>, LedgerError> {
        // Who comes while it is being opened waits for that: a book cannot be opened twice.
        self.ledger.get_or_try_init(|| (self.options.ledger)()).await.map(Arc::clone)
    }

    /// The ledger, if it is open.
    pub fn open_ledger(&self) -> Option<Arc<dyn PayoutLedger>> {
        self.ledger.get().cloned()
    }

    /// Has the emitter look at what is released. A queue that is full holds a wake-up already, and the seal log knows
    /// what is released, so nobody waits here: the emitter may be waiting for its ledger for hours.
    pub fn wake_emitter(&self) {
        let _ = self.intents.offer(Payable);
    }

    /// Measures the artifacts of all epochs. Blocks.
    pub fn count_artifacts(&self, store: &Store) -> std::io::Result<()> {
        let is_kept = |name: &String| store.get(name).is_some_and(|row| row.removed_by.is_none());
        for name in self.options.folders.names()?.into_iter().filter(is_kept) {
            self.room.take(&name, self.options.folders.bytes(&name)?, u64::MAX);
        }
        Ok(())
    }

    /// The empty folder of an epoch whose run is to be written, which may take as much room as there is. Blocks.
    pub fn begin_artifacts(&self, epoch: &str) -> std::io::Result<CountedFolder> {
        let _changing = lock(&self.changing_folders);
        let (folders, room) = (&self.options.folders, Arc::clone(&self.room));
        if folders.is_foreign(epoch)? {
            let reason = format!("the folder of {epoch} holds files that no run of it has; move them away");
            return Err(std::io::Error::other(reason));
        }
        folders.remove(epoch)?;
        room.forget(epoch);
        let mut bytes_max = self.live.get().value.epochs_bytes_max;
        if self.options.is_amnesia {
            bytes_max = bytes_max.min(self.options.artifacts_memory_max());
        }
        room.take(epoch, 0, u64::MAX);
        Ok(CountedFolder { disk: folders.make(epoch)?, room, epoch: epoch.to_owned(), bytes_max })
    }

    /// Removes the files of a run that was not sealed, if it came to files; what cannot be removed is by the next
    /// start. Blocks.
    pub fn abandon_artifacts(&self, store: &Store, epoch: &str) {
        let _changing = lock(&self.changing_folders);
        let has_files = store.get(epoch).is_some_and(|row| row.removed_by.is_none());
        if !has_files && self.room.counts(epoch) {
            self.remove_folder(epoch);
        }
    }

    /// Removes the artifacts of an epoch, unless another run is about to have its name, or has it. Blocks.
    pub fn drop_artifacts(&self, store: &Store, epoch: &str) {
        let _changing = lock(&self.changing_folders);
        let is_removed = store.get(epoch).is_some_and(|row| row.removed_by.is_some());
        if is_removed && !self.flights().contains_key(epoch) {
            self.remove_folder(epoch);
        }
    }

    fn remove_folder(&self, epoch: &str) {
        match self.options.folders.remove(epoch) {
            Ok(()) => self.room.forget(epoch),
            Err(error) => tracing::warn!(epoch, %error, "artifacts cannot be removed yet"),
        }
    }

    /// Runs on their way.
    pub fn flights(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Flight>>> {
        lock(&self.flights)
    }

    /// The epoch that has carried in what this one left over, or is about to.
    pub fn carried_into(&self, store: &Store, from: &str) -> Option<String> {
        store.carried_into(from).or_else(|| {
            let flights = self.flights();
            let found = flights.values().find(|flight| flight.carried_from.as_deref() == Some(from));
            found.map(|flight| flight.job.epoch.to_string())
        })
    }

    /// Makes a run one of those on their way.
    pub fn take_off(self: &Arc<Self>, flight: Flight) -> Ticket {
        let flight = Arc::new(flight);
        self.flights().insert(flight.job.epoch.as_str().to_owned(), Arc::clone(&flight));
        lock(&self.refusals).retain(|refusal| refusal.epoch != flight.job.epoch.as_str());
        self.ticket(flight)
    }

    pub fn ticket(self: &Arc<Self>, flight: Arc<Flight>) -> Ticket {
        Ticket { flight, engine: Arc::downgrade(self), is_held: false }
    }

    /// Forgets a run that nobody has taken.
    pub fn withdraw(&self, epoch: &str) {
        self.flights().remove(epoch);
    }

    /// Why the epoch was not computed, if that is still known.
    pub fn refusal(&self, epoch: &str) -> Option<Arc<Refusal>> {
        lock(&self.refusals).iter().find(|refusal| refusal.epoch == epoch).cloned()
    }

    fn remember(&self, refusal: Refusal) {
        let mut refusals = lock(&self.refusals);
        refusals.retain(|known| known.epoch != refusal.epoch);
        if refusals.len() >= REFUSALS_KEPT {
            refusals.pop_front();
        }
        refusals.push_back(Arc::new(refusal));
    }

    /// The next run to compute: one that came back, or the next in the queue; none once that is closed. Cancel-safe.
    pub async fn next_ticket(self: &Arc<Self>, work: &mut QueueReceiver<Ticket>) -> Option<Ticket> {
        loop {
            let returned = self.has_returned.notified();
            let back = lock(&self.returned).pop();
            if let Some(flight) = back {
                return Some(self.ticket(flight).held());
            }
            tokio::select! {
                ticket = work.recv() => return ticket.map(Ticket::held),
                () = returned => {}
            }
        }
    }
}

impl Ticket {
    fn held(self) -> Ticket {
        let mut ticket = self;
        ticket.is_held = true;
        ticket
    }

    /// The run is sealed, or refused for good: nobody works on it again.
    pub fn land(mut self, refusal: Option<Refusal>) {
        self.is_held = false;
        let Some(engine) = self.engine.upgrade() else { return };
        if let Some(refusal) = refusal {
            tracing::warn!(epoch = refusal.epoch, reason = refusal.reason, "the epoch was not computed");
            engine.remember(refusal);
        }
        engine.flights().remove(self.flight.job.epoch.as_str());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade().filter(|_| self.is_held) {
            self.flight.set_progress(Progress { stage: "waiting", done: 0, of: 0 });
            lock(&engine.returned).push(Arc::clone(&self.flight));
            engine.has_returned.notify_one();
        }
    }
}

impl Flight {
    pub fn new(job: Job, prepared: &Prepared, deadline: Deadline) -> Flight {
        Flight {
            job,
            pins: prepared.pins.clone(),
            request: prepared.hash,
            deadline,
            carried_from: prepared.carry_from.as_ref().map(ToString::to_string),
            is_payable: prepared.is_payable,
            replaces: None,
            correction: prepared.correction.clone(),
            signatures: prepared.signatures.clone(),
            _kept: prepared.kept.clone(),
            _share: prepared.share.clone(),
            progress: Mutex::new(Progress { stage: "waiting", done: 0, of: 0 }),
        }
    }

    /// Whether it comes in the place of this run, which was rejected before it began.
    pub fn replaces(&self, row: &EpochRow) -> bool {
        row.is_rejected() && self.replaces.as_ref() == Some(&row.commitment)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    pub fn set_progress(&self, progress: Progress) {
        *lock(&self.progress) = progress;
    }
}

/// Watches one computation of a run: ends it at its deadline, or when its worker is gone.
pub(crate) struct Watched {
    pub flight: Arc<Flight>,
    is_stopped: Mutex<bool>,
}

impl Watched {
    pub fn new(flight: Arc<Flight>) -> Watched {
        Watched { flight, is_stopped: Mutex::new(false) }
    }

    /// Ends the computation at its next look.
    pub fn stop(&self) {
        *lock(&self.is_stopped) = true;
    }
}

impl Watch for Watched {
    fn at(&self, stage: Stage, done: u64, of: u64) -> bool {
        let stage = match stage {
            Stage::Reading => "reading",
            Stage::Dividing => "dividing",
            Stage::Rooting => "rooting",
            Stage::Writing => "writing",
        };
        self.flight.set_progress(Progress { stage, done, of });
        !*lock(&self.is_stopped) && !self.flight.deadline.has_passed()
    }
}

impl Refusal {
    /// The refusal that an error of a run leads to.
    pub fn of(epoch: &str, error: &RunError) -> Refusal {
        let (bad_rows, first_bad_rows) = match error {
            RunError::Input(InputError::BadRows { count, first }) => (*count, first.clone()),
            _ => (0, Vec::new()),
        };
        Refusal { epoch: epoch.to_owned(), reason: error.to_string(), bad_rows, first_bad_rows }
    }

    /// A refusal in words.
    pub fn because(epoch: &str, reason: impl Into<String>) -> Refusal {
        Refusal { epoch: epoch.to_owned(), reason: reason.into(), bad_rows: 0, first_bad_rows: Vec::new() }
    }
}

/// A lock whose holder may have died: what it guards is replaced as a whole, never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
