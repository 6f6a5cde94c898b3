//! The handle of the rewarder: what planes and commands call. It knows neither HTTP nor JSON bodies.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use ron_calculus::Explanation;
use ron_kernel::Deadline;
use ron_kernel::bus::BroadcastReceiver;
use ron_kernel::shutdown::Stopping;
use ron_ledger::Book;
use ron_types::limits::MIB;
use ron_types::limits::rewarder::EPOCH_DURATION;
use ron_types::{Error, Kind};
use serde::Serialize;
use tokio::sync::{oneshot, watch};

use super::correction::CorrectionRequest;
use super::engine::{Asked, Begun, Engine, LiveOptions, Progress, Refusal, RewardEvent};
use super::reads::{self, ArtifactReader};
use super::request::{ComputeRequest, Grounds, InputRef, Prepared};
use super::retention;
use crate::artifacts::{COMMITMENT, MANIFEST};
use crate::diff::{Diff, Side, diff};
use crate::distribution::{AssetDistribution, distribution};
use crate::epoch::EpochId;
use crate::inputs::Upload;
use crate::manifest::Manifest;
use crate::proofs::{ActorProofs, ProofFormat};
use crate::sealed::Loaded;
use crate::store::{EpochRow, EpochStatus, StoreError};
use crate::usage_meter::UsageMeter;

/// Bytes of an upload that are gathered before they go to the disk.
const UPLOAD_PIECE_BYTES: usize = MIB;

/// The rewarder. Clones are the same rewarder.
#[derive(Clone)]
pub struct Rewarder {
    pub(crate) engine: Arc<Engine>,
}

/// How an epoch stands.
#[derive(Clone, Debug)]
pub enum EpochState {
    /// It is being computed.
    Computing(Progress),
    /// It was not computed.
    Refused(Arc<Refusal>),
    /// It is sealed.
    Sealed(Arc<EpochRow>),
}

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Length of the file.
    pub bytes: u64,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// The rewarder at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct RewarderStats {
    /// Epochs being computed or waiting for it.
    pub computing: usize,
    /// Sealed epochs by status.
    pub epochs: std::collections::BTreeMap<&'static str, u64>,
    /// Payouts wait for the ledger.
    pub ledger_waits: bool,
    /// Bytes of uploaded inputs.
    pub inputs_bytes: u64,
    /// Bytes of the artifacts of epochs.
    pub epochs_bytes: u64,
}

impl Rewarder {
    /// The node's own usage.
    pub fn usage(&self) -> &UsageMeter {
        &self.engine.options.usage
    }

    /// What a reload may change, as it is now.
    pub fn live(&self) -> LiveOptions {
        self.engine.live.get().value.clone()
    }

    /// Has an epoch computed, or finds that it was.
    pub async fn compute(&self, mut request: ComputeRequest, deadline: Deadline) -> Result<Begun, Error> {
        for input in &mut request.inputs {
            if let InputRef::Meter(epoch) = &*input {
                *input = InputRef::Upload(self.take_metered(epoch, deadline).await?);
            }
        }
        self.schedule(move |grounds| request.prepare(grounds), deadline).await
    }

    /// Takes in a correction that was made elsewhere and whose files were uploaded, or finds that it was taken in.
    pub async fn correct(&self, request: CorrectionRequest, deadline: Deadline) -> Result<Begun, Error> {
        self.schedule(move |grounds| request.prepare(grounds), deadline).await
    }

