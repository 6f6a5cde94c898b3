//! The handle of the rewarder: what planes and commands call. It knows neither HTTP nor JSON bodies.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use ron_auth::Subject;
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
use super::reads::{self, ArtifactReader, ReadShare};
use super::request::{ComputeRequest, Grounds, InputRef, Prepared};
use super::retention;
use super::shares::RunShare;
use crate::artifacts::{COMMITMENT, MANIFEST, SIGNATURES};
use crate::diff::{Diff, Side, diff};
use crate::distribution::{AssetDistribution, distribution};
use crate::epoch::EpochId;
use crate::hashing::b3;
use crate::inputs::{Repeated, Upload, Uploaded};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::proofs::{ActorProofs, ProofFormat};
use crate::sealed::{Loaded, SealedRun};
use crate::store::{EpochRow, EpochStatus, StoreError};
use crate::usage_meter::UsageMeter;

/// Files that a correction brings at most, as far as its share of memory goes.
const ARTIFACTS_MAX: usize = 16;
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

/// The rewarder at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct RewarderStats {
    /// Epochs being computed or waiting for it.
    pub computing: usize,
    /// Sealed epochs by status.
    pub epochs: std::collections::BTreeMap<&'static str, u64>,
    /// Payouts wait for the ledger.
    pub ledger_waits: bool,
    /// Whether the ledger itself keeps a pot from being paid by two runs; none before it was asked. Where it does not,
    /// only the seal log of this node does.
    pub one_run_per_pot: Option<bool>,
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
    pub async fn compute(&self, by: &Subject, mut request: ComputeRequest, deadline: Deadline) -> Result<Begun, Error> {
        let share = self.engine.run_shares.take(by, request.policy.len(), request.inputs.len())?;
        for input in &mut request.inputs {
            if let InputRef::Meter(epoch) = &*input {
                *input = InputRef::Upload(self.take_metered(epoch, deadline).await?);
            }
        }
        self.schedule(by, share, move |grounds| request.prepare(grounds), deadline).await
    }

    /// Takes in a correction that was made elsewhere and whose files were uploaded, or finds that it was taken in.
    pub async fn correct(&self, by: &Subject, request: CorrectionRequest, deadline: Deadline) -> Result<Begun, Error> {
        // One that is longer is refused when it is looked at; a manifest takes half as much for its length as a policy.
        let manifest_bytes = self.has_input(&request.commitment).unwrap_or(0).min(MANIFEST_BYTES_MAX);
        let document_bytes = manifest_bytes as usize / 2;
        let share = self.engine.run_shares.take(by, document_bytes, ARTIFACTS_MAX)?;
        self.schedule(by, share, move |grounds| request.prepare(grounds), deadline).await
    }

    /// Prepares a request on a thread that may block, and has the scheduler decide.
    async fn schedule(
        &self,
        by: &Subject,
        share: RunShare,
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
                deadline,
            })
            .map(|prepared| Prepared { share: Some(Arc::new(share)), ..prepared })
        });
        let prepared = prepared.await?;
        self.compare_files(by, &prepared, deadline).await?;
        let (reply, answer) = oneshot::channel();
        self.engine.requests.offer(Asked { prepared, reply })?;
        deadline.run("compute", answer).await?.map_err(|_| Error::canceled("the scheduler left before it answered"))?
    }

    /// A request that names files by their paths alone is the one that was computed while they hold the same bytes.
    pub(crate) async fn compare_files(
        &self,
        by: &Subject,
        prepared: &Prepared,
        deadline: Deadline,
    ) -> Result<(), Error> {
        if prepared.correction.is_some() || prepared.pins.iter().all(Option::is_some) {
            return Ok(());
        }
        let Ok(store) = self.engine.store() else { return Ok(()) };
        let row = store.get(prepared.epoch.as_str());
        // Another request is a conflict without a look at its files; of a run whose artifacts are gone nothing is left
        // to compare with, and nothing is paid again. One that was rejected is made anew.
        let row = row.filter(|row| row.request == b3(&prepared.hash) && row.removed_by.is_none() && !row.is_rejected());
        let Some(row) = row else { return Ok(()) };
        let share = ReadShare::of(self.engine.run_shares.compare(by)?);
        let asked = prepared.clone();
        let same = move |run: &SealedRun| reads::holds_same_inputs(run, &asked);
        if reads::ask(&self.engine, row, share, deadline, same).await? {
            return Ok(());
        }
        let detail = format!(
            "epoch {} was computed from other bytes under the same paths; what it paid is mended by a correction \
             (`macronode reward correct`)",
            prepared.epoch
        );
        Err(Error::new(Kind::Conflict, detail))
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
        let row = store.get(epoch);
        if let Some(row) = row.as_ref().filter(|row| !row.is_rejected()) {
            return Ok(EpochState::Sealed(Arc::clone(row)));
        }
        if let Some(flight) = flight {
            return Ok(EpochState::Computing(flight.progress()));
        }
        let refusal = self.engine.refusal(epoch).map(EpochState::Refused);
        refusal.or_else(|| row.map(EpochState::Sealed)).ok_or_else(|| unknown(epoch))
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
            one_run_per_pot: self.engine.counts.keeps_pots(),
            inputs_bytes: self.engine.options.inputs.bytes(),
            epochs_bytes: self.engine.room.bytes(),
        })
    }

    /// The embedded book; not found where payouts go to another ledger.
    pub async fn book(&self, deadline: Deadline) -> Result<Book, Error> {
        let opened = deadline.run("ledger_open", self.engine.ledger()).await?;
        let ledger = opened.map_err(|error| Error::new(Kind::Degraded, error.to_string()))?;
        let book = ledger.book().cloned();
        let elsewhere = || format!("payouts of this node go to {}, and not to an embedded book", ledger.kind());
        book.ok_or_else(|| Error::new(Kind::NotFound, elsewhere()))
    }

    /// The manifest of a sealed epoch.
    pub async fn manifest(&self, epoch: &EpochId, deadline: Deadline) -> Result<Manifest, Error> {
        reads::ask(&self.engine, self.row(epoch)?, ReadShare::none(), deadline, |run| Ok(run.manifest().clone())).await
    }

    /// Reads of sealed runs that may be going on at once, whoever asks.
    pub fn read_permits(&self) -> usize {
        self.engine.reads.permits()
    }

    /// Proofs of one actor's amounts.
    pub async fn proof(
        &self,
        epoch: &EpochId,
        actor: String,
        format: ProofFormat,
        share: ReadShare,
        deadline: Deadline,
    ) -> Result<ActorProofs, Error> {
        let prove = move |[run]: [&Loaded; 1]| run.prove(&actor, format, None);
        reads::ask_loaded(&self.engine, [self.row(epoch)?], share, deadline, prove).await
    }

    /// Every integer of one actor's amounts.
    pub async fn explain(
        &self,
        epoch: &EpochId,
        actor: String,
        share: ReadShare,
        deadline: Deadline,
    ) -> Result<Explanation, Error> {
        reads::ask_loaded(&self.engine, [self.row(epoch)?], share, deadline, move |[run]| run.explain(&actor)).await
    }

    /// How the amounts are spread over the payees, by asset.
    pub async fn distribution(
        &self,
        epoch: &EpochId,
        share: ReadShare,
        deadline: Deadline,
    ) -> Result<Vec<AssetDistribution>, Error> {
        let spread = |[run]: [&Loaded; 1]| {
            let paying = run.computed.paying().1.iter();
            Ok(paying.map(|allocation| distribution(&allocation.asset, &allocation.amounts)).collect())
        };
        reads::ask_loaded(&self.engine, [self.row(epoch)?], share, deadline, spread).await
    }

    /// What changed from another epoch to this one, and why; the largest changes of each asset.
    pub async fn diff(
        &self,
        epoch: &EpochId,
        other: &EpochId,
        listed_max: usize,
        share: ReadShare,
        deadline: Deadline,
    ) -> Result<Diff, Error> {
        let threads = self.engine.options.run_threads;
        let compare = move |[from, to]: [&Loaded; 2]| {
            Ok(diff(&Side::of(&from.computed), &Side::of(&to.computed), listed_max, threads))
        };
        reads::ask_loaded(&self.engine, [self.row(other)?, self.row(epoch)?], share, deadline, compare).await
    }

    /// An artifact of a sealed epoch, to be read piece by piece.
    pub async fn artifact(
        &self,
        epoch: &EpochId,
        name: String,
        share: ReadShare,
        deadline: Deadline,
    ) -> Result<ArtifactReader, Error> {
        let row = self.row(epoch)?;
        let beside = [MANIFEST, COMMITMENT].into_iter().chain(row.corrects.is_some().then_some(SIGNATURES));
        let names: Vec<&str> = row.artifacts.keys().map(String::as_str).chain(beside).collect();
        let unknown = || Error::new(Kind::NotFound, format!("this epoch has the artifacts {}", names.join(", ")));
        if !names.contains(&name.as_str()) {
            return Err(unknown());
        }
        let open = move |run: &SealedRun| match run.disk().open(&name) {
            // Nobody has signed the correction, or a version took it in that kept no signatures.
            Err(error) if name == SIGNATURES && error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(ArtifactReader::new(opened?)?)),
        };
        reads::ask(&self.engine, Arc::clone(&row), share, deadline, open).await?.ok_or_else(unknown)
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
            let row = released.map_err(store_error)?;
            if row.status == EpochStatus::Quarantined {
                // It was rejected, or found out, between the look and the record.
                return Err(quarantined(&row));
            }
            // Said here and not by the caller: who has left, or was out of time, has released it all the same.
            tracing::info!(epoch = row.epoch, by = row.released_by, lifts, "an epoch is released");
            engine.events.publish(RewardEvent { epoch: row.epoch.clone(), status: row.status });
            engine.wake_emitter();
            Ok(row)
        });
        released.await
    }

    /// Says that a held epoch is never paid, and why; fine if it was said before. What it carried in is there for
    /// another run, and its name for the right one.
    pub async fn reject(
        &self,
        epoch: &EpochId,
        by: &str,
        why: &str,
        deadline: Deadline,
    ) -> Result<Arc<EpochRow>, Error> {
        let row = self.row(epoch)?;
        if row.is_rejected() {
            return Ok(row);
        }
        let detail = format!("{by} rejected it{}{why}", if why.is_empty() { "" } else { ": " });
        let (engine, epoch) = (Arc::clone(&self.engine), epoch.to_string());
        let rejected = blocking(deadline, move || {
            let store = engine.store()?;
            if let Some(into) = engine.carried_into(store, &epoch) {
                let spent = StoreError::LeftOverSpent { from: epoch, into };
                return Err(store_error(spent));
            }
            store.reject(&epoch, detail).map_err(store_error)
        });
        let row = rejected.await?;
        tracing::info!(epoch = row.epoch, by, why, "an epoch is rejected");
        self.engine.counts.ended(&row);
        self.engine.events.publish(RewardEvent { epoch: row.epoch.clone(), status: row.status });
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
        blocking(deadline, move || retention::remove(&engine, &epoch, &by).map_err(store_error)).await
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

    /// Takes a file in, piece by piece; it is kept only if its bytes have the hash that was said. One that is here
    /// already is read to its end, so that its sender is heard out and the connection can be used again.
    pub async fn upload(
        &self,
        hash: [u8; 32],
        announced: u64,
        mut pieces: impl Stream<Item = Result<Bytes, Error>> + Unpin,
    ) -> Result<Uploaded, Error> {
        if let Some(length) = self.has_input(&hash) {
            let mut repeated = Repeated::new(hash, length);
            while let Some(piece) = pieces.next().await {
                repeated.write(&piece?)?;
            }
            let uploaded = repeated.finish()?;
            let is_there = self.has_input(&hash).is_some();
            let removed = || Error::new(Kind::Conflict, "the file was removed meanwhile; bring it again");
            return if is_there { Ok(uploaded) } else { Err(removed()) };
        }
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
        blocking(forever, move || upload.finish()).await
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

/// What the seal log did not take, in the taxonomy of the node.
fn store_error(error: StoreError) -> Error {
    let is_conflict = matches!(
        error,
        StoreError::Corrected { .. }
            | StoreError::LeftOverSpent { .. }
            | StoreError::Dead(_)
            | StoreError::NotHeld { .. }
            | StoreError::Needed(_)
    );
    Error::new(if is_conflict { Kind::Conflict } else { Kind::Degraded }, error.to_string())
}

/// Why nothing more of an epoch is paid, and the one way on that pays nobody twice.
pub(crate) fn quarantined(row: &EpochRow) -> Error {
    let EpochRow { epoch, quarantine, .. } = row;
    let (reason, why) = quarantine.as_ref().map_or(("", ""), |found| (found.reason.as_str(), found.detail.as_str()));
    let advice = if row.is_liftable() {
        "mend the cause, then release it with its quarantine lifted: payouts that are booked are not booked again"
    } else if row.is_rejected() {
        "it has paid nobody: compute what is right under the same id, and a person releases it"
    } else {
        "it has paid nobody: mend its inputs or its policy and compute them under another id"
    };
    Error::new(Kind::Quarantine, format!("epoch {epoch} is quarantined ({reason}): {why}; {advice}"))
}

fn unknown(epoch: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no epoch {epoch}"))
}
