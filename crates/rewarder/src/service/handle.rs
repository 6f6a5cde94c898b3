//! The handle of the rewarder: what planes and commands call. It knows neither HTTP nor JSON bodies.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use ron_calculus::Explanation;
use ron_kernel::Deadline;
use ron_ledger::Book;
use ron_types::limits::MIB;
use ron_types::limits::rewarder::EPOCH_DURATION;
use ron_types::{Error, Kind};
use serde::Serialize;
use tokio::sync::oneshot;

use super::engine::{Asked, Begun, Engine, LiveOptions, Progress, Refusal};
use super::reads::{self, ArtifactReader};
use super::request::{ComputeRequest, Grounds, InputRef};
use crate::artifacts::{COMMITMENT, MANIFEST};
use crate::diff::{Diff, Side, diff};
use crate::distribution::{AssetDistribution, distribution};
use crate::epoch::EpochId;
use crate::inputs::Upload;
use crate::manifest::Manifest;
use crate::proofs::{ActorProofs, ProofFormat};
use crate::sealed::SealedRun;
use crate::store::{EpochRow, EpochStatus};
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
        let engine = Arc::clone(&self.engine);
        let prepared = blocking(deadline, move || {
            let (options, live) = (&engine.options, engine.live.get());
            let grounds = Grounds {
                inputs: &options.inputs,
                inputs_dir: options.inputs_dir.as_deref(),
                trusted: options.trusted.as_ref(),
                allows_unsigned: live.value.unsigned_policies,
                is_amnesia: options.is_amnesia,
            };
            request.prepare(&grounds)
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
        let prove = move |run: &SealedRun| run.load()?.prove(&actor, format, None);
        reads::ask(&self.engine, self.row(epoch)?, deadline, prove).await
    }

    /// Every integer of one actor's amounts.
    pub async fn explain(&self, epoch: &EpochId, actor: String, deadline: Deadline) -> Result<Explanation, Error> {
        reads::ask(&self.engine, self.row(epoch)?, deadline, move |run| run.explain(&actor)).await
    }

    /// How the amounts are spread over the payees, by asset.
    pub async fn distribution(&self, epoch: &EpochId, deadline: Deadline) -> Result<Vec<AssetDistribution>, Error> {
        let spread = |run: &SealedRun| {
            let loaded = run.load()?;
            let paying = loaded.computed.paying().1.iter();
            Ok(paying.map(|allocation| distribution(&allocation.asset, &allocation.amounts)).collect())
        };
        reads::ask(&self.engine, self.row(epoch)?, deadline, spread).await
    }

    /// What changed from another epoch to this one, and why; the largest changes of each asset.
    pub async fn diff(
        &self,
        epoch: &EpochId,
        other: &EpochId,
        listed_max: usize,
        deadline: Deadline,
    ) -> Result<Diff, Error> {
        let (engine, other) = (Arc::clone(&self.engine), self.row(other)?);
        let compare = move |run: &SealedRun| {
            let (from, to) = (reads::open_run(&engine, &other)?.load()?, run.load()?);
            let threads = engine.options.run_threads;
            Ok(diff(&Side::of(&from.computed), &Side::of(&to.computed), listed_max, threads))
        };
        reads::ask(&self.engine, self.row(epoch)?, deadline, compare).await
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

    /// Lets the payouts of a held epoch leave; fine if they have left already.
    pub async fn release(&self, epoch: &EpochId, by: &str, deadline: Deadline) -> Result<Arc<EpochRow>, Error> {
        let row = self.row(epoch)?;
        match row.status {
            EpochStatus::Released | EpochStatus::Settled => return Ok(row),
            EpochStatus::Quarantined => {
                let why = row.quarantine.as_ref().map_or("", |quarantine| quarantine.detail.as_str());
                return Err(Error::new(Kind::Quarantine, format!("epoch {epoch} is quarantined: {why}")));
            }
            EpochStatus::Held if !row.is_payable => {
                let why = row.held_because.as_deref().unwrap_or_default();
                return Err(Error::new(Kind::Conflict, format!("epoch {epoch} cannot be paid: {why}")));
            }
            EpochStatus::Held => {}
        }
        let (engine, epoch, by) = (Arc::clone(&self.engine), epoch.to_string(), by.to_owned());
        let released = blocking(deadline, move || {
            let released = engine.store()?.release(&epoch, &by);
            released.map_err(|error| Error::new(Kind::Degraded, error.to_string()))
        });
        let row = released.await?;
        tracing::info!(epoch = row.epoch, by = row.released_by, "an epoch is released");
        self.engine.wake_emitter();
        Ok(row)
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

fn unknown(epoch: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no epoch {epoch}"))
}