    /// Prepares a request on a thread that may block, and has the scheduler decide.
    async fn schedule(
        &self,
        prepare: impl FnOnce(&Grounds<'_>) -> Result<Prepared, Error> + Send + 'static,
        deadline: Deadline,
    ) -> Result<Begun, Error> {
        let engine = Arc::clone(&self.engine);
        let prepared = blocking(deadline, move || {
            let (options, live) = (&engine.options, engine.live.get());
            prepare(&Grounds {
                inputs: &options.inputs,
                inputs_dir: options.inputs_dir.as_deref(),
                trusted: options.trusted.as_ref(),
                allows_unsigned: live.value.unsigned_policies,
                is_amnesia: options.is_amnesia,
                memory_bytes: options.run_memory_bytes,
                threads: options.run_threads,
            })
        });
        let (reply, answer) = oneshot::channel();
        self.engine.requests.offer(Asked { prepared: prepared.await?, reply })?;
        deadline.run("compute", answer).await?.map_err(|_| Error::canceled("the scheduler left before it answered"))?
    }

    /// Brings what the node's own meter sealed among the inputs; gives its hash.
    async fn take_metered(&self, epoch: &EpochId, deadline: Deadline) -> Result<[u8; 32], Error> {
        let (_, bytes) = self.engine.options.usage.file(epoch.clone(), deadline).await?;
        let hash = *blake3::hash(&bytes).as_bytes();
        if self.has_input(&hash).is_none() {
            let len = bytes.len() as u64;
            self.upload(hash, len, futures_util::stream::iter([Ok(bytes)])).await?;
        }
        Ok(hash)
    }

    /// How an epoch stands.
    pub fn epoch(&self, epoch: &EpochId) -> Result<EpochState, Error> {
        let (store, epoch) = (self.engine.store()?, epoch.as_str());
        // In this order, because a run leaves the first list only after it is in the second.
        let flight = self.engine.flights().get(epoch).cloned();
        if let Some(row) = store.get(epoch) {
            return Ok(EpochState::Sealed(row));
        }
        if let Some(flight) = flight {
            return Ok(EpochState::Computing(flight.progress()));
        }
        let refusal = self.engine.refusal(epoch);
        refusal.map(EpochState::Refused).ok_or_else(|| unknown(epoch))
    }

    /// The row of a sealed epoch.
    pub fn row(&self, epoch: &EpochId) -> Result<Arc<EpochRow>, Error> {
        self.engine.store()?.get(epoch.as_str()).ok_or_else(|| unknown(epoch.as_str()))
    }

    /// Sealed epochs in the order of their ids.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<EpochRow>>, Error> {
        Ok(self.engine.store()?.list(after, limit))
    }

    /// Sealed epochs against the order of their ids, from before this one on.
    pub fn list_back(&self, before: Option<&str>, limit: usize) -> Result<Vec<Arc<EpochRow>>, Error> {
        Ok(self.engine.store()?.list_back(before, limit))
    }

    /// The rewarder at a glance.
    pub fn stats(&self) -> Result<RewarderStats, Error> {
        let counts = self.engine.store()?.counts();
        let names = EpochStatus::ALL.iter().map(|status| status.as_str());
        Ok(RewarderStats {
            computing: self.engine.flights().len(),
            epochs: names.zip(counts).collect(),
            ledger_waits: self.engine.counts.ledger_waits(),
            inputs_bytes: self.engine.options.inputs.bytes(),
            epochs_bytes: self.engine.artifact_bytes(),
        })
    }

    /// The embedded book; not found where payouts go to another ledger.
    pub async fn book(&self, deadline: Deadline) -> Result<Book, Error> {
        let opened = deadline.run("ledger_open", self.engine.ledger()).await?;
        let ledger = opened.map_err(|error| Error::new(Kind::Degraded, error.to_string()))?;
        let book = ledger.book().cloned();
        book.ok_or_else(|| Error::new(Kind::NotFound, "payouts of this node go to a ledger that is elsewhere"))
    }

    /// The manifest of a sealed epoch.
    pub async fn manifest(&self, epoch: &EpochId, deadline: Deadline) -> Result<Manifest, Error> {
        reads::ask(&self.engine, self.row(epoch)?, deadline, |run| Ok(run.manifest().clone())).await
    }

    /// Proofs of one actor's amounts.
    pub async fn proof(
        &self,
        epoch: &EpochId,
        actor: String,
        format: ProofFormat,
        deadline: Deadline,
    ) -> Result<ActorProofs, Error> {
        let prove = move |[run]: [&Loaded; 1]| run.prove(&actor, format, None);
        reads::ask_loaded(&self.engine, [self.row(epoch)?], deadline, prove).await
    }

    /// Every integer of one actor's amounts.
    pub async fn explain(&self, epoch: &EpochId, actor: String, deadline: Deadline) -> Result<Explanation, Error> {
        reads::ask_loaded(&self.engine, [self.row(epoch)?], deadline, move |[run]| run.explain(&actor)).await
    }

    /// How the amounts are spread over the payees, by asset.
    pub async fn distribution(&self, epoch: &EpochId, deadline: Deadline) -> Result<Vec<AssetDistribution>, Error> {
        let spread = |[run]: [&Loaded; 1]| {
            let paying = run.computed.paying().1.iter();
            Ok(paying.map(|allocation| distribution(&allocation.asset, &allocation.amounts)).collect())
        };
        reads::ask_loaded(&self.engine, [self.row(epoch)?], deadline, spread).await
    }

    /// What changed from another epoch to this one, and why; the largest changes of each asset.
    pub async fn diff(
        &self,
        epoch: &EpochId,
        other: &EpochId,
        listed_max: usize,
        deadline: Deadline,
    ) -> Result<Diff, Error> {
        let threads = self.engine.options.run_threads;
        let compare = move |[from, to]: [&Loaded; 2]| {
            Ok(diff(&Side::of(&from.computed), &Side::of(&to.computed), listed_max, threads))
        };
        reads::ask_loaded(&self.engine, [self.row(other)?, self.row(epoch)?], deadline, compare).await
    }

    /// An artifact of a sealed epoch, to be read piece by piece.
    pub async fn artifact(&self, epoch: &EpochId, name: String, deadline: Deadline) -> Result<ArtifactReader, Error> {
        let row = self.row(epoch)?;
        let is_known = row.artifacts.contains_key(&name) || [MANIFEST, COMMITMENT].contains(&name.as_str());
        if !is_known {
            let names: Vec<&str> = row.artifacts.keys().map(String::as_str).chain([MANIFEST, COMMITMENT]).collect();
            return Err(Error::new(Kind::NotFound, format!("this epoch has the artifacts {}", names.join(", "))));
        }
        reads::ask(&self.engine, row, deadline, move |run| Ok(ArtifactReader::new(run.disk().open(&name)?)?)).await
    }

    /// Lets the payouts of a held epoch leave; fine if they have left already. With `lifts_quarantine`, also those of
    /// an epoch that was quarantined because of its ledger or its artifacts: keys make sure that only what is missing
    /// is booked.
    pub async fn release(
        &self,
        epoch: &EpochId,
        by: &str,
        lifts_quarantine: bool,
        deadline: Deadline,
    ) -> Result<Arc<EpochRow>, Error> {
        let row = self.row(epoch)?;
        match row.status {
            EpochStatus::Released | EpochStatus::Settled => return Ok(row),
            EpochStatus::Quarantined if lifts_quarantine && row.is_liftable() => {}
            EpochStatus::Quarantined => return Err(quarantined(&row)),
            EpochStatus::Held if !row.is_payable => {
                let why = row.held_because.as_deref().unwrap_or_default();
                return Err(Error::new(Kind::Conflict, format!("epoch {epoch} cannot be paid: {why}")));
            }
            EpochStatus::Held => {}
        }
        let lifts = row.status == EpochStatus::Quarantined;
        let (engine, epoch, by) = (Arc::clone(&self.engine), epoch.to_string(), by.to_owned());
        let released = blocking(deadline, move || {
            let store = engine.store()?;
            let released = if lifts { store.lift(&epoch, &by) } else { store.release(&epoch, &by) };
            released.map_err(|error| {
                let is_conflict = matches!(error, StoreError::Corrected { .. } | StoreError::LeftOverSpent { .. });
                Error::new(if is_conflict { Kind::Conflict } else { Kind::Degraded }, error.to_string())
            })
        });
        let row = released.await?;
        tracing::info!(epoch = row.epoch, by = row.released_by, lifts, "an epoch is released");
        self.engine.events.publish(RewardEvent { epoch: row.epoch.clone(), status: row.status });
        self.engine.wake_emitter();
        Ok(row)
    }

    /// Removes the artifacts of an epoch that is over; what it paid stays known. Fine if they are gone already.
    pub async fn remove_artifacts(
        &self,
        epoch: &EpochId,
        by: &str,
        deadline: Deadline,
    ) -> Result<Arc<EpochRow>, Error> {
        self.row(epoch)?;
        let (engine, epoch, by) = (Arc::clone(&self.engine), epoch.to_string(), by.to_owned());
        blocking(deadline, move || {
            retention::remove(&engine, &epoch, &by).map_err(|error| {
                let is_conflict = matches!(error, StoreError::Needed(_));
                Error::new(if is_conflict { Kind::Conflict } else { Kind::Degraded }, error.to_string())
            })
        })
        .await
    }

    /// What happens to epochs from now on.
    pub fn watch_events(&self) -> BroadcastReceiver<RewardEvent> {
        self.engine.events.subscribe("events", self.engine.kernel.metrics())
    }

    /// Says when the node leaves.
    pub fn watch_stopping(&self) -> watch::Receiver<Stopping> {
        self.engine.kernel.watch_stopping()
    }

    /// Whether a file with these bytes is here, and how long it is.
    pub fn has_input(&self, hash: &[u8; 32]) -> Option<u64> {
        self.engine.options.inputs.path(hash).and_then(|path| path.metadata().ok()).map(|found| found.len())
    }

    /// Takes a file in, piece by piece; it is kept only if its bytes have the hash that was said.
    pub async fn upload(
        &self,
        hash: [u8; 32],
        announced: u64,
        mut pieces: impl Stream<Item = Result<Bytes, Error>> + Unpin,
    ) -> Result<Uploaded, Error> {
        let (inputs, bytes_max) = (Arc::clone(&self.engine.options.inputs), self.live().inputs_bytes_max);
        let forever = Deadline::after(EPOCH_DURATION);
        let mut upload: Upload = blocking(forever, move || inputs.begin(hash, announced, bytes_max)).await?;
        let mut gathered = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            gathered.extend_from_slice(&piece?);
            if gathered.len() >= UPLOAD_PIECE_BYTES {
                upload = written(upload, gathered.split().freeze()).await?;
            }
        }
        let upload = written(upload, gathered.freeze()).await?;
        let bytes = blocking(forever, move || upload.finish()).await?;
        Ok(Uploaded { bytes, is_new: true })
    }

    /// Removes an uploaded file; false if it is not here.
    pub async fn remove_input(&self, hash: [u8; 32], deadline: Deadline) -> Result<bool, Error> {
        let inputs = Arc::clone(&self.engine.options.inputs);
        blocking(deadline, move || inputs.remove(&hash)).await
    }
}

async fn written(mut upload: Upload, piece: Bytes) -> Result<Upload, Error> {
    blocking(Deadline::after(EPOCH_DURATION), move || upload.write(&piece).map(|()| upload)).await
}

async fn blocking<T: Send + 'static>(
    deadline: Deadline,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = deadline.run("rewarder", tokio::task::spawn_blocking(work)).await?;
    done.map_err(|_| Error::canceled("work of the rewarder broke off"))?
}

/// Why nothing more of an epoch is paid, and the one way on that pays nobody twice.
pub(crate) fn quarantined(row: &EpochRow) -> Error {
    let EpochRow { epoch, quarantine, .. } = row;
    let (reason, why) = quarantine.as_ref().map_or(("", ""), |found| (found.reason.as_str(), found.detail.as_str()));
    let advice = if row.is_liftable() {
        "mend the cause, then release it with its quarantine lifted: payouts that are booked are not booked again"
    } else {
        "it has paid nobody: mend its inputs or its policy and compute them under another id"
    };
    Error::new(Kind::Quarantine, format!("epoch {epoch} is quarantined ({reason}): {why}; {advice}"))
}

fn unknown(epoch: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no epoch {epoch}"))
}
